package http2

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"cairn.dev/conformance/frames"
	"cairn.dev/conformance/harness"
)

var grpcTrailers = []hpack.HeaderField{field("x-checksum", "1"), field("x-more", "2")}

// TestFields is sections 8.2 and 8.3: what makes a request malformed. The blocks
// are frames.Literals, so that no encoder corrects them.
func TestFields(t *testing.T) {
	server := harness.Start(t, harness.Subject())
	send := func(p *peer, fields []hpack.HeaderField) uint32 {
		id := p.stream()
		p.send(frames.Headers(id, false, frames.Literals(fields...)), frames.Data(id, true, rangeBody))
		return id
	}
	malformed := func(name string, fields []hpack.HeaderField) testCase {
		return testCase{name: name, run: func(p *peer) error { return p.malformed(send(p, fields)) }}
	}
	fine := func(name string, fields []hpack.HeaderField) testCase {
		return testCase{name: name, run: func(p *peer) error {
			if err := p.served(send(p, fields)); err != nil {
				return err
			}
			return p.alive()
		}}
	}
	more := func(name, value string) []hpack.HeaderField { return with(rangeHeaders, field(name, value)) }

	cases := []testCase{
		malformed("no :method", without(rangeHeaders, ":method")),
		malformed("no :scheme", without(rangeHeaders, ":scheme")),
		malformed("no :path", without(rangeHeaders, ":path")),
		malformed("an empty :path", change(rangeHeaders, ":path", "")),
		malformed("an empty :method", change(rangeHeaders, ":method", "")),
		malformed("an empty :scheme", change(rangeHeaders, ":scheme", "")),
		malformed(":method twice", slices.Insert(slices.Clone(rangeHeaders), 0, field(":method", "POST"))),
		malformed(":path twice", slices.Insert(slices.Clone(rangeHeaders), 0, field(":path", rangePath))),
		malformed(":scheme twice", slices.Insert(slices.Clone(rangeHeaders), 0, field(":scheme", "http"))),
		malformed(":authority twice", slices.Insert(slices.Clone(rangeHeaders), 0, field(":authority", "test"))),
		malformed("an unknown pseudo field", slices.Insert(slices.Clone(rangeHeaders), 0, field(":version", "2"))),
		malformed("a pseudo field of answers", slices.Insert(slices.Clone(rangeHeaders), 0, field(":status", "200"))),
		malformed("a pseudo field in capitals", slices.Insert(without(rangeHeaders, ":path"), 0, field(":Path", rangePath))),
		malformed("a pseudo field without a name", slices.Insert(slices.Clone(rangeHeaders), 0, field(":", "x"))),
		malformed("a pseudo field behind others", with(without(rangeHeaders, ":path"), field(":path", rangePath))),
		malformed(":authority behind others", with(without(rangeHeaders, ":authority"), field(":authority", "test"))),
		malformed(":protocol without its setting", slices.Insert(slices.Clone(rangeHeaders), 0, field(":protocol", "websocket"))),
		malformed("CONNECT with a path", change(rangeHeaders, ":method", "CONNECT")),
		malformed("a method with a space", change(rangeHeaders, ":method", "PO ST")),
		malformed("a path with a space", change(rangeHeaders, ":path", "/a b")),
		malformed("a path with NUL", change(rangeHeaders, ":path", "/a\x00b")),
		malformed("a path with a line end", change(rangeHeaders, ":path", "/a\r\nx: y")),

		malformed("connection", more("connection", "close")),
		malformed("keep-alive", more("keep-alive", "timeout=5")),
		malformed("proxy-connection", more("proxy-connection", "keep-alive")),
		malformed("transfer-encoding", more("transfer-encoding", "chunked")),
		malformed("upgrade", more("upgrade", "h2c")),
		malformed("te of gzip", change(rangeHeaders, "te", "gzip")),
		malformed("te of trailers and more", change(rangeHeaders, "te", "trailers, deflate")),

		malformed("an empty name", more("", "x")),
		malformed("a name with a colon", more("x:y", "1")),
		malformed("a name with a space", more("x y", "1")),
		malformed("a name that ends in a space", more("x ", "1")),
		malformed("a name with a tab", more("x\ty", "1")),
		malformed("a name with NUL", more("x\x00", "1")),
		malformed("a name with a line end", more("x\r\ny", "1")),
		malformed("a name with DEL", more("x\x7f", "1")),
		malformed("a name with bytes above 127", more("x\x80\xff", "1")),
		malformed("a name with a bracket", more("x(y)", "1")),
		malformed("a value with NUL", more("x", "a\x00b")),
		malformed("a value with CR", more("x", "a\rb")),
		malformed("a value with LF", more("x", "a\nb")),
		malformed("a value with a line end behind it", more("x", "a\r\n")),
		malformed("a value with a space before it", more("x", " a")),
		malformed("a value with a space behind it", more("x", "a ")),
		malformed("a value with a tab before it", more("x", "\ta")),
		malformed("a value with a tab behind it", more("x", "a\t")),

		malformed("content-length too small", more("content-length", fmt.Sprint(len(rangeBody)-1))),
		malformed("content-length too large", more("content-length", fmt.Sprint(len(rangeBody)+1))),
		malformed("content-length that is no number", more("content-length", "many")),
		malformed("content-length below 0", more("content-length", "-1")),
		malformed("content-length of 2^64", more("content-length", "18446744073709551616")),
		malformed("content-length twice, not the same", with(more("content-length", fmt.Sprint(len(rangeBody))), field("content-length", "1"))),

		fine("content-length", more("content-length", fmt.Sprint(len(rangeBody)))),
		fine("host beside :authority", more("host", "test")),
		fine("host in place of :authority", with(without(rangeHeaders, ":authority"), field("host", "test"))),
		fine("te missing", without(rangeHeaders, "te")),
		fine("an empty value", more("x", "")),
		fine("a value with spaces inside", more("x", "a  b\tc")),
		fine("a value with bytes above 127", more("x", "\x80\xff\xfe")),
		fine("every character a name may have", more("!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyz", "1")),
		fine("a name of 10,000 characters", more(strings.Repeat("x", 10_000), "1")),
		fine("cookies in crumbs", with(rangeHeaders, field("cookie", "a=b"), field("cookie", "c=d"))),
		fine("the same name 500 times", with(rangeHeaders, slices.Repeat([]hpack.HeaderField{field("x", "1")}, 500)...)),
		fine("a priority", more("priority", "u=1, i")),
		fine("expect", more("expect", "100-continue")),
	}
	for _, letter := range "AZ" {
		cases = append(cases, malformed("a name with "+string(letter), more("x-"+string(letter), "1")))
	}
	runCases(t, server, cases)
}

