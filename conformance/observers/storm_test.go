package observers

import (
	"math/rand/v2"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"cairn.dev/conformance/audit"
	"cairn.dev/conformance/harness"
)

// TestStorm has clients of members and observers put and get while members
// and observers are killed, and holds what they were told against what all
// have afterwards.
//
// STORM_SECONDS is how long that lasts (20); SIZE how many members there are
// (3).
func TestStorm(t *testing.T) {
	seconds := harness.Number(t, "STORM_SECONDS", 20)
	cluster := harness.StartCluster(t, harness.Subject(), harness.Number(t, "SIZE", 3), nil, "--snapshot-catchup-entries=100")
	members := cluster.Members
	one := start(t, "one", members[0], members[len(members)-1])
	two := start(t, "two", members[len(members)-1], members[0])
	low := start(t, "low", one, two)
	everybody := append(append([]*harness.Server{}, members...), one, two, low)
	observers := everybody[len(members):]

	var clients []*clientv3.Client
	for _, server := range everybody {
		clients = append(clients, server.Client())
	}
	history := audit.New(t, audit.Keys)
	load := audit.StartLoad(clients, history, 10*time.Millisecond)
	defer load.Stop()
	random := rand.New(rand.NewPCG(7, 7))
	kills := 0
	for deadline := time.Now().Add(time.Duration(seconds) * time.Second); time.Now().Before(deadline); {
		// A member every third time: its clients and those that follow it then turn to others.
		victim := observers[random.IntN(len(observers))]
		if kills%3 == 2 {
			victim = members[random.IntN(len(members))]
		}
		victim.Kill()
		kills++
		time.Sleep(time.Duration(random.IntN(1_000)) * time.Millisecond)
		if err := victim.TryRun(levelMax); err != nil {
			t.Fatal(err)
		}
	}
	load.Stop()

	history.Agree(t, &harness.Cluster{Members: everybody}, clients)
	history.Check(t)
	hashes(t, everybody...)
	t.Logf("%d operations, %d without an answer, %d kills", history.Since(0), history.Failures, kills)
	if history.Since(0) < 100 {
		t.Error("hardly anybody was answered")
	}
}
