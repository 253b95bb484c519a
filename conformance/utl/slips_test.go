package utl

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"cairn.dev/conformance/harness"
)

// both runs the genuine tool and ours, which must end alike.
func both(t *testing.T, args ...string) (string, string) {
	t.Helper()
	theirs := harness.Command{Path: harness.Tool(t, "etcdutl"), Args: args}.Run(t)
	own := harness.Command{Path: ours(t), Args: args}.Run(t)
	if theirs.Code != own.Code || theirs.Stdout != own.Stdout {
		t.Errorf("%q: exit %d, %s%s\netcd's: exit %d, %s%s", args, own.Code, own.Stdout, own.Stderr, theirs.Code, theirs.Stdout, theirs.Stderr)
	}
	return theirs.Stderr, own.Stderr
}

// Nothing is made of clusters that cannot be.
func TestRestoreInvalidCluster(t *testing.T) {
	_, file := save(t, harness.Etcd)
	for _, flags := range [][2]string{
		{"a=http://a:1,b=http://a:1", "http://a:1"}, {"a=ftp://a:1", "http://a:1"}, {"a=http://a", "http://a:1"},
		{"a=http://a:1/x", "http://a:1"}, {"a=http://a:x", "http://a:1"}, {"a=", "http://a:1"}, {"b=http://a:1", "http://a:1"},
		{"a=http://a:1", "http://a:1,http://a:1"}, {"a=http://a:1,a=http://a:2", "http://a:1,http://a:2,http://a:2"},
		{"a=http://a:1", "http://a:1,http://a:2"}, {"a=http://a:1,a=http://a:2", "http://a:1"},
	} {
		cluster, advertised := flags[0], flags[1]
		target := filepath.Join(t.TempDir(), "target")
		theirs, own := both(t, "snapshot", "restore", file, "--data-dir", target, "--name=a", "--initial-cluster", cluster,
			"--initial-advertise-peer-urls="+advertised)
		if theirs != own {
			t.Errorf("%s at %s: %q, etcd's %q", cluster, advertised, own, theirs)
		}
		absent(t, target)
	}
}

// Names of files are bytes, and revisions before the first are taken.
func TestOddArguments(t *testing.T) {
	_, file := save(t, harness.Etcd)
	odd := filepath.Join(t.TempDir(), "odd\xff.db")
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(odd, content, 0o600); err != nil {
		t.Fatal(err)
	}
	both(t, "snapshot", "status", odd)
	both(t, "hashkv", odd)
	for _, args := range [][]string{
		{"snapshot", "status", odd + "\xfe"}, {"defrag", "--data-dir", "/nonexistent"}, {"defrag", "--data-dir", "/nonexistent\xff"},
		{"hashkv", "--rev=300000", file}, {"hashkv", "--rev=-3", file},
	} {
		if theirs, own := both(t, args...); theirs != own {
			t.Errorf("%q: %q, etcd's %q", args, own, theirs)
		}
	}
	// etcd's tool has written to it.
	if err := os.WriteFile(odd, content, 0o600); err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "restored\xff")
	run(t, "snapshot", "restore", odd, "--data-dir", dir)
	run(t, "store", "verify", "--data-dir", dir)
}

// A log that was damaged is found out, wherever it is.
func TestVerifyLog(t *testing.T) {
	_, file := save(t, harness.Cairn)
	dir := t.TempDir()
	data, log := filepath.Join(dir, "data"), filepath.Join(dir, "log")
	run(t, "snapshot", "restore", file, "--data-dir", data, "--wal-dir", log)
	if text := run(t, "store", "verify", "--data-dir", data, "--wal-dir", log); !strings.Contains(text, "entries 1 to 1") {
		t.Errorf("store verify: %s", text)
	}
	names, err := filepath.Glob(filepath.Join(log, "*.wal"))
	if err != nil || len(names) == 0 {
		t.Fatalf("no log: %v", err)
	}
	content, err := os.ReadFile(names[0])
	if err != nil {
		t.Fatal(err)
	}
	content[100] ^= 1
	if err := os.WriteFile(names[0], content, 0o600); err != nil {
		t.Fatal(err)
	}
	if text := refused(t, "store", "verify", "--data-dir", data, "--wal-dir", log); !strings.Contains(text, "is damaged at offset") {
		t.Errorf("a damaged log: %s", text)
	}
}

// A dump whose reader has gone ends.
func TestDumpEnds(t *testing.T) {
	server, _ := save(t, harness.Etcd)
	server.Stop()
	command := exec.Command(ours(t), "wal", "dump", "--data-dir", server.DataDir)
	out, err := command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := bufio.NewReaderSize(out, 16).ReadString('\n'); err != nil {
		t.Error(err)
	}
	out.Close()
	ended := time.AfterFunc(30*time.Second, func() { command.Process.Kill() })
	if err := command.Wait(); err == nil || !ended.Stop() {
		t.Errorf("the dump ended with %v", err)
	}
}