// TestTrailers is section 8.1 as far as requests go.
func TestTrailers(t *testing.T) {
	server := harness.Start(t, harness.Subject())
	trailers := func(name string, end bool, fields []hpack.HeaderField, fine bool) testCase {
		return testCase{name: name, run: func(p *peer) error {
			id := p.stream()
			p.send(frames.Headers(id, false, frames.Literals(rangeHeaders...)), frames.Data(id, false, rangeBody))
			p.send(frames.Headers(id, end, frames.Literals(fields...)))
			if fine {
				return p.served(id)
			}
			return p.malformed(id)
		}}
	}
	runCases(t, server, []testCase{
		trailers("proper ones", true, grpcTrailers, true),
		trailers("none in the block", true, nil, true),
		trailers("with a pseudo field", true, with(grpcTrailers, field(":path", rangePath)), false),
		trailers("with a name in capitals", true, with(grpcTrailers, field("X-Upper", "1")), false),
		trailers("with connection", true, with(grpcTrailers, field("connection", "close")), false),
		trailers("without END_STREAM", false, grpcTrailers, false),
		{name: "DATA behind them", run: func(p *peer) error {
			id := p.stream()
			p.send(frames.Headers(id, false, frames.Literals(rangeHeaders...)), frames.Data(id, false, rangeBody),
				frames.Headers(id, true, frames.Literals(grpcTrailers...)), frames.Data(id, true, rangeBody))
			return p.closedOrServed(id)
		}},
		{name: "in place of DATA", run: func(p *peer) error {
			id := p.stream()
			p.send(frames.Headers(id, false, frames.Literals(rangeHeaders...)), frames.Headers(id, true, frames.Literals(grpcTrailers...)))
			return p.refused(id, "13")
		}},
	})
}

