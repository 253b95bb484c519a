package wire

import (
	"testing"

	"cairn.dev/conformance/harness"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

// crashesEtcd says whether etcd 3.7.3 ends itself on a request: the tests that
// compare leave it out.
func crashesEtcd(request proto.Message) bool {
	alarm, ok := request.(*pb.AlarmRequest)
	return ok && alarm.Action != pb.AlarmRequest_GET &&
		alarm.Action != pb.AlarmRequest_ACTIVATE && alarm.Action != pb.AlarmRequest_DEACTIVATE
}

// Requests that end the genuine server leave Cairn alive.
func TestCrashers(t *testing.T) {
	if harness.Subject() == harness.Etcd {
		t.Skip("they end the genuine server")
	}
	server := harness.Start(t, harness.Subject())
	conn := server.Conn()
	kv, maintenance := pb.NewKVClient(conn), pb.NewMaintenanceClient(conn)
	for _, action := range []pb.AlarmRequest_AlarmAction{-1, 3, 1000} {
		_, err := maintenance.Alarm(harness.Context(t), &pb.AlarmRequest{Action: action})
		if status.Code(err) == codes.Unavailable {
			t.Fatalf("alarm action %d: %v", action, err)
		}
	}
	for _, put := range []*pb.PutRequest{
		{Key: []byte("b"), IgnoreValue: true},
		{Key: []byte("b"), Value: []byte("v"), IgnoreLease: true},
	} {
		if _, err := kv.Put(harness.Context(t), &pb.PutRequest{Key: []byte("b"), Value: []byte("v")}); err != nil {
			t.Fatal(err)
		}
		// A delete up to the last key is not seen as an overlap, so the put finds
		// its key gone.
		_, err := kv.Txn(harness.Context(t), &pb.TxnRequest{Success: []*pb.RequestOp{
			{Request: &pb.RequestOp_RequestDeleteRange{
				RequestDeleteRange: &pb.DeleteRangeRequest{Key: []byte("a"), RangeEnd: []byte{0}},
			}},
			{Request: &pb.RequestOp_RequestPut{RequestPut: put}},
		}})
		t.Logf("%v after a delete: %v", put, err)
		if status.Code(err) == codes.Unavailable {
			t.Fatal(err)
		}
	}
	// It still works, also after a restart.
	if _, err := kv.Put(harness.Context(t), &pb.PutRequest{Key: []byte("c")}); err != nil {
		t.Fatal(err)
	}
	server.Kill()
	server.Run()
	if _, err := server.Client().Get(harness.Context(t), "c"); err != nil {
		t.Fatal(err)
	}
}
