package history

import (
	"testing"

	"cairn.dev/conformance/harness"
	"cairn.dev/conformance/model"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/protobuf/proto"
)

// A transaction that deletes from a key on may put one of these keys; it is
// there after a compaction at the revision of the transaction. etcd 3.7.3 loses
// it then, and its process ends when the key is read, so there is no comparing.
func TestCompactionKeepsWhatWasPutAgain(t *testing.T) {
	server := harness.Start(t, harness.Subject())
	store := model.New()
	run := &comparison{t: t, reference: modelTarget{store}, subject: newStubs(server.Conn())}
	all := &pb.RangeRequest{Key: []byte("a"), RangeEnd: []byte{0}}
	for _, request := range []proto.Message{
		&pb.PutRequest{Key: []byte("a"), Value: []byte("before")},
		&pb.PutRequest{Key: []byte("b"), Value: []byte("before")},
		&pb.TxnRequest{Success: []*pb.RequestOp{
			{Request: &pb.RequestOp_RequestDeleteRange{RequestDeleteRange: &pb.DeleteRangeRequest{Key: []byte("a"), RangeEnd: []byte{0}}}},
			{Request: &pb.RequestOp_RequestPut{RequestPut: &pb.PutRequest{Key: []byte("b"), Value: []byte("again")}}},
		}},
		&pb.PutRequest{Key: []byte("c"), Value: []byte("after")},
		&pb.CompactionRequest{Revision: 4, Physical: true},
		all,
		&pb.RangeRequest{Key: []byte("b"), Revision: 4},
		&pb.PutRequest{Key: []byte("b"), Value: []byte("last")},
		&pb.RangeRequest{Key: []byte("b"), Revision: 4},
	} {
		run.ask(request)
	}
	server.Kill()
	server.Run()
	run.subject = newStubs(server.Conn())
	run.ask(all)
	run.ask(&pb.CompactionRequest{Revision: 6, Physical: true})
	run.ask(all)
}
