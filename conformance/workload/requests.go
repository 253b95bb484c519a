package workload

import (
	"math"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

func (g *Generator) put() *pb.PutRequest {
	request := &pb.PutRequest{Key: g.key(), Value: g.value(), PrevKv: g.chance(25)}
	if g.chance(20) {
		request.Lease = g.leaseID()
	}
	if g.chance(6) {
		request.IgnoreValue = true
		if !g.chance(10) {
			request.Value = nil
		}
	}
	if g.chance(6) {
		request.IgnoreLease = true
		if !g.chance(10) {
			request.Lease = 0
		}
	}
	return request
}

func (g *Generator) deleteRange() *pb.DeleteRangeRequest {
	request := &pb.DeleteRangeRequest{Key: g.key(), PrevKv: g.chance(40)}
	if g.chance(25) {
		request.RangeEnd = g.rangeEnd()
	}
	return request
}

func (g *Generator) ranged() *pb.RangeRequest {
	request := &pb.RangeRequest{
		Key: g.key(), RangeEnd: g.rangeEnd(), Revision: g.revision(),
		Serializable: g.chance(30), KeysOnly: g.chance(15), CountOnly: g.chance(10),
	}
	if g.chance(40) {
		request.Limit = g.between(1, 12)
	}
	if g.chance(40) {
		request.SortOrder = pick(g, pb.RangeRequest_NONE, pb.RangeRequest_ASCEND, pb.RangeRequest_DESCEND)
		request.SortTarget = pb.RangeRequest_SortTarget(g.random.IntN(5))
	}
	for _, filter := range []*int64{
		&request.MinModRevision, &request.MaxModRevision, &request.MinCreateRevision, &request.MaxCreateRevision,
	} {
		if g.chance(7) {
			*filter = g.between(max(1, g.state.Revision()-200), g.state.Revision()+1)
		}
		if g.rare(1) {
			*filter = g.oddNumber()
		}
	}
	if g.rare(2) {
		request.Limit = g.oddNumber()
	}
	if g.rare(1) {
		request.SortOrder = pick[pb.RangeRequest_SortOrder](g, -1, 3, math.MaxInt32)
	}
	if g.rare(1) {
		request.SortTarget = pick[pb.RangeRequest_SortTarget](g, -1, 5, math.MaxInt32)
	}
	return request
}

// compaction mostly leaves some history.
func (g *Generator) compaction() *pb.CompactionRequest {
	request := &pb.CompactionRequest{Physical: g.chance(50)}
	switch n := g.random.IntN(10); {
	case n < 6:
		request.Revision = g.between(max(1, g.state.Compacted()), g.state.Revision()-50)
	case n < 8:
		request.Revision = g.between(1, g.state.Revision())
	case n < 9:
		request.Revision = g.state.Revision() + g.between(0, 1)
	default:
		request.Revision = max(0, g.state.Compacted())
	}
	if g.rare(5) {
		request.Revision = g.oddNumber()
	}
	// etcd loses what was put again at the compacted revision, and ends when it
	// is read.
	for g.state.PutAgain(request.Revision) {
		request.Revision--
	}
	return request
}

// grant makes long leases: time must not end one while a test looks at it.
func (g *Generator) grant() *pb.LeaseGrantRequest {
	request := &pb.LeaseGrantRequest{TTL: g.between(10_000, 20_000)}
	if !g.wild {
		return request
	}
	request.ID = g.between(-50, 1000)
	if request.ID == 0 {
		request.ID = math.MinInt64
	}
	if g.chance(10) {
		request.TTL = pick[int64](g, 9_000_000_000, 9_000_000_001, math.MaxInt64)
	}
	if g.chance(10) {
		request.TTL = pick[int64](g, 0, -1, 1, math.MinInt64)
		// It would end soon.
		g.next = append(g.next, &pb.LeaseRevokeRequest{ID: request.ID})
	}
	return request
}

// stream is a range for KV.RangeStream. With a sort target but no order etcd
// sorts within each chunk and continues behind the last of it, so that keys
// are left out: nothing to compare with.
func (g *Generator) stream() Stream {
	request := g.ranged()
	if request.SortOrder == pb.RangeRequest_NONE {
		request.SortTarget = pb.RangeRequest_KEY
	}
	return Stream{request}
}
