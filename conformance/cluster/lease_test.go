package cluster

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"cairn.dev/conformance/harness"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// The time of a lease is the leader's, but any member takes the question.
func TestLeasesThroughAnyMember(t *testing.T) {
	t.Parallel()
	cluster := start(t, harness.Subject(), 3)
	cluster.Leader()
	ctx := harness.Context(t)
	var clients []*clientv3.Client
	for _, member := range cluster.Members {
		clients = append(clients, member.Client())
	}
	var ids []uint64
	for _, member := range cluster.Members {
		ids = append(ids, id(t, member))
	}
	// A busy machine may take some seconds of it between two rounds.
	const ttl, least = 10, 4
	lease, err := clients[0].Grant(ctx, ttl)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := clients[1].Put(ctx, "on-lease", "1", clientv3.WithLease(lease.ID)); err != nil {
		t.Fatal(err)
	}
	for began := time.Now(); time.Since(began) < (ttl+3)*time.Second; time.Sleep(time.Second) {
		for at, client := range clients {
			kept, err := client.KeepAliveOnce(ctx, lease.ID)
			if err != nil || kept.TTL != ttl {
				t.Fatalf("%s keeps it alive: %+v, %v", cluster.Members[at].Name, kept, err)
			}
			if kept.ResponseHeader.MemberId != ids[at] {
				t.Errorf("the answer of %s is signed %x", cluster.Members[at].Name, kept.ResponseHeader.MemberId)
			}
			left, err := client.TimeToLive(ctx, lease.ID, clientv3.WithAttachedKeys())
			if err != nil || left.TTL < least || left.TTL > ttl || left.GrantedTTL != ttl || len(left.Keys) != 1 {
				t.Fatalf("%s says %+v, %v", cluster.Members[at].Name, left, err)
			}
		}
	}
	if _, err := clients[2].Revoke(ctx, lease.ID); err != nil {
		t.Fatal(err)
	}
	for at, client := range clients {
		if _, err := client.KeepAliveOnce(ctx, lease.ID); !errors.Is(err, rpctypes.ErrLeaseNotFound) {
			t.Errorf("%s keeps a revoked lease alive: %v", cluster.Members[at].Name, err)
		}
		if left, err := client.TimeToLive(ctx, lease.ID); err != nil || left.TTL != -1 {
			t.Errorf("%s says of a revoked lease: %+v, %v", cluster.Members[at].Name, left, err)
		}
		if got, err := client.Get(ctx, "on-lease"); err != nil || len(got.Kvs) != 0 {
			t.Errorf("%s still has its key: %v, %v", cluster.Members[at].Name, got, err)
		}
	}
}

// A new leader gives leases their time again, then ends them.
func TestLeasesOverALeader(t *testing.T) {
	t.Parallel()
	cluster := start(t, harness.Subject(), 3)
	ctx := harness.Context(t)
	const ttl, half = 20, 10
	var leader *clientv3.Client
	var killed *harness.Server
	// A busy machine may need too much of the leases' time to grant them, or to be asked about them.
	harness.Attempt(t, func() error {
		if killed != nil {
			cluster.Run()
		}
		client := cluster.Follower().Client()
		began := time.Now()
		var leases []clientv3.LeaseID
		for range 20 {
			lease, err := client.Grant(ctx, ttl)
			if err != nil {
				t.Fatal(err)
			}
			_, err = client.Put(ctx, "on-lease", "1", clientv3.WithLease(lease.ID))
			if err != nil && !errors.Is(err, rpctypes.ErrLeaseNotFound) {
				t.Fatal(err)
			}
			leases = append(leases, lease.ID)
		}
		time.Sleep(half * time.Second)
		killed = cluster.Leader()
		if took := time.Since(began); took > (ttl-2)*time.Second {
			return fmt.Errorf("leases of %d s were granted %v ago", ttl, took)
		}
		killed.Kill()
		began = time.Now()
		leader = cluster.Leader().Client()
		for _, lease := range leases {
			left, err := leader.TimeToLive(ctx, lease)
			if took := time.Since(began); took > (half-2)*time.Second {
				return fmt.Errorf("the new leader was asked %v after the end of the last one", took)
			}
			if err != nil || left.TTL <= half || left.TTL > ttl+2 {
				t.Fatalf("the new leader says %d s of lease %x, %v", left.TTL, lease, err)
			}
		}
		return nil
	})
	for deadline := time.Now().Add(ttl*time.Second + settleMax); ; time.Sleep(100 * time.Millisecond) {
		left, err := leader.Leases(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if len(left.Leases) == 0 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d leases live on", len(left.Leases))
		}
	}
	if got, err := leader.Get(ctx, "on-lease"); err != nil || len(got.Kvs) != 0 {
		t.Errorf("the key lives on: %v, %v", got, err)
	}
	killed.Run()
	cluster.AwaitLevel()
}

