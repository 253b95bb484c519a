// Package checks runs `cairn check disk`, `cairn check network` and `cairn
// doctor`. Whether this machine is fast is none of its business: verdicts must
// agree with the figures beside them, and exit codes with the verdicts.
package checks

import (
	"encoding/json"
	"fmt"
	"os"
	"syscall"
	"testing"
	"time"

	"cairn.dev/conformance/harness"
)

// cairn runs the binary.
func cairn(t testing.TB, args ...string) harness.Result {
	t.Helper()
	return harness.Command{Path: harness.CairnBinary(t), Args: args, Max: 2 * time.Minute}.Run(t)
}

// object runs the binary and reads the JSON that it prints.
func object(t testing.TB, into any, args ...string) harness.Result {
	t.Helper()
	result := cairn(t, append(args, "--json")...)
	if err := json.Unmarshal([]byte(result.Stdout), into); err != nil {
		t.Fatalf("%v: exit %d, no JSON: %v\n%s%s", args, result.Code, err, result.Stdout, result.Stderr)
	}
	return result
}

// checkVerdict compares a verdict with the exit code.
func checkVerdict(t testing.TB, result harness.Result, verdict string, good bool) {
	t.Helper()
	want, code := "FAIL", 1
	if good {
		want, code = "PASS", 0
	}
	if verdict != want || result.Code != code {
		t.Errorf("verdict %s and exit code %d, expected %s and %d\n%s%s", verdict, result.Code, want, code, result.Stdout, result.Stderr)
	}
}

// checkEmpty fails when something is left in a folder.
func checkEmpty(t testing.TB, dir string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range entries {
		t.Errorf("`%s` is left", entry.Name())
	}
}

// memory mounts a file system in memory with these options.
func memory(t testing.TB, options string) string {
	t.Helper()
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, options); err != nil {
		harness.Unproved(t, fmt.Sprint("a tmpfs needs root: ", err))
	}
	t.Cleanup(func() { syscall.Unmount(dir, syscall.MNT_DETACH) })
	return dir
}
