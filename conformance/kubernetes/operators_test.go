package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"cairn.dev/conformance/harness"
)

// TestOperators makes the calls that Cluster API's control plane provider and
// etcd-operator make of a cluster, on the genuine servers and on those under
// test, and compares what they are told.
func TestOperators(t *testing.T) {
	if harness.Subject() == harness.Etcd {
		t.Skip("both sides would be the genuine server")
	}
	genuine, subject := operate(t, harness.Etcd), operate(t, harness.Subject())
	if !slices.Equal(genuine, subject) {
		t.Errorf("the genuine servers answer\n%s\n\nthose under test answer\n%s", strings.Join(genuine, "\n"), strings.Join(subject, "\n"))
	}
}

// operate makes the calls and returns the answers without what differs from
// run to run.
func operate(t *testing.T, kind harness.Kind) (lines []string) {
	t.Helper()
	cluster := harness.StartCluster(t, kind, 3, nil)
	say := func(what string, answer any, err error) {
		t.Helper()
		lines = append(lines, fmt.Sprintf("%s: %v, error %v", what, answer, err))
	}
	ctx, cancel := context.WithTimeout(t.Context(), settleMax)
	defer cancel()
	all := cluster.Client()
	var each []*clientv3.Client
	for number := range cluster.Members {
		each = append(each, cluster.Client(number))
	}

	// Health of each member, as both see it: a read of a key that nobody
	// writes, the status with its errors, and the alarms.
	health := func() {
		for number, client := range each {
			read, err := client.Get(ctx, "health", clientv3.WithSerializable())
			say(fmt.Sprint("health of ", number), read.Count, err)
			status, err := client.Status(ctx, cluster.Members[number].Endpoint())
			if err != nil {
				t.Fatal(err)
			}
			say(fmt.Sprint("status of ", number), fmt.Sprint(status.IsLearner, " ", status.Errors, " ", status.Leader != 0), nil)
		}
		alarms, err := all.AlarmList(ctx)
		say("alarms", alarms.Alarms, err)
	}
	health()
	for number := range 100 {
		if _, err := all.Put(ctx, "operators", fmt.Sprint(number)); err != nil {
			t.Fatal(err)
		}
	}

	// The leader is moved by a call to itself, and by no other member.
	leader := cluster.Leader(each)
	other := (leader + 1) % len(each)
	target := memberID(t, ctx, all, cluster.Members[other].Name)
	_, err := each[other].MoveLeader(ctx, target)
	say("move the leader by a follower", "", err)
	_, err = each[leader].MoveLeader(ctx, target)
	say("move the leader", "", err)
	await(t, "the other one leads", func(ctx context.Context) error {
		if now := cluster.Leader(each); now != other {
			return fmt.Errorf("member %d leads", now)
		}
		return nil
	})

	// Peer URLs are updated to what they are.
	updated, err := all.MemberUpdate(ctx, target, []string{cluster.Members[other].PeerURL()})
	say("update a member", len(updated.Members), err)

	// A member is added as a learner, twice; started; promoted when it is
	// level; and removed, twice.
	learner := cluster.AddLearner(ctx, all, kind)
	// The id of a member comes from its addresses and the second in which it is
	// added: within one second both servers find the id taken, later the
	// address.
	time.Sleep(1100 * time.Millisecond)
	_, err = all.MemberAddAsLearner(ctx, []string{learner.PeerURL()})
	say("add a learner again", "", err)
	_, err = all.MemberAdd(ctx, []string{learner.PeerURL()})
	say("add it as a voter", "", err)
	_, err = all.MemberAddAsLearner(ctx, []string{"http://127.0.0.1:1"})
	say("add a second learner", "", err)
	id := memberID(t, ctx, all, "")
	_, err = all.MemberPromote(ctx, id)
	say("promote a learner that was never started", "", err)
	learner.Run()
	// etcd-operator promotes a learner whose revision is at least 0.9 of the
	// leader's, as their statuses say.
	await(t, "the learner is ready as etcd-operator sees it", func(ctx context.Context) error {
		leads, err := all.Status(ctx, cluster.Members[other].Endpoint())
		if err != nil {
			return err
		}
		learns, err := all.Status(ctx, learner.Endpoint())
		if err != nil {
			return err
		}
		if leads.Leader != leads.Header.MemberId || !learns.IsLearner || learns.Header.MemberId != id {
			return fmt.Errorf("the statuses are of others: %v, %v", leads, learns)
		}
		if leads.Header.Revision < 100 || float64(learns.Header.Revision)/float64(leads.Header.Revision) < 0.9 {
			return fmt.Errorf("the learner is at revision %d, the leader at %d", learns.Header.Revision, leads.Header.Revision)
		}
		return nil
	})
	await(t, "promote the learner", func(ctx context.Context) error {
		_, err := all.MemberPromote(ctx, id)
		return err
	})
	_, err = all.MemberPromote(ctx, id)
	say("promote a voter", "", err)
	_, err = all.MemberPromote(ctx, 1)
	say("promote nobody", "", err)

	_, err = all.MemberRemove(ctx, id)
	say("remove the member", "", err)
	if _, err := learner.Wait(startMax); err != nil {
		learner.Stop()
	}
	_, err = all.MemberRemove(ctx, id)
	say("remove it again", "", err)
	say("that is ErrMemberNotFound", errors.Is(err, rpctypes.ErrMemberNotFound), nil)
	health()

	// Neither of them defragments members, but the jobs that people run beside
	// them do.
	for number, client := range each {
		_, err := client.Defragment(ctx, cluster.Members[number].Endpoint())
		say(fmt.Sprint("defragment ", number), "", err)
	}
	return lines
}

// memberID is the identifier of the member with the name; a member that was
// never started has none.
func memberID(t *testing.T, ctx context.Context, client *clientv3.Client, name string) uint64 {
	t.Helper()
	members, err := client.MemberList(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for _, member := range members.Members {
		if member.Name == name {
			return member.ID
		}
	}
	t.Fatalf("no member `%s` among %v", name, members.Members)
	return 0
}
