package takeover

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"
)

// Keys of the planted histories.
const (
	plainKey, otherKey = "writer/10/0/04", "writer/10/0/04/too"
	shortKey, heldKey  = "short/10/0", "held/10/0"
)

// honest is a history in which every rule holds: of writes that were answered, one
// that was not and took effect, and two leases, which end.
func honest() *history {
	begun := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	after := func(seconds float64) time.Time { return begun.Add(time.Duration(seconds * float64(time.Second))) }
	change := func(revision int64, key, value string, seconds float64) event {
		return event{place: place{revision, key}, value: value, deleted: value == "", at: after(seconds)}
	}
	events := []event{
		change(10, plainKey, "0/000000", 0.1),
		change(11, shortKey, "x", 0.2),
		change(12, plainKey, "0/000004", 0.3),
		change(12, otherKey, "0/000004", 0.3),
		change(13, audited+"1", "a", 0.4),
		change(14, "writer/10/1/02", "1/000001", 0.5), // without an answer
		change(15, heldKey, "x", 0.6),
		change(16, otherKey, "", 0.7),
		change(17, shortKey, "", 4.5),
		change(18, heldKey, "", 10),
		change(19, "end", "x", 11),
	}
	h := &history{
		first: 10, acknowledged: map[place]event{}, overdue: overdue,
		granted: map[string]time.Time{shortKey: after(0)},
		renewed: map[string]time.Time{heldKey: after(2)},
		stored: map[string][]event{
			"writer/10/": {change(12, plainKey, "0/000004", 0), change(14, "writer/10/1/02", "1/000001", 0)},
			"short/10/":  nil,
		},
	}
	for range watchers {
		h.seen = append(h.seen, slices.Clone(events))
	}
	for _, one := range events {
		if !strings.HasPrefix(one.key, "writer/10/1/") && !one.deleted || one.key == otherKey {
			h.acknowledged[one.place] = one
		}
	}
	// Written before the watchers began.
	early := change(9, "writer/10/0/03", "0/000003", 0)
	h.acknowledged[early.place] = early
	return h
}

// at is where a watcher is told of a change.
func (h *history) at(revision int64, key string) int {
	return slices.IndexFunc(h.seen[0], func(one event) bool { return one.place == place{revision, key} })
}

// undo takes a change out of what all watchers are told, and closes the gap: as
// if the servers had lost it together. It stays acknowledged if it was.
func (h *history) undo(revision int64, key string) {
	index := h.at(revision, key)
	for number := range h.seen {
		h.seen[number] = slices.Delete(h.seen[number], index, index+1)
	}
	moved := maps.Clone(h.acknowledged)
	clear(h.acknowledged)
	for where, one := range moved {
		if one.revision > revision {
			where.revision, one.revision = where.revision-1, one.revision-1
		}
		h.acknowledged[where] = one
	}
	for number := range h.seen {
		for index := range h.seen[number] {
			if one := &h.seen[number][index]; one.revision > revision {
				one.revision--
			}
		}
	}
	for _, stored := range h.stored {
		for index := range stored {
			if stored[index].revision > revision {
				stored[index].revision--
			}
		}
	}
}

