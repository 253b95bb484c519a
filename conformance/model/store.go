// Package model is a small in-memory etcd: what a client may observe of the
// key-value, lease and watch services of one member, written for reading, not
// for speed. The random tests prove it against the genuine server first.
package model

import (
	"sort"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
)

// Store answers requests as etcd would. Answers carry no cluster id, member id
// or term.
type Store struct {
	revision  int64
	compacted int64
	// history holds each key's versions, oldest first; a nil pair is a
	// tombstone.
	history map[string][]version
	// changes holds every event since the start, in order.
	changes []change
	leases  map[int64]*lease
}

type version struct {
	revision int64
	pair     *mvccpb.KeyValue
}

type change struct {
	revision int64
	event    *mvccpb.Event
	// before is the pair at the revision before this one.
	before *mvccpb.KeyValue
}

type lease struct {
	ttl  int64
	keys map[string]bool
}

// New is an empty store, at revision 1.
func New() *Store {
	// Nothing compacted is -1, which a transaction can see: a range at
	// revision -1 in it is accepted until the first compaction.
	return &Store{revision: 1, compacted: -1, history: map[string][]version{}, leases: map[int64]*lease{}}
}

// Revision is the current revision.
func (s *Store) Revision() int64 { return s.revision }

// Compacted is the last compacted revision, -1 if there is none.
func (s *Store) Compacted() int64 { return s.compacted }

// PutAgain tells whether the transaction of a revision deleted a key and then
// put it.
func (s *Store) PutAgain(revision int64) bool {
	first := sort.Search(len(s.changes), func(i int) bool { return s.changes[i].revision >= revision })
	deleted := map[string]bool{}
	for _, change := range s.changes[first:] {
		if change.revision != revision {
			break
		}
		key := string(change.event.Kv.Key)
		if change.event.Type == mvccpb.Event_DELETE {
			deleted[key] = true
		} else if deleted[key] {
			return true
		}
	}
	return false
}

func (s *Store) header() *pb.ResponseHeader { return &pb.ResponseHeader{Revision: s.revision} }

// interval is a key, or the keys from `from` up to `end` (to the last key if
// end is "\0").
type interval struct{ from, end string }

func (i interval) contains(key string) bool {
	switch i.end {
	case "":
		return key == i.from
	case "\x00":
		return key >= i.from
	default:
		return key >= i.from && key < i.end
	}
}

// at is the pair of a key at a revision, nil if there is none.
func (s *Store) at(key string, revision int64) *mvccpb.KeyValue {
	versions := s.history[key]
	for i := len(versions) - 1; i >= 0; i-- {
		if versions[i].revision <= revision {
			return versions[i].pair
		}
	}
	return nil
}

// pairs are the pairs of an interval at a revision, in key order.
func (s *Store) pairs(in interval, revision int64) []*mvccpb.KeyValue {
	var found []*mvccpb.KeyValue
	if in.end == "" {
		if pair := s.at(in.from, revision); pair != nil {
			found = append(found, pair)
		}
		return found
	}
	for key := range s.history {
		if !in.contains(key) {
			continue
		}
		if pair := s.at(key, revision); pair != nil {
			found = append(found, pair)
		}
	}
	sort.Slice(found, func(i, j int) bool { return string(found[i].Key) < string(found[j].Key) })
	return found
}
