// Package soak keeps three members at work for hours, beside faults and what
// operators do, and looks at what they keep: memory, descriptors, threads,
// disk. Nothing of that may grow, and no write may be lost.
package soak

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"cairn.dev/conformance/harness"
)

const (
	size = 3
	// How often the members are looked at.
	sampleEvery = 5 * time.Second
	// Share of the rate that the cluster takes at most.
	loadShare = 0.7
)

// TestSoak loads three members for MINUTES (skipped without) at 70 % of what
// they take, and every FAULT_SECONDS (30) something happens to one of them.
// Member 0 is stopped and goes on, but is never restarted, so that what it
// keeps can be followed.
func TestSoak(t *testing.T) {
	minutes := harness.Number(t, "MINUTES", 0)
	if minutes == 0 {
		t.Skip("MINUTES says for how long; make soak")
	}
	seed := uint64(harness.Number(t, "SEED", int(time.Now().Unix())))
	t.Logf("seed %d", seed)
	cluster := harness.StartCluster(t, harness.Subject(), size, nil,
		"--snapshot-count=10000", "--auto-compaction-mode=revision", "--auto-compaction-retention=200000")
	load := newLoad(t, cluster)
	rate := load.measure(20*time.Second) * loadShare
	t.Logf("load: %.0f requests/s, %d %% of what %d clients take", rate, int(loadShare*100), workers)
	load.start(rate)

	samples := newSamples(t, cluster)
	chaos := &chaos{t: t, cluster: cluster, random: rand.New(rand.NewPCG(seed, 1)), counts: map[string]int{}}
	every := time.Duration(harness.Number(t, "FAULT_SECONDS", 30)) * time.Second
	began, nextFault, nextWord := time.Now(), time.Now().Add(every), time.Now().Add(5*time.Minute)
	for time.Since(began) < time.Duration(minutes)*time.Minute && !t.Failed() {
		time.Sleep(sampleEvery)
		samples.take()
		if time.Now().After(nextFault) {
			load.disturbed(chaos.next)
			nextFault = time.Now().Add(every)
		}
		if time.Now().After(nextWord) {
			t.Logf("%v: %s; %s", time.Since(began).Round(time.Second), load.summary(), samples.latest())
			nextWord = time.Now().Add(5 * time.Minute)
		}
	}
	load.stop()
	t.Logf("faults: %v", chaos.counts)
	t.Logf("load: %s", load.summary())
	load.check()
	chaos.equal()
	samples.check(minutes)
}

// chaos is what happens to the members.
type chaos struct {
	t       *testing.T
	cluster *harness.Cluster
	random  *rand.Rand
	counts  map[string]int
}

// next does something, and ends when the cluster is whole again.
func (c *chaos) next() {
	actions := []struct {
		name string
		do   func(number int, member *harness.Server, client *clientv3.Client) error
	}{
		{"killed", func(number int, member *harness.Server, _ *clientv3.Client) error {
			member.Kill()
			time.Sleep(time.Duration(c.random.IntN(3000)) * time.Millisecond)
			member.Run()
			return nil
		}},
		{"restarted", func(number int, member *harness.Server, _ *clientv3.Client) error {
			member.Stop()
			member.Run()
			return nil
		}},
		{"stopped for seconds", func(number int, member *harness.Server, _ *clientv3.Client) error {
			member.Pause()
			time.Sleep(time.Duration(500+c.random.IntN(5000)) * time.Millisecond)
			member.Resume()
			return nil
		}},
		{"leader moved", func(number int, member *harness.Server, client *clientv3.Client) error {
			var clients []*clientv3.Client
			for member := range c.cluster.Members {
				clients = append(clients, c.cluster.Client(member))
			}
			defer closeAll(clients)
			leader := c.cluster.Leader(clients)
			to, err := clients[(leader+1)%size].Status(context.Background(), c.cluster.Members[(leader+1)%size].Endpoint())
			if err != nil {
				return err
			}
			_, err = clients[leader].MoveLeader(context.Background(), to.Header.MemberId)
			return err
		}},
		{"defragmented", func(number int, member *harness.Server, client *clientv3.Client) error {
			_, err := client.Defragment(context.Background(), member.Endpoint())
			return err
		}},
		{"backed up", func(number int, member *harness.Server, client *clientv3.Client) error {
			snapshot, err := client.Snapshot(context.Background())
			if err != nil {
				return err
			}
			defer snapshot.Close()
			part := make([]byte, 1<<20)
			for {
				if _, err := snapshot.Read(part); err != nil {
					return nil
				}
			}
		}},
		{"learner added and removed", func(number int, member *harness.Server, client *clientv3.Client) error {
			ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
			defer cancel()
			learner := c.cluster.AddLearner(ctx, client, harness.Subject())
			// What the cluster is to others again.
			c.cluster.Members = c.cluster.Members[:size]
			learner.Run()
			time.Sleep(3 * time.Second)
			members, err := client.MemberList(ctx)
			if err != nil {
				return err
			}
			for _, member := range members.Members {
				if member.IsLearner {
					_, err = client.MemberRemove(ctx, member.ID)
				}
			}
			learner.Kill()
			return err
		}},
	}
	action, number := actions[c.random.IntN(len(actions))], c.random.IntN(size)
	if action.name == "killed" || action.name == "restarted" {
		number = 1 + c.random.IntN(size-1)
	}
	client := c.cluster.Client(number)
	defer client.Close()
	if err := action.do(number, c.cluster.Members[number], client); err != nil {
		// Leadership may move at any time, and with it what was asked for.
		c.counts[action.name+", refused"]++
		c.t.Logf("%s: %v", action.name, err)
		return
	}
	c.counts[action.name]++
}

// equal compares what all members have.
func (c *chaos) equal() {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	client := c.cluster.Client()
	// Through consensus: each member has everything that was before.
	now, err := client.Get(ctx, "key")
	if err != nil {
		c.t.Fatal(err)
	}
	hashes := map[uint32]bool{}
	for number, member := range c.cluster.Members {
		if _, err := c.cluster.Client(number).Get(ctx, "key"); err != nil {
			c.t.Fatal(err)
		}
		hash, err := client.HashKV(ctx, member.Endpoint(), now.Header.Revision)
		if err != nil {
			c.t.Fatal(err)
		}
		hashes[hash.Hash] = true
	}
	if len(hashes) != 1 {
		c.t.Errorf("the members' hashes at revision %d differ: %v", now.Header.Revision, hashes)
	}
	c.t.Logf("all hashes at revision %d are equal", now.Header.Revision)
}

func closeAll(clients []*clientv3.Client) {
	for _, client := range clients {
		client.Close()
	}
}

// key is one of a worker's.
func key(worker, number int) string { return fmt.Sprintf("soak/%02d/%04d", worker, number) }
