package partition

import (
	"os"
	"testing"
)

// requirePrivilege skips a test where the user may not make networks.
func requirePrivilege(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("networks of one's own need root: run this test as root")
	}
}
