package http2

import (
	"errors"
	"fmt"
	"testing"

	"golang.org/x/net/http2"

	"cairn.dev/conformance/frames"
	"cairn.dev/conformance/harness"
)

// TestStreams is section 5.1: which frames a stream may get in which state.
func TestStreams(t *testing.T) {
	server := harness.Start(t, harness.Subject())
	block := frames.Literals(rangeHeaders...)
	// A watch whose request is whole stays half closed.
	halfClosed := func(p *peer) (uint32, error) {
		id := p.begin(watchHeaders, false)
		p.send(frames.Data(id, false, watchBody))
		_, err := p.await("the watch", func(e event) bool { return e.StreamID == id && e.Type == http2.FrameData })
		return id, err
	}
	// A call that is over on both sides.
	over := func(p *peer) (uint32, error) {
		id := p.call(rangeHeaders, rangeBody)
		return id, p.served(id)
	}
	after := func(name string, state func(p *peer) (uint32, error), then func(p *peer, id uint32) error) testCase {
		return testCase{name: name, run: func(p *peer) error {
			id, err := state(p)
			if err != nil {
				return err
			}
			return then(p, id)
		}}
	}
	sent := func(p *peer) (uint32, error) {
		id := p.begin(rangeHeaders, false)
		p.send(frames.Data(id, true, rangeBody))
		return id, nil
	}
	runCases(t, server, []testCase{
		connectionErrorFor("DATA on an idle stream", protocolError, frames.Data(1, true, rangeBody)),
		connectionErrorFor("DATA on a stream of the server", protocolError, frames.Data(2, true, rangeBody)),
		connectionErrorFor("HEADERS on an even stream", protocolError, frames.Headers(2, true, block)),
		connectionErrorFor("RST_STREAM on an even stream", protocolError, frames.Reset(2, http2.ErrCodeCancel)),
		{name: "HEADERS on a number that was passed over", run: func(p *peer) error {
			p.send(frames.Headers(7, false, block), frames.Data(7, true, rangeBody))
			if err := p.served(7); err != nil {
				return err
			}
			p.send(frames.Headers(5, true, block))
			return p.connectionError(protocolError)
		}},
		{name: "DATA on a number that was passed over", run: func(p *peer) error {
			p.send(frames.Headers(7, false, block), frames.Data(7, true, rangeBody))
			if err := p.served(7); err != nil {
				return err
			}
			p.send(frames.Data(5, true, rangeBody))
			return p.streamError(5, protocolError, closedError)
		}},
		{name: "the largest number", run: func(p *peer) error {
			p.next = 1<<31 - 1
			return p.served(p.call(rangeHeaders, rangeBody))
		}},
		{name: "large steps", run: func(p *peer) error {
			for _, p.next = range []uint32{1, 3, 101, 65_537, 1<<24 + 1, 1<<30 + 1} {
				if err := p.served(p.call(rangeHeaders, rangeBody)); err != nil {
					return err
				}
			}
			return nil
		}},
		{name: "the reserved bit of a number", run: func(p *peer) error {
			p.send(frames.Headers(reservedBit|1, false, block), frames.Data(reservedBit|1, true, rangeBody))
			return p.served(1)
		}},

		after("DATA after the request's end", sent, func(p *peer, id uint32) error {
			p.send(frames.Data(id, true, rangeBody))
			return p.closedOrServed(id)
		}),
		after("HEADERS after the request's end", sent, func(p *peer, id uint32) error {
			p.send(frames.Headers(id, true, block))
			return p.closedOrServed(id)
		}),
		after("DATA after the request's end, the stream half closed", func(p *peer) (uint32, error) {
			id, err := halfClosed(p)
			p.send(frames.Settings(set(settingWindow, 0)), frames.Data(id, true, nil))
			return id, err
		}, func(p *peer, id uint32) error {
			p.send(frames.Data(id, false, watchBody))
			e, err := p.await("the end", func(e event) bool {
				return isGoAway(e, []http2.ErrCode{closedError}) || e.StreamID == id && e.ends()
			})
			if err == nil && e.Type == http2.FrameRSTStream && e.code != closedError && e.code != noError {
				return fmt.Errorf("the stream ends with %v", e)
			}
			return err
		}),
		after("DATA on a stream that is over", over, func(p *peer, id uint32) error {
			p.send(frames.Data(id, true, rangeBody))
			return p.streamError(id, closedError)
		}),
		after("HEADERS on a stream that is over", over, func(p *peer, id uint32) error {
			p.send(frames.Headers(id, true, block))
			return p.connectionError(closedError, protocolError)
		}),
		after("RST_STREAM on a stream that is over", over, func(p *peer, id uint32) error {
			p.send(frames.Reset(id, http2.ErrCodeCancel))
			return p.alive()
		}),
		after("RST_STREAM twice", over, func(p *peer, id uint32) error {
			next := p.begin(rangeHeaders, false)
			p.send(frames.Reset(next, http2.ErrCodeCancel), frames.Reset(next, http2.ErrCodeCancel))
			return p.alive()
		}),
		after("RST_STREAM right behind the request", sent, func(p *peer, id uint32) error {
			p.send(frames.Reset(id, http2.ErrCodeCancel))
			return p.alive()
		}),
		after("RST_STREAM with an unknown code", halfClosed, func(p *peer, id uint32) error {
			p.send(frames.Reset(id, 0xffffffff))
			if err := p.silent(id); err != nil {
				return err
			}
			return p.alive()
		}),
		after("RST_STREAM and nothing more on that stream", halfClosed, func(p *peer, id uint32) error {
			p.send(frames.Reset(id, http2.ErrCodeCancel))
			if err := p.silent(id); err != nil {
				return err
			}
			return p.alive()
		}),
		after("DATA after the client's RST_STREAM", halfClosed, func(p *peer, id uint32) error {
			p.send(frames.Reset(id, http2.ErrCodeCancel), frames.Data(id, false, watchBody))
			return p.streamError(id, closedError)
		}),
		after("HEADERS after the client's RST_STREAM", halfClosed, func(p *peer, id uint32) error {
			p.send(frames.Reset(id, http2.ErrCodeCancel), frames.Headers(id, true, block))
			return p.streamError(id, closedError, protocolError)
		}),
		// The server ends a call that it refuses; what was on its way then is no mistake of the client's.
		{name: "DATA behind a refusal", run: func(p *peer) error {
			id := p.begin(frames.GRPC("/no.Such/Method"), false)
			if err := p.refused(id, "12"); err != nil {
				return err
			}
			p.send(frames.Data(id, false, rangeBody), frames.Data(id, true, rangeBody))
			return p.alive()
		}},
		{name: "WINDOW_UPDATE and RST_STREAM behind a refusal", run: func(p *peer) error {
			id := p.begin(frames.GRPC("/no.Such/Method"), false)
			if err := p.refused(id, "12"); err != nil {
				return err
			}
			p.send(frames.Window(id, 100), frames.Reset(id, http2.ErrCodeCancel))
			return p.alive()
		}},
		{name: "the trailers of a request behind a refusal", run: func(p *peer) error {
			id := p.begin(frames.GRPC("/no.Such/Method"), false)
			if err := p.refused(id, "12"); err != nil {
				return err
			}
			p.send(frames.Headers(id, true, p.encode(grpcTrailers)))
			return p.alive()
		}},
		{name: "RST_STREAM after END_STREAM that has not been read", run: func(p *peer) error {
			for range 100 {
				id := p.call(rangeHeaders, rangeBody)
				p.send(frames.Reset(id, http2.ErrCodeCancel))
			}
			return p.alive()
		}},
		{name: "GOAWAY from the client: what runs is finished", run: func(p *peer) error {
			id := p.begin(rangeHeaders, false)
			p.send(frames.Raw(http2.FrameGoAway, 0, 0, make([]byte, 8)...))
			p.send(frames.Data(id, true, rangeBody))
			return p.served(id)
		}},
	})
}

