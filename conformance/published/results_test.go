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
	list := []expectation{{"TestA", "all of it"}, {"TestB/x", "one"}}
	results := []result{
		{name: "TestA/x", outcome: failed}, {name: "TestA/y", outcome: passed},
		{name: "TestB/x", outcome: failed}, {name: "TestB/y", outcome: failed}, {name: "TestC", outcome: passed},
	}
	want := []string{"TestB/y fails and is not on the list", "TestA/y is on the list and passed"}
	if got := compare(list, results); !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
}
