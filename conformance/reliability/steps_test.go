package reliability

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"cairn.dev/conformance/harness"
)

var (
	cutLine    = regexp.MustCompile(`^(\d+) +ftruncate\(\d+<([^>]*)>, (\d+)`)
	unlinkLine = regexp.MustCompile(`^(\d+) +unlink(?:at\(.*, |\()"([^"]*)"[^)]*\) += 0`)
)

// TestFilesGoInSteps compacts a history of many segments and looks with strace
// at how their files and those of the log go: a large file must not be removed
// at once, because on some disks all syncs wait for that, and the thread of
// consensus must not do any of it.
func TestFilesGoInSteps(t *testing.T) {
	if harness.Subject() == harness.Etcd {
		t.Skip("etcd keeps one file, and removes whole segments of its log")
	}
	disk := t.TempDir()
	// Segments are of 32 MB there.
	if err := syscall.Mount("tmpfs", disk, "tmpfs", 0, "size=512m"); err != nil {
		harness.Unproved(t, fmt.Sprint("a tmpfs needs root: ", err))
	}
	t.Cleanup(func() { syscall.Unmount(disk, syscall.MNT_DETACH) })
	server := harness.Prepare(t, harness.Subject(), disk+"/data", "--max-wals=1", "--snapshot-count=20")
	server.Run()
	threads, output := traceFiles(t, server.Pid())

	client := server.Client()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	value := strings.Repeat("x", 1<<20)
	var last int64
	for n := range 130 {
		put, err := client.Put(ctx, fmt.Sprint("key", n%3), value)
		if err != nil {
			t.Fatal(err)
		}
		last = put.Header.Revision
	}
	if _, err := client.Compact(ctx, last, clientv3.WithCompactPhysical()); err != nil {
		t.Fatal(err)
	}
	// What is left: three values, segments of each log, and spares.
	for deadline := time.Now().Add(time.Minute); usedBytes(t, disk) > 200<<20; time.Sleep(100 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%d MB are still used:\n%s", usedBytes(t, disk)>>20, listFiles(disk))
		}
	}
	checkSteps(t, threads(), output())
}

// traceFiles attaches strace. The functions that it returns tell the threads'
// names, and end it and tell what it saw.
func traceFiles(t *testing.T, pid int) (threads func() map[string]string, output func() string) {
	t.Helper()
	if _, err := exec.LookPath("strace"); err != nil {
		harness.Unproved(t, "strace is not installed")
	}
	path := filepath.Join(t.TempDir(), "strace")
	command := exec.Command("strace", "-f", "-y", "-e", "trace=ftruncate,unlink,unlinkat", "-e", "signal=none", "-o", path, "-p", fmt.Sprint(pid))
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	stop := func() {
		if command.ProcessState == nil {
			command.Process.Signal(os.Interrupt)
			command.Wait()
		}
	}
	t.Cleanup(stop)
	for deadline := time.Now().Add(time.Minute); !isTraced(pid); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			harness.Unproved(t, "strace does not attach")
		}
	}
	threads = func() map[string]string {
		names := map[string]string{}
		comms, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/comm", pid))
		for _, comm := range comms {
			name, _ := os.ReadFile(comm)
			names[filepath.Base(filepath.Dir(comm))] = strings.TrimSpace(string(name))
		}
		return names
	}
	return threads, func() string {
		stop()
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
}

// isTraced says whether all threads of a process are traced.
func isTraced(pid int) bool {
	states, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/status", pid))
	for _, state := range states {
		if text, err := os.ReadFile(state); err == nil && strings.Contains(string(text), "TracerPid:\t0\n") {
			return false
		}
	}
	return len(states) > 0
}

func usedBytes(t *testing.T, disk string) (used int64) {
	t.Helper()
	var state syscall.Statfs_t
	if err := syscall.Statfs(disk, &state); err != nil {
		t.Fatal(err)
	}
	return int64(state.Blocks-state.Bfree) * state.Bsize
}

// checkSteps demands that files of segments are cut by 1 MiB at a time, and
// removed when no more is left of them.
func checkSteps(t *testing.T, threads map[string]string, calls string) {
	t.Helper()
	const step = 1 << 20
	left := map[string]int64{} // by file
	cuts, removed := 0, 0
	for _, line := range strings.Split(calls, "\n") {
		if cut := cutLine.FindStringSubmatch(line); cut != nil {
			length, _ := strconv.ParseInt(cut[3], 10, 64)
			if before, known := left[cut[2]]; known && before-length > step {
				t.Errorf("a cut of %d bytes: %s", before-length, line)
			}
			left[cut[2]] = length
			cuts++
			if thread := threads[cut[1]]; thread == "consensus" || thread == "apply" {
				t.Errorf("by the thread %s: %s", thread, line)
			}
		}
		unlink := unlinkLine.FindStringSubmatch(line)
		if unlink == nil {
			continue
		}
		thread := threads[unlink[1]]
		isSegment := strings.Contains(unlink[2], ".seg") || strings.Contains(unlink[2], "/wal/")
		if length, known := left[unlink[2]]; isSegment && (!known || length > step) {
			t.Errorf("%s removes a whole file, or %d bytes of it: %s", thread, length, line)
		}
		if isSegment {
			removed++
		}
		if thread == "consensus" || thread == "apply" {
			t.Errorf("by the thread %s: %s", thread, line)
		}
	}
	if removed < 3 || cuts < 20 {
		t.Errorf("only %d files went, in %d cuts", removed, cuts)
	}
	t.Logf("%d files went in %d cuts", removed, cuts)
}
