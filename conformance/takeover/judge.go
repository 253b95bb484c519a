package takeover

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"cairn.dev/conformance/harness"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// judge compares the watchers with each other, with the answers that writers
// got, and with what is stored.
func (c *crowd) judge(own *clientv3.Client, last int64) {
	c.t.Helper()
	content, told, took, held := map[string]event{}, map[place]event{}, map[string]int64{}, 0
	before := c.first - 1
	for _, one := range c.seen[0] {
		if one.revision != before && one.revision != before+1 {
			c.t.Fatalf("watcher 0 is told of revision %d after %d", one.revision, before)
		}
		if _, twice := told[one.place]; twice {
			c.t.Fatalf("watcher 0 is told twice of %v", one.place)
		}
		before = one.revision
		told[one.place] = one
		if content[one.key] = one; one.deleted {
			delete(content, one.key)
		}
		if begun, short := c.granted[one.key]; short && one.deleted {
			if lived := one.at.Sub(begun); lived < shortTTL*time.Second || lived > shortTTL*time.Second+c.overdue() {
				c.t.Errorf("a lease of %d s has lived for %v", shortTTL, lived)
			}
		}
		if begun, is := c.renewed[one.key]; is && one.deleted {
			if lived := one.at.Sub(begun); lived < heldTTL*time.Second-stale {
				c.t.Errorf("a lease of %d s has ended %v after it was renewed", heldTTL, lived)
			}
			held++
		}
		if !one.deleted && strings.HasPrefix(one.key, audited) {
			took[one.value] = one.revision
		}
	}
	for number := 1; number < watchers; number++ {
		same := slices.EqualFunc(c.seen[0], c.seen[number], func(a, b event) bool {
			return a.place == b.place && a.value == b.value && a.deleted == b.deleted
		})
		if !same {
			c.t.Errorf("watchers 0 and %d were told different things: %d and %d events", number, len(c.seen[0]), len(c.seen[number]))
		}
	}
	c.record.Check(c.t, took)
	for where, wanted := range c.acknowledged {
		if found, ok := told[where]; where.revision >= c.first && (!ok || found.value != wanted.value || found.deleted != wanted.deleted) {
			c.t.Errorf("acknowledged and lost: %+v (%+v)", wanted, found)
		}
	}
	for _, prefix := range []string{c.prefix("writer"), c.prefix("short")} {
		stored, err := own.Get(harness.Context(c.t), prefix, clientv3.WithPrefix(), clientv3.WithRev(last))
		if err != nil {
			c.t.Fatal(err)
		}
		count := 0
		for key := range content {
			if strings.HasPrefix(key, prefix) {
				count++
			}
		}
		if len(stored.Kvs) != count {
			c.t.Errorf("%d keys of %s are stored, the events make %d", len(stored.Kvs), prefix, count)
		}
		for _, kv := range stored.Kvs {
			if found := content[string(kv.Key)]; found.revision != kv.ModRevision || found.value != string(kv.Value) {
				c.t.Errorf("%s is %q of revision %d, the events make %+v", kv.Key, kv.Value, kv.ModRevision, found)
			}
		}
	}
	c.t.Logf("%d writes acknowledged, %d leases, %d of those kept alive have ended, %d events to each of %d watchers; %d answers fit one order, %d requests had none",
		len(c.acknowledged), len(c.granted), held, len(c.seen[0]), watchers, c.record.Since(0), c.record.Failures)
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
