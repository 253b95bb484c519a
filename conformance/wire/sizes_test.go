package wire

import (
	"slices"
	"strings"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	_ "google.golang.org/grpc/encoding/gzip"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
)

const (
	// The default of --max-request-bytes, and how much larger a message may be.
	requestBytesMax = 1_572_864
	messageBytesMax = requestBytesMax + 512<<10
)

func put(size int) []byte {
	data, _ := proto.Marshal(&pb.PutRequest{Key: []byte("k"), Value: []byte(strings.Repeat("v", size))})
	return data
}

// Requests around the two limits, plain and compressed.
func TestSizes(t *testing.T) {
	both := startSides(t)
	gzip := grpc.UseCompressor("gzip")
	for _, options := range [][]grpc.CallOption{nil, {gzip}} {
		for _, size := range []int{0, 1, 100_000, requestBytesMax - 100, requestBytesMax + 100} {
			both.same("put", "/etcdserverpb.KV/Put", put(size), options...)
		}
		overhead := len(put(messageBytesMax)) - messageBytesMax
		for _, size := range []int{messageBytesMax - overhead, messageBytesMax - overhead + 1, 4 * messageBytesMax} {
			both.same("put", "/etcdserverpb.KV/Put", put(size), options...)
		}
	}
	data, _ := proto.Marshal(&pb.RangeRequest{Key: []byte("k")})
	both.same("range", "/etcdserverpb.KV/Range", data, gzip)
	// A delete's limit counts too; a read has none but the message's.
	long := []byte(strings.Repeat("k", requestBytesMax+100))
	both.sameMessage("/etcdserverpb.KV/DeleteRange", &pb.DeleteRangeRequest{Key: long})
	both.sameMessage("/etcdserverpb.KV/Range", &pb.RangeRequest{Key: long})
	both.sameMessage("/etcdserverpb.KV/Txn", &pb.TxnRequest{Compare: []*pb.Compare{{Key: long}}})
	both.sameMessage("/etcdserverpb.KV/Txn", &pb.TxnRequest{Success: []*pb.RequestOp{
		{Request: &pb.RequestOp_RequestPut{RequestPut: &pb.PutRequest{Key: long}}},
	}})
}

// Flags that move the limits.
func TestSizeFlags(t *testing.T) {
	both := startSides(t, "--max-request-bytes=10000", "--max-txn-ops=3")
	for _, size := range []int{9_900, 10_100, 10_000 + 512<<10 + 100} {
		both.same("put", "/etcdserverpb.KV/Put", put(size))
	}
	for count := range 5 {
		both.sameMessage("/etcdserverpb.KV/Txn", &pb.TxnRequest{Success: reads(count)})
		both.sameMessage("/etcdserverpb.KV/Txn", &pb.TxnRequest{Failure: reads(count)})
		both.sameMessage("/etcdserverpb.KV/Txn", &pb.TxnRequest{Compare: make([]*pb.Compare, count)})
	}
}

func reads(count int) []*pb.RequestOp {
	ops := make([]*pb.RequestOp, count)
	for i := range ops {
		ops[i] = &pb.RequestOp{Request: &pb.RequestOp_RequestRange{RequestRange: &pb.RangeRequest{Key: []byte("k")}}}
	}
	return ops
}

// nested is a transaction of the given depth, each level inside the one above.
// Only tags and lengths make it up, and it may be very deep, so it is written
// from its end.
func nested(depth int) []byte {
	var backward []byte
	for range depth {
		for _, field := range []protowire.Number{4, 2} {
			head := protowire.AppendVarint(protowire.AppendTag(nil, field, protowire.BytesType), uint64(len(backward)))
			slices.Reverse(head)
			backward = append(backward, head...)
		}
	}
	slices.Reverse(backward)
	return backward
}

// Transactions in transactions, up to the limit of operations and far beyond.
func TestNestedTransactions(t *testing.T) {
	both := startSides(t)
	for _, depth := range []int{1, 2, 20, 49, 50, 51, 100, 126, 127, 128, 129, 200, 1000} {
		both.same("nested", "/etcdserverpb.KV/Txn", nested(depth))
	}
	// Deeper than a decoder should follow: no server may end from it.
	for _, depth := range []int{6_000, 20_000, 200_000} {
		both.refusesNesting(depth)
	}
	both.sameMessage("/etcdserverpb.KV/Range", &pb.RangeRequest{Key: []byte("k")})
}

// refusesNesting wants a clear status: the decoder's or that of the limit.
func (s *sides) refusesNesting(depth int) {
	s.t.Helper()
	_, err := invoke(s.t.Context(), s.subject, "/etcdserverpb.KV/Txn", nested(depth))
	if code := status.Code(err); code != codes.InvalidArgument && code != codes.Internal {
		s.t.Errorf("%d transactions in each other: %v", depth, err)
	}
}

// 10 MB of nested transactions, in every shape, with limits that let them in.
func TestLargeTransactions(t *testing.T) {
	both := startSides(t, "--max-request-bytes=16000000", "--max-txn-ops=100000")
	both.refusesNesting(1_300_000)
	var wide []*pb.RequestOp
	for range 300 {
		var puts []*pb.RequestOp
		for range 100 {
			key := []byte(strings.Repeat("k", 300) + string(rune(len(wide))) + "/" + string(rune(len(puts))))
			puts = append(puts, &pb.RequestOp{Request: &pb.RequestOp_RequestPut{RequestPut: &pb.PutRequest{Key: key}}})
		}
		wide = append(wide, &pb.RequestOp{Request: &pb.RequestOp_RequestTxn{RequestTxn: &pb.TxnRequest{Success: puts}}})
	}
	both.sameMessage("/etcdserverpb.KV/Txn", &pb.TxnRequest{Success: wide})
	both.sameMessage("/etcdserverpb.KV/Range", &pb.RangeRequest{Key: []byte{0}, RangeEnd: []byte{0}})
}
