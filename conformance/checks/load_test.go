package checks

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"cairn.dev/conformance/harness"
	"github.com/google/go-cmp/cmp"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// etcdctl is the binary under the name of etcd's tool.
func etcdctl(t testing.TB) string {
	t.Helper()
	link := filepath.Join(t.TempDir(), "etcdctl")
	if err := os.Symlink(harness.CairnBinary(t), link); err != nil {
		t.Fatal(err)
	}
	return link
}

var figure = regexp.MustCompile(`-?\d+(\.\d+)?`)

// Near the quota Cairn refuses a write that fits but for others on their way
// in words of its own. Whether writes meet others, and how many do while the
// disk is slow, is chance, as is the order in which the genuine tool prints its
// errors: one line stands for both.
var full = regexp.MustCompile(`(?m)(^FAIL: ERROR\((etcdserver: too many requests|etcdserver: mvcc: database space exceeded)\) -> N\n)+`)

// compareLoads runs a command by the genuine etcdctl and by ours, each on a
// server of its own, on both kinds of servers: but for figures they print the
// same, and end with the same code.
func compareLoads(t *testing.T, flags []string, code int, lines []string, command ...string) {
	tools := []string{harness.Tool(t, "etcdctl"), etcdctl(t)}
	for _, kind := range []harness.Kind{harness.Etcd, harness.Cairn} {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			results := make([]harness.Result, len(tools))
			var running sync.WaitGroup
			for i, tool := range tools {
				server := harness.Start(t, kind, flags...)
				running.Go(func() {
					args := append([]string{"--endpoints=" + server.Endpoint()}, command...)
					result := harness.Command{Path: tool, Args: args, Max: 3 * time.Minute}.Run(t)
					t.Logf("%s\n%s", tool, result.Stdout)
					result.Stdout, result.Stderr = figure.ReplaceAllString(result.Stdout, "N"), ""
					if kind == harness.Cairn {
						result.Stdout = full.ReplaceAllString(result.Stdout, tooMany[1]+"\n")
					}
					results[i] = result
				})
			}
			running.Wait()
			if difference := cmp.Diff(results[0], results[1]); difference != "" {
				t.Error(difference)
			}
			if results[1].Code != code {
				t.Errorf("exit code %d", results[1].Code)
			}
			for _, line := range lines {
				if !slices.Contains(strings.Split(results[1].Stdout, "\n"), line) {
					t.Errorf("no `%s`", line)
				}
			}
		})
	}
}

// Not much fits into it, so that most writes fail.
var narrow = []string{"--quota-backend-bytes=2097152"}

var tooMany = []string{"FAIL: too many errors", "FAIL: ERROR(etcdserver: mvcc: database space exceeded) -> N"}

func TestDatascale(t *testing.T) {
	start := "Start data scale check for work load [N key-value pairs, N bytes per key-value, N concurrent clients]."
	t.Run("pass", func(t *testing.T) {
		lines := []string{start, "PASS: Approximate system memory used : N MB."}
		compareLoads(t, nil, 0, lines, "check", "datascale", "--load=s", "--auto-compact", "--auto-defrag")
	})
	t.Run("fail", func(t *testing.T) {
		compareLoads(t, narrow, 1, append(tooMany, start), "check", "datascale")
	})
	t.Run("unknown load", func(t *testing.T) {
		compareLoads(t, nil, 4, nil, "check", "datascale", "--load=xs")
	})
}

// A minute of writes, twice: make check-perf, on a machine that does little else.
func TestPerf(t *testing.T) {
	if os.Getenv("CHECK_PERF") == "" {
		t.Skip("it takes a minute: set CHECK_PERF=1")
	}
	t.Run("pass", func(t *testing.T) {
		lines := []string{"PASS: Throughput is N writes/s", "PASS: Slowest request took Ns", "PASS: Stddev is Ns", "PASS"}
		compareLoads(t, nil, 0, lines, "check", "perf", "--load=s", "--auto-compact", "--auto-defrag")
	})
	t.Run("fail", func(t *testing.T) {
		compareLoads(t, narrow, 1, append(tooMany, "FAIL"), "check", "perf", "--load=m")
	})
}

// Ctrl-C in the middle of a load leaves no keys behind. `check perf` judges
// what there is, as etcd's does.
func TestLoadInterrupted(t *testing.T) {
	for load, want := range map[string]struct {
		codes []int
		line  string
	}{
		"perf":      {[]int{0, 1}, "Throughput"},
		"datascale": {[]int{5}, "Start data scale check"},
	} {
		server := harness.Start(t, harness.Subject())
		client, ctx := server.Client(), harness.Context(t)
		command := exec.Command(etcdctl(t), "--endpoints="+server.Endpoint(), "check", load, "--load=xl")
		var stdout strings.Builder
		command.Stdout = &stdout
		if err := command.Start(); err != nil {
			t.Fatal(err)
		}
		count := func() int64 {
			found, err := client.Get(ctx, "/etcdctl-check", clientv3.WithPrefix(), clientv3.WithCountOnly())
			if err != nil {
				t.Fatal(err)
			}
			return found.Count
		}
		for deadline := time.Now().Add(2 * time.Minute); count() < 100; time.Sleep(10 * time.Millisecond) {
			if time.Now().After(deadline) {
				command.Process.Kill()
				t.Fatalf("%s writes nothing", load)
			}
		}
		command.Process.Signal(os.Interrupt)
		command.Wait()
		if code := command.ProcessState.ExitCode(); !slices.Contains(want.codes, code) || !strings.Contains(stdout.String(), want.line) {
			t.Errorf("%s: exit %d\n%s", load, code, stdout.String())
		}
		if left := count(); left > 0 {
			t.Errorf("%s left %d keys", load, left)
		}
	}
}
