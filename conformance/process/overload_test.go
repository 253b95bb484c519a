package process

import (
	"fmt"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"cairn.dev/conformance/harness"
)

// TestOverload floods a queue of four writes: some are refused in etcd's words,
// what is acknowledged is there, and meanwhile leases are kept alive, revoked
// and read, since they wait in queues of their own.
func TestOverload(t *testing.T) {
	if harness.Subject() != harness.Cairn {
		t.Skip("the flag is Cairn's own")
	}
	const writers, during, renewalsMin = 64, 2 * time.Second, 20
	server := harness.Start(t, harness.Cairn, "--queue-limits=writes=4")
	client := server.Client()
	defer client.Close()
	ctx := harness.Context(t)
	lease, err := client.Grant(ctx, 60)
	if err != nil {
		t.Fatal(err)
	}
	spare, err := client.Grant(ctx, 60)
	if err != nil {
		t.Fatal(err)
	}

	var refused, stored atomic.Int64
	var flood sync.WaitGroup
	var over atomic.Bool
	end := time.Now().Add(during)
	for writer := range writers {
		flood.Go(func() {
			for n := 0; !over.Load(); n++ {
				_, err := client.Put(ctx, fmt.Sprintf("flood/%d/%d", writer, n), strings.Repeat("v", 1_000))
				switch {
				case err == nil:
					stored.Add(1)
				case err == rpctypes.ErrTooManyRequests || strings.Contains(err.Error(), "etcdserver: too many requests"):
					refused.Add(1)
				default:
					t.Error(err)
					return
				}
			}
		})
	}
	renewals := 0
	var longest time.Duration
	// As many as come, however long they take: a queue that they share with the flood would refuse some.
	for time.Now().Before(end) || renewals < renewalsMin {
		began := time.Now()
		if _, err := client.KeepAliveOnce(ctx, lease.ID); err != nil {
			t.Errorf("a keep-alive beside the flood: %v", err)
			break
		}
		if _, err := client.Get(ctx, "flood/0/0"); err != nil {
			t.Errorf("a read beside the flood: %v", err)
			break
		}
		longest = max(longest, time.Since(began))
		renewals++
		time.Sleep(20 * time.Millisecond)
		if renewals == 10 {
			if _, err := client.Revoke(ctx, spare.ID); err != nil {
				t.Errorf("a lease revoked beside the flood: %v", err)
			}
		}
	}
	over.Store(true)
	flood.Wait()
	t.Logf("%d writes stored, %d refused; %d renewals and reads, the longest took %v", stored.Load(), refused.Load(), renewals, longest)
	if refused.Load() == 0 || stored.Load() == 0 {
		t.Errorf("%d refused, %d stored: both are due", refused.Load(), stored.Load())
	}
	all, err := client.Get(ctx, "flood/", clientv3.WithPrefix(), clientv3.WithCountOnly())
	if err != nil {
		t.Fatal(err)
	}
	if all.Count != stored.Load() {
		t.Errorf("%d keys are there, %d were acknowledged", all.Count, stored.Load())
	}
	page := ask(t, server, "GET", "/metrics").body
	found := map[string]string{}
	for _, line := range refusedLine.FindAllStringSubmatch(page, -1) {
		found[line[1]] = line[2]
	}
	if fmt.Sprint(refused.Load()) != found["writes"] || found["leases"] != "0" || found["reads"] != "0" {
		t.Errorf("%d were refused; the metrics say %v", refused.Load(), found)
	}
}

var refusedLine = regexp.MustCompile(`(?m)^cairn_queue_refused_total\{class="(\w+)"\} (\d+)$`)
