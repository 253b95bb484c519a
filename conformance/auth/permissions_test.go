package auth

import (
	"testing"

	"go.etcd.io/etcd/api/v3/authpb"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/protobuf/proto"
)

func rangeOp(from, to string) *pb.RequestOp {
	return &pb.RequestOp{Request: &pb.RequestOp_RequestRange{RequestRange: &pb.RangeRequest{Key: key(from), RangeEnd: key(to)}}}
}

func putOp(request *pb.PutRequest) *pb.RequestOp {
	return &pb.RequestOp{Request: &pb.RequestOp_RequestPut{RequestPut: request}}
}

func deleteOp(request *pb.DeleteRangeRequest) *pb.RequestOp {
	return &pb.RequestOp{Request: &pb.RequestOp_RequestDeleteRange{RequestDeleteRange: request}}
}

func txnOp(request *pb.TxnRequest) *pb.RequestOp {
	return &pb.RequestOp{Request: &pb.RequestOp_RequestTxn{RequestTxn: request}}
}

func ops(all ...*pb.RequestOp) []*pb.RequestOp { return all }

func watch(from, to string) *pb.WatchRequest {
	create := &pb.WatchCreateRequest{Key: key(from), RangeEnd: key(to)}
	return &pb.WatchRequest{RequestUnion: &pb.WatchRequest_CreateRequest{CreateRequest: create}}
}

// ranges of keys, inside and outside of what the users may see: one may read
// [b, d) and m, another write [c, f).
var ranges = [][2]string{
	{"a", ""}, {"b", ""}, {"c", ""}, {"d", ""}, {"m", ""}, {"m", "m\x00"}, {"m", "n"}, {"b", "c"}, {"b", "d"}, {"b", "e"}, {"a", "c"},
	{"c", "e"}, {"e", "f"}, {"b", "\x00"}, {"\x00", "\x00"}, {"", "\x00"}, {"", ""}, {"z", "\x00"}, {"d", "b"}, {"c", "b"}, {"c", "c"}, {"x", "x"}, {"", "b"},
}

