package process

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"cairn.dev/conformance/harness"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// The log of a normal run: JSON lines as etcd's, no errors.
func TestLog(t *testing.T) {
	server := harness.Start(t, harness.Subject())
	server.MustCtl("put", "a", "b")
	server.MustCtl("get", "a")
	server.MustCtl("compaction", "2")
	running := len(server.Log())
	server.Stop()
	at := 0
	for _, line := range strings.Split(strings.TrimSpace(server.Log()), "\n") {
		var entry struct{ Level, Ts, Caller, Msg string }
		if err := json.Unmarshal([]byte(line), &entry); err != nil {
			t.Errorf("%v: %s", err, line)
			continue
		}
		if _, err := time.Parse("2006-01-02T15:04:05.999999Z0700", entry.Ts); err != nil {
			t.Errorf("%v: %s", err, line)
		}
		switch entry.Level {
		case "debug", "info", "warn":
		default:
			// The genuine server calls it an error when it closes its listeners.
			if at < running {
				t.Errorf("level %q: %s", entry.Level, line)
			}
		}
		at += len(line) + 1
		if entry.Caller == "" || entry.Msg == "" {
			t.Errorf("no caller or no message: %s", line)
		}
	}
}

// However the threads of a new member come about, it writes the same entries to
// its log.
func TestStartsWriteTheSame(t *testing.T) {
	const starts = 24
	var servers []*harness.Server
	for range starts {
		servers = append(servers, harness.Prepare(t, harness.Subject(), filepath.Join(t.TempDir(), "data")))
	}
	errors := make([]error, starts)
	var starting sync.WaitGroup
	for number, server := range servers {
		starting.Go(func() { errors[number] = server.TryRun(time.Minute) })
	}
	starting.Wait()
	var clients []*clientv3.Client
	for number, server := range servers {
		if errors[number] != nil {
			t.Fatal(errors[number])
		}
		clients = append(clients, server.Client())
	}
	// What else begins with a member has begun by then, on a machine that is not busy.
	time.Sleep(2 * time.Second)
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(100 * time.Millisecond) {
		ends := map[uint64]int{}
		for number, server := range servers {
			status, err := clients[number].Status(harness.Context(t), server.Endpoint())
			if err != nil {
				t.Fatal(err)
			}
			ends[status.RaftIndex]++
		}
		if len(ends) == 1 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("members by the last entry of their logs: %v", ends)
		}
	}
}

// The limit of open files is raised as far as the system allows.
func TestOpenFileLimit(t *testing.T) {
	server := harness.Start(t, harness.Subject())
	limits, err := os.ReadFile(fmt.Sprintf("/proc/%d/limits", server.Pid()))
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range strings.Split(string(limits), "\n") {
		if words, found := strings.CutPrefix(line, "Max open files"); found {
			if fields := strings.Fields(words); fields[0] != fields[1] {
				t.Errorf("soft limit %s, hard limit %s", fields[0], fields[1])
			}
			return
		}
	}
	t.Fatal("no limit of open files")
}

// A server that is asked to end does so soon, and by the signal, as
// supervisors expect of etcd.
func TestSignals(t *testing.T) {
	for _, signal := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT} {
		var codes []int
		for _, kind := range []harness.Kind{harness.Etcd, harness.Subject()} {
			harness.Attempt(t, func() error {
				server := harness.Start(t, kind)
				server.MustCtl("put", "a", "b")
				server.Signal(signal)
				code, err := server.Wait(10 * time.Second)
				if err != nil {
					return fmt.Errorf("%w after %v", err, signal)
				}
				codes = append(codes, code)
				return nil
			})
		}
		if codes[0] != codes[1] {
			t.Errorf("%v: exit %d, etcd's is %d", signal, codes[1], codes[0])
		}
	}
}

// Only the owner may look into the data directory.
func TestDirectoryMode(t *testing.T) {
	server := harness.Start(t, harness.Subject())
	err := filepath.WalkDir(server.DataDir, func(path string, entry os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		if mode := info.Mode().Perm(); mode&0o077 != 0 {
			t.Errorf("%s has mode %o", strings.TrimPrefix(path, server.DataDir), mode)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
