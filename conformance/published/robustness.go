package main

import (
	"cmp"
	"errors"
	"fmt"
	"log"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"
)

// robustness is etcd's suite that makes traffic, draws a failpoint, and checks
// what clients and watchers saw against a model. Its scenarios are subtests,
// which no list of tests names.
var robustness = suite{name: "robustness"}

// scenarios are those of the suite without binaries of an earlier release.
func scenarios() []string {
	var names []string
	for _, traffic := range []string{"EtcdHighTraffic", "EtcdTrafficDeleteLeases", "KubernetesHighTraffic", "KubernetesLowTraffic"} {
		for _, size := range []string{"ClusterOfSize1", "ClusterOfSize3"} {
			names = append(names, "TestRobustnessExploratory/"+traffic+"/"+size)
		}
	}
	for _, issue := range []string{"14370", "14685", "13766", "15220", "17529", "17780", "19179", "18089", "20221", "15271"} {
		names = append(names, "TestRobustnessRegression/Issue"+issue)
	}
	return names
}

// tally counts the runs of one failpoint, or of one scenario.
type tally struct{ runs, passed, undecided int }

// soak is how often, or how long, the scenarios are to run.
type soak struct {
	passes int
	limit  time.Duration
}

// scenarioRuns runs each scenario in a process of its own, pass by pass, until
// the passes are done or the time is over. It says whether all runs passed.
func (r *run) scenarioRuns(soak soak) (bool, error) {
	if err := adoptOrphans(); err != nil {
		return false, err
	}
	r.suite, r.own, r.isolated = robustness, map[int]bool{}, canIsolate()
	if !r.isolated {
		return unproved("robustness: the scenarios need networks of their own: root")
	}
	logs, err := os.MkdirTemp("", "published-robustness-")
	if err != nil {
		return false, err
	}
	defer os.Remove(logs)
	var chosen []string
	for _, name := range scenarios() {
		if r.pattern.MatchString(name) {
			chosen = append(chosen, name)
		}
	}
	fmt.Printf("robustness: %d scenarios, %d at a time, logs and reports of failures in %s\n", len(chosen), r.jobs, logs)
	queue, ended := make(chan string), time.Now().Add(soak.limit)
	go func() {
		defer close(queue)
		for pass := 0; pass < soak.passes; pass++ {
			rand.Shuffle(len(chosen), func(i, j int) { chosen[i], chosen[j] = chosen[j], chosen[i] })
			for _, name := range chosen {
				if soak.limit > 0 && time.Now().After(ended) {
					return
				}
				queue <- name
			}
		}
	}()
	var guard sync.Mutex
	byPoint, byScenario, byRelease := map[string]tally{}, map[string]tally{}, map[string]tally{}
	var workers sync.WaitGroup
	for range r.jobs {
		workers.Go(func() {
			for name := range queue {
				point, earlier, verdict := r.scenario(name, logs)
				guard.Lock()
				count(byRelease, fmt.Sprintf("%d members have run the release before", earlier), verdict)
				count(byPoint, point, verdict)
				count(byScenario, name, verdict)
				guard.Unlock()
			}
		})
	}
	workers.Wait()
	show(byScenario)
	show(byPoint)
	if slices.Contains(r.only, releaseKind) {
		show(byRelease)
	}
	var all tally
	for _, one := range byScenario {
		all.runs, all.passed, all.undecided = all.runs+one.runs, all.passed+one.passed, all.undecided+one.undecided
	}
	fmt.Printf("robustness: %d of %d runs passed, %d undecided\n", all.passed, all.runs, all.undecided)
	return all.passed > 0 && all.passed+all.undecided == all.runs, nil
}

// unproved tells `make test` of what this machine cannot run, as
// harness.Unproved does, and says whether that is good: not in CI, nor for
// somebody who asked for this alone.
func unproved(what string) (bool, error) {
	path := os.Getenv("UNPROVED")
	if path == "" {
		return false, errors.New(what)
	}
	file, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return false, err
	}
	_, err = fmt.Fprintln(file, what)
	return os.Getenv("CI") == "", errors.Join(err, file.Close())
}

func count(tallies map[string]tally, name string, verdict outcome) {
	one := tallies[name]
	one.runs++
	switch verdict {
	case passed:
		one.passed++
	case undecided:
		one.undecided++
	}
	tallies[name] = one
}

