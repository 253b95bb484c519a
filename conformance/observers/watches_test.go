package observers

import (
	"fmt"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"cairn.dev/conformance/harness"
)

// TestWatchesOverSources: a watch at an observer, and one at an observer of
// that, show each event once and in order while what the first follows dies.
func TestWatchesOverSources(t *testing.T) {
	cluster := harness.StartCluster(t, harness.Subject(), 3, nil)
	ctx := harness.Context(t)
	upper := start(t, "upper", cluster.Members[0], cluster.Members[1])
	lower := start(t, "lower", upper)
	var watches []clientv3.WatchChan
	for _, observer := range []*harness.Server{upper, lower} {
		watch := observer.Client().Watch(ctx, "k", clientv3.WithPrefix(), clientv3.WithCreatedNotify())
		if created := <-watch; !created.Created {
			t.Fatalf("%s: %v", observer.Name, created.Err())
		}
		watches = append(watches, watch)
	}
	written := 0
	write := func(client *clientv3.Client) {
		t.Helper()
		for range 20 {
			key := fmt.Sprintf("k%03d", written)
			// Asked again it may have been done already.
			until(t, "a write", func() bool {
				_, err := client.Txn(briefly(t)).If(clientv3.Compare(clientv3.Version(key), "=", 0)).Then(clientv3.OpPut(key, "")).Commit()
				return err == nil
			})
			written++
		}
	}
	write(upper.Client())
	for _, member := range cluster.Members[:2] {
		// Whichever of the two is followed: it loses that once.
		member.Kill()
		write(cluster.Client(2))
		member.Run()
	}
	upper.AwaitLog(t, "lost what this observer follows")
	write(lower.Client())
	for number, watch := range watches {
		for next := 0; next < written; {
			select {
			case answer, open := <-watch:
				if !open || answer.Err() != nil {
					t.Fatalf("watch %d ends after %d events: %v", number, next, answer.Err())
				}
				for _, event := range answer.Events {
					if want := fmt.Sprintf("k%03d", next); string(event.Kv.Key) != want || event.Kv.Version != 1 {
						t.Fatalf("watch %d: %s, version %d, and not %s", number, event.Kv.Key, event.Kv.Version, want)
					}
					next++
				}
			case <-time.After(levelMax):
				t.Fatalf("watch %d waits for event %d of %d", number, next, written)
			}
		}
	}
}
