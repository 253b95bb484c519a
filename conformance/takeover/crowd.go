package takeover

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"cairn.dev/conformance/audit"
	"cairn.dev/conformance/harness"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
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
	longTTL  = 30
	// heldTTL is that of one that is kept alive by single calls, while members fail.
	heldTTL = 8
	// overdue is how long a lease may live beyond its time: each new leader gives
	// it its whole time again. Many more are elected while members fail.
	overdue, overdueRough = time.Minute, 2 * time.Minute
	// stale is how long a leader may answer that does not know of its successor,
	// which has given leases their time before that: as long as it is stopped or
	// cut off, and until it hears of the new term.
	stale = faultMax + time.Second
	// kept is how many revisions a compaction leaves. A watcher may be behind by as
	// much as is written while its member is stopped.
	kept, keptRough = 1500, 5000
	// auditPause is that of the clients whose answers have to fit one order.
	auditPause = 60 * time.Millisecond
)

// crowd is clients that use a cluster while its members are replaced.
type crowd struct {
	t     *testing.T
	stage *stage
	// first is the first revision that counts; it tells the keys of this crowd
	// from others.
	first   int64
	clients []*clientv3.Client
	stop    context.CancelFunc
	group   sync.WaitGroup
	// end of the watchers: later than that of the writers.
	leave    context.CancelFunc
	watching sync.WaitGroup

	// accounts are the users and roles that one of the writers changes.
	accounts accounts

	// history is what all of them were told.
	history *audit.History
	load    *audit.Load
}

// rough says whether members fail, and not only go one by one.
func (c *crowd) rough() bool { return c.stage.links != nil }

// overdue is how long a lease may live beyond its time.
func (c *crowd) overdue() time.Duration {
	if c.rough() {
		return overdueRough
	}
	return overdue
}

// gather starts the clients.
func gather(s *stage) *crowd {
	t := s.t
	t.Helper()
	endpoints := s.endpoints()
	setup := s.client(endpoints...)
	ctx := harness.Context(t)
	// What an earlier crowd has left is not in the history of this one.
	if _, err := setup.Delete(ctx, audit.Keys, clientv3.WithPrefix()); err != nil {
		t.Fatal(err)
	}
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
	c := &crowd{
		t: t, stage: s, first: got.Header.Revision + 1, stop: stop, leave: leave,
	}
	c.history = audit.New(t, audit.Keys, c.prefix("writer"), c.prefix("short"), c.prefix("kept"), c.prefix("held"))
	c.history.Stale, c.history.Overdue = stale, c.overdue()
	own := func() *clientv3.Client {
		c.clients = append(c.clients, s.client(endpoints...))
		return c.clients[len(c.clients)-1]
	}
	// All members are asked, as long as they are where they were.
	c.load = audit.StartLoad([]*clientv3.Client{own(), own(), own()}, c.history, auditPause)
	t.Cleanup(func() {
		c.load.Stop()
		leave()
		c.group.Wait()
		c.watching.Wait()
	})
	for range watchers {
		watcher, number := own(), c.history.Follow(c.first)
		c.watching.Go(func() { c.watch(background, watcher, number) })
	}
	for number := range writers {
		writer := own()
		// The clients of the load have the first numbers.
		c.group.Go(func() { c.write(writing, writer, 100+number) })
	}
	leases, keeper, compacting, administrator := own(), own(), own(), own()
	c.group.Go(func() { c.lend(writing, leases) })
	c.group.Go(func() { c.administer(writing, administrator) })
	revisions := int64(kept)
	if c.rough() {
		revisions = keptRough
		c.group.Go(func() { c.hold(writing, keeper) })
	} else {
		c.keep(writing, keeper)
	}
	c.group.Go(func() { compact(writing, compacting, revisions) })
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
		c.history.Tell(number, audit.Events(response)...)
	}
	if ctx.Err() == nil {
		c.t.Errorf("watcher %d has ended", number)
	}
}

