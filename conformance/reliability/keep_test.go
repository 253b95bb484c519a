package reliability

import (
	"os"
	"os/exec"
	"testing"

	"cairn.dev/conformance/harness"
)

// keep moves the data of a failed test to where it outlives the test, and says
// where.
func keep(t testing.TB, server *harness.Server) string {
	t.Helper()
	server.Kill()
	dir, err := os.MkdirTemp("", "cairn-reliability-")
	if err != nil {
		return err.Error()
	}
	if output, err := exec.Command("cp", "-a", server.DataDir, dir).CombinedOutput(); err != nil {
		return string(output)
	}
	return dir
}
