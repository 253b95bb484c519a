package wire

import (
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"cairn.dev/conformance/harness"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protopath"
	"google.golang.org/protobuf/reflect/protorange"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// Bytes that are no message, or an unusual encoding of one.
func TestMalformedMessages(t *testing.T) {
	both := startSides(t)
	both.textOpen = true
	key := protowire.AppendBytes(protowire.AppendTag(nil, 1, protowire.BytesType), []byte("key"))
	with := func(parts ...[]byte) []byte { return slices.Concat(append([][]byte{key}, parts...)...) }
	limit := protowire.AppendTag(nil, 3, protowire.VarintType)
	bodies := map[string][]byte{
		"a tag without a value":     with(limit),
		"a value cut short":         with([]byte{0x12, 10, 'x'}),
		"a length beyond the end":   with([]byte{0x12, 0xff, 0xff, 0xff, 0xff, 0x0f}),
		"a huge length":             with([]byte{0x12, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f}),
		"a varint of 11 bytes":      with(limit, []byte{0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 1}),
		"a varint over 64 bits":     with(limit, []byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f}),
		"a longer varint of 1":      with(limit, []byte{0x81, 0x80, 0x80, 0x00}),
		"field number 0":            with([]byte{0x00, 0x01}),
		"the largest field number":  with(protowire.AppendVarint(protowire.AppendTag(nil, 1<<29-1, 0), 1)),
		"a field number too large":  with([]byte{0xf8, 0xff, 0xff, 0xff, 0x7f, 1}),
		"wire type 6":               with([]byte{0x0e, 1}),
		"wire type 7":               with([]byte{0x0f, 1}),
		"an unknown varint":         with(protowire.AppendVarint(protowire.AppendTag(nil, 99, 0), 1)),
		"an unknown fixed64":        with(protowire.AppendFixed64(protowire.AppendTag(nil, 99, 1), 1)),
		"an unknown fixed32":        with(protowire.AppendFixed32(protowire.AppendTag(nil, 99, 5), 1)),
		"an unknown string":         with(protowire.AppendString(protowire.AppendTag(nil, 99, 2), "text")),
		"an unknown group":          with([]byte{0x9b, 0x06, 0x9c, 0x06}),
		"a group that does not end": with([]byte{0x9b, 0x06}),
		"a group's end alone":       with([]byte{0x9c, 0x06}),
		"a group's wrong end":       with([]byte{0x9b, 0x06, 0xa4, 0x06}),
		"a key as a varint":         with([]byte{0x08, 1}),
		"a key as fixed32":          with([]byte{0x0d, 1, 2, 3, 4}),
		"a limit as a string":       with([]byte{0x1a, 1, 'x'}),
		"a limit as fixed64":        with([]byte{0x19, 1, 2, 3, 4, 5, 6, 7, 8}),
		"a key twice":               with(protowire.AppendBytes(protowire.AppendTag(nil, 1, 2), []byte("other"))),
		"a bool of 2":               with([]byte{0x38, 2}),
		"an enum of 2^32":           with([]byte{0x28, 0x80, 0x80, 0x80, 0x80, 0x10}),
	}
	for _, name := range slices.Sorted(maps.Keys(bodies)) {
		if hasOtherTypes(&pb.RangeRequest{}, bodies[name]) {
			_, err := invoke(harness.Context(t), both.subject, "/etcdserverpb.KV/Range", bodies[name])
			if code := status.Code(err); code != codes.OK && code != codes.Internal {
				t.Errorf("%s: %v", name, err)
			}
			continue
		}
		both.same(name, "/etcdserverpb.KV/Range", bodies[name])
	}
	// A message field given twice is merged; a oneof takes the last.
	put := &pb.RequestOp{Request: &pb.RequestOp_RequestPut{RequestPut: &pb.PutRequest{Key: []byte("k")}}}
	more := &pb.RequestOp{Request: &pb.RequestOp_RequestPut{RequestPut: &pb.PutRequest{Value: []byte("v")}}}
	read := &pb.RequestOp{Request: &pb.RequestOp_RequestRange{RequestRange: &pb.RangeRequest{Key: []byte("k")}}}
	for _, ops := range [][]*pb.RequestOp{{put, more}, {put, read}, {read, put, more}} {
		var joined []byte
		for _, op := range ops {
			data, _ := proto.Marshal(op)
			joined = append(joined, data...)
		}
		both.same("joined operations", "/etcdserverpb.KV/Txn",
			protowire.AppendBytes(protowire.AppendTag(nil, 2, protowire.BytesType), joined))
	}
	both.sameMessage("/etcdserverpb.KV/Range", &pb.RangeRequest{Key: []byte{0}, RangeEnd: []byte{0}})
}

