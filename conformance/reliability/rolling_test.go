package reliability

import (
	"os"
	"path/filepath"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"cairn.dev/conformance/audit"
	"cairn.dev/conformance/harness"
)

// TestRolling takes three members under load from an older build to this one
// and back, one member at a time, each of them stopped or killed. No
// acknowledged write is lost, and all members have the same history.
func TestRolling(t *testing.T) {
	old := os.Getenv("CAIRN_OLD_BIN")
	if old == "" {
		t.Skip("CAIRN_OLD_BIN names no older build")
	}
	older := filepath.Join(t.TempDir(), "etcd")
	if err := os.Symlink(old, older); err != nil {
		t.Fatal(err)
	}
	newer := harness.Binary(t, harness.Cairn)
	founded := harness.StartCluster(t, harness.Cairn, 3, nil)
	for _, member := range founded.Members {
		member.Stop()
	}
	cluster := founded.Twin("--snapshot-count=300")
	for _, member := range cluster.Members {
		member.SetBinary(older)
	}
	cluster.RunAll()
	client, history := cluster.Client(), audit.New(t, "")
	writers := startWriters(client, 8, history)
	defer writers.stop()
	audited, rounds := int64(1), harness.Number(t, "ROLLING_ROUNDS", 1)
	part := func() {
		promised := history.Highest()
		last := currentRevision(t, client)
		if last < promised {
			t.Fatalf("revision %d was acknowledged, the members are at %d", promised, last)
		}
		auditPart(t, client, history, audited+1, last)
		audited = last
	}
	for round := range rounds {
		for pass, binary := range []string{newer, older} {
			for number, member := range cluster.Members {
				if (round+pass+number)%2 == 0 {
					member.Stop()
				} else {
					member.Kill()
				}
				member.SetBinary(binary)
				member.Run()
				// The next one goes only when this one serves what the others have.
				currentRevision(t, member.Client())
				part()
			}
			t.Logf("round %d: all members run %s, %d writes acknowledged", round, []string{"this build", "the older one"}[pass], history.Acknowledged())
		}
	}
	writers.stop()
	var members []*clientv3.Client
	for _, member := range cluster.Members {
		members = append(members, member.Client())
	}
	auditAll(t, history, members...)
	t.Logf("%d members were replaced, %d writes acknowledged, %d requests without an answer, lost 0", 6*rounds, history.Acknowledged(), history.Failures)
}
