// Package audit judges what clients of a cluster were told while it was broken:
// no acknowledged write is lost or done twice, and all answers fit one order
// that agrees with time.
package audit

import (
	"cmp"
	"fmt"
	"slices"
	"sort"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
)

// operation is one put or linearizable get of a client, and what it was told.
type operation struct {
	client int
	key    string
	// value that was put, or the one that was read.
	value string
	put   bool
	// revision that the put was given, or of the value that was read; 0 if the
	// put's outcome is unknown or the key was absent.
	revision int64
	called   time.Duration
	returned time.Duration
}

// never is when a put of unknown outcome returns: after everything else.
const never = 1 << 62

// Record is what all clients did.
type Record struct {
	mutex      sync.Mutex
	started    time.Time
	operations []operation
	// acknowledged is the highest revision that any client was told.
	acknowledged int64
	// Failures are the requests without an answer.
	Failures int
	// HeadersLag: the header of a read may have an older revision than was
	// acknowledged elsewhere. What was read may not be older.
	HeadersLag bool
	stale      []string
}

// NewRecord is an empty one, whose clock begins now.
func NewRecord() *Record { return &Record{started: time.Now()} }

// Now is the time since the record began.
func (r *Record) Now() time.Duration { return time.Since(r.started) }

// highest is the newest revision that a client knows; what is asked from now
// on must see it.
func (r *Record) highest() int64 {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	return r.acknowledged
}

// add notes an operation that the server answered; `seen` is the revision in
// the answer's header, `known` what was acknowledged before it was sent.
func (r *Record) add(done operation, known, seen int64) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	r.operations = append(r.operations, done)
	r.acknowledged = max(r.acknowledged, seen)
	if seen < known && (done.put || !r.HeadersLag) {
		r.stale = append(r.stale, fmt.Sprintf("client %d was answered at revision %d, sent after %d was acknowledged: %+v",
			done.client, seen, known, done))
	}
}

// lose notes a put whose outcome is unknown.
func (r *Record) lose(put operation) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	r.Failures++
	if put.put {
		put.returned = never
		r.operations = append(r.operations, put)
	}
}

// Since is how many operations were answered from a moment on.
func (r *Record) Since(moment time.Duration) int {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	count := 0
	for _, done := range r.operations {
		if done.returned != never && done.called >= moment {
			count++
		}
	}
	return count
}

// Check holds the record against the history that the members agree on: value
// to revision of every put that took effect.
func (r *Record) Check(t testing.TB, took map[string]int64) {
	t.Helper()
	r.mutex.Lock()
	defer r.mutex.Unlock()
	for _, stale := range r.stale {
		t.Error(stale)
	}
	var events []porcupine.Operation
	for _, done := range r.operations {
		revision, there := took[done.value]
		switch {
		case done.put && done.returned == never && !there:
			continue // It never took effect, and now never can.
		case done.put && done.returned == never:
			// The history says where it took effect; when is open.
			done.revision = revision
		case done.put && revision != done.revision:
			t.Errorf("acknowledged write lost or altered: %+v, revision %d in the history", done, revision)
		}
		events = append(events, porcupine.Operation{
			ClientId: done.client, Input: done, Call: int64(done.called), Output: done, Return: int64(done.returned),
		})
	}
	if result := porcupine.CheckOperationsTimeout(register, events, 5*time.Minute); result != porcupine.Ok {
		t.Errorf("the history of %d operations is not linearizable: %v\n%s", len(events), result, firstUnexplained(events))
	}
}

// firstUnexplained is, of each key whose answers no order explains, the first
// read that cannot be placed, and the puts around it.
func firstUnexplained(events []porcupine.Operation) string {
	var told strings.Builder
	for _, part := range register.Partition(events) {
		var puts, reads []porcupine.Operation
		for _, event := range part {
			if event.Input.(operation).put {
				puts = append(puts, event)
			} else {
				reads = append(reads, event)
			}
		}
		slices.SortFunc(reads, func(a, b porcupine.Operation) int { return cmp.Compare(a.Return, b.Return) })
		first := sort.Search(len(reads), func(count int) bool {
			some := append(slices.Clone(puts), reads[:count+1]...)
			return porcupine.CheckOperationsTimeout(register, some, 10*time.Second) == porcupine.Illegal
		})
		if first == len(reads) {
			continue
		}
		read := reads[first]
		fmt.Fprintf(&told, "%v cannot be placed among\n", read.Input)
		for _, put := range puts {
			if put.Return >= read.Call-int64(time.Second) && put.Call <= read.Return {
				fmt.Fprintf(&told, "  %v\n", put.Input)
			}
		}
		before := reads[max(0, first-5):first]
		for _, earlier := range before {
			fmt.Fprintf(&told, "  %v\n", earlier.Input)
		}
	}
	return told.String()
}

// String is the operation for a person who looks for what is wrong.
func (o operation) String() string {
	what := "read"
	if o.put {
		what = "put"
	}
	ended := o.returned.String()
	if o.returned == never {
		ended = "no answer"
	}
	return fmt.Sprintf("client %d, %v to %s: %s of %s, `%s` at revision %d", o.client, o.called, ended, what, o.key, o.value, o.revision)
}

// version is what a key holds.
type version struct {
	value    string
	revision int64
}

// register is one key: a put makes a version with a higher revision, a get
// sees the last one.
var register = porcupine.Model{
	Partition: func(history []porcupine.Operation) [][]porcupine.Operation {
		byKey := map[string][]porcupine.Operation{}
		for _, event := range history {
			key := event.Input.(operation).key
			byKey[key] = append(byKey[key], event)
		}
		var parts [][]porcupine.Operation
		for _, part := range byKey {
			parts = append(parts, part)
		}
		return parts
	},
	Init: func() any { return version{} },
	Step: func(state, input, _ any) (bool, any) {
		now, done := state.(version), input.(operation)
		next := version{done.value, done.revision}
		if done.put {
			return next.revision > now.revision, next
		}
		return next == now, now
	},
	DescribeOperation: func(input, _ any) string { return fmt.Sprintf("%+v", input) },
}
