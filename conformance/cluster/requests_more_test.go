package cluster

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"cairn.dev/conformance/harness"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// clusterVersion waits until every member is of this version.
func clusterVersion(t *testing.T, members []*harness.Server, version string) {
	t.Helper()
	var seen []string
	for deadline := time.Now().Add(60 * time.Second); time.Now().Before(deadline); time.Sleep(100 * time.Millisecond) {
		seen = nil
		for _, member := range members {
			var versions struct{ Etcdcluster string }
			_, text := get(t, member.URL("/version"))
			if err := json.Unmarshal([]byte(text), &versions); err != nil {
				t.Fatal(err)
			}
			seen = append(seen, versions.Etcdcluster)
		}
		if strings.Count(strings.Join(seen, " "), version) == len(seen) {
			return
		}
	}
	t.Fatalf("the cluster is not of version %s: %v", version, seen)
}

// A downgrade is enabled and cancelled through members of both kinds, while
// each of them leads: the version of the cluster follows on all.
func TestDowngradeOfBothKinds(t *testing.T) {
	t.Parallel()
	cluster := mixed(t)
	in := newInsider(t, cluster)
	clusterVersion(t, cluster.Members, "3.7.0")
	for number, kind := range []harness.Kind{harness.Etcd, harness.Subject()} {
		lead(t, cluster, number)
		for asked := range 2 {
			client, other := in.clients[asked], in.clients[1-asked]
			name := fmt.Sprintf("asked of %s, led by %s", cluster.Members[asked].Kind, kind)
			ask := func(client *clientv3.Client, action clientv3.DowngradeAction, version string) {
				t.Helper()
				if _, err := client.Downgrade(in.context(), action, version); err != nil {
					t.Fatalf("%s: %v", name, err)
				}
			}
			ask(client, clientv3.DowngradeValidate, "3.6.0")
			ask(client, clientv3.DowngradeEnable, "3.6.0")
			clusterVersion(t, cluster.Members, "3.6.0")
			in.same("a downgrade " + name)
			for member, status := range in.status() {
				if !status.DowngradeInfo.GetEnabled() || status.DowngradeInfo.GetTargetVersion() != "3.6.0" {
					t.Errorf("%s: member %d says %v", name, member, status.DowngradeInfo)
				}
			}
			var said []string
			for _, client := range in.clients {
				_, err := client.Downgrade(in.context(), clientv3.DowngradeEnable, "3.6.0")
				said = append(said, fmt.Sprint(err))
			}
			if said[0] != said[1] || said[0] != said[2] || said[0] == "<nil>" {
				t.Errorf("a downgrade again, %s: %q", name, said)
			}
			fillSome(t, client, name)
			in.same("writes after a downgrade " + name)
			ask(other, clientv3.DowngradeCancel, "")
			clusterVersion(t, cluster.Members, "3.7.0")
			fillSome(t, other, name)
			in.same("no downgrade any more, " + name)
		}
	}
}

func fillSome(t *testing.T, client *clientv3.Client, name string) {
	t.Helper()
	for number := range 20 {
		if _, err := client.Put(harness.Context(t), fmt.Sprint("some/", number), name); err != nil {
			t.Fatal(err)
		}
	}
}

