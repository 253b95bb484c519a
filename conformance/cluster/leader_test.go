package cluster

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"cairn.dev/conformance/harness"
)

func TestMoveLeader(t *testing.T) {
	cluster := start(t, harness.Subject(), 3)
	leader, target := cluster.Leader(), cluster.Follower()
	if result := target.Ctl("move-leader", hex(t, leader)); result.Code == 0 {
		t.Errorf("a follower moves the leader: %s", result.Stdout)
	}
	if result := leader.Ctl("move-leader", "12345"); !strings.Contains(result.Stderr, "bad leader transferee") {
		t.Errorf("to an unknown member: %s", result.Stderr)
	}
	// A member that does not run for an election timeout causes an election.
	harness.Attempt(t, func() error {
		leader, target := cluster.Leader(), cluster.Follower()
		before := mustStatus(t, leader)
		result := leader.Ctl("move-leader", hex(t, target))
		if want := "Leadership transferred from " + hex(t, leader) + " to " + hex(t, target); !strings.Contains(result.Stdout, want) {
			return fmt.Errorf("it says %q and %q, not %q", result.Stdout, result.Stderr, want)
		}
		if now := cluster.Leader(); now != target {
			return fmt.Errorf("%s leads, not %s", now.Name, target.Name)
		}
		if after := mustStatus(t, target); after.Term != before.Term+1 {
			return fmt.Errorf("the term went from %d to %d", before.Term, after.Term)
		}
		return nil
	})
	cluster.MustCtl("put", "a", "1")
}

// A leader that is asked to end hands over first.
func TestGracefulLeader(t *testing.T) {
	cluster := start(t, harness.Subject(), 3)
	harness.Attempt(t, func() error {
		leader := cluster.Leader()
		before := mustStatus(t, leader)
		began := time.Now()
		leader.Stop()
		took := time.Since(began)
		after := mustStatus(t, cluster.Leader())
		cluster.MustCtl("put", "a", "1")
		leader.Run()
		cluster.AwaitLevel()
		if took > 1500*time.Millisecond {
			return fmt.Errorf("it ended after %v", took)
		}
		if after.Term != before.Term+1 {
			return fmt.Errorf("the term went from %d to %d: an election, not a hand-over", before.Term, after.Term)
		}
		return nil
	})
}

func TestKilledLeader(t *testing.T) {
	cluster := start(t, harness.Subject(), 3)
	cluster.MustCtl("put", "before", "1")
	killed := cluster.Leader()
	killed.Kill()
	cluster.Leader()
	cluster.MustCtl("put", "between", "2")
	if got := cluster.MustCtl("get", "before"); !strings.Contains(got, "1") {
		t.Errorf("read %q", got)
	}
	killed.Run()
	if got := killed.MustCtl("get", "between"); !strings.Contains(got, "2") {
		t.Errorf("the restarted member reads %q", got)
	}
	cluster.AwaitLevel()
}

// All members are killed and started again, with flags that would found
// another cluster: those are not looked at once there is data.
func TestRestartOfAll(t *testing.T) {
	cluster := start(t, harness.Subject(), 3)
	cluster.MustCtl("put", "before", "1")
	ids := []string{}
	for _, member := range cluster.Members {
		ids = append(ids, hex(t, member))
	}
	for _, member := range cluster.Members {
		member.Kill()
		member.SetFlags("--initial-cluster-token=another")
	}
	cluster.Run()
	cluster.Leader()
	for at, member := range cluster.Members {
		if hex(t, member) != ids[at] {
			t.Errorf("%s is %s now, not %s", member.Name, hex(t, member), ids[at])
		}
		if got := member.MustCtl("get", "before"); !strings.Contains(got, "1") {
			t.Errorf("%s reads %q", member.Name, got)
		}
	}
	cluster.AwaitLevel()
}

// Without a quorum there are no writes and no linearizable reads, but what a
// member has can be read.
func TestWithoutQuorum(t *testing.T) {
	t.Parallel()
	cluster := start(t, harness.Subject(), 3)
	cluster.MustCtl("put", "a", "value")
	left := cluster.Follower()
	cluster.AwaitLevel()
	for _, member := range cluster.Members {
		if member != left {
			member.Kill()
		}
	}
	if got := left.MustCtl("get", "a", "--consistency=s"); !strings.Contains(got, "value") {
		t.Errorf("read %q", got)
	}
	for _, args := range [][]string{{"put", "b", "1"}, {"get", "a"}} {
		if result := left.Ctl(append([]string{"--command-timeout=10s"}, args...)...); result.Code == 0 {
			t.Errorf("%v is answered: %s", args, result.Stdout)
		}
	}
	code, body := get(t, left.URL("/health"))
	if code != 503 || !strings.Contains(body, "RAFT NO LEADER") {
		t.Errorf("/health: %d %s", code, body)
	}
	if code, body := get(t, left.URL("/health?serializable=true")); code != 200 {
		t.Errorf("/health?serializable=true: %d %s", code, body)
	}
	for _, line := range []string{
		"lost leader", "serving /health false; no leader", "prober detected unhealthy status",
		"waiting for ReadIndex response took too long, retrying",
		"timed out waiting for read index response (local node might have slow network)",
	} {
		left.AwaitLog(t, line)
	}
	left.Kill()
	if err := left.TryRun(5 * time.Second); err == nil {
		t.Error("a member without a quorum says that it is ready")
	}
	cluster.Run()
	cluster.MustCtl("put", "b", "1")
}
