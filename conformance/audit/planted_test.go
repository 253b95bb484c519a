package audit

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

const (
	plainKey, otherKey  = "key/1", "key/2"
	shortKey, heldKey   = "lent/short", "lent/held"
	unknownKey, goneKey = "key/3", "key/4"
)

func seconds(n float64) time.Duration { return time.Duration(n * float64(time.Second)) }

// honest is a history of two clients and four watches in which every rule holds:
// of writes that were answered, some that were not and took effect or did not,
// and of leases, which end.
func honest() *History {
	h := empty("key/", "lent/")
	h.Stale, h.Overdue = seconds(1), seconds(60)
	put := func(key, value string) Write { return Write{Key: key, Value: value} }
	gone := func(key string) Write { return Write{Key: key, Deleted: true} }
	var events []Event
	write := func(client int, called, returned float64, known, revision int64, writes ...Write) {
		done := Operation{Client: client, Called: seconds(called), Returned: seconds(returned), Known: known, Revision: revision, Writes: writes}
		done.Leased = writes[0].Key == shortKey || writes[0].Key == heldKey
		if returned == 0 {
			done.Returned, done.Revision = Never, 0
		}
		h.try(done)
		h.add(done)
		at := max(seconds(called), seconds(returned))
		for _, one := range writes {
			if revision > 0 {
				events = append(events, Event{Revision: revision, Write: one, At: at})
			}
		}
	}
	read := func(client int, called, returned float64, known, header int64, found Read) {
		h.add(Operation{Client: client, Called: seconds(called), Returned: seconds(returned), Known: known, Revision: header, Read: &found})
	}
	// Before the watches began.
	write(1, 0.1, 0.2, 8, 9, put("key/0", "early"))
	events = nil
	write(1, 1.0, 1.1, 9, 10, put(plainKey, "a"))
	read(2, 1.2, 1.3, 10, 10, Read{plainKey, "a", 10})
	write(1, 1.3, 1.4, 10, 11, put(shortKey, "short"))
	write(1, 1.5, 1.7, 11, 12, put(plainKey, "b"), put(otherKey, "b"))
	read(2, 1.6, 1.8, 11, 12, Read{plainKey, "b", 12})
	write(2, 1.9, 2.0, 12, 13, put(goneKey, "c"))
	write(2, 2.1, 0, 13, 14, put(unknownKey, "without an answer"))
	write(2, 2.2, 0, 13, 0, put(unknownKey, "that was never made"))
	write(1, 2.3, 2.4, 13, 15, put(heldKey, "held"))
	write(1, 2.5, 2.6, 15, 16, gone(otherKey))
	read(1, 2.7, 2.8, 16, 16, Read{Key: otherKey})
	write(2, 2.9, 0, 16, 17, gone(goneKey))
	read(1, 3, 3.1, 16, 16, Read{goneKey, "c", 13})
	read(1, 3.2, 3.3, 16, 17, Read{Key: goneKey})
	events = append(events, Event{18, gone(shortKey), seconds(5.5)}, Event{19, gone(heldKey), seconds(11)})
	write(1, 12, 12.1, 16, 20, put("key/end", "end"))
	read(2, 12.2, 12.3, 20, 20, Read{plainKey, "b", 12})
	h.Leases = map[string]Lease{
		shortKey: {Key: shortKey, TTL: seconds(4), Since: seconds(1.2)},
		heldKey:  {Key: heldKey, TTL: seconds(8), Since: seconds(3), Renewed: true},
	}
	h.First, h.Last = 10, 20
	for range 4 {
		h.Watches = append(h.Watches, Watch{10, slices.Clone(events)})
	}
	// One that began later, and was told of more than counts.
	h.Watches = append(h.Watches, Watch{13, append(slices.Clone(events[4:]), Event{21, put("key/late", "late"), 0})})
	h.Stored = map[string][]Stored{
		"key/": {{plainKey, "b", 12}, {unknownKey, "without an answer", 14}, {"key/end", "end", 20}}, "lent/": nil,
	}
	return h
}

