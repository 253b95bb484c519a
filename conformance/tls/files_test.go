package tls

import (
	"bytes"
	"crypto/tls"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"cairn.dev/conformance/harness"
)

// SIGHUP has certificates read anew, even if their files do not look changed.
func TestHangupReadsCertificates(t *testing.T) {
	t.Parallel()
	if harness.Subject() == harness.Etcd {
		t.Skip("SIGHUP ends etcd")
	}
	own := newAuthority(t, "authority").server("server")
	server := start(t, harness.Subject(), "--cert-file="+own.cert, "--key-file="+own.key)
	if err := syscall.Kill(server.Pid(), syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	server.AwaitLog(t, "read certificates, keys and authorities anew")
	server.AwaitLog(t, "received SIGHUP")
}

// What was revoked stays out, everywhere, from the moment the list says so.
func TestRevocation(t *testing.T) {
	both(t, func(t *testing.T, kind harness.Kind) {
		authority := newAuthority(t, "authority")
		own, good, bad := authority.server("server"), authority.client("good"), authority.client("bad")
		list := authority.revoke("crl", bad)
		metrics := fmt.Sprintf("127.0.0.1:%d", harness.Port(t))
		server := start(t, kind, "--cert-file="+own.cert, "--key-file="+own.key, "--trusted-ca-file="+authority.file,
			"--client-cert-auth", "--client-crl-file="+list, "--listen-metrics-urls=https://"+metrics)
		everywhere := func(config *tls.Config, wanted bool) {
			t.Helper()
			if wanted {
				admits(t, server, config)
			} else {
				refuses(t, server, config)
			}
			if status, _, err := get("https://"+metrics+"/health", config); (err == nil && status == 200) != wanted {
				t.Errorf("metrics: %d %v", status, err)
			}
		}
		everywhere(authority.trust(good), true)
		everywhere(authority.trust(bad), false)
		logs(t, server, "revoked")
		// Sessions that are resumed are looked at as all others.
		resuming := authority.trust(good)
		resuming.ClientSessionCache = tls.NewLRUClientSessionCache(8)
		for range 2 {
			if _, err := handshake(server.Endpoint(), resuming); err != nil {
				t.Fatal(err)
			}
		}
		authority.revoke("crl", bad, good)
		everywhere(authority.trust(good), false)
		if _, err := handshake(server.Endpoint(), resuming); err == nil {
			t.Error("a revoked client is let in by an old session")
		}
		authority.revoke("crl")
		everywhere(authority.trust(good), true)
		everywhere(authority.trust(bad), true)
		// A list that cannot be read any more might name anybody.
		for name, spoil := range map[string]func() error{
			"gone":     func() error { return os.Remove(list) },
			"nonsense": func() error { return os.WriteFile(list, []byte("nonsense"), 0o600) },
		} {
			if err := spoil(); err != nil {
				t.Fatal(err)
			}
			everywhere(authority.trust(good), false)
			if _, err := handshake(server.Endpoint(), resuming); err == nil {
				t.Errorf("%s: a client is let in by an old session", name)
			}
			authority.revoke("crl")
			everywhere(authority.trust(good), true)
		}
	})
}

// An authority between the root and the client that was revoked.
func TestRevokedIntermediate(t *testing.T) {
	t.Parallel()
	root := newAuthority(t, "root")
	own := root.server("server")
	between := root.intermediate("between")
	client := between.client("somebody")
	// The client shows who signed its certificate.
	client.tls.Certificate = append(client.tls.Certificate, between.certificate.Raw)
	list := root.revoke("crl")
	server := start(t, harness.Cairn, "--cert-file="+own.cert, "--key-file="+own.key, "--trusted-ca-file="+root.file,
		"--client-crl-file="+list)
	admits(t, server, root.trust(client))
	root.revoke("crl", pair{serial: between.certificate.SerialNumber})
	refuses(t, server, root.trust(client))
}

// A certificate with its key is replaced while the server runs.
func TestReplacedCertificate(t *testing.T) {
	both(t, func(t *testing.T, kind harness.Kind) {
		authority := newAuthority(t, "authority")
		own := authority.server("server")
		server := start(t, kind, "--cert-file="+own.cert, "--key-file="+own.key)
		admits(t, server, authority.trust())
		next := authority.server("server")
		state, err := handshake(server.Endpoint(), authority.trust())
		if err != nil || state.PeerCertificates[0].SerialNumber.Cmp(next.serial) != 0 {
			t.Errorf("the old certificate is shown: %v", err)
		}
		admits(t, server, authority.trust())
	})
}

// So are authorities; and files that are no good do not end what works.
func TestReplacedFiles(t *testing.T) {
	t.Parallel()
	first, second := newAuthority(t, "first"), newAuthority(t, "second")
	own, mine, theirs := first.server("server"), first.client("mine"), second.client("theirs")
	server := start(t, harness.Cairn, "--cert-file="+own.cert, "--key-file="+own.key, "--trusted-ca-file="+first.file)
	admits(t, server, first.trust(mine))
	refuses(t, server, first.trust(theirs))

	resuming := first.trust(mine)
	resuming.ClientSessionCache = tls.NewLRUClientSessionCache(8)
	if _, err := handshake(server.Endpoint(), resuming); err != nil {
		t.Fatal(err)
	}
	replace(t, first.file, mustRead(t, second.file))
	admits(t, server, first.trust(theirs))
	refuses(t, server, first.trust(mine))
	if _, err := handshake(server.Endpoint(), resuming); err == nil {
		t.Error("whoever is trusted no more is let in by an old session")
	}

	whole := mustRead(t, own.cert)
	for name, broken := range map[string][]byte{
		"empty": nil, "half": whole[:len(whole)/2], "nonsense": []byte("nonsense"),
		"another key's":  mustRead(t, first.server("another").cert),
		"out of date":    mustRead(t, first.issue("late", want{name: "server", ips: []string{"127.0.0.1"}, until: -time.Hour}).cert),
		"an authority's": nil,
	} {
		path := own.cert
		if name == "an authority's" {
			path, broken = first.file, []byte("nonsense")
		}
		before := mustRead(t, path)
		replace(t, path, broken)
		state, err := handshake(server.Endpoint(), first.trust(theirs))
		if err != nil || state.PeerCertificates[0].SerialNumber.Cmp(own.serial) != 0 {
			t.Errorf("a file that is %s ends what worked: %v", name, err)
		}
		replace(t, path, before)
	}
	logs(t, server, "what was read before is used on")
	if err := os.Remove(own.key); err != nil {
		t.Fatal(err)
	}
	admits(t, server, first.trust(theirs))
	_, page, err := get("https://"+server.Endpoint()+"/metrics", first.trust(theirs))
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{
		`cairn_tls_certificate_expiry_timestamp_seconds{for="client",file="` + own.cert,
		`cairn_tls_certificate_expiry_timestamp_seconds{for="client",file="` + first.file,
		`cairn_tls_reloads_total{for="client",outcome="ok"}`, `cairn_tls_reloads_total{for="client",outcome="failed"}`,
	} {
		if !strings.Contains(page, text) {
			t.Errorf("the metrics lack %s", text)
		}
	}
	if strings.Contains(page, "PRIVATE") || bytes.Contains([]byte(server.Log()), []byte("PRIVATE KEY")) {
		t.Error("a key is shown")
	}
}

// Files that no member can start with: exit code 1, and a sentence that says
// which.
func TestRefusedFiles(t *testing.T) {
	t.Parallel()
	authority := newAuthority(t, "authority")
	own, other := authority.server("server"), authority.server("other")
	late := authority.issue("late", want{name: "late", until: -time.Hour})
	dir := t.TempDir()
	file := func(name string, content []byte) string {
		path := filepath.Join(dir, name)
		replace(t, path, content)
		return path
	}
	empty, nonsense := file("empty", nil), file("nonsense", []byte("nonsense"))
	half := file("half", mustRead(t, own.cert)[:200])
	missing := filepath.Join(dir, "missing")
	// As openssl writes keys with a passphrase, now and before PKCS #8.
	locked := file("locked", bytes.ReplaceAll(mustRead(t, own.key), []byte(" PRIVATE"), []byte(" ENCRYPTED PRIVATE")))
	lockedBefore := file("locked-before", bytes.Replace(bytes.ReplaceAll(mustRead(t, own.key), []byte(" PRIVATE"), []byte(" EC PRIVATE")),
		[]byte("KEY-----\n"), []byte("KEY-----\nProc-Type: 4,ENCRYPTED\nDEK-Info: AES-256-CBC,00112233445566778899AABBCCDDEEFF\n\n"), 1))
	certificate := "--cert-file=" + own.cert
	pair := []string{certificate, "--key-file=" + own.key}
	for _, test := range []struct {
		flags []string
		says  []string
	}{
		{nil, []string{"TLS key/cert (--cert-file, --key-file) must be provided for client url"}},
		{[]string{certificate}, []string{"KeyFile and CertFile must both be present"}},
		{[]string{"--cert-file=" + empty, "--key-file=" + own.key}, []string{"--cert-file", empty, "failed to find any PEM data in certificate input"}},
		{[]string{"--cert-file=" + nonsense, "--key-file=" + own.key}, []string{"--cert-file", nonsense, "PEM"}},
		{[]string{"--cert-file=" + half, "--key-file=" + own.key}, []string{"--cert-file", half}},
		{[]string{"--cert-file=" + own.key, "--key-file=" + own.key}, []string{"--cert-file", own.key}},
		{[]string{"--cert-file=" + missing, "--key-file=" + own.key}, []string{"--cert-file", missing, "no such file or directory"}},
		{[]string{"--cert-file=" + late.cert, "--key-file=" + late.key}, []string{"--cert-file", late.cert, "expired"}},
		{[]string{certificate, "--key-file=" + other.key}, []string{"--key-file", other.key, "private key does not match public key"}},
		{[]string{certificate, "--key-file=" + empty}, []string{"--key-file", empty, "failed to find any PEM data in key input"}},
		{[]string{certificate, "--key-file=" + locked}, []string{"--key-file", locked, "encrypted with a passphrase"}},
		{[]string{certificate, "--key-file=" + lockedBefore}, []string{"--key-file", lockedBefore, "encrypted with a passphrase"}},
		{append(pair, "--trusted-ca-file="+empty), []string{"--trusted-ca-file", empty}},
		{append(pair, "--trusted-ca-file="+missing), []string{"--trusted-ca-file", missing}},
		{append(pair, "--trusted-ca-file="+other.cert), []string{"--trusted-ca-file", other.cert, "authority"}},
		{append(pair, "--client-crl-file="+nonsense), []string{"--client-crl-file", nonsense}},
		{append(pair, "--cipher-suites=NONE"), []string{`unexpected TLS cipher suite \"NONE\"`}},
		{append(pair, "--cipher-suites=TLS_RSA_WITH_AES_128_CBC_SHA"), []string{"--cipher-suites"}},
		{append(pair, "--tls-min-version=TLS1.3", "--cipher-suites=TLS_AES_128_GCM_SHA256"), []string{"cipher suites cannot be configured when only TLS1.3 is enabled"}},
		{append(pair, "--tls-min-version=TLS1.3", "--tls-max-version=TLS1.2"), []string{"min version (TLS1.3) is greater than max version (TLS1.2)"}},
		{append(pair, "--tls-min-version=TLS1.1"), []string{"unexpected TLS version"}},
	} {
		server := prepare(t, harness.Cairn, test.flags...)
		err := server.TryRun(patience)
		if err == nil {
			t.Errorf("%v: the server starts", test.flags)
			server.Stop()
			continue
		}
		if code, _ := server.Wait(patience); code != 1 {
			t.Errorf("%v: exit code %d", test.flags, code)
		}
		for _, text := range test.says {
			if !strings.Contains(server.Log(), text) {
				t.Errorf("%v: the log lacks %q\n%s", test.flags, text, server.LogTail())
			}
		}
	}
}

func mustRead(t *testing.T, path string) []byte {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return content
}

// replace writes a file in place.
func replace(t *testing.T, path string, content []byte) {
	t.Helper()
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
}
