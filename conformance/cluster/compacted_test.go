package cluster

import (
	"fmt"
	"strings"
	"testing"

	"cairn.dev/conformance/harness"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// An image whose history is compacted to its last revision is compared too,
// although its sender remembers the hash from before; also when every key is
// deleted.
func TestImageOfCompactedHistory(t *testing.T) {
	t.Parallel()
	cluster := harness.StartCluster(t, harness.Etcd, 1, nil, "--snapshot-count=50", "--snapshot-catchup-entries=5")
	for number, prepare := range []func(*clientv3.Client) error{
		func(*clientv3.Client) error { return nil },
		func(client *clientv3.Client) error {
			_, err := client.Delete(harness.Context(t), "", clientv3.WithPrefix())
			return err
		},
	} {
		client := cluster.Client(0)
		fill(t, client, fmt.Sprint("round ", number))
		if err := prepare(client); err != nil {
			t.Fatal(err)
		}
		got, err := client.Get(harness.Context(t), "any")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := client.Compact(harness.Context(t), got.Header.Revision, clientv3.WithCompactPhysical()); err != nil {
			t.Fatal(err)
		}
		// Entries without a revision: those before are trimmed.
		for range 60 {
			lease, err := client.Grant(harness.Context(t), 60)
			if err == nil {
				_, err = client.Revoke(harness.Context(t), lease.ID)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		if number > 0 {
			lead(t, cluster, 0)
			settled()
		}
		ours := cluster.Add(harness.Context(t), client, harness.Cairn)
		ours.Run()
		alike(t, cluster)
		ours.AwaitLog(t, "installed the database of an etcd member")
		if strings.Contains(ours.Log(), "refused the database") {
			t.Errorf("a sound image was refused:\n%s", ours.LogTail())
		}
	}
}
