// Package history runs random requests against servers and the model, and
// compares every answer.
package history

import (
	"bytes"
	"sort"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/protobuf/proto"
)

// ttlSlack is how much of a lease may have passed since it was granted, in
// seconds.
const ttlSlack = 600

// normalize brings what etcd leaves open in an answer into one form. ttlAdded is
// how many seconds more than granted a lease may have left.
func normalize(request, response proto.Message, ttlAdded int64) {
	switch response := response.(type) {
	case *pb.RangeResponse:
		if request, ok := request.(*pb.RangeRequest); ok && response != nil {
			normalizeTies(request, response)
		}
	case *pb.TxnResponse:
		if response != nil {
			normalizeTxn(request.(*pb.TxnRequest), response)
		}
	case *pb.LeaseTimeToLiveResponse:
		if response == nil {
			return
		}
		if passed := response.GrantedTTL - response.TTL; passed >= -ttlAdded && passed < ttlSlack {
			response.TTL = response.GrantedTTL
		}
		sort.Slice(response.Keys, func(i, j int) bool { return bytes.Compare(response.Keys[i], response.Keys[j]) < 0 })
	case *pb.LeaseLeasesResponse:
		if response == nil {
			return
		}
		sort.Slice(response.Leases, func(i, j int) bool { return response.Leases[i].ID < response.Leases[j].ID })
	}
}

func normalizeTxn(request *pb.TxnRequest, response *pb.TxnResponse) {
	ops := request.Failure
	if response.Succeeded {
		ops = request.Success
	}
	for i, answer := range response.Responses {
		if i >= len(ops) {
			return
		}
		if inner := answer.GetResponseRange(); inner != nil && ops[i].GetRequestRange() != nil {
			normalizeTies(ops[i].GetRequestRange(), inner)
		}
		if inner := answer.GetResponseTxn(); inner != nil && ops[i].GetRequestTxn() != nil {
			normalizeTxn(ops[i].GetRequestTxn(), inner)
		}
	}
}

// normalizeTies sorts pairs that are equal in what the request sorts by, by
// key: etcd's sorting is not stable. Where the limit cuts through a group of
// equals, any of them is right, so only their number and what they are equal
// in is kept.
func normalizeTies(request *pb.RangeRequest, response *pb.RangeResponse) {
	pairs := response.Kvs
	if request.SortTarget == pb.RangeRequest_KEY || len(pairs) == 0 {
		return
	}
	target := request.SortTarget
	for start := 0; start < len(pairs); {
		end := start + 1
		// Without values there is no telling which are equal in them.
		for end < len(pairs) && (equalIn(target, pairs[start], pairs[end]) || hidden(request)) {
			end++
		}
		group := pairs[start:end]
		if response.More && end == len(pairs) {
			for i := range group {
				group[i] = onlyTarget(target, group[i])
			}
		}
		sort.Slice(group, func(i, j int) bool { return bytes.Compare(group[i].Key, group[j].Key) < 0 })
		start = end
	}
}

func hidden(request *pb.RangeRequest) bool {
	return request.KeysOnly && request.SortTarget == pb.RangeRequest_VALUE
}

func equalIn(target pb.RangeRequest_SortTarget, a, b *mvccpb.KeyValue) bool {
	return proto.Equal(onlyTarget(target, a), onlyTarget(target, b))
}

func onlyTarget(target pb.RangeRequest_SortTarget, pair *mvccpb.KeyValue) *mvccpb.KeyValue {
	switch target {
	case pb.RangeRequest_VERSION:
		return &mvccpb.KeyValue{Version: pair.Version}
	case pb.RangeRequest_CREATE:
		return &mvccpb.KeyValue{CreateRevision: pair.CreateRevision}
	case pb.RangeRequest_MOD:
		return &mvccpb.KeyValue{ModRevision: pair.ModRevision}
	case pb.RangeRequest_VALUE:
		return &mvccpb.KeyValue{Value: pair.Value}
	default:
		return &mvccpb.KeyValue{Key: pair.Key}
	}
}
