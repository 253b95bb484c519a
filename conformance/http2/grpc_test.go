package http2

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"cairn.dev/conformance/frames"
	"cairn.dev/conformance/harness"
)

// TestCalls is what gRPC over HTTP/2 asks of a server. The wire package compares
// texts and codes with etcd's; here stands what must be so in any case.
func TestCalls(t *testing.T) {
	server := harness.Start(t, harness.Subject())
	body := rangeBody
	data := body[5:]
	encoded := func(encoding string) []hpack.HeaderField { return with(rangeHeaders, field("grpc-encoding", encoding)) }
	timeout := func(text string) []hpack.HeaderField { return with(rangeHeaders, field("grpc-timeout", text)) }
	// ends is a call that ends with one of the codes and no message.
	ends := func(name string, fields []hpack.HeaderField, body []byte, codes ...string) testCase {
		return testCase{name: name, run: func(p *peer) error {
			if err := p.refused(p.call(fields, body), codes...); err != nil {
				return err
			}
			return p.alive()
		}}
	}
	fine := func(name string, fields []hpack.HeaderField, body []byte) testCase {
		return testCase{name: name, run: func(p *peer) error { return p.served(p.call(fields, body)) }}
	}
	// http is a call that ends with one of the HTTP statuses, whatever gRPC says.
	http := func(name string, fields []hpack.HeaderField, statuses ...string) testCase {
		return testCase{name: name, run: func(p *peer) error {
			seen, err := p.answer(p.call(fields, body))
			if err == nil && (!slices.Contains(statuses, seen.status) || seen.code == "0") {
				return fmt.Errorf("HTTP %v is due: %v", statuses, seen.fields)
			}
			return err
		}}
	}
	long := frames.Framed(0, data)
	long[4] += 10

	cases := []testCase{
		{name: "the shape of an answer", run: func(p *peer) error {
			id := p.call(rangeHeaders, body)
			for _, want := range []struct {
				kind http2.FrameType
				end  bool
			}{{http2.FrameHeaders, false}, {http2.FrameData, false}, {http2.FrameHeaders, true}} {
				e, err := p.await(fmt.Sprint(want.kind), func(e event) bool { return e.StreamID == id })
				if err != nil {
					return err
				}
				pseudo := slices.ContainsFunc(e.fields, func(field hpack.HeaderField) bool { return strings.HasPrefix(field.Name, ":") })
				if e.Type != want.kind || e.Flags.Has(http2.FlagDataEndStream) != want.end || pseudo != (e.Type == http2.FrameHeaders && !want.end) {
					return fmt.Errorf("%v with END_STREAM: %v is due, %v came", want.kind, want.end, e)
				}
			}
			return p.silent(id)
		}},
		{name: "the shape of a refusal", run: func(p *peer) error {
			id := p.call(frames.GRPC("/no.Such/Method"), body)
			e, err := p.await("the refusal", func(e event) bool { return e.StreamID == id })
			if err == nil && (!e.ends() || status(e.fields) != "200" || value(e.fields, "grpc-status") != "12" ||
				!strings.HasPrefix(value(e.fields, "content-type"), "application/grpc")) {
				return fmt.Errorf("one HEADERS with everything in it is due, %v came", e)
			}
			return err
		}},
		{name: "a refusal asks for no more of the request", run: func(p *peer) error {
			id := p.begin(frames.GRPC("/no.Such/Method"), false)
			if err := p.refused(id, "12"); err != nil {
				return err
			}
			return p.streamError(id, noError, http2.ErrCodeCancel)
		}},

		ends("an unknown service", frames.GRPC("/no.Such/Method"), body, "12"),
		ends("an unknown method", frames.GRPC("/etcdserverpb.KV/Rang"), body, "12"),
		ends("a path without a method", frames.GRPC("/etcdserverpb.KV"), body, "12"),
		ends("a path of a slash", frames.GRPC("/"), body, "12"),
		ends("a path with a slash too many", frames.GRPC(rangePath+"/"), body, "12"),
		ends("a path in capitals", frames.GRPC("/ETCDSERVERPB.KV/RANGE"), body, "12"),
		ends("a path of 8,000 characters", frames.GRPC("/"+strings.Repeat("x", 8_000)), body, "12"),

		http("GET", change(rangeHeaders, ":method", "GET"), "405"),
		http("PUT", change(rangeHeaders, ":method", "PUT"), "405"),
		http("a method of its own", change(rangeHeaders, ":method", "FETCH"), "405"),
		http("no content-type", without(rangeHeaders, "content-type"), "404", "415"),
		http("content-type text/plain", change(rangeHeaders, "content-type", "text/plain"), "404", "415"),
		http("content-type application/grpcweb", change(rangeHeaders, "content-type", "application/grpcweb"), "404", "415"),
		http("content-type application/json", change(rangeHeaders, "content-type", "application/json"), "404", "415"),
		fine("content-type application/grpc+proto", change(rangeHeaders, "content-type", "application/grpc+proto"), body),
		fine("content-type with parameters", change(rangeHeaders, "content-type", "application/grpc;charset=utf-8"), body),
		fine("no te", without(rangeHeaders, "te"), body),
		{name: "GET /version", run: func(p *peer) error {
			id := p.begin([]hpack.HeaderField{
				field(":method", "GET"), field(":scheme", "http"), field(":path", "/version"), field(":authority", "test"),
			}, true)
			seen, err := p.answer(id)
			if err == nil && (seen.status != "200" || !bytes.Contains(seen.body, []byte("etcdserver"))) {
				return fmt.Errorf("%v %q", seen.fields, seen.body)
			}
			return err
		}},

		ends("no message", rangeHeaders, nil, "13", "2"),
		ends("half of a message's head", rangeHeaders, body[:3], "13", "2"),
		ends("a message cut off", rangeHeaders, long, "13", "2"),
		ends("two messages", rangeHeaders, slices.Concat(body, body), "13", "2"),
		ends("bytes behind the message", rangeHeaders, append(slices.Clone(body), 0, 0), "13", "2"),
		ends("a length of 4 GB", rangeHeaders, append([]byte{0, 0xff, 0xff, 0xff, 0xff}, data...), "8"),
		ends("flag 2", rangeHeaders, frames.Framed(2, data), "13"),
		ends("flag 255", rangeHeaders, frames.Framed(255, data), "13"),
		ends("compressed without an encoding", rangeHeaders, frames.Framed(1, data), "13"),
		ends("compressed with identity", encoded("identity"), frames.Framed(1, data), "13"),
		ends("an unknown encoding", encoded("zip"), frames.Framed(1, data), "12"),
		ends("no gzip in gzip", encoded("gzip"), frames.Framed(1, data), "13"),
		ends("gzip cut off", encoded("gzip"), frames.Framed(1, pack(data)[:15]), "13"),
		ends("a gzip bomb", encoded("gzip"), frames.Framed(1, pack(make([]byte, 20<<20))), "8"),
		ends("no protobuf", rangeHeaders, frames.Framed(0, []byte("\xff\xff\xff")), "13", "3"),
		fine("gzip", encoded("gzip"), frames.Framed(1, pack(data))),
		fine("gzip announced only", encoded("gzip"), body),
		fine("an empty message", frames.GRPC("/etcdserverpb.Maintenance/Status"), frames.Framed(0, nil)),
		{name: "an unknown encoding: what is understood is named", run: func(p *peer) error {
			seen, err := p.answer(p.call(encoded("zip"), frames.Framed(1, data)))
			if err == nil && !strings.Contains(value(seen.fields, "grpc-accept-encoding"), "gzip") {
				return fmt.Errorf("no grpc-accept-encoding in %v", seen.fields)
			}
			return err
		}},
		{name: "a message in any pieces", run: func(p *peer) error {
			for cut := range len(body) + 1 {
				id := p.begin(rangeHeaders, false)
				p.send(frames.Data(id, false, body[:cut]))
				p.send(frames.Data(id, true, body[cut:]))
				if err := p.served(id); err != nil {
					return fmt.Errorf("cut at %d: %w", cut, err)
				}
			}
			return nil
		}},
		{name: "many messages in one frame", run: func(p *peer) error {
			id := p.begin(watchHeaders, false)
			p.send(frames.Data(id, false, slices.Repeat(watchBody, 10)))
			return p.messages(id, 10)
		}},
		{name: "binary metadata that is no base64", run: func(p *peer) error {
			seen, err := p.answer(p.call(with(rangeHeaders, field("x-bin", "*")), body))
			if err == nil && (seen.status != "400" || seen.code != "13") {
				return fmt.Errorf("%v", seen.fields)
			}
			return err
		}},

		fine("a time-out of 8 digits", timeout("99999999H"), body),
		{name: "a time-out ends a watch", run: func(p *peer) error {
			start := time.Now()
			id := p.begin(with(watchHeaders, field("grpc-timeout", "300m")), false)
			p.send(frames.Data(id, false, watchBody))
			e, err := p.await("its end", func(e event) bool { return e.StreamID == id && e.ends() })
			took := time.Since(start)
			switch {
			case err != nil:
				return err
			case took < 290*time.Millisecond:
				return fmt.Errorf("after %v", took)
			case e.Type == http2.FrameHeaders && value(e.fields, "grpc-status") != "4":
				return fmt.Errorf("with %v", e)
			}
			return nil
		}},
		ends("a time-out of nothing", timeout("0m"), body, "4"),
		{name: "a time-out that has passed", run: func(p *peer) error {
			seen, err := p.answer(p.call(timeout("1n"), body))
			if err == nil && seen.code != "4" && seen.code != "0" {
				return fmt.Errorf("%v", seen.fields)
			}
			return err
		}},
	}
	for _, text := range []string{"", "S", "100", "-1S", "1.5S", "999999999S", "10x", "abcS", "1 S"} {
		cases = append(cases, http(fmt.Sprintf("a time-out of %q", text), timeout(text), "400"))
	}
	runCases(t, server, cases)
}

