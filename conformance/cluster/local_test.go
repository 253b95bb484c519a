package cluster

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"cairn.dev/conformance/harness"
)

// local is a run of `cairn cluster`.
type local struct {
	command *exec.Cmd
	output  string
	ended   chan error
}

func startLocal(t *testing.T, dir string, port int) *local {
	t.Helper()
	output := filepath.Join(t.TempDir(), "output")
	file, err := os.Create(output)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	command := exec.Command(harness.CairnBinary(t), "cluster", "--size=3", "--data-dir="+dir, fmt.Sprintf("--client-port=%d", port))
	command.Stdout, command.Stderr = file, file
	command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	run := &local{command: command, output: output, ended: make(chan error, 1)}
	go func() { run.ended <- command.Wait() }()
	t.Cleanup(func() { command.Process.Signal(syscall.SIGTERM) })
	for deadline := time.Now().Add(startMax); !strings.Contains(run.said(t), "Ctrl-C ends it"); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("it does not start: %s", run.said(t))
		}
	}
	return run
}

func (l *local) said(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(l.output)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func ctl(t *testing.T, endpoints string, args ...string) harness.Result {
	t.Helper()
	args = append([]string{harness.CtlPatience, "--endpoints=" + endpoints}, args...)
	return harness.Command{Path: harness.Tool(t, "etcdctl"), Args: args}.Run(t)
}

func TestLocalCluster(t *testing.T) {
	if harness.Subject() == harness.Etcd {
		t.Skip("about Cairn only")
	}
	port := harness.PortWith(t, 1, 10, 11, 20, 21)
	endpoints := fmt.Sprintf("127.0.0.1:%d,127.0.0.1:%d,127.0.0.1:%d", port, port+10, port+20)
	dir := filepath.Join(t.TempDir(), "local")
	run := startLocal(t, dir, port)
	if !strings.Contains(run.said(t), "export ETCDCTL_ENDPOINTS="+endpoints) {
		t.Errorf("it does not say how to talk to it: %s", run.said(t))
	}
	if result := ctl(t, endpoints, "put", "a", "1"); result.Code != 0 {
		t.Fatalf("put: %s", result.Stderr)
	}
	// A member that fails is told of and stays down; the others go on.
	var pid int
	for _, line := range strings.Split(run.said(t), "\n") {
		if strings.Contains(line, "  m3  ") {
			fmt.Sscanf(line[strings.Index(line, "pid ")+4:], "%d", &pid)
		}
	}
	syscall.Kill(pid, syscall.SIGKILL)
	for deadline := time.Now().Add(settleMax); !strings.Contains(run.said(t), "member m3 has ended"); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("it says nothing: %s", run.said(t))
		}
	}
	// The one that was killed may have led: a put that met it fails, and may be tried again.
	for deadline := time.Now().Add(settleMax); ; time.Sleep(100 * time.Millisecond) {
		result := ctl(t, endpoints, "put", "b", "2")
		if result.Code == 0 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("put with two members: %s", result.Stderr)
		}
	}
	// As Ctrl-C in a terminal.
	run.command.Process.Signal(os.Interrupt)
	select {
	case err := <-run.ended:
		if err != nil {
			t.Errorf("it ends with %v", err)
		}
	case <-time.After(startMax):
		t.Fatal("it does not end")
	}
	left, _ := exec.Command("pgrep", "-f", dir).Output()
	if len(bytes.TrimSpace(left)) > 0 {
		t.Errorf("it left processes: %s", left)
	}
	again := startLocal(t, dir, port)
	if result := ctl(t, endpoints, "get", "b"); !strings.Contains(result.Stdout, "2") {
		t.Errorf("after a start on the same data: %q %s", result.Stdout, result.Stderr)
	}
	again.command.Process.Signal(os.Interrupt)
	<-again.ended
}

// localFails is a run of `cairn cluster` that ends by itself.
func localFails(t *testing.T, args ...string) harness.Result {
	t.Helper()
	if harness.Subject() == harness.Etcd {
		t.Skip("about Cairn only")
	}
	return harness.Command{Path: harness.CairnBinary(t), Args: append([]string{"cluster"}, args...), Max: startMax}.Run(t)
}

// A directory has the cluster that it was made with: members that its own
// members know nothing of would never become ready, and leave data behind.
func TestLocalClusterOfAnotherSize(t *testing.T) {
	port := harness.PortWith(t, 1, 10, 11, 20, 21, 30, 31, 40, 41)
	dir := filepath.Join(t.TempDir(), "local")
	if harness.Subject() == harness.Etcd {
		t.Skip("about Cairn only")
	}
	run := startLocal(t, dir, port)
	run.command.Process.Signal(os.Interrupt)
	<-run.ended
	before, _ := os.ReadDir(dir)
	for _, size := range []string{"5", "1"} {
		result := localFails(t, "--size="+size, "--data-dir="+dir, fmt.Sprintf("--client-port=%d", port))
		if result.Code != 1 || !strings.Contains(result.Stderr, "holds a cluster of 3 members, not of "+size) || !strings.Contains(result.Stderr, "--size 3") {
			t.Errorf("--size %s: %+v", size, result)
		}
	}
	if after, _ := os.ReadDir(dir); len(after) != len(before) {
		t.Errorf("in the directory: %v, before %v", after, before)
	}
	again := startLocal(t, dir, port)
	again.command.Process.Signal(os.Interrupt)
	<-again.ended
}

// What went wrong is said where the command was given, and last.
func TestLocalClusterSaysWhyItFails(t *testing.T) {
	port := harness.PortWith(t, 1)
	taken := harness.Start(t, harness.Cairn)
	for _, c := range []struct {
		flags []string
		want  string
	}{
		{[]string{"--nonsense=1"}, "flag provided but not defined: -nonsense"},
		{[]string{"--heartbeat-interval=5000"}, "--election-timeout"},
		{[]string{"--listen-metrics-urls=" + taken.URL("")}, "address already in use"},
	} {
		args := append([]string{"--size=1", "--data-dir=" + filepath.Join(t.TempDir(), "local"), fmt.Sprintf("--client-port=%d", port), "--"}, c.flags...)
		result := localFails(t, args...)
		lines := strings.Split(strings.TrimSpace(result.Stderr), "\n")
		if result.Code != 1 || !strings.Contains(strings.ToLower(lines[len(lines)-1]), c.want) || len(lines) > 6 {
			t.Errorf("%v: exit %d, said\n%s", c.flags, result.Code, result.Stderr)
		}
	}
}
