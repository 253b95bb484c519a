package cluster

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"cairn.dev/conformance/harness"
)

// lostLogExit is how a member of Cairn ends whose log is proven to be lost.
const lostLogExit = 65

// A member that is set back to an older copy of its directory has forgotten
// what it acknowledged. It must not go on voting: it ends at the leader's first
// heartbeat, and at each start again.
func TestSetBack(t *testing.T) {
	t.Parallel()
	kind := harness.Subject()
	cluster := start(t, kind, 3)
	victim := cluster.Follower()
	victimID := hex(t, victim)
	put := func(from, to int) {
		for at := from; at < to; at++ {
			cluster.MustCtl("put", fmt.Sprintf("key%02d", at), "value")
		}
		cluster.AwaitLevel()
	}
	put(0, 10)
	victim.Stop()
	backup := filepath.Join(t.TempDir(), "backup")
	copyTree(t, victim.DataDir, backup)
	setBack := func() {
		victim.Stop()
		if err := os.RemoveAll(victim.DataDir); err != nil {
			t.Fatal(err)
		}
		copyTree(t, backup, victim.DataDir)
	}
	victim.Run()
	put(10, 30)
	setBack()

	// Whether it is ready before it hears of the leader is a matter of luck.
	ends := func(texts ...string) {
		t.Helper()
		before := len(victim.Log())
		_ = victim.TryRun(startMax)
		code, err := victim.Wait(settleMax)
		if err != nil {
			t.Fatalf("%v: %s", err, victim.LogTail())
		}
		log := victim.Log()[before:]
		for _, text := range texts {
			if !strings.Contains(log, text) {
				t.Errorf("the log does not say %q: %s", text, victim.LogTail())
			}
		}
		if kind == harness.Cairn && code != lostLogExit {
			t.Errorf("exit code %d", code)
		}
		if code == 0 {
			t.Error("it ended as if nothing had happened")
		}
	}
	if kind == harness.Etcd {
		ends("tocommit(", "is out of range [lastIndex(")
		ends("tocommit(", "is out of range [lastIndex(")
	} else {
		mark := filepath.Join(victim.DataDir, "member", "lost-log")
		way := "etcdctl member remove " + victimID
		ends("holds every entry up to ", "but its Raft log ends at entry ", way, "add it again as a learner")
		if text, err := os.ReadFile(mark); err != nil || !strings.Contains(string(text), way) {
			t.Errorf("the mark in the directory: %q, %v", text, err)
		}
		ends("must not start again", way, "--unsafe-ignore-lost-log")
		overrides(t, cluster, victim)
		if _, err := os.Stat(mark); err == nil {
			t.Error("the mark is still there")
		}
		setBack()
		ends("holds every entry up to ", way)
	}

	// The way back.
	cluster.MustChange("member", "remove", victimID)
	cluster.Drop(victim)
	learner := cluster.Prepare()
	cluster.MustChange("member", "add", learner.Name, "--learner", "--peer-urls="+learner.PeerURL())
	cluster.Joining(learner).Run()
	learnerID := hex(t, learner)
	promoted := cluster.Ctl("member", "promote", learnerID)
	for deadline := time.Now().Add(settleMax); promoted.Code != 0 && time.Now().Before(deadline); time.Sleep(100 * time.Millisecond) {
		promoted = cluster.Ctl("member", "promote", learnerID)
	}
	if promoted.Code != 0 {
		t.Fatalf("the learner is not promoted: %s", promoted.Stderr)
	}
	cluster.Members = append(cluster.Members, learner)
	put(30, 40)
	for _, member := range cluster.Members {
		if got := member.MustCtl("get", "key", "--prefix", "--count-only", "--write-out=fields"); !strings.Contains(got, `"Count" : 40`) {
			t.Errorf("%s: the acknowledged keys: %s", member.Name, got)
		}
	}
}

