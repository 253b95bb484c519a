package locks

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"cairn.dev/conformance/harness"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	election "go.etcd.io/etcd/server/v3/etcdserver/api/v3election/v3electionpb"
	lock "go.etcd.io/etcd/server/v3/etcdserver/api/v3lock/v3lockpb"
)

const waiters = 100

// queued waits until so many keys are under a name.
func queued(t *testing.T, client *clientv3.Client, name string, count int64) {
	t.Helper()
	for deadline := time.Now().Add(2 * time.Minute); ; time.Sleep(5 * time.Millisecond) {
		response, err := client.Get(harness.Context(t), name+"/", clientv3.WithPrefix(), clientv3.WithCountOnly())
		if err != nil {
			t.Fatal(err)
		}
		if response.Count == count {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d keys under %s, not %d", response.Count, name, count)
		}
	}
}

// A hundred calls that came one after the other get the lock in that order,
// and never two of them at once.
func TestLockQueue(t *testing.T) {
	server := harness.Start(t, harness.Subject())
	ctx, client, locks := harness.Context(t), server.Client(), lock.NewLockClient(server.Conn())
	var order []int
	var held atomic.Int32
	var all sync.WaitGroup
	threads := threadsOf(t, server)
	first, err := locks.Lock(ctx, &lock.LockRequest{Name: []byte("queue")})
	if err != nil {
		t.Fatal(err)
	}
	for number := range waiters {
		all.Go(func() {
			got, err := locks.Lock(ctx, &lock.LockRequest{Name: []byte("queue")})
			if err != nil {
				t.Errorf("number %d: %v", number, err)
				return
			}
			if now := held.Add(1); now != 1 {
				t.Errorf("%d hold the lock", now)
			}
			order = append(order, number)
			held.Add(-1)
			if _, err := locks.Unlock(ctx, &lock.UnlockRequest{Key: got.Key}); err != nil {
				t.Error(err)
			}
		})
		queued(t, client, "queue", int64(number)+2)
	}
	if now := threadsOf(t, server); harness.Subject() == harness.Cairn && now > threads+4 {
		t.Errorf("%d threads with %d waiting calls, %d before", now, waiters, threads)
	}
	if _, err := locks.Unlock(ctx, &lock.UnlockRequest{Key: first.Key}); err != nil {
		t.Fatal(err)
	}
	all.Wait()
	for place, number := range order {
		if place != number {
			t.Fatalf("the order is %v", order)
		}
	}
	queued(t, client, "queue", 0)
}

// Every other call of a queue gives up: the others keep their order.
func TestLockQueueWithGaps(t *testing.T) {
	server := harness.Start(t, harness.Subject())
	ctx, client, locks := harness.Context(t), server.Client(), lock.NewLockClient(server.Conn())
	first, err := locks.Lock(ctx, &lock.LockRequest{Name: []byte("queue")})
	if err != nil {
		t.Fatal(err)
	}
	const count = 20
	order := make(chan int, count)
	var all sync.WaitGroup
	var cancels []context.CancelFunc
	for number := range count {
		own, cancel := context.WithCancel(ctx)
		defer cancel()
		cancels = append(cancels, cancel)
		all.Go(func() {
			got, err := locks.Lock(own, &lock.LockRequest{Name: []byte("queue")})
			if err != nil {
				if number%2 == 0 {
					t.Errorf("number %d: %v", number, err)
				}
				return
			}
			order <- number
			if _, err := locks.Unlock(ctx, &lock.UnlockRequest{Key: got.Key}); err != nil {
				t.Error(err)
			}
		})
		queued(t, client, "queue", int64(number)+2)
	}
	for number := 1; number < count; number += 2 {
		cancels[number]()
	}
	queued(t, client, "queue", count/2+1)
	if _, err := locks.Unlock(ctx, &lock.UnlockRequest{Key: first.Key}); err != nil {
		t.Fatal(err)
	}
	all.Wait()
	close(order)
	wanted := 0
	for number := range order {
		if number != wanted {
			t.Errorf("number %d has the lock, not %d", number, wanted)
		}
		wanted += 2
	}
	queued(t, client, "queue", 0)
}

