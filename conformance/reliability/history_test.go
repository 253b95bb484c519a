package reliability

import (
	"context"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"cairn.dev/conformance/audit"
)

// currentRevision asks with a linearizable read.
func currentRevision(t testing.TB, client *clientv3.Client) int64 {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for {
		response, err := client.Get(ctx, "none")
		if err == nil {
			return response.Header.Revision
		}
		if ctx.Err() != nil {
			t.Fatalf("no answer to a read: %v", err)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// settledRevision waits until writes that were given up on have taken effect or
// have not.
func settledRevision(t testing.TB, client *clientv3.Client) int64 {
	t.Helper()
	for last := currentRevision(t, client); ; {
		time.Sleep(300 * time.Millisecond)
		now := currentRevision(t, client)
		if now == last {
			return last
		}
		last = now
	}
}

// follow starts a watch that lives through restarts, the next one of a history:
// the client resumes it behind the last revision that it has seen.
func follow(ctx context.Context, t testing.TB, client *clientv3.Client, history *audit.History) {
	number := history.Follow(1)
	events := client.Watch(ctx, "\x00", clientv3.WithFromKey(), clientv3.WithRev(1))
	go func() {
		for response := range events {
			if err := response.Err(); err != nil && ctx.Err() == nil {
				t.Errorf("follower %d was ended: %v", number, err)
			}
			history.Tell(number, audit.Events(response)...)
		}
	}()
}

// auditPart holds what a fresh watch is told of some revisions against what was
// acknowledged, while writers go on.
func auditPart(t testing.TB, client *clientv3.Client, history *audit.History, first, last int64) audit.Watch {
	t.Helper()
	watch := audit.Everything(t, client, first, last)
	for _, broken := range history.Part(watch.Events, first, last) {
		t.Error(broken)
	}
	return watch
}

// auditAll is the end of an audit: writes that were given up on are waited for,
// watches are, and all is judged. It returns the last revision.
func auditAll(t testing.TB, history *audit.History, clients ...*clientv3.Client) int64 {
	t.Helper()
	last := settledRevision(t, clients[0])
	history.Await(t, last)
	var watches []audit.Watch
	for _, client := range clients {
		watches = append(watches, audit.Everything(t, client, 2, last))
	}
	listed, err := clients[0].Get(context.Background(), "\x00", clientv3.WithFromKey(), clientv3.WithRev(last))
	if err != nil {
		t.Fatal(err)
	}
	history.Stored[""] = audit.StoredOf(listed)
	history.End(2, last, watches...)
	history.Check(t)
	return last
}
