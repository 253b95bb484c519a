// Package packages checks what is released: the images, the packages and that a build can be repeated. PACKAGES=1 runs it, since it
// builds the program that is released, which takes minutes.
package packages

import (
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"cairn.dev/conformance/harness"
)

const (
	root   = "../.."
	first  = "3.7.3-cairn.9001"
	second = "3.7.3-cairn.9002"
)

var built sync.Map

// release makes a release of this tree once, and returns its folder and the prefix of the names of its files.
func release(t *testing.T, version string) string {
	t.Helper()
	if os.Getenv("PACKAGES") == "" || harness.Subject() == harness.Etcd {
		t.Skip("PACKAGES=1 builds what is released, and checks it")
	}
	once, _ := built.LoadOrStore(version, sync.OnceValues(func() (string, error) {
		// Tests of one process share it; the system's folder for such files is emptied by the system.
		dir, err := os.MkdirTemp("", "cairn-release-")
		if err != nil {
			return "", err
		}
		command := exec.Command("packaging/release", version)
		command.Dir = root
		command.Env = append(os.Environ(), "OUT="+dir)
		command.Stdout, command.Stderr = os.Stdout, os.Stderr
		return dir, command.Run()
	}))
	dir, err := once.(func() (string, error))()
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Join(dir, "cairn-"+version)
}

func TestMain(m *testing.M) {
	code := m.Run()
	built.Range(func(_, once any) bool {
		if dir, _ := once.(func() (string, error))(); dir != "" {
			os.RemoveAll(dir)
		}
		return true
	})
	os.Exit(code)
}

// needs ends a test that lacks a program.
func needs(t *testing.T, programs ...string) {
	t.Helper()
	if os.Getuid() != 0 {
		harness.Unproved(t, "needs root")
	}
	for _, program := range programs {
		if _, err := exec.LookPath(program); err != nil {
			harness.Unproved(t, program+" is missing")
		}
	}
}

// run runs a command that must succeed.
func run(t *testing.T, name string, args ...string) string {
	t.Helper()
	output, err := exec.Command(name, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s %v: %v\n%s", name, args, err, output)
	}
	return string(output)
}

// What one compiled program is packed into twice is equal to the byte. The program is compiled once: the second release finds it up to date.
func TestRepeats(t *testing.T) {
	prefix := release(t, first)
	dir := t.TempDir()
	command := exec.Command("packaging/release", first)
	command.Dir = root
	command.Env = append(os.Environ(), "OUT="+dir, "TZ=Asia/Tokyo", "LC_ALL=C.UTF-8")
	if output, err := command.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, output)
	}
	sums := func(dir string) string {
		content, err := os.ReadFile(filepath.Join(dir, "SHA256SUMS"))
		if err != nil {
			t.Fatal(err)
		}
		return string(content)
	}
	if one, two := sums(filepath.Dir(prefix)), sums(dir); one != two {
		t.Errorf("two releases differ:\n%s\n%s", one, two)
	}
	check := exec.Command("sha256sum", "--check", "--strict", "SHA256SUMS")
	check.Dir = dir
	if output, err := check.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, output)
	}
}
