// Package auth compares users, roles, permissions and tokens with the genuine
// server's, answer by answer, and tries what published advisories describe.
package auth

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"cairn.dev/conformance/harness"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
)

const callMax = time.Minute

// side is one server and the tokens that it gave.
type side struct {
	server *harness.Server
	conn   *grpc.ClientConn
	tokens map[string]string
}

// sides is the genuine server and the one under test.
type sides struct {
	t    *testing.T
	both [2]*side
}

func startSides(t *testing.T, flags ...string) *sides {
	t.Helper()
	etcd, subject := harness.StartPair(t, flags...)
	s := &sides{t: t}
	for at, server := range []*harness.Server{etcd, subject} {
		s.both[at] = &side{server: server, conn: server.Conn(), tokens: map[string]string{}}
	}
	return s
}

// nobody sends no token, and stranger one that no server gave.
const (
	nobody   = ""
	stranger = "stranger"
	huge     = "huge"
)

// context of a call as the user.
func (s *side) context(t *testing.T, user string) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), callMax)
	t.Cleanup(cancel)
	switch user {
	case nobody:
		return ctx
	case stranger:
		return metadata.AppendToOutgoingContext(ctx, "token", "AAAAAAAAAAAAAAAA.1")
	default:
		return metadata.AppendToOutgoingContext(ctx, "token", s.tokens[user])
	}
}

// method finds the descriptor of a path.
func method(path string) protoreflect.MethodDescriptor {
	service, name, _ := strings.Cut(strings.TrimPrefix(path, "/"), "/")
	found, err := protoregistry.GlobalFiles.FindDescriptorByName(protoreflect.FullName(service + "." + name))
	if err != nil {
		panic(err)
	}
	return found.(protoreflect.MethodDescriptor)
}

// path finds the method that takes the request.
func path(request proto.Message) string {
	wanted := request.ProtoReflect().Descriptor().FullName()
	for _, service := range []protoreflect.FullName{"KV", "Watch", "Lease", "Cluster", "Maintenance", "Auth"} {
		found, err := protoregistry.GlobalFiles.FindDescriptorByName("etcdserverpb." + service)
		if err != nil {
			panic(err)
		}
		methods := found.(protoreflect.ServiceDescriptor).Methods()
		for at := range methods.Len() {
			if methods.Get(at).Input().FullName() == wanted {
				return fmt.Sprintf("/%s/%s", found.FullName(), methods.Get(at).Name())
			}
		}
	}
	panic("no method takes " + wanted)
}

// ask makes a call and returns its first answer.
func (s *side) ask(t *testing.T, user string, request proto.Message) (proto.Message, error) {
	return s.askAt(t, user, path(request), request)
}

func (s *side) askAt(t *testing.T, user, path string, request proto.Message) (proto.Message, error) {
	descriptor := method(path)
	found, err := protoregistry.GlobalTypes.FindMessageByName(descriptor.Output().FullName())
	if err != nil {
		t.Fatal(err)
	}
	answer := found.New().Interface()
	ctx, cancel := context.WithCancel(s.context(t, user))
	defer cancel()
	if !descriptor.IsStreamingServer() {
		return answer, s.conn.Invoke(ctx, path, request, answer)
	}
	stream, err := s.conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, path)
	if err != nil {
		return nil, err
	}
	if err := stream.SendMsg(request); err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	if !descriptor.IsStreamingClient() {
		stream.CloseSend()
	}
	return answer, stream.RecvMsg(answer)
}

// same makes the call as the user on both sides and compares; it returns the
// genuine server's error.
func (s *sides) same(user string, request proto.Message) error {
	s.t.Helper()
	return s.sameAt(user, path(request), request)
}

func (s *sides) sameAt(user, path string, request proto.Message) error {
	s.t.Helper()
	want, wantErr := s.both[0].askAt(s.t, user, path, request)
	got, gotErr := s.both[1].askAt(s.t, user, path, request)
	if os.Getenv("PRINT") != "" {
		s.t.Logf("%s as %q {%v}: %v, %v", path, user, request, want, wantErr)
	}
	if wantErr == nil && gotErr == nil {
		clearMeasures(want)
		clearMeasures(got)
	}
	if difference := harness.Diff(want, wantErr, got, gotErr); difference != "" {
		text := fmt.Sprint(request)
		s.t.Errorf("%s as %q {%s}:\n%s", path, user, text[:min(300, len(text))], difference[:min(3000, len(difference))])
	}
	return wantErr
}

// login authenticates on both sides and keeps the tokens.
func (s *sides) login(user, password string) {
	s.t.Helper()
	for _, side := range s.both {
		ctx, cancel := context.WithTimeout(s.t.Context(), callMax)
		answer, err := pb.NewAuthClient(side.conn).Authenticate(ctx, &pb.AuthenticateRequest{Name: user, Password: password})
		cancel()
		if err != nil {
			s.t.Fatalf("%s cannot log %q in: %v", side.server.Kind, user, err)
		}
		side.tokens[user] = answer.Token
	}
}

// clearMeasures removes what two servers may measure differently.
func clearMeasures(message proto.Message) {
	switch message := message.(type) {
	case *pb.StatusResponse:
		proto.Reset(message)
	case *pb.AuthenticateResponse:
		message.Token = ""
	case *pb.MemberListResponse:
		message.Members = nil
	case *pb.HashResponse:
		message.Hash = 0
	case *pb.SnapshotResponse:
		proto.Reset(message)
	case *pb.DowngradeResponse:
		proto.Reset(message)
	case *pb.LeaseTimeToLiveResponse:
		message.TTL = 0
		// They come from a map.
		slices.SortFunc(message.Keys, bytes.Compare)
	case *pb.RangeStreamResponse:
		proto.Reset(message)
	}
}
