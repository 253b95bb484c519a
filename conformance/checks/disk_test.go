package checks

import (
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"cairn.dev/conformance/harness"
)

type times struct {
	Count          int
	Min, P50, Mean float64
	P99            float64 `json:"p99"`
	Max            float64
}

func (t times) inOrder() bool {
	return 0 < t.Min && t.Min <= t.P50 && t.P50 <= t.P99 && t.P99 <= t.Max && t.Min <= t.Mean && t.Mean <= t.Max
}

// Every write is counted, and the verdict is about the p99 that is shown.
func TestDisk(t *testing.T) {
	dir := t.TempDir()
	var found struct {
		Iops             float64
		WriteSeconds     times
		FdatasyncSeconds times
		Verdict          string
	}
	result := object(t, &found, "check", "disk", "--data-dir", dir, "--size", "230000")
	if found.WriteSeconds.Count != 100 || found.FdatasyncSeconds.Count != 100 || found.Iops <= 0 {
		t.Errorf("not a hundred writes: %s", result.Stdout)
	}
	if !found.WriteSeconds.inOrder() || !found.FdatasyncSeconds.inOrder() {
		t.Errorf("percentiles out of order: %s", result.Stdout)
	}
	checkVerdict(t, result, found.Verdict, found.FdatasyncSeconds.P99 < 0.010)

	result = cairn(t, "check", "disk", "--data-dir", dir, "--size", "64k")
	for _, part := range []string{"28 writes of 2300 B", " IOPS, ", "p99.99", "  write ", "  fdatasync ", ": fdatasync p99 < 10 ms ("} {
		if !strings.Contains(result.Stdout, part) {
			t.Errorf("no `%s` in\n%s%s", part, result.Stdout, result.Stderr)
		}
	}
	if strings.Contains(result.Stdout, "\x1b") || result.Stderr != "" {
		t.Errorf("colours or a bar where nobody looks: %q %q", result.Stdout, result.Stderr)
	}
	checkEmpty(t, dir)
}

// Every block of the file is read or written once, and where figures come from
// is told.
func TestDiskMixed(t *testing.T) {
	dir := t.TempDir()
	var found struct {
		Means       string
		Depth       int
		Read, Write struct {
			Iops    float64
			Seconds times
		}
	}
	result := object(t, &found, "check", "disk", "--mixed", "--data-dir", dir, "--size", "4m")
	reads, writes := found.Read.Seconds, found.Write.Seconds
	if reads.Count+writes.Count != 1024 || reads.Count < 2*writes.Count || !reads.inOrder() || !writes.inOrder() {
		t.Errorf("not 1024 blocks, three quarters of them read: %s", result.Stdout)
	}
	if found.Depth != 64 || !strings.Contains(found.Means, "libaio") && !strings.Contains(found.Means, "64 threads") {
		t.Errorf("by what means? %s", result.Stdout)
	}
	if result.Code != 0 {
		t.Errorf("exit code %d: %s", result.Code, result.Stderr)
	}
	checkEmpty(t, dir)
}

// What cannot be tested is refused with its reason, and nothing else is
// touched.
func TestDiskRefusals(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, row := range []struct {
		args []string
		code int
		text string
	}{
		{[]string{"--data-dir", filepath.Join(t.TempDir(), "absent")}, 6, "absent`: No such file or directory"},
		{[]string{"--data-dir", file}, 6, "it is no directory"},
		{[]string{}, 6, "data directory `default.etcd` (the default; name another with --data-dir): No such file"},
		{[]string{"--data-dir", t.TempDir(), "--size", "much"}, 128, "is no number of bytes"},
		{[]string{"--data-dir", t.TempDir(), "--size", "5g"}, 128, "must be between 1 and 4 GiB"},
		{[]string{"--data-dir", t.TempDir(), "--size", "1k"}, 128, "--block-size must be between 1 and"},
		{[]string{"--data-dir", t.TempDir(), "--size", "4g", "--block-size", "1"}, 128, "make 4,294,967,296 writes, and 4,194,304 are the most"},
		{[]string{"--data-dir", t.TempDir(), "-w", "table"}, 4, "only simple and json"},
		{[]string{"--data-dir", t.TempDir(), "extra"}, 128, "takes no arguments"},
	} {
		result := cairn(t, append([]string{"check", "disk"}, row.args...)...)
		if result.Code != row.code || !strings.Contains(result.Stderr, row.text) || result.Stdout != "" {
			t.Errorf("%v: exit %d: %s%s", row.args, result.Code, result.Stdout, result.Stderr)
		}
	}
	if content, err := os.ReadFile(file); err != nil || string(content) != "precious" {
		t.Errorf("%q %v", content, err)
	}
}

