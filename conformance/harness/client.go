package harness

import (
	"context"
	"math"
	"testing"
	"time"

	"go.uber.org/zap"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

// testMax bounds every call of a test: a server that does not answer must fail
// the test, not the whole run. It counts from where the test asks for it, so it
// has to do for all that a busy machine makes of the rest of the test.
const testMax = 8 * time.Minute

// Context ends with the test, or when the test takes too long.
func Context(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), testMax)
	t.Cleanup(cancel)
	return ctx
}

// Client is a clientv3 client that is closed when the test ends.
func (s *Server) Client() *clientv3.Client {
	s.t.Helper()
	client, err := clientv3.New(clientv3.Config{
		Endpoints:   []string{s.Endpoint()},
		DialTimeout: 10 * time.Second,
		Logger:      zap.NewNop(),
	})
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { client.Close() })
	return client
}

// Conn is a plain gRPC connection that is closed when the test ends, for what
// a clientv3 client would not send.
func (s *Server) Conn(options ...grpc.DialOption) *grpc.ClientConn {
	s.t.Helper()
	options = append([]grpc.DialOption{
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(math.MaxInt32), grpc.MaxCallSendMsgSize(math.MaxInt32)),
	}, options...)
	conn, err := grpc.NewClient(s.Endpoint(), options...)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { conn.Close() })
	return conn
}
