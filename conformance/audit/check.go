package audit

import (
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// Check has both judges look at a history that is over.
func (h *History) Check(t testing.TB) {
	t.Helper()
	h.mutex.Lock()
	defer h.mutex.Unlock()
	for _, one := range append(h.rules(), h.order()...) {
		t.Error(one)
	}
}

// End gives a history that is over all events, as several watches of everything
// told them afterwards: they come before those that it has.
func (h *History) End(first, last int64, watches ...Watch) {
	h.mutex.Lock()
	defer h.mutex.Unlock()
	h.First, h.Last = first, last
	h.before = len(watches)
	h.Watches = append(watches, h.Watches...)
}

// Await waits until all watches have been told of a revision.
func (h *History) Await(t testing.TB, last int64) {
	t.Helper()
	h.mutex.Lock()
	count := len(h.Watches)
	h.mutex.Unlock()
	for number := range count {
		for deadline := time.Now().Add(2 * time.Minute); h.Reached(number) < last; time.Sleep(20 * time.Millisecond) {
			if time.Now().After(deadline) {
				t.Errorf("watch %d was not told of revision %d, but of %d", number, last, h.Reached(number))
				break
			}
		}
	}
}

// StoredOf are the keys of an answer.
func StoredOf(response *clientv3.GetResponse) (stored []Stored) {
	for _, kv := range response.Kvs {
		stored = append(stored, Stored{string(kv.Key), string(kv.Value), kv.ModRevision})
	}
	return stored
}

// Took is the revision of each value that was put.
func (h *History) Took() map[string]int64 {
	h.mutex.Lock()
	defer h.mutex.Unlock()
	took := map[string]int64{}
	for _, event := range h.Watches[0].Events {
		if !event.Deleted {
			took[event.Value] = event.Revision
		}
	}
	return took
}
