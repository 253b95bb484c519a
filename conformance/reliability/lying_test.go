package reliability

import (
	"context"
	"math/rand/v2"
	"path/filepath"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"cairn.dev/conformance/audit"
	"cairn.dev/conformance/harness"
)

const lyingWriters = 8

// lyingRun is a member on a lying disk under writers, and what was audited.
type lyingRun struct {
	t       testing.TB
	server  *harness.Server
	client  *clientv3.Client
	disk    *lyingDisk
	history *audit.History
	random  *rand.Rand
	audited int64
	// Sectors and names that were dropped so far.
	sectors, names int
}

func newLyingRun(t *testing.T, flags ...string) *lyingRun {
	t.Helper()
	library := buildLyingDisk(t)
	server := harness.Prepare(t, harness.Subject(), filepath.Join(t.TempDir(), "data"), append([]string{"--snapshot-count=200"}, flags...)...)
	random := rand.New(rand.NewPCG(harness.Seed(t), 1))
	return &lyingRun{
		t: t, server: server, client: server.Client(), disk: lie(t, library, server), history: audit.New(t, ""), random: random, audited: 1,
	}
}

// dropUnsynced kills the process if it still runs, and drops what was not
// synced.
func (r *lyingRun) dropUnsynced() {
	r.t.Helper()
	r.server.Kill()
	sectors, names := r.disk.takeBack(r.random)
	r.sectors, r.names = r.sectors+sectors, r.names+names
}

// start starts the member on what is left, and returns the revision that it is
// back at.
func (r *lyingRun) start() int64 {
	r.t.Helper()
	if err := r.server.TryRun(60 * time.Second); err != nil {
		r.t.Fatalf("the member does not start on what was synced: %v", err)
	}
	return currentRevision(r.t, r.client)
}

// audit holds what is there against what was acknowledged before `promised`.
func (r *lyingRun) audit(round int, promised, last int64) {
	r.t.Helper()
	if last < promised {
		r.t.Fatalf("round %d: revision %d was acknowledged, the member is back at %d; data in %s",
			round, promised, last, keep(r.t, r.server))
	}
	auditPart(r.t, r.client, r.history, r.audited+1, last)
	r.audited = last
	if r.t.Failed() {
		r.t.Fatalf("round %d failed; data in %s", round, keep(r.t, r.server))
	}
}

// finish judges the whole history.
func (r *lyingRun) finish(rounds int) {
	r.t.Helper()
	auditAll(r.t, r.history, r.client)
	acknowledged := r.history.Acknowledged()
	r.t.Logf("%d rounds, %d writes acknowledged, %d requests without an answer, %d unsynced sectors and %d unsynced names dropped, lost 0",
		rounds, acknowledged, r.history.Failures, r.sectors, r.names)
	if acknowledged < writesMin*rounds || r.sectors == 0 {
		r.t.Errorf("%d writes and %d dropped sectors in %d rounds prove little", acknowledged, r.sectors, rounds)
	}
}

// writesMin is how many writes each round has on average, at least.
const writesMin = 5

// pause lets writers write for a moment, or for longer where a few writes take
// that.
func (r *lyingRun) pause() {
	r.t.Helper()
	before := r.history.Acknowledged()
	time.Sleep(time.Duration(20+r.random.IntN(300)) * time.Millisecond)
	await(r.t, "acknowledged writes", func() bool { return r.history.Acknowledged() >= before+writesMin })
}

// TestLyingDiskKills kills a member under load again and again, and each time
// drops what it has not synced.
func TestLyingDiskKills(t *testing.T) {
	rounds := harness.Number(t, "LYING_KILLS", 6)
	run := newLyingRun(t)
	run.start()
	writers := startWriters(run.client, lyingWriters, run.history)
	defer writers.stop()
	for round := range rounds {
		run.pause()
		// Before the kill: what was acknowledged later may be lost with nobody knowing.
		run.server.Kill()
		promised := run.history.Highest()
		run.dropUnsynced()
		if round%50 == 49 {
			t.Logf("%d kills, %d writes acknowledged", round+1, run.history.Acknowledged())
		}
		run.audit(round, promised, run.start())
	}
	writers.stop()
	run.finish(rounds)
}

// TestLyingDiskFinds runs a member that does not sync on the same disk: its
// writes must be found to be lost, or its files to be damaged.
func TestLyingDiskFinds(t *testing.T) {
	run := newLyingRun(t, "--unsafe-no-fsync")
	run.start()
	writers := startWriters(run.client, lyingWriters, run.history)
	defer writers.stop()
	for range 20 {
		run.pause()
		run.server.Kill()
		promised := run.history.Highest()
		run.dropUnsynced()
		if err := run.server.TryRun(60 * time.Second); err != nil {
			return
		}
		if currentRevision(t, run.client) < promised {
			return
		}
	}
	t.Error("a member that syncs nothing has lost nothing")
}

