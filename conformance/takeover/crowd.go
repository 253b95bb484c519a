package takeover

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"cairn.dev/conformance/harness"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

const (
	writers  = 6
	watchers = 4
	// callMax is how long a call may take before its fate is unknown.
	callMax = 3 * time.Second
	// pause of a writer between two calls.
	pause = 15 * time.Millisecond
	// shortTTL is the time of a lease that nobody keeps alive, in seconds; longTTL
	// of one that is.
	shortTTL = 4
	longTTL  = 10
	// overdue is how long a short lease may live beyond its time: each new leader
	// gives it its whole time again.
	overdue = 25 * time.Second
	// kept is how many revisions a compaction leaves.
	kept = 1500
)

// place is where a key was changed.
type place struct {
	revision int64
	key      string
}

// event is what a watcher was told.
type event struct {
	place
	value   string
	deleted bool
	at      time.Time
}

// crowd is clients that use a cluster while its members are replaced.
type crowd struct {
	t *testing.T
	// first is the first revision that counts; it tells the keys of this crowd
	// from others.
	first   int64
	clients []*clientv3.Client
	stop    context.CancelFunc
	group   sync.WaitGroup
	// end of the watchers: later than that of the writers.
	leave    context.CancelFunc
	watching sync.WaitGroup

	mutex sync.Mutex
	// acknowledged are all writes with an answer.
	acknowledged map[place]event
	// granted is when each short lease was asked for, by the key that hangs on it.
	granted map[string]time.Time
	seen    [watchers][]event
}

// client follows the members: it asks for the list of them all the time.
func client(t *testing.T, endpoints []string) *clientv3.Client {
	t.Helper()
	config := clientv3.Config{Endpoints: endpoints, DialTimeout: 10 * time.Second, Logger: zap.NewNop(), AutoSyncInterval: 500 * time.Millisecond}
	made, err := clientv3.New(config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { made.Close() })
	return made
}

// gather starts the clients.
func gather(t *testing.T, endpoints []string) *crowd {
	t.Helper()
	setup := client(t, endpoints)
	ctx := harness.Context(t)
	for number := range 300 {
		if _, err := setup.Put(ctx, fmt.Sprintf("before/%03d", number%100), "x"); err != nil {
			t.Fatal(err)
		}
	}
	got, err := setup.Get(ctx, "any")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := setup.Compact(ctx, got.Header.Revision-50, clientv3.WithCompactPhysical()); err != nil {
		t.Fatal(err)
	}
	background, leave := context.WithCancel(context.Background())
	writing, stop := context.WithCancel(background)
	c := &crowd{t: t, first: got.Header.Revision + 1, stop: stop, leave: leave, acknowledged: map[place]event{}, granted: map[string]time.Time{}}
	own := func() *clientv3.Client {
		c.clients = append(c.clients, client(t, endpoints))
		return c.clients[len(c.clients)-1]
	}
	t.Cleanup(func() {
		leave()
		c.group.Wait()
		c.watching.Wait()
	})
	for number := range watchers {
		watcher := own()
		c.watching.Go(func() { c.watch(background, watcher, number) })
	}
	for number := range writers {
		writer := own()
		c.group.Go(func() { c.write(writing, writer, number) })
	}
	leases, keeper, compacting := own(), own(), own()
	c.group.Go(func() { c.lend(writing, leases) })
	c.keep(writing, keeper)
	c.group.Go(func() { compact(writing, compacting) })
	return c
}

// prefix of the keys of this kind.
func (c *crowd) prefix(kind string) string { return fmt.Sprintf("%s/%d/", kind, c.first) }

func (c *crowd) watch(ctx context.Context, own *clientv3.Client, number int) {
	for response := range own.Watch(ctx, "", clientv3.WithPrefix(), clientv3.WithRev(c.first)) {
		if err := response.Err(); err != nil && ctx.Err() == nil {
			c.t.Errorf("watcher %d: %v", number, err)
			return
		}
		at := time.Now()
		c.mutex.Lock()
		for _, one := range response.Events {
			c.seen[number] = append(c.seen[number], event{
				place: place{one.Kv.ModRevision, string(one.Kv.Key)}, value: string(one.Kv.Value),
				deleted: one.Type == clientv3.EventTypeDelete, at: at,
			})
		}
		c.mutex.Unlock()
	}
	if ctx.Err() == nil {
		c.t.Errorf("watcher %d has ended", number)
	}
}

func (c *crowd) acknowledge(done event) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	c.acknowledged[done.place] = done
}

