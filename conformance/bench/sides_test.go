// Package bench runs our `benchmark` beside the genuine one, against the same
// server: what they print, how they end, and what they leave on the server.
package bench

import (
	"bufio"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"cairn.dev/conformance/harness"
)

// ours is our binary under the name of etcd's tool.
func ours(t testing.TB) string {
	t.Helper()
	link := filepath.Join(t.TempDir(), "benchmark")
	if err := os.Symlink(harness.CairnBinary(t), link); err != nil {
		t.Fatal(err)
	}
	return link
}

// tools are the genuine program and ours.
func tools(t testing.TB) map[string]string {
	return map[string]string{"genuine": harness.Tool(t, "benchmark"), "ours": ours(t)}
}

// run runs a command line against an endpoint.
func run(t testing.TB, tool, endpoint, line string) harness.Result {
	t.Helper()
	args := append([]string{"--endpoints=" + endpoint}, words(line)...)
	return harness.Command{Path: tool, Args: args, Max: time.Minute}.Run(t)
}

// words are the arguments of a line; `”` is an empty one.
func words(line string) []string {
	fields := strings.Fields(line)
	for i, field := range fields {
		fields[i] = strings.ReplaceAll(field, "''", "")
	}
	return fields
}

var (
	times   = regexp.MustCompile(`[\d.]+(ns|µs|ms|s)\b`)
	numbers = regexp.MustCompile(`\d[\d.]*(e[+-]\d+)?`)
	bars    = regexp.MustCompile(`∎+`)
	share   = regexp.MustCompile(`(?m)^  [\d.]+% in .*\n`)
	sampled = regexp.MustCompile(`(?m)(^#,T,T,T,#\n)+`)
)

// shape is a report without its numbers. Which shares of the distribution are
// there, and over how many seconds it took, depends on them.
func shape(report string) string {
	report = share.ReplaceAllString(report, "")
	report = times.ReplaceAllString(report, "T")
	report = numbers.ReplaceAllString(report, "#")
	report = bars.ReplaceAllString(report, "")
	return sampled.ReplaceAllString(report, "#,T,T,T,#\n")
}

// complaint is the first line of the errors that is not a message of gRPC.
func complaint(result harness.Result) string {
	for line := range strings.Lines(result.Stderr) {
		line = strings.TrimRight(line, "\r\n")
		if line != "" && !strings.Contains(line, " INFO: ") && !strings.HasPrefix(line, " ") && !strings.HasPrefix(line, "}") {
			return line
		}
	}
	return ""
}

// calls is how many calls of any method the server has had.
func calls(t testing.TB, server *harness.Server) int {
	t.Helper()
	return metric(t, server, "grpc_server_started_total", "")
}

// metric is a counter of the server for a method, or for all.
func metric(t testing.TB, server *harness.Server, name, method string) int {
	t.Helper()
	response, err := http.Get(server.URL("/metrics"))
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	sum := 0
	for lines := bufio.NewScanner(response.Body); lines.Scan(); {
		line := lines.Text()
		if strings.HasPrefix(line, name+"{") && (method == "" || strings.Contains(line, `grpc_method="`+method+`"`)) {
			value, err := strconv.ParseFloat(line[strings.LastIndex(line, " ")+1:], 64)
			if err != nil {
				t.Fatal(err)
			}
			sum += int(value)
		}
	}
	return sum
}
