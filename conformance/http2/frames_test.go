package http2

import (
	"bytes"
	"fmt"
	"testing"

	"golang.org/x/net/http2"

	"cairn.dev/conformance/frames"
	"cairn.dev/conformance/harness"
)

const (
	noError         = http2.ErrCodeNo
	protocolError   = http2.ErrCodeProtocol
	flowError       = http2.ErrCodeFlowControl
	sizeError       = http2.ErrCodeFrameSize
	closedError     = http2.ErrCodeStreamClosed
	compressError   = http2.ErrCodeCompression
	refusedError    = http2.ErrCodeRefusedStream
	calmError       = http2.ErrCodeEnhanceYourCalm
	unknownKind     = http2.FrameType(0xbb)
	priorityUpdate  = http2.FrameType(0x10)
	anyFlags        = http2.Flags(0xff)
	reservedBit     = uint32(1) << 31
	settingUnknown  = http2.SettingID(0xf000)
	settingTable    = http2.SettingHeaderTableSize
	settingPush     = http2.SettingEnablePush
	settingStreams  = http2.SettingMaxConcurrentStreams
	settingWindow   = http2.SettingInitialWindowSize
	settingFrame    = http2.SettingMaxFrameSize
	settingList     = http2.SettingMaxHeaderListSize
	settingExtended = http2.SettingEnableConnectProtocol
)

// connectionErrorFor is a case that sends frames and wants the connection ended.
func connectionErrorFor(name string, code http2.ErrCode, batch ...[]byte) testCase {
	return testCase{name: name, run: func(p *peer) error {
		p.send(batch...)
		return p.connectionError(code)
	}}
}

// ignored is a case that sends frames and wants nothing to come of it.
func ignored(name string, batch ...[]byte) testCase {
	return testCase{name: name, run: func(p *peer) error {
		p.send(batch...)
		return p.alive()
	}}
}

// whileOpen is a case whose frames come while stream 1 waits for its message.
// The stream must go on.
func whileOpen(name string, batch ...[]byte) testCase {
	return testCase{name: name, run: func(p *peer) error {
		id := p.begin(rangeHeaders, false)
		p.send(batch...)
		p.send(frames.Data(id, true, rangeBody))
		if err := p.served(id); err != nil {
			return err
		}
		return p.alive()
	}}
}

func set(id http2.SettingID, value uint32) http2.Setting { return http2.Setting{ID: id, Val: value} }

// TestPreface is RFC 9113 section 3.4.
func TestPreface(t *testing.T) {
	server := harness.Start(t, harness.Subject())
	for name, opening := range map[string][]byte{
		"no HTTP at all":           []byte("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03 a TLS client says hello\r\n\r\n"),
		"a preface that goes awry": []byte("PRI * HTTP/2.0\r\n\r\nSN\r\n\r\n"),
		"a preface of HTTP/3":      []byte("PRI * HTTP/3.0\r\n\r\nSM\r\n\r\n"),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, err := connect(server)
			if err != nil {
				t.Fatal(err)
			}
			defer p.close()
			p.send(opening)
			if err := p.ended(); err != nil {
				t.Error(err)
			}
		})
	}
	for name, first := range map[string][]byte{
		"PING before SETTINGS":          frames.Raw(http2.FramePing, 0, 0, make([]byte, 8)...),
		"HEADERS before SETTINGS":       frames.Headers(1, true, frames.Literals(frames.GRPC(rangePath)...)),
		"WINDOW_UPDATE before SETTINGS": frames.Window(0, 1),
		"an unknown frame first":        frames.Raw(unknownKind, 0, 0),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, err := connect(server)
			if err != nil {
				t.Fatal(err)
			}
			defer p.close()
			p.send([]byte(http2.ClientPreface), first)
			judge(t, p.connectionError(protocolError), name)
		})
	}
	t.Run("a preface byte by byte", func(t *testing.T) {
		t.Parallel()
		p, err := connect(server)
		if err != nil {
			t.Fatal(err)
		}
		defer p.close()
		// Nothing may come between: the reader acknowledges the server's settings.
		p.writing.Lock()
		for _, letter := range append([]byte(http2.ClientPreface), frames.Settings()...) {
			_, _ = p.conn.Write([]byte{letter})
		}
		p.writing.Unlock()
		if err := p.alive(); err != nil {
			t.Error(err)
		}
	})
}

