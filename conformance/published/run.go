package main

import (
	"bytes"
	_ "embed"
	"errors"
	"fmt"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

// testMax ends a test that hangs. The slowest takes two minutes on the genuine
// server and an idle machine.
const testMax = 10 * time.Minute

// sample is the configuration file that etcd's repository holds beside the
// suites, in our own words: one test starts the server with it.
//
//go:embed sample.yml
var sample string

// run is one suite against one server.
type run struct {
	suite   suite
	tools   tools
	short   bool
	pattern *regexp.Regexp
	jobs    int
	verbose bool
	// only tests that stand on the list for a reason of these kinds run, and what
	// they need is there; all tests if it is empty.
	only []string

	// starting is held while a process is started or strays are sought.
	starting sync.Mutex
	own      map[int]bool
	isolated bool
}

// everything runs the tests of the suite, each in a process of its own, so
// that one that hangs does not take the others with it.
func (r *run) everything() ([]result, error) {
	tests, err := r.tests()
	if err != nil {
		return nil, err
	}
	if err := adoptOrphans(); err != nil {
		return nil, err
	}
	r.own, r.isolated = map[int]bool{}, canIsolate()
	if !r.isolated {
		// The ports are fixed: one run at a time on this machine.
		r.jobs = 1
		unlock, err := lock(filepath.Join(os.TempDir(), "cairn-published.lock"))
		if err != nil {
			return nil, err
		}
		defer unlock()
	}
	logs, err := os.MkdirTemp("", "published-"+r.suite.name+"-")
	if err != nil {
		return nil, err
	}
	fmt.Printf("%s: %d tests, %d at a time, logs of failures in %s\n", r.suite.name, len(tests), r.jobs, logs)

	var timed, others []string
	for _, test := range tests {
		if r.suite.timed.MatchString(test) {
			timed = append(timed, test)
		} else {
			others = append(others, test)
		}
	}
	// Nothing is left of it when nothing failed.
	defer os.Remove(logs)
	results := append(r.together(others, r.jobs, logs), r.together(timed, 1, logs)...)
	if r.short {
		known, err := r.known()
		if err != nil {
			return nil, err
		}
		results = r.alone(results, failures(known, results), logs)
	}
	slices.SortFunc(results, func(a, b result) int { return strings.Compare(a.name, b.name) })
	return results, nil
}

// aloneMax is how many tests may fail beside others on a busy machine and be
// run again. More are no matter of the machine.
const aloneMax = 3

// alone runs tests that have failed once more, one at a time: they give servers
// seconds that a machine with more to do does not always have. What they find
// now counts.
func (r *run) alone(results []result, tests []string, logs string) []result {
	if len(tests) == 0 || len(tests) > aloneMax {
		return results
	}
	fmt.Printf("%s: %d failed beside others and run once more, alone\n", r.suite.name, len(tests))
	results = slices.DeleteFunc(results, func(one result) bool { return slices.Contains(tests, root(one.name)) })
	return append(results, r.together(tests, 1, logs)...)
}

// together runs tests, a number of them at a time.
func (r *run) together(tests []string, jobs int, logs string) (results []result) {
	var guard sync.Mutex
	var workers sync.WaitGroup
	queue := make(chan string)
	for range jobs {
		workers.Go(func() {
			for test := range queue {
				found := r.one(test, logs)
				guard.Lock()
				results = append(results, found...)
				guard.Unlock()
			}
		})
	}
	for _, test := range tests {
		queue <- test
	}
	close(queue)
	workers.Wait()
	return results
}

// tests are the names of those that are to run.
func (r *run) tests() ([]string, error) {
	list := exec.Command(r.binary(), "-test.list", ".")
	list.Dir = filepath.Join(r.tools.sources, r.suite.name)
	output, err := list.Output()
	if err != nil {
		return nil, fmt.Errorf("list tests: %w", err)
	}
	known, err := r.known()
	if err != nil {
		return nil, err
	}
	var tests []string
	for _, name := range strings.Fields(string(output)) {
		isMixed := r.suite.mixed && slices.Contains(r.only, releaseKind)
		if len(r.only) > 0 && !isMixed && !wants(known, r.only, name) {
			continue
		}
		if strings.HasPrefix(name, "Test") && r.pattern.MatchString(name) && !(r.short && r.leftOut(known, name)) {
			tests = append(tests, name)
		}
	}
	return tests, nil
}

// leftOut says whether the short run does without a test: what takes long, is
// judged by time or is known not to pass.
func (r *run) leftOut(known []expectation, test string) bool {
	kind := kindOf(known, test)
	if slices.Contains(r.only, kind) {
		kind = ""
	}
	return r.suite.slow.MatchString(test) || r.suite.timed.MatchString(test) || kind != "" && kind != "itself"
}

func (r *run) binary() string { return filepath.Join(r.tools.suites, r.suite.name+".test") }

// leaked is what a test binary prints last when its own goroutines outlive its
// tests, which some tests always do: they do not close what they started.
const leaked = "Unexpected goroutines running after all test(s)."

// one runs a test to its end and keeps its log if something failed.
func (r *run) one(test, logs string) []result {
	started := time.Now()
	output, err := r.process("^" + test + "$")
	if strings.Contains(output, "PASS\n"+leaked) {
		err = nil
	}
	results := parse(output)
	if len(results) == 0 || err != nil && !slices.ContainsFunc(results, isFailure) {
		results = append(results, result{name: test, outcome: failed, took: time.Since(started)})
	}
	if slices.ContainsFunc(results, isFailure) {
		path := filepath.Join(logs, test+".log")
		if writeErr := os.WriteFile(path, []byte(output), 0o600); writeErr != nil {
			log.Print(writeErr)
		}
		if r.verbose {
			fmt.Println(output)
		}
	}
	count := map[outcome]int{}
	for _, result := range results {
		count[result.outcome]++
	}
	remark := ""
	if err != nil {
		remark = fmt.Sprintf(" (%v)", err)
	}
	fmt.Printf("  %-55s %3d passed %3d failed %3d skipped %6.1f s%s\n", test, count[passed], count[failed], count[skipped],
		time.Since(started).Seconds(), remark)
	return results
}

func isFailure(result result) bool { return result.outcome == failed }

// process runs the test binary for the tests that a pattern matches and
// returns what it printed.
func (r *run) process(tests string, variables ...string) (string, error) {
	// The suites look for the fixtures beside their folder and for the sample
	// above, and put sockets into it, whose paths must be short.
	home, err := os.MkdirTemp("", "pub")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(home)
	dir := filepath.Join(home, "t", r.suite.name)
	if err := errors.Join(os.MkdirAll(dir, 0o700),
		os.WriteFile(filepath.Join(home, "etcd.conf.yml.sample"), []byte(sample), 0o600),
		os.Symlink(filepath.Join(r.tools.sources, "fixtures"), filepath.Join(home, "t", "fixtures"))); err != nil {
		return "", err
	}
	command := exec.Command(r.binary(), "-test.run", tests, "-test.v=test2json", "-test.timeout", testMax.String(), "--bin-dir", r.tools.bin)
	command.Dir = dir
	command.Env = append(append(os.Environ(), "TMPDIR="+filepath.Join(home, "t")), variables...)
	if r.short {
		// The suite's own word for fewer shapes of clusters: one member without
		// TLS, three with it.
		command.Env = append(command.Env, "E2E_TEST_MINIMAL=true")
	}
	if slices.Contains(r.only, releaseKind) {
		command.Env = append(command.Env, adopting)
	}
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if r.isolated {
		if err := ownNetwork(command); err != nil {
			return "", err
		}
	}
	var output bytes.Buffer
	command.Stdout, command.Stderr = &output, &output
	command.WaitDelay = 5 * time.Second
	if err := r.start(command); err != nil {
		return "", err
	}
	// The binary's own time-out prints where it hangs; this one is for a binary
	// that does not end even then.
	timer := time.AfterFunc(testMax+30*time.Second, func() { command.Process.Kill() })
	defer timer.Stop()
	err = command.Wait()
	r.clean(command.Process.Pid)
	return output.String(), err
}

func (r *run) start(command *exec.Cmd) error {
	r.starting.Lock()
	defer r.starting.Unlock()
	if err := command.Start(); err != nil {
		return err
	}
	r.own[command.Process.Pid] = true
	return nil
}

// clean ends what a test binary left behind: servers when it died, and watches
// that some tests never end.
func (r *run) clean(pid int) {
	r.starting.Lock()
	defer r.starting.Unlock()
	delete(r.own, pid)
	killOrphans(r.own)
}

// judge prints the outcome and says whether it is as the list has it.
func (r *run) judge(results []result) bool {
	count := map[outcome]int{}
	for _, result := range results {
		count[result.outcome]++
	}
	fmt.Printf("%s: %d passed, %d failed, %d skipped\n", r.suite.name, count[passed], count[failed], count[skipped])
	list, err := r.known()
	list = slices.DeleteFunc(list, func(line expectation) bool { return slices.Contains(r.only, line.kind) })
	if err != nil {
		log.Print(err)
		return false
	}
	contradictions := compare(list, results, r.tools.genuine || r.tools.ours)
	for _, line := range contradictions {
		fmt.Printf("  %s\n", line)
	}
	return len(contradictions) == 0
}

// known is what is known not to pass in such a run, the particular before the
// general.
func (r *run) known() (list []expectation, err error) {
	files := []string{r.suite.list()}
	for file, applies := range map[string]bool{
		toolsList: r.tools.ours, proxyList: r.tools.proxied,
		failpointsList: slices.Contains(r.only, failpointKind), releaseList: slices.Contains(r.only, releaseKind),
	} {
		if applies {
			files = append(files, file)
		}
	}
	for _, file := range slices.Backward(files) {
		more, err := readList(file)
		if err != nil {
			return nil, err
		}
		list = append(list, more...)
	}
	return list, nil
}
