// Package storms measures what comes all at once: leases that end together,
// readers of one large value, connections, watchers.
package storms

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"cairn.dev/conformance/harness"
)

const prefix = "lease/"

// TestLeases lets LEASES (2,000) leases with a key each end within one second,
// beside a client that puts. Every key goes, once, and none before its time.
// Says how late the last one was, and how long the puts took; with BESIDE=1 the
// genuine server's figures, too.
func TestLeases(t *testing.T) {
	t.Parallel()
	leases := harness.Number(t, "LEASES", 2_000)
	for _, kind := range kinds(t) {
		for _, members := range []int{1, 3} {
			t.Run(fmt.Sprintf("%s/%d", kind, members), func(t *testing.T) {
				t.Parallel()
				// As long as granting may take; all of them end in the second after that. A busy machine needs longer.
				wait := 15*time.Second + time.Duration(leases)*time.Second/2_500
				harness.Attempt(t, func() error {
					cluster := harness.StartCluster(t, kind, members, nil, "--quota-backend-bytes=8589934592")
					result, late := storm(t, cluster, leases, wait)
					if late == nil {
						t.Logf("%-5s %d members: %v", kind, members, result)
						checkEqual(t, cluster)
					}
					for _, member := range cluster.Members {
						member.Stop()
					}
					wait *= 3
					return late
				})
			})
		}
	}
}

// outcome is what one storm did.
type outcome struct {
	leases int
	// granted is how long it took to grant the leases and put their keys.
	granted time.Duration
	// late is by how much the last key went after the last lease was over, early by how much one went before its time.
	late, early time.Duration
	// puts are how long the puts beside took, in order.
	puts []time.Duration
}

func (o outcome) String() string {
	at := func(share float64) time.Duration {
		return o.puts[int(float64(len(o.puts)-1)*share)].Round(10 * time.Microsecond)
	}
	return fmt.Sprintf("%d leases granted in %v; the last one ended %v late; %d puts beside: p50 %v, p99 %v, slowest %v",
		o.leases, o.granted.Round(time.Millisecond), o.late.Round(time.Millisecond), len(o.puts), at(0.5), at(0.99), at(1))
}

// errLate says that granting takes too long.
var errLate = errors.New("granting takes too long")

// storm grants leases that end together, and waits for all of them. It returns
// errLate if the time does not do for granting them.
func storm(t *testing.T, cluster *harness.Cluster, leases int, wait time.Duration) (outcome, error) {
	t.Helper()
	limited, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	ctx, fail := context.WithCancelCause(limited)
	defer fail(nil)
	clients := make([]*clientv3.Client, 8)
	for number := range clients {
		clients[number] = cluster.Client(number % len(cluster.Members))
	}
	began := time.Now()
	dues := make([]time.Time, leases)
	var next atomic.Int64
	var granting sync.WaitGroup
	for worker := range 256 {
		client := clients[worker%len(clients)]
		granting.Go(func() {
			for {
				number := int(next.Add(1)) - 1
				if number >= leases || ctx.Err() != nil {
					return
				}
				left := time.Until(began.Add(wait))
				if left < 4*time.Second {
					fail(fmt.Errorf("%w: longer than %v", errLate, wait))
					return
				}
				asked := time.Now()
				lease, err := client.Grant(ctx, int64(left/time.Second)+1)
				if err == nil {
					dues[number] = asked.Add(time.Duration(lease.TTL) * time.Second)
					_, err = client.Put(ctx, fmt.Sprintf("%s%08d", prefix, number), "v", clientv3.WithLease(lease.ID))
				}
				if err != nil {
					fail(err)
				}
			}
		})
	}
	granting.Wait()
	if cause := context.Cause(ctx); errors.Is(cause, errLate) {
		return outcome{}, cause
	} else if cause != nil {
		t.Fatal(cause)
	}
	result := outcome{leases: leases, granted: time.Since(began)}
	watching, stop := context.WithCancel(ctx)
	defer stop()
	events := cluster.Client(0).Watch(watching, prefix, clientv3.WithPrefix(), clientv3.WithCreatedNotify(), clientv3.WithFragment())
	<-events
	time.Sleep(time.Until(slices.MinFunc(dues, time.Time.Compare).Add(-time.Second)))
	putting, done := context.WithCancel(ctx)
	var putter sync.WaitGroup
	putter.Go(func() {
		client := cluster.Client(0)
		for tick := time.NewTicker(5 * time.Millisecond); putting.Err() == nil; <-tick.C {
			since := time.Now()
			if _, err := client.Put(putting, "beside", "v"); err == nil {
				result.puts = append(result.puts, time.Since(since))
			}
		}
	})
	gone := make([]bool, leases)
	var last time.Time
	for left := leases; left > 0; {
		response, ok := <-events
		if !ok || response.Err() != nil {
			t.Fatalf("%d leases have not ended: %v", left, response.Err())
		}
		last = time.Now()
		for _, event := range response.Events {
			var number int
			if _, err := fmt.Sscanf(string(event.Kv.Key), prefix+"%d", &number); err != nil || event.Type != clientv3.EventTypeDelete || gone[number] {
				t.Fatalf("an event %v", event)
			}
			gone[number] = true
			left--
			// It began to count after the client had asked for it.
			result.early = max(result.early, dues[number].Sub(last))
		}
	}
	done()
	putter.Wait()
	result.late = last.Sub(slices.MaxFunc(dues, time.Time.Compare))
	slices.Sort(result.puts)
	if result.early > time.Second {
		t.Errorf("a key went %v before its lease was over", result.early)
	}
	answer, err := clients[0].Get(ctx, prefix, clientv3.WithPrefix(), clientv3.WithCountOnly())
	if err != nil || answer.Count != 0 || len(result.puts) == 0 {
		t.Fatalf("afterwards: %v, %v, %d puts", answer, err, len(result.puts))
	}
	return result, nil
}
