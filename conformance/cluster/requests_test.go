package cluster

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"cairn.dev/conformance/harness"
	"go.etcd.io/etcd/api/v3/authpb"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/membershippb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"golang.org/x/crypto/bcrypt"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

func withToken(ctx context.Context, token string) context.Context {
	return metadata.AppendToOutgoingContext(ctx, "token", token)
}

// checking has members of both kinds look for differences between them. They
// elect nobody because the machine stands still for a while: that would lose
// what was under way to the leader.
var checking = []string{
	"--election-timeout=5000",
	"--feature-gates=InitialCorruptCheck=true,CompactHashCheck=true,LeaseCheckpoint=true",
	"--compact-hash-check-time=2s", "--corrupt-check-time=2s", "--bcrypt-cost=4",
}

// mixed is a cluster of two members of etcd and one of Cairn.
func mixed(t *testing.T, flags ...string) *harness.Cluster {
	t.Helper()
	return foundedBy(t, harness.Etcd, flags...)
}

// foundedBy is a cluster that one of Cairn and one of etcd have joined.
//
// It has a key that no test deletes. Where every key is deleted, etcd hashes
// what its compaction has not come to yet too: its hash at one revision changes
// while it compacts, and members of etcd alone find a difference, rarely.
func foundedBy(t *testing.T, founder harness.Kind, flags ...string) *harness.Cluster {
	t.Helper()
	cluster := harness.StartCluster(t, founder, 1, nil, append(slices.Clone(checking), flags...)...)
	if _, err := cluster.Client(0).Put(harness.Context(t), "0-kept", ""); err != nil {
		t.Fatal(err)
	}
	for _, kind := range []harness.Kind{harness.Subject(), harness.Etcd} {
		client := cluster.Client(0)
		if len(cluster.Members) > 1 {
			settled()
		}
		cluster.Add(harness.Context(t), client, kind).Run()
	}
	return cluster
}

// one is a request and what is tried with it.
type one struct {
	what    string
	request *pb.InternalRaftRequest
}

// Every field of etcd's InternalRaftRequest, as entries that are sound, that
// must be refused, and that no member of today would write, is applied alike
// by members of both kinds, whoever leads. Not among them: what ends a member
// of etcd (an operation of a transaction that is none, attributes of a member
// that is none), and a put without a key, which no member proposes and Cairn's
// members refuse.
func TestEveryRequest(t *testing.T) {
	t.Parallel()
	everyRequest(t, mixed(t), "3.7.0", harness.Etcd, harness.Subject())
}

// The same with a member of etcd 3.6, which keeps the version of the cluster,
// beside one of 3.7: each of the three leads. EARLIER=1: its server takes minutes
// to build.
func TestEveryRequestOfEarlier(t *testing.T) {
	if os.Getenv("EARLIER") == "" {
		t.Skip("EARLIER=1 builds etcd 3.6 and runs this")
	}
	t.Parallel()
	everyRequest(t, foundedBy(t, harness.Etcd36), "3.6.0", harness.Etcd36, harness.Subject(), harness.Etcd)
}

// everyRequest tries them while each of the first members leads, which are of
// these kinds.
func everyRequest(t *testing.T, cluster *harness.Cluster, version string, leaders ...harness.Kind) {
	t.Helper()
	in := newInsider(t, cluster)
	members, err := in.clients[0].MemberList(in.context())
	if err != nil {
		t.Fatal(err)
	}
	clusterVersion(t, cluster.Members, version)
	in.same("the start")
	for number, kind := range leaders {
		lead(t, cluster, number)
		for _, one := range keysAndLeases(t, in) {
			in.propose(one.request)
			in.same(fmt.Sprintf("%s, led by %s", one.what, kind))
		}
		for _, one := range alarmsAndMembers(members.Members, version) {
			in.propose(one.request)
			in.same(fmt.Sprintf("%s, led by %s", one.what, kind))
		}
		in.users(kind)
	}
	for _, member := range cluster.Members {
		if strings.Contains(member.Log(), "found data inconsistency") || strings.Contains(member.Log(), "data differs") {
			t.Errorf("a member of %s has found a difference:\n%s", member.Kind, member.LogTail())
		}
	}
	alarms, err := in.clients[1].AlarmList(in.context())
	if err != nil || len(alarms.Alarms) != 0 {
		t.Errorf("alarms: %v, %v", alarms, err)
	}
}

