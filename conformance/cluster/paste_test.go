package cluster

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"cairn.dev/conformance/harness"
)

// What `member add` prints can be pasted, whatever the name: flags alone, as a
// variable and its flag together are refused.
func TestMemberAddCanBePasted(t *testing.T) {
	if harness.Subject() == harness.Etcd {
		t.Skip("about Cairn only")
	}
	first := harness.Start(t, harness.Cairn)
	server := harness.Prepare(t, harness.Cairn, filepath.Join(t.TempDir(), "data"))
	server.Bare = true
	link := filepath.Join(t.TempDir(), "cairn")
	if err := os.Symlink(harness.CairnBinary(t), link); err != nil {
		t.Fatal(err)
	}
	const name = `it's "$(m2)"`
	args := []string{"ctl", "--endpoints=" + first.Endpoint(), "member", "add", name, "--peer-urls=" + server.PeerURL()}
	added := harness.Command{Path: link, Args: args}.Run(t)
	if added.Code != 0 || !strings.Contains(added.Stdout, "ETCD_INITIAL_CLUSTER_STATE=\"existing\"\n") {
		t.Fatalf("%+v", added)
	}
	_, line, found := strings.Cut(added.Stderr, "\ncairn serve ")
	if !found {
		t.Fatalf("said: %q", added.Stderr)
	}
	shell := exec.Command("sh", "-c", `set -- `+strings.TrimSpace(line)+`; printf '%s\n' "$@"`)
	flags, err := shell.Output()
	if err != nil {
		t.Fatalf("%q: %v", line, err)
	}
	words := strings.Split(strings.TrimSpace(string(flags)), "\n")
	server.SetFlags(append(words, "--data-dir="+server.DataDir, "--listen-client-urls="+server.URL(""), "--advertise-client-urls="+server.URL(""))...)
	server.Run()
	if log := server.Log(); strings.Contains(log, "conflicting") {
		t.Error(server.LogTail())
	}
	if members := first.MustCtl("member", "list"); !strings.Contains(members, name) {
		t.Errorf("members: %s", members)
	}
}
