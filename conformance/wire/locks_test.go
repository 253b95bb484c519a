package wire

import (
	"context"
	"testing"
	"time"

	"cairn.dev/conformance/harness"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	election "go.etcd.io/etcd/server/v3/etcdserver/api/v3election/v3electionpb"
	lock "go.etcd.io/etcd/server/v3/etcdserver/api/v3lock/v3lockpb"
	"google.golang.org/protobuf/proto"
)

const (
	lockPath     = "/v3lockpb.Lock/Lock"
	unlockPath   = "/v3lockpb.Lock/Unlock"
	campaignPath = "/v3electionpb.Election/Campaign"
	proclaimPath = "/v3electionpb.Election/Proclaim"
	leaderPath   = "/v3electionpb.Election/Leader"
	resignPath   = "/v3electionpb.Election/Resign"
)

// all is a range over every key.
func all() *pb.RangeRequest { return &pb.RangeRequest{Key: []byte{0}, RangeEnd: []byte{0}} }

// leases are granted on both sides with the ids that the tests use.
func grantLeases(both *sides) {
	for _, id := range []int64{7, 8, -7} {
		both.sameMessage("/etcdserverpb.Lease/LeaseGrant", &pb.LeaseGrantRequest{ID: id, TTL: 1000})
	}
}

// Locks that need not wait, and all that can be wrong with a request.
func TestLockRequests(t *testing.T) {
	both := startSides(t)
	grantLeases(both)
	for _, request := range []*lock.LockRequest{
		{Name: []byte("a"), Lease: 5},
		{Name: []byte("a"), Lease: -5},
		{Name: []byte("a"), Lease: 7},
		{Name: []byte("a"), Lease: 7},
		{Name: []byte("negative"), Lease: -7},
		{Lease: 7},
		{Name: []byte{0, 255, '/', 0}, Lease: 8},
		{Name: make([]byte, 1_600_000), Lease: 8},
	} {
		both.sameMessage(lockPath, request)
	}
	both.sameMessage(rangePath, all())
	for _, key := range []string{"", "none", "a/7", "a/7", "negative/-7"} {
		both.sameMessage(unlockPath, &lock.UnlockRequest{Key: []byte(key)})
	}
	both.sameMessage(rangePath, all())
	// The decoder's own words.
	both.textOpen = true
	both.same("malformed", lockPath, []byte{0xff})
	both.same("malformed", unlockPath, []byte{0xff})
}

// Elections that need not wait.
func TestElectionRequests(t *testing.T) {
	both := startSides(t)
	grantLeases(both)
	key := func(name, key string, rev, lease int64) *election.LeaderKey {
		return &election.LeaderKey{Name: []byte(name), Key: []byte(key), Rev: rev, Lease: lease}
	}
	for _, step := range []struct {
		path    string
		request proto.Message
	}{
		{leaderPath, &election.LeaderRequest{Name: []byte("e")}},
		{campaignPath, &election.CampaignRequest{Name: []byte("e"), Lease: 5, Value: []byte("v")}},
		{campaignPath, &election.CampaignRequest{Name: []byte("e"), Lease: 7, Value: []byte("one")}},
		{campaignPath, &election.CampaignRequest{Name: []byte("e"), Lease: 7, Value: []byte("one")}},
		{campaignPath, &election.CampaignRequest{Name: []byte("e"), Lease: 7, Value: []byte("two")}},
		{leaderPath, &election.LeaderRequest{Name: []byte("e")}},
		{proclaimPath, &election.ProclaimRequest{Leader: key("e", "e/7", 2, 7), Value: []byte("three")}},
		{proclaimPath, &election.ProclaimRequest{Leader: key("e", "e/7", 3, 7), Value: []byte("four")}},
		{proclaimPath, &election.ProclaimRequest{Leader: key("e", "e/7", 2, 8), Value: []byte("other lease")}},
		{proclaimPath, &election.ProclaimRequest{Leader: key("other", "e/7", 2, 7), Value: []byte("other name")}},
		{proclaimPath, &election.ProclaimRequest{Leader: key("x", "x/7", 0, 70), Value: []byte("no lease")}},
		{proclaimPath, &election.ProclaimRequest{Leader: key("x", "x/7", 0, 7), Value: []byte("not there yet")}},
		{proclaimPath, &election.ProclaimRequest{Leader: &election.LeaderKey{}}},
		{proclaimPath, &election.ProclaimRequest{}},
		{leaderPath, &election.LeaderRequest{Name: []byte("e")}},
		{leaderPath, &election.LeaderRequest{Name: []byte("x")}},
		{leaderPath, &election.LeaderRequest{}},
		{resignPath, &election.ResignRequest{}},
		{resignPath, &election.ResignRequest{Leader: &election.LeaderKey{}}},
		{resignPath, &election.ResignRequest{Leader: key("e", "e/7", 3, 7)}},
		{resignPath, &election.ResignRequest{Leader: key("e", "e/7", 2, 7)}},
		{resignPath, &election.ResignRequest{Leader: key("e", "e/7", 2, 7)}},
		{campaignPath, &election.CampaignRequest{Name: []byte("e"), Lease: 8, Value: make([]byte, 1_600_000)}},
		{campaignPath, &election.CampaignRequest{}},
		{rangePath, &pb.RangeRequest{Key: []byte("a"), RangeEnd: []byte("z")}},
	} {
		if request, ok := step.request.(*election.CampaignRequest); ok && request.Lease == 0 {
			// The lease is drawn: only that it succeeds can be compared.
			both.open = func(message proto.Message) {
				if response, ok := message.(*election.CampaignResponse); ok {
					response.Leader.Lease, response.Leader.Key = 0, nil
				}
			}
		}
		both.sameMessage(step.path, step.request)
	}
	both.textOpen = true
	for _, path := range []string{leaderPath, campaignPath, proclaimPath, resignPath} {
		both.same("malformed", path, []byte{0xff})
	}
}

