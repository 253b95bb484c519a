package bench

import (
	"os"
	"regexp"
	"slices"
	"strconv"
	"testing"

	"cairn.dev/conformance/harness"
)

// Loads that the server decides the rate of: its disk, its work on a request,
// or a rate that is given.
var loads = []struct{ name, line string }{
	{"puts of one client", "put --val-size=256 --sequential-keys --key-space-size=50000 --total=2000"},
	{"puts of ten clients", "--conns=10 --clients=10 put --val-size=256 --sequential-keys --key-space-size=50000 --total=8000"},
	{"puts of 64 KiB", "--conns=10 --clients=10 put --val-size=65536 --total=2000"},
	{"transactions of 100 puts", "--conns=10 --clients=10 txn-put --txn-ops=100 --key-space-size=50000 --total=1000"},
	{"counts of 50,000 keys", "--conns=10 --clients=10 range key- key. --count-only --total=2000"},
	{"puts at a rate", "--conns=10 --clients=20 put --rate=500 --total=2000"},
	{"reads at a rate", "--conns=10 --clients=20 range foo --rate=1000 --total=4000"},
	{"events at a rate", "watch-latency --put-total=300 --put-rate=100"},
}

const stock = "--conns=50 --clients=500 put --prefix=key- --key-size=4 --sequential-keys --key-space-size=50000 --total=50000"

var ratePattern = regexp.MustCompile(`Requests/sec:\s+([\d.]+)`)

// Where the client is not what limits it, both tools measure the same rate, to
// a tenth: the median of pairs that are measured directly after one another, in
// changing order. make bench-agreement, on a machine that does nothing else.
func TestAgreement(t *testing.T) {
	if os.Getenv("AGREEMENT") == "" {
		t.Skip("it needs an idle machine and some minutes: set AGREEMENT=1")
	}
	pairs := harness.Number(t, "PAIRS", 5)
	for _, kind := range []harness.Kind{harness.Etcd, harness.Cairn} {
		t.Run(string(kind), func(t *testing.T) {
			server := harness.Start(t, kind)
			genuine, own := harness.Tool(t, "benchmark"), ours(t)
			measure(t, own, server, stock)
			for _, load := range loads {
				var ratios, rates []float64
				for pair := range pairs {
					var theirs, mine float64
					for turn := range 2 {
						if turn == pair%2 {
							theirs = measure(t, genuine, server, load.line)
						} else {
							mine = measure(t, own, server, load.line)
						}
					}
					ratios, rates = append(ratios, mine/theirs), append(rates, theirs)
				}
				slices.Sort(ratios)
				slices.Sort(rates)
				median := ratios[pairs/2]
				t.Logf("%-26s %9.1f/s by the genuine tool, ours %.3f of it (%.3f - %.3f)",
					load.name, rates[pairs/2], median, ratios[0], ratios[pairs-1])
				if median < 0.9 || median > 1.1 {
					t.Errorf("%s: ours measures %.3f of what the genuine tool does", load.name, median)
				}
			}
		})
	}
}

func measure(t *testing.T, tool string, server *harness.Server, line string) float64 {
	t.Helper()
	result := run(t, tool, server.Endpoint(), line)
	found := ratePattern.FindStringSubmatch(result.Stdout)
	if result.Code != 0 || found == nil {
		t.Fatalf("%s: exit %d\n%s%s", line, result.Code, result.Stdout, result.Stderr)
	}
	rate, err := strconv.ParseFloat(found[1], 64)
	if err != nil {
		t.Fatal(err)
	}
	return rate
}
