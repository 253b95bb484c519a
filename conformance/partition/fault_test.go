package partition

import (
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"cairn.dev/conformance/harness"
)

// scene is a cluster in a network that can be broken, and its leader.
type scene struct {
	t       *testing.T
	network *network
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
		s.network.between(s.leader, link{cut: true})
		return func() { s.network.between(s.leader, link{}) }
	}},
	{name: "LeaderHearsNobody", inject: func(s *scene) func() {
		return s.oneWay(func(member int) (from, to int) { return member, s.leader })
	}},
	{name: "NobodyHearsLeader", inject: func(s *scene) func() {
		return s.oneWay(func(member int) (from, to int) { return s.leader, member })
	}},
	{name: "LeaderAndFollowerCut", inject: func(s *scene) func() {
		follower := (s.leader + 1) % len(s.cluster.Members)
		set := func(link link) {
			s.network.set(s.leader, follower, link)
			s.network.set(follower, s.leader, link)
		}
		set(link{cut: true})
		return func() { set(link{}) }
	}},
	{name: "Loss", inject: func(s *scene) func() {
		s.network.all(link{loss: 0.2})
		return func() { s.network.all(link{}) }
	}},
	{name: "Delay", inject: func(s *scene) func() {
		s.network.all(link{delay: 50 * time.Millisecond})
		return func() { s.network.all(link{}) }
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
	set := func(link link) {
		for member := range s.cluster.Members {
			if from, to := direction(member); from != to {
				s.network.set(from, to, link)
			}
		}
	}
	set(link{cut: true})
	return func() { set(link{}) }
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
	network := newNetwork(t, 3)
	s := &scene{t: t, network: network, cluster: harness.StartCluster(t, harness.Subject(), 3, network)}
	for member := range s.cluster.Members {
		s.clients = append(s.clients, s.cluster.Client(member))
	}
	s.leader = s.cluster.Leader(s.clients)
	return s
}

func (f fault) run(t *testing.T) {
	s := newScene(t)
	record := newRecord()
	load := startLoad(s.clients, record, 10*time.Millisecond)
	defer load.stop()
	time.Sleep(time.Second)
	quiet := record.since(0)
	if quiet == 0 {
		t.Fatal("nobody was answered before anything was broken")
	}
	broken := record.now()
	mend := f.inject(s)
	time.Sleep(f.lasts)
	during := record.since(broken)
	mend()
	mended := record.now()
	time.Sleep(3 * time.Second)
	after := record.since(mended)
	load.stop()

	if during == 0 && !f.outage {
		t.Errorf("nobody was answered in the %v of the fault", f.lasts)
	}
	record.check(t, agreed(t, s.cluster, s.clients))
	t.Logf("answered: %d in 1 s before, %d in %v of the fault, %d in 3 s after; %d without an answer",
		quiet, during, f.lasts, after, record.failures)
	if after == 0 {
		t.Error("nobody was answered in 3 s after all was mended")
	}
}
