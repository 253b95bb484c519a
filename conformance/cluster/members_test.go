package cluster

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"cairn.dev/conformance/harness"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
)

func TestThreeMembers(t *testing.T) {
	cluster := start(t, harness.Subject(), 3)
	leader := cluster.Leader()
	for at, member := range cluster.Members {
		key := fmt.Sprintf("key%d", at)
		member.MustCtl("put", key, "value of "+member.Name)
		for _, reader := range cluster.Members {
			if got := reader.MustCtl("get", key); !strings.Contains(got, "value of "+member.Name) {
				t.Errorf("%s reads %q of %s", reader.Name, got, key)
			}
		}
	}
	list := leader.MustCtl("member", "list")
	for _, member := range cluster.Members {
		if !strings.Contains(list, ", started, "+member.Name+", "+member.PeerURL()+", http://"+member.Endpoint()+", false") {
			t.Errorf("%s is not listed as started: %s", member.Name, list)
		}
	}
	cluster.AwaitLevel()
}

// The ids are computed from URLs and token: both kinds of server give the
// same, so that a directory or a client's configuration can name them.
func TestIdsAreEtcds(t *testing.T) {
	list := func(kind harness.Kind, ports []int) string {
		cluster := prepare(t, kind, 3, "--initial-cluster-token=one")
		for at, member := range cluster.Members {
			if ports != nil {
				member.PeerPort = ports[at]
			}
		}
		initial := cluster.Initial()
		for _, member := range cluster.Members {
			member.InitialCluster = initial
		}
		cluster.Run()
		cluster.Leader()
		var ids []string
		for _, member := range cluster.Members {
			ids = append(ids, hex(t, member))
		}
		header := cluster.Members[0].MustCtl("endpoint", "status", "-w", "fields")
		for _, line := range strings.Split(header, "\n") {
			if strings.Contains(line, "ClusterID") {
				ids = append(ids, line)
			}
		}
		for _, member := range cluster.Members {
			member.Kill()
		}
		return strings.Join(ids, " ")
	}
	ports := []int{harness.Port(t), harness.Port(t), harness.Port(t)}
	if etcd, subject := list(harness.Etcd, ports), list(harness.Subject(), ports); etcd != subject {
		t.Errorf("etcd: %s\nours: %s", etcd, subject)
	}
}

func TestAddAndRemove(t *testing.T) {
	t.Parallel()
	cluster := start(t, harness.Subject(), 3)
	cluster.MustCtl("put", "before", "1")
	cluster.Leader()
	added := cluster.Prepare()
	if result := cluster.Ctl("member", "add", added.Name, "--peer-urls=not-a-url"); result.Code == 0 {
		t.Error("a bad URL is taken")
	}
	for deadline := time.Now().Add(settleMax); ; time.Sleep(100 * time.Millisecond) {
		result := cluster.Ctl("member", "add", "other", "--peer-urls="+cluster.Members[0].PeerURL())
		if result.Code == 0 {
			t.Fatal("a URL of another member is taken")
		}
		if strings.Contains(result.Stderr, "Peer URLs already exists") {
			break
		}
		if !strings.Contains(result.Stderr, "unhealthy cluster") || time.Now().After(deadline) {
			t.Fatalf("a URL of another member: %s", result.Stderr)
		}
	}
	said := cluster.MustChange("member", "add", added.Name, "--peer-urls="+added.PeerURL())
	for _, part := range []string{"added to cluster", "ETCD_INITIAL_CLUSTER_STATE=\"existing\"", added.Name + "=" + added.PeerURL()} {
		if !strings.Contains(said, part) {
			t.Errorf("no %q in %q", part, said)
		}
	}
	if list := cluster.MustCtl("member", "list"); !strings.Contains(list, "unstarted") {
		t.Errorf("no unstarted member: %s", list)
	}
	cluster.Joining(added).Run()
	cluster.Members = append(cluster.Members, added)
	if got := added.MustCtl("get", "before"); !strings.Contains(got, "1") {
		t.Errorf("the new member reads %q", got)
	}
	cluster.AwaitLevel()

	gone := cluster.Follower()
	id := hex(t, gone)
	said = cluster.MustChange("member", "remove", id)
	if !strings.Contains(said, id+" removed from cluster") {
		t.Errorf("it says %q", said)
	}
	if _, err := gone.Wait(settleMax); err != nil {
		t.Errorf("the removed member goes on: %v", err)
	}
	cluster.Drop(gone)
	if result := cluster.Ctl("member", "remove", id); !strings.Contains(result.Stderr, "member not found") {
		t.Errorf("removed again: %s", result.Stderr)
	}
	cluster.MustCtl("put", "after", "1")
	cluster.Leader()
	cluster.AwaitLevel()
}