// messages reads so many gRPC messages of a stream.
func (p *peer) messages(id uint32, count int) error {
	var body []byte
	for count > 0 {
		e, err := p.await(fmt.Sprintf("%d more messages", count), func(e event) bool { return e.StreamID == id && (e.Type == http2.FrameData || e.ends()) })
		if err != nil {
			return err
		}
		if e.ends() {
			return fmt.Errorf("%d messages are due, but %v", count, e)
		}
		body = append(body, e.data...)
		for len(body) >= 5 {
			size := 5 + int(body[1])<<24 + int(body[2])<<16 + int(body[3])<<8 + int(body[4])
			if size > len(body) {
				break
			}
			body, count = body[size:], count-1
		}
	}
	return nil
}

// TestManyAtOnce begins many calls at once, ends them in another order and wants
// each answered.
func TestManyAtOnce(t *testing.T) {
	const calls = 1_000
	server := harness.Start(t, harness.Subject())
	p, err := dial(server)
	if err != nil {
		t.Fatal(err)
	}
	defer p.close()
	var batch []byte
	open := map[uint32]bool{}
	for range calls {
		id := p.stream()
		batch = append(batch, frames.Headers(id, false, p.encode(rangeHeaders))...)
		open[id] = true
	}
	for id := range open {
		batch = append(batch, frames.Data(id, true, rangeBody)...)
	}
	p.send(batch)
	p.send(frames.Window(0, 1<<24))
	for len(open) > 0 {
		e, err := p.await("an answer", func(e event) bool { return e.ends() })
		if err != nil {
			t.Fatalf("%d calls are without answer: %v", len(open), err)
		}
		if !open[e.StreamID] || value(e.fields, "grpc-status") != "0" {
			t.Fatalf("%v", e)
		}
		delete(open, e.StreamID)
	}
}

// pack is gzip.
func pack(data []byte) []byte {
	var packed bytes.Buffer
	writer := gzip.NewWriter(&packed)
	_, _ = writer.Write(data)
	_ = writer.Close()
	return packed.Bytes()
}
