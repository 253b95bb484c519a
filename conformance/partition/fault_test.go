package partition

import (
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"cairn.dev/conformance/audit"
	"cairn.dev/conformance/harness"
	"cairn.dev/conformance/network"
)

// scene is a cluster in a network that can be broken, and its leader.
type scene struct {
	t       *testing.T
	network *network.Network
	cluster *harness.Cluster
	clients []*clientv3.Client
	leader  int
}

// fault breaks something and returns what mends it.
type fault struct {
	name string
	// lasts is how long it stays; the usual time if zero.
	lasts  time.Duration
	inject func(s *scene) (mend func())
	// outage says that nobody is answered while it lasts.
	outage bool
}

var faults = []fault{
	{name: "LeaderCutOff", inject: func(s *scene) func() {
		s.network.Between(s.leader, network.Link{Cut: true})
		return func() { s.network.Between(s.leader, network.Link{}) }
	}},
	{name: "LeaderHearsNobody", inject: func(s *scene) func() {
		return s.oneWay(func(member int) (from, to int) { return member, s.leader })
	}},
	{name: "NobodyHearsLeader", inject: func(s *scene) func() {
		return s.oneWay(func(member int) (from, to int) { return s.leader, member })
	}},
	{name: "LeaderAndFollowerCut", inject: func(s *scene) func() {
		follower := (s.leader + 1) % len(s.cluster.Members)
		set := func(link network.Link) {
			s.network.Set(s.leader, follower, link)
			s.network.Set(follower, s.leader, link)
		}
		set(network.Link{Cut: true})
		return func() { set(network.Link{}) }
	}},
	{name: "Loss", inject: func(s *scene) func() {
		s.network.All(network.Link{Loss: 0.2})
		return func() { s.network.All(network.Link{}) }
	}},
	{name: "Delay", inject: func(s *scene) func() {
		s.network.All(network.Link{Delay: 50 * time.Millisecond})
		return func() { s.network.All(network.Link{}) }
	}},
	{name: "LeaderStopped", lasts: 10 * time.Second, inject: func(s *scene) func() { return s.pause(s.leader) }},
	{name: "FollowerStopped", lasts: 10 * time.Second, inject: func(s *scene) func() {
		return s.pause((s.leader + 1) % len(s.cluster.Members))
	}},
	{name: "AllKilled", outage: true, lasts: time.Second, inject: func(s *scene) func() {
		for _, member := range s.cluster.Members {
			member.Kill()
		}
		return s.cluster.RunAll
	}},
}

func (s *scene) oneWay(direction func(member int) (from, to int)) func() {
	set := func(link network.Link) {
		for member := range s.cluster.Members {
			if from, to := direction(member); from != to {
				s.network.Set(from, to, link)
			}
		}
	}
	set(network.Link{Cut: true})
	return func() { set(network.Link{}) }
}

func (s *scene) pause(member int) func() {
	s.cluster.Members[member].Pause()
	s.t.Cleanup(s.cluster.Members[member].Resume)
	return s.cluster.Members[member].Resume
}

// TestFaults breaks a cluster of three in one way at a time while 16 clients
// put and get, and holds what they were told against what all members have
// afterwards.
//
// FAULT_SECONDS is how long each fault lasts (6).
func TestFaults(t *testing.T) {
	requirePrivilege(t)
	usual := time.Duration(harness.Number(t, "FAULT_SECONDS", 6)) * time.Second
	for _, fault := range faults {
		t.Run(fault.name, func(t *testing.T) {
			if fault.lasts == 0 {
				fault.lasts = usual
			}
			fault.run(t)
		})
	}
}

func newScene(t *testing.T) *scene {
	t.Helper()
	links := network.New(t, 3)
	s := &scene{t: t, network: links, cluster: harness.StartCluster(t, harness.Subject(), 3, links)}
	for member := range s.cluster.Members {
		s.clients = append(s.clients, s.cluster.Client(member))
	}
	s.leader = s.cluster.Leader(s.clients)
	return s
}

func (f fault) run(t *testing.T) {
	s := newScene(t)
	history := audit.New(t, audit.Keys)
	load := audit.StartLoad(s.clients, history, 10*time.Millisecond)
	defer load.Stop()
	time.Sleep(time.Second)
	quiet := answered(history, 0)
	if quiet == 0 {
		t.Fatal("nobody was answered before anything was broken")
	}
	broken := history.Now()
	mend := f.inject(s)
	time.Sleep(f.lasts)
	// On a busy machine the fault lasts until somebody is answered all the same.
	during := history.Since(broken)
	if !f.outage {
		during = answered(history, broken)
	}
	lasted := history.Now() - broken
	mend()
	mended := history.Now()
	time.Sleep(3 * time.Second)
	after := answered(history, mended)
	load.Stop()

	if during == 0 && !f.outage {
		t.Errorf("nobody was answered in the %v of the fault", lasted)
	}
	history.Agree(t, s.cluster, s.clients)
	history.Check(t)
	t.Logf("answered: %d before, %d in %v of the fault, %d after; %d without an answer", quiet, during, lasted, after, history.Failures)
	if after == 0 {
		t.Errorf("nobody was answered in %v after all was mended", answeredMax)
	}
}

// answeredMax is how long it may take on a busy machine until somebody is
// answered.
const answeredMax = time.Minute

// answered is how many answers have come since a moment; it waits for the first.
func answered(history *audit.History, moment time.Duration) int {
	return atLeast(history, moment, 1)
}

// atLeast is answered that waits for so many.
func atLeast(history *audit.History, moment time.Duration, count int) int {
	for end := time.Now().Add(answeredMax); history.Since(moment) < count && time.Now().Before(end); {
		time.Sleep(20 * time.Millisecond)
	}
	return history.Since(moment)
}
