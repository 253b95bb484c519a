package gateway

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"cairn.dev/conformance/harness"
)

// The commands of etcd's own pages about the gateway, word for word but for the
// port, and over HTTP/2 as well.
func TestCurl(t *testing.T) {
	curl, err := exec.LookPath("curl")
	if err != nil {
		harness.Unproved(t, "there is no curl")
	}
	for _, version := range []string{"--http1.1", "--http2-prior-knowledge"} {
		t.Run(version, func(t *testing.T) {
			subject := harness.Start(t, harness.Subject())
			base := subject.URL("")
			run := func(want string, args ...string) {
				t.Helper()
				out, err := exec.Command(curl, append([]string{"-s", version, "--max-time", "10"}, args...)...).CombinedOutput()
				if err != nil || !strings.Contains(string(out), want) {
					t.Errorf("curl %s: %v: no %q in %s", strings.Join(args, " "), err, want, out)
				}
			}
			run(`"revision":"2"`, "-L", base+"/v3/kv/put", "-X", "POST", "-d", `{"key": "Zm9v", "value": "YmFy"}`)
			run(`"kvs":[{"key":"Zm9v","create_revision":"2","mod_revision":"2","version":"1","value":"YmFy"}],"count":"1"`,
				"-L", base+"/v3/kv/range", "-X", "POST", "-d", `{"key": "Zm9v"}`)
			run(`"count":"1"`, "-L", base+"/v3/kv/range", "-X", "POST", "-d", `{"key": "Zm9v", "range_end": "Zm9w"}`)
			run(`"succeeded":true`, "-L", base+"/v3/kv/txn", "-X", "POST", "-d",
				`{"compare":[{"target":"CREATE","key":"Zm9v","createRevision":"2"}],"success":[{"requestPut":{"key":"Zm9v","value":"YmFy"}}]}`)
			run(`"succeeded":true`, "-L", base+"/v3/kv/txn", "-X", "POST", "-d",
				`{"compare":[{"version":"2","result":"EQUAL","target":"VERSION","key":"Zm9v"}],"success":[{"requestRange":{"key":"Zm9v"}}]}`)
			run(`"health":"true"`, base+"/health")
			run("etcd_server_has_leader 1", "-L", base+"/metrics")
			run("ok", base+"/readyz")

			// -N: as it comes. It is ended by us, as by Ctrl-C.
			path := filepath.Join(t.TempDir(), "events")
			file, err := os.Create(path)
			if err != nil {
				t.Fatal(err)
			}
			watch := exec.Command(curl, "-s", "-N", version, base+"/v3/watch", "-X", "POST", "-d", `{"create_request": {"key":"Zm9v"} }`)
			watch.Stdout = file
			if err := watch.Start(); err != nil {
				t.Fatal(err)
			}
			await := func(want string) {
				t.Helper()
				for deadline := time.Now().Add(2 * time.Minute); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
					if text, _ := os.ReadFile(path); strings.Contains(string(text), want) {
						return
					}
				}
				t.Fatalf("no %q", want)
			}
			await(`"created":true`)
			run(`"revision":"4"`, "-L", base+"/v3/kv/put", "-X", "POST", "-d", `{"key": "Zm9v", "value": "YmFy"}`)
			await(`"events":[{"kv":{"key":"Zm9v"`)
			watch.Process.Kill()
			watch.Wait()
		})
	}
}
