package model

import (
	"slices"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/protobuf/proto"
)

// Events are the events that a watch created by the request delivers from its
// start revision up to now. Before is the previous pair of each, whether or
// not the request asks for it.
func (s *Store) Events(request *pb.WatchCreateRequest) []WatchEvent {
	in := interval{string(request.Key), string(request.RangeEnd)}
	if in.from == "" {
		in.from = "\x00"
	}
	var events []WatchEvent
	for _, change := range s.changes {
		if change.revision < request.StartRevision || !in.contains(string(change.event.Kv.Key)) {
			continue
		}
		if slices.Contains(request.Filters, pb.WatchCreateRequest_NOPUT) && change.event.Type == mvccpb.Event_PUT ||
			slices.Contains(request.Filters, pb.WatchCreateRequest_NODELETE) && change.event.Type == mvccpb.Event_DELETE {
			continue
		}
		event := WatchEvent{Event: proto.Clone(change.event).(*mvccpb.Event)}
		if event.Kv.CreateRevision != event.Kv.ModRevision {
			event.Before = clone(change.before)
		}
		events = append(events, event)
	}
	return events
}

// WatchEvent is an event and the pair that it replaced.
type WatchEvent struct {
	*mvccpb.Event
	Before *mvccpb.KeyValue
}
