package history

import (
	"context"
	"sync"
	"testing"
	"time"

	"cairn.dev/conformance/harness"
	"cairn.dev/conformance/model"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"
)

// deliveryMax is how long events may take.
const deliveryMax = 2 * time.Minute

// watcher is one open watch and what it has delivered.
type watcher struct {
	request *pb.WatchCreateRequest
	// compactedAtStart is the compacted revision when the watch was created.
	compactedAtStart int64
	cancel           context.CancelFunc

	mu        sync.Mutex
	events    []*clientv3.Event
	compacted int64
	problem   string
	ended     bool
}

// openWatch creates the watch; it exists at the server when this returns.
func openWatch(t testing.TB, client *clientv3.Client, store *model.Store, request *pb.WatchCreateRequest) *watcher {
	ctx, cancel := context.WithCancel(t.Context())
	channel := client.Watch(ctx, string(request.Key), watchOptions(request)...)
	// What the model is asked for later must not depend on when.
	request = proto.Clone(request).(*pb.WatchCreateRequest)
	if request.StartRevision == 0 {
		request.StartRevision = store.Revision() + 1
	}
	w := &watcher{request: request, compactedAtStart: store.Compacted(), cancel: cancel}
	go w.collect(channel)
	return w
}

func (w *watcher) collect(channel clientv3.WatchChan) {
	for response := range channel {
		w.mu.Lock()
		w.take(response)
		w.mu.Unlock()
	}
	w.mu.Lock()
	w.ended = true
	w.mu.Unlock()
}

func (w *watcher) take(response clientv3.WatchResponse) {
	if response.CompactRevision != 0 {
		w.compacted = response.CompactRevision
	} else if err := response.Err(); err != nil {
		w.problem = err.Error()
	}
	if len(response.Events) == 0 {
		return
	}
	first, last := response.Events[0], response.Events[len(response.Events)-1]
	if response.Header.Revision < last.Kv.ModRevision {
		w.problem = "a header with a revision before that of the events"
	}
	if len(w.events) > 0 && w.events[len(w.events)-1].Kv.ModRevision == first.Kv.ModRevision {
		w.problem = "a revision whose events come in two responses"
	}
	w.events = append(w.events, response.Events...)
}

// close waits until everything that the model expects has come, compares, and
// ends the watch.
func (w *watcher) close(t testing.TB, store *model.Store) {
	t.Helper()
	defer w.cancel()
	want := store.Events(w.request)
	deadline := time.Now().Add(deliveryMax)
	for time.Now().Before(deadline) && !w.done(len(want)) {
		time.Sleep(time.Millisecond)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	fail := func(format string, arguments ...any) {
		t.Helper()
		t.Logf("watch {%s}, store at %d, compacted at %d, at creation %d",
			prototext.Format(w.request), store.Revision(), store.Compacted(), w.compactedAtStart)
		t.Fatalf(format, arguments...)
	}
	if w.problem != "" {
		fail("%s", w.problem)
	}
	if len(w.events) > len(want) {
		fail("%d events too many, the first is %v", len(w.events)-len(want), w.events[len(want)])
	}
	position := w.request.StartRevision
	for i, event := range w.events {
		if difference := diffEvent(w.request, store, want[i], event); difference != "" {
			fail("event %d of %d: %s", i, len(want), difference)
		}
		position = event.Kv.ModRevision + 1
	}
	switch {
	case w.compacted == 0 && w.request.StartRevision < w.compactedAtStart:
		fail("a watch from a compacted revision is not canceled")
	case w.compacted == 0 && len(w.events) < len(want):
		fail("%d events are missing, the first is %v", len(want)-len(w.events), want[len(w.events)])
	case w.compacted != 0 && (w.compacted > store.Compacted() || position >= w.compacted):
		fail("canceled as compacted at %d, but the watch was at %d", w.compacted, position)
	}
}

func (w *watcher) done(count int) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	awaitsCancel := w.request.StartRevision < w.compactedAtStart
	return w.ended || w.problem != "" || w.compacted != 0 || len(w.events) >= count && !awaitsCancel
}

func diffEvent(request *pb.WatchCreateRequest, store *model.Store, want model.WatchEvent, got *clientv3.Event) string {
	message := (*mvccpb.Event)(got)
	expected := proto.Clone(want.Event).(*mvccpb.Event)
	if request.PrevKv {
		expected.PrevKv = want.Before
		// It is read when the event is sent; a compaction may come first.
		if message.PrevKv == nil && store.Compacted() > got.Kv.ModRevision-1 {
			expected.PrevKv = nil
		}
	} else if harness.Subject() == harness.Etcd {
		// Genuine watchers share events: another one's wish shows here.
		message = proto.Clone(message).(*mvccpb.Event)
		message.PrevKv = nil
	}
	return harness.Diff(expected, nil, message, nil)
}

func watchOptions(request *pb.WatchCreateRequest) []clientv3.OpOption {
	options := []clientv3.OpOption{clientv3.WithRev(request.StartRevision)}
	if len(request.RangeEnd) > 0 {
		options = append(options, clientv3.WithRange(string(request.RangeEnd)))
	}
	if request.PrevKv {
		options = append(options, clientv3.WithPrevKV())
	}
	if request.Fragment {
		options = append(options, clientv3.WithFragment())
	}
	if request.ProgressNotify {
		options = append(options, clientv3.WithProgressNotify())
	}
	for _, filter := range request.Filters {
		if filter == pb.WatchCreateRequest_NOPUT {
			options = append(options, clientv3.WithFilterPut())
		} else {
			options = append(options, clientv3.WithFilterDelete())
		}
	}
	return options
}
