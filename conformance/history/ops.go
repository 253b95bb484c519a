package history

import (
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/protobuf/proto"
)

// clientOp is a request as clientv3 writes it.
func clientOp(request proto.Message) clientv3.Op {
	switch request := request.(type) {
	case *pb.RangeRequest:
		return clientv3.OpGet(string(request.Key), rangeOptions(request)...)
	case *pb.PutRequest:
		return clientv3.OpPut(string(request.Key), string(request.Value), putOptions(request)...)
	case *pb.DeleteRangeRequest:
		var options []clientv3.OpOption
		if len(request.RangeEnd) > 0 {
			options = append(options, clientv3.WithRange(string(request.RangeEnd)))
		}
		if request.PrevKv {
			options = append(options, clientv3.WithPrevKV())
		}
		return clientv3.OpDelete(string(request.Key), options...)
	case *pb.TxnRequest:
		var compares []clientv3.Cmp
		for _, compare := range request.Compare {
			compares = append(compares, clientv3.FromCompare(compare))
		}
		return clientv3.OpTxn(compares, clientOps(request.Success), clientOps(request.Failure))
	default:
		panic("not an operation of a transaction")
	}
}

func clientOps(list []*pb.RequestOp) []clientv3.Op {
	var ops []clientv3.Op
	for _, op := range list {
		switch op := op.Request.(type) {
		case *pb.RequestOp_RequestRange:
			ops = append(ops, clientOp(op.RequestRange))
		case *pb.RequestOp_RequestPut:
			ops = append(ops, clientOp(op.RequestPut))
		case *pb.RequestOp_RequestDeleteRange:
			ops = append(ops, clientOp(op.RequestDeleteRange))
		case *pb.RequestOp_RequestTxn:
			ops = append(ops, clientOp(op.RequestTxn))
		}
	}
	return ops
}

func putOptions(request *pb.PutRequest) []clientv3.OpOption {
	options := []clientv3.OpOption{clientv3.WithLease(clientv3.LeaseID(request.Lease))}
	if request.PrevKv {
		options = append(options, clientv3.WithPrevKV())
	}
	if request.IgnoreValue {
		options = append(options, clientv3.WithIgnoreValue())
	}
	if request.IgnoreLease {
		options = append(options, clientv3.WithIgnoreLease())
	}
	return options
}

func rangeOptions(request *pb.RangeRequest) []clientv3.OpOption {
	options := []clientv3.OpOption{
		clientv3.WithLimit(request.Limit), clientv3.WithRev(request.Revision),
		clientv3.WithMinModRev(request.MinModRevision), clientv3.WithMaxModRev(request.MaxModRevision),
		clientv3.WithMinCreateRev(request.MinCreateRevision), clientv3.WithMaxCreateRev(request.MaxCreateRevision),
	}
	if len(request.RangeEnd) > 0 {
		options = append(options, clientv3.WithRange(string(request.RangeEnd)))
	}
	if request.SortOrder != pb.RangeRequest_NONE || request.SortTarget != pb.RangeRequest_KEY {
		target := clientv3.SortTarget(request.SortTarget)
		options = append(options, clientv3.WithSort(target, clientv3.SortOrder(request.SortOrder)))
	}
	if request.Serializable {
		options = append(options, clientv3.WithSerializable())
	}
	if request.KeysOnly {
		options = append(options, clientv3.WithKeysOnly())
	}
	if request.CountOnly {
		options = append(options, clientv3.WithCountOnly())
	}
	return options
}
