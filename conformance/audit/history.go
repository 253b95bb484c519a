// Package audit judges what clients of a server were told while it was broken.
// Every audit keeps its history in one form, which has two judges: porcupine
// looks for one order of all answers that agrees with time, and the rules look
// at revisions, watches, leases and what is stored, without any search.
package audit

import (
	"os"
	"slices"
	"sync"
	"testing"
	"time"
)

// Write is a put or a deletion of one key.
type Write struct {
	Key     string `json:"key"`
	Value   string `json:"value,omitempty"`
	Deleted bool   `json:"deleted,omitempty"`
}

// Read is what a linearizable read of one key has found: nothing if the
// revision is 0.
type Read struct {
	Key      string `json:"key"`
	Value    string `json:"value,omitempty"`
	Revision int64  `json:"revision,omitempty"`
}

// Operation is one request of a client and what it was told: a write, of one
// key or more, or a read.
type Operation struct {
	Client int `json:"client"`
	// Called and Returned are times since the history began; Returned is Never
	// without an answer.
	Called   time.Duration `json:"called"`
	Returned time.Duration `json:"returned"`
	// Known is the highest revision that was acknowledged to anybody before it was sent.
	Known int64 `json:"known"`
	// Revision is that of the answer's header: the one that a write was given.
	Revision int64   `json:"revision,omitempty"`
	Writes   []Write `json:"writes,omitempty"`
	// Leased: the keys hang on a lease, and may go by themselves.
	Leased bool  `json:"leased,omitempty"`
	Read   *Read `json:"read,omitempty"`
}

// Never is when a request without an answer returns: after everything else.
const Never time.Duration = 1 << 62

// Event is what a watch was told of one key.
type Event struct {
	Revision int64 `json:"revision"`
	Write
	// At is when, since the history began.
	At time.Duration `json:"at,omitempty"`
}

// Watch is a watch of all keys.
type Watch struct {
	// First is the first revision that it asked for.
	First  int64
	Events []Event
}

// Lease is one with a key that nobody else writes.
type Lease struct {
	Key string        `json:"key"`
	TTL time.Duration `json:"ttl"`
	// Since is when the grant was asked for, or the last renewal that was answered.
	Since   time.Duration `json:"since"`
	Renewed bool          `json:"renewed,omitempty"`
}

// Stored is a key as it is stored.
type Stored struct {
	Key      string `json:"key"`
	Value    string `json:"value,omitempty"`
	Revision int64  `json:"revision"`
}

// History is what clients did and were told, and what there is in the end.
type History struct {
	mutex   sync.Mutex
	started time.Time
	// Prefixes of the keys that are changed by operations of this history alone.
	Prefixes []string
	// HeadersLag: the header of a read may have an older revision than was
	// acknowledged elsewhere, or than what was read. What was read may not be older.
	HeadersLag bool
	// Stale is how much earlier than it was promised a renewed lease may end, and
	// Overdue how much later than its time one may that nobody renews.
	Stale, Overdue time.Duration

	Operations []Operation
	// Watches: the first has all events from First to Last.
	Watches     []Watch
	First, Last int64
	Leases      map[string]Lease
	// Stored are all keys with each of these prefixes at the end.
	Stored map[string][]Stored

	// Failures are the requests without an answer.
	Failures int
	// tried are the writes of every operation, also of those that are on their way,
	// by the values of its puts. No other operation has them.
	tried map[string][]Write
	// deleting are the keys of deletions that are on their way or have no answer.
	deleting map[string]int
	// given are the operations that were given a revision.
	given   map[int64]int
	highest int64
	// before is how many watches were put before those that Follow has given places.
	before int
	// told are rules that were broken when an answer came.
	told []string
}

// New is an empty history whose clock begins now, of clients that alone change
// the keys with these prefixes. If the test fails it is kept as a file.
func New(t testing.TB, prefixes ...string) *History {
	h := empty(prefixes...)
	t.Cleanup(func() {
		if t.Failed() {
			h.keep(t)
		}
	})
	return h
}

func empty(prefixes ...string) *History {
	return &History{
		started: time.Now(), Prefixes: prefixes, tried: map[string][]Write{}, deleting: map[string]int{}, given: map[int64]int{},
		Leases: map[string]Lease{}, Stored: map[string][]Stored{},
	}
}

