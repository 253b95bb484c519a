package model

import (
	"fmt"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/protobuf/proto"
)

// Do answers any request message but those of streams of watches.
func (s *Store) Do(request proto.Message) (proto.Message, error) {
	switch request := request.(type) {
	case *pb.RangeRequest:
		return s.Range(request)
	case *pb.PutRequest:
		return s.Put(request)
	case *pb.DeleteRangeRequest:
		return s.DeleteRange(request)
	case *pb.TxnRequest:
		return s.Txn(request)
	case *pb.CompactionRequest:
		return s.Compact(request)
	case *pb.LeaseGrantRequest:
		return s.LeaseGrant(request)
	case *pb.LeaseRevokeRequest:
		return s.LeaseRevoke(request)
	case *pb.LeaseKeepAliveRequest:
		return s.LeaseKeepAlive(request), nil
	case *pb.LeaseTimeToLiveRequest:
		return s.LeaseTimeToLive(request), nil
	case *pb.LeaseLeasesRequest:
		return s.LeaseLeases(), nil
	default:
		return nil, fmt.Errorf("the model knows no %T", request)
	}
}