// TestFrameSizes is section 4.2 and the lengths that section 6 gives.
func TestFrameSizes(t *testing.T) {
	server := harness.Start(t, harness.Subject())
	frameBytes := func(p *peer) int {
		if size, known := p.settings[settingFrame]; known {
			return int(size)
		}
		return frames.BytesMax
	}
	runCases(t, server, []testCase{
		{name: "DATA of the largest size", run: func(p *peer) error {
			id := p.begin(frames.GRPC(putPath), false)
			body := putBody(frameBytes(p) - 200)
			p.send(frames.Data(id, false, body), frames.Data(id, true, nil))
			return p.served(id)
		}},
		{name: "DATA one byte too large", run: func(p *peer) error {
			id := p.begin(rangeHeaders, false)
			p.send(frames.Data(id, false, make([]byte, frameBytes(p)+1)))
			return p.streamError(id, sizeError)
		}},
		{name: "HEADERS one byte too large", run: func(p *peer) error {
			p.send(frames.Headers(1, true, make([]byte, frameBytes(p)+1)))
			return p.connectionError(sizeError)
		}},
		{name: "CONTINUATION one byte too large", run: func(p *peer) error {
			block := frames.Literals(rangeHeaders...)
			p.send(frames.Raw(http2.FrameHeaders, 0, 1, block...))
			p.send(frames.Raw(http2.FrameContinuation, http2.FlagContinuationEndHeaders, 1, make([]byte, frameBytes(p)+1)...))
			return p.connectionError(sizeError)
		}},
		{name: "SETTINGS one byte too large", run: func(p *peer) error {
			p.send(frames.Raw(http2.FrameSettings, 0, 0, make([]byte, (frameBytes(p)/6+1)*6)...))
			return p.connectionError(sizeError)
		}},
		{name: "an unknown frame of the largest size", run: func(p *peer) error {
			p.send(frames.Raw(unknownKind, anyFlags, 0, make([]byte, frameBytes(p))...))
			return p.alive()
		}},
		{name: "an unknown frame one byte too large", run: func(p *peer) error {
			p.send(frames.Raw(unknownKind, 0, 0, make([]byte, frameBytes(p)+1)...))
			return p.connectionError(sizeError)
		}},
		connectionErrorFor("a length of 16 MB and nothing behind it", sizeError, []byte{0xff, 0xff, 0xff, 0, 0, 0, 0, 0, 1}),
		connectionErrorFor("PING of 7", sizeError, frames.Raw(http2.FramePing, 0, 0, make([]byte, 7)...)),
		connectionErrorFor("PING of 9", sizeError, frames.Raw(http2.FramePing, 0, 0, make([]byte, 9)...)),
		connectionErrorFor("PING of 0 with ACK", sizeError, frames.Raw(http2.FramePing, http2.FlagPingAck, 0)),
		connectionErrorFor("SETTINGS of 5", sizeError, frames.Raw(http2.FrameSettings, 0, 0, make([]byte, 5)...)),
		connectionErrorFor("SETTINGS of 7", sizeError, frames.Raw(http2.FrameSettings, 0, 0, make([]byte, 7)...)),
		connectionErrorFor("SETTINGS with ACK and a payload", sizeError,
			frames.Raw(http2.FrameSettings, http2.FlagSettingsAck, 0, make([]byte, 6)...)),
		connectionErrorFor("WINDOW_UPDATE of 3", sizeError, frames.Raw(http2.FrameWindowUpdate, 0, 0, 0, 0, 1)),
		connectionErrorFor("WINDOW_UPDATE of 5", sizeError, frames.Raw(http2.FrameWindowUpdate, 0, 0, 0, 0, 0, 0, 1)),
		connectionErrorFor("GOAWAY of 7", sizeError, frames.Raw(http2.FrameGoAway, 0, 0, make([]byte, 7)...)),
		{name: "RST_STREAM of 3", run: func(p *peer) error {
			id := p.begin(rangeHeaders, false)
			p.send(frames.Raw(http2.FrameRSTStream, 0, id, 0, 0, 8))
			return p.connectionError(sizeError)
		}},
		{name: "PRIORITY of 4", run: func(p *peer) error {
			id := p.begin(rangeHeaders, false)
			p.send(frames.Raw(http2.FramePriority, 0, id, 0, 0, 0, 0))
			return p.streamError(id, sizeError)
		}},
		{name: "HEADERS with PRIORITY of 4", run: func(p *peer) error {
			p.send(frames.Raw(http2.FrameHeaders, http2.FlagHeadersEndHeaders|http2.FlagHeadersPriority, 1, 0, 0, 0, 0))
			return p.connectionError(sizeError, protocolError)
		}},
	})
}