// A lock goes to the next one when the owner's lease ends; who waits on a lease
// that ends is told so.
func TestLostLeases(t *testing.T) {
	server := harness.Start(t, harness.Subject())
	ctx, client := harness.Context(t), server.Client()
	locks, elections := lock.NewLockClient(server.Conn()), election.NewElectionClient(server.Conn())
	lease := func() int64 {
		granted, err := client.Grant(ctx, 600)
		if err != nil {
			t.Fatal(err)
		}
		return int64(granted.ID)
	}
	owner, next, last := lease(), lease(), lease()
	if _, err := locks.Lock(ctx, &lock.LockRequest{Name: []byte("a"), Lease: owner}); err != nil {
		t.Fatal(err)
	}
	answers := []chan error{make(chan error, 1), make(chan error, 1)}
	for i, waiting := range []int64{next, last} {
		go func() {
			_, err := locks.Lock(ctx, &lock.LockRequest{Name: []byte("a"), Lease: waiting})
			answers[i] <- err
		}()
		queued(t, client, "a", int64(i)+2)
	}
	revoke := func(lease int64) {
		t.Helper()
		if _, err := client.Revoke(ctx, clientv3.LeaseID(lease)); err != nil {
			t.Fatal(err)
		}
	}
	revoke(next)
	revoke(owner)
	if err := <-answers[1]; err != nil {
		t.Errorf("the last one: %v", err)
	}
	if err := <-answers[0]; err == nil || err.Error() != "rpc error: code = Unknown desc = mutex: session is expired" {
		t.Errorf("without its lease: %v", err)
	}
	// An election goes to the next candidate in the same way.
	first, second := lease(), lease()
	if _, err := elections.Campaign(ctx, &election.CampaignRequest{Name: []byte("e"), Lease: first, Value: []byte("1")}); err != nil {
		t.Fatal(err)
	}
	elected := make(chan error, 1)
	go func() {
		_, err := elections.Campaign(ctx, &election.CampaignRequest{Name: []byte("e"), Lease: second, Value: []byte("2")})
		elected <- err
	}()
	queued(t, client, "e", 2)
	revoke(first)
	if err := <-elected; err != nil {
		t.Error(err)
	}
	leader, err := elections.Leader(ctx, &election.LeaderRequest{Name: []byte("e")})
	if err != nil || string(leader.Kv.Value) != "2" {
		t.Errorf("the leader is %v, %v", leader, err)
	}
}

// Calls through the service and locks of the client library exclude each other:
// they are the same keys.
func TestServiceAndLibrary(t *testing.T) {
	server := harness.Start(t, harness.Subject())
	ctx, client, locks := harness.Context(t), server.Client(), lock.NewLockClient(server.Conn())
	var counter int
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 10 {
				got, err := locks.Lock(ctx, &lock.LockRequest{Name: []byte("both")})
				if err != nil {
					t.Error(err)
					return
				}
				counter++
				if _, err := locks.Unlock(ctx, &lock.UnlockRequest{Key: got.Key}); err != nil {
					t.Error(err)
				}
			}
		})
		all.Go(func() {
			session, err := concurrency.NewSession(client)
			if err != nil {
				t.Error(err)
				return
			}
			defer session.Close()
			mutex := concurrency.NewMutex(session, "both")
			for range 10 {
				if err := mutex.Lock(ctx); err != nil {
					t.Error(err)
					return
				}
				counter++
				if err := mutex.Unlock(ctx); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	if counter != 160 {
		t.Errorf("%d of 160 turns", counter)
	}
}

// A client of a three-member cluster keeps its place in the queue when the
// leader dies, and is served by a follower.
func TestLeaderChange(t *testing.T) {
	cluster := harness.StartCluster(t, harness.Subject(), 3, nil)
	ctx := harness.Context(t)
	var clients []*clientv3.Client
	for number := range cluster.Members {
		clients = append(clients, cluster.Client(number))
	}
	leader := cluster.Leader(clients)
	follower, other := (leader+1)%3, (leader+2)%3
	locks := lock.NewLockClient(cluster.Members[follower].Conn())
	first, err := locks.Lock(ctx, &lock.LockRequest{Name: []byte("a")})
	if err != nil {
		t.Fatal(err)
	}
	got := make(chan error, 1)
	go func() {
		_, err := lock.NewLockClient(cluster.Members[other].Conn()).Lock(ctx, &lock.LockRequest{Name: []byte("a")})
		got <- err
	}()
	queued(t, clients[follower], "a", 2)
	cluster.Members[leader].Kill()
	for deadline := time.Now().Add(2 * time.Minute); ; time.Sleep(50 * time.Millisecond) {
		short, cancel := context.WithTimeout(ctx, 5*time.Second)
		_, err := locks.Unlock(short, &lock.UnlockRequest{Key: first.Key})
		cancel()
		if err == nil {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal(err)
		}
	}
	select {
	case err := <-got:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(2 * time.Minute):
		t.Error("it waits for ever")
	}
}

// threadsOf counts the threads of a server.
func threadsOf(t *testing.T, server *harness.Server) int {
	t.Helper()
	threads, err := harness.Threads(server.Pid())
	if err != nil {
		t.Fatal(fmt.Errorf("threads: %w", err))
	}
	return threads
}
