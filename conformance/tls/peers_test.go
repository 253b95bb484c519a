package tls

import (
	"crypto/tls"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"cairn.dev/conformance/harness"
)

// member is one of three that talk TLS with each other; plain HTTP to clients.
func members(t *testing.T, kind harness.Kind, flags func(index int) []string) []*harness.Server {
	t.Helper()
	servers := make([]*harness.Server, 3)
	var initial []string
	for index := range servers {
		server := harness.Prepare(t, kind, filepath.Join(t.TempDir(), "data"))
		server.Bare = true
		servers[index] = server
		initial = append(initial, fmt.Sprintf("m%d=https://127.0.0.1:%d", index, server.PeerPort))
	}
	for index, server := range servers {
		client, peer := "http://"+server.Endpoint(), fmt.Sprintf("https://127.0.0.1:%d", server.PeerPort)
		server.SetFlags(append([]string{
			fmt.Sprintf("--name=m%d", index), "--data-dir=" + server.DataDir,
			"--initial-cluster=" + strings.Join(initial, ","),
			"--listen-client-urls=" + client, "--advertise-client-urls=" + client,
			"--listen-peer-urls=" + peer, "--initial-advertise-peer-urls=" + peer,
		}, flags(index)...)...)
	}
	return servers
}

// runAll starts members at once: one alone is never ready.
func runAll(t *testing.T, servers []*harness.Server) {
	t.Helper()
	failed := make(chan error, len(servers))
	for _, server := range servers {
		go func() { failed <- server.TryRun(60 * time.Second) }()
	}
	for range servers {
		if err := <-failed; err != nil {
			t.Fatal(err)
		}
	}
}

// serves writes through each member.
func serves(t *testing.T, servers []*harness.Server) {
	t.Helper()
	for _, server := range servers {
		if err := put("http://"+server.Endpoint(), nil, patience); err != nil {
			t.Fatalf("%v\n%s", err, server.LogTail())
		}
	}
}

func TestPeers(t *testing.T) {
	both(t, func(t *testing.T, kind harness.Kind) {
		authority := newAuthority(t, "authority")
		own := authority.issue("peer", want{name: "member", ips: []string{"127.0.0.1"}})
		servers := members(t, kind, func(int) []string {
			return []string{"--peer-cert-file=" + own.cert, "--peer-key-file=" + own.key,
				"--peer-trusted-ca-file=" + authority.file, "--peer-client-cert-auth", "--peer-cert-allowed-cn=member"}
		})
		runAll(t, servers)
		serves(t, servers)
		// Somebody else gets nothing.
		endpoint := fmt.Sprintf("127.0.0.1:%d", servers[0].PeerPort)
		if _, err := handshake(endpoint, authority.trust()); err == nil {
			t.Error("a peer without a certificate is let in")
		}
		stranger := authority.issue("stranger", want{name: "stranger", ips: []string{"127.0.0.1"}})
		if _, err := handshake(endpoint, authority.trust(stranger)); err == nil {
			t.Error("a peer with another common name is let in")
		}
		logs(t, servers[0], "rejected connection on peer endpoint")
		logs(t, servers[0], "client certificate authentication failed")
		astray := authority.issue("astray", want{name: "member", ips: []string{"10.1.2.3"}})
		if _, err := handshake(endpoint, authority.trust(astray)); err == nil {
			t.Error("a peer from elsewhere is let in")
		}
		logs(t, servers[0], "x509: certificate is valid for 10.1.2.3, not 127.0.0.1")
		// A member that was away finds its way back.
		servers[1].Stop()
		serves(t, []*harness.Server{servers[0], servers[2]})
		servers[1].Run()
		serves(t, servers)
	})
}

func TestPeerAutoTLS(t *testing.T) {
	both(t, func(t *testing.T, kind harness.Kind) {
		servers := members(t, kind, func(int) []string { return []string{"--peer-auto-tls"} })
		runAll(t, servers)
		serves(t, servers)
		if _, err := handshake(fmt.Sprintf("127.0.0.1:%d", servers[0].PeerPort), &tls.Config{InsecureSkipVerify: true}); err != nil {
			t.Error(err)
		}
	})
}

// A peer whose certificate was revoked is out, and in again when the list no
// longer has it; certificates of members are replaced while they run.
func TestPeerFilesAreReplaced(t *testing.T) {
	t.Parallel()
	authority := newAuthority(t, "authority")
	list := authority.revoke("crl")
	pairs := make([]pair, 3)
	issue := func(index int) {
		pairs[index] = authority.issue(fmt.Sprintf("peer%d", index), want{name: "member", ips: []string{"127.0.0.1"}})
	}
	servers := members(t, harness.Cairn, func(index int) []string {
		issue(index)
		return []string{"--peer-cert-file=" + pairs[index].cert, "--peer-key-file=" + pairs[index].key,
			"--peer-trusted-ca-file=" + authority.file, "--peer-client-cert-auth", "--peer-crl-file=" + list}
	})
	runAll(t, servers)
	serves(t, servers)
	// The connections that are open go on; a member that comes again does not get in.
	authority.revoke("crl", pairs[2])
	servers[2].Kill()
	if err := servers[2].TryRun(8 * time.Second); err == nil {
		t.Error("a member whose certificate was revoked joins")
		servers[2].Stop()
	}
	logs(t, servers[0], "revoked")
	serves(t, servers[:2])
	issue(2)
	servers[2].Run()
	serves(t, servers)
	for index := range servers {
		issue(index)
	}
	servers[0].Stop()
	servers[0].Run()
	serves(t, servers)
}
