package config

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"cairn.dev/conformance/harness"
)

// A service manager hears when the member is ready, and when it stops.
func TestNotify(t *testing.T) {
	if harness.Subject() == harness.Etcd {
		t.Skip("the genuine server tells nobody where systemd does not run")
	}
	for _, name := range []string{filepath.Join(t.TempDir(), "notify"), fmt.Sprintf("@cairn-test-%d", os.Getpid())} {
		socket, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: name, Net: "unixgram"})
		if err != nil {
			t.Fatal(err)
		}
		defer socket.Close()
		next := func() string {
			message := make([]byte, 1024)
			socket.SetReadDeadline(time.Now().Add(endMax))
			n, err := socket.Read(message)
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			return string(message[:n])
		}
		server := harness.Prepare(t, harness.Subject(), filepath.Join(t.TempDir(), "data"))
		server.Setenv("NOTIFY_SOCKET", name)
		server.Run()
		if got := next(); got != "READY=1" {
			t.Errorf("%s: %q", name, got)
		}
		server.Stop()
		if got := next(); got != "STOPPING=1" {
			t.Errorf("%s: %q", name, got)
		}
	}
}

// The thread of the log has the priority that was asked for, and threads that
// work in the background have not.
func TestDiskPriority(t *testing.T) {
	if harness.Subject() == harness.Etcd {
		t.Skip("about Cairn only")
	}
	server := harness.Start(t, harness.Subject(), "--io-priority=best-effort:0")
	seen := map[string]uintptr{}
	tasks, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/comm", server.Pid()))
	if err != nil {
		t.Fatal(err)
	}
	for _, task := range tasks {
		name, err := os.ReadFile(task)
		if err != nil {
			continue
		}
		var id uintptr
		fmt.Sscan(filepath.Base(filepath.Dir(task)), &id)
		priority, _, _ := syscall.Syscall(syscall.SYS_IOPRIO_GET, 1, id, 0)
		seen[strings.TrimSpace(string(name))] = priority
	}
	const bestEffort = 2 << 13
	if seen["consensus"] != bestEffort {
		t.Errorf("the log's thread has %x of %v", seen["consensus"], seen)
	}
	if seen["maintenance"] == bestEffort {
		t.Errorf("so has the thread of the background: %v", seen)
	}
	for _, wrong := range []string{"best-effort:8", "fast", "idle:1"} {
		result := harness.Command{Path: harness.Binary(t, harness.Subject()), Args: []string{"--io-priority=" + wrong}, Max: endMax}.Run(t)
		if result.Code != 1 || !strings.Contains(result.Stderr, "--io-priority") {
			t.Errorf("%s: exit %d: %s", wrong, result.Code, result.Stderr)
		}
	}
}

// With --memory-mlock the process stays in memory.
func TestMemoryLock(t *testing.T) {
	if harness.Subject() == harness.Etcd {
		t.Skip("about Cairn only")
	}
	if os.Geteuid() != 0 {
		harness.Unproved(t, "locking memory needs root")
	}
	server := harness.Start(t, harness.Subject(), "--memory-mlock")
	server.MustCtl("put", "a", "b")
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", server.Pid()))
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(status), "VmLck:\t       0 kB") {
		t.Errorf("nothing is locked:\n%s", status)
	}
}

// With --socket-reuse-port two processes listen at one port; without, the
// second one is refused.
func TestReusePort(t *testing.T) {
	for _, kind := range []harness.Kind{harness.Etcd, harness.Subject()} {
		for _, flags := range [][]string{{"--socket-reuse-port=true", "--socket-reuse-address=true"}, {}} {
			first := harness.Start(t, kind, flags...)
			second := harness.Prepare(t, kind, filepath.Join(t.TempDir(), "data"), flags...)
			second.ClientPort = first.ClientPort
			err := second.TryRun(endMax)
			if started := err == nil; started != (len(flags) > 0) {
				t.Errorf("%s with %v: %v", kind, flags, err)
			}
			second.Stop()
			first.Stop()
		}
	}
}
