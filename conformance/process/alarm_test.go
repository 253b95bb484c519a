package process

import (
	"testing"

	"cairn.dev/conformance/harness"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

// raiseNoSpace raises the alarm as a member does that has no space left.
func raiseNoSpace(t *testing.T, server *harness.Server) {
	t.Helper()
	members, err := server.Client().MemberList(harness.Context(t))
	if err != nil {
		t.Fatal(err)
	}
	_, err = pb.NewMaintenanceClient(server.Conn()).Alarm(harness.Context(t), &pb.AlarmRequest{
		Action: pb.AlarmRequest_ACTIVATE, MemberID: members.Header.MemberId, Alarm: pb.AlarmType_NOSPACE,
	})
	if err != nil {
		t.Fatal(err)
	}
}
