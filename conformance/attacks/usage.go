package attacks

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"
)

// ticksPerSecond is the unit of processor times in /proc.
const ticksPerSecond = 100

// anonKB is the memory of a process that is not a file's; the store of these
// tests lies in memory, and its mapped pages are files'.
func anonKB(pid int) (int, error) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(status)) {
		if rest, found := strings.CutPrefix(line, "RssAnon:"); found {
			return strconv.Atoi(strings.Fields(rest)[0])
		}
	}
	return 0, fmt.Errorf("no RssAnon of process %d", pid)
}

// processorSeconds is what a process has used so far.
func processorSeconds(pid int) (float64, error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	_, rest, found := strings.Cut(string(stat), ") ")
	fields := strings.Fields(rest)
	if !found || len(fields) < 13 {
		return 0, fmt.Errorf("/proc/%d/stat is %q", pid, stat)
	}
	user, _ := strconv.Atoi(fields[11])
	system, _ := strconv.Atoi(fields[12])
	return float64(user+system) / ticksPerSecond, nil
}

// watch samples a process's memory until stop is called, which returns the
// highest sample and the share of one processor that was used.
func watch(pid int) (stop func() (peakKB int, processor float64)) {
	var guard sync.Mutex
	peak, end := 0, make(chan struct{})
	start := time.Now()
	before, _ := processorSeconds(pid)
	go func() {
		for {
			if now, err := anonKB(pid); err == nil {
				guard.Lock()
				peak = max(peak, now)
				guard.Unlock()
			}
			select {
			case <-end:
				return
			case <-time.After(20 * time.Millisecond):
			}
		}
	}()
	return func() (int, float64) {
		close(end)
		after, _ := processorSeconds(pid)
		guard.Lock()
		defer guard.Unlock()
		return peak, (after - before) / time.Since(start).Seconds()
	}
}
