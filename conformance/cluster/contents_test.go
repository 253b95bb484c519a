package cluster

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"cairn.dev/conformance/harness"
	bolt "go.etcd.io/bbolt"
	"go.etcd.io/etcd/api/v3/authpb"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/lease/leasepb"
	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"
)

// insider has what a member of the cluster has: it puts entries into the log,
// and looks at all that each member has made of them.
type insider struct {
	t       *testing.T
	cluster *harness.Cluster
	clients []*clientv3.Client
	// token is root's while users are asked for.
	token string
	next  uint64
}

func newInsider(t *testing.T, cluster *harness.Cluster) *insider {
	in := &insider{t: t, cluster: cluster, next: 1 << 40}
	for _, member := range cluster.Members {
		in.clients = append(in.clients, member.Client())
	}
	return in
}

// context is one of a call: a member that has ended must not hold a test up.
func (in *insider) context() context.Context {
	ctx, cancel := context.WithTimeout(in.t.Context(), 60*time.Second)
	in.t.Cleanup(cancel)
	if in.token != "" {
		return withToken(ctx, in.token)
	}
	return ctx
}

// status is what each member says of itself.
func (in *insider) status() []*clientv3.StatusResponse {
	in.t.Helper()
	var all []*clientv3.StatusResponse
	for number, client := range in.clients {
		var status *clientv3.StatusResponse
		var err error
		// A token may reach a member after the call.
		for range 3000 {
			status, err = client.Status(in.context(), in.cluster.Members[number].Endpoint())
			if !errors.Is(err, rpctypes.ErrInvalidAuthToken) {
				break
			}
			time.Sleep(20 * time.Millisecond)
		}
		if err != nil {
			in.t.Fatalf("member %d: %v", number, err)
		}
		all = append(all, status)
	}
	return all
}

// leader is the number of the member that leads.
func (in *insider) leader() int {
	in.t.Helper()
	for deadline := time.Now().Add(60 * time.Second); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		for number, status := range in.status() {
			if status.Leader == status.Header.MemberId {
				return number
			}
		}
	}
	in.t.Fatal("no leader")
	return 0
}

// propose puts entries into the log, as a member forwards those of its clients
// to the leader, and waits until every member has applied them.
func (in *insider) propose(requests ...*pb.InternalRaftRequest) {
	in.t.Helper()
	in.settled(in.send(requests...))
}

// send puts entries into the log, and returns the index that the last of them
// has at least.
func (in *insider) send(requests ...*pb.InternalRaftRequest) uint64 {
	in.t.Helper()
	leader, all := in.leader(), in.status()
	from := all[(leader+1)%len(all)].Header.MemberId
	message := &raftpb.Message{Type: raftpb.MsgProp.Enum(), From: &from, To: &all[leader].Header.MemberId}
	for _, request := range requests {
		if request.Header == nil {
			request.Header = &pb.RequestHeader{}
		}
		in.next++
		request.Header.ID = in.next
		data, err := proto.Marshal(request)
		if err != nil {
			in.t.Fatal(err)
		}
		message.Entries = append(message.Entries, &raftpb.Entry{Data: data})
	}
	body, err := proto.Marshal(message)
	if err != nil {
		in.t.Fatal(err)
	}
	post, err := http.NewRequest(http.MethodPost, in.cluster.Members[leader].PeerURL()+"/raft", bytes.NewReader(body))
	if err != nil {
		in.t.Fatal(err)
	}
	for name, value := range map[string]string{
		"Content-Type": "application/protobuf", "X-Server-From": fmt.Sprintf("%x", from), "X-Server-Version": "3.7.3",
		"X-Min-Cluster-Version": "3.0.0", "X-Etcd-Cluster-ID": fmt.Sprintf("%x", all[leader].Header.ClusterId),
	} {
		post.Header.Set(name, value)
	}
	answer, err := http.DefaultClient.Do(post)
	if err != nil {
		in.t.Fatal(err)
	}
	text, _ := io.ReadAll(answer.Body)
	answer.Body.Close()
	if answer.StatusCode != http.StatusNoContent {
		in.t.Fatalf("the leader does not take entries: %s %s", answer.Status, text)
	}
	return all[leader].RaftIndex + uint64(len(requests))
}

