package storms

import (
	"context"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"cairn.dev/conformance/harness"
)

// TestLargeValue has READERS (100) clients read one value of 1 MB all at once
// for READ_MS (2,000): the member does not hold a copy for each of them. Says
// how many there were a second, and what they cost the member; with BESIDE=1
// the genuine server's figures, too.
func TestLargeValue(t *testing.T) {
	t.Parallel()
	readers, limit := harness.Number(t, "READERS", 100), time.Duration(harness.Number(t, "READ_MS", 2_000))*time.Millisecond
	const grownMax = 64 << 20
	for _, kind := range kinds(t) {
		server := harness.Start(t, kind)
		reads, grown, cost := readLarge(t, server, readers, limit)
		t.Logf("%-5s %d readers: %d reads/s, %v of the member's processor time each, memory grew by %d MiB", kind, readers,
			int(float64(reads)/limit.Seconds()), (cost / time.Duration(reads)).Round(time.Microsecond), grown>>20)
		if kind != harness.Etcd && grown > grownMax {
			t.Errorf("memory grew by %d MiB", grown>>20)
		}
		server.Stop()
	}
}

// readLarge returns how many reads there were, by how much the member's memory
// was above what it was before, and its processor time.
func readLarge(t *testing.T, server *harness.Server, readers int, limit time.Duration) (reads, grown int, cost time.Duration) {
	t.Helper()
	value := strings.Repeat("v", 1<<20)
	writer := server.Client()
	if _, err := writer.Put(harness.Context(t), "large", value); err != nil {
		t.Fatal(err)
	}
	clients := make([]*clientv3.Client, min(readers, 20))
	for number := range clients {
		clients[number] = server.Client()
		if _, err := clients[number].Get(harness.Context(t), "large"); err != nil {
			t.Fatal(err)
		}
	}
	before, used := harness.AnonymousBytes(t, server.Pid()), harness.ProcessorTime(t, server.Pid())
	ctx, stop := context.WithCancel(harness.Context(t))
	defer stop()
	var count atomic.Int64
	var group sync.WaitGroup
	for reader := range readers {
		group.Go(func() {
			for ctx.Err() == nil {
				answer, err := clients[reader%len(clients)].Get(ctx, "large", clientv3.WithSerializable())
				if err == nil && (len(answer.Kvs) != 1 || string(answer.Kvs[0].Value) != value) {
					t.Error("another value was read")
					return
				}
				if err == nil {
					count.Add(1)
				} else if ctx.Err() == nil {
					t.Error(err)
					return
				}
			}
		})
	}
	// On a busy machine it lasts until something was read.
	for began := time.Now(); time.Since(began) < limit || count.Load() == 0 && ctx.Err() == nil; {
		grown = max(grown, harness.AnonymousBytes(t, server.Pid())-before)
		time.Sleep(10 * time.Millisecond)
	}
	stop()
	group.Wait()
	if count.Load() == 0 {
		t.Fatal("nothing was read")
	}
	return int(count.Load()), grown, harness.ProcessorTime(t, server.Pid()) - used
}
