package sharing

import (
	"context"
	"io"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"cairn.dev/conformance/harness"
)

const (
	listersCount = 64
	listedKeys   = 8_000
	// Where the process that lists finds the leader.
	listedEndpoint = "LISTED_ENDPOINT"
)

// TestIsolation measures puts and gets of one client through the leader of
// three members, quiet and while 64 clients list 8,000 keys each through it,
// without and with --client-share (make isolation). SERVER=etcd: etcd's.
func TestIsolation(t *testing.T) {
	if os.Getenv("ISOLATION") == "" {
		t.Skip("it needs an idle machine: set ISOLATION=1")
	}
	during := time.Duration(harness.Number(t, "ISOLATION_MS", 10_000)) * time.Millisecond
	shares := []string{""}
	if harness.Subject() == harness.Cairn {
		shares = append(shares, "50", "25", "10")
	}
	for _, share := range shares {
		var flags []string
		if share != "" {
			flags = append(flags, "--client-share="+share)
		}
		cluster := harness.StartCluster(t, harness.Subject(), 3, nil, flags...)
		clients := []*clientv3.Client{cluster.Client(0), cluster.Client(1), cluster.Client(2)}
		leader := cluster.Members[cluster.Leader(clients)]
		fill(t, leader.Client(), listedKeys)
		client := clientFrom(t, "127.0.0.3", leader.Endpoint())
		measure(t, client, time.Second) // Warm.
		quiet := measure(t, client, during)
		stop := list(t, leader)
		time.Sleep(time.Second)
		beside := measure(t, client, during)
		lists := stop()
		for _, kind := range []string{"put", "get"} {
			q, b := quiet[kind], beside[kind]
			t.Logf("%s share %-3s %s: quiet p50 %v p99 %v slowest %v; beside lists p50 %v p99 %v slowest %v; p99 %.1fx",
				harness.Subject(), share, kind, q.at(50), q.at(99), q.at(100), b.at(50), b.at(99), b.at(100),
				float64(b.at(99))/float64(q.at(99)))
		}
		t.Logf("%s share %-3s %s lists a second", harness.Subject(), share, lists)
		for _, member := range cluster.Members {
			member.Kill()
		}
	}
}

// times are what requests took, in order.
type times []time.Duration

func (t times) at(percent int) time.Duration {
	return t[min(len(t)-1, len(t)*percent/100)].Round(10 * time.Microsecond)
}

// measure puts and gets in turn, 500 times a second each, and counts from when
// a request was due.
func measure(t testing.TB, client *clientv3.Client, during time.Duration) map[string]times {
	t.Helper()
	const pause = time.Millisecond
	took := map[string]times{}
	var lock sync.Mutex
	var running sync.WaitGroup
	began := time.Now()
	for number := 0; ; number++ {
		due := began.Add(time.Duration(number) * pause)
		if due.Sub(began) >= during {
			break
		}
		time.Sleep(time.Until(due))
		running.Go(func() {
			ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
			defer cancel()
			kind, err := "put", error(nil)
			if number%2 == 0 {
				_, err = client.Put(ctx, "other", "v")
			} else {
				kind = "get"
				_, err = client.Get(ctx, "other")
			}
			if err != nil {
				t.Errorf("%s: %v", kind, err)
			}
			lock.Lock()
			defer lock.Unlock()
			took[kind] = append(took[kind], time.Since(due))
		})
	}
	running.Wait()
	for _, all := range took {
		slices.Sort(all)
	}
	return took
}

// list has a process of the lowest priority list, as if it were on another
// machine. What it returns ends it and tells how many lists a second it had.
func list(t testing.TB, leader *harness.Server) func() string {
	t.Helper()
	command := exec.Command("nice", "-n", "19", os.Args[0], "-test.run=^TestListers$", "-test.v")
	command.Env = append(os.Environ(), listedEndpoint+"="+leader.Endpoint())
	orders, err := command.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	output := make(chan string, 1)
	go func() {
		text, _ := command.Output()
		output <- string(text)
	}()
	return func() string {
		orders.Close()
		found := regexp.MustCompile(`(\d+) lists a second`).FindStringSubmatch(<-output)
		if found == nil {
			t.Fatal("nothing was listed")
		}
		return found[1]
	}
}

// TestListers is the other end of list, and nothing by itself.
func TestListers(t *testing.T) {
	endpoint := os.Getenv(listedEndpoint)
	if endpoint == "" {
		t.Skip("started by TestIsolation")
	}
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		cancel()
	}()
	var lists atomic.Int64
	var running sync.WaitGroup
	began := time.Now()
	for range listersCount {
		client := clientFrom(t, "127.0.0.2", endpoint)
		running.Go(func() {
			for ctx.Err() == nil {
				if got, err := client.Get(ctx, "list/", clientv3.WithPrefix()); err == nil && got.Count == listedKeys {
					lists.Add(1)
				}
			}
		})
	}
	running.Wait()
	t.Logf("%.0f lists a second", float64(lists.Load())/time.Since(began).Seconds())
}