// TestFrameRules is what section 6 says of each frame but its length.
func TestFrameRules(t *testing.T) {
	server := harness.Start(t, harness.Subject())
	ping := func(flags http2.Flags, stream uint32) []byte {
		return frames.Raw(http2.FramePing, flags, stream, []byte("attached")...)
	}
	cases := []testCase{
		{name: "PING is answered with its data", run: func(p *peer) error { return p.ping("\x00\x01\x02\xff\xfe\xfd\x80\x7f") }},
		{name: "PING with unknown flags is answered", run: func(p *peer) error {
			p.send(ping(0xfe, 0))
			_, err := p.await("the answer", func(e event) bool { return e.Type == http2.FramePing && string(e.data) == "attached" })
			return err
		}},
		{name: "PING with ACK is not answered", run: func(p *peer) error {
			p.send(ping(http2.FlagPingAck, 0))
			if err := p.silent(0); err != nil {
				return err
			}
			return p.alive()
		}},
		connectionErrorFor("PING on a stream", protocolError, ping(0, 1)),
		connectionErrorFor("PING with ACK on a stream", protocolError, ping(http2.FlagPingAck, 1)),
		ignored("PING with the reserved bit", ping(0, reservedBit)),

		connectionErrorFor("GOAWAY on a stream", protocolError, frames.Raw(http2.FrameGoAway, 0, 1, make([]byte, 8)...)),
		connectionErrorFor("PUSH_PROMISE", protocolError, frames.Headers(1, false, frames.Literals(rangeHeaders...)),
			frames.Raw(http2.FramePushPromise, http2.FlagPushPromiseEndHeaders, 1, append([]byte{0, 0, 0, 2}, frames.Literals(rangeHeaders...)...)...)),

		connectionErrorFor("RST_STREAM on the connection", protocolError, frames.Reset(0, http2.ErrCodeCancel)),
		connectionErrorFor("RST_STREAM on an idle stream", protocolError, frames.Reset(1, http2.ErrCodeCancel)),
		connectionErrorFor("PRIORITY on the connection", protocolError, frames.Priority(0, 1)),
		connectionErrorFor("DATA on the connection", protocolError, frames.Data(0, true, nil)),
		connectionErrorFor("HEADERS on the connection", protocolError, frames.Headers(0, true, frames.Literals(rangeHeaders...))),

		connectionErrorFor("WINDOW_UPDATE of nothing for the connection", protocolError, frames.Window(0, 0)),
		connectionErrorFor("WINDOW_UPDATE of nothing and the reserved bit", protocolError, frames.Window(0, reservedBit)),
		connectionErrorFor("WINDOW_UPDATE on an idle stream", protocolError, frames.Window(1, 1)),
		{name: "WINDOW_UPDATE of nothing for a stream", run: func(p *peer) error {
			id := p.begin(rangeHeaders, false)
			p.send(frames.Window(id, 0))
			return p.streamError(id, protocolError)
		}},
		ignored("WINDOW_UPDATE with the reserved bit", frames.Window(0, reservedBit|1)),

		ignored("an unknown frame on the connection", frames.Raw(unknownKind, anyFlags, 0, 1, 2, 3)),
		ignored("an unknown frame on an idle stream", frames.Raw(unknownKind, anyFlags, 101, 1, 2, 3)),
		ignored("an unknown frame on an even stream", frames.Raw(unknownKind, anyFlags, 100, 1, 2, 3)),
		whileOpen("an unknown frame on an open stream", frames.Raw(unknownKind, anyFlags, 1, 1, 2, 3)),
		whileOpen("unknown flags of DATA", frames.Raw(http2.FrameData, 0xf6, 1)),
		ignored("PRIORITY_UPDATE on the connection", frames.Raw(priorityUpdate, 0, 0, 0, 0, 0, 1, 'u', '=', '1')),

		ignored("PRIORITY on an idle stream", frames.Priority(9, 3)),
		ignored("PRIORITY on an even stream", frames.Priority(8, 3)),
		ignored("PRIORITY exclusive on the connection's root", frames.Priority(9, reservedBit)),
		whileOpen("PRIORITY on an open stream", frames.Priority(1, 3)),
		whileOpen("PRIORITY that makes a ring", frames.Priority(1, 3), frames.Priority(3, 5), frames.Priority(5, 1)),
		{name: "PRIORITY on a closed stream", run: func(p *peer) error {
			id := p.call(rangeHeaders, rangeBody)
			if err := p.served(id); err != nil {
				return err
			}
			p.send(frames.Priority(id, 0))
			return p.alive()
		}},
		{name: "HEADERS with a priority", run: func(p *peer) error {
			id := p.stream()
			block := append([]byte{0, 0, 0, 0x55, 255}, p.encode(rangeHeaders)...)
			p.send(frames.Raw(http2.FrameHeaders, http2.FlagHeadersEndHeaders|http2.FlagHeadersPriority, id, block...))
			p.send(frames.Data(id, true, rangeBody))
			return p.served(id)
		}},
	}
	// RFC 9113 has no word on streams that depend on themselves; RFC 7540 made them a stream error. Both are right, but nothing else.
	cases = append(cases, testCase{name: "PRIORITY on itself", run: func(p *peer) error {
		id := p.begin(rangeHeaders, false)
		p.send(frames.Priority(id, id), frames.Data(id, true, rangeBody))
		e, err := p.await("the end of the stream", func(e event) bool {
			return isGoAway(e, []http2.ErrCode{protocolError}) || e.StreamID == id && e.ends()
		})
		if err == nil && e.Type == http2.FrameRSTStream && e.code != protocolError {
			return fmt.Errorf("the stream ends with %v", e)
		}
		return err
	}})
	runCases(t, server, cases)
}

