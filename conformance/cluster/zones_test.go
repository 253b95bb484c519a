package cluster

import (
	"bytes"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"cairn.dev/conformance/harness"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/protobuf/encoding/protowire"
)

// zoneOf is what a member's entry in a list says of its zone, in a field that
// etcd's clients do not know.
func zoneOf(member *pb.Member) (zone string) {
	for rest := []byte(member.ProtoReflect().GetUnknown()); len(rest) > 0; {
		number, kind, size := protowire.ConsumeTag(rest)
		if number == 20001 && kind == protowire.BytesType {
			value, _ := protowire.ConsumeString(rest[size:])
			return value
		}
		rest = rest[size+protowire.ConsumeFieldValue(number, kind, rest[size:]):]
	}
	return ""
}

// inZones starts members of Cairn with a zone each.
func inZones(t *testing.T, zones ...string) *harness.Cluster {
	t.Helper()
	cluster := harness.StartCluster(t, harness.Cairn, len(zones), nil)
	for number, member := range cluster.Members {
		member.Stop()
		member.SetFlags(append(cluster.MemberFlags("new"), "--zone="+zones[number])...)
		member.Run()
	}
	return cluster
}

// `cairn ctl` asks members of its own zone, however that is given, and others
// while there is none. Every member knows the zones of all.
func TestZones(t *testing.T) {
	t.Parallel()
	if harness.Subject() == harness.Etcd {
		t.Skip("about Cairn only")
	}
	cluster := inZones(t, "a", "b", "c")
	endpoints := ""
	ids := map[uint64]int{}
	for number, member := range cluster.Members {
		endpoints += "," + member.Endpoint()
		status, err := member.Client().Status(harness.Context(t), member.Endpoint())
		if err != nil {
			t.Fatal(err)
		}
		ids[status.Header.MemberId] = number
	}
	for _, member := range cluster.Members {
		list, err := member.Client().MemberList(harness.Context(t))
		if err != nil {
			t.Fatal(err)
		}
		for _, one := range list.Members {
			if zone, want := zoneOf((*pb.Member)(one)), string("abc"[ids[one.ID]]); zone != want {
				t.Errorf("%s says that member %d is in %q", member.Name, ids[one.ID], zone)
			}
		}
	}
	asked := func(env []string, flags ...string) (member int, took time.Duration) {
		t.Helper()
		args := append([]string{"ctl", harness.CtlPatience, "--endpoints=" + endpoints[1:], "get", "k", "-w=json"}, flags...)
		began := time.Now()
		got := harness.Command{Path: harness.CairnBinary(t), Args: args, Env: env}.Run(t)
		took = time.Since(began)
		var answer struct {
			Header struct {
				MemberID uint64 `json:"member_id"`
			} `json:"header"`
		}
		if err := json.NewDecoder(bytes.NewBufferString(got.Stdout)).Decode(&answer); got.Code != 0 || err != nil {
			t.Fatalf("%v: exit %d, %v\n%s%s", args, got.Code, err, got.Stdout, got.Stderr)
		}
		return ids[answer.Header.MemberID], took
	}
	// A client waits for half a second to hear which members are near. Where it took longer than that, it may have heard nothing: it is run again.
	const heardMax = 500 * time.Millisecond
	leads := func(wanted int, what string, env []string, flags ...string) {
		t.Helper()
		for deadline := time.Now().Add(2 * time.Minute); ; {
			member, took := asked(env, flags...)
			if member == wanted {
				return
			}
			if took < heardMax || time.Now().After(deadline) {
				t.Errorf("%s leads to member %d in %v", what, member, took)
				return
			}
		}
	}
	for round := range 5 {
		for number, zone := range []string{"a", "b", "c"} {
			leads(number, fmt.Sprintf("round %d: --zone=%s", round, zone), nil, "--zone="+zone)
			leads(number, fmt.Sprintf("round %d: ETCDCTL_ZONE=%s", round, zone), []string{"ETCDCTL_ZONE=" + zone})
			leads(number, fmt.Sprintf("round %d: CAIRN_ZONE=%s", round, zone), []string{"CAIRN_ZONE=" + zone})
			leads(number, fmt.Sprintf("round %d: --zone=%s beside CAIRN_ZONE", round, zone), []string{"CAIRN_ZONE=" + fmt.Sprint(round)}, "--zone="+zone)
		}
	}
	cluster.Members[1].Kill()
	if member, _ := asked(nil, "--zone=b"); member == 1 {
		t.Error("a member that is gone has answered")
	}
	asked(nil, "--zone=nowhere")
	// A member that moves says so when it starts.
	cluster.Members[1].SetFlags(append(cluster.MemberFlags("new"), "--zone=d")...)
	cluster.Members[1].Run()
	leads(1, "--zone=d", nil, "--zone=d")
}

// A zone in the log changes nothing for members of etcd: all have the same
// history and the same rows of everything else, before and after each has
// replayed its log, and whoever leads.
func TestZonesBesideEtcd(t *testing.T) {
	t.Parallel()
	if harness.Subject() == harness.Etcd {
		t.Skip("about Cairn only")
	}
	cluster := harness.StartCluster(t, harness.Etcd, 1, nil, checking...)
	for _, kind := range []harness.Kind{harness.Cairn, harness.Etcd} {
		client := cluster.Client(0)
		if len(cluster.Members) > 1 {
			settled()
		}
		member := cluster.Add(harness.Context(t), client, kind)
		if kind == harness.Cairn {
			member.SetFlags(append(cluster.MemberFlags("existing"), "--zone=z")...)
		}
		member.Run()
	}
	in := newInsider(t, cluster)
	zones := func(what string) {
		t.Helper()
		in.same(what)
		for number, client := range in.clients {
			list, err := client.MemberList(in.context())
			if err != nil {
				t.Fatalf("%s: %v", what, err)
			}
			for _, member := range list.Members {
				// Members of etcd pass over it.
				want := ""
				if member.Name == cluster.Members[1].Name && cluster.Members[number].Kind == harness.Cairn {
					want = "z"
				}
				if zone := zoneOf((*pb.Member)(member)); zone != want || len(member.ClientURLs) != 1 || member.Name == "" {
					t.Errorf("%s: member %d says %q of %s, which has %q", what, number, zone, member.Name, member.ClientURLs)
				}
			}
		}
	}
	zones("the start")
	for number := range cluster.Members {
		lead(t, cluster, number)
		if _, err := in.clients[number].Put(in.context(), fmt.Sprint("k", number), "v"); err != nil {
			t.Fatal(err)
		}
		zones(fmt.Sprintf("a put, led by %s", cluster.Members[number].Kind))
	}
	for number, member := range cluster.Members {
		member.Kill()
		member.Run()
		for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(50 * time.Millisecond) {
			if _, err := in.clients[number].Put(in.context(), fmt.Sprint("again", number), "v"); err == nil {
				break
			} else if time.Now().After(deadline) {
				t.Fatalf("member %d takes no writes: %v", number, err)
			}
		}
		zones(fmt.Sprintf("%s has replayed its log", member.Kind))
	}
}
