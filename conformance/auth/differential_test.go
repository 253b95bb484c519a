package auth

import (
	"strings"
	"testing"

	"go.etcd.io/etcd/api/v3/authpb"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/protobuf/proto"
)

func key(text string) []byte { return []byte(text) }

func perm(kind authpb.Permission_Type, from, to string) *authpb.Permission {
	return &authpb.Permission{PermType: kind, Key: key(from), RangeEnd: key(to)}
}

func grant(role string, kind authpb.Permission_Type, from, to string) *pb.AuthRoleGrantPermissionRequest {
	return &pb.AuthRoleGrantPermissionRequest{Name: role, Perm: perm(kind, from, to)}
}

// everythingListed asks for all users and roles, and the revision that changes
// have led to.
func (s *sides) everythingListed(user string) {
	s.t.Helper()
	s.same(user, &pb.AuthStatusRequest{})
	s.same(user, &pb.AuthUserListRequest{})
	s.same(user, &pb.AuthRoleListRequest{})
	for _, name := range []string{"root", "alice", "bob", "", "nobody"} {
		s.same(user, &pb.AuthUserGetRequest{Name: name})
		s.same(user, &pb.AuthRoleGetRequest{Role: name})
	}
	for _, role := range []string{"r1", "r2", "r3"} {
		s.same(user, &pb.AuthRoleGetRequest{Role: role})
	}
}

