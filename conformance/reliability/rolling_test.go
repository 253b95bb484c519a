package reliability

import (
	"os"
	"path/filepath"
	"testing"

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
	client, ledger := cluster.Client(), newLedger()
	writers := startWriters(client, 8, ledger)
	defer writers.stop()
	audited, rounds := int64(1), harness.Number(t, "ROLLING_ROUNDS", 1)
	var history []change
	audit := func() {
		promised := ledger.highestAcknowledged()
		last := currentRevision(t, client)
		if last < promised {
			t.Fatalf("revision %d was acknowledged, the members are at %d", promised, last)
		}
		found := readHistory(t, client, audited+1, last)
		ledger.audit(t, found, audited+1, last)
		history, audited = append(history, found...), last
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
				audit()
			}
			t.Logf("round %d: all members run %s, %d writes acknowledged", round, []string{"this build", "the older one"}[pass], len(ledger.acknowledged))
		}
	}
	writers.stop()
	last := settledRevision(t, client)
	for number, member := range cluster.Members {
		own := readHistory(t, member.Client(), 2, last)
		ledger.audit(t, own, 2, last)
		t.Logf("member %d has all %d changes of %d revisions", number, len(own), last)
	}
	t.Logf("%d members were replaced, %d writes acknowledged, %d of unknown outcome, lost 0", 6*rounds, len(ledger.acknowledged), ledger.failed)
}
