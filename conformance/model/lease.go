package model

import (
	"sort"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
)

const (
	// leaseTTLMin is the smallest TTL with the default election timeout, in
	// seconds.
	leaseTTLMin = 2
	leaseTTLMax = 9_000_000_000
)

// LeaseGrant answers Lease.LeaseGrant for a request with an id. Time does not
// pass in the model: leases must be long.
func (s *Store) LeaseGrant(request *pb.LeaseGrantRequest) (*pb.LeaseGrantResponse, error) {
	if request.TTL > leaseTTLMax {
		return nil, rpctypes.ErrGRPCLeaseTTLTooLarge
	}
	if s.leases[request.ID] != nil {
		return nil, rpctypes.ErrGRPCLeaseExist
	}
	ttl := max(request.TTL, leaseTTLMin)
	s.leases[request.ID] = &lease{ttl: ttl, keys: map[string]bool{}}
	return &pb.LeaseGrantResponse{Header: s.header(), ID: request.ID, TTL: ttl}, nil
}

// LeaseRevoke answers Lease.LeaseRevoke.
func (s *Store) LeaseRevoke(request *pb.LeaseRevokeRequest) (*pb.LeaseRevokeResponse, error) {
	found := s.leases[request.ID]
	if found == nil {
		return nil, rpctypes.ErrGRPCLeaseNotFound
	}
	w := s.write()
	for _, key := range found.sortedKeys() {
		w.remove(w.at(key, w.base))
	}
	w.finish()
	delete(s.leases, request.ID)
	return &pb.LeaseRevokeResponse{Header: s.header()}, nil
}

// LeaseKeepAlive is one answer of Lease.LeaseKeepAlive: TTL 0 if there is no
// such lease.
func (s *Store) LeaseKeepAlive(request *pb.LeaseKeepAliveRequest) *pb.LeaseKeepAliveResponse {
	response := &pb.LeaseKeepAliveResponse{Header: s.header(), ID: request.ID}
	if found := s.leases[request.ID]; found != nil {
		response.TTL = found.ttl
	}
	return response
}

// LeaseTimeToLive answers Lease.LeaseTimeToLive with the whole TTL and sorted
// keys; a server's TTL may be less and its keys may have any order.
func (s *Store) LeaseTimeToLive(request *pb.LeaseTimeToLiveRequest) *pb.LeaseTimeToLiveResponse {
	response := &pb.LeaseTimeToLiveResponse{Header: s.header(), ID: request.ID, TTL: -1}
	found := s.leases[request.ID]
	if found == nil {
		return response
	}
	response.TTL, response.GrantedTTL = found.ttl, found.ttl
	if request.Keys {
		for _, key := range found.sortedKeys() {
			response.Keys = append(response.Keys, []byte(key))
		}
	}
	return response
}

// LeaseLeases answers Lease.LeaseLeases, sorted by id; a server sorts by time
// of expiry.
func (s *Store) LeaseLeases() *pb.LeaseLeasesResponse {
	response := &pb.LeaseLeasesResponse{Header: s.header()}
	for id := range s.leases {
		response.Leases = append(response.Leases, &pb.LeaseStatus{ID: id})
	}
	sort.Slice(response.Leases, func(i, j int) bool { return response.Leases[i].ID < response.Leases[j].ID })
	return response
}

// LeaseIDs are the ids of the leases that exist, sorted.
func (s *Store) LeaseIDs() []int64 {
	var ids []int64
	for _, status := range s.LeaseLeases().Leases {
		ids = append(ids, status.ID)
	}
	return ids
}

func (l *lease) sortedKeys() []string {
	keys := make([]string, 0, len(l.keys))
	for key := range l.keys {
		keys = append(keys, key)
	}
	sort.Strings(keys)
	return keys
}
