package model

import (
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
)

// Compact answers KV.Compact. The model keeps all versions and only remembers
// the mark: what a compaction removes is what nobody can read any more.
func (s *Store) Compact(request *pb.CompactionRequest) (*pb.CompactionResponse, error) {
	if request.Revision <= s.compacted {
		return nil, rpctypes.ErrGRPCCompacted
	}
	if request.Revision > s.revision {
		return nil, rpctypes.ErrGRPCFutureRev
	}
	s.compacted = request.Revision
	return &pb.CompactionResponse{Header: s.header()}, nil
}
