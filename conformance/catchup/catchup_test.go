package catchup

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"cairn.dev/conformance/harness"
)

const (
	levelMax = 60 * time.Second
	// memoryMax is what joining may take beyond what the member keeps, in MiB.
	memoryMax = 256
	// settle is how long after joining that is looked at.
	settle = 10 * time.Second
	// slowdownMax is how much longer the p99 of puts may be meanwhile.
	slowdownMax = 3
	// loadPercent is the open loop's usual share of the maximum.
	loadPercent = 30
)

// TestCatchUp adds an empty member to a cluster of three with CATCHUP_MB
// (1024) of data under an open-loop load, and waits until it is level.
func TestCatchUp(t *testing.T) {
	catchUp(t, 3, harness.Subject(), harness.Subject(), (*harness.Cluster).Add)
}

// TestCatchUpOfBothKinds adds a learner to CATCHUP_MEMBERS (3) members of the
// other kind; and one of etcd to etcd, to compare with. CATCHUP_LOAD (30) is
// the load, in percent of the maximum.
func TestCatchUpOfBothKinds(t *testing.T) {
	members := harness.Number(t, "CATCHUP_MEMBERS", 3)
	for _, kinds := range [][2]harness.Kind{{harness.Etcd, harness.Cairn}, {harness.Cairn, harness.Etcd}, {harness.Etcd, harness.Etcd}} {
		t.Run(fmt.Sprintf("%sTo%s", kinds[0], kinds[1]), func(t *testing.T) {
			catchUp(t, members, kinds[0], kinds[1], (*harness.Cluster).AddLearner)
		})
	}
}

// announce makes a new member known to a cluster.
type announce func(*harness.Cluster, context.Context, *clientv3.Client, harness.Kind) *harness.Server

// catchUp adds a member of a kind to a cluster of a kind. Puts are judged if that
// is ours, the time if both are.
func catchUp(t *testing.T, size int, kind, joins harness.Kind, add announce) {
	megabytes := harness.Number(t, "CATCHUP_MB", 1024)
	ctx, cancel := context.WithTimeout(context.Background(), 15*time.Minute)
	defer cancel()
	cluster := harness.StartCluster(t, kind, size, nil, "--quota-backend-bytes=8589934592")
	var clients []*clientv3.Client
	for member := range cluster.Members {
		clients = append(clients, cluster.Client(member))
	}
	started := time.Now()
	if err := fill(ctx, clients, megabytes*1024*1024/valueBytes); err != nil {
		t.Fatal(err)
	}
	t.Logf("filled with %d MB in %v", megabytes, time.Since(started).Round(time.Second))
	fastest := maximum(ctx, clients, 10*time.Second)
	rate := fastest * float64(harness.Number(t, "CATCHUP_LOAD", loadPercent)) / 100
	t.Logf("%.0f puts per second at most, the load is %.0f", fastest, rate)
	// What the maximum has left behind in queues and on the disk is not the load's.
	time.Sleep(5 * time.Second)

	quietContext, stop := context.WithTimeout(ctx, 15*time.Second)
	quiet, count, failed := openLoop(quietContext, clients, rate).p99()
	stop()
	t.Logf("quiet: p99 %v of %d puts, %d failed", quiet, count, failed)

	loadContext, stop := context.WithCancel(ctx)
	defer stop()
	loaded := make(chan *latencies, 1)
	go func() { loaded <- openLoop(loadContext, clients, rate) }()
	// On the disk of the others its writes would hold up theirs, as on no machine
	// of its own.
	cluster.Disk = os.Getenv("CATCHUP_DISK")
	added := add(cluster, ctx, clients[0], joins)
	begun := time.Now()
	seen := added.Launch()
	highest := mostMemory(loadContext, added)
	newcomer := cluster.Client(len(cluster.Members) - 1)
	level := untilLevel(ctx, t, clients[0], cluster.Members[0].Endpoint(), newcomer, added.Endpoint(), begun)
	end := time.Now()
	stop()
	if err := added.AwaitReady(seen, levelMax); err != nil {
		t.Error(err)
	}
	meanwhile := <-loaded
	busy, count, failed := meanwhile.p99()
	t.Logf("the phases of it:\n%s", describe(meanwhile.samples, phases(cluster.Members, begun), end))
	t.Logf("level after %v; meanwhile p99 %v (%.1f times the quiet one) of %d puts, %d failed",
		level.Round(time.Millisecond), busy, float64(busy)/float64(quiet), count, failed)
	// What it keeps of the data is its index.
	time.Sleep(settle)
	most, kept := <-highest, memory(added)
	t.Logf("memory of the one that joined: %d MiB at most, %d MiB %v later", most, kept, settle)
	ours := harness.Subject()
	if most > kept+memoryMax && joins == ours {
		t.Errorf("it took %d MiB beyond the %d MiB that it keeps", most-kept, kept)
	}
	if failed > 0 {
		t.Logf("the first put that failed: %v", meanwhile.failure)
	}
	if level > levelMax && kind == ours && joins == ours {
		t.Errorf("level after %v, not %v", level, levelMax)
	}
	if busy > slowdownMax*quiet && kind == ours {
		t.Errorf("the p99 of puts rose from %v to %v", quiet, busy)
	}
	if failed > 0 && kind == ours {
		t.Errorf("%d puts failed", failed)
	}
}

// untilLevel returns how long the newcomer took to have applied what the
// cluster had when it was asked.
func untilLevel(ctx context.Context, t *testing.T, client *clientv3.Client, endpoint string, newcomer *clientv3.Client,
	newEndpoint string, begun time.Time,
) time.Duration {
	t.Helper()
	for time.Since(begun) < 5*levelMax {
		once, cancel := context.WithTimeout(ctx, 5*time.Second)
		want, wantErr := client.Status(once, endpoint)
		got, err := newcomer.Status(once, newEndpoint)
		cancel()
		// Both run on: a hundred entries are a few milliseconds of the load.
		if wantErr == nil && err == nil && got.RaftAppliedIndex+100 >= want.RaftAppliedIndex {
			return time.Since(begun)
		}
		time.Sleep(50 * time.Millisecond)
	}
	t.Fatalf("not level after %v", 5*levelMax)
	return 0
}
