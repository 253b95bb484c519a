package harness

import (
	"fmt"
	"net"
	"os/exec"
	"sync"
	"testing"
)

// A port that was given out can be listened at, also while other tests of the
// process start programs.
func TestPortBesideStarts(t *testing.T) {
	done := make(chan struct{})
	var starts sync.WaitGroup
	for range 4 {
		starts.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
					if err := exec.Command("true").Run(); err != nil {
						t.Error(err)
						return
					}
				}
			}
		})
	}
	for range 200 {
		// A test of its own each, so that not all ports are reserved in the end.
		t.Run("", func(t *testing.T) {
			listener, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", Port(t)))
			if err != nil {
				t.Fatal(err)
			}
			listener.Close()
		})
	}
	close(done)
	starts.Wait()
}
