package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"cairn.dev/conformance/harness"
	"cairn.dev/conformance/network"
)

// store is a cluster whose members live in networks of their own. One more
// place than there are members is free for the next one.
type store struct {
	t      *testing.T
	links  *network.Network
	places []*harness.Server
	made   int
}

const (
	clientPort, peerPort = 2379, 2380
	voters               = 3
	startMax             = 90 * time.Second
)

func newStore(t *testing.T) *store {
	t.Helper()
	s := &store{t: t, links: network.Around(t, voters+1), places: make([]*harness.Server, voters+1)}
	var initial []string
	for place := range voters {
		member := s.prepare(place)
		initial = append(initial, member.Name+"="+member.PeerURL())
	}
	for place := range voters {
		s.places[place].InitialCluster = strings.Join(initial, ",")
	}
	s.runAll()
	return s
}

// prepare has a member for a place, on an empty directory and not started.
func (s *store) prepare(place int) *harness.Server {
	member := harness.Prepare(s.t, harness.Subject(), filepath.Join(s.t.TempDir(), "data"))
	member.Name = fmt.Sprintf("m%d", s.made)
	s.made++
	member.Host, member.ClientPort, member.PeerPort = s.links.Host(place), clientPort, peerPort
	member.Place = func(start func() error) error { return s.links.Run(place, start) }
	s.places[place] = member
	return member
}

// runAll starts all members at once.
func (s *store) runAll() {
	s.t.Helper()
	type launched struct {
		member *harness.Server
		seen   int
	}
	var all []launched
	for _, member := range s.places {
		if member != nil {
			all = append(all, launched{member, member.Launch()})
		}
	}
	for _, one := range all {
		if err := one.member.AwaitReady(one.seen, startMax); err != nil {
			s.t.Fatal(err)
		}
	}
}

// endpoints are all places, those that are free now included.
func (s *store) endpoints() (all []string) {
	for place := range s.places {
		all = append(all, fmt.Sprintf("%s:%d", s.links.Host(place), clientPort))
	}
	return all
}

// leader is the place of the leader; it waits for one.
func (s *store) leader() (leader int) {
	s.t.Helper()
	await(s.t, "a leader", func(ctx context.Context) error {
		for place, member := range s.places {
			if member == nil {
				continue
			}
			status, err := status(ctx, member.Endpoint())
			if err == nil && status.Leader == status.Header.MemberId && status.Leader != 0 {
				leader = place
				return nil
			}
		}
		return errors.New("nobody leads")
	})
	return leader
}

// follower is the place of a member that does not lead.
func (s *store) follower() int {
	leader := s.leader()
	for place, member := range s.places {
		if member != nil && place != leader {
			return place
		}
	}
	panic("one member")
}

// replace puts a new member into the free place: a learner that is promoted,
// after which the old member is removed.
func (s *store) replace(old int) {
	s.t.Helper()
	free := 0
	for s.places[free] != nil {
		free++
	}
	leaving := s.places[old]
	member := s.prepare(free)
	client := newClient(s.t, s.endpoints())
	var id, leavingID uint64
	await(s.t, "add a learner", func(ctx context.Context) error {
		// An earlier try may have had no answer.
		_, err := client.MemberAddAsLearner(ctx, []string{member.PeerURL()})
		if err != nil && !errors.Is(err, rpctypes.ErrPeerURLExist) {
			return err
		}
		listed, err := client.MemberList(ctx)
		if err != nil {
			return err
		}
		var initial []string
		for _, one := range listed.Members {
			name := one.Name
			switch one.PeerURLs[0] {
			case member.PeerURL():
				id, name = one.ID, member.Name
			case leaving.PeerURL():
				leavingID = one.ID
			}
			initial = append(initial, name+"="+one.PeerURLs[0])
		}
		member.InitialCluster, member.InitialState = strings.Join(initial, ","), "existing"
		return nil
	})
	if err := member.TryRun(startMax); err != nil {
		s.t.Fatal(err)
	}
	await(s.t, "promote the learner", func(ctx context.Context) error {
		_, err := client.MemberPromote(ctx, id)
		if errors.Is(err, rpctypes.ErrMemberNotLearner) {
			return nil
		}
		return err
	})
	await(s.t, "remove the old member", func(ctx context.Context) error {
		_, err := client.MemberRemove(ctx, leavingID)
		if errors.Is(err, rpctypes.ErrMemberNotFound) {
			return nil
		}
		return err
	})
	if _, err := leaving.Wait(startMax); err != nil {
		leaving.Stop()
	}
	s.places[old] = nil
}

func newClient(t testing.TB, endpoints []string) *clientv3.Client {
	t.Helper()
	client, err := clientv3.New(clientv3.Config{Endpoints: endpoints, DialTimeout: 5 * time.Second, Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	return client
}

// status asks one member.
func status(ctx context.Context, endpoint string) (*clientv3.StatusResponse, error) {
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{endpoint}, Logger: zap.NewNop()})
	if err != nil {
		return nil, err
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	return client.Status(ctx, endpoint)
}

// auditHashes waits until all members have the same hash of the same revisions.
func auditHashes(t testing.TB, endpoints []string) {
	t.Helper()
	clients := make([]*clientv3.Client, len(endpoints))
	for index, endpoint := range endpoints {
		clients[index] = newClient(t, []string{endpoint})
	}
	await(t, "hashes of the same revisions", func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, writeMax)
		defer cancel()
		last, err := clients[0].Get(ctx, "none")
		if err != nil {
			return err
		}
		revision := last.Header.Revision
		var first *clientv3.HashKVResponse
		for index, client := range clients {
			// A linearizable read makes the member level with the revision.
			if _, err := client.Get(ctx, "none"); err != nil {
				return err
			}
			hash, err := client.HashKV(ctx, endpoints[index], revision)
			if err != nil {
				return err
			}
			if first == nil {
				first = hash
			}
			if hash.CompactRevision != first.CompactRevision {
				return fmt.Errorf("compacted at %d and %d", hash.CompactRevision, first.CompactRevision)
			}
			if hash.Hash != first.Hash {
				t.Fatalf("%s has the hash %x at revision %d, %s has %x", endpoints[index], hash.Hash, revision, endpoints[0], first.Hash)
			}
		}
		t.Logf("%d members have the hash %x at revision %d, compacted at %d", len(clients), first.Hash, revision, first.CompactRevision)
		return nil
	})
}