func keysAndLeases(t *testing.T, in *insider) []one {
	t.Helper()
	status := in.status()[0]
	revision := status.Header.Revision
	base := int64(revision) * 1000
	put := func(key, value string, lease int64) *pb.PutRequest {
		return &pb.PutRequest{Key: []byte(key), Value: []byte(value), Lease: lease}
	}
	op := func(put *pb.PutRequest) *pb.RequestOp {
		return &pb.RequestOp{Request: &pb.RequestOp_RequestPut{RequestPut: put}}
	}
	nested := &pb.TxnRequest{
		Compare: []*pb.Compare{{Key: []byte("a"), Result: pb.Compare_NOT_EQUAL, Target: pb.Compare_VERSION,
			TargetUnion: &pb.Compare_Version{Version: 0}}},
		Success: []*pb.RequestOp{op(put("a", "then", 0)), {Request: &pb.RequestOp_RequestTxn{RequestTxn: &pb.TxnRequest{
			Success: []*pb.RequestOp{op(put("b", "inner", base+1))}, Failure: []*pb.RequestOp{op(put("c", "", 0))},
		}}}},
	}
	checkpoints := &pb.LeaseCheckpointRequest{Checkpoints: []*pb.LeaseCheckpoint{
		{ID: base + 1, Remaining_TTL: 77}, {ID: 999, Remaining_TTL: 5}, {ID: base + 2, Remaining_TTL: -3}, {ID: base + 3, Remaining_TTL: 1 << 40},
	}}
	return []one{
		{"a put", &pb.InternalRaftRequest{Put: put("a", "1", 0)}},
		{"a put by its old ID", &pb.InternalRaftRequest{ID: 77, Put: put("a", "2", 0)}},
		{"a put on a lease that is not there", &pb.InternalRaftRequest{Put: put("a", "3", 5)}},
		{"a put of nothing there", &pb.InternalRaftRequest{Put: &pb.PutRequest{Key: []byte("none"), IgnoreValue: true}}},
		{"a range", &pb.InternalRaftRequest{Range: &pb.RangeRequest{Key: []byte("a")}}},
		{"a grant", &pb.InternalRaftRequest{LeaseGrant: &pb.LeaseGrantRequest{ID: base + 1, TTL: 5000}}},
		{"a short grant", &pb.InternalRaftRequest{LeaseGrant: &pb.LeaseGrantRequest{ID: base + 2, TTL: 0}}},
		{"a negative grant", &pb.InternalRaftRequest{LeaseGrant: &pb.LeaseGrantRequest{ID: -base, TTL: -5}}},
		{"a long grant", &pb.InternalRaftRequest{LeaseGrant: &pb.LeaseGrantRequest{ID: base + 3, TTL: 9_000_000_000}}},
		{"a grant that is too long", &pb.InternalRaftRequest{LeaseGrant: &pb.LeaseGrantRequest{ID: base + 4, TTL: 9_000_000_001}}},
		{"a grant of 0", &pb.InternalRaftRequest{LeaseGrant: &pb.LeaseGrantRequest{TTL: 60}}},
		{"a grant again", &pb.InternalRaftRequest{LeaseGrant: &pb.LeaseGrantRequest{ID: base + 1, TTL: 60}}},
		{"checkpoints", &pb.InternalRaftRequest{LeaseCheckpoint: checkpoints}},
		{"a checkpoint of nothing", &pb.InternalRaftRequest{LeaseCheckpoint: &pb.LeaseCheckpointRequest{}}},
		{"a transaction", &pb.InternalRaftRequest{Txn: nested}},
		{"a transaction that names a lease that is not there", &pb.InternalRaftRequest{Txn: &pb.TxnRequest{
			Success: []*pb.RequestOp{op(put("x", "1", 0)), op(put("y", "1", 12345))},
		}}},
		{"an empty transaction", &pb.InternalRaftRequest{Txn: &pb.TxnRequest{}}},
		{"a deletion", &pb.InternalRaftRequest{DeleteRange: &pb.DeleteRangeRequest{Key: []byte("a"), RangeEnd: []byte("b"), PrevKv: true}}},
		{"a deletion of nothing", &pb.InternalRaftRequest{DeleteRange: &pb.DeleteRangeRequest{Key: []byte("zz")}}},
		{"a compaction", &pb.InternalRaftRequest{Compaction: &pb.CompactionRequest{Revision: revision + 1, Physical: true}}},
		{"a compaction of the past", &pb.InternalRaftRequest{Compaction: &pb.CompactionRequest{Revision: 1}}},
		{"a compaction of the future", &pb.InternalRaftRequest{Compaction: &pb.CompactionRequest{Revision: 1 << 40}}},
		{"a revocation", &pb.InternalRaftRequest{LeaseRevoke: &pb.LeaseRevokeRequest{ID: base + 1}}},
		{"a revocation of nothing", &pb.InternalRaftRequest{LeaseRevoke: &pb.LeaseRevokeRequest{ID: base + 1}}},
		{"a revocation of a long one", &pb.InternalRaftRequest{LeaseRevoke: &pb.LeaseRevokeRequest{ID: base + 3}}},
	}
}

