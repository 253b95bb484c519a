package history

import (
	"context"
	"fmt"

	"cairn.dev/conformance/workload"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/protobuf/proto"
)

// client is a server, asked as a program would: through clientv3.
type client struct{ *clientv3.Client }

func (c client) Do(ctx context.Context, request proto.Message) (proto.Message, error) {
	switch request := request.(type) {
	case *pb.RangeRequest, *pb.PutRequest, *pb.DeleteRangeRequest, *pb.TxnRequest:
		response, err := c.Client.Do(ctx, clientOp(request))
		if err != nil {
			return nil, err
		}
		return opMessage(response), nil
	case workload.Stream:
		chunks, err := c.GetStream(ctx, string(request.Key), rangeOptions(request.RangeRequest)...)
		if err != nil {
			return nil, err
		}
		response, err := clientv3.GetStreamToGetResponse(chunks)
		return (*pb.RangeResponse)(response), err
	case *pb.CompactionRequest:
		var options []clientv3.CompactOption
		if request.Physical {
			options = append(options, clientv3.WithCompactPhysical())
		}
		response, err := c.Compact(ctx, request.Revision, options...)
		return (*pb.CompactionResponse)(response), err
	default:
		return c.doLease(ctx, request)
	}
}

func (c client) doLease(ctx context.Context, request proto.Message) (proto.Message, error) {
	switch request := request.(type) {
	case *pb.LeaseGrantRequest:
		response, err := c.Grant(ctx, request.TTL)
		if err != nil {
			return nil, err
		}
		// The server chose the id; the model gets it with the request.
		request.ID = int64(response.ID)
		return &pb.LeaseGrantResponse{
			Header: response.ResponseHeader, ID: int64(response.ID), TTL: response.TTL, Error: response.Error,
		}, nil
	case *pb.LeaseRevokeRequest:
		response, err := c.Revoke(ctx, clientv3.LeaseID(request.ID))
		return (*pb.LeaseRevokeResponse)(response), err
	case *pb.LeaseKeepAliveRequest:
		response, err := c.KeepAliveOnce(ctx, clientv3.LeaseID(request.ID))
		if err != nil {
			return nil, err
		}
		return &pb.LeaseKeepAliveResponse{Header: response.ResponseHeader, ID: int64(response.ID), TTL: response.TTL}, nil
	case *pb.LeaseTimeToLiveRequest:
		var options []clientv3.LeaseOption
		if request.Keys {
			options = append(options, clientv3.WithAttachedKeys())
		}
		response, err := c.TimeToLive(ctx, clientv3.LeaseID(request.ID), options...)
		if err != nil {
			return nil, err
		}
		return &pb.LeaseTimeToLiveResponse{
			Header: response.ResponseHeader, ID: int64(response.ID), TTL: response.TTL,
			GrantedTTL: response.GrantedTTL, Keys: response.Keys,
		}, nil
	case *pb.LeaseLeasesRequest:
		response, err := c.Leases(ctx)
		if err != nil {
			return nil, err
		}
		message := &pb.LeaseLeasesResponse{Header: response.ResponseHeader}
		for _, status := range response.Leases {
			message.Leases = append(message.Leases, &pb.LeaseStatus{ID: int64(status.ID)})
		}
		return message, nil
	default:
		return nil, fmt.Errorf("clientv3 has no call for %T", request)
	}
}

func opMessage(response clientv3.OpResponse) proto.Message {
	switch {
	case response.Get() != nil:
		return (*pb.RangeResponse)(response.Get())
	case response.Put() != nil:
		return (*pb.PutResponse)(response.Put())
	case response.Del() != nil:
		return (*pb.DeleteRangeResponse)(response.Del())
	default:
		return (*pb.TxnResponse)(response.Txn())
	}
}

// asSeen is what clientv3 makes of a server's answer: a lease that is gone,
// which has TTL 0 on the wire, is an error.
func (client) asSeen(response proto.Message, err error) (proto.Message, error) {
	if kept, ok := response.(*pb.LeaseKeepAliveResponse); ok && kept.TTL == 0 {
		return nil, rpctypes.ErrLeaseNotFound
	}
	return response, err
}
