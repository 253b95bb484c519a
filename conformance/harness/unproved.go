package harness

import (
	"os"
	"testing"
)

// Unproved ends a test that this machine cannot run. CI must be able to: a
// test of durability that is skipped there would look like one that passed.
func Unproved(t testing.TB, why string) {
	t.Helper()
	if os.Getenv("CI") != "" {
		t.Fatal(why)
	}
	t.Skip(why)
}