// alarmsAndMembers are those of a cluster of this version: one that is later than
// a member ends it.
func alarmsAndMembers(members []*pb.Member, version string) []one {
	alarm := func(action pb.AlarmRequest_AlarmAction, id uint64, kind pb.AlarmType) *pb.InternalRaftRequest {
		return &pb.InternalRaftRequest{Alarm: &pb.AlarmRequest{Action: action, MemberID: id, Alarm: kind}}
	}
	on, off := pb.AlarmRequest_ACTIVATE, pb.AlarmRequest_DEACTIVATE
	put := &pb.PutRequest{Key: []byte("under"), Value: []byte("alarm")}
	inner := &pb.RequestOp{Request: &pb.RequestOp_RequestTxn{RequestTxn: &pb.TxnRequest{
		Success: []*pb.RequestOp{{Request: &pb.RequestOp_RequestPut{RequestPut: put}}},
	}}}
	under := func(what string) []one {
		return []one{
			{"a put under " + what, &pb.InternalRaftRequest{Put: put}},
			{"a nested put under " + what, &pb.InternalRaftRequest{Txn: &pb.TxnRequest{Failure: []*pb.RequestOp{inner}}}},
			{"a grant under " + what, &pb.InternalRaftRequest{LeaseGrant: &pb.LeaseGrantRequest{ID: 4711, TTL: 600}}},
			{"a deletion under " + what, &pb.InternalRaftRequest{DeleteRange: &pb.DeleteRangeRequest{Key: []byte("b")}}},
			{"a revocation under " + what, &pb.InternalRaftRequest{LeaseRevoke: &pb.LeaseRevokeRequest{ID: 4711}}},
			{"a compaction under " + what, &pb.InternalRaftRequest{Compaction: &pb.CompactionRequest{Revision: 4}}},
		}
	}
	attributes := func(id uint64, name string, urls ...string) *pb.InternalRaftRequest {
		return &pb.InternalRaftRequest{ClusterMemberAttrSet: &membershippb.ClusterMemberAttrSetRequest{
			Member_ID: id, MemberAttributes: &membershippb.Attributes{Name: name, ClientUrls: urls},
		}}
	}
	first, second := members[0].ID, members[1].ID
	all := []one{{"an alarm", alarm(on, first, pb.AlarmType_NOSPACE)}, {"the same again", alarm(on, first, pb.AlarmType_NOSPACE)}}
	all = append(all, under("NOSPACE")...)
	all = append(all, []one{
		{"an alarm of a stranger", alarm(on, 7, pb.AlarmType_NOSPACE)},
		{"one of two alarms less", alarm(off, first, pb.AlarmType_NOSPACE)},
		{"a put under the other one", &pb.InternalRaftRequest{Put: put}},
		{"no alarm less", alarm(off, 8, pb.AlarmType_NOSPACE)},
		{"corruption", alarm(on, second, pb.AlarmType_CORRUPT)},
	}...)
	all = append(all, under("CORRUPT")...)
	return append(all, []one{
		{"no corruption any more", alarm(off, second, pb.AlarmType_CORRUPT)},
		{"no stranger's alarm any more", alarm(off, 7, pb.AlarmType_NOSPACE)},
		{"an alarm of no kind", alarm(on, first, pb.AlarmType_NONE)},
		{"an alarm of a kind that is not known", alarm(on, first, 99)},
		{"a list of alarms", alarm(pb.AlarmRequest_GET, 0, pb.AlarmType_NONE)},
		{"an action that is not known", alarm(9, first, pb.AlarmType_NOSPACE)},
		{"that alarm less", alarm(off, first, 99)},
		{"another name", attributes(first, "other", "http://127.0.0.1:1", "http://127.0.0.1:2")},
		{"no URLs", attributes(second, "")},
		{"the names as they were", attributes(first, members[0].Name, members[0].ClientURLs...)},
		{"the second name as it was", attributes(second, members[1].Name, members[1].ClientURLs...)},
		{"the version of the cluster", &pb.InternalRaftRequest{ClusterVersionSet: &membershippb.ClusterVersionSetRequest{Ver: version}}},
		{"no downgrade", &pb.InternalRaftRequest{DowngradeInfoSet: &membershippb.DowngradeInfoSetRequest{Ver: "3.6.0"}}},
		{"a test of a downgrade", &pb.InternalRaftRequest{DowngradeVersionTest: &pb.DowngradeVersionTestRequest{Ver: "3.7.0"}}},
	}...)
}

