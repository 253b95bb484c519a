package main

import (
	"bufio"
	"fmt"
	"os"
	"slices"
	"strings"
)

// kinds are the reasons for which a test may stand on a list.
var kinds = map[string]string{
	"go":        "reads what only a program in Go prints",
	"bbolt":     "opens the files of the server with etcd's own code, or starts it on files that etcdutl wrote",
	"release":   "needs the binary of an earlier release: runs with -last-release",
	"failpoint": "needs a server built with failpoints",
	"design":    "asks that the server does not do what ours does",
	"tools":     "is about something that etcd's own tool does to etcd's own files",
	"proxy":     "starts `etcd grpc-proxy` with a flag that ours does not obey yet",
	// Such a test, or some of its subtests; none may fail.
	"itself": "skips itself, whatever the server",
}

// The kinds of tests that need a server with failpoints, and the release before.
const (
	failpointKind = "failpoint"
	releaseKind   = "release"
)

// only are the kinds of tests that a run with these flags is for; all tests if
// there are none.
func only(failpoints, lastRelease bool) (kinds []string) {
	if failpoints {
		kinds = append(kinds, failpointKind)
	}
	if lastRelease {
		kinds = append(kinds, releaseKind)
	}
	return kinds
}

// expectation is one line of a list: a test that does not pass, of which kind
// its reason is, and the reason. The name of a test with subtests stands for
// all of them, and `*/name` for the subtests of that name of all tests.
type expectation struct {
	name, kind, reason string
}

// readList reads a list: per line a name, a kind with a colon, and a reason;
// `#` begins a comment.
func readList(path string) ([]expectation, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	var list []expectation
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		line := strings.TrimSpace(lines.Text())
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		name, rest, _ := strings.Cut(line, " ")
		kind, reason, _ := strings.Cut(strings.TrimSpace(rest), ":")
		if _, known := kinds[kind]; !known {
			return nil, fmt.Errorf("%s: `%s` has no reason of a known kind", path, name)
		}
		list = append(list, expectation{name, kind, strings.TrimSpace(reason)})
	}
	return list, lines.Err()
}

// compare returns what contradicts the list: tests that did not pass and are
// not on it, and tests on it that passed, which are fine where lenient: with the
// genuine server, or our tools.
func compare(list []expectation, results []result, lenient bool) (contradictions []string) {
	for _, result := range results {
		kind := kindOf(list, result.name)
		switch {
		case result.outcome != passed && kind == "":
			contradictions = append(contradictions, fmt.Sprintf("%s %s and is not on the list", result.name, result.outcome))
		case kind == "itself" && result.outcome != failed:
		case kind == "itself", result.outcome == passed && kind != "" && !lenient:
			contradictions = append(contradictions, fmt.Sprintf("%s is on the list (%s) and %s", result.name, kind, result.outcome))
		}
	}
	return contradictions
}

// failures are the tests of which something failed that is not on the list.
func failures(list []expectation, results []result) (tests []string) {
	for _, result := range results {
		kind := kindOf(list, result.name)
		if result.outcome == failed && (kind == "" || kind == "itself") && !slices.Contains(tests, root(result.name)) {
			tests = append(tests, root(result.name))
		}
	}
	return tests
}

// root is the test that a subtest belongs to.
func root(name string) string {
	test, _, _ := strings.Cut(name, "/")
	return test
}

// kindOf is the kind of the line that names a test, empty if none does.
func kindOf(list []expectation, name string) string {
	for _, line := range list {
		if line.covers(name) {
			return line.kind
		}
	}
	return ""
}

// wants says whether a test, or a subtest of it, is on the list for a reason of
// one of these kinds.
func wants(list []expectation, kinds []string, test string) bool {
	return slices.ContainsFunc(list, func(line expectation) bool {
		return slices.Contains(kinds, line.kind) && root(line.name) == test
	})
}

func (e expectation) covers(name string) bool {
	if anywhere, found := strings.CutPrefix(e.name, "*"); found {
		return strings.Contains(name+"/", anywhere+"/")
	}
	return name == e.name || strings.HasPrefix(name, e.name+"/")
}