// Of two members under load the leader is removed, through the other one: that
// goes on alone at once, and the removed one ends by itself, also when the word
// that they part only reaches the other after a while.
func TestRemovedLeaderOfTwo(t *testing.T) {
	for _, paused := range []time.Duration{0, 1500 * time.Millisecond} {
		cluster := start(t, harness.Subject(), 2, "--strict-reconfig-check=false")
		leader, last := cluster.Leader(), cluster.Follower()
		ctx, cancel := context.WithCancel(harness.Context(t))
		client := last.Client()
		var puts sync.WaitGroup
		for worker := range 8 {
			puts.Go(func() {
				for ctx.Err() == nil {
					// What is under way when the leader goes may fail.
					client.Put(ctx, fmt.Sprint("busy/", worker), strings.Repeat("v", 1000))
				}
			})
		}
		time.Sleep(300 * time.Millisecond)
		removed := make(chan harness.Result, 1)
		id := hex(t, leader)
		go func() { removed <- leader.Ctl("member", "remove", id) }()
		if paused > 0 {
			time.Sleep(5 * time.Millisecond)
			last.Pause()
			time.Sleep(paused)
			last.Resume()
		}
		// Without the other one, asked at the wrong moment, it may have been refused.
		for result := <-removed; result.Code != 0 && !strings.Contains(result.Stderr, "not found"); {
			result = last.Ctl("member", "remove", id)
		}
		if code, err := leader.Wait(settleMax); err != nil {
			t.Errorf("paused for %v: the removed leader: exit %d, %v", paused, code, err)
		}
		cluster.Drop(leader)
		if now := cluster.Leader(); now != last {
			t.Errorf("paused for %v: %s leads", paused, now.Name)
		}
		if list := last.MustCtl("member", "list"); strings.Count(list, "started") != 1 {
			t.Errorf("paused for %v: %s", paused, list)
		}
		last.MustCtl("put", "after", "1")
		cancel()
		puts.Wait()
	}
}

// A member that a cluster removed does not come back with its old data.
func TestRemovedMemberStaysOut(t *testing.T) {
	t.Parallel()
	cluster := start(t, harness.Subject(), 3)
	gone := cluster.Follower()
	id := hex(t, gone)
	gone.Kill()
	cluster.Drop(gone)
	cluster.MustChange("member", "remove", id)
	if err := gone.TryRun(10 * time.Second); err == nil {
		t.Error("the removed member serves clients")
	}
	cluster.MustCtl("put", "after", "1")
}

func TestUpdate(t *testing.T) {
	t.Parallel()
	cluster := start(t, harness.Subject(), 3)
	moved := cluster.Follower()
	cluster.MustCtl("put", "before", "1")
	port := harness.Port(t)
	url := fmt.Sprintf("http://127.0.0.1:%d", port)
	said := cluster.MustCtl("member", "update", hex(t, moved), "--peer-urls="+url)
	if !strings.Contains(said, "updated in cluster") {
		t.Errorf("it says %q", said)
	}
	moved.Stop()
	moved.PeerPort = port
	moved.Run()
	cluster.MustCtl("put", "after", "1")
	if got := moved.MustCtl("get", "after"); !strings.Contains(got, "1") {
		t.Errorf("the moved member reads %q", got)
	}
	cluster.AwaitLevel()
	if result := cluster.Ctl("member", "update", "12345", "--peer-urls="+url); !strings.Contains(result.Stderr, "member not found") {
		t.Errorf("an unknown member: %s", result.Stderr)
	}
}

