package tls

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"cairn.dev/conformance/harness"
)

// observer is one that follows a member, with these flags, not started yet. It
// serves clients at https.
func observer(t *testing.T, source *harness.Server, flags ...string) *harness.Server {
	t.Helper()
	server := harness.Prepare(t, harness.Cairn, filepath.Join(t.TempDir(), "data"))
	server.Bare = true
	client, peer := "https://"+server.Endpoint(), fmt.Sprintf("https://127.0.0.1:%d", server.PeerPort)
	server.SetFlags(append([]string{
		"--observer", fmt.Sprintf("--follow=https://127.0.0.1:%d", source.PeerPort), "--name=o", "--data-dir=" + server.DataDir,
		"--listen-client-urls=" + client, "--advertise-client-urls=" + client,
		"--listen-peer-urls=" + peer, "--initial-advertise-peer-urls=" + peer,
	}, flags...)...)
	return server
}

// An observer shows members a certificate of peers, believes those of the
// authority that it was told, and serves clients with TLS of its own; another
// observer follows it in the same way.
func TestObservers(t *testing.T) {
	t.Parallel()
	peers, clients, strangers := newAuthority(t, "peers"), newAuthority(t, "clients"), newAuthority(t, "strangers")
	own := peers.issue("peer", want{name: "member", ips: []string{"127.0.0.1"}})
	with := func(shown pair, authority *authority) []string {
		return []string{"--peer-cert-file=" + shown.cert, "--peer-key-file=" + shown.key,
			"--peer-trusted-ca-file=" + authority.file, "--peer-client-cert-auth", "--peer-cert-allowed-cn=member"}
	}
	servers := members(t, harness.Cairn, func(int) []string { return with(own, peers) })
	runAll(t, servers)
	serves(t, servers)

	shown := clients.issue("server", want{name: "server", ips: []string{"127.0.0.1"}})
	secured := []string{"--cert-file=" + shown.cert, "--key-file=" + shown.key, "--trusted-ca-file=" + clients.file, "--client-cert-auth"}
	visitor := clients.trust(clients.client("visitor"))
	first := observer(t, servers[1], append(with(peers.issue("first", want{name: "member", ips: []string{"127.0.0.1"}}), peers), secured...)...)
	first.Run()
	second := observer(t, first, append(with(own, peers), secured...)...)
	second.Run()
	for _, server := range []*harness.Server{first, second} {
		admits(t, server, visitor)
		refuses(t, server, clients.trust())
		refuses(t, server, clients.trust(strangers.client("visitor")))
	}
	// Its peer port lets only peers in.
	if _, err := handshake(fmt.Sprintf("127.0.0.1:%d", first.PeerPort), peers.trust()); err == nil {
		t.Error("a peer without a certificate is let in")
	}

	// Those that may not follow say why, and end as they have never had a source.
	astray := peers.issue("astray", want{name: "somebody", ips: []string{"127.0.0.1"}})
	foreign := strangers.issue("foreign", want{name: "member", ips: []string{"127.0.0.1"}})
	for _, c := range []struct {
		name     string
		flags    []string
		text     string
		memberIs string
	}{
		{"an authority that did not sign the member's certificate", with(own, strangers), "certificate signed by unknown authority", "remote error: tls: "},
		{"a certificate of another authority", with(foreign, peers), "remote error: tls: unknown certificate authority", "client certificate authentication failed"},
		{"a certificate with another name", with(astray, peers), "remote error: tls: bad certificate", "client certificate authentication failed"},
		{"no certificate", []string{"--peer-trusted-ca-file=" + peers.file}, "KeyFile and CertFile are not presented (--peer-key-file, --peer-cert-file)", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			refused := observer(t, servers[0], append(c.flags, secured...)...)
			if err := refused.TryRun(time.Minute); err == nil {
				t.Fatal("it follows")
			}
			if !strings.Contains(refused.Log(), c.text) {
				t.Errorf("the log lacks %q\n%s", c.text, refused.LogTail())
			}
			if c.memberIs != "" {
				logs(t, servers[0], c.memberIs)
			}
		})
	}
}
