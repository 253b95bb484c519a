package catchup

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"cairn.dev/conformance/harness"
)

// memoryEvery is how often memory is looked at.
const memoryEvery = 50 * time.Millisecond

// mostMemory is the most memory that a member has until the context ends, in
// MiB; mapped files can be taken back, and do not count.
func mostMemory(ctx context.Context, member *harness.Server) <-chan int {
	most := make(chan int, 1)
	go func() {
		highest := 0
		for ctx.Err() == nil {
			highest = max(highest, memory(member))
			time.Sleep(memoryEvery)
		}
		most <- highest
	}()
	return most
}

// memory is RssAnon and RssShmem of a member in MiB, 0 while it does not run.
func memory(member *harness.Server) int {
	status, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", member.PidNow()))
	total := 0
	for line := range strings.Lines(string(status)) {
		var kilobytes int
		name, rest, _ := strings.Cut(line, ":")
		if name != "RssAnon" && name != "RssShmem" {
			continue
		}
		if _, err := fmt.Sscanf(rest, "%d kB", &kilobytes); err == nil {
			total += kilobytes
		}
	}
	return total / 1024
}
