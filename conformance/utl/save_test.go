package utl

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"cairn.dev/conformance/harness"
)

// saveStopped is our tool's snapshot of a stopped member.
func saveStopped(t *testing.T, dir string, flags ...string) (file, said string) {
	t.Helper()
	file = filepath.Join(t.TempDir(), "saved.db")
	return file, run(t, append([]string{"snapshot", "save", file, "--data-dir", dir}, flags...)...)
}

// something of every kind is in the database afterwards.
func something(server *harness.Server) {
	server.MustCtl("put", "gone", "before")
	server.MustCtl("lease", "grant", "1000")
	for i := range 300 {
		server.MustCtl("put", fmt.Sprint("key", i%20), strings.Repeat("v", i))
		if i == 5 {
			server.MustCtl("role", "add", "r")
		}
	}
	server.MustCtl("del", "gone")
	server.MustCtl("compact", "100")
}

// The file of a stopped member is the one that it gave while it ran, and all
// tools take it. What it saves is left as it is.
func TestSaveOfStopped(t *testing.T) {
	if harness.Subject() == harness.Etcd {
		t.Skip("about Cairn only")
	}
	log := filepath.Join(t.TempDir(), "log")
	for name, flags := range map[string][]string{"usual": nil, "often": {"--snapshot-count=50"}, "log elsewhere": {"--wal-dir=" + log}} {
		t.Run(name, func(t *testing.T) {
			server := harness.Start(t, harness.Cairn, flags...)
			something(server)
			online := filepath.Join(t.TempDir(), "online.db")
			server.MustCtl("snapshot", "save", online)
			var elsewhere []string
			if name == "log elsewhere" {
				elsewhere = flags
			}
			if text := refused(t, append([]string{"snapshot", "save", filepath.Join(t.TempDir(), "x"), "--data-dir", server.DataDir}, elsewhere...)...); !strings.Contains(text, "is locked") {
				t.Errorf("of a member that runs: %s", text)
			}
			server.Stop()
			before := fingerprint(t, server.DataDir)
			file, said := saveStopped(t, server.DataDir, elsewhere...)
			if !strings.Contains(said, "Snapshot saved at "+file+"\nServer version 3.7.0\n") || strings.Contains(said, "not known to be committed") {
				t.Errorf("said: %s", said)
			}
			if fingerprint(t, server.DataDir) != before {
				t.Error("the directory was changed")
			}
			if left, _ := filepath.Glob(file + ".*"); len(left) > 0 {
				t.Errorf("left behind: %v", left)
			}
			equalSnapshots(t, online, file)
			for _, tool := range []string{harness.Tool(t, "etcdutl"), ours(t)} {
				target := filepath.Join(t.TempDir(), "target")
				if result := (harness.Command{Path: tool, Args: []string{"snapshot", "restore", file, "--data-dir", target}}).Run(t); result.Code != 0 {
					t.Errorf("restore: %s", result.Stderr)
				}
			}
		})
	}
}

// equalSnapshots compares what two files have; the files themselves name the
// entry that they end with.
func equalSnapshots(t *testing.T, one, other string) {
	t.Helper()
	for _, words := range [][]string{{"snapshot", "status", "-w", "json"}, {"hashkv", "-w", "json"}} {
		result := func(file string) string {
			// etcd's tool writes to what it looks at.
			content, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			file = filepath.Join(t.TempDir(), "copy.db")
			if err := os.WriteFile(file, content, 0o600); err != nil {
				t.Fatal(err)
			}
			return harness.Command{Path: harness.Tool(t, "etcdutl"), Args: append(words, file)}.Run(t).Stdout
		}
		a, b := result(one), result(other)
		if words[0] == "snapshot" {
			// The hash is of all buckets, with the entry that the file ends with.
			_, a, _ = strings.Cut(a, ",")
			_, b, _ = strings.Cut(b, ",")
		}
		if a == "" || a != b {
			t.Errorf("%v: %s of one, %s of the other", words, a, b)
		}
	}
}

// A member that was killed has written more than its last checkpoint knows:
// all that it acknowledged is in the file.
func TestSaveOfKilled(t *testing.T) {
	if harness.Subject() == harness.Etcd {
		t.Skip("about Cairn only")
	}
	server := harness.Start(t, harness.Cairn)
	something(server)
	online := filepath.Join(t.TempDir(), "online.db")
	server.MustCtl("snapshot", "save", online)
	server.Kill()
	before := fingerprint(t, server.DataDir)
	file, said := saveStopped(t, server.DataDir)
	if strings.Contains(said, "not known to be committed") {
		t.Errorf("a sole member commits what it has: %s", said)
	}
	equalSnapshots(t, online, file)
	if fingerprint(t, server.DataDir) != before {
		t.Error("the directory was changed")
	}
	// It goes on as if nobody had looked.
	server.Run()
	if text := server.MustCtl("get", "key19", "--print-value-only"); strings.TrimSpace(text) != strings.Repeat("v", 299) {
		t.Errorf("key19: %q", text)
	}
}

