package process

import (
	"crypto/sha256"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"cairn.dev/conformance/harness"
	"github.com/google/go-cmp/cmp"
)

// fingerprint is the content and mode of every file below a directory.
func fingerprint(t *testing.T, dir string) map[string]string {
	t.Helper()
	files := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, entry os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		name, _ := filepath.Rel(dir, path)
		if entry.IsDir() {
			files[name] = info.Mode().String()
			return nil
		}
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		files[name] = fmt.Sprintf("%v %d bytes %x", info.Mode(), len(content), sha256.Sum256(content))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// fill writes something that a later test would miss.
func fill(server *harness.Server) {
	for i := range 5 {
		server.MustCtl("put", fmt.Sprintf("key%d", i), "value")
	}
}

// Cairn recognises a directory that a genuine etcd wrote, says so, and leaves
// it as it is.
func TestDirectoryOfEtcd(t *testing.T) {
	if harness.Subject() == harness.Etcd {
		t.Skip("about Cairn only")
	}
	etcd := harness.Start(t, harness.Etcd)
	fill(etcd)
	etcd.Stop()
	before := fingerprint(t, etcd.DataDir)
	cairn := harness.Prepare(t, harness.Cairn, etcd.DataDir)
	if err := cairn.TryRun(endMax); err == nil {
		t.Error("Cairn starts on it")
	}
	if code, err := cairn.Wait(time.Second); err != nil || code <= 0 || code == 101 {
		t.Errorf("exit %d, %v", code, err)
	}
	t.Logf("it says: %s", cairn.LogTail())
	if difference := cmp.Diff(before, fingerprint(t, etcd.DataDir)); difference != "" {
		t.Errorf("the directory has changed: %s", difference)
	}
	etcd.Run()
	etcd.MustCtl("get", "key4")
}

// A genuine etcd that is started on Cairn's directory refuses, or at least
// harms nothing.
func TestDirectoryOfCairn(t *testing.T) {
	if harness.Subject() == harness.Etcd {
		t.Skip("about Cairn only")
	}
	cairn := harness.Start(t, harness.Cairn)
	fill(cairn)
	cairn.Stop()
	before := fingerprint(t, cairn.DataDir)
	etcd := harness.Prepare(t, harness.Etcd, cairn.DataDir)
	err := etcd.TryRun(endMax)
	etcd.Stop()
	t.Logf("etcd on the directory: %v", err)
	after := fingerprint(t, cairn.DataDir)
	maps.DeleteFunc(after, func(name, _ string) bool { return before[name] == "" })
	if difference := cmp.Diff(before, after); difference != "" {
		t.Errorf("Cairn's files have changed: %s", difference)
	}
	cairn.Run()
	cairn.MustCtl("get", "key4")
	cairn.MustCtl("put", "key5", "value")
}

// Of two processes on one directory the second does not serve, and the first
// is not disturbed.
func TestTwoProcesses(t *testing.T) {
	first := harness.Start(t, harness.Subject())
	fill(first)
	second := harness.Prepare(t, harness.Subject(), first.DataDir)
	limit := time.Minute
	if harness.Subject() == harness.Etcd {
		// It waits for the first to end.
		limit = 5 * time.Second
	}
	if err := second.TryRun(limit); err == nil {
		t.Error("the second process serves")
	}
	if harness.Subject() == harness.Cairn {
		if code, err := second.Wait(0); err != nil || code <= 0 || code == 101 {
			t.Errorf("the second process: exit %d, %v\n%s", code, err, second.LogTail())
		}
	}
	second.Stop()
	fill(first)
	first.Kill()
	first.Run()
	first.MustCtl("get", "key4")
}

// The member's own directory has a place for the log; nothing is made of one
// beside it.
func TestLogInTheMembersDirectory(t *testing.T) {
	if harness.Subject() == harness.Etcd {
		t.Skip("about Cairn only")
	}
	for _, inside := range []string{"member", "member/snap", "member/store", "member/other"} {
		data := filepath.Join(t.TempDir(), "data")
		server := harness.Prepare(t, harness.Cairn, data, "--wal-dir="+filepath.Join(data, inside))
		if err := server.TryRun(endMax); err == nil {
			t.Errorf("%s: it starts", inside)
			continue
		}
		if log := server.Log(); !strings.Contains(log, "leave --wal-dir out") || strings.Contains(log, "take over") {
			t.Errorf("%s: %s", inside, server.LogTail())
		}
		if _, err := os.Stat(data); !os.IsNotExist(err) {
			t.Errorf("%s: the directory was made: %v", inside, err)
		}
	}
	data := filepath.Join(t.TempDir(), "data")
	harness.Prepare(t, harness.Cairn, data, "--wal-dir="+filepath.Join(data, "member", "wal")).Run()
}