// at is where the first watch is told of a change.
func (h *History) at(revision int64, key string) int {
	return slices.IndexFunc(h.Watches[0].Events, func(one Event) bool { return one.Revision == revision && one.Key == key })
}

// all changes what every watch is told.
func (h *History) all(change func([]Event) []Event) {
	for number := range h.Watches {
		h.Watches[number].Events = change(h.Watches[number].Events)
	}
}

// without are events less those of a change.
func without(events []Event, revision int64, key string) []Event {
	return slices.DeleteFunc(slices.Clone(events), func(one Event) bool { return one.Revision == revision && one.Key == key })
}

// lose takes a change out of what all watches are told, and closes the gap: as
// if the servers had lost it together, and given its revision to the next.
func (h *History) lose(revision int64, key string) {
	h.all(func(events []Event) []Event {
		events = without(events, revision, key)
		for index := range events {
			if events[index].Revision > revision {
				events[index].Revision--
			}
		}
		return events
	})
	for _, stored := range h.Stored {
		for index := range stored {
			if stored[index].Revision > revision {
				stored[index].Revision--
			}
		}
	}
	for number := range h.Operations {
		done := &h.Operations[number]
		if done.Revision > revision {
			done.Revision--
		}
		if done.Known > revision {
			done.Known--
		}
		if done.Read != nil && done.Read.Revision > revision {
			done.Read.Revision--
		}
	}
	h.Last--
	h.again()
}

// written is the one that was given a revision.
func (h *History) written(revision int64) *Operation { return &h.Operations[h.given[revision]] }

// read is the last one of a key that was answered at a revision.
func (h *History) read(revision int64, key string) *Operation {
	for number := len(h.Operations) - 1; ; number-- {
		if done := &h.Operations[number]; done.Revision == revision && done.Read != nil && done.Read.Key == key {
			return done
		}
	}
}

// again is the history as its judges see it when the answers come as they are now.
func (h *History) again() {
	operations := h.Operations
	h.Operations, h.told, h.given, h.deleting, h.highest = nil, nil, map[int64]int{}, map[string]int{}, 0
	for _, done := range operations {
		h.try(done)
		h.add(done)
	}
}

