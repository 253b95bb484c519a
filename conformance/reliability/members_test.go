package reliability

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"cairn.dev/conformance/harness"
)

// startMembers starts a cluster whose members have flags and directories of
// their own, and returns them with a client of each.
func startMembers(t testing.TB, directories []string, flags ...[]string) ([]*harness.Server, []*clientv3.Client) {
	t.Helper()
	var members []*harness.Server
	var initial []string
	for number, directory := range directories {
		member := harness.Prepare(t, harness.Subject(), filepath.Join(directory, "data"))
		member.Name = fmt.Sprintf("m%d", number)
		initial = append(initial, member.Name+"="+member.PeerURL())
		members = append(members, member)
	}
	var starting sync.WaitGroup
	errs := make([]error, len(members))
	for number, member := range members {
		member.SetFlags(append([]string{"--initial-cluster=" + strings.Join(initial, ",")}, flags[number]...)...)
		starting.Go(func() { errs[number] = member.TryRun(60 * time.Second) })
	}
	starting.Wait()
	var clients []*clientv3.Client
	for number, member := range members {
		if errs[number] != nil {
			t.Fatalf("member %d: %v", number, errs[number])
		}
		clients = append(clients, member.Client())
	}
	return members, clients
}

// await looks until it is so.
func await(t testing.TB, what string, isSo func() bool) {
	t.Helper()
	for deadline := time.Now().Add(120 * time.Second); !isSo(); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("in vain: %s", what)
		}
	}
}

func leaderOf(client *clientv3.Client, member *harness.Server) (leader, self uint64) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	status, err := client.Status(ctx, member.Endpoint())
	if err != nil {
		return 0, 1
	}
	return status.Leader, status.Header.MemberId
}

// TestGivenUpWritesAreNotProposed lets clients give up while their member
// knows of no leader. What they were told has failed must not happen once there
// is a leader again.
func TestGivenUpWritesAreNotProposed(t *testing.T) {
	none := []string{}
	members, clients := startMembers(t, []string{t.TempDir(), t.TempDir(), t.TempDir()}, none, none, none)
	follower := -1
	await(t, "a follower that knows the leader", func() bool {
		for number, client := range clients {
			if leader, self := leaderOf(client, members[number]); leader != 0 && leader != self {
				follower = number
				return true
			}
		}
		return false
	})
	client := clients[follower]
	for number, member := range members {
		if number != follower {
			member.Pause()
		}
	}
	await(t, "that it loses the leader", func() bool {
		leader, self := leaderOf(client, members[follower])
		return leader == 0 && self != 1
	})
	late, stop := context.WithTimeout(context.Background(), 500*time.Millisecond)
	defer stop()
	if _, err := client.Put(late, "late", "x"); err == nil {
		t.Fatal("a put without a leader succeeded")
	}
	canceled, cancel := context.WithCancel(context.Background())
	given := make(chan error)
	go func() {
		_, err := client.Put(canceled, "canceled", "x")
		given <- err
	}()
	time.Sleep(300 * time.Millisecond)
	cancel()
	if err := <-given; err == nil {
		t.Fatal("a put without a leader succeeded")
	}
	// On the same connection, behind the end of both.
	if _, err := client.Get(harness.Context(t), "late", clientv3.WithSerializable()); err != nil {
		t.Fatal(err)
	}
	for number, member := range members {
		if number != follower {
			member.Resume()
		}
	}
	// It is held behind them, or comes after all that was held.
	await(t, "a put", func() bool {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		_, err := client.Put(ctx, "after", "x")
		return err == nil
	})
	for _, key := range []string{"late", "canceled"} {
		got, err := client.Get(harness.Context(t), key)
		if err != nil || len(got.Kvs) != 0 {
			t.Errorf("%s: %v, %v; its client was told that it failed, before anybody led", key, got, err)
		}
	}
}

// TestLeaseTimesAreTheProposers grants a short lease through members with
// other flags: each of them must hold it for as long as the answer said.
func TestLeaseTimesAreTheProposers(t *testing.T) {
	// The least time to live is one and a half election timeouts: long enough for a lease to be asked about before it ends.
	const least = 6
	short, other := []string{"--election-timeout=4000"}, []string{"--election-timeout=10000"}
	if harness.Subject() == harness.Etcd {
		// etcd's members raise the time to live each by its own flags.
		other = short
	}
	members, clients := startMembers(t, []string{t.TempDir(), t.TempDir(), t.TempDir()}, short, other, short)
	ctx := harness.Context(t)
	// What a member that leads holds shows when it does.
	for number, member := range members {
		id := uint64(0)
		await(t, "the id of a member", func() bool { _, id = leaderOf(clients[number], member); return id > 1 })
		await(t, "that "+member.Name+" leads", func() bool {
			for _, client := range clients {
				ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
				client.MoveLeader(ctx, id)
				cancel()
			}
			leader, self := leaderOf(clients[number], member)
			return leader == self
		})
		// The lease ends before it is asked about where that takes longer.
		harness.Attempt(t, func() error {
			granted, err := clients[0].Grant(ctx, 1)
			if err != nil {
				return err
			}
			if _, err := clients[0].KeepAliveOnce(ctx, granted.ID); err != nil {
				return err
			}
			left, err := clients[0].TimeToLive(ctx, granted.ID)
			if err != nil || left.GrantedTTL != granted.TTL || granted.TTL != least {
				return fmt.Errorf("%s leads: granted for %d s through m0, whose least is %d s, and has %v, %v", member.Name, granted.TTL, least, left, err)
			}
			return nil
		})
	}
}

// TestRefusedWritesAreNotMade fills the quota with many writers at once. A write
// that passes the quota only when it is applied is made and answered with
// NOSPACE, as etcd's are; with one member there must be none. A write that fits
// by itself, but not beside those under way, is told to come again, and is not made
// either.
func TestRefusedWritesAreNotMade(t *testing.T) {
	server := harness.Start(t, harness.Subject(), "--quota-backend-bytes=16000000")
	client := server.Client()
	const writers = 64
	value := strings.Repeat("x", 4_000)
	var mutex sync.Mutex
	var refused []string
	full := 0
	var done sync.WaitGroup
	for writer := range writers {
		done.Go(func() {
			for n := range 4_000 {
				key := fmt.Sprintf("fill/%02d/%04d", writer, n)
				ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
				_, err := client.Put(ctx, key, value)
				cancel()
				comeAgain := harness.Subject() == harness.Cairn && errors.Is(err, rpctypes.ErrTooManyRequests)
				if isNoSpace(err) || comeAgain {
					mutex.Lock()
					refused = append(refused, key)
					if isNoSpace(err) {
						full++
					}
					mutex.Unlock()
					if isNoSpace(err) {
						return
					}
				} else if err != nil {
					t.Errorf("a put failed with something other than NOSPACE: %v", err)
					return
				}
			}
		})
	}
	done.Wait()
	made := 0
	for _, key := range refused {
		got, err := client.Get(harness.Context(t), key)
		if err != nil {
			t.Fatal(err)
		}
		made += len(got.Kvs)
	}
	t.Logf("%d writes were refused, %d of them were made", len(refused), made)
	if full != writers {
		t.Errorf("%d of %d writers were told that there is no space", full, writers)
	}
	if made > 0 && harness.Subject() == harness.Cairn {
		t.Errorf("%d writes were made and refused", made)
	}
}

// isNoSpace is for what must be refused for want of room.
func isNoSpace(err error) bool { return errors.Is(err, rpctypes.ErrNoSpace) }
