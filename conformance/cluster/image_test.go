package cluster

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"cairn.dev/conformance/harness"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// Flags with which a member that comes later needs a snapshot, and with which
// members of both kinds look for differences between them.
var trimming = []string{
	"--snapshot-count=50", "--snapshot-catchup-entries=5",
	"--feature-gates=InitialCorruptCheck=true,CompactHashCheck=true", "--compact-hash-check-time=2s", "--corrupt-check-time=2s",
}

// A leader that is etcd sends its database to a member of Cairn, and one that
// is Cairn's sends one to a member of etcd. All of them have the same history,
// leases, users and members then, and go on together.
func TestSnapshotsOfBothKinds(t *testing.T) {
	t.Parallel()
	cluster := harness.StartCluster(t, harness.Etcd, 1, nil, trimming...)
	client := cluster.Client()
	fill(t, client, "first")
	ours := cluster.Add(harness.Context(t), client, harness.Cairn)
	ours.Run()
	alike(t, cluster)
	if !strings.Contains(ours.Log(), "installed the database of an etcd member") {
		t.Errorf("no image came:\n%s", ours.LogTail())
	}
	fill(t, client, "second")
	alike(t, cluster)

	lead(t, cluster, 1)
	fill(t, ours.Client(), "third")
	settled()
	theirs := cluster.Add(harness.Context(t), ours.Client(), harness.Etcd)
	theirs.Run()
	alike(t, cluster)
	if !strings.Contains(theirs.Log(), "applied snapshot") {
		t.Errorf("no image came:\n%s", theirs.LogTail())
	}
	// Another member of Cairn gets what Cairn's members send to each other.
	settled()
	more := cluster.Add(harness.Context(t), ours.Client(), harness.Cairn)
	more.Run()
	alike(t, cluster)

	// What was sent is there after a restart, and with each of them as leader.
	for _, member := range []*harness.Server{ours, theirs} {
		member.Kill()
		member.Run()
	}
	for number := range cluster.Members {
		lead(t, cluster, number)
		fill(t, cluster.Client(), fmt.Sprint("leader ", number))
		expire(t, cluster)
		alike(t, cluster)
	}
	alarms, err := ours.Client().AlarmList(harness.Context(t))
	if err != nil || len(alarms.Alarms) != 0 {
		t.Errorf("alarms: %v, %v", alarms, err)
	}
}

// expire waits for a lease to end on all members: its leader revokes it.
func expire(t *testing.T, cluster *harness.Cluster) {
	t.Helper()
	ctx, client := harness.Context(t), cluster.Client()
	lease, err := client.Grant(ctx, 2)
	if err == nil {
		_, err = client.Put(ctx, "short", "lived", clientv3.WithLease(lease.ID))
	}
	if err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(100 * time.Millisecond) {
		got, err := client.Get(ctx, "short")
		if err == nil && got.Count == 0 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("the lease of 2 s has not ended: %v, %v", got, err)
		}
	}
}

// settled waits until a cluster of etcd's lets another member in: for five
// seconds all others must have been there.
func settled() { time.Sleep(6 * time.Second) }

// fill writes some hundred entries of all kinds.
func fill(t *testing.T, client *clientv3.Client, name string) {
	t.Helper()
	ctx := harness.Context(t)
	must := func(_ any, err error) {
		t.Helper()
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
	}
	lease, err := client.Grant(ctx, 5000)
	must(nil, err)
	for number := range 120 {
		key := fmt.Sprintf("%s/%03d", name, number%40)
		switch number % 6 {
		case 0:
			must(client.Put(ctx, key, "leased", clientv3.WithLease(lease.ID)))
		case 1:
			must(client.Delete(ctx, key))
		case 2:
			must(client.Txn(ctx).Then(clientv3.OpPut(key, "a"), clientv3.OpPut(key+"b", "b"), clientv3.OpDelete(key+"c")).Commit())
		default:
			must(client.Put(ctx, key, strings.Repeat("v", number*7)))
		}
	}
	user := strings.ReplaceAll(name, " ", "-")
	must(client.UserAdd(ctx, user, "word"))
	must(client.RoleAdd(ctx, user))
	must(client.RoleGrantPermission(ctx, user, "a", "b", clientv3.PermissionType(clientv3.PermReadWrite)))
	must(client.UserGrantRole(ctx, user, user))
	got, err := client.Get(ctx, "any")
	must(nil, err)
	must(client.Compact(ctx, got.Header.Revision-50))
}

// lead makes a member the leader.
func lead(t *testing.T, cluster *harness.Cluster, number int) {
	t.Helper()
	wanted := cluster.Members[number]
	status, err := wanted.Client().Status(harness.Context(t), wanted.Endpoint())
	if err != nil {
		t.Fatal(err)
	}
	id := status.Header.MemberId
	for _, member := range cluster.Members {
		status, err := member.Client().Status(harness.Context(t), member.Endpoint())
		if err != nil {
			t.Fatal(err)
		}
		if status.Header.MemberId == status.Leader && status.Leader != id {
			if _, err := member.Client().MoveLeader(harness.Context(t), id); err != nil {
				t.Fatalf("move the leader to member %d: %v", number, err)
			}
		}
	}
}

// alike waits until all members have applied the same, and compares what they
// have.
func alike(t *testing.T, cluster *harness.Cluster) {
	t.Helper()
	var last string
	for deadline := time.Now().Add(30 * time.Second); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		var seen []string
		for _, member := range cluster.Members {
			seen = append(seen, state(t, member))
		}
		last = strings.Join(seen, "\n")
		if !strings.Contains(last, "error:") && strings.Count(last, seen[0]) == len(seen) {
			return
		}
	}
	t.Fatalf("the members differ:\n%s", last)
}

// state is what a member has, in a line.
func state(t *testing.T, member *harness.Server) string {
	t.Helper()
	client, ctx := member.Client(), harness.Context(t)
	defer client.Close()
	hash, err := client.HashKV(ctx, member.Endpoint(), 0)
	if err != nil {
		return "error: " + err.Error()
	}
	all, err := client.Get(ctx, "\x00", clientv3.WithFromKey(), clientv3.WithSerializable())
	if err != nil {
		return "error: " + err.Error()
	}
	leases, err := client.Leases(ctx)
	if err != nil {
		return "error: " + err.Error()
	}
	members, err := client.MemberList(ctx)
	if err != nil {
		return "error: " + err.Error()
	}
	users, err := client.UserList(ctx)
	if err != nil {
		return "error: " + err.Error()
	}
	auth, err := client.AuthStatus(ctx)
	if err != nil {
		return "error: " + err.Error()
	}
	var names []string
	for _, member := range members.Members {
		names = append(names, fmt.Sprintf("%x=%v", member.ID, member.PeerURLs))
	}
	return fmt.Sprintf("revision %d, hash %x, compacted %d, %d keys, %d leases, members %v, users %v, auth %d",
		all.Header.Revision, hash.Hash, hash.CompactRevision, all.Count, len(leases.Leases), names, users.Users, auth.AuthRevision)
}
