package wire

import (
	"maps"
	"math"
	"slices"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// requests are plain ones of every unary method that a single member has.
var requests = map[string]proto.Message{
	"/etcdserverpb.KV/Range":               &pb.RangeRequest{Key: []byte("a"), RangeEnd: []byte("z")},
	"/etcdserverpb.KV/Put":                 &pb.PutRequest{Key: []byte("a"), Value: []byte("v")},
	"/etcdserverpb.KV/DeleteRange":         &pb.DeleteRangeRequest{Key: []byte("b"), RangeEnd: []byte("d")},
	"/etcdserverpb.KV/Txn":                 &pb.TxnRequest{Compare: []*pb.Compare{{Key: []byte("a")}}},
	"/etcdserverpb.KV/Compact":             &pb.CompactionRequest{Revision: 2},
	"/etcdserverpb.Lease/LeaseGrant":       &pb.LeaseGrantRequest{TTL: 1000, ID: 5},
	"/etcdserverpb.Lease/LeaseRevoke":      &pb.LeaseRevokeRequest{ID: 6},
	"/etcdserverpb.Lease/LeaseTimeToLive":  &pb.LeaseTimeToLiveRequest{ID: 7, Keys: true},
	"/etcdserverpb.Lease/LeaseLeases":      &pb.LeaseLeasesRequest{},
	"/etcdserverpb.Maintenance/Alarm":      &pb.AlarmRequest{},
	"/etcdserverpb.Maintenance/Status":     &pb.StatusRequest{},
	"/etcdserverpb.Maintenance/Defragment": &pb.DefragmentRequest{},
	"/etcdserverpb.Maintenance/HashKV":     &pb.HashKVRequest{},
	"/etcdserverpb.Cluster/MemberList":     &pb.MemberListRequest{Linearizable: true},
}

var oddNumbers = []int64{
	0, 1, -1, -2, 2, math.MaxInt32, math.MaxInt32 + 1, math.MinInt32, 1 << 62, math.MaxInt64, math.MinInt64,
}

// Every number in every request, from the least to the largest.
func TestNumbers(t *testing.T) {
	both := startSides(t)
	both.open = clearMeasures
	for _, path := range slices.Sorted(maps.Keys(requests)) {
		request := requests[path]
		fields := request.ProtoReflect().Descriptor().Fields()
		for i := range fields.Len() {
			for _, number := range oddNumbers {
				odd := proto.Clone(request)
				if !setNumber(odd.ProtoReflect(), fields.Get(i), number) || crashesEtcd(odd) {
					continue
				}
				both.sameMessage(path, odd)
			}
		}
	}
}

// Every request without anything in it, and with empty keys.
func TestEmptyRequests(t *testing.T) {
	both := startSides(t)
	both.open = clearMeasures
	for _, path := range slices.Sorted(maps.Keys(requests)) {
		request := requests[path]
		both.sameMessage(path, request.ProtoReflect().New().Interface())
	}
	for _, compare := range []*pb.Compare{{}, {Key: []byte{}}, {RangeEnd: []byte("z")}} {
		both.sameMessage("/etcdserverpb.KV/Txn", &pb.TxnRequest{Compare: []*pb.Compare{compare}})
	}
	for _, op := range []*pb.RequestOp{
		{},
		{Request: &pb.RequestOp_RequestRange{RequestRange: &pb.RangeRequest{}}},
		{Request: &pb.RequestOp_RequestPut{RequestPut: &pb.PutRequest{Value: []byte("v")}}},
		{Request: &pb.RequestOp_RequestDeleteRange{RequestDeleteRange: &pb.DeleteRangeRequest{}}},
		{Request: &pb.RequestOp_RequestTxn{RequestTxn: &pb.TxnRequest{}}},
		{Request: &pb.RequestOp_RequestTxn{RequestTxn: &pb.TxnRequest{Success: []*pb.RequestOp{{}}}}},
	} {
		both.sameMessage("/etcdserverpb.KV/Txn", &pb.TxnRequest{Success: []*pb.RequestOp{op}})
		both.sameMessage("/etcdserverpb.KV/Txn", &pb.TxnRequest{Failure: []*pb.RequestOp{op}})
	}
}

func setNumber(message protoreflect.Message, field protoreflect.FieldDescriptor, number int64) bool {
	if field.IsList() {
		return false
	}
	switch field.Kind() {
	case protoreflect.Int64Kind:
		message.Set(field, protoreflect.ValueOfInt64(number))
	case protoreflect.Uint64Kind:
		message.Set(field, protoreflect.ValueOfUint64(uint64(number)))
	case protoreflect.EnumKind:
		message.Set(field, protoreflect.ValueOfEnum(protoreflect.EnumNumber(int32(number))))
	default:
		return false
	}
	return true
}

// clearMeasures removes from answers what depends on time and implementation.
func clearMeasures(response proto.Message) {
	switch response := response.(type) {
	case *pb.StatusResponse:
		response.DbSize, response.DbSizeInUse, response.Leader = 0, 0, 0
		response.RaftIndex, response.RaftAppliedIndex, response.RaftTerm = 0, 0, 0
	case *pb.LeaseTimeToLiveResponse:
		if response.TTL > 0 {
			response.TTL = response.GrantedTTL
		}
	case *pb.LeaseGrantResponse:
		// Id 0 asks the server to choose one.
		if response.ID > 1000 {
			response.ID = 0
		}
	case *pb.LeaseLeasesResponse:
		for _, lease := range response.Leases {
			lease.ID = 0
		}
	case *pb.MemberListResponse:
		for _, member := range response.Members {
			member.ID, member.PeerURLs, member.ClientURLs = 0, nil, nil
		}
	}
}
