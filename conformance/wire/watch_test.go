package wire

import (
	"context"
	"sort"
	"strings"
	"testing"

	"cairn.dev/conformance/harness"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
)

// watchPair is a watch stream to each server; what is sent goes to both.
type watchPair struct {
	t       *testing.T
	kv      []pb.KVClient
	streams []grpc.BidiStreamingClient[pb.WatchRequest, pb.WatchResponse]
}

func openWatches(both *sides) *watchPair {
	both.t.Helper()
	pair := &watchPair{t: both.t}
	ctx, cancel := context.WithTimeout(both.t.Context(), callMax)
	both.t.Cleanup(cancel)
	for _, conn := range []*grpc.ClientConn{both.etcd, both.subject} {
		stream, err := pb.NewWatchClient(conn).Watch(ctx)
		if err != nil {
			both.t.Fatal(err)
		}
		pair.kv = append(pair.kv, pb.NewKVClient(conn))
		pair.streams = append(pair.streams, stream)
	}
	return pair
}

func (p *watchPair) send(request *pb.WatchRequest) {
	p.t.Helper()
	for _, stream := range p.streams {
		if err := stream.Send(request); err != nil {
			p.t.Fatal(err)
		}
	}
}

func (p *watchPair) create(request *pb.WatchCreateRequest) {
	p.t.Helper()
	p.send(&pb.WatchRequest{RequestUnion: &pb.WatchRequest_CreateRequest{CreateRequest: request}})
}

func (p *watchPair) cancel(id int64) {
	p.t.Helper()
	cancel := &pb.WatchCancelRequest{WatchId: id}
	p.send(&pb.WatchRequest{RequestUnion: &pb.WatchRequest_CancelRequest{CancelRequest: cancel}})
}

func (p *watchPair) progress() {
	p.t.Helper()
	progress := &pb.WatchRequest_ProgressRequest{ProgressRequest: &pb.WatchProgressRequest{}}
	p.send(&pb.WatchRequest{RequestUnion: progress})
}

func (p *watchPair) put(key, value string) {
	p.t.Helper()
	for _, kv := range p.kv {
		if _, err := kv.Put(harness.Context(p.t), &pb.PutRequest{Key: []byte(key), Value: []byte(value)}); err != nil {
			p.t.Fatal(err)
		}
	}
}

// same receives so many responses from both and compares them; what different
// watches get may come in any order.
func (p *watchPair) same(count int) {
	p.t.Helper()
	var received [2][]*pb.WatchResponse
	for i, stream := range p.streams {
		for range count {
			response, err := stream.Recv()
			if err != nil {
				p.t.Fatalf("%s: %v, after %v", []string{"etcd", "subject"}[i], err, received[i])
			}
			received[i] = append(received[i], response)
		}
		sort.SliceStable(received[i], func(a, b int) bool { return received[i][a].WatchId < received[i][b].WatchId })
	}
	for i, want := range received[0] {
		if difference := harness.Diff(want, nil, received[1][i], nil); difference != "" {
			p.t.Errorf("response %d of %d: %s", i, count, difference[:min(3000, len(difference))])
		}
	}
}

// Creating, canceling and progress on one stream, answer by answer.
func TestWatchControl(t *testing.T) {
	p := openWatches(startSides(t))
	a := []byte("a")
	p.create(&pb.WatchCreateRequest{Key: a})
	p.same(1)
	p.create(&pb.WatchCreateRequest{Key: a, PrevKv: true})
	p.same(1)
	for _, request := range []*pb.WatchCreateRequest{
		{Key: a, WatchId: 1}, // taken
		{Key: a, WatchId: 7},
		{Key: a, WatchId: 7},
		{Key: a, WatchId: 1 << 62},
		{Key: a, WatchId: -5},
		{Key: []byte("b"), RangeEnd: a},
		{Key: a, RangeEnd: a},
		{Key: a, StartRevision: -1},
		{Key: a, StartRevision: -1 << 63},
		{Key: a, Filters: []pb.WatchCreateRequest_FilterType{5, -1}},
		{WatchId: 20}, // no key: the least one
		{RangeEnd: []byte{0}, WatchId: 21},
		{Key: a, WatchId: 22, Filters: []pb.WatchCreateRequest_FilterType{pb.WatchCreateRequest_NOPUT}},
		{Key: a}, // the next free id
	} {
		p.create(request)
		p.same(1)
	}
	p.put("a", "1")
	p.same(8)
	p.cancel(7)
	p.same(1)
	p.cancel(7) // unknown by now: no answer
	p.cancel(99)
	p.send(&pb.WatchRequest{})
	p.create(&pb.WatchCreateRequest{Key: a, WatchId: 7, StartRevision: 2})
	p.same(2)
	p.put("\x00", "least")
	p.same(2)
}

