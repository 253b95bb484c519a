package takeover

import (
	"fmt"
	"time"

	"cairn.dev/conformance/harness"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// judge holds what the clients saw against the rules, and against what is stored
// at the last revision.
func (c *crowd) judge(own *clientv3.Client, last int64) {
	c.t.Helper()
	h := history{
		first: c.first, seen: c.seen[:], acknowledged: c.acknowledged, granted: c.granted, renewed: c.renewed,
		overdue: c.overdue(), stored: map[string][]event{},
	}
	for _, prefix := range []string{c.prefix("writer"), c.prefix("short")} {
		stored, err := own.Get(harness.Context(c.t), prefix, clientv3.WithPrefix(), clientv3.WithRev(last))
		if err != nil {
			c.t.Fatal(err)
		}
		h.stored[prefix] = nil
		for _, kv := range stored.Kvs {
			h.stored[prefix] = append(h.stored[prefix], event{place: place{kv.ModRevision, string(kv.Key)}, value: string(kv.Value)})
		}
	}
	found := h.judge()
	for _, broken := range found.broken {
		c.t.Error(broken)
	}
	c.record.Check(c.t, found.took)
	c.t.Logf("%d writes acknowledged, %d leases, %d of those kept alive have ended, %d events to each of %d watchers; %d answers fit one order, %d requests had none",
		len(c.acknowledged), len(c.granted), found.held, len(c.seen[0]), watchers, c.record.Since(0), c.record.Failures)
}

// sameHistory compares the hashes of all members at a revision that all have.
// Those from different compactions say nothing about each other: then it looks
// again. The limit only tells that nothing goes on any more.
func sameHistory(s *stage) {
	t := s.t
	t.Helper()
	var last string
	for deadline := time.Now().Add(2 * time.Minute); time.Now().Before(deadline); time.Sleep(100 * time.Millisecond) {
		compactions := hashes(s)
		last = fmt.Sprint(compactions)
		for compaction, found := range compactions {
			if len(found) > 1 {
				t.Fatalf("the members have different histories behind the compaction of %d: %s", compaction, last)
			}
		}
		if len(compactions) == 1 {
			return
		}
	}
	t.Errorf("the members were never found behind the same compaction: %s", last)
}

// hashes are those of all members, by the revision of their last compaction.
func hashes(s *stage) map[int64]map[uint32]bool {
	t := s.t
	t.Helper()
	own := s.client(s.endpoints()...)
	defer own.Close()
	// One more revision than any compaction.
	put, err := own.Put(harness.Context(t), "hash", "x")
	if err != nil {
		t.Fatal(err)
	}
	compactions := map[int64]map[uint32]bool{}
	for _, member := range s.members() {
		direct := s.direct(member)
		defer direct.Close()
		if _, err := direct.Get(harness.Context(t), "any"); err != nil {
			t.Fatal(err)
		}
		hash, err := direct.HashKV(harness.Context(t), member.Endpoint(), put.Header.Revision)
		if err != nil {
			t.Fatal(err)
		}
		if compactions[hash.CompactRevision] == nil {
			compactions[hash.CompactRevision] = map[uint32]bool{}
		}
		compactions[hash.CompactRevision][hash.Hash] = true
	}
	return compactions
}
