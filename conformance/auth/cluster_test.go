package auth

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"cairn.dev/conformance/harness"
	"go.etcd.io/etcd/api/v3/authpb"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
)

// steady are flags of members that elect nobody because the machine stands
// still for a while: requests on their way would be lost.
func steady() []string {
	return []string{"--bcrypt-cost=4", "--election-timeout=5000"}
}

// A token is good on every member at once, whoever gave it out, and what a
// user may do is the same everywhere.
func TestThreeMembers(t *testing.T) {
	if harness.Subject() == harness.Etcd {
		t.Skip("the genuine server refuses a token now and then while it applies the entry that gave it out")
	}
	cluster := harness.StartCluster(t, harness.Subject(), 3, nil, append(steady(), "--snapshot-count=50")...)
	var members []*side
	for _, member := range cluster.Members {
		members = append(members, &side{server: member, conn: member.Conn(), tokens: map[string]string{}})
	}
	members[0].addUsers(t)
	read, own := &pb.RangeRequest{Key: key("b")}, &pb.RangeRequest{Key: key("b"), Serializable: true}
	for round := range 20 {
		from := members[round%3]
		name := fmt.Sprintf("user-%d", round)
		from.tokens["root"] = members[0].tokens["root"]
		from.must(t, "root", &pb.AuthUserAddRequest{Name: name, Password: "pw"})
		members[(round+1)%3].tokens["root"] = from.tokens["root"]
		members[(round+1)%3].must(t, "root", &pb.AuthUserGrantRoleRequest{User: name, Role: "r"})
		from.login(t, name, "pw")
		// Each member at the same moment: who lags has to wait for its log.
		var group sync.WaitGroup
		for _, member := range members {
			member.tokens[name] = from.tokens[name]
		}
		for _, member := range members {
			group.Go(func() {
				if _, err := member.ask(t, name, own); err != nil {
					t.Errorf("round %d: a serializable read: %v", round, err)
				}
				if _, err := member.ask(t, name, read); err != nil {
					t.Errorf("round %d: a read: %v", round, err)
				}
				if _, err := member.ask(t, name, &pb.PutRequest{Key: key("b"), Value: key(name)}); err != nil {
					t.Errorf("round %d: a put: %v", round, err)
				}
				if answer, err := member.ask(t, name, watch("b", "")); err != nil || answer.(*pb.WatchResponse).Canceled {
					t.Errorf("round %d: a watch: %v, %v", round, answer, err)
				}
				member.refused(t, name, codes.PermissionDenied, &pb.RangeRequest{Key: key("a")}, &pb.PutRequest{Key: key("a")})
			})
		}
		group.Wait()
		// The same credential gets the same token while it is young.
		before := from.tokens[name]
		from.login(t, name, "pw")
		if from.tokens[name] != before {
			t.Errorf("round %d: another token for the same password", round)
		}
	}
	// A member that was away knows users and permissions from the state it is sent or its own log; tokens it does not.
	away := members[2]
	id := away.must(t, "root", &pb.StatusRequest{}).(*pb.StatusResponse).Header.MemberId
	away.server.Kill()
	// Requests on their way to a leader that is killed are lost: the others must know of another one first.
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(50 * time.Millisecond) {
		leader := members[0].must(t, "root", &pb.StatusRequest{}).(*pb.StatusResponse).Leader
		if leader != 0 && leader != id {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("no new leader a minute after the old one was killed")
		}
	}
	members[0].must(t, "root", grant("r", authpb.READ, "c", ""))
	for range 200 {
		members[0].must(t, "root", &pb.PutRequest{Key: key("c"), Value: key("x")})
	}
	members[0].must(t, "root", &pb.AuthUserChangePasswordRequest{Name: "ann", Password: "new"})
	away.server.Run()
	away.conn = away.server.Conn()
	away.refused(t, nobody, codes.InvalidArgument, read, &pb.AuthenticateRequest{Name: "ann", Password: "ann-pw"})
	away.login(t, "ann", "new")
	away.must(t, "ann", &pb.RangeRequest{Key: key("c")})
	members[1].tokens["ann"] = away.tokens["ann"]
	members[1].must(t, "ann", &pb.RangeRequest{Key: key("c"), Serializable: true})
	away.login(t, "root", "root-pw")
	away.must(t, "root", &pb.AuthDisableRequest{})
	members[1].must(t, nobody, &pb.RangeRequest{Key: key("a")})
}

// Requests that a change of users overtakes are asked again by the member that
// has them: nobody is refused for it, and nobody is let through by it.
func TestOvertaken(t *testing.T) {
	if harness.Subject() == harness.Etcd {
		t.Skip("the genuine server refuses them, and its clients ask again")
	}
	cluster := harness.StartCluster(t, harness.Subject(), 3, nil, steady()...)
	var members []*side
	for _, member := range cluster.Members {
		members = append(members, &side{server: member, conn: member.Conn(), tokens: map[string]string{}})
	}
	members[0].addUsers(t)
	var group sync.WaitGroup
	over := make(chan struct{})
	for _, member := range members {
		member.tokens["ann"] = members[0].tokens["ann"]
		for range 4 {
			group.Go(func() {
				for {
					select {
					case <-over:
						return
					default:
					}
					for _, request := range []proto.Message{
						&pb.PutRequest{Key: key("b"), Value: key("own")}, &pb.RangeRequest{Key: key("b")},
						&pb.TxnRequest{Success: []*pb.RequestOp{{Request: &pb.RequestOp_RequestPut{RequestPut: &pb.PutRequest{Key: key("b")}}}}},
						&pb.DeleteRangeRequest{Key: key("b")},
					} {
						if _, err := member.ask(t, "ann", request); err != nil {
							t.Errorf("%T: %v", request, err)
							return
						}
					}
					member.refused(t, "ann", codes.PermissionDenied, &pb.PutRequest{Key: key("a")})
				}
			})
		}
	}
	for number := range 100 {
		members[number%3].tokens["root"] = members[0].tokens["root"]
		members[number%3].must(t, "root", grant("r", authpb.READ, fmt.Sprintf("x%d", number), ""))
		time.Sleep(20 * time.Millisecond)
	}
	close(over)
	group.Wait()
}
