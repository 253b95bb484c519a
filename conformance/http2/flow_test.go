package http2

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"cairn.dev/conformance/frames"
	"cairn.dev/conformance/harness"
)

// upload sends a body within the windows that the server has granted, as
// pieces of pieceBytes that wrap turns into frames, and awaits the answer. It
// fails when the server does not open a window that it has to.
func (p *peer) upload(id uint32, body []byte, wrap func(piece []byte) []byte, pieceBytes int) error {
	stream, connection := int64(windowDefault), int64(windowDefault)
	if size, known := p.settings[settingWindow]; known {
		stream = int64(size)
	}
	for len(body) > 0 {
		piece := body[:min(pieceBytes, len(body))]
		frame := wrap(piece)
		cost := int64(len(frame) - 9)
		for stream+p.credit[id] < cost || connection+p.credit[0] < cost {
			_, err := p.await("a window to be opened", func(e event) bool { return e.Type == http2.FrameWindowUpdate })
			if err != nil {
				return err
			}
		}
		p.send(frame)
		stream, connection, body = stream-cost, connection-cost, body[len(piece):]
	}
	p.send(frames.Data(id, true, nil))
	return p.served(id)
}

// dataOn reads until so many bytes of DATA have come on a stream and wants no
// more than that.
func (p *peer) dataOn(id uint32, bytes int) error {
	seen := 0
	for seen < bytes {
		e, err := p.await(fmt.Sprintf("%d more bytes on %d", bytes-seen, id), func(e event) bool {
			return e.StreamID == id && (e.Type == http2.FrameData || e.ends())
		})
		if err != nil {
			return err
		}
		if e.ends() {
			return fmt.Errorf("the stream ends after %d of %d bytes: %v", seen, bytes, e)
		}
		seen += int(e.Length)
	}
	if seen > bytes {
		return fmt.Errorf("%d bytes where the window is %d", seen, bytes)
	}
	return p.silent(id)
}

