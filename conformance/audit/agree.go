package audit

import (
	"context"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"cairn.dev/conformance/harness"
)

// healMax is how long a cluster may take until all members are level again
// once nothing is broken any more.
const healMax = 2 * time.Minute

// Agree waits until all members are at the same revision, and gives the history
// what each has up to there. It is an error if their hashes differ.
func (h *History) Agree(t testing.TB, cluster *harness.Cluster, clients []*clientv3.Client) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), healMax)
	defer cancel()
	// A write through each member says that it takes part again.
	var last int64
	for number, client := range clients {
		response, err := untilAnswered(ctx, client)
		if err != nil {
			t.Fatalf("member %d does not take writes %v after all was mended: %v\n%s", number, healMax, err, cluster.Members[number].LogTail())
		}
		last = response.Header.Revision
	}
	var watches []Watch
	var hash uint32
	for number, client := range clients {
		// A linearizable read makes the member level with the last write.
		if _, err := client.Get(ctx, "level"); err != nil {
			t.Fatalf("member %d: %v", number, err)
		}
		watches = append(watches, Everything(t, client, firstRevision, last))
		answer, err := client.HashKV(ctx, cluster.Members[number].Endpoint(), last)
		if err != nil {
			t.Fatalf("member %d: hash: %v", number, err)
		}
		if number == 0 {
			hash = answer.Hash
		}
		if answer.Hash != hash {
			t.Errorf("member %d has the hash %x at revision %d, member 0 has %x", number, answer.Hash, last, hash)
		}
	}
	h.End(firstRevision, last, watches...)
}

// firstRevision is that of the first write to an empty store.
const firstRevision = 2

func untilAnswered(ctx context.Context, client *clientv3.Client) (*clientv3.PutResponse, error) {
	for {
		once, cancel := context.WithTimeout(ctx, requestMax)
		response, err := client.Put(once, "level", "")
		cancel()
		if err == nil || ctx.Err() != nil {
			return response, err
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// Everything is what a fresh watch of all keys is told of some revisions.
func Everything(t testing.TB, client *clientv3.Client, first, last int64) Watch {
	t.Helper()
	watch := Watch{First: first}
	if last < first {
		return watch
	}
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	for response := range client.Watch(ctx, "\x00", clientv3.WithFromKey(), clientv3.WithRev(first)) {
		if err := response.Err(); err != nil {
			t.Fatalf("watch from revision %d: %v", first, err)
		}
		for _, event := range Events(response) {
			if event.Revision > last {
				return watch
			}
			watch.Events = append(watch.Events, event)
		}
		if n := len(watch.Events); n > 0 && watch.Events[n-1].Revision == last && response.Header.Revision >= last {
			return watch
		}
	}
	t.Fatalf("watch from revision %d ended before revision %d, after %d events", first, last, len(watch.Events))
	return watch
}

// Events are those of a message of a watch.
func Events(response clientv3.WatchResponse) (found []Event) {
	for _, event := range response.Events {
		change := Write{Key: string(event.Kv.Key), Value: string(event.Kv.Value), Deleted: event.Type == clientv3.EventTypeDelete}
		found = append(found, Event{Revision: event.Kv.ModRevision, Write: change})
	}
	return found
}