// A disk without room, and one that nothing may be written to.
func TestDiskWithoutRoom(t *testing.T) {
	small := memory(t, "size=70m")
	result := cairn(t, "check", "disk", "--data-dir", small)
	if result.Code != 6 || !strings.Contains(result.Stderr, "no room in `"+small+"`: 70 MiB are free, and 86 MiB") {
		t.Errorf("exit %d: %s", result.Code, result.Stderr)
	}
	result = cairn(t, "check", "disk", "--data-dir", small, "--size", "1m")
	if !strings.Contains(result.Stdout, "(tmpfs, 70 MiB free; memory, no disk)") {
		t.Errorf("exit %d: %s%s", result.Code, result.Stdout, result.Stderr)
	}
	checkEmpty(t, small)

	result = cairn(t, "check", "disk", "--data-dir", memory(t, "ro"), "--size", "1m")
	if result.Code != 6 || !strings.Contains(result.Stderr, "Read-only file system") {
		t.Errorf("exit %d: %s", result.Code, result.Stderr)
	}
}

// Whatever signal ends it, nothing is left; not even by one that cannot be held back.
func TestDiskStopped(t *testing.T) {
	for _, sent := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGKILL} {
		for _, mixed := range []bool{false, true} {
			dir := t.TempDir()
			command := exec.Command(harness.CairnBinary(t), "check", "disk", "--data-dir", dir, "--size=1g")
			if mixed {
				command.Args = append(command.Args, "--mixed")
			}
			var stderr strings.Builder
			command.Stderr = &stderr
			// One that is ignored here, as under nohup, would be there, too; one that is caught is not.
			caught := make(chan os.Signal, 1)
			signal.Notify(caught, sent)
			if err := command.Start(); err != nil {
				t.Fatal(err)
			}
			signal.Stop(caught)
			for deadline := time.Now().Add(30 * time.Second); !holds(command.Process.Pid, dir); time.Sleep(time.Millisecond) {
				if time.Now().After(deadline) {
					command.Process.Kill()
					t.Fatal("there is never a file")
				}
			}
			command.Process.Signal(sent)
			command.Wait()
			code, text := 5, "Error: check interrupted\n"
			if sent == syscall.SIGKILL {
				code, text = -1, ""
			}
			if command.ProcessState.ExitCode() != code || stderr.String() != text {
				t.Errorf("%v: exit %d: %s", sent, command.ProcessState.ExitCode(), stderr.String())
			}
			checkEmpty(t, dir)
		}
	}
}

// What an earlier test has left behind, under whatever number of a process, is
// in nobody's way: in containers all have the same.
func TestDiskBesideLeftovers(t *testing.T) {
	dir := t.TempDir()
	for pid := range 10 {
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprint("cairn-check-disk.", pid)), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	// A process with a small number, as in a container.
	command := exec.Command("unshare", "--pid", "--fork", harness.CairnBinary(t), "check", "disk", "--data-dir", dir, "--size=64k", "--json")
	if output, err := command.CombinedOutput(); !strings.Contains(string(output), `"verdict"`) {
		if strings.Contains(string(output), "unshare") {
			harness.Unproved(t, "a space of processes needs root: "+string(output))
		}
		t.Errorf("%v: %s", err, output)
	}
}

// holds says whether a process has a file without a name in a folder, with
// bytes in it.
func holds(pid int, dir string) bool {
	links, _ := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
	return slices.ContainsFunc(links, func(link string) bool {
		path, err := os.Readlink(link)
		if err != nil || !strings.HasPrefix(path, dir) || !strings.HasSuffix(path, " (deleted)") {
			return false
		}
		info, err := os.Stat(link)
		return err == nil && info.Size() > 0
	})
}
