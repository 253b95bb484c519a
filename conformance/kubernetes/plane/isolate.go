package plane

import (
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"

	"cairn.dev/conformance/harness"
)

// isolatedMark tells a test that it runs in a network of its own.
const isolatedMark = "CAIRN_ISOLATED"

// Isolated runs the test once more, as another process in a network namespace
// of its own, and returns false when that has passed; in that process it
// returns true. What has to be downloaded is built before.
func Isolated(t *testing.T) bool {
	t.Helper()
	if os.Getenv(isolatedMark) != "" {
		if output, err := exec.Command("ip", "link", "set", "lo", "up").CombinedOutput(); err != nil {
			t.Fatalf("ip: %v: %s", err, output)
		}
		return true
	}
	if os.Geteuid() != 0 {
		harness.Unproved(t, "networks of one's own need root: run this test as root")
	}
	Programs(t)
	harness.Tool(t, "etcd")
	arguments := slices.DeleteFunc(slices.Clone(os.Args[1:]), func(argument string) bool {
		return strings.HasPrefix(argument, "-test.run=") || strings.HasPrefix(argument, "-test.testlogfile=")
	})
	again := exec.CommandContext(t.Context(), os.Args[0], append(arguments, "-test.run=^"+t.Name()+"$")...)
	again.Env = append(os.Environ(), isolatedMark+"=1")
	again.Stdout, again.Stderr = os.Stdout, os.Stderr
	again.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET, Pdeathsig: syscall.SIGTERM}
	if err := again.Run(); err != nil {
		t.Fatalf("in a network of its own: %v", err)
	}
	return false
}
