package reliability

import (
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// change is one put or delete of one revision, as a watcher sees it.
type change struct {
	revision int64
	deleted  bool
	key      string
	value    string
}

func (c change) String() string {
	if c.deleted {
		return fmt.Sprintf("%d: delete `%s`", c.revision, c.key)
	}
	return fmt.Sprintf("%d: put `%s` = `%s`", c.revision, c.key, c.value)
}

func changes(response clientv3.WatchResponse) []change {
	var found []change
	for _, event := range response.Events {
		found = append(found, change{
			revision: event.Kv.ModRevision,
			deleted:  event.Type == clientv3.EventTypeDelete,
			key:      string(event.Kv.Key),
			value:    string(event.Kv.Value),
		})
	}
	return found
}

// ledger is what the writers know: what they tried, and what was acknowledged
// at which revision.
type ledger struct {
	mutex        sync.Mutex
	tried        map[string]bool    // values of all puts, each value is used once
	acknowledged map[int64][]change // by revision, in the order inside it
	highest      int64
	failed       int
	problems     []string
}

func newLedger() *ledger {
	return &ledger{tried: map[string]bool{}, acknowledged: map[int64][]change{}}
}

// try notes the values of a write before it is sent, and returns the highest
// revision acknowledged so far: the write must come after it.
func (l *ledger) try(writes []change) int64 {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	for _, write := range writes {
		if !write.deleted {
			l.tried[write.value] = true
		}
	}
	return l.highest
}

// acknowledge notes a write that the server has confirmed.
func (l *ledger) acknowledge(revision, after int64, writes []change) {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	if revision <= after {
		l.problems = append(l.problems, fmt.Sprintf("revision %d was given to a write sent after %d was acknowledged", revision, after))
	}
	if earlier := l.acknowledged[revision]; earlier != nil {
		l.problems = append(l.problems, fmt.Sprintf("revision %d was given to two writes: %v and %v", revision, earlier, writes))
	}
	for i := range writes {
		writes[i].revision = revision
	}
	l.acknowledged[revision] = writes
	l.highest = max(l.highest, revision)
}

// fail notes a write that was answered with an error. Whatever that says, it may
// have been made: NOSPACE, too, is told of some that were applied.
func (l *ledger) fail() {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	l.failed++
}

// highestAcknowledged is the newest revision that a writer was told.
func (l *ledger) highestAcknowledged() int64 {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	return l.highest
}

// count is how many writes were acknowledged.
func (l *ledger) count() int {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	return len(l.acknowledged)
}

// audit holds the ledger against the history that a fresh watcher read: all
// revisions from first to last.
func (l *ledger) audit(t testing.TB, history []change, first, last int64) {
	t.Helper()
	l.mutex.Lock()
	defer l.mutex.Unlock()
	for _, problem := range l.problems {
		t.Error(problem)
	}
	byRevision := map[int64][]change{}
	seen := map[string]int64{}
	for _, change := range history {
		byRevision[change.revision] = append(byRevision[change.revision], change)
		if change.deleted {
			continue
		}
		if !l.tried[change.value] {
			t.Errorf("nobody wrote this: %v", change)
		}
		if earlier, twice := seen[change.value]; twice {
			t.Errorf("a write took effect twice, at revision %d and as %v", earlier, change)
		}
		seen[change.value] = change.revision
	}
	for revision := first; revision <= last; revision++ {
		got := byRevision[revision]
		if got == nil {
			t.Errorf("revision %d is missing (%d to %d are due)", revision, first, last)
		}
		if want := l.acknowledged[revision]; want != nil && !slices.Equal(want, got) {
			t.Errorf("acknowledged write lost or altered: want %v, got %v", want, got)
		}
	}
}

// fold is the state that a history leaves.
func fold(history []change) map[string]string {
	state := map[string]string{}
	for _, change := range history {
		if change.deleted {
			delete(state, change.key)
		} else {
			state[change.key] = change.value
		}
	}
	return state
}

// auditState compares the keys that the server lists with what its history
// leaves.
func auditState(t testing.TB, history []change, listed *clientv3.GetResponse) {
	t.Helper()
	got := map[string]string{}
	for _, kv := range listed.Kvs {
		got[string(kv.Key)] = string(kv.Value)
	}
	if !maps.Equal(fold(history), got) {
		t.Errorf("the list of all keys (%d) is not what the history leaves (%d keys)", len(got), len(fold(history)))
	}
}
