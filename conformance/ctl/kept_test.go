package ctl

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"cairn.dev/conformance/harness"
)

// output is what a command has said so far.
type output struct {
	lock sync.Mutex
	text strings.Builder
}

func (o *output) Write(part []byte) (int, error) {
	o.lock.Lock()
	defer o.lock.Unlock()
	return o.text.Write(part)
}

// await waits until the output contains a text.
func (o *output) await(t *testing.T, part string) {
	t.Helper()
	for until := time.Now().Add(60 * time.Second); time.Now().Before(until); time.Sleep(20 * time.Millisecond) {
		o.lock.Lock()
		text := o.text.String()
		o.lock.Unlock()
		if strings.Contains(text, part) {
			return
		}
	}
	t.Fatalf("no %q in %q", part, o.text.String())
}

// begin starts our tool, and ends it with the test.
func begin(t *testing.T, args ...string) *output {
	t.Helper()
	said := &output{}
	command := exec.Command(ours(t), args...)
	command.Stdout, command.Stderr = said, said
	command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		syscall.Kill(-command.Process.Pid, syscall.SIGKILL)
		command.Wait()
	})
	return said
}

// A lock is held for as long as the program runs, however short its lease.
func TestLockIsKept(t *testing.T) {
	for _, kind := range []harness.Kind{harness.Etcd, harness.Cairn} {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			server := harness.Start(t, kind)
			done := filepath.Join(t.TempDir(), "done")
			first := begin(t, "--endpoints="+server.Endpoint(), "lock", "--ttl=5", "mutex", "--", "sh", "-c", "echo begun; sleep 16; touch "+done)
			first.await(t, "begun")
			second := harness.Command{Path: ours(t), Args: []string{
				"--endpoints=" + server.Endpoint(), "lock", "mutex", "--", "test", "-e", done,
			}}.Run(t)
			if _, err := os.Stat(done); err != nil || second.Code != 0 {
				t.Errorf("the lock was had before its holder was done: %+v", second)
			}
		})
	}
}

// A watch goes on when its member comes back and knows no token any more.
func TestWatchSurvivesLostTokens(t *testing.T) {
	for _, kind := range []harness.Kind{harness.Etcd, harness.Cairn} {
		t.Run(string(kind), func(t *testing.T) {
			server := harness.Start(t, kind)
			server.MustCtl("user", "add", "root:secret")
			server.MustCtl("user", "grant-role", "root", "root")
			server.MustCtl("auth", "enable")
			put := func(value string) {
				t.Helper()
				server.MustCtl("--user=root:secret", "--dial-timeout=60s", "put", "key", value)
			}
			watch := begin(t, "--endpoints="+server.Endpoint(), "--dial-timeout=60s", "--user=root:secret", "watch", "key", "--rev=1")
			put("first")
			watch.await(t, "first")
			for _, value := range []string{"second", "third"} {
				server.Stop()
				server.Run()
				put(value)
				watch.await(t, value)
			}
		})
	}
}
