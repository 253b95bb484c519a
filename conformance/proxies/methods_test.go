package proxies

import (
	"context"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/reflect/protoreflect"

	"cairn.dev/conformance/harness"
	clientv3 "go.etcd.io/etcd/client/v3"
	election "go.etcd.io/etcd/server/v3/etcdserver/api/v3election/v3electionpb"
	lock "go.etcd.io/etcd/server/v3/etcdserver/api/v3lock/v3lockpb"
)

// connTo is a plain gRPC connection to an address.
func connTo(t testing.TB, address string, options ...grpc.DialOption) *grpc.ClientConn {
	t.Helper()
	options = append(options, grpc.WithTransportCredentials(insecure.NewCredentials()))
	conn, err := grpc.NewClient(address, options...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

// Whatever the request, a client cannot tell whether a proxy or a member
// answers: none of the methods is missing, and each answer and error is the
// member's.
func TestProxyPassesEveryMethod(t *testing.T) {
	t.Parallel()
	if harness.Subject() == harness.Etcd {
		t.Skip("the genuine proxy has no RangeStream, and words of its own")
	}
	ctx := harness.Context(t)
	server := harness.Start(t, harness.Subject())
	client := server.Client()
	lease, err := client.Grant(ctx, 600)
	if err != nil {
		t.Fatal(err)
	}
	direct := connTo(t, server.Endpoint())
	if _, err := election.NewElectionClient(direct).Campaign(ctx, &election.CampaignRequest{Name: []byte("e"), Lease: int64(lease.ID)}); err != nil {
		t.Fatal(err)
	}
	// What differs from one answer to the next.
	varies := map[protoreflect.Name]bool{"Status": true, "Snapshot": true}
	for _, namespace := range []string{"", "ns/"} {
		through := connTo(t, startProxy(t, []string{server.Endpoint()}, "--namespace="+namespace).address)
		for _, method := range harness.EveryMethod(t) {
			request := harness.RequestOf(t, method, int64(lease.ID))
			want, wantErr := harness.First(ctx, t, direct, method, request)
			got, gotErr := harness.First(ctx, t, through, method, request)
			if status.Code(wantErr) == codes.Unimplemented {
				t.Errorf("%s is not there at a member", method.FullName())
			}
			if wantErr == nil && gotErr == nil && varies[method.Name()] {
				continue
			}
			if diff := harness.Diff(want, wantErr, got, gotErr); diff != "" {
				t.Errorf("%s with namespace %q:\n%s", method.FullName(), namespace, diff)
			}
		}
	}
}

// The services Lock and Election work through a proxy as through a member: one
// that waits gives its place up with its call, and those who watch an election
// see each leader.
func TestProxyLocksAndElections(t *testing.T) {
	t.Parallel()
	ctx := harness.Context(t)
	server := harness.Start(t, harness.Subject())
	proxy := startProxy(t, []string{server.Endpoint()})
	conn, client := connTo(t, proxy.address), server.Client()
	grant := func() int64 {
		t.Helper()
		lease, err := client.Grant(ctx, 600)
		if err != nil {
			t.Fatal(err)
		}
		return int64(lease.ID)
	}
	must := func(what string, err error) {
		t.Helper()
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
	}
	waiting := func(prefix string, count int64) func() bool {
		return func() bool {
			got, err := client.Get(ctx, prefix, clientv3.WithPrefix(), clientv3.WithCountOnly())
			return err == nil && got.Count == count
		}
	}
	one, two := grant(), grant()
	locks := lock.NewLockClient(conn)
	held, err := locks.Lock(ctx, &lock.LockRequest{Name: []byte("l"), Lease: one})
	must("lock", err)
	given, giveUp := context.WithCancel(ctx)
	gone := make(chan error, 1)
	go func() {
		_, err := locks.Lock(given, &lock.LockRequest{Name: []byte("l"), Lease: two})
		gone <- err
	}()
	await(t, "the second does not stand in line", waiting("l/", 2))
	giveUp()
	if err := <-gone; status.Code(err) != codes.Canceled {
		t.Errorf("one that gave up: %v", err)
	}
	await(t, "one that gave up still stands in line", waiting("l/", 1))
	_, err = locks.Unlock(ctx, &lock.UnlockRequest{Key: held.Key})
	must("unlock", err)
	_, err = locks.Lock(ctx, &lock.LockRequest{Name: []byte("l"), Lease: two})
	must("lock that was unlocked", err)

	elections := election.NewElectionClient(conn)
	won, err := elections.Campaign(ctx, &election.CampaignRequest{Name: []byte("e"), Lease: one, Value: []byte("one")})
	must("campaign", err)
	seen, err := elections.Observe(ctx, &election.LeaderRequest{Name: []byte("e")})
	must("observe", err)
	sees := func(value string) {
		t.Helper()
		answer, err := seen.Recv()
		if err != nil || string(answer.Kv.Value) != value {
			t.Fatalf("an observer sees %v, %v and not %s", answer, err, value)
		}
	}
	sees("one")
	_, err = elections.Proclaim(ctx, &election.ProclaimRequest{Leader: won.Leader, Value: []byte("again")})
	must("proclaim", err)
	sees("again")
	next := make(chan error, 1)
	go func() {
		_, err := elections.Campaign(ctx, &election.CampaignRequest{Name: []byte("e"), Lease: two, Value: []byte("two")})
		next <- err
	}()
	await(t, "the second does not stand for election", waiting("e/", 2))
	_, err = elections.Resign(ctx, &election.ResignRequest{Leader: won.Leader})
	must("resign", err)
	must("campaign after another", <-next)
	sees("two")
	leader, err := elections.Leader(ctx, &election.LeaderRequest{Name: []byte("e")})
	must("leader", err)
	if string(leader.Kv.Value) != "two" || leader.Kv.Lease != two {
		t.Errorf("the leader is %v", leader)
	}
}