// Progress is answered for all watches at once, and only if all of them have
// seen everything.
func TestWatchProgress(t *testing.T) {
	both := startSides(t)
	p := openWatches(both)
	p.put("a", "1")
	p.progress() // without watches: no answer
	p.create(&pb.WatchCreateRequest{Key: []byte("a")})
	p.same(1)
	p.progress()
	p.same(1)
	p.put("b", "2")
	p.progress()
	p.same(1)
	p.create(&pb.WatchCreateRequest{Key: []byte("z"), StartRevision: 1000})
	p.same(1)
	p.progress() // a watch from the future: no answer
	p.cancel(1)
	p.same(1)
	p.progress()
	p.same(1)
	p.cancel(0)
	p.same(1)
	p.progress() // without watches again
	p.create(&pb.WatchCreateRequest{Key: []byte("a"), StartRevision: 2})
	p.same(2)
}

// A watch from before a compaction is canceled; one from it is served.
func TestWatchCompacted(t *testing.T) {
	both := startSides(t)
	p := openWatches(both)
	for _, value := range []string{"1", "2", "3", "4"} {
		p.put("a", value)
	}
	both.sameMessage("/etcdserverpb.KV/Compact", &pb.CompactionRequest{Revision: 4, Physical: true})
	for revision := int64(1); revision < 7; revision++ {
		p.create(&pb.WatchCreateRequest{Key: []byte("a"), StartRevision: revision, PrevKv: true})
		if revision == 6 {
			p.same(1)
		} else {
			p.same(2)
		}
	}
}

// One revision with more events than a message should hold, in pieces or
// whole.
func TestWatchFragments(t *testing.T) {
	both := startSides(t)
	p := openWatches(both)
	for _, key := range []string{"a", "b", "c", "d"} {
		p.put(key, strings.Repeat("v", 1_000_000))
	}
	all := &pb.DeleteRangeRequest{Key: []byte("a"), RangeEnd: []byte{0}}
	both.sameMessage("/etcdserverpb.KV/DeleteRange", all)
	watch := &pb.WatchCreateRequest{Key: []byte("a"), RangeEnd: []byte{0}, StartRevision: 6, PrevKv: true}
	p.create(watch)
	p.same(2)
	watch.Fragment = true
	p.create(watch)
	// Four previous values of 1 MB in pieces of at most 2 MiB.
	p.same(1 + 2)
	p.cancel(1)
	p.same(1)
}

// A client that has nothing more to say still gets its events.
func TestWatchHalfClosed(t *testing.T) {
	p := openWatches(startSides(t))
	p.create(&pb.WatchCreateRequest{Key: []byte("a")})
	p.same(1)
	for _, stream := range p.streams {
		if err := stream.CloseSend(); err != nil {
			t.Fatal(err)
		}
	}
	p.put("a", "1")
	p.same(1)
}

// With a short interval a watch without events is told of progress.
func TestWatchPeriodicProgress(t *testing.T) {
	both := startSides(t, "--watch-progress-notify-interval=200ms")
	p := openWatches(both)
	p.put("b", "1")
	p.create(&pb.WatchCreateRequest{Key: []byte("a"), ProgressNotify: true})
	p.same(1)
	p.same(2)
}