// Random damage to good requests: both servers refuse or accept the same.
func TestDamagedMessages(t *testing.T) {
	random := rand.New(rand.NewPCG(harness.Seed(t), 0))
	both := startSides(t)
	both.textOpen = true
	both.open = clearMeasures
	good := []proto.Message{
		&pb.RangeRequest{Key: []byte("key"), RangeEnd: []byte("z"), Limit: 5, Revision: 1, SortOrder: 1, KeysOnly: true},
		&pb.PutRequest{Key: []byte("key"), Value: []byte("value"), PrevKv: true},
		&pb.DeleteRangeRequest{Key: []byte("key"), RangeEnd: []byte("z")},
		&pb.TxnRequest{
			Compare: []*pb.Compare{{Key: []byte("key"), TargetUnion: &pb.Compare_Version{Version: 1}, RangeEnd: []byte("z")}},
			Success: []*pb.RequestOp{{Request: &pb.RequestOp_RequestTxn{RequestTxn: &pb.TxnRequest{
				Failure: []*pb.RequestOp{{Request: &pb.RequestOp_RequestPut{RequestPut: &pb.PutRequest{Key: []byte("k")}}}},
			}}}},
		},
	}
	paths := []string{"Range", "Put", "DeleteRange", "Txn"}
	for range harness.Number(t, "DAMAGED", 2000) {
		i := random.IntN(len(good))
		data, _ := proto.Marshal(good[i])
		for range 1 + random.IntN(3) {
			switch at := random.IntN(len(data)); random.IntN(4) {
			case 0:
				data[at] ^= 1 << random.IntN(8)
			case 1:
				data[at] = byte(random.IntN(256))
			case 2:
				data = append(data[:at:at], append([]byte{byte(random.IntN(256))}, data[at:]...)...)
			default:
				data = data[:max(1, at)]
			}
		}
		if wantsGoneKey(paths[i], data) || hasOtherTypes(good[i], data) {
			continue
		}
		both.same(string(proto.MessageName(good[i]))+" damaged", "/etcdserverpb.KV/"+paths[i], data)
		if t.Failed() {
			t.Fatalf("request %x", data)
		}
	}
}

// hasOtherTypes finds a known field with another wire type than it is declared
// with. Go keeps it as unknown; other decoders refuse the message.
func hasOtherTypes(message proto.Message, data []byte) bool {
	decoded := message.ProtoReflect().New()
	if proto.Unmarshal(data, decoded.Interface()) != nil {
		return false
	}
	found := false
	protorange.Range(decoded, func(values protopath.Values) error {
		inner, ok := values.Index(-1).Value.Interface().(protoreflect.Message)
		if !ok {
			return nil
		}
		for unknown := inner.GetUnknown(); len(unknown) > 0; {
			number, _, size := protowire.ConsumeField(unknown)
			found = found || inner.Descriptor().Fields().ByNumber(number) != nil
			unknown = unknown[size:]
		}
		return nil
	})
	return found
}

// wantsGoneKey leaves out the transactions that could end the genuine server.
func wantsGoneKey(path string, data []byte) bool {
	request := &pb.TxnRequest{}
	if path != "Txn" || proto.Unmarshal(data, request) != nil {
		return false
	}
	for _, op := range append(request.Success, request.Failure...) {
		if op.GetRequestDeleteRange() != nil {
			return true
		}
	}
	return false
}
