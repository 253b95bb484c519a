// Package workload makes random requests. The same seed makes the same
// requests as long as the answers are the same.
package workload

import (
	"math/rand/v2"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/protobuf/proto"
)

// State is what a generator knows of the server, so that its requests hit.
type State interface {
	Revision() int64
	Compacted() int64
	LeaseIDs() []int64
	PutAgain(revision int64) bool
}

// Generator makes one request after another.
type Generator struct {
	random *rand.Rand
	state  State
	// wild also makes requests that clientv3 would not send: empty keys,
	// negative numbers, unknown enum values, chosen lease ids.
	wild bool
	// next are requests that must follow the last one.
	next []proto.Message
}

// New is a generator of what clientv3 can express.
func New(seed uint64, state State) *Generator {
	return &Generator{random: rand.New(rand.NewPCG(seed, 0)), state: state}
}

// NewWild is a generator of everything that can be encoded.
func NewWild(seed uint64, state State) *Generator {
	generator := New(seed, state)
	generator.wild = true
	return generator
}

// Stream is a range that is to be asked with KV.RangeStream.
type Stream struct{ *pb.RangeRequest }

// Next is a request message, or a Stream.
func (g *Generator) Next() proto.Message {
	if len(g.next) > 0 {
		request := g.next[0]
		g.next = g.next[1:]
		return request
	}
	switch n := g.random.IntN(1000); {
	case n < 300:
		return g.put()
	case n < 560:
		return g.ranged()
	case n < 590:
		return g.stream()
	case n < 790:
		return g.wholeTxn()
	case n < 880:
		return g.deleteRange()
	case n < 910:
		return g.grant()
	case n < 925:
		return &pb.LeaseRevokeRequest{ID: g.leaseID()}
	case n < 950:
		return &pb.LeaseTimeToLiveRequest{ID: g.leaseID(), Keys: g.chance(50)}
	case n < 975:
		return &pb.LeaseKeepAliveRequest{ID: g.leaseID()}
	case n < 990:
		return &pb.LeaseLeasesRequest{}
	default:
		return g.compaction()
	}
}

// Watch is a request to watch from an old, the current or a future revision.
func (g *Generator) Watch() *pb.WatchCreateRequest {
	request := &pb.WatchCreateRequest{
		Key: g.key(), RangeEnd: g.rangeEnd(),
		PrevKv: g.chance(50), Fragment: g.chance(20), ProgressNotify: g.chance(20),
	}
	// An interval without keys is an error of its own.
	for end := string(request.RangeEnd); end != "" && end != "\x00" && end <= string(request.Key); end = string(request.RangeEnd) {
		request.RangeEnd = g.rangeEnd()
	}
	switch n := g.random.IntN(10); {
	case n < 5:
		request.StartRevision = g.between(max(1, g.state.Compacted()), g.state.Revision())
	case n < 6:
		request.StartRevision = g.between(1, g.state.Revision())
	case n < 7:
		request.StartRevision = g.state.Revision() + g.between(1, 20)
	}
	if g.chance(15) {
		request.Filters = append(request.Filters, pb.WatchCreateRequest_NOPUT)
	}
	if g.chance(15) {
		request.Filters = append(request.Filters, pb.WatchCreateRequest_NODELETE)
	}
	return request
}

// Chance is true in so many of a hundred cases.
func (g *Generator) Chance(percent int) bool { return g.chance(percent) }

// Below is a number from 0 to n-1.
func (g *Generator) Below(n int) int { return g.random.IntN(n) }

func (g *Generator) chance(percent int) bool { return g.random.IntN(100) < percent }

// rare is a chance that only wild generators have.
func (g *Generator) rare(percent int) bool { return g.wild && g.chance(percent) }

// between is a number of the inclusive interval.
func (g *Generator) between(from, to int64) int64 {
	if to <= from {
		return from
	}
	return from + g.random.Int64N(to-from+1)
}

func pick[T any](g *Generator, choices ...T) T { return choices[g.random.IntN(len(choices))] }
