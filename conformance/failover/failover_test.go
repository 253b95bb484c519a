// Package failover measures how long writes are refused after the leader has
// been killed, beside the genuine server with the same time-outs.
package failover

import (
	"context"
	"fmt"
	"slices"
	"sort"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"cairn.dev/conformance/harness"
)

const (
	size = 3
	// electionTimeout is that of both servers.
	electionTimeout = time.Second
	// writeEvery is the pause between the puts of a survivor's client: what is
	// measured is exact to that.
	writeEvery = 5 * time.Millisecond
	// settle is how long a cluster runs undisturbed between two kills.
	settle = 1500 * time.Millisecond
	// writeMax is longer than any election takes.
	writeMax = 15 * time.Second
)

// TestFailover kills the leaders of both servers' clusters in turn, KILLS (30)
// times each. The median time to the next acknowledged write must not be
// longer than the genuine server's. How much of an election timeout the slowest
// took is only printed: 99 of 100 are to take 1.5 of them at most.
func TestFailover(t *testing.T) {
	kills := harness.Number(t, "KILLS", 30)
	kinds := []harness.Kind{harness.Etcd, harness.Subject()}
	var contestants []*contestant
	for _, kind := range kinds {
		contestants = append(contestants, newContestant(t, kind))
	}
	times := make([][]time.Duration, len(kinds))
	for range kills {
		for number, contestant := range contestants {
			times[number] = append(times[number], contestant.killLeader())
		}
	}
	var medians []time.Duration
	for number, kind := range kinds {
		slices.Sort(times[number])
		medians = append(medians, times[number][kills/2])
		p99, longest := times[number][(kills*99-1)/100], times[number][kills-1]
		late := kills - sort.Search(kills, func(kill int) bool { return times[number][kill] > 3*electionTimeout/2 })
		t.Logf("%-5s median %v, p99 %v, shortest %v, longest %v of %d kills; p99 is %.2f election timeouts, the longest %.2f, %d took more than 1.5",
			kind, medians[number].Round(time.Millisecond), p99.Round(time.Millisecond), times[number][0].Round(time.Millisecond),
			longest.Round(time.Millisecond), kills, timeouts(p99), timeouts(longest), late)
	}
	if medians[1] > medians[0] {
		t.Errorf("writes are refused for %v after a kill, the genuine server's for %v", medians[1], medians[0])
	}
}

// timeouts is a time in election timeouts.
func timeouts(took time.Duration) float64 { return took.Seconds() / electionTimeout.Seconds() }

// contestant is one server's cluster.
type contestant struct {
	t       *testing.T
	cluster *harness.Cluster
	clients []*clientv3.Client
}

func newContestant(t *testing.T, kind harness.Kind) *contestant {
	c := &contestant{t: t, cluster: harness.StartCluster(t, kind, size, nil, "--heartbeat-interval=100", fmt.Sprint("--election-timeout=", electionTimeout.Milliseconds()))}
	for member := range size {
		c.clients = append(c.clients, c.cluster.Client(member))
	}
	return c
}

// killLeader returns the time from the kill to the first acknowledgement of a
// put that was sent after it, through either survivor.
func (c *contestant) killLeader() time.Duration {
	c.t.Helper()
	time.Sleep(settle)
	leader := c.cluster.Leader(c.clients)
	for member := range size {
		c.put(context.Background(), member) // connected, and level
	}
	ctx, cancel := context.WithTimeout(context.Background(), writeMax)
	defer cancel()
	first := make(chan time.Duration, 1)
	var puts sync.WaitGroup
	c.cluster.Members[leader].Kill()
	killed := time.Now()
	for member := range size {
		if member == leader {
			continue
		}
		puts.Go(func() {
			for ctx.Err() == nil {
				puts.Go(func() {
					if c.put(ctx, member) == nil {
						select {
						case first <- time.Since(killed):
						default:
						}
					}
				})
				time.Sleep(writeEvery)
			}
		})
	}
	var took time.Duration
	select {
	case took = <-first:
	case <-ctx.Done():
		c.t.Fatalf("no write is acknowledged %v after the leader was killed", writeMax)
	}
	cancel()
	puts.Wait()
	c.cluster.Members[leader].Run()
	return took
}

func (c *contestant) put(ctx context.Context, member int) error {
	_, err := c.clients[member].Put(ctx, fmt.Sprintf("failover/%d", member), "value")
	return err
}
