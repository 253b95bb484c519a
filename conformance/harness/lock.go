package harness

import (
	"os"
	"syscall"
	"testing"
)

// lockFile takes an exclusive lock on a file, because `go test` runs several
// packages at once. The lock ends with the returned file, or with the process.
// It returns nil when wait is false and another process has the lock.
func lockFile(t testing.TB, path string, wait bool) *os.File {
	t.Helper()
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	how := syscall.LOCK_EX
	if !wait {
		how |= syscall.LOCK_NB
	}
	for {
		switch err := syscall.Flock(int(file.Fd()), how); err {
		case nil:
			return file
		case syscall.EINTR:
		case syscall.EWOULDBLOCK:
			file.Close()
			return nil
		default:
			t.Fatalf("lock `%s`: %v", path, err)
		}
	}
}
