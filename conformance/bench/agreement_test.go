package bench

import (
	"net"
	"os"
	"regexp"
	"slices"
	"strconv"
	"testing"
	"time"

	"cairn.dev/conformance/harness"
)

// Loads on a server that is as far away as line says: whatever costs the client
// a little processor time is small beside that. At a rate it is the rate that
// both have to keep to, on the machine itself.
var loads = []struct {
	name, line string
	far        bool
}{
	{"puts of one client", "put --val-size=256 --sequential-keys --key-space-size=50000 --total=150", true},
	{"puts of 50 clients", "--conns=50 --clients=50 put --val-size=256 --sequential-keys --key-space-size=50000 --total=5000", true},
	{"puts of 64 KiB", "--conns=10 --clients=10 put --val-size=65536 --total=600", true},
	{"transactions of 5 puts", "--conns=10 --clients=10 txn-put --txn-ops=5 --key-space-size=50000 --total=1000", true},
	{"reads of 20 clients", "--conns=20 --clients=20 range foo --total=2000", true},
	{"lists of 100 keys", "--conns=10 --clients=10 range key- key. --limit=100 --total=1000", true},
	{"puts at a rate", "--conns=10 --clients=20 put --rate=500 --total=1500", false},
	{"reads at a rate", "--conns=10 --clients=20 range foo --rate=1000 --total=3000", false},
	{"events at a rate", "watch-latency --put-total=200 --put-rate=100", false},
}

// line is how far away a server is, one way.
const line = 10 * time.Millisecond

const stock = "--conns=50 --clients=500 put --prefix=key- --key-size=4 --sequential-keys --key-space-size=50000 --total=50000"

var ratePattern = regexp.MustCompile(`Requests/sec:\s+([\d.]+)`)

// delay passes connections on to a server; what goes either way takes the time
// of the line.
func delay(t *testing.T, server string) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	go func() {
		for {
			near, err := listener.Accept()
			if err != nil {
				return
			}
			away, err := net.Dial("tcp", server)
			if err != nil {
				near.Close()
				continue
			}
			go pass(near, away)
			go pass(away, near)
		}
	}()
	return listener.Addr().String()
}

// pass copies what comes from one connection to the other, each piece as late
// as the line is long.
func pass(from, to net.Conn) {
	type piece struct {
		data []byte
		due  time.Time
	}
	pieces := make(chan piece, 4096)
	go func() {
		defer to.Close()
		for piece := range pieces {
			time.Sleep(time.Until(piece.due))
			if _, err := to.Write(piece.data); err != nil {
				break
			}
		}
		for range pieces {
		}
	}()
	defer close(pieces)
	for {
		data := make([]byte, 64<<10)
		count, err := from.Read(data)
		if count > 0 {
			pieces <- piece{data[:count], time.Now().Add(line)}
		}
		if err != nil {
			return
		}
	}
}

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
			measure(t, own, server.Endpoint(), stock)
			far := delay(t, server.Endpoint())
			for _, load := range loads {
				endpoint := server.Endpoint()
				if load.far {
					endpoint = far
				}
				var ratios, rates []float64
				for pair := range pairs {
					var theirs, mine float64
					for turn := range 2 {
						if turn == pair%2 {
							theirs = measure(t, genuine, endpoint, load.line)
						} else {
							mine = measure(t, own, endpoint, load.line)
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

func measure(t *testing.T, tool, endpoint, line string) float64 {
	t.Helper()
	result := run(t, tool, endpoint, line)
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