// write puts, deletes and compares keys of its own, one call after the other.
func (c *crowd) write(ctx context.Context, own *clientv3.Client, writer int) {
	for number := 0; ctx.Err() == nil; number++ {
		key, value := fmt.Sprintf("%s%d/%02d", c.prefix("writer"), writer, number%20), fmt.Sprintf("%d/%06d", writer, number)
		call, cancel := context.WithTimeout(ctx, callMax)
		var done []event
		made := func(revision int64, key, value string, deleted bool) {
			done = append(done, event{place: place{revision, key}, value: value, deleted: deleted})
		}
		switch number % 7 {
		case 2:
			if answer, err := own.Delete(call, key); err == nil && answer.Deleted == 1 {
				made(answer.Header.Revision, key, "", true)
			}
		case 4:
			other := key + "/too"
			answer, err := own.Txn(call).Then(clientv3.OpPut(key, value), clientv3.OpPut(other, value)).Commit()
			if err == nil {
				made(answer.Header.Revision, key, value, false)
				made(answer.Header.Revision, other, value, false)
			}
		case 5:
			// Only what this writer has read may be replaced.
			got, err := own.Get(call, key)
			if err != nil {
				break
			}
			var last int64
			if len(got.Kvs) == 1 {
				last = got.Kvs[0].ModRevision
			}
			answer, err := own.Txn(call).If(clientv3.Compare(clientv3.ModRevision(key), "=", last)).Then(clientv3.OpPut(key, value)).Commit()
			if err == nil && answer.Succeeded {
				made(answer.Header.Revision, key, value, false)
			}
		default:
			if answer, err := own.Put(call, key, value); err == nil {
				made(answer.Header.Revision, key, value, false)
				// Whatever member answers: what was acknowledged is there.
				got, err := own.Get(call, key)
				if err == nil && (len(got.Kvs) != 1 || got.Kvs[0].ModRevision < answer.Header.Revision) {
					c.t.Errorf("%s was written at revision %d, and read as %v", key, answer.Header.Revision, got)
				}
			}
		}
		cancel()
		for _, one := range done {
			c.acknowledge(one)
		}
		time.Sleep(pause)
	}
}

// lend grants leases that nobody keeps alive.
func (c *crowd) lend(ctx context.Context, own *clientv3.Client) {
	for number := 0; ctx.Err() == nil; number++ {
		call, cancel := context.WithTimeout(ctx, callMax)
		begun, key := time.Now(), fmt.Sprintf("%s%d", c.prefix("short"), number)
		lease, err := own.Grant(call, shortTTL)
		if err == nil {
			answer, err := own.Put(call, key, "x", clientv3.WithLease(lease.ID))
			if err == nil {
				c.acknowledge(event{place: place{answer.Header.Revision, key}, value: "x"})
				c.mutex.Lock()
				c.granted[key] = begun
				c.mutex.Unlock()
			}
		}
		cancel()
		time.Sleep(500 * time.Millisecond)
	}
}

// keep keeps leases alive.
func (c *crowd) keep(ctx context.Context, own *clientv3.Client) {
	c.t.Helper()
	for number := range 3 {
		lease, err := own.Grant(ctx, longTTL)
		if err != nil {
			c.t.Fatal(err)
		}
		key := fmt.Sprintf("%s%d", c.prefix("kept"), number)
		answer, err := own.Put(ctx, key, "x", clientv3.WithLease(lease.ID))
		if err != nil {
			c.t.Fatal(err)
		}
		c.acknowledge(event{place: place{answer.Header.Revision, key}, value: "x"})
		alive, err := own.KeepAlive(ctx, lease.ID)
		if err != nil {
			c.t.Fatal(err)
		}
		c.group.Go(func() {
			for range alive {
			}
			if ctx.Err() == nil {
				c.t.Errorf("lease %x is not kept alive any more", lease.ID)
			}
		})
	}
}

// compact drops history that is a little older.
func compact(ctx context.Context, own *clientv3.Client) {
	for ctx.Err() == nil {
		call, cancel := context.WithTimeout(ctx, callMax)
		if got, err := own.Get(call, "any"); err == nil && got.Header.Revision > kept {
			// It may be compacted already.
			own.Compact(call, got.Header.Revision-kept)
		}
		cancel()
		time.Sleep(2 * time.Second)
	}
}

// finish ends the clients and judges what they have seen.
func (c *crowd) finish(s *stage) {
	c.t.Helper()
	own := client(c.t, s.endpoints())
	kept, err := own.Get(harness.Context(c.t), c.prefix("kept"), clientv3.WithPrefix())
	if err != nil || len(kept.Kvs) != 3 {
		c.t.Errorf("keys of leases that are kept alive: %v, %v", kept, err)
	}
	c.stop()
	c.group.Wait()
	c.expired(own)
	last, err := own.Put(harness.Context(c.t), "end", "x")
	if err != nil {
		c.t.Fatal(err)
	}
	c.awaitRevision(last.Header.Revision)
	c.leave()
	c.watching.Wait()
	c.judge(own, last.Header.Revision)
	for _, one := range append(c.clients, own) {
		one.Close()
	}
	sameHistory(c.t, s)
}

// expired waits for the end of the short leases.
func (c *crowd) expired(own *clientv3.Client) {
	c.t.Helper()
	for deadline := time.Now().Add(shortTTL*time.Second + overdue); ; time.Sleep(100 * time.Millisecond) {
		left, err := own.Get(harness.Context(c.t), c.prefix("short"), clientv3.WithPrefix(), clientv3.WithKeysOnly())
		if err == nil && left.Count == 0 {
			return
		}
		if time.Now().After(deadline) {
			c.t.Fatalf("leases of %d s have not ended: %v, %v", shortTTL, left, err)
		}
	}
}

func (c *crowd) awaitRevision(revision int64) {
	c.t.Helper()
	for number := range watchers {
		for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(20 * time.Millisecond) {
			c.mutex.Lock()
			seen := c.seen[number]
			reached := len(seen) > 0 && seen[len(seen)-1].revision >= revision
			c.mutex.Unlock()
			if reached {
				break
			}
			if time.Now().After(deadline) {
				c.t.Fatalf("watcher %d has not been told of revision %d: %d events", number, revision, len(seen))
			}
		}
	}
}
