package takeover

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"cairn.dev/conformance/harness"
)

// What is printed for a host can be pasted there: a shell that finds `cairn`,
// `etcd` and `systemctl` moves the member by it, and back.
func TestPrintedLines(t *testing.T) {
	t.Parallel()
	server := harness.Start(t, harness.Etcd)
	if _, err := server.Client().Put(harness.Context(t), "key", "value"); err != nil {
		t.Fatal(err)
	}
	programs := t.TempDir()
	for name, target := range map[string]string{"cairn": harness.CairnBinary(t), "etcd": harness.Binary(t, harness.Etcd)} {
		if err := os.Symlink(target, filepath.Join(programs, name)); err != nil {
			t.Fatal(err)
		}
	}
	// What runs now, as `systemctl` knows it.
	running := server.Pid()
	go server.Wait(time.Minute)
	pasted := func(lines string) {
		stop := fmt.Sprintf("#!/bin/sh\nkill %d\nwhile kill -0 %d 2>/dev/null; do sleep 0.05; done\n", running, running)
		if err := os.WriteFile(filepath.Join(programs, "systemctl"), []byte(stop), 0o700); err != nil {
			t.Error(err)
			return
		}
		// The program takes the place of the shell, so that its process is known.
		lines = strings.Replace(strings.Replace(lines, "\ncairn serve", "\nexec cairn serve", 1), "\netcd ", "\nexec etcd ", 1)
		shell := exec.Command("sh", "-c", lines)
		shell.Env = append(os.Environ(), "PATH="+programs+":"+os.Getenv("PATH"))
		shell.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		log, err := os.Create(filepath.Join(programs, "log"))
		if err != nil {
			t.Error(err)
			return
		}
		shell.Stdout, shell.Stderr = log, log
		if err := shell.Start(); err != nil {
			t.Error(err)
			return
		}
		running = shell.Process.Pid
		t.Cleanup(func() { shell.Process.Kill() })
		go shell.Wait()
	}
	move := func(args ...string) {
		t.Helper()
		const last = "--initial-cluster-state=existing\n"
		done := tool(t, "", func(printed string) os.Signal {
			if _, lines, found := strings.Cut(printed, "# on the host of default:\n"); found && strings.Contains(lines, last) && len(args) > 0 {
				lines, _, _ = strings.Cut(lines, last)
				args = nil
				pasted("\n" + lines + last)
			}
			return nil
		}, append(args, "--endpoints="+server.Endpoint(), "--timeout=60s")...)
		if done.code != 0 {
			log, _ := os.ReadFile(filepath.Join(programs, "log"))
			t.Fatalf("exit %d:\n%s\n%s", done.code, done.out, log)
		}
		got, err := server.Client().Get(harness.Context(t), "key")
		if err != nil || len(got.Kvs) != 1 || string(got.Kvs[0].Value) != "value" {
			t.Errorf("%v, %v", got, err)
		}
	}
	move("--data-dir=" + server.DataDir)
	if found, _ := filepath.Glob(filepath.Join(server.DataDir, "etcd-backup-*")); len(found) != 1 {
		t.Errorf("etcd's files: %v", found)
	}
	back := []string{"--back", "--data-dir=" + server.DataDir, "--new-data-dir=" + filepath.Join(t.TempDir(), "it's new")}
	notStarted(t, server, back)
	move(back...)
}

// notStarted runs the lines of the way back, in all forms that a shell can run,
// with an export that fails: nothing may be started after it.
func notStarted(t *testing.T, server *harness.Server, back []string) {
	t.Helper()
	for _, form := range []string{"shell", "systemd", "compose", "static-pod"} {
		done := tool(t, "", nil, append(back, "--print="+form, "--endpoints="+server.Endpoint(), "--timeout=1s")...)
		_, lines, found := strings.Cut(done.out, "# on the host of default:\n")
		if _, commands, inFile := strings.Cut(lines, "# then:\n"); inFile {
			lines = commands
		}
		lines, _, _ = strings.Cut(lines, "\n# and the other flags")
		if !found || done.code != 8 || !strings.Contains(lines, "cairn util export") {
			t.Fatalf("%s: exit %d:\n%s", form, done.code, done.out)
		}
		programs := t.TempDir()
		ran := filepath.Join(programs, "ran")
		for _, name := range []string{"cairn", "etcd", "systemctl", "docker", "mv"} {
			script := fmt.Sprintf("#!/bin/sh\necho %s \"$@\" >>%s\n", name, ran)
			if name == "cairn" {
				script += "exit 1\n"
			}
			if err := os.WriteFile(filepath.Join(programs, name), []byte(script), 0o700); err != nil {
				t.Fatal(err)
			}
		}
		shell := exec.Command("sh", "-c", lines)
		shell.Env = append(os.Environ(), "PATH="+programs+":"+os.Getenv("PATH"))
		if out, err := shell.CombinedOutput(); err == nil {
			t.Errorf("%s: the export failed, and the lines did not:\n%s\n%s", form, lines, out)
		}
		log, _ := os.ReadFile(ran)
		all := strings.Split(strings.TrimSpace(string(log)), "\n")
		if len(all) != 2 || !strings.HasPrefix(all[1], "cairn util export") {
			t.Errorf("%s: after the export that failed: %q\n%s", form, all, lines)
		}
	}
}
