package audit

import (
	"context"
	"maps"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"cairn.dev/conformance/harness"
)

// healMax is how long a cluster may take until all members are level again
// once nothing is broken any more.
const healMax = 2 * time.Minute

// Agreed waits until all members are at the same revision, and returns the
// history they share, as value to revision. It is an error if they differ.
func Agreed(t testing.TB, cluster *harness.Cluster, clients []*clientv3.Client) map[string]int64 {
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
	var first map[string]int64
	var hash uint32
	for number, client := range clients {
		// A linearizable read makes the member level with the last write.
		if _, err := client.Get(ctx, "level"); err != nil {
			t.Fatalf("member %d: %v", number, err)
		}
		history := readHistory(t, ctx, client, last)
		answer, err := client.HashKV(ctx, cluster.Members[number].Endpoint(), last)
		if err != nil {
			t.Fatalf("member %d: hash: %v", number, err)
		}
		if number == 0 {
			first, hash = history, answer.Hash
		}
		if answer.Hash != hash {
			t.Errorf("member %d has the hash %x at revision %d, member 0 has %x", number, answer.Hash, last, hash)
		}
		if !maps.Equal(first, history) {
			t.Errorf("members 0 and %d have different histories of %d and %d writes", number, len(first), len(history))
		}
	}
	return first
}

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

// readHistory reads every write up to a revision from one member.
func readHistory(t testing.TB, ctx context.Context, client *clientv3.Client, last int64) map[string]int64 {
	t.Helper()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	took := map[string]int64{}
	for response := range client.Watch(ctx, "", clientv3.WithPrefix(), clientv3.WithRev(1)) {
		if err := response.Err(); err != nil {
			t.Fatal(err)
		}
		for _, event := range response.Events {
			value := string(event.Kv.Value)
			if value == "REVOKE" {
				continue // A lease key of proxies, which never ends a history.
			}
			if earlier, twice := took[value]; twice && value != "" {
				t.Errorf("`%s` took effect twice, at %d and %d", value, earlier, event.Kv.ModRevision)
			}
			took[value] = event.Kv.ModRevision
			if event.Kv.ModRevision >= last {
				return took
			}
		}
	}
	t.Fatalf("the history ends before revision %d", last)
	return nil
}
