package harness

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"
)

// Number is an environment variable that sets the size of a test.
func Number(t testing.TB, name string, usual int) int {
	t.Helper()
	text := os.Getenv(name)
	if text == "" {
		return usual
	}
	number, err := strconv.Atoi(text)
	if err != nil || number < 0 {
		t.Fatalf("%s=%q is not a number", name, text)
	}
	return number
}

// Seed is SEED, or a new one; either way it is logged.
func Seed(t testing.TB) uint64 {
	t.Helper()
	seed := uint64(Number(t, "SEED", int(time.Now().UnixNano()%1_000_000_000)))
	t.Logf("SEED=%d", seed)
	return seed
}

// Threads counts the threads of a process.
func Threads(pid int) (int, error) {
	tasks, err := os.ReadDir("/proc/" + strconv.Itoa(pid) + "/task")
	return len(tasks), err
}

// AnonymousBytes is the memory of a process that no file stands behind: mapped
// pages of files can be taken away from it.
func AnonymousBytes(t testing.TB, pid int) int {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(status)) {
		if rest, found := strings.CutPrefix(line, "RssAnon:"); found {
			kib, err := strconv.Atoi(strings.Fields(rest)[0])
			if err != nil {
				t.Fatal(err)
			}
			return kib << 10
		}
	}
	t.Fatal("no RssAnon")
	return 0
}

// ProcessorTime is what a process has used so far, to a hundredth of a second.
func ProcessorTime(t testing.TB, pid int) time.Duration {
	t.Helper()
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(stat), ") ")
	fields := strings.Fields(rest)
	if len(fields) < 13 {
		t.Fatalf("/proc/%d/stat is %q", pid, stat)
	}
	user, _ := strconv.Atoi(fields[11])
	system, _ := strconv.Atoi(fields[12])
	return time.Duration(user+system) * 10 * time.Millisecond
}
