package cluster

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"cairn.dev/conformance/harness"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// promotions is how many learners TestPromotionIsHeardAtOnce promotes.
const promotions = 8

// slowly gives a cluster a heartbeat that takes long: it would make up for a
// lost notice. heardMax is well below that, but enough for a busy machine.
var slowly = []string{"--heartbeat-interval=2000", "--election-timeout=10000"}

const heardMax = time.Second

// Whoever promoted a learner goes on to use it as a voter: it has to hear of
// its promotion from the notice that it is committed, not from the next
// heartbeat.
func TestPromotionIsHeardAtOnce(t *testing.T) {
	for _, size := range []int{1, 3} {
		cluster := start(t, harness.Subject(), size, append(slowly, "--strict-reconfig-check=false")...)
		client := cluster.Leader().Client()
		// Without the notice each of them waits for the next heartbeat: about half of them for longer than is allowed.
		harness.Attempt(t, func() error { return promoteAll(t, cluster, client, size) })
	}
}

// promoteAll promotes one learner after the other, and removes each.
func promoteAll(t *testing.T, cluster *Cluster, client *clientv3.Client, size int) (late error) {
	t.Helper()
	var all []time.Duration
	ctx, lateness := harness.Context(t), harness.WatchLateness(t)
	for range promotions {
		learner := cluster.Prepare()
		added, err := client.MemberAddAsLearner(ctx, []string{learner.PeerURL()})
		if err != nil {
			t.Fatal(err)
		}
		cluster.Joining(learner).Run()
		direct := learner.Client()
		for {
			_, err := client.MemberPromote(ctx, added.Member.ID)
			if err == nil {
				break
			}
			if !strings.Contains(err.Error(), rpctypes.ErrMemberLearnerNotReady.Error()) {
				t.Fatal(err)
			}
			time.Sleep(5 * time.Millisecond)
		}
		lateness.Take()
		promoted := time.Now()
		for {
			status, err := direct.Status(ctx, learner.Endpoint())
			if err != nil {
				t.Fatal(err)
			}
			if !status.IsLearner {
				break
			}
			time.Sleep(time.Millisecond)
		}
		heard, behind := time.Since(promoted), lateness.Take()
		all = append(all, heard)
		if heard > heardMax+behind {
			late = fmt.Errorf("with %d members, a promoted learner heard of it after %v on a machine that is %v late", size, heard, behind)
		}
		remove, cancel := context.WithTimeout(ctx, settleMax)
		if _, err := client.MemberRemove(remove, added.Member.ID); err != nil {
			t.Fatal(err)
		}
		cancel()
		if _, err := learner.Wait(settleMax); err != nil {
			t.Fatal(err)
		}
	}
	slices.Sort(all)
	t.Logf("%d members, %d promotions, heard after %v", size, len(all), all)
	return late
}
