package audit

import (
	"cmp"
	"fmt"
	"slices"
	"sort"
	"strings"
	"time"

	"github.com/anishathalye/porcupine"
)

// access is what an operation did to one key, as porcupine looks at it.
type access struct {
	client int
	Write
	// put or deletion, or else a read.
	isWrite bool
	// revision that the write was given, or of the value that was read.
	revision         int64
	called, returned time.Duration
}

// order looks for one order of all that was done to each key that agrees with
// time, and says what stands in its way.
func (h *History) order() []string {
	if len(h.Watches) == 0 {
		return []string{"there is no watch of everything"}
	}
	events := porcupineOf(h.accesses(upTo(h.Watches[0].Events, h.Last)))
	if result := porcupine.CheckOperationsTimeout(register, events, 5*time.Minute); result != porcupine.Ok {
		return []string{fmt.Sprintf("the history of %d accesses is not linearizable: %v\n%s", len(events), result, firstUnexplained(events))}
	}
	return nil
}

// accesses are those of all operations to keys of this history. Of what had no
// answer, the events say whether and where it took effect; when is open.
func (h *History) accesses(all []Event) (found []access) {
	took, byRevision := map[string]int64{}, map[int64][]Write{}
	// Deletions that nobody was told of, by their keys.
	unexplained := map[string][]int64{}
	explained := map[int64]bool{}
	leased := map[string]bool{}
	var deletions []Operation
	for _, event := range all {
		byRevision[event.Revision] = append(byRevision[event.Revision], event.Write)
		if !event.Deleted {
			took[event.Value] = event.Revision
		} else if _, given := h.given[event.Revision]; !given {
			unexplained[event.Key] = append(unexplained[event.Key], event.Revision)
		}
	}
	write := func(done Operation, revision int64, writes []Write) {
		for _, write := range writes {
			if h.isOwn(write.Key) {
				found = append(found, access{done.Client, write, true, revision, done.Called, done.Returned})
			}
		}
	}
	for _, done := range h.Operations {
		put := slices.IndexFunc(done.Writes, func(write Write) bool { return !write.Deleted })
		switch {
		case done.Read != nil:
			if done.Returned != Never && h.isOwn(done.Read.Key) {
				read := Write{done.Read.Key, done.Read.Value, done.Read.Revision == 0}
				found = append(found, access{done.Client, read, false, done.Read.Revision, done.Called, done.Returned})
			}
		case done.Returned != Never:
			write(done, done.Revision, done.Writes)
		case put >= 0:
			if revision, is := took[done.Writes[put].Value]; is {
				explained[revision] = true
				write(done, revision, byRevision[revision])
			}
		default:
			deletions = append(deletions, done)
		}
		for _, write := range done.Writes {
			leased[write.Key] = leased[write.Key] || done.Leased
		}
	}
	// Any other deletion of these keys may be that of the first who asked for one, or the end of a lease.
	slices.SortFunc(deletions, func(a, b Operation) int { return cmp.Compare(a.Called, b.Called) })
	for key := range leased {
		if leased[key] {
			deletions = append(deletions, Operation{Returned: Never, Writes: []Write{{Key: key, Deleted: true}}})
		}
	}
	for _, done := range deletions {
		for _, deletion := range done.Writes {
			for _, revision := range unexplained[deletion.Key] {
				if !explained[revision] {
					write(done, revision, []Write{deletion})
				}
			}
			delete(unexplained, deletion.Key)
		}
	}
	return found
}

func porcupineOf(accesses []access) (events []porcupine.Operation) {
	for _, one := range accesses {
		events = append(events, porcupine.Operation{
			ClientId: one.client, Input: one, Call: int64(one.called), Output: one, Return: int64(one.returned),
		})
	}
	return events
}

// firstUnexplained is, of each key whose accesses no order explains, the first
// read that cannot be placed, and the writes around it.
func firstUnexplained(events []porcupine.Operation) string {
	var told strings.Builder
	until := time.Now().Add(time.Minute)
	for _, part := range register.Partition(events) {
		var writes, reads []porcupine.Operation
		for _, event := range part {
			if event.Input.(access).isWrite {
				writes = append(writes, event)
			} else {
				reads = append(reads, event)
			}
		}
		slices.SortFunc(reads, func(a, b porcupine.Operation) int { return cmp.Compare(a.Return, b.Return) })
		if time.Now().After(until) {
			break
		}
		first := sort.Search(len(reads), func(count int) bool {
			some := append(slices.Clone(writes), reads[:count+1]...)
			return porcupine.CheckOperationsTimeout(register, some, 10*time.Second) == porcupine.Illegal
		})
		if first == len(reads) {
			continue
		}
		read := reads[first]
		fmt.Fprintf(&told, "%v cannot be placed among\n", read.Input)
		for _, write := range writes {
			if write.Return >= read.Call-int64(time.Second) && write.Call <= read.Return {
				fmt.Fprintf(&told, "  %v\n", write.Input)
			}
		}
		for _, earlier := range reads[max(0, first-5):first] {
			fmt.Fprintf(&told, "  %v\n", earlier.Input)
		}
	}
	return told.String()
}

// register is one key: a write makes a version with a higher revision, a read
// sees the last one.
var register = porcupine.Model{
	Partition: func(history []porcupine.Operation) [][]porcupine.Operation {
		byKey := map[string][]porcupine.Operation{}
		for _, event := range history {
			key := event.Input.(access).Key
			byKey[key] = append(byKey[key], event)
		}
		var parts [][]porcupine.Operation
		for _, part := range byKey {
			parts = append(parts, part)
		}
		return parts
	},
	// Of a key that is deleted the revision of that is kept, which no read says.
	Init: func() any { return access{Write: Write{Deleted: true}} },
	Step: func(state, input, _ any) (bool, any) {
		now, done := state.(access), input.(access)
		if done.isWrite {
			return done.revision > now.revision, access{Write: Write{Value: done.Value, Deleted: done.Deleted}, revision: done.revision}
		}
		return now.Deleted == done.Deleted && (done.Deleted || now.Value == done.Value && now.revision == done.revision), now
	},
	DescribeOperation: func(input, _ any) string { return fmt.Sprint(input) },
}

// String is the access for a person who looks for what is wrong.
func (a access) String() string {
	what := "read"
	switch {
	case a.isWrite && a.Deleted:
		what = "deletion"
	case a.isWrite:
		what = "put"
	}
	return fmt.Sprintf("client %d, %v: %s of %s, `%s` at revision %d", a.client, span(a.called, a.returned), what, a.Key, a.Value, a.revision)
}

// span is when an operation was called and when it returned.
func span(called, returned time.Duration) string {
	if returned == Never {
		return fmt.Sprintf("%v, no answer", called)
	}
	return fmt.Sprintf("%v to %v", called, returned)
}

// String is the operation for a person.
func (o Operation) String() string {
	what := fmt.Sprintf("wrote %v", o.Writes)
	if o.Read != nil {
		what = fmt.Sprintf("read %s, `%s` of revision %d", o.Read.Key, o.Read.Value, o.Read.Revision)
	}
	return fmt.Sprintf("client %d, %s, revision %d: %s", o.Client, span(o.Called, o.Returned), o.Revision, what)
}

// String is the change for a person.
func (w Write) String() string {
	if w.Deleted {
		return fmt.Sprintf("delete `%s`", w.Key)
	}
	return fmt.Sprintf("put `%s` = `%s`", w.Key, w.Value)
}

// String is the event for a person.
func (e Event) String() string { return fmt.Sprintf("%d: %v", e.Revision, e.Write) }