// TestRulesFind plants in an honest history what a server must never do, one
// thing at a time.
func TestRulesFind(t *testing.T) {
	// all changes what every watcher is told.
	all := func(h *history, change func([]event) []event) {
		for number := range h.seen {
			h.seen[number] = change(h.seen[number])
		}
	}
	moment := func(h *history, revision int64, key string) *event { return &h.seen[0][h.at(revision, key)] }
	for _, planted := range []struct {
		name  string
		plant func(*history)
		// wanted is a part of what must be found.
		wanted string
	}{
		{"nothing", func(*history) {}, ""},
		{"a write without an answer that was never made", func(h *history) {
			h.undo(14, "writer/10/1/02")
			h.stored["writer/10/"] = h.stored["writer/10/"][:1]
		}, ""},

		{"an event that no watcher is told", func(h *history) {
			index := h.at(13, audited+"1")
			all(h, func(seen []event) []event { return slices.Delete(seen, index, index+1) })
		}, "of revision 14 after 12"},
		{"an event that one watcher is not told", func(h *history) {
			index := h.at(13, audited+"1")
			h.seen[2] = slices.Delete(h.seen[2], index, index+1)
		}, "watchers 0 and 2"},
		{"the last event, which one watcher is not told", func(h *history) {
			h.seen[3] = h.seen[3][:len(h.seen[3])-1]
		}, "watchers 0 and 3"},
		{"the first event, which no watcher is told", func(h *history) {
			all(h, func(seen []event) []event { return seen[1:] })
		}, "of revision 11 after 9"},
		{"half a transaction, which no watcher is told", func(h *history) {
			index := h.at(12, plainKey)
			all(h, func(seen []event) []event { return slices.Delete(seen, index, index+1) })
		}, "acknowledged and lost"},
		{"an event twice in a row", func(h *history) {
			index := h.at(13, audited+"1")
			all(h, func(seen []event) []event { return slices.Insert(seen, index, seen[index]) })
		}, "told twice"},
		{"a transaction twice", func(h *history) {
			index := h.at(12, plainKey)
			all(h, func(seen []event) []event { return slices.Insert(seen, index+2, seen[index], seen[index+1]) })
		}, "told twice"},
		{"an event again after later ones", func(h *history) {
			index := h.at(13, audited+"1")
			all(h, func(seen []event) []event { return append(seen, seen[index]) })
		}, "of revision 13 after 19"},
		{"an event twice, to one watcher", func(h *history) {
			index := h.at(13, audited+"1")
			h.seen[1] = slices.Insert(h.seen[1], index, h.seen[1][index])
		}, "watchers 0 and 1"},
		{"two events the wrong way round", func(h *history) {
			index := h.at(13, audited+"1")
			all(h, func(seen []event) []event {
				seen[index], seen[index+1] = seen[index+1], seen[index]
				return seen
			})
		}, "of revision 14 after 12"},
		{"two events the wrong way round, to one watcher", func(h *history) {
			index := h.at(13, audited+"1")
			h.seen[1][index], h.seen[1][index+1] = h.seen[1][index+1], h.seen[1][index]
		}, "watchers 0 and 1"},
		{"a transaction the wrong way round, to one watcher", func(h *history) {
			index := h.at(12, plainKey)
			h.seen[1][index], h.seen[1][index+1] = h.seen[1][index+1], h.seen[1][index]
		}, "watchers 0 and 1"},
		{"an event from before the watch", func(h *history) {
			all(h, func(seen []event) []event {
				return slices.Insert(seen, 0, event{place: place{9, plainKey}, value: "0/000003"})
			})
		}, "of revision 9"},
		{"another value, to one watcher", func(h *history) {
			h.seen[1][h.at(10, plainKey)].value = "0/000001"
		}, "watchers 0 and 1"},
		{"a deletion for a put, to one watcher", func(h *history) {
			h.seen[1][h.at(10, plainKey)].deleted = true
		}, "watchers 0 and 1"},

		{"an acknowledged write that was lost everywhere", func(h *history) { h.undo(10, plainKey) }, "acknowledged and lost"},
		{"an acknowledged deletion that was lost everywhere", func(h *history) {
			h.undo(16, otherKey)
			h.stored["writer/10/"] = append(h.stored["writer/10/"], event{place: place{12, otherKey}, value: "0/000004"})
		}, "acknowledged and lost"},
		{"another value than was acknowledged", func(h *history) {
			index := h.at(10, plainKey)
			all(h, func(seen []event) []event {
				seen[index].value = "0/000001"
				return seen
			})
		}, "acknowledged and lost"},
		{"a key that is not stored any more", func(h *history) {
			h.stored["writer/10/"] = h.stored["writer/10/"][1:]
		}, "keys of writer/10/"},
		{"an older value that is stored", func(h *history) {
			h.stored["writer/10/"][0].revision, h.stored["writer/10/"][0].value = 10, "0/000000"
		}, "the events make"},
		{"a key that is stored and was deleted", func(h *history) {
			h.stored["writer/10/"][0] = event{place: place{12, otherKey}, value: "0/000004"}
		}, "the events make"},

		{"a lease that ended early", func(h *history) {
			moment(h, 17, shortKey).at = h.granted[shortKey].Add(shortTTL*time.Second - time.Millisecond)
		}, "has lived for"},
		{"a lease that lived on", func(h *history) {
			moment(h, 17, shortKey).at = h.granted[shortKey].Add(shortTTL*time.Second + overdue + time.Millisecond)
		}, "has lived for"},
		{"a lease that never ended", func(h *history) {
			h.undo(17, shortKey)
			h.stored["short/10/"] = []event{{place: place{11, shortKey}, value: "x"}}
		}, "has never ended"},
		{"a lease that was kept alive, and ended early", func(h *history) {
			h.renewed[heldKey] = moment(h, 18, heldKey).at.Add(stale + time.Millisecond - heldTTL*time.Second)
		}, "after it was renewed"},
		{"a lease that was kept alive, and never ended", func(h *history) { h.undo(18, heldKey) }, "has never ended"},
	} {
		h := honest()
		planted.plant(h)
		found := h.judge().broken
		if planted.wanted == "" && len(found) > 0 {
			t.Errorf("%s is planted, and this is found: %q", planted.name, found)
		}
		if !strings.Contains(strings.Join(found, "\n"), planted.wanted) {
			t.Errorf("%s is planted, and this is found, not %q: %q", planted.name, planted.wanted, found)
		}
	}
	if found := honest().judge(); found.held != 1 || found.took["a"] != 13 {
		t.Errorf("of an honest history this is found: %+v", found)
	}
}
