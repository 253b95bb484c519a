package reliability

import (
	"context"
	"math/rand/v2"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"cairn.dev/conformance/harness"
)

// TestKill ends the server with SIGKILL again and again while 16 writers and
// some followers are at it, and holds what the clients know against what is
// there after each restart.
//
// It does not prove durability, because the page cache survives the process:
// TestSyncBeforeAnswer and the power cuts of the crates' own tests do.
func TestKill(t *testing.T) {
	rounds := harness.Number(t, "KILL_ROUNDS", 5)
	const writerCount, followerCount, writesMin = 16, 4, 10

	server := harness.Start(t, harness.Subject(), "--quota-backend-bytes=8589934592")
	ledger := newLedger()
	writers := startWriters(server.Client(), writerCount, ledger)
	defer writers.stop()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var followers []*follower
	for range followerCount {
		followers = append(followers, startFollower(ctx, server.Client()))
	}

	reader := server.Client()
	audited := int64(1)
	for round := range rounds {
		before := ledger.count()
		time.Sleep(time.Duration(20+rand.IntN(400)) * time.Millisecond)
		await(t, "acknowledged writes", func() bool { return ledger.count() >= before+writesMin })
		server.Kill()
		promised := ledger.highestAcknowledged()
		server.Run()
		last := currentRevision(t, reader)
		if last < promised {
			t.Fatalf("round %d: revision %d was acknowledged, the server is back at %d", round, promised, last)
		}
		ledger.audit(t, readHistory(t, reader, audited+1, last), audited+1, last)
		if t.Failed() {
			t.Fatalf("round %d of %d failed; data in %s", round, rounds, keep(t, server))
		}
		audited = last
	}

	writers.stop()
	last := settledRevision(t, reader)
	history := readHistory(t, reader, 2, last)
	ledger.audit(t, history, 2, last)
	listed, err := reader.Get(ctx, "\x00", clientv3.WithFromKey(), clientv3.WithRev(last))
	if err != nil {
		t.Fatal(err)
	}
	auditState(t, history, listed)
	for number, follower := range followers {
		follower.audit(t, number, history, last)
	}
	t.Logf("%d rounds, %d writes acknowledged, %d of unknown outcome, revision %d",
		rounds, len(ledger.acknowledged), ledger.failed, last)
	if len(ledger.acknowledged) < rounds*writesMin {
		t.Errorf("only %d writes were acknowledged: the test has proved little", len(ledger.acknowledged))
	}
}