// closedOrServed wants STREAM_CLOSED; an answer that was sent before the frame
// was read is as good.
func (p *peer) closedOrServed(id uint32) error {
	codes := []http2.ErrCode{closedError}
	e, err := p.await("STREAM_CLOSED", func(e event) bool { return isGoAway(e, codes) || e.StreamID == id && e.ends() })
	switch {
	case err != nil || e.Type == http2.FrameGoAway || e.code == closedError:
		return err
	case e.Type == http2.FrameHeaders && value(e.fields, "grpc-status") == "0":
		return p.streamError(id, closedError, protocolError)
	}
	return fmt.Errorf("the stream ends with %v", e)
}

// TestConcurrentStreams opens as many streams as the server allows, and one more.
func TestConcurrentStreams(t *testing.T) {
	t.Run("by default", func(t *testing.T) { openAllStreams(t, harness.Start(t, harness.Subject()), 0) })
	t.Run("by the flag", func(t *testing.T) {
		openAllStreams(t, harness.Start(t, harness.Subject(), "--max-concurrent-streams=1000"), 1000)
	})
}

// openAllStreams fails too if the server does not state that it allows want streams, unless that is 0.
func openAllStreams(t *testing.T, server *harness.Server, want uint32) {
	const most = 200_000
	p, err := dial(server)
	if err != nil {
		t.Fatal(err)
	}
	defer p.close()
	allowed, stated := p.settings[settingStreams]
	if want != 0 && (!stated || allowed != want) {
		t.Fatalf("%d streams are allowed (stated: %v), the flag says %d", allowed, stated, want)
	}
	if !stated || allowed > most {
		if harness.Subject() == harness.Cairn {
			t.Fatalf("%d streams are allowed (stated: %v)", allowed, stated)
		}
		t.Skipf("%d streams are allowed (stated: %v)", allowed, stated)
	}
	var batch []byte
	var first uint32
	for range allowed {
		id := p.stream()
		if first == 0 {
			first = id
		}
		batch = append(batch, frames.Headers(id, false, p.encode(watchHeaders))...)
	}
	p.send(batch)
	if err := p.ping("allopen!"); err != nil {
		t.Fatal(err)
	}
	extra := p.begin(rangeHeaders, false)
	judge(t, func() error {
		if err := p.streamError(extra, refusedError, protocolError); err != nil {
			return err
		}
		// One ends, so one may begin.
		p.send(frames.Reset(first, http2.ErrCodeCancel))
		return p.served(p.call(rangeHeaders, rangeBody))
	}(), "one stream too many")
}

