package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
)

// results are the outcomes of tests by `package test`, without those tests
// that have tests of their own below them.
type results struct {
	passed, skipped, failed []string
	output                  map[string][]string
}

const (
	// outputMax is how many lines of a failed test are shown.
	outputMax = 60
	// passesMin is how many tests pass with the genuine server, and with Cairn, of the release that go.mod names. With fewer, tests were not run
	// that should have been.
	passesMin = 1340
)

// readResults reads what `go test -json` prints, and shows it package by
// package.
func readResults(from io.Reader) (*results, error) {
	r := &results{output: map[string][]string{}}
	outcome := map[string]string{}
	lines := bufio.NewReader(from)
	for {
		line, err := lines.ReadBytes('\n')
		if err == io.EOF {
			break
		}
		if err != nil {
			return nil, err
		}
		var event struct {
			Action, Package, Test, Output string
			Elapsed                       float64
		}
		if json.Unmarshal(line, &event) != nil {
			// A line of a compiler.
			os.Stdout.Write(line)
			continue
		}
		name := strings.TrimPrefix(event.Package, module) + " " + event.Test
		switch event.Action {
		case "output":
			if kept := append(r.output[name], event.Output); len(kept) > outputMax {
				r.output[name] = kept[len(kept)-outputMax:]
			} else {
				r.output[name] = kept
			}
		case "pass", "skip", "fail":
			outcome[name] = event.Action
			if event.Test == "" {
				fmt.Printf("%s %s, %.0f s\n", event.Action, event.Package, event.Elapsed)
			}
		}
	}
	return r, r.sort(outcome)
}

// sort leaves out the tests that only hold others: one that failed because a
// test below it did, and a package whose tests ran.
func (r *results) sort(outcome map[string]string) error {
	names := make([]string, 0, len(outcome))
	for name := range outcome {
		names = append(names, name)
	}
	slices.Sort(names)
	failedBelow := func(name string) bool {
		return slices.ContainsFunc(names, func(other string) bool {
			below := strings.HasPrefix(other, name+"/") || strings.HasSuffix(name, " ") && len(other) > len(name) && strings.HasPrefix(other, name)
			return below && outcome[other] == "fail"
		})
	}
	for _, name := range names {
		isPackage := strings.HasSuffix(name, " ")
		switch {
		case outcome[name] == "fail":
			if !failedBelow(name) {
				r.failed = append(r.failed, name)
			}
		case isPackage:
		case outcome[name] == "skip":
			r.skipped = append(r.skipped, name)
		default:
			r.passed = append(r.passed, name)
		}
	}
	if len(r.passed) == 0 {
		return fmt.Errorf("no test passed")
	}
	return nil
}

// judge fails if a test that is not expected to fail does. Where all tests were
// to run it also fails if one does not fail that is expected to, or if too few
// passed.
func (r *results) judge(expected map[string]string, all bool) error {
	fmt.Printf("%d passed, %d skipped themselves, %d failed\n", len(r.passed), len(r.skipped), len(r.failed))
	for _, name := range r.skipped {
		fmt.Println("skipped:", name)
	}
	wrong := 0
	for _, name := range r.failed {
		if reason, known := expected[name]; known {
			fmt.Printf("fails as expected: %s (%s)\n", name, reason)
			continue
		}
		wrong++
		fmt.Printf("FAILED: %s\n%s", name, strings.Join(r.output[name], ""))
	}
	for name := range expected {
		if all && !slices.Contains(r.failed, name) {
			wrong++
			fmt.Printf("is expected to fail and does not: %s\n", name)
		}
	}
	if wrong > 0 {
		return fmt.Errorf("%d unexpected results", wrong)
	}
	if all && len(r.passed)+len(expected) < passesMin {
		return fmt.Errorf("%d tests passed, and %d should", len(r.passed), passesMin-len(expected))
	}
	return nil
}

// readExpected reads lines of `PACKAGE TEST REASON`.
func readExpected(path string) (map[string]string, error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	expected := map[string]string{}
	for line := range strings.Lines(string(content)) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		parts := strings.SplitN(line, " ", 3)
		if len(parts) < 3 {
			return nil, fmt.Errorf("`%s` has no reason", line)
		}
		expected[parts[0]+" "+parts[1]] = parts[2]
	}
	return expected, nil
}
