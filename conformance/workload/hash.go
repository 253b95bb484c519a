package workload

import pb "go.etcd.io/etcd/api/v3/etcdserverpb"

// HashKV asks for the hash at a revision that is not compacted, or cannot be
// served. A revision that was compacted at exactly is left out: etcd may serve
// it from a cache, depending on whether the compaction has finished. So is 0
// (the current one), which that cache confuses with a compaction at 0.
func (g *Generator) HashKV() *pb.HashKVRequest {
	request := &pb.HashKVRequest{Revision: g.state.Revision()}
	switch n := g.random.IntN(10); {
	case n < 5:
		request.Revision = g.between(max(1, g.state.Compacted()+1), g.state.Revision())
	case n < 6:
		request.Revision = g.state.Revision() + g.between(1, 5)
	}
	if request.Revision == g.state.Compacted() {
		request.Revision++
	}
	return request
}