// Calls that give up while they wait leave no key behind.
func TestWaitersThatGiveUp(t *testing.T) {
	both := startSides(t)
	grantLeases(both)
	both.sameMessage(lockPath, &lock.LockRequest{Name: []byte("a"), Lease: 7})
	both.sameMessage(campaignPath, &election.CampaignRequest{Name: []byte("e"), Lease: 7, Value: []byte("v")})
	// Server and client end a call at its deadline, and the client's words are those of the first.
	both.textOpen = true
	for _, step := range []struct {
		path    string
		request proto.Message
	}{
		{lockPath, &lock.LockRequest{Name: []byte("a"), Lease: 8}},
		{campaignPath, &election.CampaignRequest{Name: []byte("e"), Lease: 8, Value: []byte("w")}},
	} {
		data, err := proto.Marshal(step.request)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
		both.sameBoth(ctx, "waits", step.path, [2][]byte{data, data})
		cancel()
		// The deadline was one for both calls: the second may have had no time to wait.
		ctx, cancel = context.WithTimeout(t.Context(), 500*time.Millisecond)
		_, err = invoke(ctx, both.subject, step.path, data)
		cancel()
		if err == nil {
			t.Errorf("%s did not wait", step.path)
		}
	}
	both.eventually(all(), func(response *pb.RangeResponse) bool { return response.Count == 2 })
}

// eventually waits until the range is as wanted on both sides.
func (s *sides) eventually(request *pb.RangeRequest, wanted func(*pb.RangeResponse) bool) {
	s.t.Helper()
	for _, kv := range []pb.KVClient{pb.NewKVClient(s.etcd), pb.NewKVClient(s.subject)} {
		var last *pb.RangeResponse
		for deadline := time.Now().Add(2 * time.Minute); last == nil || !wanted(last); time.Sleep(10 * time.Millisecond) {
			response, err := kv.Range(harness.Context(s.t), request)
			if err != nil {
				s.t.Fatal(err)
			}
			if last = response; time.Now().After(deadline) {
				s.t.Fatalf("it stays %v", last)
			}
		}
	}
}

// An observer sees each value of each leader, in the same words.
func TestObserve(t *testing.T) {
	both := startSides(t)
	grantLeases(both)
	both.sameMessage(campaignPath, &election.CampaignRequest{Name: []byte("before"), Lease: 7, Value: []byte("there")})
	observe := func(name string) [2]election.Election_ObserveClient {
		var streams [2]election.Election_ObserveClient
		for i, client := range []election.ElectionClient{election.NewElectionClient(both.etcd), election.NewElectionClient(both.subject)} {
			stream, err := client.Observe(harness.Context(t), &election.LeaderRequest{Name: []byte(name)})
			if err != nil {
				t.Fatal(err)
			}
			streams[i] = stream
		}
		return streams
	}
	same := func(streams [2]election.Election_ObserveClient) {
		t.Helper()
		want, wantErr := streams[0].Recv()
		got, gotErr := streams[1].Recv()
		if difference := harness.Diff(want, wantErr, got, gotErr); difference != "" {
			t.Error(difference)
		}
	}
	same(observe("before"))
	streams := observe("later")
	// Both must be in place, or they see the first value as one that was there.
	time.Sleep(3 * time.Second)
	first := &election.CampaignRequest{Name: []byte("later"), Lease: 7, Value: []byte("one")}
	both.sameMessage(campaignPath, first)
	same(streams)
	leader := &election.LeaderKey{Name: []byte("later"), Key: []byte("later/7"), Rev: 3, Lease: 7}
	for _, value := range []string{"two", "three"} {
		both.sameMessage(proclaimPath, &election.ProclaimRequest{Leader: leader, Value: []byte(value)})
		same(streams)
	}
	both.sameMessage(resignPath, &election.ResignRequest{Leader: leader})
	time.Sleep(3 * time.Second)
	both.sameMessage(campaignPath, &election.CampaignRequest{Name: []byte("later"), Lease: 8, Value: []byte("four")})
	same(streams)
	// The lease ends: the next leader is seen.
	both.sameMessage("/etcdserverpb.Lease/LeaseRevoke", &pb.LeaseRevokeRequest{ID: 8})
	time.Sleep(3 * time.Second)
	both.sameMessage(campaignPath, &election.CampaignRequest{Name: []byte("later"), Lease: -7, Value: []byte("five")})
	same(streams)
}