// One member of etcd, and one of Cairn, runs out of its quota, which is
// smaller than the others': it raises the alarm for all, and all refuse.
func TestQuotaOfOneMember(t *testing.T) {
	t.Parallel()
	cluster := mixed(t, "--quota-backend-bytes=1000000000")
	in := newInsider(t, cluster)
	for number, member := range cluster.Members[:2] {
		member.Stop()
		flags := cluster.MemberFlags("existing")
		member.SetFlags(append(flags, "--quota-backend-bytes=9000000")...)
		member.Run()
		in.clients[number] = member.Client()
		lead(t, cluster, 1-number)
		name := fmt.Sprintf("the quota of %s, led by %s", member.Kind, cluster.Members[1-number].Kind)

		refused := false
		for put := 0; put < 400 && !refused; put++ {
			_, err := in.clients[put%3].Put(in.context(), fmt.Sprintf("large/%03d", put), strings.Repeat("v", 60_000))
			refused = errors.Is(err, rpctypes.ErrNoSpace)
			if err != nil && !refused {
				t.Fatalf("%s: %v", name, err)
			}
		}
		if !refused {
			t.Fatalf("%s: nothing is refused", name)
		}
		for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(50 * time.Millisecond) {
			alarms, err := in.clients[2].AlarmList(in.context())
			if err != nil {
				t.Fatal(err)
			}
			if len(alarms.Alarms) == 1 && alarms.Alarms[0].MemberID == in.status()[number].Header.MemberId {
				break
			}
			if time.Now().After(deadline) {
				t.Fatalf("%s: alarms %v", name, alarms.Alarms)
			}
		}
		in.same(name)
		for _, client := range in.clients {
			put := clientv3.OpPut("small", "x")
			for what, err := range map[string]error{
				"a put":                of(client.Do(in.context(), put)),
				"a nested put":         of(client.Txn(in.context()).Then(clientv3.OpTxn(nil, []clientv3.Op{put}, nil)).Commit()),
				"a put of one side":    of(client.Txn(in.context()).Else(put).Commit()),
				"a grant":              of(client.Grant(in.context(), 60)),
				"a put with its lease": of(client.Put(in.context(), "small", "x", clientv3.WithIgnoreLease())),
			} {
				if !errors.Is(err, rpctypes.ErrNoSpace) {
					t.Errorf("%s: %s: %v", name, what, err)
				}
			}
		}
		in.same("refusals: " + name)
		deleted, err := in.clients[0].Delete(in.context(), "large/", clientv3.WithPrefix())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := in.clients[1].Compact(in.context(), deleted.Header.Revision, clientv3.WithCompactPhysical()); err != nil {
			t.Fatal(err)
		}
		for other, member := range cluster.Members {
			if _, err := in.clients[other].Defragment(in.context(), member.Endpoint()); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := in.clients[1-number].AlarmDisarm(in.context(), &clientv3.AlarmMember{}); err != nil {
			t.Fatal(err)
		}
		for _, client := range in.clients {
			// Answered when this member has applied all that was logged before: a put
			// at one that has not yet heard of the alarm's end would be refused.
			alarms, err := client.AlarmList(in.context())
			if err != nil || len(alarms.Alarms) != 0 {
				t.Fatalf("%s: after the end %v, %v", name, alarms, err)
			}
		}
		in.same("the alarm's end: " + name)
		fillSome(t, in.clients[2], name)
		in.same("writes after it: " + name)
		member.Stop()
		member.SetFlags(flags...)
		member.Run()
		in.clients[number] = member.Client()
	}
}

func of[T any](_ T, err error) error { return err }

// A member of each kind is started under another name and with other client
// URLs: it says so in the log, and all know it.
func TestAttributesOfBothKinds(t *testing.T) {
	t.Parallel()
	cluster := mixed(t)
	in := newInsider(t, cluster)
	for leader := range 2 {
		for number, member := range cluster.Members {
			// The member that restarts does not lead afterwards.
			lead(t, cluster, leader)
			member.Stop()
			name := fmt.Sprintf("renamed-%d-%d", leader, number)
			urls := fmt.Sprintf("http://%s,http://localhost:%d", member.Endpoint(), member.ClientPort)
			member.SetFlags(append(cluster.MemberFlags("existing"), "--name="+name, "--advertise-client-urls="+urls)...)
			member.Run()
			in.clients[number] = member.Client()
			in.same("another name of a member of " + string(member.Kind))
			members, err := in.clients[(number+1)%3].MemberList(in.context())
			if err != nil {
				t.Fatal(err)
			}
			found := false
			for _, one := range members.Members {
				found = found || one.Name == name && strings.Join(one.ClientURLs, ",") == urls
			}
			if !found {
				t.Errorf("%s with %s is not among %v", name, urls, members.Members)
			}
		}
	}
}
