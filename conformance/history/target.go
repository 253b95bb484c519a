package history

import (
	"context"
	"errors"
	"fmt"
	"io"

	"cairn.dev/conformance/model"
	"cairn.dev/conformance/workload"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
)

// target answers requests: a server, or the model.
type target interface {
	Do(ctx context.Context, request proto.Message) (proto.Message, error)
}

// stubs is a server, asked through the generated gRPC clients.
type stubs struct {
	kv    pb.KVClient
	lease pb.LeaseClient
	maint pb.MaintenanceClient
}

func newStubs(conn *grpc.ClientConn) *stubs {
	return &stubs{pb.NewKVClient(conn), pb.NewLeaseClient(conn), pb.NewMaintenanceClient(conn)}
}

func (s *stubs) Do(ctx context.Context, request proto.Message) (proto.Message, error) {
	switch request := request.(type) {
	case workload.Stream:
		stream, err := s.kv.RangeStream(ctx, request.RangeRequest)
		if err != nil {
			return nil, err
		}
		return mergeStream(stream)
	case *pb.RangeRequest:
		return s.kv.Range(ctx, request)
	case *pb.PutRequest:
		return s.kv.Put(ctx, request)
	case *pb.DeleteRangeRequest:
		return s.kv.DeleteRange(ctx, request)
	case *pb.TxnRequest:
		return s.kv.Txn(ctx, request)
	case *pb.CompactionRequest:
		return s.kv.Compact(ctx, request)
	case *pb.LeaseGrantRequest:
		return s.lease.LeaseGrant(ctx, request)
	case *pb.LeaseRevokeRequest:
		return s.lease.LeaseRevoke(ctx, request)
	case *pb.LeaseTimeToLiveRequest:
		return s.lease.LeaseTimeToLive(ctx, request)
	case *pb.LeaseLeasesRequest:
		return s.lease.LeaseLeases(ctx, request)
	case *pb.LeaseKeepAliveRequest:
		return s.keepAlive(ctx, request)
	case *pb.HashKVRequest:
		return s.maint.HashKV(ctx, request)
	default:
		return nil, fmt.Errorf("no stub for %T", request)
	}
}

func (s *stubs) keepAlive(ctx context.Context, request *pb.LeaseKeepAliveRequest) (proto.Message, error) {
	stream, err := s.lease.LeaseKeepAlive(ctx)
	if err != nil {
		return nil, err
	}
	if err := stream.Send(request); err != nil {
		return nil, err
	}
	if err := stream.CloseSend(); err != nil {
		return nil, err
	}
	response, err := stream.Recv()
	if err != nil {
		return nil, err
	}
	if _, err := stream.Recv(); !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("the stream does not end after the client's end: %w", err)
	}
	return response, nil
}

// mergeStream puts the chunks of a RangeStream together. Only the last one may
// have a header.
func mergeStream(stream grpc.ServerStreamingClient[pb.RangeStreamResponse]) (proto.Message, error) {
	merged := &pb.RangeResponse{}
	for {
		chunk, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			if merged.Header == nil {
				return nil, errors.New("no chunk with a header")
			}
			return merged, nil
		}
		if err != nil {
			return nil, err
		}
		if merged.Header != nil {
			return nil, errors.New("a chunk after the one with the header")
		}
		proto.Merge(merged, chunk.RangeResponse)
	}
}

// modelTarget is the model as a target.
type modelTarget struct{ *model.Store }

func (m modelTarget) Do(_ context.Context, request proto.Message) (proto.Message, error) {
	if stream, ok := request.(workload.Stream); ok {
		return m.Store.RangeStream(stream.RangeRequest)
	}
	return m.Store.Do(request)
}