// Users, roles and permissions while nobody has to log in.
func TestManagement(t *testing.T) {
	s := startSides(t, "--bcrypt-cost=4")
	s.everythingListed(nobody)
	s.same(nobody, &pb.AuthEnableRequest{})
	s.same(nobody, &pb.AuthDisableRequest{})
	s.same(nobody, &pb.AuthenticateRequest{Name: "root", Password: "x"})
	s.same(nobody, &pb.AuthenticateRequest{})
	long := strings.Repeat("n", 1<<20)
	for _, name := range []string{"alice", "alice", "", "bob", "root", "a/b:c d\n"} {
		s.same(nobody, &pb.AuthUserAddRequest{Name: name, Password: "pw"})
	}
	s.same(nobody, &pb.AuthUserAddRequest{Name: "carol", Options: &authpb.UserAddOptions{NoPassword: true}})
	s.same(nobody, &pb.AuthUserAddRequest{Name: "dave", Password: "pw", Options: &authpb.UserAddOptions{NoPassword: true}})
	s.same(nobody, &pb.AuthUserAddRequest{Name: "erin"})
	s.same(nobody, &pb.AuthUserAddRequest{Name: "frank", Password: strings.Repeat("p", 72)})
	s.same(nobody, &pb.AuthUserAddRequest{Name: "grace", Password: strings.Repeat("p", 73)})
	s.same(nobody, &pb.AuthUserAddRequest{Name: "heidi", Password: "with\x00nul"})
	s.same(nobody, &pb.AuthUserAddRequest{Name: "ivan", HashedPassword: "bm9uc2Vuc2U="})
	s.same(nobody, &pb.AuthUserAddRequest{Name: "judy", HashedPassword: "no base64!", Password: "pw"})
	s.everythingListed(nobody)
	s.same(nobody, &pb.AuthEnableRequest{})

	for _, role := range []string{"r1", "r1", "", "r2", "root", "root", "a/b"} {
		s.same(nobody, &pb.AuthRoleAddRequest{Name: role})
	}
	for _, request := range []*pb.AuthRoleGrantPermissionRequest{
		grant("r1", authpb.READ, "b", "d"), grant("r1", authpb.READ, "b", "d"), grant("r1", authpb.WRITE, "b", "d"),
		grant("r1", authpb.READWRITE, "a", ""), grant("r1", authpb.READ, "a", "b"), grant("r1", authpb.READ, "a", "\x00"),
		grant("r1", authpb.READ, "c", "b"), grant("r1", authpb.READ, "c", "c"), grant("r1", authpb.READ, "", ""),
		grant("r1", authpb.READ, "", "z"), grant("r1", authpb.READ, "\x00", "\x00"), grant("r1", authpb.READ, "\x00", ""),
		grant("r1", authpb.READ, "", "\x00"),
		grant("r1", authpb.READ, "\x00", "a"), grant("r1", 7, "x", ""), grant("r1", authpb.READ, "z", "\x00"),
		grant("", authpb.READ, "x", ""), grant("missing", authpb.READ, "x", ""), grant("root", authpb.READ, "x", ""),
		grant("r2", authpb.WRITE, long, ""),
		{Name: "r1"}, {Name: "missing"}, {}, {Name: "r1", Perm: &authpb.Permission{}}, {Name: "", Perm: &authpb.Permission{}},
		{Name: "missing", Perm: &authpb.Permission{}}, grant("missing", authpb.READ, "c", "b"),
	} {
		s.same(nobody, request)
		s.same(nobody, &pb.AuthRoleGetRequest{Role: request.Name})
		s.same(nobody, &pb.AuthStatusRequest{})
	}
	for _, request := range []*pb.AuthRoleRevokePermissionRequest{
		{Role: "r1", Key: key("b"), RangeEnd: key("c")}, {Role: "r1", Key: key("b"), RangeEnd: key("d")},
		{Role: "r1", Key: key("b"), RangeEnd: key("d")}, {Role: "r1", Key: key("a")}, {Role: "r1", Key: key("a"), RangeEnd: key("\x00")},
		{Role: "missing", Key: key("a")}, {Key: key("a")}, {Role: "r1"}, {}, {Role: "root", Key: key("x")},
	} {
		s.same(nobody, request)
		s.same(nobody, &pb.AuthRoleGetRequest{Role: request.Role})
		s.same(nobody, &pb.AuthStatusRequest{})
	}
	for _, request := range []*pb.AuthUserGrantRoleRequest{
		{User: "alice", Role: "r1"}, {User: "alice", Role: "r1"}, {User: "alice", Role: "root"}, {User: "alice", Role: "missing"},
		{User: "missing", Role: "r1"}, {User: "missing", Role: "missing"}, {User: "", Role: "r1"}, {User: "alice", Role: ""}, {},
		{User: "bob", Role: "r2"}, {User: "bob", Role: "a/b"}, {User: "bob", Role: "r1"}, {User: "root", Role: "root"},
	} {
		s.same(nobody, request)
		s.same(nobody, &pb.AuthUserGetRequest{Name: request.User})
		s.same(nobody, &pb.AuthStatusRequest{})
	}
	for _, request := range []*pb.AuthUserRevokeRoleRequest{
		{Name: "alice", Role: "root"}, {Name: "alice", Role: "root"}, {Name: "alice", Role: "missing"}, {Name: "missing", Role: "r1"},
		{Name: "", Role: "r1"}, {Name: "alice", Role: ""}, {}, {Name: "bob", Role: "r2"}, {Name: "root", Role: "root"},
	} {
		s.same(nobody, request)
		s.same(nobody, &pb.AuthUserGetRequest{Name: request.Name})
		s.same(nobody, &pb.AuthStatusRequest{})
	}
	s.same(nobody, &pb.AuthEnableRequest{})
	for _, request := range []*pb.AuthUserChangePasswordRequest{
		{Name: "alice", Password: "new"}, {Name: "alice", Password: ""}, {Name: "missing", Password: "x"}, {Name: "", Password: "x"}, {},
		{Name: "carol", Password: "x"}, {Name: "alice", Password: strings.Repeat("p", 73)}, {Name: "alice", HashedPassword: "bm9uc2Vuc2U="},
	} {
		s.same(nobody, request)
		s.same(nobody, &pb.AuthStatusRequest{})
	}
	for _, role := range []string{"r1", "r1", "", "missing", "a/b"} {
		s.same(nobody, &pb.AuthRoleDeleteRequest{Role: role})
		s.same(nobody, &pb.AuthUserGetRequest{Name: "bob"})
		s.same(nobody, &pb.AuthUserGetRequest{Name: "alice"})
		s.same(nobody, &pb.AuthStatusRequest{})
	}
	for _, user := range []string{"bob", "bob", "", "missing"} {
		s.same(nobody, &pb.AuthUserDeleteRequest{Name: user})
		s.same(nobody, &pb.AuthStatusRequest{})
	}
	s.same(nobody, &pb.AuthRoleDeleteRequest{Role: "root"})
	s.same(nobody, &pb.AuthRoleAddRequest{Name: "root"})
	s.same(nobody, &pb.AuthUserDeleteRequest{Name: "root"})
	s.same(nobody, &pb.AuthEnableRequest{})
	s.same(nobody, &pb.AuthUserAddRequest{Name: "root", Password: "secret"})
	s.same(nobody, &pb.AuthEnableRequest{})
	s.same(nobody, &pb.AuthUserGrantRoleRequest{User: "root", Role: "root"})
	s.everythingListed(nobody)
	// Tokens mean nothing yet.
	s.same(stranger, &pb.RangeRequest{Key: key("a")})
	s.same(nobody, &pb.AuthEnableRequest{})
	s.same(nobody, &pb.AuthEnableRequest{})
	s.everythingListed(nobody)
	s.login("root", "secret")
	s.everythingListed("root")
	s.same("root", &pb.AuthEnableRequest{})
	for _, request := range []proto.Message{
		&pb.AuthUserDeleteRequest{Name: "root"}, &pb.AuthRoleDeleteRequest{Role: "root"},
		&pb.AuthUserRevokeRoleRequest{Name: "root", Role: "root"}, &pb.AuthUserDeleteRequest{Name: "missing"},
		&pb.AuthRoleDeleteRequest{Role: "missing"},
	} {
		s.same("root", request)
	}
	for _, request := range []*pb.AuthenticateRequest{
		{Name: "root", Password: "wrong"}, {Name: "root"}, {Name: "", Password: "x"}, {}, {Name: "missing", Password: "x"},
		{Name: "carol", Password: "x"}, {Name: "carol"}, {Name: "dave", Password: "pw"}, {Name: "erin"}, {Name: "erin", Password: "x"},
		{Name: "frank", Password: strings.Repeat("p", 72)}, {Name: "frank", Password: strings.Repeat("p", 73)},
		{Name: "frank", Password: strings.Repeat("p", 71)}, {Name: "heidi", Password: "with\x00nul"}, {Name: "heidi", Password: "with"},
		{Name: "ivan", Password: "nonsense"}, {Name: "ivan"}, {Name: "judy", Password: "pw"},
	} {
		s.same(nobody, request)
	}
	s.same("root", &pb.AuthDisableRequest{})
	s.same("root", &pb.AuthDisableRequest{})
	s.same("root", &pb.RangeRequest{Key: key("a")})
	s.everythingListed(nobody)
}