// settled waits until every member has applied an entry, and all after it.
func (in *insider) settled(index uint64) {
	in.t.Helper()
	var seen []string
	for deadline := time.Now().Add(60 * time.Second); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		seen = nil
		level := true
		all := in.status()
		for _, status := range all {
			level = level && status.RaftAppliedIndex >= index && status.RaftAppliedIndex == all[0].RaftIndex
			seen = append(seen, fmt.Sprintf("applied %d of %d", status.RaftAppliedIndex, status.RaftIndex))
		}
		if level {
			return
		}
	}
	in.t.Fatalf("entry %d is not applied by all: %v", index, seen)
}

// same fails the test where the members differ in anything that they share.
func (in *insider) same(what string) {
	in.t.Helper()
	var all []string
	for deadline := time.Now().Add(60 * time.Second); time.Now().Before(deadline); time.Sleep(100 * time.Millisecond) {
		all = nil
		for number := range in.clients {
			all = append(all, in.contents(number))
		}
		if slices.Equal(all[1:], all[:len(all)-1]) {
			return
		}
	}
	for number, one := range all[1:] {
		if one != all[0] {
			in.t.Fatalf("after %s member 0 (%s) and member %d (%s) differ:\n%s", what, in.cluster.Members[0].Kind, number+1,
				in.cluster.Members[number+1].Kind, difference(all[0], one))
		}
	}
}

// difference is the lines that only one of two texts has.
func difference(one, other string) string {
	var text strings.Builder
	lines := [2][]string{strings.Split(one, "\n"), strings.Split(other, "\n")}
	for side, sign := range []string{"- ", "+ "} {
		for _, line := range lines[side] {
			if !slices.Contains(lines[1-side], line) {
				fmt.Fprintln(&text, sign+line)
			}
		}
	}
	return text.String()
}

// contents is all that a member has: the hash of its history, and every row of
// its snapshot that is none of a key's.
func (in *insider) contents(number int) string {
	in.t.Helper()
	client, member := in.clients[number], in.cluster.Members[number]
	hash, err := client.HashKV(in.context(), member.Endpoint(), 0)
	if err != nil {
		in.t.Fatal(err)
	}
	lines := []string{fmt.Sprintf("revision %d, hash %x, compacted %d", hash.Header.Revision, hash.Hash, hash.CompactRevision)}
	snapshot, err := client.Snapshot(in.context())
	if err != nil {
		in.t.Fatal(err)
	}
	image, err := io.ReadAll(snapshot)
	snapshot.Close()
	path := filepath.Join(in.t.TempDir(), "db")
	if err == nil {
		err = os.WriteFile(path, image, 0o600)
	}
	var db *bolt.DB
	if err == nil {
		db, err = bolt.Open(path, 0o600, &bolt.Options{ReadOnly: true})
	}
	if err == nil {
		err = errors.Join(db.View(func(tx *bolt.Tx) error {
			return tx.ForEach(func(name []byte, bucket *bolt.Bucket) error {
				return bucket.ForEach(func(key, value []byte) error {
					line, err := row(string(name), key, value)
					if line != "" {
						lines = append(lines, line)
					}
					return err
				})
			})
		}), db.Close(), os.Remove(path))
	}
	if err != nil {
		in.t.Fatal(err)
	}
	return strings.Join(lines, "\n")
}

// row is what a row of a snapshot says, if members share it.
func row(bucket string, key, value []byte) (string, error) {
	var message proto.Message
	switch bucket {
	case "key", "meta", "test":
		return "", nil
	case "lease":
		message = &leasepb.Lease{}
	case "authUsers":
		message = &authpb.User{}
	case "authRoles":
		message = &authpb.Role{}
	case "alarm":
		alarm := &pb.AlarmMember{}
		err := proto.Unmarshal(key, alarm)
		return fmt.Sprintf("alarm %d of %x", alarm.Alarm, alarm.MemberID), err
	case "auth":
		if string(key) == "authRevision" {
			return fmt.Sprintf("auth revision %d", binary.BigEndian.Uint64(value)), nil
		}
		if value[0] == 0 {
			return "", nil
		}
	case "members":
		var member map[string]any
		err := json.Unmarshal(value, &member)
		return fmt.Sprintf("member %s %v", key, member), err
	case "cluster":
		if string(key) == "downgrade" && strings.Contains(string(value), `"enabled":false`) {
			return "", nil
		}
	}
	if message == nil {
		return fmt.Sprintf("%s %q %q", bucket, key, value), nil
	}
	if err := proto.Unmarshal(value, message); err != nil {
		return "", err
	}
	// Its text has spaces at random.
	text := strings.Join(strings.Fields(prototext.Format(message)), " ")
	return fmt.Sprintf("%s %q %s", bucket, key, text), nil
}
