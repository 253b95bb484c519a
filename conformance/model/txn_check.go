package model

import (
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
)

// checkTxn is what a transaction must satisfy whatever the state is. opsMax is
// what the enclosing transactions left of the limit.
func checkTxn(request *pb.TxnRequest, opsMax int) error {
	ops := max(len(request.Compare), len(request.Success), len(request.Failure))
	if ops > opsMax {
		return rpctypes.ErrGRPCTooManyOps
	}
	for _, compare := range request.Compare {
		if len(compare.Key) == 0 {
			return rpctypes.ErrGRPCEmptyKey
		}
	}
	for _, list := range [][]*pb.RequestOp{request.Success, request.Failure} {
		for _, op := range list {
			if err := checkOp(op, opsMax-ops); err != nil {
				return err
			}
		}
	}
	return nil
}

func checkOp(op *pb.RequestOp, opsMax int) error {
	switch op := op.Request.(type) {
	case *pb.RequestOp_RequestRange:
		return checkRange(op.RequestRange)
	case *pb.RequestOp_RequestPut:
		return checkPut(op.RequestPut)
	case *pb.RequestOp_RequestDeleteRange:
		if len(op.RequestDeleteRange.Key) == 0 {
			return rpctypes.ErrGRPCEmptyKey
		}
		return nil
	case *pb.RequestOp_RequestTxn:
		return checkTxn(op.RequestTxn, opsMax)
	default:
		return rpctypes.ErrGRPCKeyNotFound
	}
}

// writes is what a list of operations may write.
type writes struct {
	puts    map[string]bool
	deletes []interval
}

// deletesKey takes the interval literally: a delete up to the last key, whose
// end is "\0", holds no key here. So etcd accepts a put beside it.
func (w *writes) deletesKey(key string) bool {
	for _, in := range w.deletes {
		if in.end == "" && key == in.from || in.end != "" && key >= in.from && key < in.end {
			return true
		}
	}
	return false
}

// checkOverlaps refuses a key that one list puts twice, or puts and deletes.
// Both branches of a nested transaction count, but only one of them runs, so
// they may put the same key.
func checkOverlaps(ops []*pb.RequestOp) (*writes, error) {
	all := &writes{puts: map[string]bool{}}
	for _, op := range ops {
		if request := op.GetRequestDeleteRange(); request != nil {
			all.deletes = append(all.deletes, interval{string(request.Key), string(request.RangeEnd)})
		}
	}
	for _, op := range ops {
		nested := op.GetRequestTxn()
		if nested == nil {
			continue
		}
		success, err := checkOverlaps(nested.Success)
		if err != nil {
			return nil, err
		}
		failure, err := checkOverlaps(nested.Failure)
		if err != nil {
			return nil, err
		}
		for key := range success.puts {
			if all.puts[key] || all.deletesKey(key) {
				return nil, rpctypes.ErrGRPCDuplicateKey
			}
			all.puts[key] = true
		}
		for key := range failure.puts {
			if all.puts[key] && !success.puts[key] || all.deletesKey(key) {
				return nil, rpctypes.ErrGRPCDuplicateKey
			}
			all.puts[key] = true
		}
		all.deletes = append(append(all.deletes, success.deletes...), failure.deletes...)
	}
	for _, op := range ops {
		if request := op.GetRequestPut(); request != nil {
			key := string(request.Key)
			if all.puts[key] || all.deletesKey(key) {
				return nil, rpctypes.ErrGRPCDuplicateKey
			}
			all.puts[key] = true
		}
	}
	return all, nil
}