// Nothing is made of a directory that is none, is damaged or must not start
// again, and of a disk that is full no file is left.
func TestSaveRefuses(t *testing.T) {
	if harness.Subject() == harness.Etcd {
		t.Skip("about Cairn only")
	}
	server := harness.Start(t, harness.Cairn, "--snapshot-count=50")
	something(server)
	server.Stop()
	copied := func() string {
		dir := filepath.Join(t.TempDir(), "copy")
		if output, err := exec.Command("cp", "-a", server.DataDir, dir).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, output)
		}
		return dir
	}
	spoil := func(pattern string) string {
		dir := copied()
		files, err := filepath.Glob(filepath.Join(dir, "member", pattern))
		if err != nil || len(files) == 0 {
			t.Fatal(err, pattern)
		}
		content, err := os.ReadFile(files[0])
		if err != nil {
			t.Fatal(err)
		}
		middle := len(bytes.TrimRight(content, "\x00")) / 2
		// One byte may be one of those that fill a record up.
		for i := range 16 {
			content[middle+i] ^= 0x40
		}
		if err := os.WriteFile(files[0], content, 0o600); err != nil {
			t.Fatal(err)
		}
		return dir
	}
	marked := copied()
	if err := os.WriteFile(filepath.Join(marked, "member", "lost-log"), []byte("entries 5 and 9"), 0o600); err != nil {
		t.Fatal(err)
	}
	etcd := harness.Start(t, harness.Etcd)
	etcd.Stop()
	for name, c := range map[string]struct{ dir, want string }{
		"segment": {spoil("store/*.seg"), "damaged"}, "checkpoint": {spoil("store/*.ckpt"), "damaged"}, "log": {spoil("wal/*.wal"), "/member/wal"},
		"marked": {marked, "must not start again"}, "etcd's": {etcd.DataDir, "does not hold the data of a member of Cairn"},
		"none": {t.TempDir(), "does not hold the data of a member of Cairn"},
	} {
		file := filepath.Join(t.TempDir(), "saved.db")
		if text := refused(t, "snapshot", "save", file, "--data-dir", c.dir); !strings.Contains(text, c.want) {
			t.Errorf("%s: %s", name, text)
		}
		if left, _ := filepath.Glob(file + "*"); len(left) > 0 {
			t.Errorf("%s: left behind: %v", name, left)
		}
	}
}

// A damaged length of a record is not taken for the end of the log: what
// follows it was acknowledged.
func TestSaveRefusesDamagedLength(t *testing.T) {
	if harness.Subject() == harness.Etcd {
		t.Skip("about Cairn only")
	}
	server := harness.Start(t, harness.Cairn)
	client := server.Client()
	for i := range 100 {
		if _, err := client.Put(t.Context(), fmt.Sprint("key", i), "value"); err != nil {
			t.Fatal(err)
		}
	}
	// A member that is stopped writes a checkpoint, which tells how far the log must reach.
	server.Kill()
	logs, err := filepath.Glob(filepath.Join(server.DataDir, "member", "wal", "*.wal"))
	if err != nil || len(logs) != 1 {
		t.Fatal(err, logs)
	}
	content, err := os.ReadFile(logs[0])
	if err != nil {
		t.Fatal(err)
	}
	// The first record that begins in the second half.
	at, middle := 0, len(bytes.TrimRight(content, "\x00"))/2
	for at < middle {
		word := binary.LittleEndian.Uint64(content[at:])
		at += 8 + int(word&0xffffffff) + int(word>>56&7)
	}
	content[at+3] ^= 0x40
	if err := os.WriteFile(logs[0], content, 0o600); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "saved.db")
	if text := refused(t, "snapshot", "save", file, "--data-dir", server.DataDir); !strings.Contains(text, "/member/wal") {
		t.Error(text)
	}
	absent(t, file)
	if text := refused(t, "store", "verify", "--data-dir", server.DataDir); !strings.Contains(text, "/member/wal") {
		t.Error(text)
	}
}

// Nothing is left of what is interrupted: it holds the values.
func TestSaveInterrupted(t *testing.T) {
	if harness.Subject() == harness.Etcd {
		t.Skip("about Cairn only")
	}
	server := harness.Start(t, harness.Cairn)
	something(server)
	server.Stop()
	logs, err := filepath.Glob(filepath.Join(server.DataDir, "member", "wal", "*.wal"))
	if err != nil || len(logs) == 0 {
		t.Fatal(err, logs)
	}
	// Opening a pipe without a writer waits for one.
	for _, log := range logs {
		if err := os.Remove(log); err != nil {
			t.Fatal(err)
		}
		if err := syscall.Mkfifo(log, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, sent := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP} {
		file := filepath.Join(t.TempDir(), "saved.db")
		harness.Interrupted(t, file, 2, sent, ours(t), "snapshot", "save", file, "--data-dir", server.DataDir)
	}
}
