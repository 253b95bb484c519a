package reliability

import (
	"context"
	"math/rand/v2"
	"testing"
	"time"

	"cairn.dev/conformance/audit"
	"cairn.dev/conformance/harness"
)

// TestKill ends the server with SIGKILL again and again while 16 writers and
// some followers are at it, holds what the clients know against what is there
// after each restart, and judges the whole history in the end.
//
// It does not prove durability, because the page cache survives the process:
// TestSyncBeforeAnswer and the power cuts of the crates' own tests do.
func TestKill(t *testing.T) {
	rounds := harness.Number(t, "KILL_ROUNDS", 5)
	const writerCount, followerCount, writesMin = 16, 4, 10

	server := harness.Start(t, harness.Subject(), "--quota-backend-bytes=8589934592")
	history := audit.New(t, "")
	writers := startWriters(server.Client(), writerCount, history)
	defer writers.stop()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	for range followerCount {
		follow(ctx, t, server.Client(), history)
	}

	reader := server.Client()
	audited := int64(1)
	for round := range rounds {
		before := history.Acknowledged()
		time.Sleep(time.Duration(20+rand.IntN(400)) * time.Millisecond)
		await(t, "acknowledged writes", func() bool { return history.Acknowledged() >= before+writesMin })
		server.Kill()
		promised := history.Highest()
		server.Run()
		last := currentRevision(t, reader)
		if last < promised {
			t.Fatalf("round %d: revision %d was acknowledged, the server is back at %d", round, promised, last)
		}
		auditPart(t, reader, history, audited+1, last)
		if t.Failed() {
			t.Fatalf("round %d of %d failed; data in %s", round, rounds, keep(t, server))
		}
		audited = last
	}

	writers.stop()
	last := auditAll(t, history, reader)
	acknowledged := history.Acknowledged()
	t.Logf("%d rounds, %d writes acknowledged, %d requests without an answer, %d answers, revision %d",
		rounds, acknowledged, history.Failures, history.Since(0), last)
	if acknowledged < rounds*writesMin {
		t.Errorf("only %d writes were acknowledged: the test has proved little", acknowledged)
	}
}
