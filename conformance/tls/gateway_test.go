package tls

import (
	"crypto/tls"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"cairn.dev/conformance/harness"
)

// postJSON asks the gateway over a connection of its own: its status and text.
func postJSON(t *testing.T, server *harness.Server, config *tls.Config, version, path, body string) (int, string) {
	t.Helper()
	protocols := new(http.Protocols)
	protocols.SetHTTP1(version == "HTTP/1.1")
	protocols.SetHTTP2(version == "HTTP/2")
	transport := &http.Transport{TLSClientConfig: config.Clone(), DisableKeepAlives: true, Protocols: protocols}
	client := &http.Client{Transport: transport, Timeout: patience}
	response, err := client.Post("https://"+server.Endpoint()+path, "application/json", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(text)
}

// The audit log names the certificate of a client that calls by JSON, although
// it is no user there.
func TestAuditOfJSON(t *testing.T) {
	t.Parallel()
	if harness.Subject() == harness.Etcd {
		t.Skip("etcd has no audit log")
	}
	authority := newAuthority(t, "authority")
	own := authority.server("server")
	path := filepath.Join(t.TempDir(), "audit.log")
	server := start(t, harness.Subject(), "--cert-file="+own.cert, "--key-file="+own.key, "--trusted-ca-file="+authority.file,
		"--client-cert-auth", "--audit-log="+path)
	named := authority.trust(authority.client("deployer"))
	if status, text := postJSON(t, server, named, "HTTP/2", "/v3/kv/put", `{"key":"Zm9v","value":"YmFy"}`); status != 200 {
		t.Fatalf("%d %s", status, text)
	}
	var content []byte
	for deadline := time.Now().Add(patience); !strings.Contains(string(content), "\n"); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("no record")
		}
		content, _ = os.ReadFile(path)
	}
	if !strings.Contains(string(content), `"certificate":"deployer"`) || !strings.Contains(string(content), `"user":""`) {
		t.Errorf("the record: %s", content)
	}
}

// JSON over TLS, whatever name the server is called by; and no JSON for those
// who take their certificate for a name, once names matter.
func TestGateway(t *testing.T) {
	both(t, func(t *testing.T, kind harness.Kind) {
		authority := newAuthority(t, "authority")
		own := authority.server("server")
		server := start(t, kind, "--cert-file="+own.cert, "--key-file="+own.key, "--trusted-ca-file="+authority.file,
			"--client-cert-auth", "--host-whitelist=other.example")
		named, nameless := authority.trust(authority.client("root")), authority.trust(authority.client(""))
		for _, version := range []string{"HTTP/1.1", "HTTP/2"} {
			if status, text := postJSON(t, server, named, version, "/v3/kv/put", `{"key":"Zm9v","value":"YmFy"}`); status != 200 {
				t.Fatalf("%s: %d %s", version, status, text)
			}
		}
		for path, body := range map[string]string{
			"/v3/auth/user/add": `{"name":"root","password":"secret"}`, "/v3/auth/role/add": `{"name":"root"}`,
		} {
			if status, text := postJSON(t, server, named, "HTTP/1.1", path, body); status != 200 {
				t.Fatalf("%s: %d %s", path, status, text)
			}
		}
		for _, path := range []string{"/v3/auth/user/grant", "/v3/auth/enable"} {
			if status, text := postJSON(t, server, named, "HTTP/1.1", path, `{"user":"root","role":"root"}`); status != 200 {
				t.Fatalf("%s: %d %s", path, status, text)
			}
		}
		for _, version := range []string{"HTTP/1.1", "HTTP/2"} {
			for _, path := range []string{"/v3/kv/range", "/v3beta/kv/range", "/v3/auth/authenticate"} {
				status, text := postJSON(t, server, named, version, path, `{"key":"Zm9v"}`)
				if status != 400 || !strings.Contains(text, "CommonName of client sending a request against gateway will be ignored") {
					t.Errorf("%s %s: %d %s", version, path, status, text)
				}
			}
			// The genuine gateway passes requests on with the certificate of
			// the server, whose name is no user's; ours names nobody.
			refused := map[harness.Kind]string{harness.Etcd: "permission denied", harness.Cairn: "user name is empty"}[kind]
			if status, text := postJSON(t, server, nameless, version, "/v3/kv/range", `{"key":"Zm9v"}`); !strings.Contains(text, refused) {
				t.Errorf("%s: %d %s", version, status, text)
			}
			if status, text := postJSON(t, server, nameless, version, "/v3/auth/authenticate", `{"name":"root","password":"secret"}`); !strings.Contains(text, `"token":"`) {
				t.Errorf("%s: %d %s", version, status, text)
			}
		}
	})
}
