package proxies

import (
	"errors"
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

// A proxy that is the first process of a container ends when it is told to.
func TestFirstProcessEnds(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		harness.Unproved(t, "a namespace for processes needs root")
	}
	for name, ready := range map[string]string{"gateway": "ready to proxy client requests", "grpc-proxy": "started gRPC proxy"} {
		for _, sent := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT} {
			path := filepath.Join(t.TempDir(), "log")
			log, err := os.Create(path)
			if err != nil {
				t.Fatal(err)
			}
			defer log.Close()
			command := exec.Command(harness.Binary(t, harness.Subject()), name, "start", "--endpoints=127.0.0.1:1",
				fmt.Sprintf("--listen-addr=127.0.0.1:%d", harness.Port(t)))
			command.Dir, command.Stdout, command.Stderr = t.TempDir(), log, log
			command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Cloneflags: syscall.CLONE_NEWPID}
			if err := command.Start(); err != nil {
				t.Fatal(err)
			}
			said := func() string {
				text, _ := os.ReadFile(path)
				return string(text)
			}
			await(t, name+" is not ready", func() bool { return strings.Contains(said(), ready) })
			timer := time.AfterFunc(patience, func() { command.Process.Kill() })
			command.Process.Signal(sent)
			err = command.Wait()
			timer.Stop()
			var ended *exec.ExitError
			if !errors.As(err, &ended) || ended.ExitCode() != 128+int(sent) && harness.Subject() == harness.Cairn {
				t.Errorf("%s and %v: %v\n%s", name, sent, err, said())
			}
		}
	}
}
