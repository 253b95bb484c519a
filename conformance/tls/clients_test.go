package tls

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"cairn.dev/conformance/harness"
)

// Clients need no certificate unless authorities are named.
func TestServerCertificate(t *testing.T) {
	both(t, func(t *testing.T, kind harness.Kind) {
		authority := newAuthority(t, "authority")
		own := authority.server("server")
		server := start(t, kind, "--cert-file="+own.cert, "--key-file="+own.key)
		logs(t, server, "serving client traffic securely")
		admits(t, server, authority.trust())
		refuses(t, server, newAuthority(t, "other").trust())
		logs(t, server, "rejected connection on client endpoint")
		logs(t, server, "remote error: tls: bad certificate")
		if err := put("http://"+server.Endpoint(), nil, refusal); err == nil {
			t.Error("plaintext is spoken at an https URL")
		}
		// The answer to it differs from release to release: what matters is that nothing is served.
		if status, _, err := get("http://"+server.Endpoint()+"/health", &tls.Config{}); err == nil && status == http.StatusOK {
			t.Error("plaintext HTTP is served at an https URL")
		}
		admits(t, server, authority.trust())
	})
}

func TestClientCertificates(t *testing.T) {
	both(t, func(t *testing.T, kind harness.Kind) {
		authority := newAuthority(t, "authority")
		own := authority.server("server")
		server := start(t, kind, "--cert-file="+own.cert, "--key-file="+own.key,
			"--trusted-ca-file="+authority.file, "--client-cert-auth")
		admits(t, server, authority.trust(authority.client("somebody")))
		refuses(t, server, authority.trust())
		logs(t, server, "rejected connection on client endpoint")
		refuses(t, server, authority.trust(newAuthority(t, "authority").client("stranger")))
		refuses(t, server, authority.trust(authority.issue("late", want{name: "late", until: -time.Hour})))
		onlyServer := want{name: "server", usage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}
		refuses(t, server, authority.trust(authority.issue("only-server", onlyServer)))
		admits(t, server, authority.trust(authority.client("somebody else")))
	})
}

// Authorities alone ask for certificates too, and a name may be asked for.
func TestAllowedHostname(t *testing.T) {
	both(t, func(t *testing.T, kind harness.Kind) {
		authority := newAuthority(t, "authority")
		own := authority.server("server")
		server := start(t, kind, "--cert-file="+own.cert, "--key-file="+own.key,
			"--trusted-ca-file="+authority.file, "--client-cert-allowed-hostname=client.example")
		named := authority.issue("named", want{name: "somebody", hosts: []string{"client.example"}})
		admits(t, server, authority.trust(named))
		other := authority.issue("other", want{name: "client.example", hosts: []string{"other.example"}})
		refuses(t, server, authority.trust(other))
		logs(t, server, "client certificate authentication failed")
		refuses(t, server, authority.trust())
	})
}

func TestVersions(t *testing.T) {
	both(t, func(t *testing.T, kind harness.Kind) {
		for _, flag := range []string{"--tls-min-version=TLS1.3", "--tls-max-version=TLS1.2"} {
			authority := newAuthority(t, "authority")
			own := authority.server("server")
			server := start(t, kind, "--cert-file="+own.cert, "--key-file="+own.key, flag)
			for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
				config := authority.trust()
				config.MinVersion, config.MaxVersion = version, version
				if (version == tls.VersionTLS13) == strings.Contains(flag, "min") {
					admits(t, server, config)
				} else {
					refuses(t, server, config)
				}
			}
			server.Stop()
		}
	})
}

func TestCipherSuites(t *testing.T) {
	both(t, func(t *testing.T, kind harness.Kind) {
		authority := newAuthority(t, "authority")
		own := authority.server("server")
		server := start(t, kind, "--cert-file="+own.cert, "--key-file="+own.key,
			"--cipher-suites=TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256")
		for suite, fits := range map[uint16]bool{
			tls.TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256:       true,
			tls.TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384:       false,
			tls.TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256: false,
		} {
			config := authority.trust()
			config.MaxVersion, config.CipherSuites = tls.VersionTLS12, []uint16{suite}
			if state, err := handshake(server.Endpoint(), config); (err == nil) != fits {
				t.Errorf("%s: %v", tls.CipherSuiteName(suite), err)
			} else if fits && state.CipherSuite != suite {
				t.Errorf("asked for %s, got %s", tls.CipherSuiteName(suite), tls.CipherSuiteName(state.CipherSuite))
			}
		}
		admits(t, server, authority.trust())
	})
}

