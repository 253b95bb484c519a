package cluster

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"cairn.dev/conformance/harness"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// electionTimeout is the default of --election-timeout.
const electionTimeout = time.Second

// writers put keys of their own at every member until they are told to stop,
// and know which puts were acknowledged.
type writers struct {
	mutex sync.Mutex
	acked []string
	stop  context.CancelFunc
	group sync.WaitGroup
}

// write starts writers, each at one member.
func write(t testing.TB, members []*harness.Server) *writers {
	ctx, cancel := context.WithCancel(harness.Context(t))
	writers := &writers{stop: cancel}
	for at, member := range members {
		for thread := range 2 {
			client := member.Client()
			writers.group.Go(func() { writers.run(ctx, client, fmt.Sprintf("m%d-%d", at, thread)) })
		}
	}
	t.Cleanup(writers.Stop)
	return writers
}

func (w *writers) run(ctx context.Context, client *clientv3.Client, name string) {
	for number := 0; ctx.Err() == nil; number++ {
		key := fmt.Sprintf("key-%s-%d", name, number)
		put, cancel := context.WithTimeout(ctx, 2*time.Second)
		_, err := client.Put(put, key, "value of "+key)
		cancel()
		if err == nil {
			w.mutex.Lock()
			w.acked = append(w.acked, key)
			w.mutex.Unlock()
		}
		time.Sleep(time.Millisecond)
	}
}

// Stop ends the writers and waits for them.
func (w *writers) Stop() {
	w.stop()
	w.group.Wait()
}

// Acked is how many puts were acknowledged.
func (w *writers) Acked() int {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	return len(w.acked)
}

// await waits until a number of further puts are acknowledged and returns how
// long that took.
func (w *writers) await(t testing.TB, more int, limit time.Duration) time.Duration {
	t.Helper()
	began, target := time.Now(), w.Acked()+more
	for w.Acked() < target {
		if time.Since(began) > limit {
			t.Fatalf("only %d of %d puts are acknowledged after %v", more-(target-w.Acked()), more, limit)
		}
		time.Sleep(2 * time.Millisecond)
	}
	return time.Since(began)
}

// check demands that every acknowledged put is there, on every member.
func (w *writers) check(t testing.TB, cluster *Cluster) {
	t.Helper()
	cluster.AwaitLevel()
	for _, member := range cluster.Members {
		client := member.Client()
		answer, err := client.Get(harness.Context(t), "key-", clientv3.WithPrefix(), clientv3.WithSerializable())
		if err != nil {
			t.Fatal(err)
		}
		values := map[string]string{}
		for _, kv := range answer.Kvs {
			values[string(kv.Key)] = string(kv.Value)
		}
		for _, key := range w.acked {
			if values[key] != "value of "+key {
				t.Errorf("%s has %q under `%s`, whose put was acknowledged", member.Name, values[key], key)
			}
		}
	}
}

// awaitOther waits until a member has another leader than that one.
func awaitOther(t testing.TB, member *harness.Server, leader uint64) Status {
	t.Helper()
	for deadline := time.Now().Add(settleMax); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		if now, ok := statusOf(member); ok && now.Leader != 0 && now.Leader != leader {
			return now
		}
	}
	t.Fatalf("the leader is still the same after %v\n%s", settleMax, member.LogTail())
	return Status{}
}

// A leader whose disk does not sync for an election timeout hands over, and
// nothing it acknowledged is lost when it is killed before its disk is back.
func TestStalledLeaderHandsOver(t *testing.T) {
	cluster := prepare(t, harness.Subject(), 3)
	disks := prepareDisks(t, cluster.Members)
	cluster.Run()
	writers := write(t, cluster.Members)
	var leader *harness.Server
	harness.Attempt(t, func() error {
		disks.Recover()
		// Chosen before the stall: a member whose disk stalls may answer nobody, and then the members agree on no leader.
		leader = cluster.Leader()
		before, seen := mustStatus(t, leader), len(leader.Log())
		other := cluster.Follower()
		writers.await(t, 50, settleMax)
		disks.Stall(leader)
		stalled := time.Now()
		now := awaitOther(t, other, before.ID)
		took := time.Since(stalled)
		t.Logf("handed over after %v, %.2f election timeouts; with the other members writing again after %v more",
			took, took.Seconds()/electionTimeout.Seconds(), writers.await(t, 50, settleMax))
		if now.Term != before.Term+1 {
			return fmt.Errorf("the term went from %d to %d: an election, not a hand-over", before.Term, now.Term)
		}
		if took < electionTimeout || took > 3*electionTimeout {
			return fmt.Errorf("handed over after %v, with an election timeout of %v", took, electionTimeout)
		}
		if log := leader.Log()[seen:]; !strings.Contains(log, "handing leadership over") {
			return fmt.Errorf("it does not say why it hands over:\n%s", leader.LogTail())
		}
		return nil
	})
	writers.await(t, 200, settleMax)
	leader.Kill()
	writers.await(t, 50, settleMax)
	writers.Stop()

	disks.Recover()
	for _, member := range cluster.Members {
		member.Kill()
	}
	cluster.Run()
	cluster.Leader()
	writers.check(t, cluster)
}

// A stalled leader that is waited for goes on as a follower.
func TestStalledLeaderComesBack(t *testing.T) {
	cluster := prepare(t, harness.Subject(), 3)
	disks := prepareDisks(t, cluster.Members)
	cluster.Run()
	writers := write(t, cluster.Members)
	harness.Attempt(t, func() error {
		// Asked before the stall, as above.
		leader, other := cluster.Leader(), cluster.Follower()
		before := id(t, leader)
		writers.await(t, 50, settleMax)
		disks.Stall(leader)
		awaitOther(t, other, before)
		writers.await(t, 200, settleMax)
		disks.Recover()
		writers.await(t, 200, settleMax)
		// It may, once the machine has caused another election.
		if now := cluster.Leader(); now == leader {
			return fmt.Errorf("%s leads again", leader.Name)
		}
		return nil
	})
	writers.Stop()
	writers.check(t, cluster)
}

// A follower whose disk stalls costs nothing but its own clients.
func TestStalledFollower(t *testing.T) {
	cluster := prepare(t, harness.Subject(), 3)
	disks := prepareDisks(t, cluster.Members)
	cluster.Run()
	var stalled *harness.Server
	var all []*writers
	harness.Attempt(t, func() error {
		disks.Recover()
		var others []*harness.Server
		leader := cluster.Leader()
		stalled = cluster.Follower()
		for _, member := range cluster.Members {
			if member != stalled {
				others = append(others, member)
			}
		}
		before := mustStatus(t, leader)
		writers := write(t, others)
		defer writers.Stop()
		all = append(all, writers)
		writers.await(t, 50, settleMax)
		disks.Stall(stalled)
		// Puts that wait for its disk would have to wait for the end of all this.
		for began := time.Now(); time.Since(began) < 4*electionTimeout; {
			writers.await(t, 20, settleMax)
		}
		if after := mustStatus(t, leader); after.Leader != before.ID || after.Term != before.Term {
			return fmt.Errorf("the leader or the term changed: %+v, then %+v", before, after)
		}
		stalled.Kill()
		writers.await(t, 50, settleMax)
		return nil
	})
	disks.Recover()
	for _, member := range cluster.Members {
		member.Kill()
	}
	cluster.Run()
	cluster.Leader()
	for _, writers := range all {
		writers.check(t, cluster)
	}
}
