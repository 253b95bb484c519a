// Package catchup measures how fast an empty member becomes level with a large
// cluster, and what that costs the others' clients.
package catchup

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

const valueBytes = 1024

// value is the value that every put writes.
var value = string(make([]byte, valueBytes))

// fill writes so many distinct keys, in transactions.
func fill(ctx context.Context, clients []*clientv3.Client, keys int) error {
	const perTxn, writers = 100, 8
	var next atomic.Int64
	var failure atomic.Pointer[error]
	var running sync.WaitGroup
	for writer := range writers {
		running.Go(func() {
			for failure.Load() == nil {
				from := int(next.Add(perTxn)) - perTxn
				if from >= keys {
					return
				}
				var puts []clientv3.Op
				for key := from; key < min(from+perTxn, keys); key++ {
					puts = append(puts, clientv3.OpPut(fmt.Sprintf("fill/%09d", key), value))
				}
				if _, err := clients[writer%len(clients)].Txn(ctx).Then(puts...).Commit(); err != nil {
					failure.Store(&err)
				}
			}
		})
	}
	running.Wait()
	if err := failure.Load(); err != nil {
		return *err
	}
	return nil
}

// maximum is how many puts per second a closed loop reaches.
func maximum(ctx context.Context, clients []*clientv3.Client, lasts time.Duration) float64 {
	const writers = 200
	ctx, cancel := context.WithTimeout(ctx, lasts)
	defer cancel()
	var done atomic.Int64
	var running sync.WaitGroup
	started := time.Now()
	for writer := range writers {
		running.Go(func() {
			for number := 0; ctx.Err() == nil; number++ {
				if put(ctx, clients[writer%len(clients)], writer*1000+number%1000) == nil {
					done.Add(1)
				}
			}
		})
	}
	running.Wait()
	return float64(done.Load()) / time.Since(started).Seconds()
}

// latencies are what an open loop saw.
type latencies struct {
	mutex   sync.Mutex
	samples []sample
	failed  int
	// failure is the first one.
	failure error
}

// p99 of the requests so far, and how many there were and failed.
func (l *latencies) p99() (p99 time.Duration, count, failed int) {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	var times []time.Duration
	for _, sample := range l.samples {
		times = append(times, sample.took)
	}
	return quantile(times, 0.99), len(times), l.failed
}

// openLoop sends puts at a fixed rate until the context ends, whatever the
// answers do: the time of each counts from when it was due.
func openLoop(ctx context.Context, clients []*clientv3.Client, perSecond float64) *latencies {
	seen := &latencies{}
	var running sync.WaitGroup
	started := time.Now()
	for number := 0; ctx.Err() == nil; number++ {
		due := started.Add(time.Duration(float64(number) / perSecond * float64(time.Second)))
		time.Sleep(time.Until(due))
		running.Go(func() {
			// Not the loop's context: what was sent is waited for.
			within, cancel := context.WithTimeout(context.Background(), 10*time.Second)
			defer cancel()
			err := put(within, clients[number%len(clients)], number%100_000)
			took := time.Since(due)
			seen.mutex.Lock()
			defer seen.mutex.Unlock()
			seen.samples = append(seen.samples, sample{due, took})
			if err != nil {
				seen.failed++
				if seen.failure == nil {
					seen.failure = err
				}
			}
		})
	}
	running.Wait()
	return seen
}

func put(ctx context.Context, client *clientv3.Client, key int) error {
	_, err := client.Put(ctx, fmt.Sprintf("load/%06d", key), value)
	return err
}
