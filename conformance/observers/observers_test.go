package observers

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"cairn.dev/conformance/harness"
)

// TestEverything holds what an observer serves beside what a member serves.
func TestEverything(t *testing.T) {
	cluster := harness.StartCluster(t, harness.Subject(), 3, nil)
	member := cluster.Client(0)
	ctx := harness.Context(t)
	put(t, member, "before", 200, "early")
	observer := start(t, "o", cluster.Members[1])
	client := observer.Client()

	watched := client.Watch(ctx, "", clientv3.WithPrefix(), clientv3.WithRev(1), clientv3.WithPrevKV())
	theirs := member.Watch(ctx, "", clientv3.WithPrefix(), clientv3.WithRev(1), clientv3.WithPrevKV())

	// Writes go through it, and are there for everybody at once.
	if _, err := client.Put(ctx, "own", "1"); err != nil {
		t.Fatal(err)
	}
	for number, one := range []*clientv3.Client{member, cluster.Client(1), cluster.Client(2), client} {
		answer, err := one.Get(ctx, "own")
		if err != nil || len(answer.Kvs) != 1 || string(answer.Kvs[0].Value) != "1" {
			t.Fatalf("reader %d: %v %v", number, answer, err)
		}
	}
	txn, err := client.Txn(ctx).If(clientv3.Compare(clientv3.Value("own"), "=", "1")).
		Then(clientv3.OpPut("own", "2"), clientv3.OpGet("before/00007")).Else(clientv3.OpGet("own")).Commit()
	if err != nil || !txn.Succeeded || string(txn.Responses[1].GetResponseRange().Kvs[0].Value) != "early" {
		t.Fatalf("%v %v", txn, err)
	}
	if deleted, err := client.Delete(ctx, "before/0000", clientv3.WithPrefix()); err != nil || deleted.Deleted != 10 {
		t.Fatalf("%v %v", deleted, err)
	}
	// What a member wrote is read here, linearizably, every time.
	for number := range 200 {
		value := fmt.Sprint(number)
		if _, err := member.Put(ctx, "counter", value); err != nil {
			t.Fatal(err)
		}
		answer, err := client.Get(ctx, "counter")
		if err != nil || string(answer.Kvs[0].Value) != value {
			t.Fatalf("%d: %v %v", number, answer, err)
		}
	}
	// Leases: granted, kept alive, asked about and revoked here; their time is the leader's.
	lease, err := client.Grant(ctx, 60)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.Put(ctx, "leased", "x", clientv3.WithLease(lease.ID)); err != nil {
		t.Fatal(err)
	}
	if kept, err := client.KeepAliveOnce(ctx, lease.ID); err != nil || kept.TTL != 60 {
		t.Fatalf("%v %v", kept, err)
	}
	left, err := client.TimeToLive(ctx, lease.ID, clientv3.WithAttachedKeys())
	if err != nil || left.GrantedTTL != 60 || left.TTL < 50 || len(left.Keys) != 1 {
		t.Fatalf("%v %v", left, err)
	}
	if _, err := client.KeepAliveOnce(ctx, lease.ID+1); !errors.Is(err, rpctypes.ErrLeaseNotFound) {
		t.Fatalf("a lease that is not there: %v", err)
	}
	if _, err := client.Revoke(ctx, lease.ID); err != nil {
		t.Fatal(err)
	}
	if answer, err := client.Get(ctx, "leased"); err != nil || len(answer.Kvs) != 0 {
		t.Fatalf("%v %v", answer, err)
	}
	// The same answers, pair by pair, now and at an earlier revision.
	now, err := member.Get(ctx, "", clientv3.WithPrefix())
	if err != nil {
		t.Fatal(err)
	}
	for _, revision := range []int64{now.Header.Revision, now.Header.Revision - 150, 100} {
		options := []clientv3.OpOption{clientv3.WithPrefix(), clientv3.WithRev(revision)}
		one, err := member.Get(ctx, "", options...)
		if err != nil {
			t.Fatal(err)
		}
		for _, more := range [][]clientv3.OpOption{nil, {clientv3.WithSerializable()}} {
			other, err := client.Get(ctx, "", append(more, options...)...)
			if err != nil {
				t.Fatal(err)
			}
			if !reflect.DeepEqual(one.Kvs, other.Kvs) || one.Count != other.Count {
				t.Errorf("at revision %d the observer has %d pairs, the member %d", revision, len(other.Kvs), len(one.Kvs))
			}
		}
	}
	// Every event, once and in order.
	var lists [2][]string
	for number, watch := range []clientv3.WatchChan{theirs, watched} {
		for last := int64(0); last < now.Header.Revision; {
			response, open := <-watch
			if err := response.Err(); err != nil || !open {
				t.Fatal(err)
			}
			for _, event := range response.Events {
				last = event.Kv.ModRevision
				lists[number] = append(lists[number], event.String())
			}
		}
	}
	if !reflect.DeepEqual(lists[0], lists[1]) {
		t.Errorf("the member's watch has %d events, the observer's %d, or others", len(lists[0]), len(lists[1]))
	}
	if _, err := client.Compact(ctx, now.Header.Revision-50); err != nil {
		t.Fatal(err)
	}
	if _, err := client.Get(ctx, "own", clientv3.WithRev(10)); !errors.Is(err, rpctypes.ErrCompacted) {
		t.Errorf("a compacted revision: %v", err)
	}
	hashes(t, cluster.Members[0], cluster.Members[1], cluster.Members[2], observer)

	// It is no member, and says what it is.
	members, err := client.MemberList(ctx)
	if err != nil || len(members.Members) != 3 {
		t.Fatalf("%v %v", members, err)
	}
	status, err := client.Status(ctx, observer.Endpoint())
	if err != nil || status.Leader == 0 || status.IsLearner || len(status.Errors) != 0 {
		t.Fatalf("%v %v", status, err)
	}
	for _, one := range members.Members {
		if one.ID == status.Header.MemberId {
			t.Error("the observer has a member's id")
		}
	}
	// A source that knows no leader for a moment is left, and followed again.
	shows(t, observer, "/readyz?verbose", 200, true, "[+]observer_source ok")
	shows(t, cluster.Members[0], "/readyz?verbose", 200, false, "observer")
	if result := observer.Ctl("endpoint", "health"); result.Code != 0 {
		t.Errorf("%+v", result)
	}
	listed(t, cluster.Members[0], []string{fmt.Sprintf("\n%x, o, http://%s, m1, ", status.Header.MemberId, observer.Endpoint()), "yes"})
	shows(t, cluster.Members[1], "/metrics", 200, true, "\ncairn_observers 1\n")
	// Changes of members go through it, and are decided by the leader.
	added, err := client.MemberAddAsLearner(ctx, []string{"http://127.0.0.1:1"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.MemberRemove(ctx, added.Member.ID); err != nil {
		t.Fatal(err)
	}
}

// TestOneMember: a member without others answers reads without asking anybody,
// also while an observer acknowledges its writes.
func TestOneMember(t *testing.T) {
	member := harness.Start(t, harness.Subject())
	observer := start(t, "o", member)
	ctx := harness.Context(t)
	theirs, own := member.Client(), observer.Client()
	for number := range 300 {
		value := fmt.Sprint(number)
		writer, reader := own, theirs
		if number%2 == 1 {
			writer, reader = theirs, own
		}
		if _, err := writer.Put(ctx, "k", value); err != nil {
			t.Fatal(err)
		}
		answer, err := reader.Get(ctx, "k")
		if err != nil || string(answer.Kvs[0].Value) != value {
			t.Fatalf("%d: %v %v", number, answer, err)
		}
	}
	hashes(t, member, observer)
}

// TestUsers: users, permissions and tokens are those of the cluster.
func TestUsers(t *testing.T) {
	member := harness.Start(t, harness.Subject(), "--bcrypt-cost=4")
	observer := start(t, "o", member)
	ctx := harness.Context(t)
	client := member.Client()
	for _, name := range []string{"root", "guest"} {
		if _, err := client.UserAdd(ctx, name, "pw"); err != nil {
			t.Fatal(err)
		}
		if _, err := client.RoleAdd(ctx, name); err != nil {
			t.Fatal(err)
		}
		if _, err := client.UserGrantRole(ctx, name, name); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := client.RoleGrantPermission(ctx, "guest", "g", "h", clientv3.PermissionType(clientv3.PermReadWrite)); err != nil {
		t.Fatal(err)
	}
	if _, err := client.AuthEnable(ctx); err != nil {
		t.Fatal(err)
	}
	if _, err := observer.Client().Get(ctx, "g"); !errors.Is(err, rpctypes.ErrUserEmpty) {
		t.Errorf("nobody reads: %v", err)
	}
	guest := login(t, observer, "guest")
	if _, err := guest.Put(ctx, "g1", "x"); err != nil {
		t.Error(err)
	}
	if _, err := guest.Put(ctx, "x", "x"); !errors.Is(err, rpctypes.ErrPermissionDenied) {
		t.Errorf("a write that is not permitted: %v", err)
	}
	if _, err := guest.Get(ctx, "x", clientv3.WithSerializable()); !errors.Is(err, rpctypes.ErrPermissionDenied) {
		t.Errorf("a read that is not permitted: %v", err)
	}
	watch := guest.Watch(ctx, "x")
	if response := <-watch; !response.Canceled {
		t.Errorf("a watch that is not permitted: %v", response)
	}
	// What is taken away is taken away here too.
	if _, err := login(t, member, "root").RoleRevokePermission(ctx, "guest", "g", "h"); err != nil {
		t.Fatal(err)
	}
	if _, err := guest.Get(ctx, "g1"); !errors.Is(err, rpctypes.ErrPermissionDenied) {
		t.Errorf("a permission that was revoked: %v", err)
	}
	// A token that was made here is one there, and the other way round.
	if _, err := login(t, observer, "root").UserList(ctx); err != nil {
		t.Error(err)
	}
}

func login(t *testing.T, server *harness.Server, name string) *clientv3.Client {
	t.Helper()
	client, err := clientv3.New(clientv3.Config{
		Endpoints: []string{server.Endpoint()}, DialTimeout: 10 * time.Second, Username: name, Password: "pw",
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	return client
}

// TestTree: observers of observers, whose middle dies and comes back; and
// nobody follows whom it would follow itself.
func TestTree(t *testing.T) {
	cluster := harness.StartCluster(t, harness.Subject(), 3, nil)
	ctx := harness.Context(t)
	middle := start(t, "middle", cluster.Members[0])
	low := start(t, "low", middle)
	lowest := start(t, "lowest", low)
	client := lowest.Client()
	for number := range 100 {
		value := fmt.Sprint(number)
		if _, err := client.Put(ctx, "k", value); err != nil {
			t.Fatal(err)
		}
		answer, err := cluster.Client(1).Get(ctx, "k")
		if err != nil || string(answer.Kvs[0].Value) != value {
			t.Fatalf("%d: %v %v", number, answer, err)
		}
		if _, err := cluster.Client(2).Put(ctx, "l", value); err != nil {
			t.Fatal(err)
		}
		if answer, err = client.Get(ctx, "l"); err != nil || string(answer.Kvs[0].Value) != value {
			t.Fatalf("%d: %v %v", number, answer, err)
		}
	}
	lease, err := client.Grant(ctx, 100)
	if err != nil {
		t.Fatal(err)
	}
	if kept, err := client.KeepAliveOnce(ctx, lease.ID); err != nil || kept.TTL != 100 {
		t.Fatalf("%v %v", kept, err)
	}
	// Members feed none but the first of them.
	for number, wanted := range []string{"1", "0", "0"} {
		shows(t, cluster.Members[number], "/metrics", 200, true, "\ncairn_observers "+wanted+"\n")
	}
	listed(t, cluster.Members[2], []string{`"name":"middle"`, `"name":"low"`, `"name":"lowest"`, `"follows":"middle"`, `"follows":"low"`, `"follows":"m0"`}, "-w", "json")
	// Without the middle, what is below it serves what it has, and says that it follows nobody.
	middle.Kill()
	until(t, "the lowest to know", func() bool {
		code, text := page(t, lowest, "/readyz?verbose")
		return code == 503 && strings.Contains(text, "[-]observer_source failed")
	})
	if answer, err := client.Get(ctx, "k", clientv3.WithSerializable()); err != nil || string(answer.Kvs[0].Value) != "99" {
		t.Errorf("%v %v", answer, err)
	}
	if _, err := client.Get(briefly(t), "k"); err == nil {
		t.Error("a linearizable read was answered without anybody to ask")
	}
	if _, err := cluster.Client(1).Put(ctx, "k", "behind"); err != nil {
		t.Fatal(err)
	}
	middle.Run()
	until(t, "the lowest to be level", func() bool {
		answer, err := client.Get(briefly(t), "k")
		return err == nil && string(answer.Kvs[0].Value) == "behind"
	})
	// The middle may follow the low one, but not while that follows the middle.
	follow(middle, low, cluster.Members[0])
	middle.Stop()
	follow(low, middle)
	middle.Run()
	until(t, "a write through all of them", func() bool {
		_, err := client.Put(briefly(t), "k", "again")
		return err == nil
	})
	hashes(t, cluster.Members[0], middle, low, lowest)
}

// TestSources: one that is followed dies, and the next one takes its place;
// one of another cluster is refused.
func TestSources(t *testing.T) {
	cluster := harness.StartCluster(t, harness.Subject(), 3, nil)
	stranger := harness.Start(t, harness.Subject(), "--initial-cluster-token=other")
	ctx := harness.Context(t)
	put(t, cluster.Client(0), "k", 10, "x")
	put(t, stranger.Client(), "strange", 50, "x")
	observer := start(t, "o", cluster.Members[0], cluster.Members[1])
	client := observer.Client()
	// Which of the two it follows is its own choice: one that knows no leader for a moment is left.
	followed := cluster.Members[0]
	said := observer.Log()
	line, _, _ := strings.Cut(said[strings.LastIndex(said, `"following a source"`):], "\n")
	if strings.Contains(line, cluster.Members[1].PeerURL()) {
		followed = cluster.Members[1]
	}
	followed.Kill()
	until(t, "another source", func() bool {
		answer, err := client.Put(briefly(t), "k", "y")
		return err == nil && answer != nil
	})
	observer.AwaitLog(t, "lost what this observer follows")
	followed.Run()
	observer.Stop()
	follow(observer, stranger)
	seen := observer.Launch()
	observer.AwaitLog(t, "belongs to another cluster. It is not followed")
	if answer, err := observer.Client().Get(ctx, "k", clientv3.WithSerializable()); err != nil || string(answer.Kvs[0].Value) != "y" {
		t.Errorf("what it has is still there: %v %v", answer, err)
	}
	if strings.Contains(observer.Log()[seen:], "ready to serve client requests") {
		t.Error("it was ready without a source")
	}
	observer.Stop()
	follow(observer, stranger, cluster.Members[2])
	observer.Run()
	hashes(t, cluster.Members[2], observer)
	// Nobody there: it waits for a while, and then ends.
	nobody := prepare(t, "nobody", &harness.Server{Host: "127.0.0.1", PeerPort: 1})
	if err := nobody.TryRun(levelMax); err == nil || !strings.Contains(err.Error(), "cannot fetch cluster info from peer urls") {
		t.Errorf("%v", err)
	}
}

// TestDirectories: a directory is an observer's or a member's.
func TestDirectories(t *testing.T) {
	member := harness.Start(t, harness.Subject())
	observer := start(t, "o", member)
	put(t, observer.Client(), "k", 10, "x")
	observer.Stop()
	observer.SetFlags("--initial-cluster=o=" + observer.PeerURL())
	if err := observer.TryRun(levelMax); err == nil || !strings.Contains(err.Error(), "is the data directory of an observer") {
		t.Errorf("%v", err)
	}
	follow(observer, member)
	observer.Run()
	other := prepare(t, "other", member)
	copied := harness.Prepare(t, harness.Subject(), other.DataDir)
	copied.Run()
	copied.Stop()
	if err := other.TryRun(levelMax); err == nil || !strings.Contains(err.Error(), "is the data directory of a member") {
		t.Errorf("%v", err)
	}
	hashes(t, member, observer)
}

// TestRestarts: an observer that is killed while it takes entries goes on from
// its own disk, and one that was away for long takes a snapshot.
func TestRestarts(t *testing.T) {
	member := harness.Start(t, harness.Subject(), "--snapshot-catchup-entries=200")
	observer := start(t, "o", member)
	ctx := harness.Context(t)
	client := member.Client()
	seen := len(observer.Log())
	observer.Stop()
	put(t, client, "away", 1_000, strings.Repeat("x", 1_000))
	observer.Run()
	if log := observer.Log()[seen:]; !strings.Contains(log, "applied snapshot") {
		t.Error("it was not sent a snapshot")
	}
	hashes(t, member, observer)
	// Killed again and again while it takes entries, or a snapshot.
	stop := make(chan struct{})
	done := make(chan int)
	go func() {
		count := 0
		for ; ; count++ {
			select {
			case <-stop:
				done <- count
				return
			default:
			}
			if _, err := client.Put(ctx, fmt.Sprintf("k/%d", count%100), fmt.Sprint(count)); err != nil {
				t.Error(err)
			}
		}
	}()
	for range 8 {
		time.Sleep(200 * time.Millisecond)
		observer.Kill()
		observer.Run()
	}
	close(stop)
	t.Logf("%d puts meanwhile", <-done)
	hashes(t, member, observer)
	if _, err := observer.Client().Get(ctx, "k/1", clientv3.WithSerializable()); err != nil {
		t.Error(err)
	}
	// It goes on behind the snapshot.
	put(t, observer.Client(), "behind", 10, "x")
	hashes(t, member, observer)
	observer.Kill()
	observer.Run()
	hashes(t, member, observer)
}

// TestStalled: one that takes nothing holds no member up, and is level soon
// after.
func TestStalled(t *testing.T) {
	member := harness.Start(t, harness.Subject(), "--snapshot-catchup-entries=500")
	observer := start(t, "o", member)
	client := member.Client()
	value := strings.Repeat("v", 10_000)
	timed := func(prefix string) time.Duration {
		began := time.Now()
		put(t, client, prefix, 2_000, value)
		return time.Since(began)
	}
	timed("warm")
	harness.Attempt(t, func() error {
		quiet := timed("quiet")
		observer.Pause()
		stalled := timed("stalled")
		observer.Resume()
		t.Logf("2,000 puts of 10 kB: %v, and %v beside a stalled observer", quiet, stalled)
		until(t, "the observer to be level", func() bool {
			answer, err := observer.Client().Get(briefly(t), "stalled/01999")
			return err == nil && len(answer.Kvs) == 1
		})
		hashes(t, member, observer)
		// Generous, since the machine has other work: a member that waited would not answer at all.
		if stalled > 5*quiet+30*time.Second {
			return fmt.Errorf("2,000 puts take %v beside a stalled observer, %v beside one that follows", stalled, quiet)
		}
		return nil
	})
}

// TestQuota: an observer that finds no room refuses what comes to it, and
// leaves the members alone.
func TestQuota(t *testing.T) {
	member := harness.Start(t, harness.Subject())
	observer := prepare(t, "o", member)
	observer.SetFlags("--observer", "--follow="+member.PeerURL(), "--quota-backend-bytes=100000")
	observer.Run()
	ctx := harness.Context(t)
	value := strings.Repeat("v", 50_000)
	put(t, member.Client(), "k", 4, value)
	if _, err := observer.Client().Get(ctx, "k/00003"); err != nil {
		t.Fatal(err)
	}
	if _, err := observer.Client().Put(ctx, "l", value); !errors.Is(err, rpctypes.ErrNoSpace) {
		t.Errorf("a write beyond the observer's quota: %v", err)
	}
	put(t, member.Client(), "m", 2, value)
	if alarms, err := member.Client().AlarmList(ctx); err != nil || len(alarms.Alarms) != 0 {
		t.Errorf("%v %v", alarms, err)
	}
	hashes(t, member, observer)
}

// TestLeaderless: streams that need a leader end when the cluster has none.
func TestLeaderless(t *testing.T) {
	cluster := harness.StartCluster(t, harness.Subject(), 3, nil)
	observer := start(t, "o", cluster.Members[0])
	ctx := clientv3.WithRequireLeader(harness.Context(t))
	watch := observer.Client().Watch(ctx, "k", clientv3.WithCreatedNotify())
	if response := <-watch; !response.Created {
		t.Fatalf("%v", response)
	}
	cluster.Members[1].Kill()
	cluster.Members[2].Kill()
	select {
	case response := <-watch:
		if !response.Canceled && !errors.Is(response.Err(), rpctypes.ErrNoLeader) {
			t.Errorf("%v", response)
		}
	case <-time.After(levelMax):
		t.Error("the watch did not end")
	}
	if _, err := observer.Client().Get(briefly(t), "k"); err == nil {
		t.Error("a linearizable read was answered without a quorum")
	}
	cluster.Members[1].Run()
	cluster.Members[2].Run()
	until(t, "a leader", func() bool {
		_, err := observer.Client().Put(briefly(t), "k", "x")
		return err == nil
	})
}
