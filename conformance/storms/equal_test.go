package storms

import (
	"testing"

	"cairn.dev/conformance/harness"
)

// checkEqual fails unless all members have the same history: the hash of
// everything up to one revision.
func checkEqual(t *testing.T, cluster *harness.Cluster) {
	t.Helper()
	if len(cluster.Members) == 1 {
		return
	}
	ctx := harness.Context(t)
	now, err := cluster.Client().Get(ctx, "any")
	if err != nil {
		t.Fatal(err)
	}
	revision := now.Header.Revision
	hashes := map[uint32][]string{}
	for number, member := range cluster.Members {
		client := cluster.Client(number)
		// Through consensus: the member has everything up to the revision.
		if _, err := client.Get(ctx, "any"); err != nil {
			t.Fatal(err)
		}
		hash, err := client.HashKV(ctx, member.Endpoint(), revision)
		if err != nil {
			t.Fatal(err)
		}
		hashes[hash.Hash] = append(hashes[hash.Hash], member.Name)
	}
	if len(hashes) != 1 {
		t.Errorf("the members' hashes at revision %d differ: %v", revision, hashes)
	}
	t.Logf("%d members have one hash at revision %d", len(cluster.Members), revision)
}