// TestSending is section 5.2 and 6.9 as far as the server sends: the store holds
// a list of 2 MB.
func TestSending(t *testing.T) {
	const listBytes = 2_000_000
	server := harness.Start(t, harness.Subject())
	client := server.Client()
	for i := range 20 {
		if _, err := client.Put(context.Background(), fmt.Sprint("key", i), strings.Repeat("v", listBytes/20)); err != nil {
			t.Fatal(err)
		}
	}
	list := func(p *peer) uint32 { return p.call(rangeHeaders, listBody) }
	whole := func(p *peer, id uint32, already int) error {
		seen, err := p.answer(id)
		if err == nil && (seen.code != "0" || len(seen.body)+already < listBytes || seen.reset != nil) {
			return fmt.Errorf("%d bytes, %v", len(seen.body)+already, seen.fields)
		}
		return err
	}
	narrow := func(window uint32) []http2.Setting { return []http2.Setting{set(settingWindow, window)} }
	runCases(t, server, []testCase{
		{name: "a window of 0 holds DATA back, not HEADERS", settings: narrow(0), run: func(p *peer) error {
			id := list(p)
			if _, err := p.await("HEADERS", func(e event) bool { return e.StreamID == id && e.Type == http2.FrameHeaders }); err != nil {
				return err
			}
			return p.silent(id)
		}},
		{name: "an error needs no window", settings: narrow(0), run: func(p *peer) error {
			return p.refused(p.call(frames.GRPC("/no.Such/Method"), nil), "12")
		}},
		{name: "a window that opens byte by byte", settings: narrow(0), run: func(p *peer) error {
			id := list(p)
			for i := range 50 {
				p.send(frames.Window(id, 1))
				e, err := p.await("a byte", func(e event) bool { return e.StreamID == id && e.Type == http2.FrameData })
				if err != nil || e.Length != 1 {
					return fmt.Errorf("byte %d: %v, %w", i, e, err)
				}
			}
			p.send(frames.Window(0, windowMax-windowDefault), frames.Window(id, windowMax))
			return whole(p, id, 50)
		}},
		{name: "SETTINGS open the window of a stream that waits", settings: narrow(0), run: func(p *peer) error {
			id := list(p)
			if _, err := p.await("HEADERS", func(e event) bool { return e.StreamID == id && e.Type == http2.FrameHeaders }); err != nil {
				return err
			}
			p.send(frames.Settings(set(settingWindow, 1)))
			if err := p.dataOn(id, 1); err != nil {
				return err
			}
			p.send(frames.Settings(set(settingWindow, windowMax)), frames.Window(0, windowMax-windowDefault))
			return whole(p, id, 1)
		}},
		{name: "SETTINGS do not open the connection's window", settings: narrow(windowMax), run: func(p *peer) error {
			return p.dataOn(list(p), windowDefault)
		}},
		{name: "a window below 0", settings: narrow(10_000), run: func(p *peer) error {
			id := list(p)
			if err := p.dataOn(id, 10_000); err != nil {
				return err
			}
			// It is 0 now, then -9,900, 0, 1.
			p.send(frames.Settings(set(settingWindow, 100)), frames.Window(id, 9_900))
			if err := p.dataOn(id, 0); err != nil {
				return err
			}
			p.send(frames.Window(id, 1))
			if err := p.dataOn(id, 1); err != nil {
				return err
			}
			p.send(frames.Window(0, windowMax-windowDefault), frames.Settings(set(settingWindow, 1_000_000)), frames.Window(id, 5_000_000))
			return whole(p, id, 10_001)
		}},
		{name: "a stream that uses up the connection's window", settings: narrow(windowMax), run: func(p *peer) error {
			first := list(p)
			if err := p.dataOn(first, windowDefault); err != nil {
				return err
			}
			// What needs no window goes on.
			if err := p.ping("no DATA!"); err != nil {
				return err
			}
			if err := p.refused(p.call(frames.GRPC("/no.Such/Method"), nil), "12"); err != nil {
				return err
			}
			second := p.call(rangeHeaders, rangeBody)
			p.send(frames.Window(0, windowMax-windowDefault))
			if err := p.both(first, second); err != nil {
				return err
			}
			return nil
		}},
		{name: "a stream that is reset gives the rest its share", settings: narrow(windowMax), run: func(p *peer) error {
			id := list(p)
			if err := p.dataOn(id, windowDefault); err != nil {
				return err
			}
			second := list(p)
			p.send(frames.Reset(id, http2.ErrCodeCancel), frames.Window(0, windowMax-windowDefault))
			return whole(p, second, 0)
		}},
		{name: "frames are not larger than the client allows", settings: narrow(windowMax), run: func(p *peer) error {
			p.send(frames.Window(0, windowMax-windowDefault))
			seen, err := p.answer(list(p))
			if err == nil && seen.frameBytes > frames.BytesMax {
				return fmt.Errorf("a frame of %d bytes", seen.frameBytes)
			}
			return err
		}},
		{name: "larger frames where the client allows them", settings: append(narrow(windowMax), set(settingFrame, 40_000)), run: func(p *peer) error {
			p.send(frames.Window(0, windowMax-windowDefault))
			seen, err := p.answer(list(p))
			if err == nil && seen.frameBytes > 40_000 {
				return fmt.Errorf("a frame of %d bytes", seen.frameBytes)
			}
			return err
		}},
		{name: "the connection's window over 2^31-1", run: func(p *peer) error {
			p.send(frames.Window(0, windowMax-windowDefault), frames.Window(0, 1))
			return p.connectionError(flowError)
		}},
		{name: "the connection's window of 2^31-1", run: func(p *peer) error {
			p.send(frames.Window(0, windowMax-windowDefault))
			return p.alive()
		}},
		{name: "a stream's window over 2^31-1", run: func(p *peer) error {
			id := p.begin(rangeHeaders, false)
			p.send(frames.Window(id, windowMax-windowDefault), frames.Window(id, 1))
			return p.streamError(id, flowError)
		}},
		{name: "a stream's window over 2^31-1 by SETTINGS", run: func(p *peer) error {
			id := p.begin(rangeHeaders, false)
			p.send(frames.Window(id, windowMax-windowDefault), frames.Settings(set(settingWindow, windowDefault+1)))
			return p.connectionError(flowError)
		}},
		{name: "a stream's window of 2^31-1 by SETTINGS", run: func(p *peer) error {
			id := p.begin(rangeHeaders, false)
			p.send(frames.Window(id, windowMax-windowDefault-5), frames.Settings(set(settingWindow, windowDefault+5)))
			p.send(frames.Data(id, true, rangeBody))
			return p.served(id)
		}},
		{name: "WINDOW_UPDATE after the stream's end", run: func(p *peer) error {
			id := p.call(rangeHeaders, rangeBody)
			if err := p.served(id); err != nil {
				return err
			}
			p.send(frames.Window(id, 1_000))
			return p.alive()
		}},
	})
}