// overrides starts a member on its old directory although that is marked. Its
// leader holds on to what it was told, so it catches up with the next leader.
func overrides(t *testing.T, cluster *Cluster, victim *harness.Server) {
	t.Helper()
	leader := cluster.Leader()
	var other *harness.Server
	for _, member := range cluster.Members {
		if member != leader && member != victim {
			other = member
		}
	}
	victim.SetFlags("--unsafe-ignore-lost-log")
	running := make(chan error)
	go func() { running <- victim.TryRun(startMax) }()
	moveOn(t, leader, other)
	if err := <-running; err != nil {
		t.Fatalf("it is told to start all the same: %v", err)
	}
	cluster.AwaitLevel()
	victim.Stop()
	victim.SetFlags()
	victim.Run()
	cluster.AwaitLevel()
}

// moveOn has a member lead in the place of another one. A busy machine may
// give up the transfer, or make another one the leader before.
func moveOn(t *testing.T, leader, next *harness.Server) {
	t.Helper()
	before, to := id(t, leader), hex(t, next)
	for deadline := time.Now().Add(settleMax); ; time.Sleep(50 * time.Millisecond) {
		if now, ok := statusOf(next); ok && now.Leader != 0 && now.Leader != before {
			return
		}
		result := leader.Ctl("move-leader", to)
		if time.Now().After(deadline) {
			t.Fatalf("%s still leads: %s%s", leader.Name, result.Stdout, result.Stderr)
		}
	}
}

// A member that lost its whole directory, and joins under its old id, ends too.
func TestEmptied(t *testing.T) {
	t.Parallel()
	kind := harness.Subject()
	cluster := start(t, kind, 3)
	victim := cluster.Follower()
	for at := range 10 {
		cluster.MustCtl("put", fmt.Sprintf("key%02d", at), "value")
	}
	cluster.AwaitLevel()
	victim.Stop()
	if err := os.RemoveAll(victim.DataDir); err != nil {
		t.Fatal(err)
	}
	victim.InitialState = "existing"
	before := len(victim.Log())
	_ = victim.TryRun(startMax)
	if _, err := victim.Wait(settleMax); err != nil {
		t.Fatalf("%v: %s", err, victim.LogTail())
	}
	want := "its Raft log ends at entry 0"
	if kind == harness.Etcd {
		want = "is out of range [lastIndex(0)]"
	}
	if log := victim.Log()[before:]; !strings.Contains(log, want) {
		t.Errorf("the log does not say %q: %s", want, victim.LogTail())
	}
}

func copyTree(t *testing.T, from, to string) {
	t.Helper()
	if err := os.CopyFS(to, os.DirFS(from)); err != nil {
		t.Fatal(err)
	}
}

// A member whose log ends before what it has applied from it, because only the
// log is an older copy, would forget its vote. It does not start, and changes
// nothing: with its own log it goes on.
func TestSetBackLogAlone(t *testing.T) {
	t.Parallel()
	kind := harness.Subject()
	member := harness.Start(t, kind, "--snapshot-count=10", "--snapshot-catchup-entries=5")
	put := func(from, to int) {
		for at := from; at < to; at++ {
			member.MustCtl("put", fmt.Sprintf("key%03d", at), "value")
		}
	}
	put(0, 3)
	member.Stop()
	log := filepath.Join(member.DataDir, "member", "wal")
	older, own := filepath.Join(t.TempDir(), "older"), filepath.Join(t.TempDir(), "own")
	copyTree(t, log, older)
	member.Run()
	put(3, 53)
	member.Stop()
	exchange := func(with string) {
		if err := os.RemoveAll(log); err != nil {
			t.Fatal(err)
		}
		copyTree(t, with, log)
	}
	copyTree(t, log, own)
	exchange(older)
	for range 2 {
		before := len(member.Log())
		_ = member.TryRun(startMax)
		code, err := member.Wait(settleMax)
		if err != nil || code == 0 {
			t.Fatalf("code %d, %v: %s", code, err, member.LogTail())
		}
		if said := member.Log()[before:]; kind == harness.Cairn && !strings.Contains(said, "ends at entry ") {
			t.Errorf("the log does not say why: %s", member.LogTail())
		}
	}
	exchange(own)
	member.Run()
	put(53, 60)
	if got := member.MustCtl("get", "key", "--prefix", "--count-only", "--write-out=fields"); !strings.Contains(got, `"Count" : 60`) {
		t.Errorf("the acknowledged keys: %s", got)
	}
}
