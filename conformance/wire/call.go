// Package wire sends the server what a well-behaved client would not, byte by
// byte where needed, and compares what comes back with the genuine server's.
package wire

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"cairn.dev/conformance/harness"
	_ "go.etcd.io/etcd/api/v3/etcdserverpb" // the methods' descriptors
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
)

const callMax = time.Minute

// bytesCodec hands messages through as they are.
type bytesCodec struct{}

func (bytesCodec) Name() string { return "proto" }

func (bytesCodec) Marshal(message any) ([]byte, error) { return message.([]byte), nil }

func (bytesCodec) Unmarshal(data []byte, message any) error {
	*message.(*[]byte) = append([]byte{}, data...)
	return nil
}

// invoke makes a unary call with a request that is any bytes.
func invoke(ctx context.Context, conn *grpc.ClientConn, path string, request []byte, options ...grpc.CallOption) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, callMax)
	defer cancel()
	var response []byte
	options = append(options, grpc.ForceCodec(bytesCodec{}))
	err := conn.Invoke(ctx, path, request, &response, options...)
	return response, err
}

// method finds the descriptor of a path, nil if etcd has no such method.
func method(path string) protoreflect.MethodDescriptor {
	service, name, _ := strings.Cut(strings.TrimPrefix(path, "/"), "/")
	found, err := protoregistry.GlobalFiles.FindDescriptorByName(protoreflect.FullName(service + "." + name))
	if err != nil {
		return nil
	}
	descriptor, _ := found.(protoreflect.MethodDescriptor)
	return descriptor
}

// newMessage is an empty message of a descriptor's type.
func newMessage(descriptor protoreflect.MessageDescriptor) proto.Message {
	found, err := protoregistry.GlobalTypes.FindMessageByName(descriptor.FullName())
	if err != nil {
		panic(err)
	}
	return found.New().Interface()
}

// decode is the answer to a call of the path.
func decode(t *testing.T, path string, data []byte) proto.Message {
	t.Helper()
	message := newMessage(method(path).Output())
	if err := proto.Unmarshal(data, message); err != nil {
		t.Errorf("%s: the answer is no %s: %v", path, message.ProtoReflect().Descriptor().Name(), err)
	}
	return message
}

// sides is a connection to the genuine server and one to the server under test.
type sides struct {
	t             *testing.T
	etcd, subject *grpc.ClientConn
	// textOpen is set where the text of an error is the library's own matter.
	textOpen bool
	// open clears fields of answers that need not be equal.
	open func(proto.Message)
}

func startSides(t *testing.T, flags ...string) *sides {
	t.Helper()
	etcd, subject := harness.StartPair(t, flags...)
	return &sides{t: t, etcd: etcd.Conn(), subject: subject.Conn()}
}

// same makes the call on both sides and compares; it returns the genuine
// server's error.
func (s *sides) same(name, path string, request []byte, options ...grpc.CallOption) error {
	s.t.Helper()
	return s.sameBoth(s.t.Context(), name, path, [2][]byte{request, request}, options...)
}

// sameBoth is same for a request that names its server.
func (s *sides) sameBoth(ctx context.Context, name, path string, requests [2][]byte, options ...grpc.CallOption) error {
	s.t.Helper()
	wantData, wantErr := invoke(ctx, s.etcd, path, requests[0], options...)
	gotData, gotErr := invoke(ctx, s.subject, path, requests[1], options...)
	if status.Code(wantErr) == codes.Unavailable {
		s.t.Fatalf("%s: etcd itself: %v", name, wantErr)
	}
	if wantErr != nil && s.textOpen {
		if status.Code(wantErr) != status.Code(gotErr) {
			s.t.Errorf("%s %s:\n-code of %v\n+code of %v", path, name, wantErr, gotErr)
		}
		return wantErr
	}
	var want, got proto.Message
	if wantErr == nil && gotErr == nil {
		want, got = decode(s.t, path, wantData), decode(s.t, path, gotData)
		if s.open != nil {
			s.open(want)
			s.open(got)
		}
	}
	if difference := harness.Diff(want, wantErr, got, gotErr); difference != "" {
		s.t.Errorf("%s %s:\n%s", path, name, difference[:min(3000, len(difference))])
	}
	return wantErr
}

// sameMessage is same for a request message.
func (s *sides) sameMessage(path string, request proto.Message) error {
	s.t.Helper()
	data, err := proto.Marshal(request)
	if err != nil {
		s.t.Fatal(err)
	}
	text := fmt.Sprint(request)
	return s.same("{"+text[:min(500, len(text))]+"}", path, data)
}
