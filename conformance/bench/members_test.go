package bench

import (
	"context"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"cairn.dev/conformance/harness"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// member is one that does not do as it should.
type member struct {
	pb.UnimplementedKVServer
	pb.UnimplementedAuthServer
	pb.UnimplementedWatchServer
	logins, watches atomic.Int64
}

func (m *member) serve(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", harness.Port(t)))
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	pb.RegisterKVServer(server, m)
	pb.RegisterAuthServer(server, m)
	pb.RegisterWatchServer(server, m)
	go server.Serve(listener)
	t.Cleanup(server.Stop)
	return listener.Addr().String()
}

// Authenticate answers with the number of the login as the token, and the
// second one not at all.
func (m *member) Authenticate(ctx context.Context, _ *pb.AuthenticateRequest) (*pb.AuthenticateResponse, error) {
	number := m.logins.Add(1)
	if number == 2 {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return &pb.AuthenticateResponse{Header: &pb.ResponseHeader{}, Token: fmt.Sprint(number)}, nil
}

// Put takes the token of the third login.
func (m *member) Put(ctx context.Context, _ *pb.PutRequest) (*pb.PutResponse, error) {
	if values, _ := metadata.FromIncomingContext(ctx); len(values["token"]) != 1 || values["token"][0] != "3" {
		return nil, rpctypes.ErrGRPCInvalidAuthToken
	}
	return &pb.PutResponse{Header: &pb.ResponseHeader{Revision: 1}}, nil
}

// Watch ends every stream.
func (m *member) Watch(pb.Watch_WatchServer) error {
	m.watches.Add(1)
	return status.Error(codes.Internal, "not today")
}

// A member that hangs when somebody logs in again is left after a while.
func TestLoginThatHangs(t *testing.T) {
	hanging := &member{}
	command, stdout, stderr := start(t, hanging.serve(t), "--user=root:secret --dial-timeout=5s put --total=20")
	done := make(chan error, 1)
	go func() { done <- command.Wait() }()
	select {
	case err := <-done:
		if err != nil || hanging.logins.Load() != 3 || !strings.Contains(stderr.String(), "no answer within 5s") {
			t.Errorf("%v, %d logins\n%s%s", err, hanging.logins.Load(), stdout, stderr)
		}
	case <-time.After(2 * time.Minute):
		t.Errorf("still there after %d logins\n%s", hanging.logins.Load(), stderr)
	}
}

// Streams that a member ends again and again are not opened ever faster, nor
// is that told each time.
func TestStreamsThatKeepEnding(t *testing.T) {
	for _, line := range []string{
		"watch --streams=1 --watch-per-stream=1", "watch-latency --streams=1 --watchers-per-stream=1",
	} {
		ending := &member{}
		command, stdout, stderr := start(t, ending.serve(t), line)
		began := time.Now()
		time.Sleep(4 * time.Second)
		for deadline := began.Add(time.Minute); ending.watches.Load() < 3 && time.Now().Before(deadline); {
			time.Sleep(20 * time.Millisecond)
		}
		command.Process.Kill()
		command.Wait()
		// After pauses of 100 ms, 200 ms and so on.
		most, at := int64(1), time.Duration(0)
		for pause := 100 * time.Millisecond; at+pause <= time.Since(began); pause *= 2 {
			most, at = most+1, at+pause
		}
		warnings := strings.Count(stderr.String(), "are resumed: rpc error: code = Internal desc = not today")
		if watches := ending.watches.Load(); watches < 3 || watches > most || warnings != 1 {
			t.Errorf("%s: %d streams, %d warnings\n%s%s", line, watches, warnings, stdout, stderr)
		}
	}
}
