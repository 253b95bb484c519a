package ctl

import (
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"cairn.dev/conformance/harness"
	"github.com/google/go-cmp/cmp"
)

// Each script prints the same with both servers, in each output format.
func TestScripts(t *testing.T) {
	paths, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(paths) == 0 {
		t.Fatalf("no scripts: %v", err)
	}
	for _, path := range paths {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".txt"), func(t *testing.T) {
			script, err := parse(path)
			if err != nil {
				t.Fatal(err)
			}
			etcd, subject := harness.StartPair(t)
			sessions := []*session{newSession(t, etcd), newSession(t, subject)}
			for i, format := range script.formats {
				for _, step := range script.steps {
					lines := 0
					if len(step.lines) > 0 {
						lines = step.lines[i]
					}
					compare(t, sessions, step, format, lines)
				}
			}
		})
	}
}

func compare(t *testing.T, sessions []*session, step step, format string, lines int) {
	t.Helper()
	results := make([]harness.Result, len(sessions))
	var running sync.WaitGroup
	for i, session := range sessions {
		running.Go(func() { results[i] = session.run(step, format, lines) })
	}
	running.Wait()
	if difference := cmp.Diff(results[0], results[1]); difference != "" {
		t.Errorf("line %d, -w %s: %s\n%s", step.line, format, strings.Join(step.words, " "), difference)
	}
}
