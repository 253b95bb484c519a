package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"cairn.dev/conformance/harness"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
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
	// It is said once it serves.
	ours.AwaitLog(t, "installed the database of an etcd member")
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
	newInsider(t, cluster).same("an image of Cairn's")
	theirs.Stop()
	inTools(t, theirs, ours)
	theirs.Run()
	alike(t, cluster)
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
	kinds(t, cluster)
}

// inTools asks etcd's own tools about the database of a stopped member, and
// another member about the same revision.
func inTools(t *testing.T, stopped, running *harness.Server) {
	t.Helper()
	// They write to what they look at.
	content, err := os.ReadFile(filepath.Join(stopped.DataDir, "member", "snap", "db"))
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "db")
	if err := os.WriteFile(file, content, 0o600); err != nil {
		t.Fatal(err)
	}
	ask := func(into any, words ...string) {
		t.Helper()
		result := harness.Command{Path: harness.Tool(t, "etcdutl"), Args: append(words, file, "-w", "json")}.Run(t)
		if err := json.Unmarshal([]byte(result.Stdout), into); err != nil || result.Code != 0 {
			t.Fatalf("etcdutl %v: %v, %+v", words, err, result)
		}
	}
	var status struct {
		Revision int64
		TotalKey int64
		Version  string
	}
	var hash struct {
		Hash                          uint32
		HashRevision, CompactRevision int64
	}
	ask(&status, "snapshot", "status")
	ask(&hash, "hashkv")
	client, ctx := running.Client(), harness.Context(t)
	all, err := client.Get(ctx, "\x00", clientv3.WithFromKey(), clientv3.WithCountOnly())
	if err != nil {
		t.Fatal(err)
	}
	if status.Revision != all.Header.Revision || status.TotalKey != all.Count || status.Version != "3.7.0" {
		t.Errorf("snapshot status: %+v; the cluster has %d keys at revision %d", status, all.Count, all.Header.Revision)
	}
	wanted, err := client.HashKV(ctx, running.Endpoint(), hash.HashRevision)
	if err != nil {
		t.Fatal(err)
	}
	if hash.HashRevision != all.Header.Revision || hash.Hash != wanted.Hash || hash.CompactRevision != wanted.CompactRevision {
		t.Errorf("hashkv: %+v; the cluster has %v", hash, wanted)
	}
}

// kinds checks what members of Cairn know of the kinds of all others.
func kinds(t *testing.T, cluster *harness.Cluster) {
	t.Helper()
	for _, member := range cluster.Members {
		if member.Kind != harness.Cairn {
			continue
		}
		var wanted []string
		for _, other := range cluster.Members {
			if other == member {
				continue
			}
			status, err := other.Client().Status(harness.Context(t), other.Endpoint())
			if err != nil {
				t.Fatal(err)
			}
			is := 0
			if other.Kind == harness.Cairn {
				is = 1
			}
			wanted = append(wanted, fmt.Sprintf("cairn_peer_is_cairn{Remote=\"%x\"} %d", status.Header.MemberId, is))
		}
		slices.Sort(wanted)
		var found []string
		for deadline := time.Now().Add(20 * time.Second); !slices.Equal(found, wanted); time.Sleep(50 * time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("%s: %q, not %q", member.Name, found, wanted)
			}
			found = nil
			_, text := get(t, member.URL("/metrics"))
			for line := range strings.Lines(text) {
				if strings.HasPrefix(line, "cairn_peer_is_cairn{") {
					found = append(found, strings.TrimSpace(line))
				}
			}
			slices.Sort(found)
		}
	}
}

// What is under way in the cluster is in the images of both kinds: an alarm,
// and a downgrade. Who was sent one shows and heeds them, keeps them through a
// kill, and as leader goes on with them. Cairn is sent one as a new member, etcd
// as one that lags: a new one of 3.7 does not start while a downgrade is under way.
func TestSnapshotsUnderAlarm(t *testing.T) {
	t.Parallel()
	// A member can be added although another one is stopped.
	cluster := harness.StartCluster(t, harness.Etcd, 3, nil, append(slices.Clone(trimming[:2]), "--strict-reconfig-check=false")...)
	lead(t, cluster, 0)
	etcd, behind := cluster.Members[0], cluster.Members[2]
	behind.Stop()
	fill(t, cluster.Client(0), "first")
	if _, err := cluster.Client(0).Downgrade(harness.Context(t), clientv3.DowngradeEnable, "3.6.0"); err != nil {
		t.Fatal(err)
	}
	alarm(t, etcd, pb.AlarmRequest_ACTIVATE)
	ours := cluster.Add(harness.Context(t), cluster.Client(0), harness.Cairn)
	ours.Run()
	// It is said once it serves.
	ours.AwaitLog(t, "installed the database of an etcd member")
	// The version is lowered only once all members have been asked for theirs.
	shows(t, cluster, ours, etcd, "3.7.0")
	ours.Kill()
	ours.Run()
	shows(t, cluster, ours, etcd, "3.7.0")

	lead(t, &harness.Cluster{Members: running(cluster)}, 2)
	from := len(behind.Log())
	behind.Run()
	said(t, behind, from, "applied snapshot")
	clusterVersion(t, cluster.Members, "3.6.0")
	shows(t, cluster, behind, etcd, "3.6.0")
	shows(t, cluster, ours, etcd, "3.6.0")
	behind.Kill()
	behind.Run()
	shows(t, cluster, behind, etcd, "3.6.0")

	if _, err := behind.Client().Downgrade(harness.Context(t), clientv3.DowngradeCancel, ""); err != nil {
		t.Fatal(err)
	}
	alarm(t, behind, pb.AlarmRequest_DEACTIVATE)
	clusterVersion(t, cluster.Members, "3.7.0")
	fill(t, behind.Client(), "second")
	newInsider(t, cluster).same("the end of the alarm and the downgrade")
}