// Many leases that end together are revoked in batches: writers go on.
func TestExpiryStorm(t *testing.T) {
	const count = 5000
	cluster := start(t, harness.Subject(), 3)
	cluster.Leader()
	ctx := harness.Context(t)
	client := cluster.Follower().Client()
	lateness := harness.WatchLateness(t)
	harness.Attempt(t, func() error {
		var group sync.WaitGroup
		for worker := range 50 {
			group.Go(func() {
				for at := worker; at < count; at += 50 {
					lease, err := client.Grant(ctx, 8)
					if err != nil {
						t.Error(err)
						return
					}
					// Where this takes seconds it may have ended.
					_, err = client.Put(ctx, fmt.Sprintf("storm/%d", at), "1", clientv3.WithLease(lease.ID))
					if err != nil && !errors.Is(err, rpctypes.ErrLeaseNotFound) {
						t.Error(err)
						return
					}
				}
			})
		}
		group.Wait()
		var slowest, late time.Duration
		for deadline := time.Now().Add(2 * settleMax); ; time.Sleep(20 * time.Millisecond) {
			lateness.Take()
			began := time.Now()
			if _, err := client.Put(ctx, "writer", "1"); err != nil {
				t.Fatal(err)
			}
			if took, behind := time.Since(began), lateness.Take(); took-behind > slowest-late {
				slowest, late = took, behind
			}
			left, err := client.Get(ctx, "storm/", clientv3.WithPrefix(), clientv3.WithCountOnly())
			if err != nil {
				t.Fatal(err)
			}
			if left.Count == 0 {
				break
			}
			if time.Now().After(deadline) {
				t.Fatalf("%d keys are left", left.Count)
			}
		}
		t.Logf("the slowest put took %v on a machine that was %v late", slowest, late)
		if slowest > 2*time.Second+late {
			return fmt.Errorf("a put took %v on a machine that was %v late", slowest, late)
		}
		return nil
	})
	if left, err := client.Leases(ctx); err != nil || len(left.Leases) != 0 {
		t.Errorf("%d leases are left, %v", len(left.Leases), err)
	}
	cluster.AwaitLevel()
}

// A client that wants a leader is told when there is none; one that does not
// keeps its watch.
func TestStreamsWithoutLeader(t *testing.T) {
	t.Parallel()
	cluster := start(t, harness.Subject(), 3)
	left := cluster.Follower()
	client := left.Client()
	ctx := harness.Context(t)
	guarded := client.Watch(clientv3.WithRequireLeader(ctx), "a")
	plain := client.Watch(ctx, "a")
	if _, err := client.Put(ctx, "a", "1"); err != nil {
		t.Fatal(err)
	}
	for _, events := range []clientv3.WatchChan{guarded, plain} {
		if response := <-events; len(response.Events) != 1 {
			t.Fatalf("no event: %+v", response)
		}
	}
	began := time.Now()
	for _, member := range cluster.Members {
		if member != left {
			member.Kill()
		}
	}
	select {
	case response := <-guarded:
		if !errors.Is(response.Err(), rpctypes.ErrNoLeader) {
			t.Errorf("it ends with %v", response.Err())
		}
		if took := time.Since(began); took < 2*time.Second {
			t.Errorf("it ends after %v: an election is no reason", took)
		}
	case <-time.After(settleMax):
		t.Error("the watch that wants a leader goes on")
	}
	select {
	case response, open := <-plain:
		t.Errorf("the plain watch says %+v, %v", response, open)
	case <-time.After(time.Second):
	}
	short, cancel := context.WithTimeout(clientv3.WithRequireLeader(ctx), 3*time.Second)
	defer cancel()
	if _, err := client.Put(short, "a", "2"); !errors.Is(err, rpctypes.ErrNoLeader) && !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a put that wants a leader: %v", err)
	}
	cluster.Run()
	if _, err := client.Put(ctx, "a", "3"); err != nil {
		t.Fatal(err)
	}
	if response := <-plain; len(response.Events) != 1 || string(response.Events[0].Kv.Value) != "3" {
		t.Errorf("the plain watch goes on with %+v", response)
	}
}
