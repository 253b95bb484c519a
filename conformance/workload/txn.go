package workload

import (
	"math"
	"slices"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

const txnDepthMax = 3

// wholeTxn is a transaction without what makes etcd 3.7.3 crash: a delete up to
// the last key, which it does not see as an overlap, and then a put that wants
// to keep the value or lease of a key that is gone by now.
func (g *Generator) wholeTxn() *pb.TxnRequest {
	request := g.txn(0)
	if anyOp(request, deletesToTheEnd) {
		anyOp(request, forgetIgnore)
	}
	return request
}

func deletesToTheEnd(op *pb.RequestOp) bool {
	return string(op.GetRequestDeleteRange().GetRangeEnd()) == "\x00"
}

func forgetIgnore(op *pb.RequestOp) bool {
	if put := op.GetRequestPut(); put != nil {
		put.IgnoreValue, put.IgnoreLease = false, false
	}
	return false
}

// anyOp visits the operations of a transaction until one is found.
func anyOp(request *pb.TxnRequest, found func(*pb.RequestOp) bool) bool {
	visit := func(op *pb.RequestOp) bool {
		nested := op.GetRequestTxn()
		return found(op) || nested != nil && anyOp(nested, found)
	}
	return slices.ContainsFunc(request.Success, visit) || slices.ContainsFunc(request.Failure, visit)
}

func (g *Generator) txn(depth int) *pb.TxnRequest {
	request := &pb.TxnRequest{}
	for range g.random.IntN(4) {
		request.Compare = append(request.Compare, g.compare())
	}
	// Long lists often name a key twice, which is refused.
	for range g.random.IntN(5) {
		request.Success = append(request.Success, g.op(depth))
	}
	for range g.random.IntN(4) {
		request.Failure = append(request.Failure, g.op(depth))
	}
	if g.rare(1) {
		for range 126 {
			request.Success = append(request.Success, g.op(txnDepthMax))
		}
	}
	return request
}

func (g *Generator) op(depth int) *pb.RequestOp {
	if g.rare(1) {
		return &pb.RequestOp{}
	}
	switch n := g.random.IntN(20); {
	case n < 8:
		return &pb.RequestOp{Request: &pb.RequestOp_RequestPut{RequestPut: g.put()}}
	case n < 14:
		return &pb.RequestOp{Request: &pb.RequestOp_RequestRange{RequestRange: g.ranged()}}
	case n < 17 || depth >= txnDepthMax:
		return &pb.RequestOp{Request: &pb.RequestOp_RequestDeleteRange{RequestDeleteRange: g.deleteRange()}}
	default:
		return &pb.RequestOp{Request: &pb.RequestOp_RequestTxn{RequestTxn: g.txn(depth + 1)}}
	}
}

func (g *Generator) compare() *pb.Compare {
	compare := &pb.Compare{
		Key:    g.key(),
		Result: pb.Compare_CompareResult(g.random.IntN(4)),
		Target: pb.Compare_CompareTarget(g.random.IntN(5)),
	}
	if g.chance(30) {
		compare.RangeEnd = g.rangeEnd()
	}
	// Compares that are always false would leave the success lists untested.
	recent := g.between(max(0, g.state.Revision()-40), g.state.Revision())
	switch compare.Target {
	case pb.Compare_VERSION:
		compare.TargetUnion = &pb.Compare_Version{Version: g.between(0, 3)}
	case pb.Compare_CREATE:
		compare.TargetUnion = &pb.Compare_CreateRevision{CreateRevision: pick(g, 0, recent)}
	case pb.Compare_MOD:
		compare.TargetUnion = &pb.Compare_ModRevision{ModRevision: pick(g, 0, recent)}
	case pb.Compare_VALUE:
		compare.TargetUnion = &pb.Compare_Value{Value: g.value()}
	case pb.Compare_LEASE:
		compare.TargetUnion = &pb.Compare_Lease{Lease: pick(g, 0, g.leaseID())}
	}
	if g.rare(5) {
		compare.TargetUnion = pick(g,
			&pb.Compare{},
			&pb.Compare{TargetUnion: &pb.Compare_Version{Version: g.oddNumber()}},
			&pb.Compare{TargetUnion: &pb.Compare_Value{Value: g.value()}},
		).TargetUnion
	}
	if g.rare(2) {
		compare.Result = pick[pb.Compare_CompareResult](g, -1, 4, math.MaxInt32)
	}
	if g.rare(2) {
		compare.Target = pick[pb.Compare_CompareTarget](g, -1, 5, math.MaxInt32)
	}
	return compare
}