// TestPadding is sections 6.1 and 6.2: padding is no part of the content, but of
// the flow-controlled length.
func TestPadding(t *testing.T) {
	server := harness.Start(t, harness.Subject())
	paddedHeaders := func(p *peer, id uint32, padding int) []byte {
		flags := http2.FlagHeadersEndHeaders | http2.FlagHeadersPadded
		return frames.Raw(http2.FrameHeaders, flags, id, frames.Padded(p.encode(rangeHeaders), padding)...)
	}
	paddedData := func(id uint32, end http2.Flags, data []byte, padding int) []byte {
		return frames.Raw(http2.FrameData, http2.FlagDataPadded|end, id, frames.Padded(data, padding)...)
	}
	cases := []testCase{
		connectionErrorFor("HEADERS with more padding than payload", protocolError,
			frames.Raw(http2.FrameHeaders, http2.FlagHeadersEndHeaders|http2.FlagHeadersPadded, 1, 10, 0x82)),
		connectionErrorFor("HEADERS with padding and priority and no room", protocolError,
			frames.Raw(http2.FrameHeaders, http2.FlagHeadersEndHeaders|http2.FlagHeadersPadded|http2.FlagHeadersPriority, 1, 4, 0, 0, 0, 0, 16, 0)),
		{name: "HEADERS with padding and priority", run: func(p *peer) error {
			id := p.stream()
			block := append([]byte{0, 0, 0, 0, 15}, p.encode(rangeHeaders)...)
			flags := http2.FlagHeadersEndHeaders | http2.FlagHeadersPadded | http2.FlagHeadersPriority
			p.send(frames.Raw(http2.FrameHeaders, flags, id, frames.Padded(block, 77)...), frames.Data(id, true, rangeBody))
			return p.served(id)
		}},
		{name: "DATA with as much padding as payload", run: func(p *peer) error {
			id := p.begin(rangeHeaders, false)
			p.send(frames.Raw(http2.FrameData, http2.FlagDataPadded, id, 4, 0, 0, 0))
			_ = id
			return p.connectionError(protocolError)
		}},
		{name: "DATA with the flag and no length of padding", run: func(p *peer) error {
			id := p.begin(rangeHeaders, false)
			p.send(frames.Raw(http2.FrameData, http2.FlagDataPadded, id))
			return p.connectionError(sizeError, protocolError)
		}},
		{name: "a message whose every byte is padded", run: func(p *peer) error {
			id := p.begin(rangeHeaders, false)
			for i := range rangeBody {
				p.send(paddedData(id, 0, rangeBody[i:i+1], 255))
			}
			p.send(paddedData(id, http2.FlagDataEndStream, nil, 255))
			return p.served(id)
		}},
		{name: "padding counts and is given back", run: func(p *peer) error {
			id := p.begin(frames.GRPC(putPath), false)
			return p.upload(id, putBody(600_000), func(piece []byte) []byte { return paddedData(id, 0, piece, 255) }, 100)
		}},
	}
	for _, padding := range []int{0, 1, 255} {
		cases = append(cases, testCase{name: fmt.Sprintf("HEADERS and DATA with %d bytes", padding), run: func(p *peer) error {
			id := p.stream()
			p.send(paddedHeaders(p, id, padding), paddedData(id, http2.FlagDataEndStream, rangeBody, padding))
			return p.served(id)
		}})
	}
	runCases(t, server, cases)
}

