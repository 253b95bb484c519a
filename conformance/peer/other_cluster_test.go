package peer

import (
	"context"
	"strings"
	"testing"
	"time"

	"cairn.dev/conformance/harness"
)

// A member that was started on the directory of another cluster with the same
// addresses is refused by those it meets; both keep their data.
func TestOtherClustersDirectory(t *testing.T) {
	ours := harness.StartCluster(t, harness.Subject(), 3, nil, "--initial-cluster-token=ours")
	client := ours.Client(0, 1)
	put := func(key string) error {
		ctx, cancel := context.WithTimeout(context.Background(), startMax/2)
		defer cancel()
		_, err := client.Put(ctx, key, "value")
		return err
	}
	if err := put("ours"); err != nil {
		t.Fatal(err)
	}
	// The same addresses under another token are another cluster.
	for _, member := range ours.Members {
		member.Stop()
	}
	theirs := ours.Twin("--initial-cluster-token=theirs")
	theirs.RunAll()
	theirs.Members[2].MustCtl("put", "theirs", "value")
	for _, member := range theirs.Members {
		member.Stop()
	}
	stranger := theirs.Members[2]
	stranger.TryRun(2 * time.Second) // It has no leader: the others are not there.
	go stranger.TryRun(startMax)
	for _, member := range ours.Members[:2] {
		go member.TryRun(startMax)
	}
	deadline := time.Now().Add(startMax)
	for !strings.Contains(ours.Members[0].Log()+stranger.Log(), "cluster ID mismatch") && time.Now().Before(deadline) {
		time.Sleep(100 * time.Millisecond)
	}
	if !strings.Contains(ours.Members[0].Log()+stranger.Log(), "cluster ID mismatch") {
		t.Error("nobody says that the cluster IDs differ")
	}
	// A member that waits for the others says so at once.
	err := put("after")
	for until := time.Now().Add(startMax); err != nil && time.Now().Before(until); err = put("after") {
		time.Sleep(100 * time.Millisecond)
	}
	if err != nil {
		t.Errorf("two of three members do not serve beside the stranger: %v", err)
	}
	listed, err := client.Get(harness.Context(t), "theirs")
	if err != nil || listed.Count != 0 {
		t.Errorf("%v, %v: data of the other cluster", listed, err)
	}
}
