package observers

import (
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/reflect/protoreflect"

	"cairn.dev/conformance/harness"
	clientv3 "go.etcd.io/etcd/client/v3"
	election "go.etcd.io/etcd/server/v3/etcdserver/api/v3election/v3electionpb"
)

// TestEveryMethod: whatever the request, a client cannot tell an observer from
// a follower by the answer.
func TestEveryMethod(t *testing.T) {
	cluster := harness.StartCluster(t, harness.Subject(), 3, nil)
	ctx := harness.Context(t)
	var clients []*clientv3.Client
	for number := range cluster.Members {
		clients = append(clients, cluster.Client(number))
	}
	leader := cluster.Leader(clients)
	follower := cluster.Members[(leader+1)%3]
	observer := start(t, "o", follower)
	lease, err := observer.Client().Grant(ctx, 600)
	if err != nil {
		t.Fatal(err)
	}
	campaign := &election.CampaignRequest{Name: []byte("e"), Lease: int64(lease.ID)}
	if _, err := election.NewElectionClient(observer.Conn()).Campaign(ctx, campaign); err != nil {
		t.Fatal(err)
	}
	// What differs from one answer, or one member, to the next.
	varies := map[protoreflect.Name]bool{"Status": true, "Snapshot": true, "Hash": true}
	theirs, own := follower.Conn(), observer.Conn()
	for _, method := range harness.EveryMethod(t) {
		request := harness.RequestOf(t, method, int64(lease.ID))
		want, wantErr := harness.First(ctx, t, theirs, method, request)
		got, gotErr := harness.First(ctx, t, own, method, request)
		if status.Code(wantErr) == codes.Unimplemented {
			t.Errorf("%s is not there at a member", method.FullName())
		}
		if wantErr == nil && gotErr == nil && varies[method.Name()] {
			continue
		}
		if diff := harness.Diff(want, wantErr, got, gotErr); diff != "" {
			t.Errorf("%s:\n%s", method.FullName(), diff)
		}
	}
}