// users goes through all requests about users and roles, without and with
// authentication, and what other requests become with it.
func (in *insider) users(leader harness.Kind) {
	t := in.t
	try := func(what string, header *pb.RequestHeader, request *pb.InternalRaftRequest) {
		t.Helper()
		request.Header = header
		in.propose(request)
		in.same(fmt.Sprintf("%s, led by %s", what, leader))
	}
	hash := func(word string) string {
		hashed, err := bcrypt.GenerateFromPassword([]byte(word), bcrypt.MinCost)
		if err != nil {
			t.Fatal(err)
		}
		return base64.StdEncoding.EncodeToString(hashed)
	}
	nobody := &pb.RequestHeader{}
	user := func(name, hashed string, options *authpb.UserAddOptions) *pb.InternalRaftRequest {
		return &pb.InternalRaftRequest{AuthUserAdd: &pb.AuthUserAddRequest{Name: name, HashedPassword: hashed, Options: options}}
	}
	role := func(name string) *pb.InternalRaftRequest {
		return &pb.InternalRaftRequest{AuthRoleAdd: &pb.AuthRoleAddRequest{Name: name}}
	}
	grant := func(role string, kind authpb.Permission_Type, key, end string) *pb.InternalRaftRequest {
		perm := &authpb.Permission{PermType: kind, Key: []byte(key), RangeEnd: []byte(end)}
		return &pb.InternalRaftRequest{AuthRoleGrantPermission: &pb.AuthRoleGrantPermissionRequest{Name: role, Perm: perm}}
	}
	revoke := func(role, key, end string) *pb.InternalRaftRequest {
		return &pb.InternalRaftRequest{AuthRoleRevokePermission: &pb.AuthRoleRevokePermissionRequest{Role: role, Key: []byte(key), RangeEnd: []byte(end)}}
	}
	give := func(user, role string) *pb.InternalRaftRequest {
		return &pb.InternalRaftRequest{AuthUserGrantRole: &pb.AuthUserGrantRoleRequest{User: user, Role: role}}
	}
	take := func(user, role string) *pb.InternalRaftRequest {
		return &pb.InternalRaftRequest{AuthUserRevokeRole: &pb.AuthUserRevokeRoleRequest{Name: user, Role: role}}
	}
	change := func(user, hashed string) *pb.InternalRaftRequest {
		return &pb.InternalRaftRequest{AuthUserChangePassword: &pb.AuthUserChangePasswordRequest{Name: user, HashedPassword: hashed}}
	}
	enable := func() *pb.InternalRaftRequest { return &pb.InternalRaftRequest{AuthEnable: &pb.AuthEnableRequest{}} }
	disable := func() *pb.InternalRaftRequest { return &pb.InternalRaftRequest{AuthDisable: &pb.AuthDisableRequest{}} }
	read, write, both := authpb.Permission_READ, authpb.Permission_WRITE, authpb.Permission_READWRITE

	try("enabling without root", nobody, enable())
	try("a user", nobody, user("root", hash("word"), nil))
	try("enabling without the role", nobody, enable())
	try("the same user again", nobody, user("root", hash("word"), nil))
	try("a user without a name", nobody, user("", hash("word"), nil))
	try("a user without a password", nobody, user("bare", "", &authpb.UserAddOptions{NoPassword: true}))
	try("a password that is none", nobody, user("odd", "%%%", nil))
	try("an empty password", nobody, user("empty", "", nil))
	try("another user", nobody, user("ann", hash("word"), &authpb.UserAddOptions{}))
	try("a role", nobody, role("r"))
	try("the same role again", nobody, role("r"))
	try("a role without a name", nobody, role(""))
	for _, one := range [][2]string{{"a", "b"}, {"a", "c"}, {"a", "c"}, {"a", ""}, {"b", "\x00"}, {"b", "a"}, {"", "z"}, {"a", "b"}, {"c", ""}} {
		for _, kind := range []authpb.Permission_Type{both, read, write, 7} {
			try(fmt.Sprintf("permission %v for %q", kind, one), nobody, grant("r", kind, one[0], one[1]))
		}
	}
	try("a permission of no role", nobody, grant("none", read, "a", ""))
	try("no permission", nobody, &pb.InternalRaftRequest{AuthRoleGrantPermission: &pb.AuthRoleGrantPermissionRequest{Name: "r"}})
	try("a permission less", nobody, revoke("r", "a", "c"))
	try("the same less again", nobody, revoke("r", "a", "c"))
	try("a permission of no role less", nobody, revoke("none", "a", "c"))
	try("a role for a user", nobody, give("ann", "r"))
	try("the same again", nobody, give("ann", "r"))
	try("a role for nobody", nobody, give("none", "r"))
	try("no role for a user", nobody, give("ann", "none"))
	try("another password", nobody, change("ann", hash("other")))
	try("another password for one who has none", nobody, change("bare", hash("other")))
	try("another password for nobody", nobody, change("none", hash("other")))
	try("a login", nobody, &pb.InternalRaftRequest{Authenticate: &pb.InternalAuthenticateRequest{Name: "ann", Password: "other", SimpleToken: "t"}})
	try("the status", nobody, &pb.InternalRaftRequest{AuthStatus: &pb.AuthStatusRequest{}})
	try("who is there", nobody, &pb.InternalRaftRequest{AuthUserList: &pb.AuthUserListRequest{}})
	try("what roles there are", nobody, &pb.InternalRaftRequest{AuthRoleList: &pb.AuthRoleListRequest{}})
	try("who somebody is", nobody, &pb.InternalRaftRequest{AuthUserGet: &pb.AuthUserGetRequest{Name: "ann"}})
	try("what a role is", nobody, &pb.InternalRaftRequest{AuthRoleGet: &pb.AuthRoleGetRequest{Role: "r"}})
	try("the role root", nobody, give("root", "root"))
	try("disabling what is off", nobody, disable())
	try("a lease without keys", nobody, &pb.InternalRaftRequest{LeaseGrant: &pb.LeaseGrantRequest{ID: 501, TTL: 900}})
	try("a lease", nobody, &pb.InternalRaftRequest{LeaseGrant: &pb.LeaseGrantRequest{ID: 502, TTL: 900}})
	try("a lease of others", nobody, &pb.InternalRaftRequest{LeaseGrant: &pb.LeaseGrantRequest{ID: 503, TTL: 900}})
	try("a key on it", nobody, &pb.InternalRaftRequest{Put: &pb.PutRequest{Key: []byte("a"), Lease: 502}})
	try("a key on the other", nobody, &pb.InternalRaftRequest{Put: &pb.PutRequest{Key: []byte("zz"), Lease: 503}})

	index := in.send(enable())
	// Now root's token is needed to look.
	var answer *clientv3.AuthenticateResponse
	for range 3000 {
		var err error
		if answer, err = in.clients[1].Authenticate(harness.Context(t), "root", "word"); err == nil {
			break
		} else if !errors.Is(err, rpctypes.ErrAuthNotEnabled) {
			t.Fatal(err)
		}
		time.Sleep(20 * time.Millisecond)
	}
	in.token = answer.Token
	in.settled(index)
	in.same("enabling")
	current := func() uint64 {
		answer, err := in.clients[0].AuthStatus(in.context())
		if err != nil {
			t.Fatal(err)
		}
		return answer.AuthRevision
	}
	now := current()
	authors := []struct {
		name   string
		header *pb.RequestHeader
	}{
		{"nobody", nobody}, {"root", &pb.RequestHeader{Username: "root", AuthRevision: now}},
		{"root of before", &pb.RequestHeader{Username: "root", AuthRevision: now - 1}},
		{"a member of Cairn", &pb.RequestHeader{Username: "root", AuthRevision: 1<<64 - 1}},
		{"ann", &pb.RequestHeader{Username: "ann", AuthRevision: now}},
		{"ann of before", &pb.RequestHeader{Username: "ann", AuthRevision: now - 1}},
		{"ann of no revision", &pb.RequestHeader{Username: "ann"}},
		{"one who is not there", &pb.RequestHeader{Username: "none", AuthRevision: now}},
	}
	for number, author := range authors {
		try := func(what string, request *pb.InternalRaftRequest) {
			t.Helper()
			try(fmt.Sprintf("%s by %s", what, author.name), &pb.RequestHeader{
				Username: author.header.Username, AuthRevision: author.header.AuthRevision,
			}, request)
		}
		key := func(name string) []byte { return []byte(name) }
		for _, name := range []string{"a", "b", "aa", "z"} {
			try("a put of "+name, &pb.InternalRaftRequest{Put: &pb.PutRequest{Key: key(name), Value: key(author.name)}})
			try("a put with the value before of "+name, &pb.InternalRaftRequest{Put: &pb.PutRequest{Key: key(name), PrevKv: true}})
		}
		for _, lease := range []int64{501, 502, 503, 504} {
			try(fmt.Sprint("a put on lease ", lease), &pb.InternalRaftRequest{Put: &pb.PutRequest{Key: key("aa"), Lease: lease}})
			try("a put off it", &pb.InternalRaftRequest{Put: &pb.PutRequest{Key: key("aa")}})
		}
		try("a deletion", &pb.InternalRaftRequest{DeleteRange: &pb.DeleteRangeRequest{Key: key("aa"), RangeEnd: key("ab")}})
		try("a deletion of all", &pb.InternalRaftRequest{DeleteRange: &pb.DeleteRangeRequest{Key: key("y"), RangeEnd: []byte{0}}})
		try("a transaction", &pb.InternalRaftRequest{Txn: &pb.TxnRequest{
			Compare: []*pb.Compare{{Key: key("a")}},
			Success: []*pb.RequestOp{{Request: &pb.RequestOp_RequestPut{RequestPut: &pb.PutRequest{Key: key("a"), Value: key("txn")}}}},
			Failure: []*pb.RequestOp{{Request: &pb.RequestOp_RequestPut{RequestPut: &pb.PutRequest{Key: key("a"), Value: key("else")}}}},
		}})
		try("an empty transaction", &pb.InternalRaftRequest{Txn: &pb.TxnRequest{}})
		lease := int64(600 + number)
		try("a grant", &pb.InternalRaftRequest{LeaseGrant: &pb.LeaseGrantRequest{ID: lease, TTL: 900}})
		try("a revocation without keys", &pb.InternalRaftRequest{LeaseRevoke: &pb.LeaseRevokeRequest{ID: lease}})
		try("a revocation of nothing", &pb.InternalRaftRequest{LeaseRevoke: &pb.LeaseRevokeRequest{ID: lease}})
		try("a revocation of one with keys", &pb.InternalRaftRequest{LeaseRevoke: &pb.LeaseRevokeRequest{ID: 503}})
		try("the lease again", &pb.InternalRaftRequest{LeaseGrant: &pb.LeaseGrantRequest{ID: 503, TTL: 900}})
		try("its key again", &pb.InternalRaftRequest{Put: &pb.PutRequest{Key: key("zz"), Lease: 503}})
		all := in.status()
		try("a compaction", &pb.InternalRaftRequest{Compaction: &pb.CompactionRequest{Revision: all[0].Header.Revision - 1}})
		try("a checkpoint", &pb.InternalRaftRequest{LeaseCheckpoint: &pb.LeaseCheckpointRequest{
			Checkpoints: []*pb.LeaseCheckpoint{{ID: 502, Remaining_TTL: int64(100 + number)}},
		}})
		try("an alarm", &pb.InternalRaftRequest{Alarm: &pb.AlarmRequest{Action: pb.AlarmRequest_ACTIVATE, MemberID: 9, Alarm: pb.AlarmType_NOSPACE}})
		try("no alarm", &pb.InternalRaftRequest{Alarm: &pb.AlarmRequest{Action: pb.AlarmRequest_DEACTIVATE, MemberID: 9, Alarm: pb.AlarmType_NOSPACE}})
		try("a role", role(fmt.Sprint("role-", number)))
		try("a permission", grant("r", read, fmt.Sprint("k", number), ""))
		try("a permission less", revoke("r", fmt.Sprint("k", number), ""))
		try("a user", user(fmt.Sprint("user-", number), hash("word"), nil))
		try("a role for a user", give(fmt.Sprint("user-", number), fmt.Sprint("role-", number)))
		try("a role for a user less", take(fmt.Sprint("user-", number), fmt.Sprint("role-", number)))
		try("a password", change(fmt.Sprint("user-", number), hash("more")))
		try("a user less", &pb.InternalRaftRequest{AuthUserDelete: &pb.AuthUserDeleteRequest{Name: fmt.Sprint("user-", number)}})
		try("a role less", &pb.InternalRaftRequest{AuthRoleDelete: &pb.AuthRoleDeleteRequest{Role: fmt.Sprint("role-", number)}})
		try("root less", &pb.InternalRaftRequest{AuthUserDelete: &pb.AuthUserDeleteRequest{Name: "root"}})
		try("root's role less", take("root", "root"))
		try("the role root less", &pb.InternalRaftRequest{AuthRoleDelete: &pb.AuthRoleDeleteRequest{Role: "root"}})
		try("a login", &pb.InternalRaftRequest{Authenticate: &pb.InternalAuthenticateRequest{Name: "ann", Password: "other", SimpleToken: "u"}})
		try("enabling", enable())
		if author.header.Username != "root" {
			try("disabling", disable())
		}
		// Tokens end with their users' passwords, not with permissions: root's is good still.
		next := current()
		for other := range authors {
			if authors[other].header.AuthRevision == now {
				authors[other].header.AuthRevision = next
			} else if authors[other].header.AuthRevision == now-1 {
				authors[other].header.AuthRevision = next - 1
			}
		}
		now = next
	}
	// A token of each member is good on all.
	for number, client := range in.clients {
		answer, err := client.Authenticate(harness.Context(t), "root", "word")
		if err != nil {
			t.Fatal(err)
		}
		for other, client := range in.clients {
			var err error
			for range 1500 {
				if _, err = client.Get(withToken(harness.Context(t), answer.Token), "a"); err == nil {
					break
				}
				time.Sleep(20 * time.Millisecond)
			}
			if err != nil {
				t.Errorf("the token that member %d gave is refused by member %d: %v", number, other, err)
			}
		}
	}
	in.refusals(leader)
	in.propose(&pb.InternalRaftRequest{Header: &pb.RequestHeader{Username: "root", AuthRevision: now}, AuthDisable: &pb.AuthDisableRequest{}})
	in.token = ""
	for _, name := range []string{"root", "bare", "odd", "empty", "ann"} {
		in.propose(&pb.InternalRaftRequest{AuthUserDelete: &pb.AuthUserDeleteRequest{Name: name}})
	}
	in.propose(&pb.InternalRaftRequest{AuthRoleDelete: &pb.AuthRoleDeleteRequest{Role: "r"}})
	for _, id := range []int64{501, 502, 503} {
		in.propose(&pb.InternalRaftRequest{LeaseRevoke: &pb.LeaseRevokeRequest{ID: id}})
	}
	in.same("the users' end")
}

