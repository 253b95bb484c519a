// Package guides runs the commands that published performance guides tell
// their readers to run, as they are written there.
package guides

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"cairn.dev/conformance/harness"
)

// H stands for the endpoint. Under -short the totals are a tenth.
var commands = []struct {
	line string
	puts int64
}{
	{"benchmark --endpoints=H --conns=1 --clients=1 put --key-size=8 --sequential-keys --total=10000 --val-size=256", 10_000},
	{"benchmark --endpoints=H --conns=100 --clients=1000 put --key-size=8 --sequential-keys --total=100000 --val-size=256", 100_000},
	{"benchmark --endpoints=H --conns=1 --clients=1 range foo --consistency=l --total=10000", 0},
	{"benchmark --endpoints=H --conns=1 --clients=1 range foo --consistency=s --total=10000", 0},
	{"benchmark --endpoints=H --conns=100 --clients=1000 range foo --consistency=l --total=100000", 0},
	{"benchmark --endpoints=H --conns=100 --clients=1000 range foo --consistency=s --total=100000", 0},
	{"benchmark --endpoints=H --target-leader --conns=1 --clients=1 put --key-size=8 --sequential-keys --total=10000 --val-size=256", 10_000},
	{"benchmark --endpoints=H --target-leader --conns=100 --clients=1000 put --key-size=8 --sequential-keys --total=100000 --val-size=256", 100_000},
}

var requestsPerSecond = regexp.MustCompile(`Requests/sec:\s*([\d.]+)`)

// The commands run without an error, and every put that they count was made:
// with the genuine tool, and with our binary under its name.
func TestBenchmarkCommands(t *testing.T) {
	ours := filepath.Join(t.TempDir(), "benchmark")
	if err := os.Symlink(harness.CairnBinary(t), ours); err != nil {
		t.Fatal(err)
	}
	for name, tool := range map[string]string{"genuine": harness.Tool(t, "benchmark"), "ours": ours} {
		t.Run(name, func(t *testing.T) { testCommands(t, tool) })
	}
}

func testCommands(t *testing.T, tool string) {
	server := harness.Start(t, harness.Subject())
	client := server.Client()
	server.MustCtl("put", "foo", "bar")
	revision := func() int64 {
		response, err := client.Get(harness.Context(t), "foo")
		if err != nil {
			t.Fatal(err)
		}
		return response.Header.Revision
	}
	for _, command := range commands {
		line, puts := strings.Replace(command.line, "H", server.Endpoint(), 1), command.puts
		if testing.Short() {
			line, puts = strings.Replace(line, "0000 --", "000 --", 1), puts/10
			line = regexp.MustCompile("0000$").ReplaceAllString(line, "000")
		}
		words := strings.Fields(line)
		before := revision()
		result := harness.Command{Path: tool, Args: words[1:], Max: 3 * time.Minute}.Run(t)
		rate := requestsPerSecond.FindStringSubmatch(result.Stdout)
		if result.Code != 0 || rate == nil || strings.Contains(result.Stdout, "Error distribution") {
			t.Fatalf("%s: exit %d\n%s%s", line, result.Code, result.Stdout, result.Stderr)
		}
		if made := revision() - before; made != puts {
			t.Errorf("%s: %d revisions", line, made)
		}
		t.Logf("%s requests/s: %s", rate[1], line)
	}
}
