package main

import (
	"regexp"
	"strconv"
	"strings"
	"time"
)

// outcome is how a test ended.
type outcome string

const (
	passed  outcome = "passed"
	failed  outcome = "failed"
	skipped outcome = "skipped"
)

// result is the end of one test or subtest that has no subtests itself.
type result struct {
	name    string
	outcome outcome
	took    time.Duration
}

// The control character is what `-test.v=test2json` puts before each line of
// the test's own, so that nothing that a server prints is taken for one.
var (
	runLine  = regexp.MustCompile(`\x16=== RUN\s+(\S+)`)
	endLine  = regexp.MustCompile(`\x16?\s*--- (PASS|FAIL|SKIP): (\S+) \(([0-9.]+)s\)`)
	outcomes = map[string]outcome{"PASS": passed, "FAIL": failed, "SKIP": skipped}
)

// parse reads the output of a test binary. A test that began and has no end,
// because the binary died or was killed, has failed.
func parse(output string) []result {
	var order []string
	ends := map[string]result{}
	for line := range strings.SplitSeq(output, "\n") {
		if begun := runLine.FindStringSubmatch(line); begun != nil {
			order = append(order, begun[1])
		}
		if !strings.Contains(line, "\x16") {
			continue
		}
		if end := endLine.FindStringSubmatch(line); end != nil {
			seconds, _ := strconv.ParseFloat(end[3], 64)
			ends[end[2]] = result{end[2], outcomes[end[1]], time.Duration(seconds * float64(time.Second))}
		}
	}
	var leaves []result
	for _, name := range order {
		if isParent(name, order) {
			continue
		}
		end, ended := ends[name]
		if !ended {
			end = result{name: name, outcome: failed}
		}
		leaves = append(leaves, end)
	}
	return addParents(leaves, order, ends)
}

// addParents adds tests that failed although all their subtests did not.
func addParents(leaves []result, order []string, ends map[string]result) []result {
	for _, name := range order {
		end, ended := ends[name]
		if !isParent(name, order) || ended && end.outcome != failed {
			continue
		}
		below := false
		for _, leaf := range leaves {
			below = below || leaf.outcome == failed && strings.HasPrefix(leaf.name, name+"/")
		}
		if !below {
			leaves = append(leaves, result{name: name, outcome: failed, took: end.took})
		}
	}
	return leaves
}

func isParent(name string, all []string) bool {
	for _, other := range all {
		if strings.HasPrefix(other, name+"/") {
			return true
		}
	}
	return false
}
