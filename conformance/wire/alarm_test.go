package wire

import (
	"slices"
	"testing"

	"cairn.dev/conformance/harness"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
)

// What is refused while an alarm is raised, and what is not.
func TestAlarms(t *testing.T) {
	both := startSides(t)
	both.open = func(response proto.Message) {
		clearMeasures(response)
		switch response := response.(type) {
		case *pb.AlarmResponse:
			for _, alarm := range response.Alarms {
				alarm.MemberID = 0
			}
			// They come from a map.
			slices.SortFunc(response.Alarms, func(a, b *pb.AlarmMember) int { return int(a.Alarm) - int(b.Alarm) })
		case *pb.StatusResponse:
			// The text holds the member's id.
			for i := range response.Errors {
				response.Errors[i] = "an alarm"
			}
		}
	}
	both.sameMessage("/etcdserverpb.KV/Put", &pb.PutRequest{Key: []byte("a"), Value: []byte("1")})
	both.sameMessage("/etcdserverpb.KV/Put", &pb.PutRequest{Key: []byte("b"), Value: []byte("2")})
	both.sameMessage("/etcdserverpb.Lease/LeaseGrant", &pb.LeaseGrantRequest{ID: 5, TTL: 1000})
	// A kind that does not exist is left out: etcd keeps it, and so a client can grow the set without end; Cairn does not.
	for _, alarm := range []pb.AlarmType{pb.AlarmType_NOSPACE, pb.AlarmType_CORRUPT} {
		both.alarm(pb.AlarmRequest_ACTIVATE, alarm)
		both.alarm(pb.AlarmRequest_ACTIVATE, alarm)
		both.alarm(pb.AlarmRequest_GET, pb.AlarmType_NONE)
		both.alarm(pb.AlarmRequest_GET, alarm)
		both.everything()
		both.alarm(pb.AlarmRequest_DEACTIVATE, alarm)
		both.alarm(pb.AlarmRequest_DEACTIVATE, alarm)
		both.everything()
	}
	both.alarm(pb.AlarmRequest_ACTIVATE, pb.AlarmType_NOSPACE)
	both.alarm(pb.AlarmRequest_ACTIVATE, pb.AlarmType_CORRUPT)
	both.everything()
	both.alarm(pb.AlarmRequest_DEACTIVATE, pb.AlarmType_NONE)
	both.alarm(pb.AlarmRequest_GET, pb.AlarmType_NONE)
}

// alarm asks each server with its own member id.
func (s *sides) alarm(action pb.AlarmRequest_AlarmAction, alarm pb.AlarmType) {
	s.t.Helper()
	var requests [2][]byte
	for i, conn := range []*grpc.ClientConn{s.etcd, s.subject} {
		members, err := pb.NewClusterClient(conn).MemberList(harness.Context(s.t), &pb.MemberListRequest{})
		if err != nil {
			s.t.Fatal(err)
		}
		requests[i], _ = proto.Marshal(&pb.AlarmRequest{Action: action, MemberID: members.Header.MemberId, Alarm: alarm})
	}
	s.sameBoth(s.t.Context(), action.String()+" "+alarm.String(), "/etcdserverpb.Maintenance/Alarm", requests)
}

// everything makes one request of each kind.
func (s *sides) everything() {
	s.t.Helper()
	putA := &pb.PutRequest{Key: []byte("a"), Value: []byte("x"), PrevKv: true}
	opPut := []*pb.RequestOp{{Request: &pb.RequestOp_RequestPut{RequestPut: putA}}}
	remove := &pb.DeleteRangeRequest{Key: []byte("b")}
	opDelete := []*pb.RequestOp{{Request: &pb.RequestOp_RequestDeleteRange{RequestDeleteRange: remove}}}
	never := []*pb.Compare{{Key: []byte("a"), Target: pb.Compare_MOD}}
	s.sameMessage("/etcdserverpb.KV/Put", putA)
	s.sameMessage("/etcdserverpb.KV/Range", &pb.RangeRequest{Key: []byte("a"), RangeEnd: []byte("z")})
	s.sameMessage("/etcdserverpb.KV/Range", &pb.RangeRequest{Key: []byte("a"), Serializable: true})
	s.sameMessage("/etcdserverpb.KV/Txn", &pb.TxnRequest{})
	s.sameMessage("/etcdserverpb.KV/Txn", &pb.TxnRequest{Success: reads(1)})
	s.sameMessage("/etcdserverpb.KV/Txn", &pb.TxnRequest{Success: opPut})
	// The dearer branch counts, taken or not.
	s.sameMessage("/etcdserverpb.KV/Txn", &pb.TxnRequest{Compare: never, Success: opPut, Failure: reads(1)})
	s.sameMessage("/etcdserverpb.KV/Txn", &pb.TxnRequest{Success: opDelete})
	s.sameMessage("/etcdserverpb.KV/DeleteRange", &pb.DeleteRangeRequest{Key: []byte("a"), PrevKv: true})
	s.sameMessage("/etcdserverpb.Lease/LeaseGrant", &pb.LeaseGrantRequest{ID: 6, TTL: 1000})
	s.sameMessage("/etcdserverpb.Lease/LeaseRevoke", &pb.LeaseRevokeRequest{ID: 6})
	s.sameMessage("/etcdserverpb.Lease/LeaseTimeToLive", &pb.LeaseTimeToLiveRequest{ID: 5})
	s.sameMessage("/etcdserverpb.KV/Compact", &pb.CompactionRequest{Revision: 1})
	s.sameMessage("/etcdserverpb.Maintenance/HashKV", &pb.HashKVRequest{})
	s.sameMessage("/etcdserverpb.Maintenance/Status", &pb.StatusRequest{})
	s.sameMessage("/etcdserverpb.Maintenance/Defragment", &pb.DefragmentRequest{})
	s.sameMessage("/etcdserverpb.Cluster/MemberList", &pb.MemberListRequest{Linearizable: true})
}