// write puts, deletes and compares keys of its own, one call after the other.
func (c *crowd) write(ctx context.Context, own *clientv3.Client, writer int) {
	for number := 0; ctx.Err() == nil; number++ {
		key, value := fmt.Sprintf("%s%d/%02d", c.prefix("writer"), writer, number%20), fmt.Sprintf("writer %d/%06d", writer, number)
		call, cancel := context.WithTimeout(ctx, callMax)
		put := audit.Write{Key: key, Value: value}
		switch number % 7 {
		case 2:
			c.made(writer, func(next *audit.Operation) (int64, error) {
				answer, err := own.Delete(call, key)
				if err != nil {
					return 0, err
				}
				if answer.Deleted == 0 {
					c.history.Unmade(next, 0)
				}
				return answer.Header.Revision, nil
			}, audit.Write{Key: key, Deleted: true})
		case 4:
			other := key + "/too"
			c.made(writer, func(*audit.Operation) (int64, error) {
				answer, err := own.Txn(call).Then(clientv3.OpPut(key, value), clientv3.OpPut(other, value)).Commit()
				if err != nil {
					return 0, err
				}
				return answer.Header.Revision, nil
			}, put, audit.Write{Key: other, Value: value})
		case 5:
			// Only what this writer has read may be replaced.
			last, err := c.read(call, own, writer, key)
			if err != nil {
				break
			}
			c.made(writer, func(next *audit.Operation) (int64, error) {
				answer, err := own.Txn(call).If(clientv3.Compare(clientv3.ModRevision(key), "=", last)).Then(clientv3.OpPut(key, value)).Commit()
				if err != nil {
					return 0, err
				}
				if !answer.Succeeded {
					c.history.Unmade(next, 0)
				}
				return answer.Header.Revision, nil
			}, put)
		default:
			err := c.made(writer, func(*audit.Operation) (int64, error) {
				answer, err := own.Put(call, key, value)
				if err != nil {
					return 0, err
				}
				return answer.Header.Revision, nil
			}, put)
			if err == nil {
				// Whatever member answers: what was acknowledged is there.
				c.read(call, own, writer, key)
			}
		}
		cancel()
		time.Sleep(pause)
	}
}

// made has writes made, and notes how that has ended.
func (c *crowd) made(client int, make func(*audit.Operation) (int64, error), writes ...audit.Write) error {
	return c.carryOut(audit.Operation{Client: client, Writes: writes}, make)
}

func (c *crowd) carryOut(next audit.Operation, make func(*audit.Operation) (int64, error)) error {
	c.history.Call(&next)
	revision, err := make(&next)
	if err != nil {
		c.history.Lose(next)
		return err
	}
	c.history.Answer(next, revision)
	return nil
}

// read reads a key, and notes what is found; it returns the revision of that.
func (c *crowd) read(ctx context.Context, own *clientv3.Client, client int, key string) (int64, error) {
	next := audit.Operation{Client: client, Read: &audit.Read{Key: key}}
	c.history.Call(&next)
	got, err := own.Get(ctx, key)
	if err != nil {
		c.history.Lose(next)
		return 0, err
	}
	for _, kv := range got.Kvs {
		next.Read.Value, next.Read.Revision = string(kv.Value), kv.ModRevision
	}
	c.history.Answer(next, got.Header.Revision)
	return next.Read.Revision, nil
}

// lend grants leases that nobody keeps alive.
func (c *crowd) lend(ctx context.Context, own *clientv3.Client) {
	for number := 0; ctx.Err() == nil; number++ {
		begun, key := c.history.Now(), fmt.Sprintf("%s%d", c.prefix("short"), number)
		if _, err := c.grant(ctx, own, key, shortTTL); err == nil {
			c.history.Lend(audit.Lease{Key: key, TTL: shortTTL * time.Second, Since: begun})
		}
		time.Sleep(500 * time.Millisecond)
	}
}

// lender is the number of the clients that put keys with leases.
const lender = 200