// TestPlanted plants in an honest history what a server must never do, one thing
// at a time: the rules have to find it, and so has porcupine where it is about
// the order of answers.
func TestPlanted(t *testing.T) {
	for _, planted := range []struct {
		name  string
		plant func(*History)
		// rules and order are parts of what must be found by each.
		rules, order string
	}{
		{"nothing", func(*History) {}, "", ""},
		{"a write without an answer that was never made", func(h *History) {
			h.lose(14, unknownKey)
			h.Stored["key/"] = slices.Delete(h.Stored["key/"], 1, 2)
		}, "", ""},
		{"a deletion without an answer that was never made", func(h *History) {
			done := h.read(17, goneKey)
			done.Revision, done.Read = 16, &Read{goneKey, "c", 13}
			h.lose(17, goneKey)
			h.Stored["key/"] = append(h.Stored["key/"], Stored{goneKey, "c", 13})
		}, "", ""},

		{"a write without an answer that took effect in part", func(h *History) {
			lost := Operation{Client: 1, Called: seconds(13), Returned: Never, Known: 20, Writes: []Write{{Key: plainKey, Value: "half"}, {Key: otherKey, Value: "other half"}}}
			h.try(lost)
			h.add(lost)
			for number := range h.Watches {
				h.Watches[number].Events = append(upTo(h.Watches[number].Events, 20), Event{21, lost.Writes[0], 0})
			}
			h.Last, h.Stored["key/"][0] = 21, Stored{plainKey, "half", 21}
		}, "took effect in part", ""},
		{"a write without an answer that took effect elsewhere", func(h *History) {
			for number := range h.Watches {
				h.Watches[number].Events = append(upTo(h.Watches[number].Events, 20), Event{21, Write{Key: otherKey, Value: "that was never made"}, 0})
			}
			h.Last, h.Stored["key/"] = 21, append(h.Stored["key/"], Stored{otherKey, "that was never made", 21})
		}, "took effect in part", ""},
		{"the last acknowledged writes, which are lost", func(h *History) {
			h.all(func(events []Event) []Event { return upTo(events, 19) })
			h.Last, h.Stored["key/"] = 19, h.Stored["key/"][:2]
		}, "the last one is 19", ""},
		{"an older event again behind the last one, to one watch", func(h *History) {
			h.Watches[4].Events = append(h.Watches[4].Events, h.Watches[0].Events[5])
		}, "watches 0 and 4", ""},
		{"an event that no watch is told", func(h *History) {
			h.all(func(events []Event) []Event { return without(events, 13, goneKey) })
		}, "revision 14 comes after 12", ""},
		{"an event that one watch is not told", func(h *History) {
			h.Watches[2].Events = without(h.Watches[2].Events, 13, goneKey)
		}, "watches 0 and 2", ""},
		{"the last event, which one watch is not told", func(h *History) {
			h.Watches[3].Events = without(h.Watches[3].Events, 20, "key/end")
		}, "watches 0 and 3", ""},
		{"the first event, which no watch is told", func(h *History) {
			h.all(func(events []Event) []Event { return without(events, 10, plainKey) })
		}, "revision 11 comes after 9", ""},
		{"the last event, which no watch is told", func(h *History) {
			h.all(func(events []Event) []Event { return without(events, 20, "key/end") })
			h.Watches[4].Events = h.Watches[4].Events[:0]
		}, "the events end at revision 19", ""},
		{"nothing, which one watch is told", func(h *History) { h.Watches[1].Events = nil }, "watches 0 and 1", ""},
		{"half a transaction, which no watch is told", func(h *History) {
			h.all(func(events []Event) []Event { return without(events, 12, plainKey) })
		}, "lost or altered", ""},
		{"an event twice in a row", func(h *History) {
			index := h.at(13, goneKey)
			h.Watches[0].Events = slices.Insert(h.Watches[0].Events, index, h.Watches[0].Events[index])
		}, "changed twice", ""},
		{"a transaction twice", func(h *History) {
			events, index := h.Watches[0].Events, h.at(12, plainKey)
			h.Watches[0].Events = slices.Insert(events, index+2, events[index], events[index+1])
		}, "changed twice", ""},
		{"an event again after later ones", func(h *History) {
			h.Watches[0].Events = append(h.Watches[0].Events, h.Watches[0].Events[h.at(13, goneKey)])
		}, "revision 13 comes after 20", ""},
		{"an event twice, to one watch", func(h *History) {
			index := h.at(13, goneKey)
			h.Watches[1].Events = slices.Insert(h.Watches[1].Events, index, h.Watches[1].Events[index])
		}, "watches 0 and 1", ""},
		{"two events the wrong way round", func(h *History) {
			events, index := h.Watches[0].Events, h.at(13, goneKey)
			events[index], events[index+1] = events[index+1], events[index]
		}, "revision 14 comes after 12", ""},
		{"two events the wrong way round, to one watch", func(h *History) {
			events, index := h.Watches[1].Events, h.at(13, goneKey)
			events[index], events[index+1] = events[index+1], events[index]
		}, "watches 0 and 1", ""},
		{"a transaction the wrong way round, to one watch", func(h *History) {
			events, index := h.Watches[1].Events, h.at(12, plainKey)
			events[index], events[index+1] = events[index+1], events[index]
		}, "watches 0 and 1", ""},
		{"an event from before the watch", func(h *History) {
			h.Watches[0].Events = slices.Insert(h.Watches[0].Events, 0, Event{9, Write{Key: "key/0", Value: "early"}, 0})
		}, "revision 9 comes after 9", ""},
		{"an event from before the watch, to one that began later", func(h *History) {
			h.Watches[4].Events = slices.Insert(h.Watches[4].Events, 0, h.Watches[0].Events[3])
		}, "watches 0 and 4", ""},
		{"another value, to one watch", func(h *History) {
			h.Watches[1].Events[h.at(10, plainKey)].Value = "b"
		}, "watches 0 and 1", ""},
		{"another revision, to one watch", func(h *History) {
			h.Watches[1].Events[h.at(10, plainKey)].Revision = 9
		}, "watches 0 and 1", ""},
		{"a deletion for a put, to one watch", func(h *History) {
			h.Watches[1].Events[h.at(10, plainKey)].Deleted = true
		}, "watches 0 and 1", ""},
		{"an event that never was, to one watch", func(h *History) {
			h.Watches[1].Events = slices.Insert(h.Watches[1].Events, h.at(20, "key/end"), Event{20, Write{Key: "key/9", Value: "y"}, 0})
		}, "watches 0 and 1", ""},

		{"an acknowledged write that was lost everywhere", func(h *History) { h.lose(10, plainKey) }, "given to two writes", ""},
		{"an acknowledged deletion that was lost everywhere", func(h *History) { h.lose(16, otherKey) }, "lost or altered", ""},
		{"another value than was acknowledged", func(h *History) {
			index := h.at(13, goneKey)
			h.all(func(events []Event) []Event {
				if len(events) > index && events[index].Revision == 13 {
					events[index].Value = "that was never made"
				}
				return events
			})
		}, "lost or altered", ""},
		{"a write that nobody made", func(h *History) {
			h.all(func(events []Event) []Event {
				events = slices.Clone(events)
				for index := range events {
					if events[index].Revision == 14 {
						events[index].Value = "invented"
					}
				}
				return events
			})
		}, "nobody wrote this", ""},
		{"a write that took effect twice", func(h *History) {
			for number := range h.Watches {
				h.Watches[number].Events = append(upTo(h.Watches[number].Events, 20), Event{21, Write{Key: unknownKey, Value: "without an answer"}, 0})
			}
			h.Last = 21
		}, "took effect twice", ""},
		{"a deletion that nobody asked for", func(h *History) {
			for number := range h.Watches {
				h.Watches[number].Events = append(upTo(h.Watches[number].Events, 20), Event{21, Write{Key: plainKey, Deleted: true}, 0})
			}
			h.Last = 21
		}, "nobody deleted this", ""},
		{"a revision that was given twice", func(h *History) {
			h.written(13).Revision = 12
			h.again()
		}, "given to two writes", ""},
		{"a revision that goes back", func(h *History) {
			h.written(16).Known = 17
			h.again()
		}, "was acknowledged", ""},
		{"a key that is not stored any more", func(h *History) { h.Stored["key/"] = h.Stored["key/"][1:] }, "keys of key/", ""},
		{"an older value that is stored", func(h *History) { h.Stored["key/"][0] = Stored{plainKey, "a", 10} }, "the events leave", ""},
		{"a key that is stored and was deleted", func(h *History) { h.Stored["key/"][0] = Stored{otherKey, "b", 12} }, "the events leave", ""},

		{"a stale read", func(h *History) {
			h.read(20, plainKey).Read = &Read{plainKey, "a", 10}
		}, "this was read", "not linearizable"},
		{"a stale read with a stale header", func(h *History) {
			done := h.read(20, plainKey)
			done.Revision, done.Read = 11, &Read{plainKey, "a", 10}
			h.again()
		}, "sent after 20 was acknowledged", "not linearizable"},
		{"a read of what comes later", func(h *History) {
			h.read(10, plainKey).Read = &Read{plainKey, "b", 12}
		}, "this was read", "not linearizable"},
		{"a read of nothing", func(h *History) { h.read(20, plainKey).Read = &Read{Key: plainKey} }, "this was read", "not linearizable"},
		{"a read of what was deleted", func(h *History) {
			h.read(16, otherKey).Read = &Read{otherKey, "b", 12}
		}, "this was read", "not linearizable"},
		{"a read of a value that nobody wrote", func(h *History) {
			h.read(20, plainKey).Read = &Read{plainKey, "z", 12}
		}, "this was read", "not linearizable"},
		{"a value without an answer, seen and then gone", func(h *History) {
			for _, read := range []Operation{
				{Client: 1, Called: seconds(12.5), Returned: seconds(12.6), Known: 20, Revision: 20, Read: &Read{unknownKey, "without an answer", 14}},
				{Client: 1, Called: seconds(12.7), Returned: seconds(12.8), Known: 20, Revision: 20, Read: &Read{Key: unknownKey}},
			} {
				h.add(read)
			}
		}, "this was read", "not linearizable"},

		{"a lease that ended early", func(h *History) {
			h.Watches[0].Events[h.at(18, shortKey)].At = seconds(1.2+4) - 1
		}, "has lived for", ""},
		{"a lease that lived on", func(h *History) {
			h.Watches[0].Events[h.at(18, shortKey)].At = seconds(1.2+4+60) + 1
		}, "has lived for", ""},
		{"a lease that never ended", func(h *History) {
			h.lose(18, shortKey)
			h.Stored["lent/"] = []Stored{{shortKey, "short", 11}}
		}, "has never ended", ""},
		{"a lease that was kept alive, and ended early", func(h *History) {
			h.Watches[0].Events[h.at(19, heldKey)].At = seconds(3+8-1) - 1
		}, "after it was renewed", ""},
		{"a lease that was kept alive, and never ended", func(h *History) {
			h.lose(19, heldKey)
			h.Stored["lent/"] = []Stored{{heldKey, "held", 15}}
		}, "has never ended", ""},
	} {
		h := honest()
		planted.plant(h)
		path := filepath.Join(t.TempDir(), "history.jsonl")
		file, err := os.Create(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := h.write(file); err != nil {
			t.Fatal(err)
		}
		read, err := FromFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for place, h := range []*History{h, read} {
			rules, order := strings.Join(h.rules(), "\n"), strings.Join(h.order(), "\n")
			isRight := strings.Contains(rules, planted.rules) && strings.Contains(order, planted.order)
			if place == 1 {
				// Read from the file the answers come anew, and may break another rule first.
				isRight = (rules == "") == (planted.rules == "") && strings.Contains(order, planted.order)
			}
			if !isRight || planted.rules == "" && rules+order != "" {
				t.Errorf("%s is planted: the rules find %q, and porcupine %q", planted.name, rules, order)
			}
		}
	}
}

// TestLaggingHeaders plants reads through a proxy whose headers may be older than what it read.
func TestLaggingHeaders(t *testing.T) {
	for _, planted := range []struct {
		name   string
		read   Read
		known  int64
		isRead bool
	}{
		{"the newest", Read{plainKey, "b", 12}, 10, true},
		{"what was newest when the read was sent", Read{plainKey, "a", 10}, 11, true},
		{"what was known to be replaced", Read{plainKey, "a", 10}, 12, false},
		{"nothing, of a key that was there", Read{Key: plainKey}, 12, false},
		{"nothing, of a key that was deleted later", Read{Key: otherKey}, 15, true},
	} {
		h := honest()
		h.HeadersLag = true
		h.add(Operation{Client: 3, Called: seconds(12.5), Returned: seconds(12.6), Known: planted.known, Revision: 10, Read: &planted.read})
		if found := h.rules(); (len(found) == 0) != planted.isRead {
			t.Errorf("%s is read: %q", planted.name, found)
		}
	}
}

// TestPart plants faults in a part of a history that goes on.
func TestPart(t *testing.T) {
	h := honest()
	events := upTo(h.Watches[0].Events, 16)
	if found := h.Part(events, 10, 16); len(found) > 0 {
		t.Errorf("nothing is planted: %q", found)
	}
	for name, part := range map[string][]Event{
		"an event is missing": without(events, 13, goneKey), "the last event is missing": without(events, 16, otherKey), "nothing": nil,
	} {
		if found := h.Part(part, 10, 16); len(found) == 0 {
			t.Errorf("%s, and nothing is found", name)
		}
	}
}

// TestFile judges a history that an earlier run has left.
func TestFile(t *testing.T) {
	path := os.Getenv("HISTORY")
	if path == "" {
		t.Skip("HISTORY names no file")
	}
	h, err := FromFile(path)
	if err != nil {
		t.Fatal(err)
	}
	h.Check(t)
	t.Logf("%d operations, %d watches, %d leases, revisions %d to %d", len(h.Operations), len(h.Watches), len(h.Leases), h.First, h.Last)
}
