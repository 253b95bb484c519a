package http2

import (
	"bytes"
	"fmt"
	"slices"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"cairn.dev/conformance/frames"
)

const (
	rangePath = "/etcdserverpb.KV/Range"
	putPath   = "/etcdserverpb.KV/Put"
	watchPath = "/etcdserverpb.Watch/Watch"
)

var (
	rangeHeaders = frames.GRPC(rangePath)
	rangeBody    = frames.Message(&pb.RangeRequest{Key: []byte("k")})
	listBody     = frames.Message(&pb.RangeRequest{Key: []byte{0}, RangeEnd: []byte{0}})
	watchHeaders = frames.GRPC(watchPath)
	watchBody    = frames.Message(&pb.WatchRequest{RequestUnion: &pb.WatchRequest_CreateRequest{
		CreateRequest: &pb.WatchCreateRequest{Key: []byte("k")},
	}})
)

// putBody stores a value of that size, under a key that nothing else reads.
func putBody(valueBytes int) []byte {
	return frames.Message(&pb.PutRequest{Key: []byte("stored"), Value: bytes.Repeat([]byte("v"), valueBytes)})
}

// field is short for a header field.
func field(name, value string) hpack.HeaderField { return frames.Field(name, value) }

// with is the list with fields behind it.
func with(fields []hpack.HeaderField, more ...hpack.HeaderField) []hpack.HeaderField {
	return append(slices.Clone(fields), more...)
}

// change is the list with another value for a name.
func change(fields []hpack.HeaderField, name, value string) []hpack.HeaderField {
	changed := slices.Clone(fields)
	for i := range changed {
		if changed[i].Name == name {
			changed[i].Value = value
		}
	}
	return changed
}

// without is the list without a name.
func without(fields []hpack.HeaderField, name string) []hpack.HeaderField {
	return slices.DeleteFunc(slices.Clone(fields), func(field hpack.HeaderField) bool { return field.Name == name })
}

// stream takes the number of the next stream.
func (p *peer) stream() uint32 {
	id := p.next
	p.next += 2
	return id
}

// encode compresses with the connection's table.
func (p *peer) encode(fields []hpack.HeaderField) []byte {
	p.block.Reset()
	for _, field := range fields {
		_ = p.encoder.WriteField(field)
	}
	return slices.Clone(p.block.Bytes())
}

// begin opens a stream with these headers.
func (p *peer) begin(fields []hpack.HeaderField, end bool) uint32 {
	id := p.stream()
	p.send(frames.Headers(id, end, p.encode(fields)))
	return id
}

// call sends a whole request.
func (p *peer) call(fields []hpack.HeaderField, body []byte) uint32 {
	id := p.stream()
	p.send(frames.Headers(id, false, p.encode(fields)), frames.DataAll(id, true, body))
	return id
}

// answer is what came on a stream.
type answer struct {
	status, contentType, code, text string
	fields                          []hpack.HeaderField
	body                            []byte
	// reset is how the stream ended, if not by END_STREAM.
	reset *http2.ErrCode
	// frameBytes is the largest DATA frame.
	frameBytes int
}

func status(fields []hpack.HeaderField) string { return value(fields, ":status") }

func value(fields []hpack.HeaderField, name string) string {
	for _, field := range fields {
		if field.Name == name {
			return field.Value
		}
	}
	return ""
}

// answer reads a stream to its end.
func (p *peer) answer(id uint32) (answer, error) {
	var seen answer
	for {
		e, err := p.await(fmt.Sprintf("the answer on %d", id), func(e event) bool { return e.StreamID == id })
		if err != nil {
			return seen, err
		}
		switch e.Type {
		case http2.FrameHeaders:
			seen.fields = append(seen.fields, e.fields...)
		case http2.FrameData:
			seen.body = append(seen.body, e.data...)
			seen.frameBytes = max(seen.frameBytes, int(e.Length))
		case http2.FrameRSTStream:
			seen.reset = &e.code
		}
		if e.ends() {
			seen.status, seen.contentType = status(seen.fields), value(seen.fields, "content-type")
			seen.code, seen.text = value(seen.fields, "grpc-status"), value(seen.fields, "grpc-message")
			return seen, nil
		}
	}
}

// served wants a whole answer with status OK.
func (p *peer) served(id uint32) error {
	seen, err := p.answer(id)
	switch {
	case err != nil:
		return err
	case seen.status != "200" || seen.code != "0" || seen.reset != nil:
		return fmt.Errorf("the call on %d is answered with %v, reset %v", id, seen.fields, seen.reset)
	}
	return nil
}

// refused wants the call to end with that gRPC status and without a message.
func (p *peer) refused(id uint32, codes ...string) error {
	seen, err := p.answer(id)
	switch {
	case err != nil:
		return err
	case seen.status != "200" || !slices.Contains(codes, seen.code) || len(seen.body) > 0:
		return fmt.Errorf("code %v is due on %d: %v, %d bytes, reset %v", codes, id, seen.fields, len(seen.body), seen.reset)
	}
	return nil
}