// grant grants a lease, and puts a key that hangs on it.
func (c *crowd) grant(ctx context.Context, own *clientv3.Client, key string, seconds int64) (clientv3.LeaseID, error) {
	call, cancel := context.WithTimeout(ctx, callMax)
	defer cancel()
	lease, err := own.Grant(call, seconds)
	if err != nil {
		return 0, err
	}
	next := audit.Operation{Client: lender, Writes: []audit.Write{{Key: key, Value: key}}, Leased: true}
	err = c.carryOut(next, func(*audit.Operation) (int64, error) {
		answer, err := own.Put(call, key, key, clientv3.WithLease(lease.ID))
		if err != nil {
			return 0, err
		}
		return answer.Header.Revision, nil
	})
	return lease.ID, err
}

// keep keeps leases alive.
func (c *crowd) keep(ctx context.Context, own *clientv3.Client) {
	c.t.Helper()
	for number := range 3 {
		var lease clientv3.LeaseID
		var err error
		for attempt := range 20 {
			// Each with a key of its own: one without an answer may be there.
			lease, err = c.grant(ctx, own, fmt.Sprintf("%s%d/%d", c.prefix("kept"), number, attempt), longTTL)
			if err == nil {
				break
			}
		}
		if err != nil {
			c.t.Fatal(err)
		}
		alive, err := own.KeepAlive(ctx, lease)
		if err != nil {
			c.t.Fatal(err)
		}
		c.group.Go(func() {
			for range alive {
			}
			if ctx.Err() == nil {
				c.t.Errorf("lease %x is not kept alive any more", lease)
			}
		})
	}
}

// hold keeps leases alive by single calls, and grants the next one when it is told
// that one has ended.
func (c *crowd) hold(ctx context.Context, own *clientv3.Client) {
	const renewal = 300 * time.Millisecond
	for number := 0; ctx.Err() == nil; number++ {
		sent, key := c.history.Now(), fmt.Sprintf("%s%d", c.prefix("held"), number)
		lease, err := c.grant(ctx, own, key, heldTTL)
		if err != nil {
			time.Sleep(renewal)
			continue
		}
		for ctx.Err() == nil && !errors.Is(err, rpctypes.ErrLeaseNotFound) {
			if err == nil {
				c.history.Lend(audit.Lease{Key: key, TTL: heldTTL * time.Second, Since: sent, Renewed: true})
			}
			time.Sleep(renewal)
			call, cancel := context.WithTimeout(ctx, callMax)
			sent = c.history.Now()
			_, err = own.KeepAliveOnce(call, lease)
			cancel()
		}
	}
}

// compact drops all but so many revisions.
func compact(ctx context.Context, own *clientv3.Client, kept int64) {
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
	own := s.client(s.endpoints()...)
	kept, err := own.Get(harness.Context(c.t), c.prefix("kept"), clientv3.WithPrefix())
	if err != nil || len(kept.Kvs) < 3 && !c.rough() {
		c.t.Errorf("keys of leases that are kept alive: %v, %v", kept, err)
	}
	c.load.Stop()
	c.stop()
	c.group.Wait()
	c.expired(own)
	last, err := own.Put(harness.Context(c.t), "end", "x")
	if err != nil {
		c.t.Fatal(err)
	}
	c.history.Await(c.t, last.Header.Revision)
	c.leave()
	c.watching.Wait()
	c.judge(own, last.Header.Revision)
	c.judgeAccounts()
	for _, one := range append(c.clients, own) {
		one.Close()
	}
	sameHistory(s)
	s.tidy()
}

// expired waits for the end of the leases that nobody keeps alive any more.
func (c *crowd) expired(own *clientv3.Client) {
	c.t.Helper()
	for deadline := time.Now().Add(heldTTL*time.Second + c.overdue()); ; time.Sleep(100 * time.Millisecond) {
		short, err := own.Get(harness.Context(c.t), c.prefix("short"), clientv3.WithPrefix(), clientv3.WithKeysOnly())
		held, other := own.Get(harness.Context(c.t), c.prefix("held"), clientv3.WithPrefix(), clientv3.WithKeysOnly())
		if err == nil && other == nil && short.Count+held.Count == 0 {
			return
		}
		if time.Now().After(deadline) {
			c.t.Fatalf("leases of %d and %d s have not ended: %v, %v, %v, %v", shortTTL, heldTTL, short, held, err, other)
		}
	}
}