// TestSettings is section 6.5.
func TestSettings(t *testing.T) {
	server := harness.Start(t, harness.Subject())
	invalid := func(name string, code http2.ErrCode, settings ...http2.Setting) testCase {
		return connectionErrorFor(name, code, frames.Settings(settings...))
	}
	valid := func(name string, settings ...http2.Setting) testCase {
		return testCase{name: name, run: func(p *peer) error {
			p.send(frames.Settings(settings...))
			if _, err := p.await("the acknowledgement", isSettingsAck); err != nil {
				return err
			}
			return p.alive()
		}}
	}
	runCases(t, server, []testCase{
		connectionErrorFor("on a stream", protocolError, frames.Raw(http2.FrameSettings, 0, 1)),
		connectionErrorFor("an acknowledgement on a stream", protocolError, frames.Raw(http2.FrameSettings, http2.FlagSettingsAck, 1)),
		invalid("ENABLE_PUSH of 2", protocolError, set(settingPush, 2)),
		invalid("a window of 2^31", flowError, set(settingWindow, 1<<31)),
		invalid("a window of 2^32-1", flowError, set(settingWindow, 1<<32-1)),
		invalid("a frame size of 0", protocolError, set(settingFrame, 0)),
		invalid("a frame size of 16,383", protocolError, set(settingFrame, 16_383)),
		invalid("a frame size of 2^24", protocolError, set(settingFrame, 1<<24)),
		invalid("a wrong one between right ones", protocolError, set(settingTable, 100), set(settingPush, 7), set(settingStreams, 1)),
		valid("none"),
		valid("ENABLE_PUSH of 0 and 1", set(settingPush, 0), set(settingPush, 1)),
		valid("a window of 2^31-1", set(settingWindow, windowMax)),
		valid("the largest frame size", set(settingFrame, 1<<24-1)),
		valid("no concurrent streams", set(settingStreams, 0)),
		valid("a header list of any size", set(settingList, 1<<32-1)),
		valid("a table of 2^32-1", set(settingTable, 1<<32-1)),
		valid("unknown ones", set(0, 1), set(settingUnknown, 1<<32-1), set(0xffff, 0), set(settingExtended, 0)),
		valid("the last of one name counts", set(settingWindow, 0), set(settingWindow, windowDefault)),
		valid("2,730 in one frame", func() (many []http2.Setting) {
			for i := range uint32(frames.BytesMax / 6) {
				many = append(many, set(settingUnknown, i))
			}
			return many
		}()...),
		{name: "each is acknowledged once", run: func(p *peer) error {
			const count = 20
			batch := [][]byte{}
			for i := range uint32(count) {
				batch = append(batch, frames.Settings(set(settingStreams, i)))
			}
			p.send(append(batch, frames.Raw(http2.FramePing, 0, 0, make([]byte, 8)...))...)
			acks := 0
			_, err := p.await("all acknowledgements and a ping's", func(e event) bool {
				if isSettingsAck(e) {
					acks++
				}
				return e.Type == http2.FramePing
			})
			for err == nil && acks < count {
				_, err = p.await("the acknowledgements", isSettingsAck)
				acks++
			}
			if err != nil {
				return err
			}
			return p.silent(0)
		}},
		{name: "a smaller table is confirmed in the next header block", run: func(p *peer) error {
			if err := p.served(p.call(rangeHeaders, rangeBody)); err != nil {
				return err
			}
			p.send(frames.Settings(set(settingTable, 0)))
			if _, err := p.await("the acknowledgement", isSettingsAck); err != nil {
				return err
			}
			id := p.call(rangeHeaders, rangeBody)
			e, err := p.await("the next headers", func(e event) bool { return e.Type == http2.FrameHeaders })
			if err == nil && (e.StreamID != id || len(e.fragment) == 0 || e.fragment[0] != 0x20) {
				return fmt.Errorf("the block %x does not begin with a table size of 0 (RFC 7541 section 4.2)", e.fragment)
			}
			return err
		}},
		{name: "a table that shrinks and grows in one go", run: func(p *peer) error {
			if err := p.served(p.call(rangeHeaders, rangeBody)); err != nil {
				return err
			}
			p.send(frames.Settings(set(settingTable, 0)), frames.Settings(set(settingTable, 4096)))
			for range 2 {
				if _, err := p.await("the acknowledgement", isSettingsAck); err != nil {
					return err
				}
			}
			id := p.call(rangeHeaders, rangeBody)
			e, err := p.await("the next headers", func(e event) bool { return e.Type == http2.FrameHeaders })
			if err == nil && (e.StreamID != id || !bytes.HasPrefix(e.fragment, []byte{0x20})) {
				return fmt.Errorf("the block %x does not begin with the smallest size, 0 (RFC 7541 section 4.2)", e.fragment)
			}
			return err
		}},
	})
}
