package model

import (
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
)

// writer makes the changes of one request; all of them have one revision.
type writer struct {
	*Store
	// base is the revision before the request.
	base    int64
	changed bool
}

func (s *Store) write() *writer { return &writer{Store: s, base: s.revision} }

// visible is the revision that reads inside the request see.
func (w *writer) visible() int64 {
	if w.changed {
		return w.base + 1
	}
	return w.base
}

func (w *writer) finish() {
	w.revision = w.visible()
}

// Put answers KV.Put.
func (s *Store) Put(request *pb.PutRequest) (*pb.PutResponse, error) {
	if err := checkPut(request); err != nil {
		return nil, err
	}
	if err := s.checkPutState(request); err != nil {
		return nil, err
	}
	w := s.write()
	response := w.put(request)
	w.finish()
	return response, nil
}

func checkPut(request *pb.PutRequest) error {
	if len(request.Key) == 0 {
		return rpctypes.ErrGRPCEmptyKey
	}
	if request.IgnoreValue && len(request.Value) != 0 {
		return rpctypes.ErrGRPCValueProvided
	}
	if request.IgnoreLease && request.Lease != 0 {
		return rpctypes.ErrGRPCLeaseProvided
	}
	return nil
}

// checkPutState is what must hold before the request, also for a put that a
// transaction will take.
func (s *Store) checkPutState(request *pb.PutRequest) error {
	if request.Lease != 0 && s.leases[request.Lease] == nil {
		return rpctypes.ErrGRPCLeaseNotFound
	}
	if (request.IgnoreValue || request.IgnoreLease) && s.at(string(request.Key), s.revision) == nil {
		return rpctypes.ErrGRPCKeyNotFound
	}
	return nil
}

func (w *writer) put(request *pb.PutRequest) *pb.PutResponse {
	key := string(request.Key)
	previous := w.at(key, w.visible())
	revision := w.base + 1
	pair := &mvccpb.KeyValue{
		Key: request.Key, Value: request.Value, Lease: request.Lease,
		CreateRevision: revision, ModRevision: revision, Version: 1,
	}
	if previous != nil {
		pair.CreateRevision, pair.Version = previous.CreateRevision, previous.Version+1
		if request.IgnoreValue {
			pair.Value = previous.Value
		}
		if request.IgnoreLease {
			pair.Lease = previous.Lease
		}
	}
	w.detach(key, previous)
	if pair.Lease != 0 {
		w.leases[pair.Lease].keys[key] = true
	}
	w.record(key, pair, &mvccpb.Event{Type: mvccpb.Event_PUT, Kv: pair})
	response := &pb.PutResponse{Header: &pb.ResponseHeader{Revision: revision}}
	if request.PrevKv {
		response.PrevKv = clone(previous)
	}
	return response
}

// DeleteRange answers KV.DeleteRange.
func (s *Store) DeleteRange(request *pb.DeleteRangeRequest) (*pb.DeleteRangeResponse, error) {
	if len(request.Key) == 0 {
		return nil, rpctypes.ErrGRPCEmptyKey
	}
	w := s.write()
	response := w.deleteRange(request)
	w.finish()
	return response, nil
}

func (w *writer) deleteRange(request *pb.DeleteRangeRequest) *pb.DeleteRangeResponse {
	found := w.pairs(interval{string(request.Key), string(request.RangeEnd)}, w.visible())
	for _, pair := range found {
		w.remove(pair)
	}
	response := &pb.DeleteRangeResponse{
		Header:  &pb.ResponseHeader{Revision: w.visible()},
		Deleted: int64(len(found)),
	}
	if request.PrevKv {
		response.PrevKvs = cloneAll(found)
	}
	return response
}

func (w *writer) remove(pair *mvccpb.KeyValue) {
	key := string(pair.Key)
	w.detach(key, pair)
	tombstone := &mvccpb.KeyValue{Key: pair.Key, ModRevision: w.base + 1}
	w.record(key, nil, &mvccpb.Event{Type: mvccpb.Event_DELETE, Kv: tombstone})
}

func (w *writer) detach(key string, pair *mvccpb.KeyValue) {
	if pair != nil && pair.Lease != 0 {
		delete(w.leases[pair.Lease].keys, key)
	}
}

func (w *writer) record(key string, pair *mvccpb.KeyValue, event *mvccpb.Event) {
	before := w.at(key, w.base)
	w.changed = true
	w.history[key] = append(w.history[key], version{w.base + 1, pair})
	w.changes = append(w.changes, change{w.base + 1, event, before})
}
