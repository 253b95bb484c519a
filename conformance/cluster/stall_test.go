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

// A leader whose disk does not sync for an election timeout hands over, and
// nothing it acknowledged is lost when it is killed before its disk is back.
func TestStalledLeaderHandsOver(t *testing.T) {
	cluster := prepare(t, harness.Subject(), 3)
	disks := prepareDisks(t, cluster.Members)
	cluster.Run()
	leader := cluster.Leader()
	before, _ := statusOf(leader)
	other := cluster.Follower()
	writers := write(t, cluster.Members)
	writers.await(t, 50, settleMax)

	disks.Stall(leader)
	stalled := time.Now()
	for {
		now, ok := statusOf(other)
		if ok && now.Leader != 0 && now.Leader != before.ID {
			if now.Term != before.Term+1 {
				t.Errorf("the term went from %d to %d: an election, not a hand-over", before.Term, now.Term)
			}
			break
		}
		if time.Since(stalled) > settleMax {
			t.Fatalf("the leader is still the same after %v\n%s", settleMax, leader.LogTail())
		}
		time.Sleep(5 * time.Millisecond)
	}
	took := time.Since(stalled)
	t.Logf("handed over after %v; with the other members writing again after %v more", took, writers.await(t, 50, settleMax))
	if took < electionTimeout || took > 3*electionTimeout {
		t.Errorf("handed over after %v, with an election timeout of %v", took, electionTimeout)
	}
	if log := leader.Log(); !strings.Contains(log, "handing leadership over") {
		t.Errorf("it does not say why it hands over:\n%s", leader.LogTail())
	}
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
	leader := cluster.Leader()
	writers := write(t, cluster.Members)
	writers.await(t, 50, settleMax)
	disks.Stall(leader)
	time.Sleep(4 * electionTimeout)
	disks.Recover()
	writers.await(t, 200, settleMax)
	writers.Stop()
	if now := cluster.Leader(); now == leader {
		t.Errorf("%s leads again", leader.Name)
	}
	writers.check(t, cluster)
}

// A follower whose disk stalls costs nothing but its own clients.
func TestStalledFollower(t *testing.T) {
	cluster := prepare(t, harness.Subject(), 3)
	disks := prepareDisks(t, cluster.Members)
	cluster.Run()
	leader, stalled := cluster.Leader(), cluster.Follower()
	before, _ := statusOf(leader)
	var others []*harness.Server
	for _, member := range cluster.Members {
		if member != stalled {
			others = append(others, member)
		}
	}
	writers := write(t, others)
	writers.await(t, 50, settleMax)
	disks.Stall(stalled)
	longest := time.Duration(0)
	for began := time.Now(); time.Since(began) < 4*electionTimeout; {
		longest = max(longest, writers.await(t, 1, settleMax))
	}
	t.Logf("the longest time without an acknowledged put: %v", longest)
	if longest > electionTimeout {
		t.Errorf("no put was acknowledged for %v", longest)
	}
	if after, _ := statusOf(leader); after.Leader != before.ID || after.Term != before.Term {
		t.Errorf("the leader or the term changed: %+v, then %+v", before, after)
	}
	stalled.Kill()
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
