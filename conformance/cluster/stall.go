package cluster

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"cairn.dev/conformance/harness"
)

// disks are the disks of a cluster's members, each of which can be made to
// stop answering.
type disks struct {
	t     testing.TB
	shim  string
	files map[*harness.Server]string
}

// prepareDisks gives members that are not started yet such disks. It skips the
// test where that cannot be done, and fails it instead where CI is set.
func prepareDisks(t testing.TB, members []*harness.Server) *disks {
	t.Helper()
	if harness.Subject() == harness.Etcd {
		t.Skip("the genuine server calls the kernel by itself: nothing can be put in between")
	}
	disks := &disks{t: t, shim: filepath.Join(t.TempDir(), "stall.so"), files: map[*harness.Server]string{}}
	build := exec.Command("cc", "-shared", "-fPIC", "-O1", "-Wall", "-Werror", "-o", disks.shim, "testdata/stall.c")
	if output, err := build.CombinedOutput(); err != nil {
		harness.Unproved(t, fmt.Sprintf("no C compiler for the stalling disk: %v\n%s", err, output))
	}
	for _, member := range members {
		disks.files[member] = filepath.Join(t.TempDir(), "stalled")
		member.Setenv("LD_PRELOAD", disks.shim)
		member.Setenv("STALL_FILE", disks.files[member])
	}
	return disks
}

// Stall has a member's disk answer no sync that is not over yet. It answers
// again before the members are ended with the test, which they could not do
// otherwise.
func (d *disks) Stall(member *harness.Server) {
	d.t.Helper()
	d.t.Cleanup(d.Recover)
	if err := os.WriteFile(d.files[member], nil, 0o600); err != nil {
		d.t.Fatal(err)
	}
}

// Recover has all disks answer again.
func (d *disks) Recover() {
	for _, file := range d.files {
		os.Remove(file)
	}
}
