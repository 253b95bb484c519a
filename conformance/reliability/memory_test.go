package reliability

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"cairn.dev/conformance/harness"
)

// memoryMB is RssAnon + RssShmem of the server: mapped file pages can be given
// back at any time and are not counted.
func memoryMB(t testing.TB, server *harness.Server) int {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", server.Pid()))
	if err != nil {
		t.Fatal(err)
	}
	total := 0
	for line := range strings.Lines(string(status)) {
		name, rest, _ := strings.Cut(line, ":")
		if name == "RssAnon" || name == "RssShmem" {
			kilobytes := 0
			fmt.Sscan(rest, &kilobytes)
			total += kilobytes
		}
	}
	return total >> 10
}

// peakMemory samples the server's memory until the returned function is
// called; that one returns the highest sample.
func peakMemory(t testing.TB, server *harness.Server) func() int {
	t.Helper()
	stop, peak := make(chan struct{}), make(chan int)
	go func() {
		highest := 0
		for {
			select {
			case <-stop:
				peak <- highest
				return
			case <-time.After(20 * time.Millisecond):
				if status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", server.Pid())); err == nil && len(status) > 0 {
					highest = max(highest, memoryMB(t, server))
				}
			}
		}
	}()
	return func() int {
		close(stop)
		return <-peak
	}
}

// checkGrowth holds a bound that Cairn states. etcd builds every answer in
// memory: for it the number is only logged.
func checkGrowth(t testing.TB, what string, beforeMB, peakMB, boundMB int) {
	t.Helper()
	t.Logf("%s: memory %d MB before, %d MB at most", what, beforeMB, peakMB)
	if harness.Subject() == harness.Cairn && peakMB-beforeMB > boundMB {
		t.Errorf("%s: memory grew by %d MB, the bound is %d MB", what, peakMB-beforeMB, boundMB)
	}
}
