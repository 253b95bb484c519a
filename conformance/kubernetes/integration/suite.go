package integration

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"cairn.dev/conformance/harness"
)

// programs is the module with the dependencies of the release.
const programs = "../programs"

// suite is a package of tests, compiled once.
type suite struct {
	t      *testing.T
	name   string
	folder string
	binary string
	// reader turns what the tests print into events.
	reader string
	// limit is how long a run may last.
	limit time.Duration
}

// outcomes of tests and of those below them: pass, fail or skip.
type outcomes map[string]string

// sources is the folder of Kubernetes' own sources.
func sources(t *testing.T) string {
	t.Helper()
	goCommand(t, "mod", "download", "k8s.io/kubernetes")
	return strings.TrimSpace(goCommand(t, "list", "-m", "-f={{.Dir}}", "k8s.io/kubernetes"))
}

// modules writes a go.mod for the tests: that of the programs, and what tests of Kubernetes need beside it, in the versions and with the sums that
// Kubernetes' own files name. It returns the flags that choose it.
func modules(t *testing.T, kubernetes string) []string {
	t.Helper()
	read := func(path ...string) string {
		content, err := os.ReadFile(filepath.Join(path...))
		if err != nil {
			t.Fatal(err)
		}
		return string(content)
	}
	path := filepath.Join(t.TempDir(), "go.mod")
	for name, text := range map[string]string{
		"go.mod": read(programs, "go.mod"),
		"go.sum": read(programs, "go.sum") + read(kubernetes, "go.sum"),
	} {
		if err := os.WriteFile(filepath.Join(filepath.Dir(path), name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	// The go command adds what the tests import, by the go.mod of Kubernetes.
	return []string{"-modfile=" + path, "-mod=mod"}
}

// build compiles a package below test/integration/.
func build(t *testing.T, kubernetes, name string, flags []string, limit time.Duration) *suite {
	t.Helper()
	made := t.TempDir()
	s := &suite{
		t: t, name: name, folder: filepath.Join(kubernetes, "test", "integration", name), binary: filepath.Join(made, "tests"),
		reader: filepath.Join(made, "test2json"), limit: limit,
	}
	goCommand(t, "build", "-o", s.reader, "cmd/test2json")
	words := append([]string{"test", "-c", "-o", s.binary, harness.KubernetesVersion}, flags...)
	goCommand(t, append(words, "k8s.io/kubernetes/test/integration/"+name)...)
	return s
}

// goCommand runs the go command in the module of the programs.
func goCommand(t *testing.T, words ...string) string {
	t.Helper()
	command := exec.Command("go", words...)
	command.Dir = programs
	var failure strings.Builder
	command.Stderr = &failure
	output, err := command.Output()
	if err != nil {
		t.Fatalf("go %v: %v\n%s%s", words, err, output, failure.String())
	}
	return string(output)
}

// names are the tests of the package.
func (s *suite) names() []string {
	s.t.Helper()
	command := exec.Command(s.binary, "-test.list=.")
	command.Dir = s.folder
	// They start a server even so.
	command.Env = append(os.Environ(), s.starts(harness.Etcd)...)
	output, err := command.Output()
	if err != nil {
		s.t.Fatalf("%s: %v", s.name, err)
	}
	var names []string
	for line := range strings.Lines(string(output)) {
		if line = strings.TrimSpace(line); strings.HasPrefix(line, "Test") {
			names = append(names, line)
		}
	}
	return names
}

// starts are the variables that have tests start a server of a kind: they find none at the URL, and it in PATH. A server on the usual port would
// be used if there was no URL.
func (s *suite) starts(kind harness.Kind) []string {
	s.t.Helper()
	folder := filepath.Dir(harness.Binary(s.t, kind))
	return []string{"PATH=" + folder + ":" + os.Getenv("PATH"), "KUBE_INTEGRATION_ETCD_URL=http://127.0.0.1:1"}
}

// startsItsOwn runs tests, which start the `etcd` in PATH themselves.
func (s *suite) startsItsOwn(kind harness.Kind, only ...string) outcomes {
	s.t.Helper()
	return s.run(fmt.Sprint(kind, "-started"), s.starts(kind), only)
}

// isGiven runs tests with the URL of a server. Two of package apiserver start
// another one all the same, of the same kind.
func (s *suite) isGiven(kind harness.Kind, only ...string) outcomes {
	s.t.Helper()
	server := harness.Start(s.t, kind, "--quota-backend-bytes=8589934592")
	defer server.Stop()
	return s.run(fmt.Sprint(kind, "-given"), append(s.starts(kind), "KUBE_INTEGRATION_ETCD_URL=http://"+server.Endpoint()), only)
}

// run runs the tests of these names, all if there are none.
func (s *suite) run(what string, env, only []string) outcomes {
	s.t.Helper()
	// They put sockets into it, whose paths must be short.
	scratch, err := os.MkdirTemp("", "k")
	if err != nil {
		s.t.Fatal(err)
	}
	defer os.RemoveAll(scratch)
	ctx, cancel := context.WithTimeout(s.t.Context(), s.limit+time.Minute)
	defer cancel()
	words := []string{"-p", s.name, s.binary, "-test.v=test2json", "-test.timeout=" + s.limit.String()}
	if len(only) > 0 {
		words = append(words, "-test.run=^("+strings.Join(only, "|")+")$")
	}
	command := exec.CommandContext(ctx, s.reader, words...)
	command.Dir = s.folder
	command.Env = append(append(os.Environ(), "TMPDIR="+scratch), env...)
	// The tests and their servers end together.
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	command.Cancel = func() error { return syscall.Kill(-command.Process.Pid, syscall.SIGKILL) }
	command.WaitDelay = time.Second
	output, err := command.StdoutPipe()
	if err != nil {
		s.t.Fatal(err)
	}
	began := time.Now()
	if err := command.Start(); err != nil {
		s.t.Fatal(err)
	}
	found := outcomes{}
	lines := bufio.NewScanner(output)
	lines.Buffer(nil, 1<<26)
	log := s.log(what)
	defer log.Close()
	for lines.Scan() {
		var event struct{ Action, Test, Output string }
		if json.Unmarshal(lines.Bytes(), &event) != nil {
			continue
		}
		switch {
		case event.Action == "output":
			log.WriteString(event.Output)
		case event.Test != "" && slices.Contains([]string{"pass", "fail", "skip"}, event.Action):
			found[event.Test] = event.Action
		}
	}
	// Whether it failed is told by the tests.
	var exit *exec.ExitError
	if err := errors.Join(lines.Err(), command.Wait()); err != nil && !errors.As(err, &exit) {
		s.t.Fatalf("%s, %s: %v", s.name, what, err)
	}
	s.t.Logf("%s, %s: %s in %v", s.name, what, found, time.Since(began).Round(time.Second))
	return found
}

// log takes the output of a run: a file of KEEP_LOGS, where that names a folder.
func (s *suite) log(what string) *os.File {
	s.t.Helper()
	path := os.DevNull
	if folder := os.Getenv("KEEP_LOGS"); folder != "" {
		path = filepath.Join(folder, strings.ReplaceAll(s.name, "/", "-")+"-"+what+".log")
	}
	log, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		s.t.Fatal(err)
	}
	return log
}

func (o outcomes) String() string {
	count := map[string]int{}
	for _, outcome := range o {
		count[outcome]++
	}
	return fmt.Sprintf("%d passed, %d failed, %d skipped", count["pass"], count["fail"], count["skip"])
}

// whole are the tests with no test above them that passed.
func (o outcomes) whole() (names []string) {
	for name, outcome := range o {
		if outcome == "pass" && !strings.Contains(name, "/") {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// lost are the tests that pass with the genuine server and do not here, in order.
func (o outcomes) lost(genuine outcomes) (names []string) {
	for name, outcome := range genuine {
		if outcome == "pass" && o[name] != "pass" {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// above are the tests that those of the names are part of, as patterns.
func above(names []string) (patterns []string) {
	for _, name := range names {
		test, _, _ := strings.Cut(name, "/")
		patterns = append(patterns, regexp.QuoteMeta(test))
	}
	return slices.Compact(patterns)
}
