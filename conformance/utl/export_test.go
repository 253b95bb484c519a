package utl

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"cairn.dev/conformance/harness"
)

// giveBack is a member of etcd on what a stopped member of Cairn was exported
// to, in its place. It is not started.
func giveBack(t *testing.T, from *harness.Server, flags ...string) *harness.Server {
	t.Helper()
	to := inPlaceOf(t, from, harness.Etcd, filepath.Join(t.TempDir(), "etcd"), flags...)
	t.Log(run(t, "export", "--data-dir", from.DataDir, "--to", to.DataDir))
	return to
}

// A stopped or killed member of Cairn becomes the same member of etcd, and
// Cairn's again.
func TestExport(t *testing.T) {
	for _, end := range []string{"stopped", "killed"} {
		t.Run(end, func(t *testing.T) {
			from := harness.Start(t, harness.Cairn, "--snapshot-count=100")
			write(t, from.Client(), 8)
			if end == "stopped" {
				settle(t, from)
			}
			want := observe(t, from)
			if end == "stopped" {
				from.Stop()
			} else {
				// Sooner than the first checkpoint: all of it is in the log.
				from.Kill()
				// See settle: a start forgets it.
				delete(want.hashes, want.first)
			}
			to := giveBack(t, from)
			to.Run()
			settle(t, to)
			got := observe(t, to)
			compare(t, want, got)
			if want.header.ClusterId != got.header.ClusterId || want.header.MemberId != got.header.MemberId {
				t.Errorf("another member: %v, not %v", got.header, want.header)
			}
			if _, err := to.Client().Put(harness.Context(t), "after", "the move"); err != nil {
				t.Fatal(err)
			}
			// It goes on after a restart, from its own files.
			after := observe(t, to)
			to.Stop()
			to.Run()
			compare(t, after, observe(t, to))
			to.Stop()
			again := adopt(t, to, "--adopt-etcd-data")
			again.Run()
			compare(t, after, observe(t, again))
		})
	}
}

// What cannot be exported is refused, and nothing is left that looks whole.
func TestExportRefusals(t *testing.T) {
	server := harness.Start(t, harness.Cairn)
	write(t, server.Client(), 9)
	to := filepath.Join(t.TempDir(), "to")
	if text := refused(t, "export", "--data-dir", server.DataDir, "--to", to); !strings.Contains(text, "is locked") {
		t.Errorf("a member that runs: %s", text)
	}
	server.Stop()
	if text := refused(t, "export", "--data-dir", server.DataDir); !strings.Contains(text, "\"to\" not set") {
		t.Errorf("no target: %s", text)
	}
	if text := refused(t, "export", "--data-dir", to, "--to", to); !strings.Contains(text, "does not hold the data of a member of Cairn") {
		t.Errorf("no member: %s", text)
	}
	if text := refused(t, "export", "--data-dir", server.DataDir, "--to", filepath.Join(server.DataDir, "to")); !strings.Contains(text, "only read") {
		t.Errorf("into the source: %s", text)
	}
	full := t.TempDir()
	if err := os.WriteFile(filepath.Join(full, "something"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if text := refused(t, "export", "--data-dir", server.DataDir, "--to", full); !strings.Contains(text, "is not empty") {
		t.Errorf("a directory that is not empty: %s", text)
	}
	if found, _ := filepath.Glob(filepath.Join(to, "*")); len(found) != 0 {
		t.Errorf("left: %v", found)
	}
	// A mark says that the log lost what was acknowledged.
	mark := filepath.Join(server.DataDir, "member", "lost-log")
	if err := os.WriteFile(mark, []byte("lost"), 0o600); err != nil {
		t.Fatal(err)
	}
	if text := refused(t, "export", "--data-dir", server.DataDir, "--to", to); !strings.Contains(text, "must not start again") {
		t.Errorf("a member that lost its log: %s", text)
	}
	if err := os.Remove(mark); err != nil {
		t.Fatal(err)
	}
	// What is left of an attempt that failed is not in the way of the next.
	t.Log(run(t, "export", "--data-dir", server.DataDir, "--to", to))
	// etcd may go on from it now, so the source is not exported or started again by mistake.
	if text := refused(t, "export", "--data-dir", server.DataDir, "--to", filepath.Join(t.TempDir(), "again")); !strings.Contains(text, "it was exported to `"+to) {
		t.Errorf("exported twice: %s", text)
	}
	if err := server.TryRun(20 * time.Second); err == nil {
		t.Fatal("a member that was exported starts")
	}
	if code, err := server.Wait(time.Second); err != nil || code != 65 || !strings.Contains(server.Log(), "it was exported to") {
		t.Errorf("exit %d, %v\n%s", code, err, server.LogTail())
	}
	server.SetFlags("--unsafe-ignore-lost-log")
	server.Run()
}