// TLS and plaintext at one port, when URLs ask for both.
func TestBothAtOnePort(t *testing.T) {
	both(t, func(t *testing.T, kind harness.Kind) {
		authority := newAuthority(t, "authority")
		own := authority.server("server")
		server := prepare(t, kind)
		secure, plain, peer := "https://"+server.Endpoint(), "http://"+server.Endpoint(), server.PeerURL()
		server.SetFlags("--name=default", "--data-dir="+server.DataDir, "--initial-cluster=default="+peer,
			"--listen-client-urls="+secure+","+plain, "--advertise-client-urls="+secure+","+plain,
			"--listen-peer-urls="+peer, "--initial-advertise-peer-urls="+peer,
			"--cert-file="+own.cert, "--key-file="+own.key)
		server.Run()
		admits(t, server, authority.trust())
		if err := put(plain, nil, patience); err != nil {
			t.Error(err)
		}
		for _, url := range []string{plain, secure} {
			if status, text, err := get(url+"/version", authority.trust()); err != nil || status != http.StatusOK {
				t.Errorf("%s: %d %q %v", url, status, text, err)
			}
		}
	})
}

func TestMetricsURL(t *testing.T) {
	both(t, func(t *testing.T, kind harness.Kind) {
		authority := newAuthority(t, "authority")
		own := authority.server("server")
		endpoint := fmt.Sprintf("127.0.0.1:%d", harness.Port(t))
		plain := fmt.Sprintf("127.0.0.1:%d", harness.Port(t))
		start(t, kind, "--cert-file="+own.cert, "--key-file="+own.key,
			"--trusted-ca-file="+authority.file, "--client-cert-auth",
			"--listen-metrics-urls=https://"+endpoint+",http://"+plain)
		somebody := authority.trust(authority.client("somebody"))
		for path, wanted := range map[string]int{"/metrics": 200, "/health": 200, "/version": 404, "/v3/kv/range": 404} {
			for _, url := range []string{"https://" + endpoint, "http://" + plain} {
				if status, text, err := get(url+path, somebody); err != nil || status != wanted {
					t.Errorf("%s%s: %d %.80q %v", url, path, status, text, err)
				}
			}
		}
		if _, _, err := get("https://"+endpoint+"/health", authority.trust()); err == nil {
			t.Error("metrics are told to whoever has no certificate")
		}
	})
}

func TestAutoTLS(t *testing.T) {
	both(t, func(t *testing.T, kind harness.Kind) {
		server := start(t, kind, "--auto-tls", "--self-signed-cert-validity=3")
		config := &tls.Config{InsecureSkipVerify: true}
		admits(t, server, config)
		state, err := handshake(server.Endpoint(), config)
		if err != nil {
			t.Fatal(err)
		}
		certificate := state.PeerCertificates[0]
		if err := certificate.VerifyHostname("127.0.0.1"); err != nil {
			t.Error(err)
		}
		if left := time.Until(certificate.NotAfter); left < 2*365*24*time.Hour || left > 4*365*24*time.Hour {
			t.Errorf("it is valid for %v", left)
		}
		server.Stop()
		server.Run()
		again, err := handshake(server.Endpoint(), config)
		if err != nil || !again.PeerCertificates[0].Equal(certificate) {
			t.Errorf("another certificate after a restart: %v", err)
		}
	})
}

// gRPC and HTTP at ports of their own.
func TestHTTPAtAnotherPort(t *testing.T) {
	both(t, func(t *testing.T, kind harness.Kind) {
		authority := newAuthority(t, "authority")
		own := authority.server("server")
		other := fmt.Sprintf("https://127.0.0.1:%d", harness.Port(t))
		server := start(t, kind, "--cert-file="+own.cert, "--key-file="+own.key, "--listen-client-http-urls="+other)
		config := authority.trust()
		if err := put("https://"+server.Endpoint(), config, patience); err != nil {
			t.Error(err)
		}
		if status, text, err := get(other+"/version", config); err != nil || status != http.StatusOK {
			t.Errorf("%d %q %v", status, text, err)
		}
		if status, _, err := get("https://"+server.Endpoint()+"/version", config); err == nil && status == http.StatusOK {
			t.Error("HTTP is served where gRPC alone is")
		}
		if err := put(other, config, refusal); err == nil {
			t.Error("gRPC is served where HTTP alone is")
		}
	})
}

// Connections that begin a handshake and stall neither keep others out nor
// stay.
func TestStalledHandshakes(t *testing.T) {
	authority := newAuthority(t, "authority")
	own := authority.server("server")
	server := start(t, harness.Cairn, "--cert-file="+own.cert, "--key-file="+own.key)
	stalled := harness.Number(t, "STALLED", 1500)
	for index := range stalled {
		connection, err := net.DialTimeout("tcp", server.Endpoint(), patience)
		if err != nil {
			t.Fatalf("%d: %v", index, err)
		}
		defer connection.Close()
		// The head of a record, and half of what it announces.
		connection.Write(append([]byte{22, 3, 1, 2, 0, 1, 0, 1, 252, 3, 3}, make([]byte, 100)...))
	}
	began := time.Now()
	admits(t, server, authority.trust())
	t.Logf("let in after %v beside %d stalled handshakes", time.Since(began), stalled)
	_, page, err := get("https://"+server.Endpoint()+"/metrics", authority.trust())
	if err != nil || !strings.Contains(page, `cairn_tls_handshakes_total{outcome="given_up"}`) {
		t.Errorf("no count of handshakes that were given up: %v", err)
	}
}