// requests of every kind, which change nothing that later ones depend on: the
// keys are put again.
func requests() []proto.Message {
	var all []proto.Message
	add := func(requests ...proto.Message) { all = append(all, requests...) }
	for _, r := range ranges {
		from, to := key(r[0]), key(r[1])
		add(
			&pb.RangeRequest{Key: from, RangeEnd: to},
			&pb.RangeRequest{Key: from, RangeEnd: to, Serializable: true, CountOnly: true},
			watch(r[0], r[1]),
			&pb.DeleteRangeRequest{Key: from, RangeEnd: to},
			&pb.DeleteRangeRequest{Key: from, RangeEnd: to, PrevKv: true},
			&pb.TxnRequest{Compare: []*pb.Compare{{Key: from, RangeEnd: to, Target: pb.Compare_VERSION}}},
			&pb.TxnRequest{Success: ops(rangeOp(r[0], r[1]))},
			&pb.TxnRequest{Failure: ops(rangeOp(r[0], r[1]))},
			&pb.TxnRequest{Failure: ops(deleteOp(&pb.DeleteRangeRequest{Key: from, RangeEnd: to}))},
			&pb.TxnRequest{Success: ops(deleteOp(&pb.DeleteRangeRequest{Key: from, RangeEnd: to, PrevKv: true}))},
			&pb.TxnRequest{Success: ops(txnOp(&pb.TxnRequest{Failure: ops(rangeOp(r[0], r[1]))}))},
			&pb.TxnRequest{Success: ops(txnOp(&pb.TxnRequest{Failure: ops(deleteOp(&pb.DeleteRangeRequest{Key: from, RangeEnd: to}))}))},
			&pb.TxnRequest{Failure: ops(txnOp(&pb.TxnRequest{Compare: []*pb.Compare{{Key: from, RangeEnd: to, Target: pb.Compare_VERSION}}}))},
		)
		if r[1] == "" {
			add(
				&pb.PutRequest{Key: from, Value: key("1")},
				&pb.PutRequest{Key: from, Value: key("1"), PrevKv: true},
				&pb.PutRequest{Key: from, IgnoreValue: true},
				&pb.PutRequest{Key: from, Value: key("1"), IgnoreLease: true},
				&pb.PutRequest{Key: from, Value: key("1"), Lease: 99},
				&pb.TxnRequest{Success: ops(putOp(&pb.PutRequest{Key: from}))},
				&pb.TxnRequest{Failure: ops(putOp(&pb.PutRequest{Key: from, PrevKv: true}))},
				&pb.TxnRequest{Success: ops(txnOp(&pb.TxnRequest{Failure: ops(putOp(&pb.PutRequest{Key: from}))}))},
			)
		}
	}
	for _, lease := range []int64{1, 2, 3, 4, 99} {
		add(
			&pb.PutRequest{Key: key("c"), Lease: lease},
			&pb.PutRequest{Key: key("a"), Lease: lease},
			&pb.TxnRequest{Success: ops(putOp(&pb.PutRequest{Key: key("c"), Lease: lease}))},
			&pb.TxnRequest{Success: ops(txnOp(&pb.TxnRequest{Success: ops(putOp(&pb.PutRequest{Key: key("c"), Lease: lease}))}))},
			&pb.LeaseKeepAliveRequest{ID: lease},
			&pb.LeaseTimeToLiveRequest{ID: lease},
			&pb.LeaseTimeToLiveRequest{ID: lease, Keys: true},
		)
	}
	add(
		&pb.TxnRequest{}, &pb.TxnRequest{Success: ops(&pb.RequestOp{})},
		&pb.TxnRequest{Success: ops(txnOp(&pb.TxnRequest{}))},
		&pb.RangeRequest{Key: key("a"), Revision: 1 << 40}, &pb.RangeRequest{Key: key("c"), Revision: 1 << 40},
		&pb.RangeRequest{Key: key("a"), SortOrder: 9},
		&pb.LeaseLeasesRequest{}, &pb.LeaseGrantRequest{ID: 1, TTL: 100}, &pb.LeaseGrantRequest{ID: 5, TTL: 1 << 60},
		&pb.CompactionRequest{Revision: 1 << 40}, &pb.CompactionRequest{},
		&pb.MemberListRequest{}, &pb.MemberListRequest{Linearizable: true}, &pb.MemberAddRequest{}, &pb.MemberAddRequest{PeerURLs: []string{"x"}},
		&pb.MemberRemoveRequest{ID: 1}, &pb.MemberUpdateRequest{ID: 1, PeerURLs: []string{"http://127.0.0.1:1"}}, &pb.MemberPromoteRequest{ID: 1},
		&pb.AlarmRequest{}, &pb.AlarmRequest{Action: pb.AlarmRequest_ACTIVATE, Alarm: pb.AlarmType_NOSPACE, MemberID: 7},
		&pb.AlarmRequest{Action: pb.AlarmRequest_DEACTIVATE, Alarm: pb.AlarmType_NOSPACE, MemberID: 7},
		&pb.StatusRequest{}, &pb.DefragmentRequest{}, &pb.HashRequest{}, &pb.HashKVRequest{Revision: 1 << 40}, &pb.MoveLeaderRequest{TargetID: 1},
		&pb.SnapshotRequest{},
		&pb.AuthStatusRequest{}, &pb.AuthUserListRequest{}, &pb.AuthRoleListRequest{},
		&pb.AuthUserAddRequest{Name: "root"}, &pb.AuthUserAddRequest{}, &pb.AuthUserAddRequest{Name: "reader", Password: "x"},
		&pb.AuthRoleAddRequest{Name: "reads"}, &pb.AuthRoleAddRequest{},
		&pb.AuthUserDeleteRequest{Name: "missing"}, &pb.AuthRoleDeleteRequest{Role: "missing"}, &pb.AuthUserDeleteRequest{Name: "root"},
		&pb.AuthRoleDeleteRequest{Role: "root"}, &pb.AuthUserRevokeRoleRequest{Name: "root", Role: "root"},
		&pb.AuthUserChangePasswordRequest{Name: "missing", Password: "x"},
		&pb.AuthUserGrantRoleRequest{User: "missing", Role: "x"}, &pb.AuthUserRevokeRoleRequest{Name: "reader", Role: "x"},
		&pb.AuthRoleGrantPermissionRequest{Name: "reads"}, grant("missing", authpb.READ, "x", ""),
		&pb.AuthRoleRevokePermissionRequest{Role: "reads", Key: key("x")},
		&pb.AuthEnableRequest{},
		&pb.AuthenticateRequest{Name: "reader", Password: "wrong"}, &pb.AuthenticateRequest{Name: "reader", Password: "pw"},
	)
	for _, name := range []string{"root", "reader", "writer", "both", "none", "missing", ""} {
		add(&pb.AuthUserGetRequest{Name: name})
	}
	for _, role := range []string{"root", "reads", "writes", "missing", ""} {
		add(&pb.AuthRoleGetRequest{Role: role})
	}
	return all
}