// refusals asks members of both kinds for what must be refused: they say the
// same.
func (in *insider) refusals(leader harness.Kind) {
	t := in.t
	ask := map[string]func(*clientv3.Client, context.Context) error{
		"a put": func(c *clientv3.Client, ctx context.Context) error { _, err := c.Put(ctx, "z", ""); return err },
		"a put on no lease": func(c *clientv3.Client, ctx context.Context) error {
			_, err := c.Put(ctx, "a", "", clientv3.WithLease(12345))
			return err
		},
		"a compaction of the future": func(c *clientv3.Client, ctx context.Context) error {
			_, err := c.Compact(ctx, 1<<40)
			return err
		},
		"a compaction of the past": func(c *clientv3.Client, ctx context.Context) error { _, err := c.Compact(ctx, 1); return err },
		"a revocation":             func(c *clientv3.Client, ctx context.Context) error { _, err := c.Revoke(ctx, 12345); return err },
		"a grant again":            func(c *clientv3.Client, ctx context.Context) error { return grantAgain(ctx, c) },
		"a user again":             func(c *clientv3.Client, ctx context.Context) error { _, err := c.UserAdd(ctx, "ann", "x"); return err },
		"a user less":              func(c *clientv3.Client, ctx context.Context) error { _, err := c.UserDelete(ctx, "none"); return err },
		"root less":                func(c *clientv3.Client, ctx context.Context) error { _, err := c.UserDelete(ctx, "root"); return err },
		"a role again":             func(c *clientv3.Client, ctx context.Context) error { _, err := c.RoleAdd(ctx, "r"); return err },
		"a role less":              func(c *clientv3.Client, ctx context.Context) error { _, err := c.RoleDelete(ctx, "none"); return err },
		"a role not granted": func(c *clientv3.Client, ctx context.Context) error {
			_, err := c.UserRevokeRole(ctx, "ann", "none")
			return err
		},
		"a downgrade to nowhere": func(c *clientv3.Client, ctx context.Context) error {
			_, err := c.Downgrade(ctx, clientv3.DowngradeEnable, "3.3.0")
			return err
		},
		"no downgrade to end": func(c *clientv3.Client, ctx context.Context) error {
			_, err := c.Downgrade(ctx, clientv3.DowngradeCancel, "")
			return err
		},
		"a member again": func(c *clientv3.Client, ctx context.Context) error {
			_, err := c.MemberAdd(ctx, []string{in.cluster.Members[0].PeerURL()})
			return err
		},
		"a member less": func(c *clientv3.Client, ctx context.Context) error { _, err := c.MemberRemove(ctx, 12345); return err },
	}
	ann, err := in.clients[0].Authenticate(harness.Context(t), "ann", "other")
	if err != nil {
		t.Fatal(err)
	}
	for what, ask := range ask {
		for who, token := range map[string]string{"root": in.token, "ann": ann.Token, "nobody": ""} {
			var said []string
			for _, client := range in.clients {
				ctx := harness.Context(t)
				if token != "" {
					ctx = withToken(ctx, token)
				}
				var err error
				// A token may reach a member after the call.
				for range 1500 {
					if err = ask(client, ctx); !errors.Is(err, rpctypes.ErrInvalidAuthToken) {
						break
					}
					time.Sleep(20 * time.Millisecond)
				}
				said = append(said, fmt.Sprintf("%v %v", status.Code(err), err))
			}
			if said[0] != said[1] || said[0] != said[2] {
				t.Errorf("%s by %s, led by %s: %q", what, who, leader, said)
			}
		}
	}
}

func grantAgain(ctx context.Context, client *clientv3.Client) error {
	_, err := pb.NewLeaseClient(client.ActiveConnection()).LeaseGrant(ctx, &pb.LeaseGrantRequest{ID: 502, TTL: 60})
	return err
}