// running are the members of a cluster that run.
func running(cluster *harness.Cluster) []*harness.Server {
	var all []*harness.Server
	for _, member := range cluster.Members {
		if member.Running() {
			all = append(all, member)
		}
	}
	return all
}

// alarm activates NOSPACE of a member, or ends it on all.
func alarm(t *testing.T, member *harness.Server, action pb.AlarmRequest_AlarmAction) {
	t.Helper()
	ctx, client := harness.Context(t), pb.NewMaintenanceClient(member.Conn())
	request := &pb.AlarmRequest{Action: action, Alarm: pb.AlarmType_NOSPACE}
	if action == pb.AlarmRequest_ACTIVATE {
		status, err := client.Status(ctx, &pb.StatusRequest{})
		if err != nil {
			t.Fatal(err)
		}
		request.MemberID = status.Header.MemberId
		_, err = client.Alarm(ctx, request)
		if err != nil {
			t.Fatal(err)
		}
		return
	}
	active, err := client.Alarm(ctx, &pb.AlarmRequest{})
	for _, one := range active.GetAlarms() {
		request.MemberID = one.MemberID
		_, ended := client.Alarm(ctx, request)
		err = errors.Join(err, ended)
	}
	if err != nil || len(active.Alarms) != 1 {
		t.Fatalf("alarms %v, %v", active, err)
	}
}

// shows checks that a member knows of the alarm of another one and of the
// downgrade, and that all that run are alike.
func shows(t *testing.T, cluster *harness.Cluster, member, full *harness.Server, version string) {
	t.Helper()
	ctx, client := harness.Context(t), member.Client()
	owner, err := full.Client().Status(ctx, full.Endpoint())
	if err != nil {
		t.Fatal(err)
	}
	alarms, err := client.AlarmList(ctx)
	if err != nil || len(alarms.Alarms) != 1 || alarms.Alarms[0].Alarm != pb.AlarmType_NOSPACE || alarms.Alarms[0].MemberID != owner.Header.MemberId {
		t.Errorf("%s: alarms %v, %v", member.Kind, alarms, err)
	}
	// A member of etcd makes its storage of the cluster's version some time after that has changed.
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		status, err := client.Status(ctx, member.Endpoint())
		if err != nil {
			t.Fatal(err)
		}
		if status.DowngradeInfo.GetEnabled() && status.DowngradeInfo.GetTargetVersion() == "3.6.0" && status.StorageVersion == version &&
			strings.Contains(fmt.Sprint(status.Errors), "NOSPACE") {
			break
		}
		if time.Now().After(deadline) {
			t.Errorf("%s: %v", member.Kind, status)
			break
		}
	}
	if _, err := client.Put(ctx, "any", "x"); !errors.Is(err, rpctypes.ErrNoSpace) {
		t.Errorf("%s: a put under the alarm: %v", member.Kind, err)
	}
	newInsider(t, &harness.Cluster{Members: running(cluster)}).same("an alarm and a downgrade")
}

// expire waits for a lease to end on all members: its leader revokes it.
func expire(t *testing.T, cluster *harness.Cluster) {
	t.Helper()
	ctx, client := harness.Context(t), cluster.Client()
	put := func() error {
		lease, err := client.Grant(ctx, 2)
		if err == nil {
			_, err = client.Put(ctx, "short", "lived", clientv3.WithLease(lease.ID))
		}
		return err
	}
	err := put()
	// On a busy machine it may be over before the key is there.
	for tries := 0; errors.Is(err, rpctypes.ErrLeaseNotFound) && tries < 10; tries++ {
		err = put()
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

// lead makes a member the leader, however often a busy machine gives up the
// transfer or elects another one.
func lead(t *testing.T, cluster *harness.Cluster, number int) {
	t.Helper()
	var clients []*clientv3.Client
	for _, member := range cluster.Members {
		clients = append(clients, member.Client())
	}
	// id and the id of whom it takes for the leader.
	ask := func(at int) (own, leader uint64, err error) {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		status, err := clients[at].Status(ctx, cluster.Members[at].Endpoint())
		if err != nil {
			return 0, 0, err
		}
		return status.Header.MemberId, status.Leader, nil
	}
	var last error
	for deadline := time.Now().Add(60 * time.Second); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		wanted, leader, err := ask(number)
		if err != nil {
			last = err
			continue
		}
		if wanted == leader {
			return
		}
		for at, client := range clients {
			if own, leader, err := ask(at); err == nil && own == leader {
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
				_, last = client.MoveLeader(ctx, wanted)
				cancel()
			}
		}
	}
	t.Fatalf("member %d does not become the leader: %v", number, last)
}

// alike waits until all members have applied the same, and compares what they
// have.
func alike(t *testing.T, cluster *harness.Cluster) {
	t.Helper()
	var last string
	for deadline := time.Now().Add(60 * time.Second); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
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
