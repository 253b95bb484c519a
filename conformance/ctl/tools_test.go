package ctl

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"cairn.dev/conformance/harness"
	"github.com/google/go-cmp/cmp"
)

// ours is the binary under the name of etcd's tool.
func ours(t testing.TB) string {
	t.Helper()
	link := filepath.Join(t.TempDir(), "etcdctl")
	if err := os.Symlink(harness.CairnBinary(t), link); err != nil {
		t.Fatal(err)
	}
	return link
}

// Each command line prints the same and ends with the same code, whether the
// genuine etcdctl runs it or ours: every tool has a server of its own, both
// servers are of one kind, and the tools take their steps together.
func TestTools(t *testing.T) {
	paths, err := filepath.Glob("testdata/*.txt")
	if err != nil {
		t.Fatal(err)
	}
	more, err := filepath.Glob("testdata/tools/*.txt")
	if err != nil || len(more) == 0 {
		t.Fatalf("no scripts: %v", err)
	}
	genuine, own := harness.Tool(t, "etcdctl"), ours(t)
	var compared, equal, runs atomic.Int64
	t.Cleanup(func() {
		t.Logf("%d of %d command lines are equal, in %d runs", equal.Load(), compared.Load(), runs.Load())
	})
	for _, kind := range []harness.Kind{harness.Etcd, harness.Cairn} {
		for _, path := range append(paths, more...) {
			t.Run(string(kind)+"/"+strings.TrimSuffix(filepath.Base(path), ".txt"), func(t *testing.T) {
				t.Parallel()
				script, err := parse(path)
				if err != nil {
					t.Fatal(err)
				}
				sessions := []*session{
					newToolSession(t, harness.Start(t, kind), genuine), newToolSession(t, harness.Start(t, kind), own),
				}
				differ := map[int]bool{}
				for i, format := range script.formats {
					for _, step := range script.steps {
						lines := 0
						if len(step.lines) > 0 {
							lines = step.lines[i]
						}
						runs.Add(1)
						if difference := compareTools(sessions, step, format, lines); difference != "" {
							differ[step.line] = true
							t.Errorf("line %d, -w %s: %s\n%s", step.line, format, strings.Join(step.words, " "), difference)
						}
					}
				}
				compared.Add(int64(len(script.steps)))
				equal.Add(int64(len(script.steps) - len(differ)))
			})
		}
	}
}

// overtime is how each tool says what it tried last when its time was over: the
// genuine one logs it in JSON, perhaps several times, ours has one line. chatter
// is what the genuine one says of its own accord besides: what its client
// library tries, and what stty has to say.
var (
	overtime = regexp.MustCompile(`(?m)^(\{"level":[^\n]*(?i:deadline ?exceeded)[^\n]*|([^\n ]+: )?context deadline exceeded(: [^\n]*)?)\n`)
	repeated = regexp.MustCompile(`(OVERTIME\n)+`)
	chatter  = regexp.MustCompile(`(?m)^(\{"level":.*|stty: .*)\n`)
)

// unified is the text of errors in the words of both tools.
func unified(text string) string {
	text = chatter.ReplaceAllString(overtime.ReplaceAllString(text, "OVERTIME\n"), "")
	return repeated.ReplaceAllString(text, "OVERTIME\n")
}

func compareTools(sessions []*session, step step, format string, lines int) string {
	results := make([]harness.Result, len(sessions))
	var running sync.WaitGroup
	for i, session := range sessions {
		running.Go(func() {
			results[i] = session.run(step, format, lines)
			results[i].Stderr = unified(results[i].Stderr)
			if step.prose != "" {
				results[i] = outline(results[i])
			}
		})
	}
	running.Wait()
	return cmp.Diff(results[0], results[1])
}

// outline is what of a result scripts depend on although it is prose.
func outline(result harness.Result) harness.Result {
	result.Stderr, _, _ = strings.Cut(result.Stderr, "\n")
	if result.Stdout != "" {
		result.Stdout = "some"
	}
	return result
}
