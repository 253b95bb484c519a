package history

import (
	"context"
	"testing"

	"cairn.dev/conformance/harness"
	"cairn.dev/conformance/model"
	"cairn.dev/conformance/workload"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/protobuf/proto"
)

// both is a reference that keeps the model of what it was asked, so that a
// generator knows what exists.
type both struct {
	target
	store modelTarget
}

func (b both) Do(ctx context.Context, request proto.Message) (proto.Message, error) {
	b.store.Do(ctx, request)
	return b.target.Do(ctx, request)
}

// The genuine server and the one under test answer the same requests equally,
// field by field, and have the same hash after the same history.
func TestSameAnswersAsEtcd(t *testing.T) {
	seed := harness.Seed(t)
	count := harness.Number(t, "OPERATIONS", 20_000) / 2
	etcd, subject := harness.StartPair(t)
	store := model.New()
	requests := workload.NewWild(seed, store)
	run := &comparison{
		t:         t,
		reference: both{newStubs(etcd.Conn()), modelTarget{store}},
		subject:   newStubs(subject.Conn()),
	}
	for range count {
		run.ask(requests.Next())
		if requests.Chance(2) {
			run.ask(requests.HashKV())
		}
	}
	run.ask(&pb.HashKVRequest{Revision: store.Revision()})
	// Once a compaction has finished its own hash can be asked for: it covers
	// what came since the compaction before.
	for range 2 {
		run.ask(&pb.PutRequest{Key: []byte("k00")})
		run.ask(&pb.DeleteRangeRequest{Key: []byte("k00")})
		run.ask(&pb.CompactionRequest{Revision: store.Revision(), Physical: true})
		run.ask(&pb.HashKVRequest{Revision: store.Revision()})
	}
}
