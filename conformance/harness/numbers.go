package harness

import (
	"os"
	"strconv"
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
