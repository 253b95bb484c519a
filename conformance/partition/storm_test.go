package partition

import (
	"math/rand/v2"
	"testing"
	"time"

	"cairn.dev/conformance/audit"
	"cairn.dev/conformance/harness"
)

// TestStorm breaks one thing after the other, at random and for random times,
// in one cluster: what the single faults leave behind meets the next ones.
//
// STORM_SECONDS is how long it blows (20), SEED repeats the order of faults,
// though not the timing of the processes.
func TestStorm(t *testing.T) {
	requirePrivilege(t)
	random := rand.New(rand.NewPCG(harness.Seed(t), 1))
	s := newScene(t)
	history := audit.New(t, audit.Keys)
	load := audit.StartLoad(s.clients, history, 10*time.Millisecond)
	defer load.Stop()
	between := func(low, high int) time.Duration { return time.Duration(low+random.IntN(high-low)) * time.Millisecond }
	storm := append([]fault{{name: "OneKilled", inject: func(s *scene) func() {
		member := s.cluster.Members[random.IntN(len(s.cluster.Members))]
		member.Kill()
		return member.Run
	}}}, faults...)
	const answersMin = 100
	count := 0
	for end := history.Now() + time.Duration(harness.Number(t, "STORM_SECONDS", 20))*time.Second; history.Now() < end; count++ {
		fault := storm[random.IntN(len(storm))]
		// Whoever leads may have changed; a stopped or cut off member is asked in vain.
		s.leader = random.IntN(len(s.cluster.Members))
		if random.IntN(4) > 0 {
			s.leader = s.cluster.Leader(s.clients)
		}
		mend := fault.inject(s)
		time.Sleep(between(100, 4000))
		mend()
		mended := history.Now()
		time.Sleep(between(0, 1500))
		// Enough for the history to prove something, also on a busy machine.
		if count := atLeast(history, mended, answersMin); count < answersMin {
			t.Fatalf("after %s only %d were answered in %v", fault.name, count, answeredMax)
		}
	}
	load.Stop()
	history.Agree(t, s.cluster, s.clients)
	history.Check(t)
	t.Logf("%d faults, %d answers, %d without an answer", count, history.Since(0), history.Failures)
	if history.Since(0) < answersMin*count {
		t.Error("too little was answered for this to prove anything")
	}
}
