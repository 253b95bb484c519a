package proxies

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/zap"

	"cairn.dev/conformance/audit"
	"cairn.dev/conformance/harness"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// answersBetween is how many requests are answered between two faults.
const answersBetween = 300

// Clients that know a gateway, a proxy, or two proxies write, read, watch and
// keep leases while each member is killed in turn, and then a proxy. No write
// is lost or done twice, all answers fit one order, watches see every event
// once and in order, and no lease ends.
func TestLoadsThroughProxies(t *testing.T) {
	t.Parallel()
	cluster := harness.StartCluster(t, harness.Subject(), 3, nil)
	members := []*clientv3.Client{cluster.Client(0), cluster.Client(1), cluster.Client(2)}
	endpoints := endpointsOf(cluster)
	gateway := harness.StartGateway(t, endpoints, "--retry-delay=200ms")
	kept, killed := harness.StartGrpcProxy(t, endpoints), harness.StartGrpcProxy(t, endpoints)
	ways := []struct {
		name      string
		endpoints []string
	}{
		{"gateway", []string{gateway.Address}},
		{"proxy", []string{kept.Address}},
		{"proxy that is killed, and another", []string{killed.Address, kept.Address}},
		{"proxy that is killed, and the gateway", []string{killed.Address, gateway.Address}},
	}
	dial := func(endpoints []string) *clientv3.Client {
		client, err := clientv3.New(clientv3.Config{Endpoints: endpoints, DialTimeout: 10 * time.Second, Logger: zap.NewNop()})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { client.Close() })
		return client
	}

	first, err := members[0].Put(harness.Context(t), "first", "first")
	if err != nil {
		t.Fatal(err)
	}
	var clients []*clientv3.Client
	var watchers []*watcher
	var leases []*keptLease
	for _, way := range ways {
		clients = append(clients, dial(way.endpoints))
		for number := range 4 {
			revision := int64(0)
			if number%2 == 1 {
				revision = first.Header.Revision
			}
			watchers = append(watchers, startWatcher(t, way.name, dial(way.endpoints), revision))
		}
		leases = append(leases, keepLease(t, way.name, dial(way.endpoints)))
	}

	history := audit.New(t, audit.Keys)
	load := audit.StartLoad(clients, history, 5*time.Millisecond)
	defer load.Stop()
	goOn := func(after string) {
		t.Helper()
		since := history.Now()
		await(t, "no answers after "+after, func() bool { return history.Since(since) > answersBetween })
	}
	goOn("the start")
	for number, member := range cluster.Members {
		member.Kill()
		goOn(fmt.Sprintf("the end of member %d", number))
		member.Run()
		goOn(fmt.Sprintf("the return of member %d", number))
	}
	killed.Kill()
	goOn("the end of a proxy")
	killed.Run()
	goOn("the return of a proxy")
	load.Stop()

	history.Agree(t, cluster, members)
	history.Check(t)
	took := history.Took()
	last := slices.Max(slices.Collect(maps.Values(took)))
	for _, watcher := range watchers {
		watcher.check(t, took, last)
	}
	for _, lease := range leases {
		lease.check(t)
	}
	t.Logf("%d answers, %d requests without one, %d events for each watcher from the start", history.Since(0), history.Failures, len(took))
}

// watcher is a watch of everything, and what it has seen.
type watcher struct {
	way string
	// from is the first revision that it must see.
	from    int64
	seen    []seen
	reached atomic.Int64
	cancel  context.CancelFunc
	ended   sync.WaitGroup
	err     error
}

// seen is an event.
type seen struct {
	revision int64
	value    string
}

