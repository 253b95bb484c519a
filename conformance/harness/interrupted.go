package harness

import (
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// Interrupted sends a tool that makes a file the signal once as many files as
// `began` are there whose names begin with it, and wants nothing left.
func Interrupted(t *testing.T, file string, began int, sent syscall.Signal, tool string, args ...string) {
	t.Helper()
	command := exec.Command(tool, args...)
	command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	var said strings.Builder
	command.Stderr = &said
	// One that is ignored here, as under nohup, would be there, too; one that is caught is not.
	caught := make(chan os.Signal, 1)
	signal.Notify(caught, sent)
	defer signal.Stop(caught)
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	defer time.AfterFunc(time.Minute, func() { command.Process.Kill() }).Stop()
	left := func() []string {
		found, err := filepath.Glob(file + "*")
		if err != nil {
			t.Fatal(err)
		}
		return found
	}
	for end := time.Now().Add(time.Minute); len(left()) < began; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			command.Process.Kill()
			command.Wait()
			t.Fatalf("it never began: %s", said.String())
		}
	}
	command.Process.Signal(sent)
	command.Wait()
	if found := left(); command.ProcessState.ExitCode() != 5 || len(found) > 0 || !strings.Contains(said.String(), "interrupted") {
		t.Errorf("%v: exit %d, left %v\n%s", sent, command.ProcessState.ExitCode(), found, said.String())
	}
}
