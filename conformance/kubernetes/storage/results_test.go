package main

import (
	"fmt"
	"strings"
	"testing"
)

// ran are the results of so many tests that passed, and of those that failed.
func ran(t *testing.T, passed int, failed ...string) *results {
	t.Helper()
	var text strings.Builder
	event := func(action, test string) {
		fmt.Fprintf(&text, "{\"Action\":%q,\"Package\":\"%sstorage\",\"Test\":%q}\n", action, module, test)
	}
	for number := range passed {
		event("pass", fmt.Sprint("Test", number))
	}
	for _, test := range failed {
		event("fail", test)
	}
	found, err := readResults(strings.NewReader(text.String()))
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func TestJudge(t *testing.T) {
	known := map[string]string{"storage TestKnown": "a reason"}
	for _, c := range []struct {
		what     string
		results  *results
		expected map[string]string
		all      bool
		wrong    string
	}{
		{"all passed", ran(t, passesMin), nil, true, ""},
		{"one is missing", ran(t, passesMin-1), nil, true, "1339 tests passed, and 1340 should"},
		{"some were chosen", ran(t, 1), nil, false, ""},
		{"one failed", ran(t, passesMin, "TestOther"), nil, true, "1 unexpected"},
		{"it failed as expected", ran(t, passesMin-1, "TestKnown"), known, true, ""},
		{"it failed as expected, and one is missing", ran(t, passesMin-2, "TestKnown"), known, true, "1338 tests passed, and 1339 should"},
		{"it passed and was expected to fail", ran(t, passesMin), known, true, "1 unexpected"},
	} {
		err := c.results.judge(c.expected, c.all)
		if c.wrong == "" && err != nil || c.wrong != "" && (err == nil || !strings.Contains(err.Error(), c.wrong)) {
			t.Errorf("%s: %v", c.what, err)
		}
	}
}