// startWatcher watches from a revision, or from now; it waits until the watch
// is there.
func startWatcher(t testing.TB, way string, client *clientv3.Client, revision int64) *watcher {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	w := &watcher{way: fmt.Sprintf("through %s from %d", way, revision), from: revision, cancel: cancel}
	answers := client.Watch(ctx, "", clientv3.WithPrefix(), clientv3.WithRev(revision), clientv3.WithCreatedNotify())
	created := <-answers
	if !created.Created {
		t.Fatalf("%s: %v, %v", w.way, created, created.Err())
	}
	if revision == 0 {
		w.from = created.Header.Revision + 1
	}
	w.ended.Go(func() {
		for answer := range answers {
			if w.err = answer.Err(); w.err != nil {
				return
			}
			for _, event := range answer.Events {
				w.seen = append(w.seen, seen{event.Kv.ModRevision, string(event.Kv.Value)})
				w.reached.Store(event.Kv.ModRevision)
			}
		}
	})
	return w
}

// check waits for the last event, and compares what was seen with the history.
func (w *watcher) check(t testing.TB, took map[string]int64, last int64) {
	t.Helper()
	await(t, fmt.Sprintf("the watch %s does not come to %d", w.way, last), func() bool { return w.reached.Load() >= last })
	w.cancel()
	w.ended.Wait()
	if w.err != nil && w.reached.Load() < last {
		t.Errorf("the watch %s ended: %v", w.way, w.err)
	}
	found, before := map[string]int64{}, w.from-1
	for _, event := range w.seen {
		if event.revision <= before {
			t.Errorf("the watch %s saw %d after %d", w.way, event.revision, before)
		}
		before = event.revision
		if event.value != "" && event.revision <= last {
			found[event.value] = event.revision
		}
	}
	wanted := maps.Clone(took)
	maps.DeleteFunc(wanted, func(value string, revision int64) bool { return value == "" || revision < w.from })
	if !maps.Equal(found, wanted) {
		t.Errorf("the watch %s saw %d events of %d", w.way, len(found), len(wanted))
	}
}

// keptLease is a lease that a client keeps alive.
type keptLease struct {
	way    string
	client *clientv3.Client
	id     clientv3.LeaseID
	alive  <-chan *clientv3.LeaseKeepAliveResponse
	count  atomic.Int64
	ended  atomic.Bool
}

// keepLease grants a lease with a key and keeps it alive.
func keepLease(t testing.TB, way string, client *clientv3.Client) *keptLease {
	t.Helper()
	granted, err := client.Grant(harness.Context(t), 40)
	if err != nil {
		t.Fatalf("grant through %s: %v", way, err)
	}
	if _, err := client.Put(harness.Context(t), "lease/"+way, "lease/"+way, clientv3.WithLease(granted.ID)); err != nil {
		t.Fatalf("put through %s: %v", way, err)
	}
	alive, err := client.KeepAlive(harness.Context(t), granted.ID)
	if err != nil {
		t.Fatalf("keep alive through %s: %v", way, err)
	}
	lease := &keptLease{way: way, client: client, id: granted.ID, alive: alive}
	go func() {
		for range alive {
			lease.count.Add(1)
		}
		lease.ended.Store(true)
	}()
	return lease
}

// check finds the lease and its key, and ends them.
func (l *keptLease) check(t testing.TB) {
	t.Helper()
	if l.ended.Load() {
		t.Errorf("the lease kept through %s has ended", l.way)
	}
	before := l.count.Load()
	await(t, "the lease kept through "+l.way+" is not renewed", func() bool { return l.count.Load() > before })
	ctx, key := harness.Context(t), "lease/"+l.way
	if left, err := l.client.TimeToLive(ctx, l.id, clientv3.WithAttachedKeys()); err != nil || left.TTL <= 0 || len(left.Keys) != 1 {
		t.Errorf("the lease kept through %s: %v, %v", l.way, left, err)
	}
	if _, err := l.client.Revoke(ctx, l.id); err != nil {
		t.Errorf("revoke through %s: %v", l.way, err)
	}
	if got, err := l.client.Get(ctx, key); err != nil || len(got.Kvs) != 0 {
		t.Errorf("%s outlives its lease: %v, %v", key, got, err)
	}
}
