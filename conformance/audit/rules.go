package audit

import (
	"fmt"
	"slices"
	"sort"
	"strings"
)

// answered holds an answer against those before it.
func (h *History) answered(done Operation, number int) (broken []string) {
	if len(done.Writes) > 0 {
		if done.Revision <= done.Known {
			broken = append(broken, fmt.Sprintf("revision %d was given to a write sent after %d was acknowledged: %v", done.Revision, done.Known, done))
		}
		if other, twice := h.given[done.Revision]; twice {
			broken = append(broken, fmt.Sprintf("revision %d was given to two writes: %v and %v", done.Revision, h.Operations[other], done))
		}
		h.given[done.Revision] = number
	} else if done.Revision < done.Known && !h.HeadersLag {
		broken = append(broken, fmt.Sprintf("a read was answered at revision %d, and sent after %d was acknowledged: %v", done.Revision, done.Known, done))
	}
	return broken
}

// isOwn says whether only operations of this history change a key.
func (h *History) isOwn(key string) bool {
	return slices.ContainsFunc(h.Prefixes, func(prefix string) bool { return strings.HasPrefix(key, prefix) })
}

// Part holds all events of some revisions against what was acknowledged, while
// the history goes on.
func (h *History) Part(events []Event, first, last int64) []string {
	h.mutex.Lock()
	defer h.mutex.Unlock()
	return append(slices.Clone(h.told), h.events(events, first, last)...)
}

// events holds all events of some revisions against the writes: each revision
// is there, its changes are those that were acknowledged, nobody's are among
// them, and none took effect twice.
func (h *History) events(events []Event, first, last int64) (broken []string) {
	find := func(format string, args ...any) { broken = append(broken, fmt.Sprintf(format, args...)) }
	type place struct {
		revision int64
		key      string
	}
	changed, byRevision := map[place]bool{}, map[int64][]Write{}
	seen := map[string]int64{}
	before := first - 1
	for _, event := range events {
		if event.Revision < before || event.Revision > before+1 || event.Revision < first {
			find("revision %d comes after %d", event.Revision, before)
			return broken
		}
		before = event.Revision
		if changed[place{event.Revision, event.Key}] {
			find("`%s` is changed twice at revision %d", event.Key, event.Revision)
			return broken
		}
		changed[place{event.Revision, event.Key}] = true
		if !h.isOwn(event.Key) {
			// A proxy's own, for one.
			continue
		}
		byRevision[event.Revision] = append(byRevision[event.Revision], event.Write)
		if event.Deleted {
			if _, given := h.given[event.Revision]; !given && h.deleting[event.Key] == 0 {
				find("nobody deleted this: %v", event)
			}
			continue
		}
		if h.tried[event.Value] == nil {
			find("nobody wrote this: %v", event)
		}
		if earlier, twice := seen[event.Value]; twice && earlier != event.Revision {
			find("a write took effect twice, at revision %d and as %v", earlier, event)
		}
		seen[event.Value] = event.Revision
	}
	if before < last {
		find("the events end at revision %d, not %d", before, last)
	}
	live := map[string]bool{}
	for revision := first; revision <= last; revision++ {
		made := byRevision[revision]
		number, given := h.given[revision]
		if given && !slices.Equal(h.Operations[number].Writes, made) {
			find("acknowledged write lost or altered: revision %d has %v, and was given to %v", revision, made, h.Operations[number])
		}
		put := slices.IndexFunc(made, func(write Write) bool { return !write.Deleted })
		if wanted := []Write(nil); !given && put >= 0 {
			if wanted = h.tried[made[put].Value]; !isWhole(made, wanted, live) {
				find("a write took effect in part: revision %d has %v of %v", revision, made, wanted)
			}
		}
		for _, write := range made {
			live[write.Key] = !write.Deleted
		}
	}
	return broken
}

// isWhole says whether what was made at a revision is all of an operation: but for
// deletions of keys that are not known to have been there.
func isWhole(made, wanted []Write, live map[string]bool) bool {
	for _, write := range wanted {
		if len(made) > 0 && made[0] == write {
			made = made[1:]
		} else if !write.Deleted || live[write.Key] {
			return false
		}
	}
	return len(made) == 0
}

// rules are all that do not hold, in words. It is the second opinion: nothing of
// it is in the search for an order.
func (h *History) rules() []string {
	if len(h.Watches) == 0 || h.Watches[0].First > h.First {
		return []string{"there is no watch of everything"}
	}
	if h.highest > h.Last {
		return append(slices.Clone(h.told), fmt.Sprintf("revision %d was told to a client, and the last one is %d", h.highest, h.Last))
	}
	all := upTo(h.Watches[0].Events, h.Last)
	broken := append(slices.Clone(h.told), h.events(all, h.First, h.Last)...)
	if len(broken) > len(h.told) {
		// What follows would repeat it.
		return broken
	}
	broken = append(broken, h.watches(all)...)
	broken = append(broken, h.reads(all)...)
	content := fold(all)
	broken = append(broken, h.leases(all, content)...)
	return append(broken, h.stored(content)...)
}