// fill makes the users and what they ask for.
func (s *sides) fill() {
	s.t.Helper()
	for _, request := range []proto.Message{
		&pb.AuthUserAddRequest{Name: "root", Password: "pw"},
		&pb.AuthUserGrantRoleRequest{User: "root", Role: "root"},
		&pb.AuthRoleAddRequest{Name: "root"},
		&pb.AuthUserGrantRoleRequest{User: "root", Role: "root"},
		&pb.AuthRoleAddRequest{Name: "reads"}, grant("reads", authpb.READ, "b", "c"), grant("reads", authpb.READ, "c", "d"),
		grant("reads", authpb.READ, "m", ""),
		&pb.AuthRoleAddRequest{Name: "writes"}, grant("writes", authpb.WRITE, "c", "e"), grant("writes", authpb.WRITE, "d", "f"),
		&pb.AuthRoleAddRequest{Name: "ends"}, grant("ends", authpb.READWRITE, "y", "\x00"),
		&pb.AuthRoleAddRequest{Name: "odd"}, grant("odd", 7, "a", "z"),
		&pb.AuthUserAddRequest{Name: "reader", Password: "pw"}, &pb.AuthUserGrantRoleRequest{User: "reader", Role: "reads"},
		&pb.AuthUserAddRequest{Name: "writer", Password: "pw"}, &pb.AuthUserGrantRoleRequest{User: "writer", Role: "writes"},
		&pb.AuthUserAddRequest{Name: "both", Password: "pw"}, &pb.AuthUserGrantRoleRequest{User: "both", Role: "reads"},
		&pb.AuthUserGrantRoleRequest{User: "both", Role: "writes"}, &pb.AuthUserGrantRoleRequest{User: "both", Role: "ends"},
		&pb.AuthUserAddRequest{Name: "none", Password: "pw"}, &pb.AuthUserGrantRoleRequest{User: "none", Role: "odd"},
		&pb.AuthUserAddRequest{Name: "other", Password: "pw"}, &pb.AuthUserGrantRoleRequest{User: "other", Role: "root"},
		&pb.LeaseGrantRequest{ID: 1, TTL: 1000}, &pb.LeaseGrantRequest{ID: 2, TTL: 1000}, &pb.LeaseGrantRequest{ID: 3, TTL: 1000},
		&pb.LeaseGrantRequest{ID: 4, TTL: 1000},
		&pb.PutRequest{Key: key("a"), Value: key("1")}, &pb.PutRequest{Key: key("b"), Value: key("1")},
		&pb.AuthEnableRequest{},
	} {
		if err := s.same(nobody, request); err != nil {
			s.t.Logf("%v: %v", request, err)
		}
	}
	for _, user := range []string{"root", "reader", "writer", "both", "none", "other"} {
		s.login(user, "pw")
	}
}

// changes says whether the request may change what the next one finds.
func changes(request proto.Message) bool {
	switch request.(type) {
	case *pb.PutRequest, *pb.DeleteRangeRequest, *pb.TxnRequest:
		return true
	}
	return false
}

// restore puts the keys back as they were.
func (s *sides) restore() {
	s.t.Helper()
	again := &pb.TxnRequest{Success: ops(
		putOp(&pb.PutRequest{Key: key("a"), Value: key("v")}), putOp(&pb.PutRequest{Key: key("b"), Value: key("v"), Lease: 1}),
		putOp(&pb.PutRequest{Key: key("c"), Value: key("v"), Lease: 2}), putOp(&pb.PutRequest{Key: key("d"), Value: key("v"), Lease: 3}),
		putOp(&pb.PutRequest{Key: key("m"), Value: key("v"), Lease: 3}),
	)}
	for _, side := range s.both {
		if _, err := side.ask(s.t, "root", again); err != nil {
			s.t.Fatal(err)
		}
	}
}

// Who may do what: every request as every user.
func TestPermissions(t *testing.T) {
	s := startSides(t, "--bcrypt-cost=4")
	s.fill()
	for _, user := range []string{nobody, stranger, "none", "reader", "writer", "both", "other", "root"} {
		// A token that nobody has used for five minutes has ended.
		if user != nobody && user != stranger {
			s.login(user, "pw")
		}
		for _, request := range requests() {
			if changes(request) {
				s.restore()
			}
			s.same(user, request)
		}
		for _, lease := range []int64{1, 2, 3, 4, 99} {
			for _, path := range []string{"/etcdserverpb.Lease/LeaseRevoke"} {
				s.sameAt(user, path, &pb.LeaseRevokeRequest{ID: lease})
			}
			for _, side := range s.both {
				side.ask(t, "root", &pb.LeaseGrantRequest{ID: lease, TTL: 1000})
				side.ask(t, "root", &pb.LeaseRevokeRequest{ID: 99})
			}
		}
		s.sameAt(user, "/etcdserverpb.KV/RangeStream", &pb.RangeRequest{Key: key("a")})
		s.sameAt(user, "/etcdserverpb.KV/RangeStream", &pb.RangeRequest{Key: key("b"), RangeEnd: key("d")})
		s.sameAt(user, "/etcdserverpb.KV/RangeStream", &pb.RangeRequest{Key: key("b"), RangeEnd: key("\x00")})
		s.sameAt(user, "/etcdserverpb.Maintenance/Downgrade", &pb.DowngradeRequest{Action: 7})
	}
}
