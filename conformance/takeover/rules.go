package takeover

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// history is what the clients of a crowd were told and promised, and what is
// stored at the end: all that the rules look at.
type history struct {
	// first is the first revision that counts.
	first int64
	// seen are the events of each watcher, as they came.
	seen [][]event
	// acknowledged, granted and renewed are those of a crowd.
	acknowledged     map[place]event
	granted, renewed map[string]time.Time
	// overdue is how long a lease may live beyond its time.
	overdue time.Duration
	// stored are the keys with each of these prefixes.
	stored map[string][]event
}

// findings are what the rules found in a history.
type findings struct {
	// broken are the rules that do not hold, in words.
	broken []string
	// took is the revision of each value that the clients of the audit have put.
	took map[string]int64
	// held is how many leases have ended that were kept alive by single calls.
	held int
}

func (f *findings) add(format string, args ...any) {
	f.broken = append(f.broken, fmt.Sprintf(format, args...))
}

// judge holds a history against what etcd promises: each watcher is told of every
// change once and in order, no acknowledged write is lost, a lease lives as long
// as it was promised and not for ever, and the keys are what the changes make.
func (h *history) judge() findings {
	found := findings{took: map[string]int64{}}
	content, told := map[string]event{}, map[place]event{}
	before := h.first - 1
	for number, one := range h.seen[0] {
		if one.revision != before && one.revision != before+1 || number == 0 && one.revision != h.first {
			found.add("watcher 0 is told of revision %d after %d", one.revision, before)
			return found
		}
		if _, twice := told[one.place]; twice {
			found.add("watcher 0 is told twice of %v", one.place)
			return found
		}
		before = one.revision
		told[one.place] = one
		if content[one.key] = one; one.deleted {
			delete(content, one.key)
			h.ended(one, &found)
		}
		if !one.deleted && strings.HasPrefix(one.key, audited) {
			found.took[one.value] = one.revision
		}
	}
	h.compareWatchers(&found)
	for where, wanted := range h.acknowledged {
		if got, ok := told[where]; where.revision >= h.first && (!ok || got.value != wanted.value || got.deleted != wanted.deleted) {
			found.add("acknowledged and lost: %+v (%+v)", wanted, got)
		}
	}
	for _, leases := range []map[string]time.Time{h.granted, h.renewed} {
		for key := range leases {
			if _, lives := content[key]; lives {
				found.add("the lease of %s has never ended", key)
			}
		}
	}
	h.compareStored(content, &found)
	return found
}

// ended looks at how long the lease lived whose key is gone, if it is one.
func (h *history) ended(gone event, found *findings) {
	if begun, short := h.granted[gone.key]; short {
		if lived := gone.at.Sub(begun); lived < shortTTL*time.Second || lived > shortTTL*time.Second+h.overdue {
			found.add("a lease of %d s has lived for %v", shortTTL, lived)
		}
	}
	if begun, is := h.renewed[gone.key]; is {
		if lived := gone.at.Sub(begun); lived < heldTTL*time.Second-stale {
			found.add("a lease of %d s has ended %v after it was renewed", heldTTL, lived)
		}
		found.held++
	}
}

// compareWatchers compares what all were told with what the first was.
func (h *history) compareWatchers(found *findings) {
	same := func(a, b event) bool { return a.place == b.place && a.value == b.value && a.deleted == b.deleted }
	for number, seen := range h.seen[1:] {
		if !slices.EqualFunc(h.seen[0], seen, same) {
			found.add("watchers 0 and %d were told different things: %d and %d events", number+1, len(h.seen[0]), len(seen))
		}
	}
}

// compareStored compares the keys that are stored with those that the events make.
func (h *history) compareStored(content map[string]event, found *findings) {
	for prefix, stored := range h.stored {
		count := 0
		for key := range content {
			if strings.HasPrefix(key, prefix) {
				count++
			}
		}
		if len(stored) != count {
			found.add("%d keys of %s are stored, the events make %d", len(stored), prefix, count)
		}
		for _, kv := range stored {
			if made := content[kv.key]; made.revision != kv.revision || made.value != kv.value {
				found.add("%s is %q of revision %d, the events make %+v", kv.key, kv.value, kv.revision, made)
			}
		}
	}
}
