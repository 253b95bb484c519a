package main

import (
	"bufio"
	"fmt"
	"os"
	"strings"
)

// expectation is one line of a list: a test that does not pass yet, and why.
// The name of a test with subtests stands for all of them.
type expectation struct {
	name, reason string
}

// readList reads a list: per line a name and a reason; `#` begins a comment.
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
		name, reason, _ := strings.Cut(line, " ")
		reason = strings.TrimSpace(reason)
		if reason == "" {
			return nil, fmt.Errorf("%s: `%s` has no reason", path, name)
		}
		list = append(list, expectation{name, reason})
	}
	return list, lines.Err()
}

// compare returns what contradicts the list: tests that failed and are not on
// it, and lines of it whose tests did not fail.
func compare(list []expectation, results []result) (contradictions []string) {
	for _, result := range results {
		if result.outcome == failed && !listed(list, result.name) {
			contradictions = append(contradictions, fmt.Sprintf("%s fails and is not on the list", result.name))
		}
	}
	for _, line := range list {
		for _, result := range results {
			if line.covers(result.name) && result.outcome != failed {
				contradictions = append(contradictions, fmt.Sprintf("%s is on the list and %s", result.name, result.outcome))
			}
		}
	}
	return contradictions
}

func listed(list []expectation, name string) bool {
	for _, line := range list {
		if line.covers(name) {
			return true
		}
	}
	return false
}

func (e expectation) covers(name string) bool {
	return name == e.name || strings.HasPrefix(name, e.name+"/")
}
