package model

import (
	"bytes"
	"cmp"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
)

// TxnOpsMax is the default of --max-txn-ops.
const TxnOpsMax = 128

// Txn answers KV.Txn.
func (s *Store) Txn(request *pb.TxnRequest) (*pb.TxnResponse, error) {
	if err := checkTxn(request, TxnOpsMax); err != nil {
		return nil, err
	}
	for _, ops := range [][]*pb.RequestOp{request.Success, request.Failure} {
		if _, err := checkOverlaps(ops); err != nil {
			return nil, err
		}
	}
	// Every compare, nested ones too, is decided before anything is changed.
	choices := map[*pb.TxnRequest]bool{}
	s.choose(request, choices)
	if err := s.checkTaken(request, choices); err != nil {
		return nil, err
	}
	w := s.write()
	response, err := w.txn(request, choices)
	if err != nil {
		return nil, err
	}
	w.finish()
	response.Header = s.header()
	return response, nil
}

func taken(request *pb.TxnRequest, choices map[*pb.TxnRequest]bool) []*pb.RequestOp {
	if choices[request] {
		return request.Success
	}
	return request.Failure
}

func (s *Store) choose(request *pb.TxnRequest, choices map[*pb.TxnRequest]bool) {
	choices[request] = true
	for _, compare := range request.Compare {
		if !s.holds(compare) {
			choices[request] = false
			break
		}
	}
	for _, op := range taken(request, choices) {
		if nested := op.GetRequestTxn(); nested != nil {
			s.choose(nested, choices)
		}
	}
}

// holds says whether a compare is true for every key of its interval.
func (s *Store) holds(compare *pb.Compare) bool {
	found := s.pairs(interval{string(compare.Key), string(compare.RangeEnd)}, s.revision)
	if len(found) == 0 {
		// A missing value is not an empty one.
		return compare.Target != pb.Compare_VALUE && holdsFor(compare, &mvccpb.KeyValue{})
	}
	for _, pair := range found {
		if !holdsFor(compare, pair) {
			return false
		}
	}
	return true
}

func holdsFor(compare *pb.Compare, pair *mvccpb.KeyValue) bool {
	var order int
	switch compare.Target {
	case pb.Compare_VERSION:
		order = cmp.Compare(pair.Version, compare.GetVersion())
	case pb.Compare_CREATE:
		order = cmp.Compare(pair.CreateRevision, compare.GetCreateRevision())
	case pb.Compare_MOD:
		order = cmp.Compare(pair.ModRevision, compare.GetModRevision())
	case pb.Compare_VALUE:
		order = bytes.Compare(pair.Value, compare.GetValue())
	case pb.Compare_LEASE:
		order = cmp.Compare(pair.Lease, compare.GetLease())
	}
	switch compare.Result {
	case pb.Compare_EQUAL:
		return order == 0
	case pb.Compare_NOT_EQUAL:
		return order != 0
	case pb.Compare_GREATER:
		return order > 0
	case pb.Compare_LESS:
		return order < 0
	default:
		return true
	}
}

// checkTaken checks the branches that will be taken against the state before
// the transaction.
func (s *Store) checkTaken(request *pb.TxnRequest, choices map[*pb.TxnRequest]bool) error {
	for _, op := range taken(request, choices) {
		var err error
		switch op := op.Request.(type) {
		case *pb.RequestOp_RequestRange:
			err = s.checkRevision(op.RequestRange.Revision)
		case *pb.RequestOp_RequestPut:
			err = s.checkPutState(op.RequestPut)
		case *pb.RequestOp_RequestTxn:
			err = s.checkTaken(op.RequestTxn, choices)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (s *Store) checkRevision(revision int64) error {
	switch {
	case revision == 0:
		return nil
	case revision > s.revision:
		return rpctypes.ErrGRPCFutureRev
	case revision < s.compacted:
		return rpctypes.ErrGRPCCompacted
	}
	return nil
}

func (w *writer) txn(request *pb.TxnRequest, choices map[*pb.TxnRequest]bool) (*pb.TxnResponse, error) {
	response := &pb.TxnResponse{Header: &pb.ResponseHeader{}, Succeeded: choices[request]}
	for _, op := range taken(request, choices) {
		answer := &pb.ResponseOp{}
		switch op := op.Request.(type) {
		case *pb.RequestOp_RequestRange:
			inner, err := w.rangeAt(op.RequestRange, w.visible())
			if err != nil {
				return nil, err
			}
			answer.Response = &pb.ResponseOp_ResponseRange{ResponseRange: inner}
		case *pb.RequestOp_RequestPut:
			answer.Response = &pb.ResponseOp_ResponsePut{ResponsePut: w.put(op.RequestPut)}
		case *pb.RequestOp_RequestDeleteRange:
			answer.Response = &pb.ResponseOp_ResponseDeleteRange{ResponseDeleteRange: w.deleteRange(op.RequestDeleteRange)}
		case *pb.RequestOp_RequestTxn:
			inner, err := w.txn(op.RequestTxn, choices)
			if err != nil {
				return nil, err
			}
			answer.Response = &pb.ResponseOp_ResponseTxn{ResponseTxn: inner}
		}
		response.Responses = append(response.Responses, answer)
	}
	return response, nil
}
