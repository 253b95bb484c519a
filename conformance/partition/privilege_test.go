package partition

import (
	"os"
	"testing"

	"cairn.dev/conformance/harness"
)

// requirePrivilege skips a test where the user may not make networks.
func requirePrivilege(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		harness.Unproved(t, "networks of one's own need root: run this test as root")
	}
}
