package reliability

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// readHistory reads every change of the revisions first to last with a fresh
// watcher.
func readHistory(t testing.TB, client *clientv3.Client, first, last int64) []change {
	t.Helper()
	if last < first {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	var history []change
	for response := range client.Watch(ctx, "\x00", clientv3.WithFromKey(), clientv3.WithRev(first)) {
		if err := response.Err(); err != nil {
			t.Fatalf("watch from revision %d: %v", first, err)
		}
		for _, change := range changes(response) {
			if change.revision > last {
				return history
			}
			history = append(history, change)
		}
		if n := len(history); n > 0 && history[n-1].revision == last && response.Header.Revision >= last {
			return history
		}
	}
	t.Fatalf("watch from revision %d ended before revision %d, after %d changes", first, last, len(history))
	return nil
}

// currentRevision asks with a linearizable read.
func currentRevision(t testing.TB, client *clientv3.Client) int64 {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for {
		response, err := client.Get(ctx, "none")
		if err == nil {
			return response.Header.Revision
		}
		if ctx.Err() != nil {
			t.Fatalf("no answer to a read: %v", err)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// settledRevision waits until writes that were given up on have taken effect or
// have not.
func settledRevision(t testing.TB, client *clientv3.Client) int64 {
	t.Helper()
	for last := currentRevision(t, client); ; {
		time.Sleep(300 * time.Millisecond)
		now := currentRevision(t, client)
		if now == last {
			return last
		}
		last = now
	}
}

// follower is a watcher that lives through restarts: the client resumes it
// behind the last revision that it has seen.
type follower struct {
	mutex   sync.Mutex
	history []change
	err     error
	done    chan struct{}
}

func startFollower(ctx context.Context, client *clientv3.Client) *follower {
	f := &follower{done: make(chan struct{})}
	events := client.Watch(ctx, "\x00", clientv3.WithFromKey(), clientv3.WithRev(1))
	go func() {
		defer close(f.done)
		for response := range events {
			f.mutex.Lock()
			if err := response.Err(); err != nil && ctx.Err() == nil {
				f.err = err
			}
			f.history = append(f.history, changes(response)...)
			f.mutex.Unlock()
		}
	}()
	return f
}

// audit waits until the follower has seen revision last, and compares what it
// was told up to there with the history.
func (f *follower) audit(t testing.TB, number int, history []change, last int64) {
	t.Helper()
	f.auditWithin(2*time.Minute, t, number, history, last)
}

func (f *follower) auditWithin(patience time.Duration, t testing.TB, number int, history []change, last int64) {
	t.Helper()
	for deadline := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		f.mutex.Lock()
		n, err := len(f.history), f.err
		reached := n > 0 && f.history[n-1].revision >= last
		f.mutex.Unlock()
		if err != nil {
			t.Errorf("follower %d was ended: %v", number, err)
			return
		}
		if reached {
			break
		}
		if time.Now().After(deadline) {
			t.Errorf("follower %d has not seen revision %d (%d changes)", number, last, n)
			return
		}
	}
	f.mutex.Lock()
	defer f.mutex.Unlock()
	told := f.history
	// A write that was given up on may come after all.
	for len(told) > 0 && told[len(told)-1].revision > last {
		told = told[:len(told)-1]
	}
	if slices.Equal(told, history) {
		return
	}
	for i := range min(len(told), len(history)) {
		if told[i] != history[i] {
			t.Errorf("follower %d missed or repeated something: told %v, history has %v", number, told[i], history[i])
			return
		}
	}
	t.Errorf("follower %d was told %d changes, the history has %d", number, len(told), len(history))
}
