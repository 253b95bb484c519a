package history

import (
	"context"
	"fmt"
	"testing"
	"time"

	"cairn.dev/conformance/harness"
	"cairn.dev/conformance/workload"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"
)

const (
	callMax = time.Minute
	// After a difference in an answer that changed nothing the run goes on,
	// to find more of them.
	differencesMax = 10
)

// comparison asks a reference and a subject the same and compares.
type comparison struct {
	t                  testing.TB
	reference, subject target
	// asSeen turns an answer of the reference into what the subject's client
	// shows of it.
	asSeen func(proto.Message, error) (proto.Message, error)
	// ttlAdded is what a new leader has added to the subject's leases, in
	// seconds: in the first millisecond nothing of it has passed.
	ttlAdded    int64
	count       int
	differences int
}

// ask sends one request to the subject, then to the reference.
func (c *comparison) ask(request proto.Message) {
	c.t.Helper()
	c.count++
	ctx, cancel := context.WithTimeout(c.t.Context(), callMax)
	defer cancel()
	got, gotErr := c.subject.Do(ctx, request)
	want, wantErr := c.reference.Do(ctx, request)
	if c.asSeen != nil {
		want, wantErr = c.asSeen(want, wantErr)
	}
	plain := request
	if stream, ok := request.(workload.Stream); ok {
		plain = stream.RangeRequest
	}
	normalize(plain, want, 0)
	normalize(plain, got, c.ttlAdded)
	difference := harness.Diff(want, wantErr, got, gotErr)
	if difference == "" {
		return
	}
	c.differences++
	report := fmt.Sprintf("request %d: %T {%s}\n%s", c.count, request, shorten(prototext.Format(plain)), shorten(difference))
	if !readsOnly(request) || c.differences >= differencesMax {
		c.t.Fatal(report)
	}
	c.t.Error(report)
}

func readsOnly(request proto.Message) bool {
	switch request.(type) {
	case *pb.RangeRequest, workload.Stream, *pb.HashKVRequest,
		*pb.LeaseTimeToLiveRequest, *pb.LeaseLeasesRequest, *pb.LeaseKeepAliveRequest:
		return true
	default:
		return false
	}
}

func shorten(text string) string {
	const max = 6000
	if len(text) > max {
		return text[:max] + " ..."
	}
	return text
}
