package main

import (
	"slices"
	"testing"
)

func TestParse(t *testing.T) {
	output := "\x16=== RUN   TestA\n\x16=== RUN   TestA/x\nnoise\x16=== RUN   TestA/y\n--- FAIL: TestFake (1.00s)\n" +
		"    \x16--- PASS: TestA/x (0.10s)\n\x16    --- SKIP: TestA/y (0.00s)\n\x16--- FAIL: TestA (0.10s)\n" +
		"\x16=== RUN   TestB\npanic: gone\n"
	got := map[string]outcome{}
	for _, result := range parse(output) {
		got[result.name] = result.outcome
	}
	want := map[string]outcome{"TestA/x": passed, "TestA/y": skipped, "TestA": failed, "TestB": failed}
	for name, outcome := range want {
		if got[name] != outcome {
			t.Errorf("%s: %q, not %q", name, got[name], outcome)
		}
	}
	if len(got) != len(want) {
		t.Errorf("%v", got)
	}
}

func TestCompare(t *testing.T) {
	list := []expectation{{"TestA", "go", "all of it"}, {"TestB/x", "bbolt", "one"}, {"TestD", "itself", "one member"}}
	results := []result{
		{name: "TestA/x", outcome: failed}, {name: "TestA/y", outcome: passed},
		{name: "TestB/x", outcome: skipped}, {name: "TestB/y", outcome: failed}, {name: "TestC", outcome: skipped},
		{name: "TestD/1", outcome: skipped}, {name: "TestD/2", outcome: passed}, {name: "TestD/3", outcome: failed},
	}
	want := []string{
		"TestA/y is on the list (go) and passed", "TestB/y failed and is not on the list",
		"TestC skipped and is not on the list", "TestD/3 is on the list (itself) and failed",
	}
	if got := compare(list, results, false); !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
	if got := failures(list, results); !slices.Equal(got, []string{"TestB", "TestD"}) {
		t.Errorf("failures: %q", got)
	}
	if got := compare(list, results, true); !slices.Equal(got, want[1:]) {
		t.Errorf("genuine: %q", got)
	}
}

func TestLists(t *testing.T) {
	for _, suite := range suites {
		list, err := readList(suite.list())
		if err != nil || len(list) == 0 {
			t.Errorf("%s: %d lines, %v", suite.name, len(list), err)
		}
	}
	for _, file := range []string{toolsList, failpointsList} {
		if list, err := readList(file); err != nil || len(list) == 0 {
			t.Errorf("%s: %d lines, %v", file, len(list), err)
		}
	}
	// Nothing has to stand on these.
	for _, file := range []string{proxyList, releaseList} {
		if _, err := readList(file); err != nil {
			t.Error(err)
		}
	}
	anywhere := expectation{name: "*/shape"}
	if !anywhere.covers("TestA/shape") || !anywhere.covers("TestA/x/shape/y") || anywhere.covers("TestA/shapeless") {
		t.Error("a line about all tests")
	}
}