// TestFailingCalls has one call to the disk fail with EIO, a random one of all
// that change or sync something, at a start or later. The member may end, and
// may go on if the call was about nothing that counts, but loses nothing.
func TestFailingCalls(t *testing.T) {
	rounds := harness.Number(t, "FAILING_CALLS", 6)
	run := newLyingRun(t)
	run.start()
	writers := startWriters(run.client, lyingWriters, run.history)
	defer writers.stop()
	ended, failed := 0, int64(0)
	for round := range rounds {
		run.pause()
		before := run.disk.get(callsFailed)
		run.disk.set(failAt, int64(run.random.IntN([]int{5, 60, 400}[run.random.IntN(3)])))
		if round%4 == 3 {
			// At the next start.
			run.server.Kill()
			if run.server.TryRun(10*time.Second) != nil {
				ended++
			}
		}
		for deadline := time.Now().Add(5 * time.Second); run.server.Running() && time.Now().Before(deadline); {
			time.Sleep(10 * time.Millisecond)
			if run.disk.get(callsFailed) > before {
				time.Sleep(300 * time.Millisecond)
				break
			}
		}
		if !run.server.Running() {
			if code, err := run.server.Wait(time.Second); err == nil && code == 0 {
				t.Errorf("round %d: the member ends with code 0 after EIO", round)
			}
			ended++
		}
		failed += run.disk.get(callsFailed) - before
		run.server.Kill()
		promised := run.history.Highest()
		run.disk.set(failAt, -1)
		run.dropUnsynced()
		run.audit(round, promised, run.start())
	}
	writers.stop()
	t.Logf("%d calls failed, the member ended by itself %d times", failed, ended)
	if failed == 0 {
		t.Error("no call has failed")
	}
	run.finish(rounds)
}

// TestDiskStates makes the disk slow, full and read-only under load, and then
// kills the member.
func TestDiskStates(t *testing.T) {
	run := newLyingRun(t)
	run.start()
	writers := startWriters(run.client, lyingWriters, run.history)
	defer writers.stop()
	states := []struct {
		name         string
		field        int
		value, usual int64
	}{{"slow", delayMicroseconds, 200_000, 0}, {"full", isFull, 1, 0}, {"read-only", isReadOnly, 1, 0}}
	rounds := harness.Number(t, "DISK_STATES", 3)
	for round := range rounds {
		state := states[round%len(states)]
		run.pause()
		before := run.history.Highest()
		run.disk.set(state.field, state.value)
		time.Sleep(1500 * time.Millisecond)
		ended := !run.server.Running()
		if ended {
			run.server.Wait(time.Second)
		}
		after := run.history.Highest()
		t.Logf("%s: %d more revisions acknowledged, ended by itself: %v", state.name, after-before, ended)
		if state.field == delayMicroseconds && ended {
			t.Errorf("the member ends on a slow disk:\n%s", run.server.LogTail())
		}
		run.server.Kill()
		promised := run.history.Highest()
		run.disk.set(state.field, state.usual)
		run.dropUnsynced()
		run.audit(round, promised, run.start())
	}
	writers.stop()
	run.finish(rounds)
}

// TestClockJumps moves the wall clock of one of three members by an hour, back
// and forth, under load: a lease that is kept alive stays, no write is lost,
// and all members have the same history.
func TestClockJumps(t *testing.T) {
	library := buildLyingDisk(t)
	cluster := harness.StartCluster(t, harness.Subject(), 3, nil)
	// The members begin anew, with the library.
	var disks []*lyingDisk
	for _, member := range cluster.Members {
		member.Stop()
		disks = append(disks, lie(t, library, member))
	}
	cluster.RunAll()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	client := cluster.Client()
	lease, err := client.Grant(ctx, 60)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.Put(ctx, "kept", "alive", clientv3.WithLease(lease.ID)); err != nil {
		t.Fatal(err)
	}
	alive, err := client.KeepAlive(ctx, lease.ID)
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		for range alive {
		}
	}()
	// The key of the lease is not among those.
	history := audit.New(t, ownKeys...)
	writers := startWriters(client, lyingWriters, history)
	defer writers.stop()
	jumps := harness.Number(t, "CLOCK_JUMPS", 6)
	for jump := range jumps {
		disks[jump%3].set(clockShiftSeconds, []int64{3600, -3600, 0}[jump/3%3])
		time.Sleep(700 * time.Millisecond)
	}
	writers.stop()
	kept, err := client.Get(ctx, "kept")
	if err != nil || len(kept.Kvs) != 1 {
		t.Fatalf("a lease that is kept alive has ended: %v, %v", kept, err)
	}
	var members []*clientv3.Client
	for _, member := range cluster.Members {
		members = append(members, member.Client())
	}
	auditAll(t, history, members...)
	t.Logf("%d jumps, %d writes acknowledged, %d requests without an answer", jumps, history.Acknowledged(), history.Failures)
}
