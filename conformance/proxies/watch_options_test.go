package proxies

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"google.golang.org/grpc"

	"cairn.dev/conformance/harness"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// watchStream is a stream of a connection of its own, with one watch that is
// created.
func watchStream(ctx context.Context, t testing.TB, address string, request *pb.WatchCreateRequest, options ...grpc.DialOption) pb.Watch_WatchClient {
	t.Helper()
	options = append(options, grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(64<<20)))
	stream, err := pb.NewWatchClient(connTo(t, address, options...)).Watch(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.Send(&pb.WatchRequest{RequestUnion: &pb.WatchRequest_CreateRequest{CreateRequest: request}}); err != nil {
		t.Fatal(err)
	}
	if created, err := stream.Recv(); err != nil || !created.Created || created.Canceled {
		t.Fatalf("the watch is not created: %v, %v", created, err)
	}
	return stream
}

// shown is an event in few words.
func shown(event *mvccpb.Event) string {
	text := fmt.Sprintf("%s %s %.6s", event.Type, event.Kv.Key, event.Kv.Value)
	if event.PrevKv != nil {
		text += fmt.Sprintf(" after %.6s", event.PrevKv.Value)
	}
	return text
}

// Each watch of a shared range gets what it asked for: filters, what was there
// before, fragments, older revisions, and progress by itself.
func TestProxyWatchOptions(t *testing.T) {
	t.Parallel()
	if harness.Subject() == harness.Etcd {
		t.Skip("the genuine proxy passes neither fragments nor progress on")
	}
	ctx := harness.Context(t)
	server := harness.Start(t, harness.Subject(), "--watch-progress-notify-interval=100ms")
	proxy := startProxy(t, []string{server.Endpoint()})
	writer := server.Client()
	old := mustPut(ctx, t, writer, "w1", "first")
	var wanted []string
	const keys = 5
	large := strings.Repeat("large.", 100_000)
	for key := 1; key <= keys; key++ {
		wanted = append(wanted, fmt.Sprintf("PUT w%d large.", key))
	}
	for key := 1; key <= keys; key++ {
		wanted = append(wanted, fmt.Sprintf("DELETE w%d ", key))
	}
	puts, deletes := wanted[:keys], wanted[keys:]
	before := []string{"PUT w1 large. after first"}
	before = append(before, puts[1:]...)
	for _, event := range deletes {
		before = append(before, event+" after large.")
	}
	type watch struct {
		name      string
		request   *pb.WatchCreateRequest
		events    []string
		fragments bool
		stream    pb.Watch_WatchClient
	}
	all := []*watch{
		{name: "plain", request: &pb.WatchCreateRequest{}, events: wanted},
		{name: "no puts", request: &pb.WatchCreateRequest{Filters: []pb.WatchCreateRequest_FilterType{pb.WatchCreateRequest_NOPUT}}, events: deletes},
		{name: "no deletes", request: &pb.WatchCreateRequest{Filters: []pb.WatchCreateRequest_FilterType{pb.WatchCreateRequest_NODELETE}}, events: puts},
		{name: "what was before", request: &pb.WatchCreateRequest{PrevKv: true}, events: before},
		{name: "in fragments", request: &pb.WatchCreateRequest{PrevKv: true, Fragment: true}, events: before, fragments: true},
		{name: "an older revision", request: &pb.WatchCreateRequest{StartRevision: old}, events: append([]string{"PUT w1 first"}, wanted...)},
		{name: "progress", request: &pb.WatchCreateRequest{ProgressNotify: true}, events: wanted},
	}
	for _, watch := range all {
		watch.request.Key, watch.request.RangeEnd = []byte("w"), []byte("x")
		watch.stream = watchStream(ctx, t, proxy.address, watch.request)
	}
	for key := 1; key <= keys; key++ {
		mustPut(ctx, t, writer, fmt.Sprintf("w%d", key), large)
	}
	// With what was there before, these are more than one message should have.
	deleted, err := writer.Delete(ctx, "w", clientv3.WithPrefix())
	if err != nil || deleted.Deleted != keys {
		t.Fatalf("%v, %v", deleted, err)
	}
	last := deleted.Header.Revision
	for _, watch := range all {
		var events []string
		fragments, inside, progress := 0, false, int64(0)
		for len(events) < len(watch.events) || inside || (watch.request.ProgressNotify && progress < last) {
			answer, err := watch.stream.Recv()
			if err != nil || answer.Canceled {
				t.Fatalf("%s: %v, %v after %q", watch.name, answer, err, events)
			}
			if len(answer.Events) == 0 {
				progress = answer.Header.Revision
				if progress >= last && len(events) < len(watch.events) {
					t.Errorf("%s: progress %d before %q", watch.name, progress, watch.events[len(events):])
				}
				continue
			}
			if inside = answer.Fragment; inside {
				fragments++
			}
			for _, event := range answer.Events {
				events = append(events, shown(event))
			}
		}
		if strings.Join(events, "\n") != strings.Join(watch.events, "\n") {
			t.Errorf("%s: %q and not %q", watch.name, events, watch.events)
		}
		if (fragments > 0) != watch.fragments {
			t.Errorf("%s: %d fragments", watch.name, fragments)
		}
	}
}

// Watchers that take nothing delay nobody, and get every event once and in
// order when they read again.
func TestProxyWatchersThatDoNotRead(t *testing.T) {
	t.Parallel()
	const clients, puts, bytes = 8, 32, 128 << 10
	ctx := harness.Context(t)
	server := harness.Start(t, harness.Subject())
	proxy := startProxy(t, []string{server.Endpoint()})
	request := func() *pb.WatchCreateRequest { return &pb.WatchCreateRequest{Key: []byte("k"), RangeEnd: []byte("l")} }
	var silent []pb.Watch_WatchClient
	for range clients {
		// HTTP/2 lets so much be sent to it: a fraction of what comes.
		silent = append(silent, watchStream(ctx, t, proxy.address, request(), grpc.WithInitialWindowSize(64<<10), grpc.WithInitialConnWindowSize(64<<10)))
	}
	honest := watchStream(ctx, t, proxy.address, request())
	// Events of several revisions may come in one message.
	pending := map[pb.Watch_WatchClient][]*mvccpb.Event{}
	sees := func(stream pb.Watch_WatchClient, number int) error {
		for len(pending[stream]) == 0 {
			answer, err := stream.Recv()
			if err != nil || answer.Canceled {
				return fmt.Errorf("instead of event %d: %v, %w", number, answer, err)
			}
			pending[stream] = answer.Events
		}
		event := pending[stream][0]
		pending[stream] = pending[stream][1:]
		if want := fmt.Sprintf("k%04d", number); string(event.Kv.Key) != want || len(event.Kv.Value) != bytes {
			return fmt.Errorf("%s with %d bytes and not %s", event.Kv.Key, len(event.Kv.Value), want)
		}
		return nil
	}
	value := strings.Repeat("v", bytes)
	for number := range puts {
		mustPut(ctx, t, server.Client(), fmt.Sprintf("k%04d", number), value)
		if err := sees(honest, number); err != nil {
			t.Fatalf("beside clients that do not read: %v", err)
		}
	}
	for client, stream := range silent {
		for number := range puts {
			if err := sees(stream, number); err != nil {
				t.Fatalf("client %d, once it reads: %v", client, err)
			}
		}
	}
}
