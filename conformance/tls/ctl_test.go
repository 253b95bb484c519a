package tls

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"cairn.dev/conformance/harness"
	"github.com/google/go-cmp/cmp"
)

// chatter is what each tool adds on the way to an error about time.
var chatter = regexp.MustCompile(`(?m)^(\{"level":.*|[^\n]*context deadline exceeded: .*)\n`)

// Our etcdctl is let in where the genuine one is, and says the same where not.
func TestCtl(t *testing.T) {
	both(t, func(t *testing.T, kind harness.Kind) {
		authority, other := newAuthority(t, "authority"), newAuthority(t, "other")
		own, ann, stranger := authority.server("server"), authority.client("ann"), other.client("stranger")
		server := start(t, kind, "--cert-file="+own.cert, "--key-file="+own.key, "--trusted-ca-file="+authority.file, "--client-cert-auth")
		link := filepath.Join(t.TempDir(), "etcdctl")
		if err := os.Symlink(harness.CairnBinary(t), link); err != nil {
			t.Fatal(err)
		}
		https, bare := "--endpoints=https://"+server.Endpoint(), "--endpoints="+server.Endpoint()
		named := "--endpoints=https://localhost:" + strings.Split(server.Endpoint(), ":")[1]
		trust, cert, key := "--cacert="+authority.file, "--cert="+ann.cert, "--key="+ann.key
		fast := "--command-timeout=1500ms"
		for _, line := range []struct {
			args []string
			env  []string
			code int
		}{
			{args: []string{https, trust, cert, key, "put", "a", "b"}},
			{args: []string{named, trust, cert, key, "get", "a"}},
			// Files ask for TLS where the endpoint says nothing.
			{args: []string{bare, trust, cert, key, "get", "a"}},
			{args: []string{bare, "--insecure-transport=false", trust, cert, key, "get", "a"}},
			{args: []string{https, "--insecure-skip-tls-verify", cert, key, "get", "a"}},
			{args: []string{https, trust, cert, key, "endpoint", "health"}},
			{args: []string{https, trust, cert, key, "member", "list", "-w", "json"}},
			{
				args: []string{https, "get", "a"},
				env:  []string{"ETCDCTL_CACERT=" + authority.file, "ETCDCTL_CERT=" + ann.cert, "ETCDCTL_KEY=" + ann.key},
			},
			{args: []string{fast, https, trust, "get", "a"}, code: 1},
			{args: []string{fast, https, cert, key, "get", "a"}, code: 1},
			{args: []string{fast, https, "--cacert=" + other.file, cert, key, "get", "a"}, code: 1},
			{args: []string{fast, https, trust, "--cert=" + stranger.cert, "--key=" + stranger.key, "get", "a"}, code: 1},
			{args: []string{fast, "--endpoints=http://" + server.Endpoint(), trust, cert, key, "get", "a"}, code: 1},
			{args: []string{fast, bare, "get", "a"}, code: 1},
			{args: []string{https, trust, cert, "--key=" + stranger.key, "get", "a"}, code: 128},
			{args: []string{https, trust, cert, "get", "a"}, code: 128},
			{args: []string{https, trust, key, "get", "a"}, code: 128},
			{args: []string{https, "--cacert=/nowhere", "get", "a"}, code: 128},
			{args: []string{https, trust, "--cert=/nowhere", key, "get", "a"}, code: 128},
			{args: []string{https, trust, cert, "--key=/nowhere", "get", "a"}, code: 128},
		} {
			var results [2]harness.Result
			args := line.args
			if line.code == 0 {
				args = append([]string{harness.CtlPatience}, args...)
			}
			for i, tool := range []string{harness.Tool(t, "etcdctl"), link} {
				results[i] = harness.Command{Path: tool, Args: args, Env: line.env}.Run(t)
				results[i].Stderr = chatter.ReplaceAllString(results[i].Stderr, "")
				results[i].Stdout = regexp.MustCompile(`took = .*`).ReplaceAllString(results[i].Stdout, "took")
			}
			if difference := cmp.Diff(results[0], results[1]); difference != "" || results[1].Code != line.code {
				t.Errorf("%v: exit %d, want %d %s", line.args, results[1].Code, line.code, difference)
			}
		}
	})
}