func show(tallies map[string]tally) {
	for _, name := range slices.SortedFunc(maps.Keys(tallies), cmp.Compare[string]) {
		fmt.Printf("  %-75s %3d of %3d passed, %d undecided\n", name, tallies[name].passed, tallies[name].runs, tallies[name].undecided)
	}
}

// undecided is a run that proves nothing. Before the failpoint, fewer requests
// were answered than the suite asks for, and nothing else was wrong; porcupine
// gave up after its time, and the second opinion found nothing wrong; or the
// suite copied a data directory for its report, and a file went away meanwhile.
const undecided outcome = "undecided"

// spawned is what the suite prints when it starts a member of the release before.
var spawned = regexp.MustCompile(lastRelease + `", "--name=[^"]*"`)

// scenario runs one to its end: the failpoint that it drew, how many members have
// run the release before, and the outcome. Of one that failed, log and report are
// kept.
func (r *run) scenario(name, logs string) (point string, earlier int, verdict outcome) {
	started := time.Now()
	results, err := os.MkdirTemp(logs, "run-")
	if err != nil {
		log.Print(err)
		return "none", 0, failed
	}
	output, err := r.process(pattern(name), "RESULTS_DIR="+results)
	if strings.Contains(output, "PASS\n"+leaked) {
		err = nil
	}
	found := parse(output)
	// The suite goes on without the log of a member that it cannot read.
	unread := strings.Contains(output, "Failed to read WAL")
	switch {
	case err == nil && !unread && len(found) == 1 && found[0].outcome == passed:
		verdict = passed
	case strings.Contains(output, "Requiring minimal") && !unread && !hasOtherError(output):
		verdict = undecided
	case strings.Count(output, " main_test.go:") == 1 && strings.Contains(output, "linearization: Timeout") && !unread:
		verdict = r.afterTimeout(results)
	case strings.Count(output, " main_test.go:") == 1 && fileGone.MatchString(output) && !unread:
		verdict = undecided
	default:
		verdict = failed
	}
	point = "fixed by " + name
	for _, result := range found {
		if rest, is := strings.CutPrefix(result.name, name+"/"); is {
			point = rest
		}
	}
	starts := spawned.FindAllString(output, -1)
	slices.Sort(starts)
	earlier = len(slices.Compact(starts))
	if verdict == passed {
		os.RemoveAll(results)
	} else if writeErr := os.WriteFile(filepath.Join(results, "log"), []byte(output), 0o600); writeErr != nil {
		log.Print(writeErr)
	}
	text := string(verdict)
	if earlier > 0 {
		text += fmt.Sprintf(", %d of the release before", earlier)
	}
	if verdict != passed {
		text = strings.ToUpper(string(verdict)) + text[len(verdict):] + ", see " + results
	}
	fmt.Printf("  %-55s %-45s %6.1f s  %s\n", strings.TrimPrefix(name, "TestRobustness"), point, time.Since(started).Seconds(), text)
	return point, earlier, verdict
}

// afterTimeout judges a run whose requests porcupine could not put into an order
// in time.
func (r *run) afterTimeout(results string) outcome {
	folders, _ := filepath.Glob(filepath.Join(results, "*", "*"))
	if len(folders) != 1 {
		return failed
	}
	checked, err := secondOpinion(folders[0])
	if err != nil {
		fmt.Printf("  porcupine gave up, and the second opinion found: %v\n", err)
		return failed
	}
	fmt.Printf("  porcupine gave up; the second opinion found nothing wrong with %d answers\n", checked)
	return undecided
}

// fileGone is what the suite prints when a file that it listed is not there any
// more when it copies it: members run on.
var fileGone = regexp.MustCompile(` main_test\.go:[0-9]+: open member/(store|wal)/[0-9a-z.-]+\.(tmp|intake): no such file or directory`)

// hasOtherError says whether the suite names more than too few requests.
func hasOtherError(output string) bool {
	return strings.Contains(output, " main_test.go:") || strings.Contains(output, "Error Trace:") || strings.Contains(output, "panic:")
}

// pattern matches a subtest and all below it.
func pattern(name string) string {
	return "^" + strings.ReplaceAll(name, "/", "$/^") + "$"
}
