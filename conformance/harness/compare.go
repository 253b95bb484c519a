package harness

import (
	"errors"
	"fmt"

	"github.com/google/go-cmp/cmp"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"
)

// Diff compares two answers (message and error) and returns "" if a client
// cannot tell them apart. The header's ids and term belong to the server; they
// are cleared. Errors are compared by code and text.
func Diff(want proto.Message, wantErr error, got proto.Message, gotErr error) string {
	if wantErr != nil || gotErr != nil {
		return diffErrors(wantErr, gotErr)
	}
	ClearHeader(want)
	ClearHeader(got)
	if proto.Equal(want, got) {
		return ""
	}
	return cmp.Diff(want, got, protocmp.Transform())
}

// ClearHeader removes the server's own numbers from a response's header.
func ClearHeader(response proto.Message) {
	if part, ok := response.(*pb.RangeStreamResponse); ok && part.RangeResponse != nil {
		response = part.RangeResponse
	}
	type headed interface{ GetHeader() *pb.ResponseHeader }
	if response, ok := response.(headed); ok && response.GetHeader() != nil {
		header := response.GetHeader()
		header.ClusterId, header.MemberId, header.RaftTerm = 0, 0, 0
	}
}

func diffErrors(want, got error) string {
	if describe(want) == describe(got) {
		return ""
	}
	return fmt.Sprintf("-error: %s\n+error: %s\n", describe(want), describe(got))
}

func describe(err error) string {
	if err == nil {
		return "none"
	}
	// clientv3 makes errors of its own type of those that it knows.
	var known rpctypes.EtcdError
	if errors.As(err, &known) {
		return fmt.Sprintf("%v: %s", known.Code(), known.Error())
	}
	state := status.Convert(err)
	return fmt.Sprintf("%v: %s", state.Code(), state.Message())
}
