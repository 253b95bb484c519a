package wire

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"testing"

	"cairn.dev/conformance/harness"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/protobuf/proto"
)

// Many renewals on one lease stream are answered in order.
func TestKeepAliveStream(t *testing.T) {
	both := startSides(t)
	both.sameMessage("/etcdserverpb.Lease/LeaseGrant", &pb.LeaseGrantRequest{ID: 5, TTL: 100})
	both.sameMessage("/etcdserverpb.Lease/LeaseGrant", &pb.LeaseGrantRequest{ID: -6, TTL: 200})
	var answers [2][]proto.Message
	for i, conn := range []*grpc.ClientConn{both.etcd, both.subject} {
		stream, err := pb.NewLeaseClient(conn).LeaseKeepAlive(harness.Context(t))
		if err != nil {
			t.Fatal(err)
		}
		for _, id := range []int64{5, -6, 7, 0, 5, math.MaxInt64, math.MinInt64, -6} {
			if err := stream.Send(&pb.LeaseKeepAliveRequest{ID: id}); err != nil {
				t.Fatal(err)
			}
		}
		stream.CloseSend()
		for {
			response, err := stream.Recv()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			answers[i] = append(answers[i], response)
		}
	}
	if len(answers[0]) != len(answers[1]) {
		t.Fatalf("%d and %d answers", len(answers[0]), len(answers[1]))
	}
	for i, want := range answers[0] {
		if difference := harness.Diff(want, nil, answers[1][i], nil); difference != "" {
			t.Errorf("answer %d: %s", i, difference)
		}
	}
}

// A lease that is not renewed ends, and its keys go in one revision.
func TestLeaseExpiry(t *testing.T) {
	both := startSides(t)
	p := openWatches(both)
	both.sameMessage("/etcdserverpb.Lease/LeaseGrant", &pb.LeaseGrantRequest{ID: 5, TTL: 8})
	for _, key := range []string{"b", "c", "a"} {
		both.sameMessage("/etcdserverpb.KV/Put", &pb.PutRequest{Key: []byte(key), Lease: 5})
	}
	p.create(&pb.WatchCreateRequest{Key: []byte("a"), RangeEnd: []byte("z"), PrevKv: true})
	p.same(1)
	p.same(1)
	both.sameMessage("/etcdserverpb.KV/Range", &pb.RangeRequest{Key: []byte("a"), RangeEnd: []byte("z")})
	both.sameMessage("/etcdserverpb.Lease/LeaseTimeToLive", &pb.LeaseTimeToLiveRequest{ID: 5})
	both.sameMessage("/etcdserverpb.Lease/LeaseRevoke", &pb.LeaseRevokeRequest{ID: 5})
	both.sameMessage("/etcdserverpb.Lease/LeaseLeases", &pb.LeaseLeasesRequest{})
}

// A range of many keys comes in pieces: at most ten keys first, keys in order,
// the header only at the end.
func TestRangeStreamPieces(t *testing.T) {
	both := startSides(t)
	for i := range 300 {
		request := &pb.PutRequest{Key: fmt.Appendf(nil, "k%04d", i), Value: make([]byte, i*50)}
		both.sameMessage("/etcdserverpb.KV/Put", request)
	}
	for _, request := range []*pb.RangeRequest{
		{Key: []byte("k"), RangeEnd: []byte("l")},
		{Key: []byte("k"), RangeEnd: []byte("l"), Limit: 7},
		{Key: []byte("k"), RangeEnd: []byte("l"), Limit: 100},
		{Key: []byte("k"), RangeEnd: []byte("l"), Limit: 300},
		{Key: []byte("k"), RangeEnd: []byte("l"), CountOnly: true},
		{Key: []byte("k"), RangeEnd: []byte("l"), KeysOnly: true},
		{Key: []byte("k"), RangeEnd: []byte("l"), Revision: 150},
		{Key: []byte("none")},
	} {
		want, got := pieces(t, both.etcd, request), pieces(t, both.subject, request)
		if difference := harness.Diff(merged(t, want), nil, merged(t, got), nil); difference != "" {
			t.Errorf("{%v}: %s", request, difference[:min(3000, len(difference))])
		}
		if first := len(got[0].Kvs); first > 10 {
			t.Errorf("{%v}: the first piece has %d keys", request, first)
		}
		if request.Limit == 0 && len(want) > 1 && len(got) == 1 {
			t.Errorf("{%v}: one piece, etcd sends %d", request, len(want))
		}
	}
}

func pieces(t *testing.T, conn *grpc.ClientConn, request *pb.RangeRequest) []*pb.RangeResponse {
	t.Helper()
	stream, err := pb.NewKVClient(conn).RangeStream(harness.Context(t), request)
	if err != nil {
		t.Fatal(err)
	}
	var received []*pb.RangeResponse
	for {
		piece, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return received
		}
		if err != nil {
			t.Fatal(err)
		}
		received = append(received, piece.RangeResponse)
	}
}

func merged(t *testing.T, pieces []*pb.RangeResponse) *pb.RangeResponse {
	t.Helper()
	whole := &pb.RangeResponse{}
	for i, piece := range pieces {
		if last := i == len(pieces)-1; (piece.Header != nil) != last || !last && (piece.More || piece.Count != 0) {
			t.Errorf("piece %d of %d: header %v, more %v, count %d", i, len(pieces), piece.Header, piece.More, piece.Count)
		}
		proto.Merge(whole, piece)
	}
	return whole
}

// The standard health service.
func TestHealthService(t *testing.T) {
	both := startSides(t)
	for _, service := range []string{"", "etcdserverpb.KV", "nonsense"} {
		both.sameMessage("/grpc.health.v1.Health/Check", &grpc_health_v1.HealthCheckRequest{Service: service})
		var want, got proto.Message
		var wantErr, gotErr error
		want, wantErr = firstHealth(t, both.etcd, service)
		got, gotErr = firstHealth(t, both.subject, service)
		if difference := harness.Diff(want, wantErr, got, gotErr); difference != "" {
			t.Errorf("watch of %q: %s", service, difference)
		}
	}
	both.sameMessage("/grpc.health.v1.Health/List", &grpc_health_v1.HealthListRequest{})
}

func firstHealth(t *testing.T, conn *grpc.ClientConn, service string) (proto.Message, error) {
	ctx, cancel := context.WithTimeout(harness.Context(t), callMax)
	defer cancel()
	request := &grpc_health_v1.HealthCheckRequest{Service: service}
	stream, err := grpc_health_v1.NewHealthClient(conn).Watch(ctx, request)
	if err != nil {
		return nil, err
	}
	return stream.Recv()
}
