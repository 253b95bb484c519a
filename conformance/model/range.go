package model

import (
	"bytes"
	"cmp"
	"slices"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Range answers KV.Range.
func (s *Store) Range(request *pb.RangeRequest) (*pb.RangeResponse, error) {
	if err := checkRange(request); err != nil {
		return nil, err
	}
	return s.rangeAt(request, s.revision)
}

func checkRange(request *pb.RangeRequest) error {
	if len(request.Key) == 0 {
		return rpctypes.ErrGRPCEmptyKey
	}
	if _, known := pb.RangeRequest_SortOrder_name[int32(request.SortOrder)]; !known {
		return rpctypes.ErrGRPCInvalidSortOption
	}
	if _, known := pb.RangeRequest_SortTarget_name[int32(request.SortTarget)]; !known {
		return rpctypes.ErrGRPCInvalidSortOption
	}
	return nil
}

// rangeAt answers a range when `current` is the newest visible revision: inside
// a transaction that has written, its own one.
func (s *Store) rangeAt(request *pb.RangeRequest, current int64) (*pb.RangeResponse, error) {
	revision := request.Revision
	if revision <= 0 {
		revision = current
	}
	if revision > current {
		return nil, rpctypes.ErrGRPCFutureRev
	}
	if revision < s.compacted {
		return nil, rpctypes.ErrGRPCCompacted
	}
	found := s.pairs(interval{string(request.Key), string(request.RangeEnd)}, revision)
	response := &pb.RangeResponse{Header: &pb.ResponseHeader{Revision: current}, Count: int64(len(found))}
	if request.CountOnly {
		return response, nil
	}
	found = cloneAll(found)
	naturalOrder := request.SortOrder == pb.RangeRequest_NONE ||
		request.SortTarget == pb.RangeRequest_KEY && request.SortOrder == pb.RangeRequest_ASCEND
	// One more than the limit is fetched, in key order, to know whether there
	// are more: with a sort target but no order that one takes part in the
	// sorting.
	if naturalOrder && !hasFilters(request) && request.Limit > 0 && int64(len(found)) > request.Limit {
		found = found[:request.Limit+1]
	}
	found = slices.DeleteFunc(found, func(pair *mvccpb.KeyValue) bool { return filtered(request, pair) })
	sortPairs(found, request)
	if request.Limit > 0 && int64(len(found)) > request.Limit {
		found, response.More = found[:request.Limit], true
	}
	if request.KeysOnly {
		for _, pair := range found {
			pair.Value = nil
			// Answered from the index, which knows no leases, unless the
			// values are needed for sorting.
			if request.SortTarget != pb.RangeRequest_VALUE {
				pair.Lease = 0
			}
		}
	}
	response.Kvs = found
	return response, nil
}

func hasFilters(r *pb.RangeRequest) bool {
	return r.MinModRevision != 0 || r.MaxModRevision != 0 || r.MinCreateRevision != 0 || r.MaxCreateRevision != 0
}

func filtered(r *pb.RangeRequest, pair *mvccpb.KeyValue) bool {
	return r.MaxModRevision != 0 && pair.ModRevision > r.MaxModRevision ||
		r.MinModRevision != 0 && pair.ModRevision < r.MinModRevision ||
		r.MaxCreateRevision != 0 && pair.CreateRevision > r.MaxCreateRevision ||
		r.MinCreateRevision != 0 && pair.CreateRevision < r.MinCreateRevision
}

// sortPairs sorts by the target; a target without an order is ascending.
func sortPairs(pairs []*mvccpb.KeyValue, request *pb.RangeRequest) {
	if request.SortTarget == pb.RangeRequest_KEY && request.SortOrder == pb.RangeRequest_NONE {
		return
	}
	slices.SortStableFunc(pairs, func(a, b *mvccpb.KeyValue) int {
		order := comparePairs(request.SortTarget, a, b)
		if request.SortOrder == pb.RangeRequest_DESCEND {
			return -order
		}
		return order
	})
}

func comparePairs(target pb.RangeRequest_SortTarget, a, b *mvccpb.KeyValue) int {
	switch target {
	case pb.RangeRequest_VERSION:
		return cmp.Compare(a.Version, b.Version)
	case pb.RangeRequest_CREATE:
		return cmp.Compare(a.CreateRevision, b.CreateRevision)
	case pb.RangeRequest_MOD:
		return cmp.Compare(a.ModRevision, b.ModRevision)
	case pb.RangeRequest_VALUE:
		return bytes.Compare(a.Value, b.Value)
	default:
		return bytes.Compare(a.Key, b.Key)
	}
}

// RangeStream answers KV.RangeStream with all its chunks merged.
func (s *Store) RangeStream(request *pb.RangeRequest) (*pb.RangeResponse, error) {
	if err := checkRange(request); err != nil {
		return nil, err
	}
	if request.SortOrder != pb.RangeRequest_NONE &&
		!(request.SortTarget == pb.RangeRequest_KEY && request.SortOrder == pb.RangeRequest_ASCEND) {
		return nil, status.Error(codes.Unimplemented, "RangeStream does not support custom sort orders")
	}
	if hasFilters(request) {
		return nil, status.Error(codes.Unimplemented, "RangeStream does not support revision filters")
	}
	return s.Range(request)
}
