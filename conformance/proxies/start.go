package proxies

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"cairn.dev/conformance/harness"
)

// patience is how long a test waits for what must happen.
const patience = 2 * time.Minute

// proxy is a running program that passes clients on to members.
type proxy struct {
	// address is where it listens, host and port.
	address string
	pid     int
	logPath string
}

// startGateway starts a gateway to the endpoints, and waits until it is ready.
func startGateway(t testing.TB, endpoints []string, flags ...string) *proxy {
	t.Helper()
	all := []string{"gateway", "start", "--endpoints=" + strings.Join(endpoints, ",")}
	return start(t, "ready to proxy client requests", append(all, flags...))
}

// start starts a program of the server under test at an address of its own,
// waits until its log says that it is ready, and ends it with the test.
func start(t testing.TB, ready string, args []string) *proxy {
	t.Helper()
	started := harness.StartProxy(t, ready, args)
	return &proxy{address: started.Address, pid: started.PID, logPath: started.LogPath}
}

// log is everything that the program has printed.
func (p *proxy) log(t testing.TB) string {
	t.Helper()
	text, err := os.ReadFile(p.logPath)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// awaitLog waits until the program has printed a text.
func (p *proxy) awaitLog(t testing.TB, text string) {
	t.Helper()
	await(t, fmt.Sprintf("the log does not say %q", text), func() bool { return strings.Contains(p.log(t), text) })
}

// await waits until a condition holds.
func await(t testing.TB, otherwise string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !holds(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal(otherwise)
		}
	}
}
