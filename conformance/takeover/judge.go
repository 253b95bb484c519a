package takeover

import (
	"fmt"
	"time"

	"cairn.dev/conformance/audit"
	"cairn.dev/conformance/harness"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// judge has the history judged, with what is stored at the last revision.
func (c *crowd) judge(own *clientv3.Client, last int64) {
	c.t.Helper()
	for _, prefix := range []string{audit.Keys, c.prefix("writer"), c.prefix("short")} {
		stored, err := own.Get(harness.Context(c.t), prefix, clientv3.WithPrefix(), clientv3.WithRev(last))
		if err != nil {
			c.t.Fatal(err)
		}
		c.history.Stored[prefix] = audit.StoredOf(stored)
	}
	c.history.End(c.first, last)
	c.history.Check(c.t)
	held := 0
	for _, lease := range c.history.Leases {
		if lease.Renewed {
			held++
		}
	}
	c.t.Logf("%d writes acknowledged, %d leases, %d more that were kept alive for a while, %d events to each of %d watchers; %d answers fit one order, %d requests had none",
		c.history.Acknowledged(), len(c.history.Leases)-held, held, len(c.history.Watches[0].Events), watchers, c.history.Since(0), c.history.Failures)
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
