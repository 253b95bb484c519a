package harness

import (
	"context"
	"errors"
	"fmt"
	"io"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	election "go.etcd.io/etcd/server/v3/etcdserver/api/v3election/v3electionpb"
	lock "go.etcd.io/etcd/server/v3/etcdserver/api/v3lock/v3lockpb"
)

// answerMax is how long a call of First may take.
const answerMax = 30 * time.Second

// EveryMethod is every method of etcd's API.
func EveryMethod(t testing.TB) (all []protoreflect.MethodDescriptor) {
	t.Helper()
	protoregistry.GlobalFiles.RangeFiles(func(file protoreflect.FileDescriptor) bool {
		switch file.Package() {
		case "etcdserverpb", "v3lockpb", "v3electionpb":
			for number := range file.Services().Len() {
				methods := file.Services().Get(number).Methods()
				for number := range methods.Len() {
					all = append(all, methods.Get(number))
				}
			}
		}
		return true
	})
	if len(all) < 49 {
		t.Fatalf("the API has %d methods", len(all))
	}
	return all
}

// First makes a call and returns the first message of its answer.
func First(ctx context.Context, t testing.TB, conn *grpc.ClientConn, method protoreflect.MethodDescriptor, request proto.Message) (proto.Message, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(ctx, answerMax)
	defer cancel()
	path := fmt.Sprintf("/%s/%s", method.Parent().FullName(), method.Name())
	found, err := protoregistry.GlobalTypes.FindMessageByName(method.Output().FullName())
	if err != nil {
		t.Fatal(err)
	}
	answer := found.New().Interface()
	if !method.IsStreamingServer() {
		return answer, conn.Invoke(ctx, path, request, answer)
	}
	stream, err := conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true, ClientStreams: method.IsStreamingClient()}, path)
	if err != nil {
		return nil, err
	}
	// What is wrong is told by the answer.
	if err := stream.SendMsg(request); err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	if !method.IsStreamingClient() {
		if err := stream.CloseSend(); err != nil {
			return nil, err
		}
	}
	return answer, stream.RecvMsg(answer)
}

// RequestOf is a request of a method that changes nothing and is answered at
// once: an empty one where that is so. The lease is there, and stands for
// election as "e".
func RequestOf(t testing.TB, method protoreflect.MethodDescriptor, lease int64) proto.Message {
	t.Helper()
	requests := map[protoreflect.Name]proto.Message{
		"Range":          &pb.RangeRequest{Key: []byte("a"), RangeEnd: []byte("b")},
		"RangeStream":    &pb.RangeRequest{Key: []byte("a"), RangeEnd: []byte("b")},
		"Compact":        &pb.CompactionRequest{Revision: 1 << 40},
		"Watch":          &pb.WatchRequest{RequestUnion: &pb.WatchRequest_CreateRequest{CreateRequest: &pb.WatchCreateRequest{Key: []byte("a")}}},
		"LeaseGrant":     &pb.LeaseGrantRequest{TTL: 60, ID: lease},
		"LeaseKeepAlive": &pb.LeaseKeepAliveRequest{ID: lease},
		"Lock":           &lock.LockRequest{Name: []byte("l"), Lease: 12345},
		"Campaign":       &election.CampaignRequest{Name: []byte("e"), Lease: 12345},
		"Leader":         &election.LeaderRequest{Name: []byte("e")},
		"Observe":        &election.LeaderRequest{Name: []byte("e")},
	}
	if request, ok := requests[method.Name()]; ok {
		return request
	}
	found, err := protoregistry.GlobalTypes.FindMessageByName(method.Input().FullName())
	if err != nil {
		t.Fatal(err)
	}
	return found.New().Interface()
}
