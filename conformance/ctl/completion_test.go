package ctl

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"cairn.dev/conformance/harness"
)

// What may follow is proposed without descriptions too, as etcd's scripts for
// bash ask for it, and also for the binary under its own name.
func TestCompletion(t *testing.T) {
	theirs := harness.Command{Path: harness.Tool(t, "etcdctl"), Args: []string{"__completeNoDesc", "com"}}.Run(t)
	own := harness.Command{Path: ours(t), Args: []string{"__completeNoDesc", "com"}}.Run(t)
	if theirs.Stdout != own.Stdout {
		t.Errorf("proposed: %q, by etcd's %q", own.Stdout, theirs.Stdout)
	}
	link := filepath.Join(t.TempDir(), "cairn")
	if err := os.Symlink(harness.CairnBinary(t), link); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ asked, want string }{
		{"__complete ctl com", "compaction\t"}, {"__complete util sn", "snapshot\t"}, {"__complete c", "ctl\n"}, {"__complete check d", "disk\t"},
		{"ctl completion bash", " cairn\n"}, {"util completion fish", "complete -c cairn "},
	} {
		found := harness.Command{Path: link, Args: strings.Fields(c.asked)}.Run(t)
		if found.Code != 0 || !strings.Contains(found.Stdout, c.want) {
			t.Errorf("%s: %+v", c.asked, found)
		}
	}
}