// TestHeaderListLimit sends more header fields than the server says it takes.
// The request is refused, and the connection's tables stay in step.
func TestHeaderListLimit(t *testing.T) {
	server := harness.Start(t, harness.Subject())
	refusal := func(p *peer, id uint32) error {
		codes := []http2.ErrCode{protocolError, calmError, refusedError, noError}
		e, err := p.await("the refusal", func(e event) bool {
			return isGoAway(e, codes) || e.StreamID == id && (e.Type == http2.FrameHeaders || e.Type == http2.FrameRSTStream)
		})
		switch {
		case err != nil:
			return err
		case e.Type == http2.FrameGoAway:
			return fmt.Errorf("one request too large ends the whole connection: %v", e)
		case e.Type == http2.FrameHeaders && status(e.fields) == "200" && value(e.fields, "grpc-status") != "8":
			return fmt.Errorf("it is answered: %v", e)
		}
		return nil
	}
	runCases(t, server, []testCase{
		{name: "the server says what it takes", run: func(p *peer) error {
			if size, stated := p.settings[settingList]; !stated || size < 8_192 || size > 1<<20 {
				return fmt.Errorf("MAX_HEADER_LIST_SIZE of %d (stated: %v)", size, stated)
			}
			return nil
		}},
		{name: "2 KB too much, and the table stays in step", run: func(p *peer) error { return tooMuch(p, 2, refusal) }},
		{name: "10 KB too much, and the table stays in step", run: func(p *peer) error { return tooMuch(p, 10, refusal) }},
		{name: "a small block that unpacks to too much", run: func(p *peer) error {
			// One entry of 4,000 bytes, then named again and again.
			block := frames.AppendString([]byte{0x40}, "x")
			block = frames.AppendString(block, strings.Repeat("y", 4_000))
			for range 10_000 {
				block = append(block, 0xbe)
			}
			id := p.stream()
			p.send(frames.Headers(id, true, append(frames.Literals(rangeHeaders...), block...)))
			// No honest client sends this: the whole connection may go, in words.
			_, err := p.await("the refusal", func(e event) bool {
				return isGoAway(e, []http2.ErrCode{calmError}) || e.StreamID == id &&
					(e.Type == http2.FrameRSTStream || status(e.fields) == "431" || value(e.fields, "grpc-status") == "8")
			})
			return err
		}},
	})
}

// tooMuch sends so many KB of fields more than the server takes. Then it names
// what the refused block has put into the table.
func tooMuch(p *peer, kilobytes int, refusal func(p *peer, id uint32) error) error {
	fields := slices.Clone(rangeHeaders)
	for i := range max(int(p.settings[settingList]), 1<<16)/1_000 + kilobytes {
		fields = append(fields, field(fmt.Sprint("x-", i), strings.Repeat("y", 1_000)))
	}
	id := p.stream()
	block := p.encode(fields)
	p.send(frames.Raw(http2.FrameHeaders, 0, id, block[:frames.BytesMax]...))
	for block = block[frames.BytesMax:]; len(block) > frames.BytesMax; block = block[frames.BytesMax:] {
		p.send(frames.Raw(http2.FrameContinuation, 0, id, block[:frames.BytesMax]...))
	}
	p.send(frames.Raw(http2.FrameContinuation, http2.FlagContinuationEndHeaders, id, block...), frames.Data(id, true, rangeBody))
	if err := refusal(p, id); err != nil {
		return err
	}
	fields = frames.GRPC(rangePath, field("x-fresh", "1"))
	for range 3 {
		if err := p.served(p.call(fields, rangeBody)); err != nil {
			return fmt.Errorf("after the refusal: %w", err)
		}
	}
	return nil
}