// both wants two streams to be answered in whichever order.
func (p *peer) both(first, second uint32) error {
	open := map[uint32]bool{first: true, second: true}
	for len(open) > 0 {
		e, err := p.await("two answers", func(e event) bool { return open[e.StreamID] && e.ends() })
		if err != nil {
			return err
		}
		if e.Type != http2.FrameHeaders || value(e.fields, "grpc-status") != "0" {
			return fmt.Errorf("the call on %d ends with %v", e.StreamID, e)
		}
		delete(open, e.StreamID)
	}
	return nil
}

// TestReceiving is the same as far as the server receives.
func TestReceiving(t *testing.T) {
	server := harness.Start(t, harness.Subject())
	data := func(id uint32) func([]byte) []byte {
		return func(piece []byte) []byte { return frames.Data(id, false, piece) }
	}
	runCases(t, server, []testCase{
		{name: "puts of 1 MB within the windows", run: func(p *peer) error {
			for range 20 {
				id := p.begin(frames.GRPC(putPath), false)
				if err := p.upload(id, putBody(1_000_000), data(id), frames.BytesMax); err != nil {
					return err
				}
			}
			return nil
		}},
		{name: "a put byte by byte", run: func(p *peer) error {
			id := p.begin(frames.GRPC(putPath), false)
			return p.upload(id, putBody(500), data(id), 1)
		}},
		{name: "empty DATA between", run: func(p *peer) error {
			id := p.begin(rangeHeaders, false)
			for i := range rangeBody {
				p.send(frames.Data(id, false, nil), frames.Data(id, false, rangeBody[i:i+1]))
			}
			p.send(frames.Data(id, true, nil))
			return p.served(id)
		}},
		{name: "requests that are given up give their bytes back", run: func(p *peer) error {
			return p.waste(200, frames.GRPC(putPath), frames.Framed(0, make([]byte, 60_000))[:50_000], true)
		}},
		{name: "DATA for a request that was refused", run: func(p *peer) error {
			return p.waste(200, frames.GRPC("/no.Such/Method"), make([]byte, 50_000), false)
		}},
		{name: "DATA for a message that is too large", run: func(p *peer) error {
			return p.waste(100, frames.GRPC(putPath), append([]byte{0, 0x7f, 0xff, 0xff, 0xff}, make([]byte, 60_000)...), false)
		}},
		{name: "DATA beyond a window that stays shut", settings: []http2.Setting{set(settingWindow, 0)}, run: overrun},
	})
}

// waste sends bytes on many streams that come to nothing. In the end the
// connection's window must be as open as it was, or nothing could be sent.
func (p *peer) waste(times int, fields []hpack.HeaderField, data []byte, reset bool) error {
	sent := int64(0)
	for range times {
		for windowDefault+p.credit[0]-sent < int64(len(data)) {
			_, err := p.await("the connection's window to be opened", func(e event) bool {
				return e.Type == http2.FrameWindowUpdate && e.StreamID == 0
			})
			if err != nil {
				return fmt.Errorf("after %d bytes: %w", sent, err)
			}
		}
		id := p.begin(fields, false)
		p.send(frames.DataAll(id, false, data))
		sent += int64(len(data))
		if reset {
			p.send(frames.Reset(id, http2.ErrCodeCancel))
		}
	}
	return p.alive()
}

// overrun asks for more and more watches whose answers the client's window of 0
// holds back, until the server holds the client back in turn. The byte after
// that is one too many.
func overrun(p *peer) error {
	const bytesMax = 64 << 20
	stream, connection := int64(windowDefault), int64(windowDefault)
	if size, known := p.settings[settingWindow]; known {
		stream = int64(size)
	}
	id := p.begin(watchHeaders, false)
	request := watchBody
	for len(request)+len(watchBody) <= frames.BytesMax {
		request = append(request, watchBody...)
	}
	for sent := int64(0); sent < bytesMax; {
		room := min(stream+p.credit[id], connection+p.credit[0]) - sent
		if room > 0 {
			piece := request[:min(room, int64(len(request)))]
			p.send(frames.Data(id, false, piece))
			sent += int64(len(piece))
			// Keeps to whole messages as long as the window allows.
			if len(piece) < len(request) {
				rest := request[len(piece):]
				request = append(append([]byte{}, rest...), request[:len(piece)]...)
			}
			continue
		}
		e, found := p.take(time.After(10 * time.Second))
		switch {
		case found == closed, found == came && (e.Type == http2.FrameGoAway || e.StreamID == id && e.ends()):
			return fmt.Errorf("after %d bytes within the window: %v", sent, e)
		case found == nothing:
			// Shut, and it stays shut.
			p.send(frames.Data(id, false, make([]byte, 1)))
			return p.streamError(id, flowError)
		}
	}
	return errors.New("64 MB of requests were taken whose answers nobody takes")
}
