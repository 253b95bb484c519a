package network

import (
	"fmt"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"testing"

	"cairn.dev/conformance/harness"
)

// Programs that other tests of the process have started, and that are to end
// with it, go on when a namespace is made: the system ends them with the thread
// that started them.
func TestSpacesEndNoPrograms(t *testing.T) {
	if os.Geteuid() != 0 {
		harness.Unproved(t, "network namespaces need root")
	}
	var programs []*exec.Cmd
	var starting sync.WaitGroup
	for range 32 {
		program := exec.Command("sleep", "600")
		program.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		programs = append(programs, program)
		starting.Go(func() {
			if err := program.Start(); err != nil {
				t.Error(err)
			}
		})
	}
	starting.Wait()
	for number := range 8 {
		space, err := newSpace(fmt.Sprintf("10.99.%d.1", number))
		if err != nil {
			t.Fatal(err)
		}
		defer space.close()
	}
	ended := 0
	for _, program := range programs {
		var status syscall.WaitStatus
		if pid, _ := syscall.Wait4(program.Process.Pid, &status, syscall.WNOHANG, nil); pid != 0 {
			ended++
			continue
		}
		program.Process.Kill()
		program.Wait()
	}
	if ended > 0 {
		t.Errorf("%d of %d programs have ended", ended, len(programs))
	}
}