// keep writes the history to a file, which outlives the test's own directory.
func (h *History) keep(t testing.TB) {
	h.mutex.Lock()
	defer h.mutex.Unlock()
	file, err := os.CreateTemp("", "history-*.jsonl")
	if err == nil {
		err = h.write(file)
	}
	if err != nil {
		t.Logf("the history was not written: %v", err)
		return
	}
	t.Logf("the history is in %s; HISTORY=%s go test ./audit -run TestFile judges it again", file.Name(), file.Name())
}

// Now is the time since the history began.
func (h *History) Now() time.Duration { return time.Since(h.started) }

// Call notes an operation that is about to be sent.
func (h *History) Call(next *Operation) {
	h.mutex.Lock()
	defer h.mutex.Unlock()
	h.try(*next)
	next.Known, next.Called = h.highest, h.Now()
}

// try notes what an operation may change from now on.
func (h *History) try(next Operation) {
	writes := slices.Clone(next.Writes)
	for _, write := range writes {
		if write.Deleted || next.Leased {
			h.deleting[write.Key]++
		}
		if !write.Deleted {
			h.tried[write.Value] = writes
		}
	}
}

// Answer notes one that the server answered at a revision.
func (h *History) Answer(done Operation, revision int64) {
	done.Returned, done.Revision = h.Now(), revision
	h.mutex.Lock()
	defer h.mutex.Unlock()
	h.add(done)
}

// add notes an operation, and what its revision alone says.
func (h *History) add(done Operation) {
	h.Operations = append(h.Operations, done)
	if done.Returned == Never {
		h.Failures++
		return
	}
	for _, write := range done.Writes {
		if write.Deleted {
			h.deleting[write.Key]--
		}
	}
	h.highest = max(h.highest, done.Revision)
	h.told = append(h.told, h.answered(done, len(h.Operations)-1)...)
}

// Lose notes one without an answer: it may take effect, now or later.
func (h *History) Lose(lost Operation) {
	h.mutex.Lock()
	defer h.mutex.Unlock()
	lost.Returned = Never
	h.add(lost)
}

// Unmade takes out of an operation what its answer says was not made: a deletion
// of a key that was not there, or a put that was refused.
func (h *History) Unmade(done *Operation, place int) {
	h.mutex.Lock()
	defer h.mutex.Unlock()
	if one := done.Writes[place]; one.Deleted {
		h.deleting[one.Key]--
	} else {
		delete(h.tried, one.Value)
	}
	if done.Writes[place].Deleted && len(done.Writes) == 1 {
		// Its answer is that of a read.
		done.Read = &Read{Key: done.Writes[place].Key}
	}
	done.Writes = slices.Delete(slices.Clone(done.Writes), place, place+1)
}

// Follow adds a watch that asks for a first revision, and returns its place.
func (h *History) Follow(first int64) int {
	h.mutex.Lock()
	defer h.mutex.Unlock()
	if first <= 0 || h.before > 0 {
		panic("a watch of a history begins at a revision, and before the end")
	}
	h.Watches = append(h.Watches, Watch{First: first})
	return len(h.Watches) - 1
}

// Tell notes what a watch is told, by its place among the watches.
func (h *History) Tell(watch int, events ...Event) {
	h.mutex.Lock()
	defer h.mutex.Unlock()
	at := h.Now()
	for _, event := range events {
		event.At = at
		told := &h.Watches[h.before+watch]
		told.Events = append(told.Events, event)
	}
}

// Reached is the last revision that a watch was told of.
func (h *History) Reached(watch int) int64 {
	h.mutex.Lock()
	defer h.mutex.Unlock()
	return last(h.Watches[h.before+watch].Events)
}

func last(events []Event) int64 {
	if len(events) == 0 {
		return 0
	}
	return events[len(events)-1].Revision
}

// Lend notes a lease: that it was granted or renewed.
func (h *History) Lend(lease Lease) {
	h.mutex.Lock()
	defer h.mutex.Unlock()
	h.Leases[lease.Key] = lease
}

// Highest is the newest revision that a client was told.
func (h *History) Highest() int64 {
	h.mutex.Lock()
	defer h.mutex.Unlock()
	return h.highest
}

// Acknowledged is how many writes were answered.
func (h *History) Acknowledged() int {
	h.mutex.Lock()
	defer h.mutex.Unlock()
	return len(h.given)
}

// Since is how many operations were answered that were sent from a moment on.
func (h *History) Since(moment time.Duration) int {
	h.mutex.Lock()
	defer h.mutex.Unlock()
	count := 0
	for _, done := range h.Operations {
		if done.Returned != Never && done.Called >= moment {
			count++
		}
	}
	return count
}