// upTo are the events up to a revision: what was given up on may come later.
func upTo(events []Event, last int64) []Event {
	return slices.DeleteFunc(slices.Clone(events), func(event Event) bool { return event.Revision > last })
}

// watches compares what all watches were told with what the first was.
func (h *History) watches(all []Event) (broken []string) {
	for number, watch := range h.Watches[1:] {
		begin := slices.IndexFunc(all, func(event Event) bool { return event.Revision >= watch.First })
		if begin < 0 {
			begin = len(all)
		}
		wanted, told := all[begin:], upTo(watch.Events, h.Last)
		at := 0
		for at < min(len(wanted), len(told)) && wanted[at].Revision == told[at].Revision && wanted[at].Write == told[at].Write {
			at++
		}
		if at == len(wanted) && at == len(told) {
			continue
		}
		part := func(events []Event) []Event { return events[at:min(at+1, len(events))] }
		broken = append(broken, fmt.Sprintf("watches 0 and %d were told different things: %d and %d events, and %v and %v as number %d",
			number+1, len(wanted), len(told), part(wanted), part(told), at))
	}
	return broken
}

// reads holds what was read against the events: it is the newest version of the
// key at the revision of the answer, and that is no older than what was known.
func (h *History) reads(all []Event) (broken []string) {
	versions := map[string][]Event{}
	for _, event := range all {
		versions[event.Key] = append(versions[event.Key], event)
	}
	for _, done := range h.Operations {
		if done.Read == nil || done.Returned == Never || done.Revision > h.Last {
			continue
		}
		// With headers that lag it has to be what was the newest at some moment since the read was sent.
		from, to := done.Revision, done.Revision
		if h.HeadersLag {
			from, to = done.Known, h.Last
		}
		if to < h.First || isNewest(*done.Read, versions[done.Read.Key], from, to, h.First) {
			continue
		}
		broken = append(broken, fmt.Sprintf("this was read, and the newest versions of revision %d to %d are others: %v", from, to, done))
	}
	return broken
}

// isNewest says whether a read has found the version that was the newest at one
// of these revisions. What was there before the first revision is not known.
func isNewest(read Read, versions []Event, from, to, first int64) bool {
	isCurrent, begin := read.Revision < first, int64(0)
	// All before the last one that was there at the beginning are older.
	start := sort.Search(len(versions), func(place int) bool { return versions[place].Revision > from })
	for _, version := range versions[max(0, start-1):] {
		if isCurrent && begin <= to && version.Revision > from {
			return true
		}
		begin = version.Revision
		if isCurrent = read.Revision == version.Revision && read.Value == version.Value; version.Deleted {
			isCurrent = read.Revision == 0
		}
	}
	return isCurrent && begin <= to
}

// fold is what events leave.
func fold(events []Event) map[string]Event {
	content := map[string]Event{}
	for _, event := range events {
		if content[event.Key] = event; event.Deleted {
			delete(content, event.Key)
		}
	}
	return content
}

// leases looks at how long leases lived, by when their keys went.
func (h *History) leases(all []Event, content map[string]Event) (broken []string) {
	find := func(format string, args ...any) { broken = append(broken, fmt.Sprintf(format, args...)) }
	for _, event := range all {
		lease, is := h.Leases[event.Key]
		if !is || !event.Deleted {
			continue
		}
		lived := event.At - lease.Since
		if lease.Renewed && lived < lease.TTL-h.Stale {
			find("a lease of %v has ended %v after it was renewed", lease.TTL, lived)
		}
		if !lease.Renewed && (lived < lease.TTL || lived > lease.TTL+h.Overdue) {
			find("a lease of %v has lived for %v", lease.TTL, lived)
		}
	}
	for key := range h.Leases {
		if _, lives := content[key]; lives {
			find("the lease of %s has never ended", key)
		}
	}
	return broken
}

// stored compares what is stored with what the events leave.
func (h *History) stored(content map[string]Event) (broken []string) {
	for prefix, stored := range h.Stored {
		count := 0
		for key := range content {
			if strings.HasPrefix(key, prefix) {
				count++
			}
		}
		if len(stored) != count {
			broken = append(broken, fmt.Sprintf("%d keys of %s are stored, the events leave %d", len(stored), prefix, count))
		}
		for _, kv := range stored {
			if left := content[kv.Key]; left.Revision != kv.Revision || left.Value != kv.Value {
				broken = append(broken, fmt.Sprintf("%s is `%s` of revision %d, the events leave %v", kv.Key, kv.Value, kv.Revision, left))
			}
		}
	}
	return broken
}