// Changes that would cost the quorum are refused, unless the operator insists.
func TestStrictReconfiguration(t *testing.T) {
	t.Parallel()
	// They have to be connected for five seconds. Where starting takes that long, they have been connected for long enough: that shows nothing.
	const connectedMin = 5 * time.Second
	var cluster *Cluster
	for deadline := time.Now().Add(3 * time.Minute); ; {
		cluster = prepare(t, harness.Subject(), 3)
		began := time.Now()
		cluster.Run()
		_, err := cluster.Members[0].Client().MemberAdd(harness.Context(t), []string{"http://127.0.0.1:1"})
		took := time.Since(began)
		if errors.Is(err, rpctypes.ErrUnhealthy) {
			break
		}
		for _, member := range cluster.Members {
			member.Kill()
		}
		if err == nil && took < connectedMin || time.Now().After(deadline) {
			t.Fatalf("added %v after the members were started: %v", took, err)
		}
	}
	down := cluster.Follower()
	id := hex(t, down)
	// Until then a change is refused whatever becomes of the members.
	changed := cluster.MustChange("member", "add", "l", "--learner", "--peer-urls=http://127.0.0.1:1")
	cluster.MustChange("member", "remove", strings.Fields(changed)[1])
	down.Kill()
	for _, member := range cluster.Members {
		if member != down {
			awaitLost(t, member, id)
		}
	}
	cluster.Leader()
	if result := cluster.Ctl("member", "add", "x", "--peer-urls=http://127.0.0.1:1"); !strings.Contains(result.Stderr, "unhealthy cluster") {
		t.Errorf("with a member down: %s", result.Stderr)
	}
	for _, member := range cluster.Members {
		if member == down {
			continue
		}
		if result := cluster.Ctl("member", "remove", hex(t, member)); !strings.Contains(result.Stderr, "unhealthy cluster") {
			t.Errorf("removing one of two: %s", result.Stderr)
		}
	}
	cluster.MustChange("member", "remove", id)
	cluster.Drop(down)
	cluster.MustCtl("put", "a", "1")
}

// awaitLost waits until a member knows that it has no connection to a peer.
func awaitLost(t *testing.T, member *harness.Server, peer string) {
	t.Helper()
	lost := regexp.MustCompile(`(?m)^etcd_network_active_peers\{.*Remote="` + peer + `"\} 0$`)
	for deadline := time.Now().Add(settleMax); ; time.Sleep(20 * time.Millisecond) {
		_, text := page(t, member.URL("/metrics"))
		if lost.MatchString(text) {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s is still connected to %s", member.Name, peer)
		}
	}
}

func TestNotEnoughStarted(t *testing.T) {
	t.Parallel()
	cluster := start(t, harness.Subject(), 1)
	cluster.MustCtl("member", "add", "second", "--peer-urls=http://127.0.0.1:1")
	result := cluster.Ctl("member", "add", "third", "--peer-urls=http://127.0.0.1:2")
	if !strings.Contains(result.Stderr, "not enough started members") {
		t.Errorf("it says %q", result.Stderr)
	}
}

func TestGrowFromOne(t *testing.T) {
	t.Parallel()
	cluster := start(t, harness.Subject(), 1)
	for at := range 200 {
		if at%20 == 0 {
			cluster.MustCtl("put", fmt.Sprintf("key%d", at), "value")
		}
	}
	for range 2 {
		added := cluster.Prepare()
		cluster.MustChange("member", "add", added.Name, "--peer-urls="+added.PeerURL())
		cluster.Joining(added).Run()
		cluster.Members = append(cluster.Members, added)
	}
	cluster.Leader()
	cluster.AwaitLevel()
	cluster.Leader().Kill()
	cluster.Leader()
	cluster.MustCtl("put", "after", "1")
}
