package takeover

import (
	"math/rand"
	"os"
	"strings"
	"testing"
	"time"

	"cairn.dev/conformance/harness"
	"cairn.dev/conformance/network"
)

// TestFaults moves three members there and back while one thing after the other
// breaks: members are killed and stopped, also while they take over what etcd
// left, packets are lost, links are cut. The tool may give up, and is started
// again. FAULT_SECONDS is how long things break in each direction at least (4).
func TestFaults(t *testing.T) {
	t.Parallel()
	s, beset := breakable(t, harness.Etcd)
	for range harness.Number(t, "ROUNDS", 1) {
		crowd := gather(s)
		beset()
		s.only(harness.Cairn, 3)
		beset("--back")
		s.only(harness.Etcd, 3)
		crowd.finish(s)
	}
}

// The same with members of etcd 3.6.
func TestFaultsEarlier(t *testing.T) {
	needEarlier(t)
	t.Parallel()
	s, beset := breakable(t, harness.Etcd36)
	for range harness.Number(t, "ROUNDS", 1) {
		crowd := gather(s)
		beset()
		s.only(harness.Cairn, 3)
		s.awaitVersion(current)
		s.lower()
		beset("--back")
		s.only(harness.Etcd36, 3)
		s.awaitEnd()
		crowd.finish(s)
	}
}

// The same at new addresses, where the members that are added get images while
// things break.
func TestFaultsNewAddresses(t *testing.T) {
	needEarlier(t)
	t.Parallel()
	s, beset := breakable(t, harness.Etcd)
	old := []string{"m0", "m1", "m2"}
	for round := range harness.Number(t, "ROUNDS", 1) {
		crowd := gather(s)
		s.replaced(&old, harness.Cairn, round, beset)
		s.replaced(&old, harness.Etcd, round, beset)
		crowd.finish(s)
	}
}

// And with members of etcd 3.6.
func TestFaultsEarlierNewAddresses(t *testing.T) {
	needEarlier(t)
	t.Parallel()
	s, beset := breakable(t, harness.Etcd36)
	old := []string{"m0", "m1", "m2"}
	for round := range harness.Number(t, "ROUNDS", 1) {
		crowd := gather(s)
		s.toCairnElsewhere(&old, round, beset)
		s.lower()
		s.backElsewhere(&old, round, beset)
		crowd.finish(s)
	}
}

// breakable are three members of a release of etcd in a network, and what runs the
// tool until it has moved them, while things break.
func breakable(t *testing.T, etcd harness.Kind) (s *stage, beset func(args ...string)) {
	t.Helper()
	if os.Geteuid() != 0 {
		harness.Unproved(t, "networks of one's own need root: run this test as root")
	}
	random := rand.New(rand.NewSource(int64(harness.Seed(t))))
	long := time.Duration(harness.Number(t, "FAULT_SECONDS", 4)) * time.Second
	s = stageIn(t, network.New(t, 3), etcd, 3, trimming...)
	return s, func(args ...string) {
		t.Helper()
		begun, trouble := time.Now(), s.disturb(random)
		// The longest part of it is spent with both kinds in the cluster.
		s.after = func() {
			if left := long - time.Since(begun); left > 0 {
				time.Sleep(left / 2)
			}
		}
		runs := s.persist(begun.Add(10*long), trouble, args...)
		t.Logf("%v: %d runs of the tool in %v", args, runs, time.Since(begun).Round(time.Second))
	}
}

// persist runs the tool until it succeeds, the last times without trouble.
func (s *stage) persist(end time.Time, trouble *trouble, direction ...string) (runs int) {
	s.t.Helper()
	const quietMax = 3
	isQuiet := false
	for quiet := 0; quiet < quietMax; runs++ {
		if !isQuiet && time.Now().After(end) {
			s.t.Log(trouble.end())
			isQuiet = true
		}
		if isQuiet {
			quiet++
		}
		done := s.run(nil, hooked(s.t, direction...)...)
		switch {
		case done.code == 0:
			if !isQuiet {
				s.t.Log(trouble.end())
			}
			return runs + 1
		// A check or a step has failed, nobody could be reached, a wait was too long.
		case done.code != 1 && done.code != 2 && done.code != 8, quiet == quietMax:
			s.t.Fatalf("exit %d:\n%s", done.code, done.out)
		}
		s.t.Logf("exit %d: %s", done.code, lastLine(done.out))
	}
	return runs
}

// lastLine is why the tool gave up.
func lastLine(text string) string {
	for line := range strings.SplitSeq(text, "\n") {
		if strings.HasPrefix(line, "Error") {
			return line
		}
	}
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return lines[len(lines)-1]
}
