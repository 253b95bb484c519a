package harness

import (
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
)

// Ports come from PORTS=FROM-TO, so that several runs on one machine can be
// kept apart.
const portsDefault = "24000-24999"

// Port reserves a free loopback port until the test ends. A lock file keeps
// other test processes from taking it before the server listens.
func Port(t testing.TB) int {
	t.Helper()
	return PortWith(t)
}

// PortWith reserves a port like Port, and those at the given distances above
// it, for programs that make up the numbers of further ports themselves.
func PortWith(t testing.TB, distances ...int) int {
	t.Helper()
	span := os.Getenv("PORTS")
	if span == "" {
		span = portsDefault
	}
	var from, to int
	if _, err := fmt.Sscanf(span, "%d-%d", &from, &to); err != nil || from > to {
		t.Fatalf("PORTS=%q is not FROM-TO", span)
	}
	dir := filepath.Join(os.TempDir(), "cairn-conformance-ports")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	for range 1000 {
		port := from + rand.IntN(to-from+1)
		if reserve(t, dir, port, distances) {
			return port
		}
	}
	t.Fatalf("no free port in %s", span)
	return 0
}

// reserve takes all of the ports or none.
func reserve(t testing.TB, dir string, port int, distances []int) bool {
	t.Helper()
	var locks []*os.File
	release := func() {
		for _, lock := range locks {
			lock.Close()
		}
	}
	for _, distance := range append([]int{0}, distances...) {
		lock := lockFile(t, filepath.Join(dir, fmt.Sprint(port+distance)), false)
		if lock == nil {
			release()
			return false
		}
		locks = append(locks, lock)
		if !free(port + distance) {
			release()
			return false
		}
	}
	t.Cleanup(release)
	return true
}

// firstStart does what Go does once before the first start of a program: it
// forks without taking the lock, to see what the system can.
var firstStart = sync.OnceFunc(func() { _, _ = os.FindProcess(os.Getpid()) })

// free tells whether nobody listens at the port. No program may be started
// meanwhile: until it runs, the new process holds a copy of each of our
// sockets, so the port would stay taken although we have closed it.
func free(port int) bool {
	firstStart()
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	listener, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
	if err != nil {
		return false
	}
	listener.Close()
	return true
}
