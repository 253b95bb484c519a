package utl

import (
	"bytes"
	"fmt"
	"math/rand"
	"slices"
	"strings"
	"testing"

	"cairn.dev/conformance/harness"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// write writes a history: puts, deletes, transactions, leases, users and
// roles, the older part of it compacted, and some of it after that.
func write(t testing.TB, client *clientv3.Client, seed int64) {
	t.Helper()
	ctx := harness.Context(t)
	random := rand.New(rand.NewSource(seed))
	must := func(_ any, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	key := func() string { return fmt.Sprintf("key/%03d", random.Intn(120)) }
	value := func() string { return strings.Repeat("v", random.Intn(300)) }
	var leases []clientv3.LeaseID
	for range 3 {
		lease, err := client.Grant(ctx, 5000)
		must(nil, err)
		leases = append(leases, lease.ID)
	}
	step := func() {
		switch random.Intn(10) {
		case 0:
			must(client.Delete(ctx, key()))
		case 1:
			must(client.Delete(ctx, key(), clientv3.WithPrefix()))
		case 2:
			lease := leases[random.Intn(len(leases))]
			must(client.Put(ctx, key(), value(), clientv3.WithLease(lease)))
		case 3, 4:
			ops := map[string]clientv3.Op{}
			for range random.Intn(8) + 1 {
				name := key()
				ops[name] = clientv3.OpPut(name, value())
				if random.Intn(4) == 0 {
					ops[name] = clientv3.OpDelete(name)
				}
			}
			var list []clientv3.Op
			for _, op := range ops {
				list = append(list, op)
			}
			must(client.Txn(ctx).Then(list...).Commit())
		default:
			must(client.Put(ctx, key(), value()))
		}
	}
	for range 400 {
		step()
	}
	must(client.Put(ctx, "large", strings.Repeat("x", 1_200_000)))
	must(client.Put(ctx, "bin\xff\x00", "\x00\xff"))
	must(client.Compact(ctx, last(t, client)-60, clientv3.WithCompactPhysical()))
	must(client.UserAdd(ctx, "root", "secret"))
	must(client.UserAdd(ctx, "ann", "word"))
	must(client.RoleAdd(ctx, "root"))
	must(client.RoleAdd(ctx, "reads"))
	must(client.RoleGrantPermission(ctx, "reads", "key/", "key0", clientv3.PermissionType(clientv3.PermRead)))
	must(client.UserGrantRole(ctx, "root", "root"))
	must(client.UserGrantRole(ctx, "ann", "reads"))
	for range 100 {
		step()
	}
}

// settle starts a server anew: the hash of a finished compaction is one over
// what was there before it, and is forgotten then.
func settle(t testing.TB, server *harness.Server) {
	t.Helper()
	server.Stop()
	server.Run()
}

func last(t testing.TB, client *clientv3.Client) int64 {
	t.Helper()
	response, err := client.Get(harness.Context(t), "revision?", clientv3.WithCountOnly())
	if err != nil {
		t.Fatal(err)
	}
	return response.Header.Revision
}

// state is what clients can observe of a server.
type state struct {
	first, last int64
	// hashes are HashKV's at every revision from the compacted one on.
	hashes map[int64]uint32
	keys   []*clientv3.GetResponse
	leases map[clientv3.LeaseID]string
	users  []string
	roles  map[string]string
	header *pb.ResponseHeader
}

func observe(t testing.TB, server *harness.Server) state {
	t.Helper()
	client, ctx := server.Client(), harness.Context(t)
	fatal := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	whole, err := client.HashKV(ctx, server.Endpoint(), 0)
	fatal(err)
	seen := state{
		first: max(whole.CompactRevision, 1), last: last(t, client), hashes: map[int64]uint32{},
		leases: map[clientv3.LeaseID]string{}, roles: map[string]string{}, header: whole.Header,
	}
	for at := seen.first; at <= seen.last; at++ {
		hash, err := client.HashKV(ctx, server.Endpoint(), at)
		fatal(err)
		seen.hashes[at] = hash.Hash
		if at%20 == 0 || at == seen.last {
			keys, err := client.Get(ctx, "", clientv3.WithPrefix(), clientv3.WithRev(at))
			fatal(err)
			keys.Header = nil
			seen.keys = append(seen.keys, keys)
		}
	}
	leases, err := client.Leases(ctx)
	fatal(err)
	for _, lease := range leases.Leases {
		left, err := client.TimeToLive(ctx, lease.ID, clientv3.WithAttachedKeys())
		fatal(err)
		slices.SortFunc(left.Keys, bytes.Compare)
		seen.leases[lease.ID] = fmt.Sprintf("%d %q", left.GrantedTTL, left.Keys)
	}
	users, err := client.UserList(ctx)
	fatal(err)
	for _, name := range users.Users {
		user, err := client.UserGet(ctx, name)
		fatal(err)
		seen.users = append(seen.users, fmt.Sprint(name, user.Roles))
	}
	roles, err := client.RoleList(ctx)
	fatal(err)
	for _, name := range roles.Roles {
		role, err := client.RoleGet(ctx, name)
		fatal(err)
		seen.roles[name] = fmt.Sprint(role.Perm)
	}
	return seen
}

// compare fails the test where two servers differ.
func compare(t testing.TB, want, got state) {
	t.Helper()
	if want.first != got.first || want.last != got.last {
		t.Errorf("revisions %d to %d are there, not %d to %d", got.first, got.last, want.first, want.last)
	}
	for at, hash := range want.hashes {
		if got.hashes[at] != hash {
			t.Errorf("HashKV at %d is %d, not %d", at, got.hashes[at], hash)
		}
	}
	if len(want.keys) != len(got.keys) {
		t.Fatalf("%d lists of keys, not %d", len(got.keys), len(want.keys))
	}
	for i := range want.keys {
		difference := harness.Diff((*pb.RangeResponse)(want.keys[i]), nil, (*pb.RangeResponse)(got.keys[i]), nil)
		if difference != "" {
			t.Errorf("keys of list %d: %s", i, difference[:min(2000, len(difference))])
		}
	}
	for _, pair := range [][2]any{{want.leases, got.leases}, {want.users, got.users}, {want.roles, got.roles}} {
		if fmt.Sprint(pair[0]) != fmt.Sprint(pair[1]) {
			t.Errorf("%v, not %v", pair[1], pair[0])
		}
	}
}