// TestContinuation is section 6.10.
func TestContinuation(t *testing.T) {
	server := harness.Start(t, harness.Subject())
	block := frames.Literals(rangeHeaders...)
	open := frames.Raw(http2.FrameHeaders, 0, 1, block...)
	closing := frames.Raw(http2.FrameContinuation, http2.FlagContinuationEndHeaders, 1)
	inside := func(name string, frame []byte) testCase {
		return connectionErrorFor(name+" inside a header block", protocolError, open, frame, closing)
	}
	runCases(t, server, []testCase{
		// Servers bound the number of pieces, so there are few; none of them need hold anything.
		{name: "a block in pieces", run: func(p *peer) error {
			id := p.stream()
			p.send(frames.Raw(http2.FrameHeaders, 0, id), frames.Raw(http2.FrameContinuation, 0, id, block[:1]...))
			p.send(frames.Raw(http2.FrameContinuation, 0, id), frames.Raw(http2.FrameContinuation, 0, id, block[1:17]...))
			p.send(frames.Raw(http2.FrameContinuation, http2.FlagContinuationEndHeaders, id, block[17:]...))
			p.send(frames.Data(id, true, rangeBody))
			return p.served(id)
		}},
		{name: "END_STREAM counts from the end of the block", run: func(p *peer) error {
			id := p.stream()
			p.send(frames.Raw(http2.FrameHeaders, http2.FlagHeadersEndStream, id, block...))
			if err := p.silent(id); err != nil {
				return err
			}
			p.send(closing)
			seen, err := p.answer(id)
			if err == nil && seen.code != "13" {
				return fmt.Errorf("a call without a message: %v", seen.fields)
			}
			return err
		}},
		{name: "END_STREAM of CONTINUATION is no flag", run: func(p *peer) error {
			id := p.stream()
			flags := http2.FlagContinuationEndHeaders | http2.FlagHeadersEndStream
			p.send(frames.Raw(http2.FrameHeaders, 0, id, block...), frames.Raw(http2.FrameContinuation, flags, id))
			p.send(frames.Data(id, true, rangeBody))
			return p.served(id)
		}},
		inside("DATA", frames.Data(1, true, rangeBody)),
		inside("HEADERS", frames.Headers(1, true, block)),
		inside("HEADERS of another stream", frames.Headers(3, true, block)),
		inside("PRIORITY", frames.Priority(1, 3)),
		inside("PRIORITY of another stream", frames.Priority(3, 5)),
		inside("RST_STREAM", frames.Reset(1, http2.ErrCodeCancel)),
		inside("SETTINGS", frames.Settings()),
		inside("SETTINGS with ACK", frames.Raw(http2.FrameSettings, http2.FlagSettingsAck, 0)),
		inside("PING", frames.Raw(http2.FramePing, 0, 0, make([]byte, 8)...)),
		inside("GOAWAY", frames.Raw(http2.FrameGoAway, 0, 0, make([]byte, 8)...)),
		inside("WINDOW_UPDATE", frames.Window(0, 1)),
		inside("an unknown frame", frames.Raw(unknownKind, 0, 1)),
		inside("CONTINUATION of another stream", frames.Raw(http2.FrameContinuation, http2.FlagContinuationEndHeaders, 3)),
		inside("CONTINUATION of the connection", frames.Raw(http2.FrameContinuation, http2.FlagContinuationEndHeaders, 0)),
		connectionErrorFor("CONTINUATION alone", protocolError, closing),
		connectionErrorFor("CONTINUATION after a whole block", protocolError, frames.Headers(1, false, block), closing),
		{name: "CONTINUATION after DATA", run: func(p *peer) error {
			id := p.begin(rangeHeaders, false)
			p.send(frames.Data(id, false, rangeBody), frames.Raw(http2.FrameContinuation, http2.FlagContinuationEndHeaders, id))
			return p.connectionError(protocolError)
		}},
		// No bound is given by the RFC; this one is what a server must survive, and end in words (CVE-2024-27316).
		{name: "CONTINUATION without end", run: func(p *peer) error {
			p.send(open)
			go func() {
				junk := frames.Literals(field("x", string(make([]byte, 1_000))))
				for range 100_000 {
					p.send(frames.Raw(http2.FrameContinuation, 0, 1, junk...))
				}
			}()
			return p.connectionError(calmError, protocolError)
		}},
		{name: "empty CONTINUATION without end", run: func(p *peer) error {
			p.send(open)
			go func() {
				many := []byte{}
				for range 1_000 {
					many = append(many, frames.Raw(http2.FrameContinuation, 0, 1)...)
				}
				for range 2_000 {
					p.send(many)
				}
			}()
			return p.connectionError(calmError, protocolError)
		}},
		{name: "the client goes in the middle of a block", run: func(p *peer) error {
			p.send(open)
			p.close()
			if err := p.ended(); err != nil {
				return err
			}
			again, err := dial(server)
			if err != nil {
				return errors.New("the server is gone")
			}
			defer again.close()
			return again.alive()
		}},
	})
}
