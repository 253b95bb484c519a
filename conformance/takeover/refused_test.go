package takeover

import (
	"context"
	"errors"
	"path/filepath"
	"testing"
	"time"

	"cairn.dev/conformance/harness"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"go.etcd.io/etcd/server/v3/storage/wal"
	"go.etcd.io/etcd/server/v3/storage/wal/walpb"
	"go.etcd.io/raft/v3/raftpb"
	"go.uber.org/zap"
	"google.golang.org/protobuf/proto"
)

// quorumMax is how long members may take to elect a leader and to write.
const quorumMax = 30 * time.Second

// A `member add` that etcd refuses for its peer URLs is in etcd's log like any
// other. It adds no voter to members that are taken over, nor to those that go
// back to etcd: one alone goes on, and with ROUNDS two of three do.
func TestRefusedAddition(t *testing.T) {
	t.Parallel()
	size := 1
	if harness.Number(t, "ROUNDS", 1) > 1 {
		size = 3
	}
	s := stageIn(t, nil, harness.Etcd, size, "--strict-reconfig-check=false")
	own, known := s.direct(s.running["m0"]), map[uint64]bool{}
	if _, err := own.MemberAdd(harness.Context(t), []string{s.running["m0"].PeerURL()}); !errors.Is(err, rpctypes.ErrPeerURLExist) {
		t.Fatalf("a member with the peer URLs of another one: %v", err)
	}
	members, err := own.MemberList(harness.Context(t))
	if err != nil || len(members.Members) != size {
		t.Fatalf("members: %v, %v", members, err)
	}
	for _, member := range members.Members {
		known[member.ID] = true
	}
	s.before = func(server *harness.Server) {
		if added := strangers(t, server.DataDir, known); len(added) != 1 {
			t.Errorf("the log of %s adds %x beside the members", server.Name, added)
		}
	}
	s.move()
	s.only(harness.Cairn, size)
	s.withoutLeader()
	if size > 1 {
		s.before = nil
		s.move("--back")
		s.only(harness.Etcd, size)
		s.withoutLeader()
	}
}

// strangers are those whom configuration changes behind the newest snapshot add
// to the log of a stopped etcd, and who are not known.
func strangers(t *testing.T, dir string, known map[uint64]bool) (added []uint64) {
	t.Helper()
	dir = filepath.Join(dir, "member", "wal")
	snapshots, err := wal.ValidSnapshotEntries(zap.NewNop(), dir)
	if err != nil {
		t.Error(err)
		return nil
	}
	newest := &walpb.Snapshot{}
	if len(snapshots) > 0 {
		newest = snapshots[len(snapshots)-1]
	}
	log, err := wal.OpenForRead(zap.NewNop(), dir, newest)
	if err != nil {
		t.Error(err)
		return nil
	}
	defer log.Close()
	_, _, entries, err := log.ReadAll()
	if err != nil {
		t.Error(err)
	}
	for _, entry := range entries {
		if entry.GetType() != raftpb.EntryConfChange {
			continue
		}
		var change raftpb.ConfChange
		if err := proto.Unmarshal(entry.Data, &change); err != nil {
			t.Error(err)
		} else if change.GetType() == raftpb.ConfChangeAddNode && !known[change.GetNodeId()] {
			added = append(added, change.GetNodeId())
		}
	}
	return added
}

// withoutLeader stops the member that leads, unless it is alone: there is still a
// quorum.
func (s *stage) withoutLeader() {
	s.t.Helper()
	all := s.members()
	ctx, cancel := context.WithTimeout(harness.Context(s.t), quorumMax)
	defer cancel()
	if len(all) > 1 {
		leader := s.leader()
		leader.Stop()
		defer func() {
			if err := s.launch(leader); err != nil {
				s.t.Error(err)
			}
		}()
	}
	if _, err := s.client(s.endpoints()...).Put(ctx, "key", "value"); err != nil {
		s.t.Errorf("%d of %d members take no writes: %v", len(s.members()), len(all), err)
	}
}

// leader waits for the member that leads.
func (s *stage) leader() (leader *harness.Server) {
	s.t.Helper()
	s.await("a member leads", func() bool {
		for _, member := range s.members() {
			own := s.direct(member)
			status, err := own.Status(harness.Context(s.t), member.Endpoint())
			own.Close()
			if err == nil && status.Leader == status.Header.MemberId {
				leader = member
				return true
			}
		}
		return false
	})
	return leader
}
