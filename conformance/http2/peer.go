package http2

import (
	"bytes"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"cairn.dev/conformance/frames"
	"cairn.dev/conformance/harness"
)

const (
	// answerMax is how long anything that must come may take.
	answerMax = time.Minute
	// quietTime is how long the wire is watched for what must not come.
	quietTime = 150 * time.Millisecond
	// windowDefault is the size of every flow-control window at first.
	windowDefault = 65_535
	// windowMax is the largest window there is.
	windowMax = 1<<31 - 1
)

// peer is the client's end of one connection. It writes whatever it is told to
// and hands out what comes back, frame by frame.
type peer struct {
	conn net.Conn
	// events are the frames that have come; closed at the end of the connection.
	events chan event
	// settings are the server's, credit is what its WINDOW_UPDATE frames have
	// added, by stream; both as far as events were looked at.
	settings map[http2.SettingID]uint32
	credit   map[uint32]int64
	// next is the stream that the next call uses.
	next uint32

	encoder *hpack.Encoder
	block   bytes.Buffer

	// writing guards the connection: the reader acknowledges by itself.
	writing sync.Mutex
	// mute leaves pings of the server without answer; they gather here.
	mute       bool
	unanswered [][]byte
}

// event is a frame that has come.
type event struct {
	http2.FrameHeader
	// fields of HEADERS; fragment is the block they came in.
	fields   []hpack.HeaderField
	fragment []byte
	// data of DATA, PING and the text of GOAWAY.
	data []byte
	// code of RST_STREAM and GOAWAY.
	code http2.ErrCode
	// number is the increment of WINDOW_UPDATE, the last stream of GOAWAY.
	number   uint32
	settings []http2.Setting
	// broken says why the frame could not be understood.
	broken error
}

func (e event) String() string {
	switch e.Type {
	case http2.FrameGoAway:
		return fmt.Sprintf("GOAWAY %v %q, last stream %d", e.code, e.data, e.number)
	case http2.FrameRSTStream:
		return fmt.Sprintf("RST_STREAM %v on %d", e.code, e.StreamID)
	case http2.FrameHeaders:
		return fmt.Sprintf("%v on %d: %v", e.Type, e.StreamID, e.fields)
	}
	return fmt.Sprint(e.FrameHeader)
}

// ends says whether nothing follows on the stream.
func (e event) ends() bool {
	return e.Type == http2.FrameRSTStream ||
		(e.Type == http2.FrameHeaders || e.Type == http2.FrameData) && e.Flags.Has(http2.FlagDataEndStream)
}

// connect opens a connection and sends nothing.
func connect(server *harness.Server) (*peer, error) {
	conn, err := net.DialTimeout("tcp", server.Endpoint(), answerMax)
	if err != nil {
		return nil, err
	}
	p := &peer{conn: conn, events: make(chan event, 1<<16), next: 1}
	p.settings, p.credit = map[http2.SettingID]uint32{}, map[uint32]int64{}
	p.encoder = hpack.NewEncoder(&p.block)
	_ = conn.SetWriteDeadline(time.Now().Add(2 * time.Minute))
	go p.read()
	return p, nil
}

// dial opens a connection, sends the preface with these settings and awaits the
// server's and the acknowledgement.
func dial(server *harness.Server, settings ...http2.Setting) (*peer, error) {
	p, err := connect(server)
	if err != nil {
		return nil, err
	}
	p.send([]byte(http2.ClientPreface), frames.Settings(settings...))
	first, err := p.await("the server's preface", func(event) bool { return true })
	if err != nil {
		return nil, err
	}
	if first.Type != http2.FrameSettings || first.Flags.Has(http2.FlagSettingsAck) {
		return nil, fmt.Errorf("the server's preface is %v", first)
	}
	_, err = p.await("the acknowledgement of the settings", isSettingsAck)
	return p, err
}

func isSettingsAck(e event) bool {
	return e.Type == http2.FrameSettings && e.Flags.Has(http2.FlagSettingsAck)
}

func (p *peer) close() { p.conn.Close() }

// send writes frames in one go. An error shows when the answer is awaited.
func (p *peer) send(batch ...[]byte) {
	p.writing.Lock()
	defer p.writing.Unlock()
	_, _ = p.conn.Write(slices.Concat(batch...))
}

// read turns what comes into events.
func (p *peer) read() {
	defer close(p.events)
	framer := http2.NewFramer(nil, p.conn)
	framer.AllowIllegalReads = true
	framer.SetMaxReadFrameSize(1<<24 - 1)
	decoder := hpack.NewDecoder(4096, nil)
	var fragment []byte
	var opening http2.FrameHeader
	for {
		frame, err := framer.ReadFrame()
		if err != nil {
			return
		}
		e := event{FrameHeader: frame.Header()}
		switch frame := frame.(type) {
		case *http2.SettingsFrame:
			if !frame.IsAck() {
				_ = frame.ForeachSetting(func(setting http2.Setting) error {
					e.settings = append(e.settings, setting)
					return nil
				})
				p.send(frames.Raw(http2.FrameSettings, http2.FlagSettingsAck, 0))
			}
		case *http2.PingFrame:
			e.data = slices.Clone(frame.Data[:])
			if !frame.IsAck() {
				p.pong(e.data)
			}
		case *http2.DataFrame:
			e.data = slices.Clone(frame.Data())
		case *http2.RSTStreamFrame:
			e.code = frame.ErrCode
		case *http2.GoAwayFrame:
			e.code, e.number, e.data = frame.ErrCode, frame.LastStreamID, slices.Clone(frame.DebugData())
		case *http2.WindowUpdateFrame:
			e.number = frame.Increment
		case *http2.HeadersFrame:
			fragment, opening = slices.Clone(frame.HeaderBlockFragment()), e.FrameHeader
			if !frame.HeadersEnded() {
				continue
			}
			e.fragment = fragment
			e.fields, e.broken = decoder.DecodeFull(fragment)
		case *http2.ContinuationFrame:
			fragment = append(fragment, frame.HeaderBlockFragment()...)
			if !frame.HeadersEnded() {
				continue
			}
			e.FrameHeader, e.fragment = opening, fragment
			e.fields, e.broken = decoder.DecodeFull(fragment)
		}
		p.events <- e
	}
}

// pong answers a ping, or keeps it for later.
func (p *peer) pong(data []byte) {
	p.writing.Lock()
	if p.mute {
		p.unanswered = append(p.unanswered, data)
		p.writing.Unlock()
		return
	}
	p.writing.Unlock()
	p.send(frames.Raw(http2.FramePing, http2.FlagPingAck, 0, data...))
}

// setMute says whether pings are left without answer. Once they are answered
// again, so are those that gathered.
func (p *peer) setMute(mute bool) {
	p.writing.Lock()
	p.mute = mute
	gathered := p.unanswered
	p.unanswered = nil
	p.writing.Unlock()
	for _, data := range gathered {
		p.pong(data)
	}
}

// found is what a wait ended with.
type found int

const (
	came found = iota
	closed
	nothing
)

// take returns the next event, if one comes before the deadline.
func (p *peer) take(deadline <-chan time.Time) (event, found) {
	select {
	case e, open := <-p.events:
		if !open {
			return e, closed
		}
		for _, setting := range e.settings {
			p.settings[setting.ID] = setting.Val
		}
		if e.Type == http2.FrameWindowUpdate {
			p.credit[e.StreamID] += int64(e.number)
		}
		return e, came
	case <-deadline:
		return event{}, nothing
	}
}

// await returns the first event that is looked for. The end of the connection
// and a GOAWAY with an error end the wait.
func (p *peer) await(what string, wanted func(event) bool) (event, error) {
	deadline := time.After(answerMax)
	var seen []string
	for {
		e, found := p.take(deadline)
		switch {
		case found == closed:
			return e, fmt.Errorf("waiting for %s: the connection is closed (before: %s)", what, tail(seen))
		case found == nothing:
			return e, fmt.Errorf("waiting for %s: nothing after %v (before: %s)", what, answerMax, tail(seen))
		case e.broken != nil:
			return e, fmt.Errorf("the server's %v cannot be understood: %w", e.FrameHeader, e.broken)
		case wanted(e):
			return e, nil
		case e.Type == http2.FrameGoAway && e.code != http2.ErrCodeNo:
			return e, fmt.Errorf("waiting for %s: %v", what, e)
		}
		seen = append(seen, e.String())
	}
}

func tail(seen []string) string { return strings.Join(seen[max(0, len(seen)-6):], "; ") }

// isGoAway says whether an event ends the connection with one of these codes.
func isGoAway(e event, codes []http2.ErrCode) bool {
	return e.Type == http2.FrameGoAway && slices.Contains(codes, e.code)
}

// connectionError wants GOAWAY with one of the codes, and then the end of the
// connection.
func (p *peer) connectionError(codes ...http2.ErrCode) error {
	_, err := p.await(fmt.Sprintf("GOAWAY %v", codes), func(e event) bool { return isGoAway(e, codes) })
	if err != nil {
		return err
	}
	return p.ended()
}

// ended wants the connection to be closed.
func (p *peer) ended() error {
	for deadline := time.After(answerMax); ; {
		switch _, found := p.take(deadline); found {
		case closed:
			return nil
		case nothing:
			return fmt.Errorf("the connection is not closed after %v", answerMax)
		}
	}
}

// streamError wants the stream to be reset with one of the codes. The RFC
// (section 5.4.2) lets an endpoint end the connection for it, too.
func (p *peer) streamError(id uint32, codes ...http2.ErrCode) error {
	_, err := p.await(fmt.Sprintf("RST_STREAM %v on %d", codes, id), func(e event) bool {
		return isGoAway(e, codes) || e.Type == http2.FrameRSTStream && e.StreamID == id && slices.Contains(codes, e.code)
	})
	return err
}

// malformed wants the request to be refused as malformed (section 8.1.1): the
// stream is an error, with or without a 400 before it.
func (p *peer) malformed(id uint32) error {
	codes := []http2.ErrCode{http2.ErrCodeProtocol}
	e, err := p.await(fmt.Sprintf("the refusal of %d", id), func(e event) bool {
		return isGoAway(e, codes) || e.StreamID == id && (e.ends() || e.Type == http2.FrameHeaders)
	})
	switch {
	case err != nil:
		return err
	case e.Type == http2.FrameHeaders && status(e.fields) == "400":
		return nil
	case e.Type == http2.FrameHeaders, e.Type == http2.FrameData:
		return fmt.Errorf("a malformed request is answered: %v", e)
	case e.code != http2.ErrCodeProtocol:
		return fmt.Errorf("a malformed request is refused with %v", e)
	}
	return nil
}

// silent wants nothing on the stream for a while; windows may be opened.
func (p *peer) silent(id uint32) error {
	for deadline := time.After(quietTime); ; {
		switch e, found := p.take(deadline); {
		case found == nothing:
			return nil
		case found == closed:
			return fmt.Errorf("nothing was due on %d, but the connection is closed", id)
		case e.Type == http2.FrameGoAway, e.StreamID == id && e.Type != http2.FrameWindowUpdate:
			return fmt.Errorf("nothing was due on %d, but %v", id, e)
		}
	}
}

// alive wants a ping to be answered, and a call.
func (p *peer) alive() error {
	if err := p.ping("stillhere"[:8]); err != nil {
		return err
	}
	return p.served(p.call(rangeHeaders, rangeBody))
}

func (p *peer) ping(data string) error {
	p.send(frames.Raw(http2.FramePing, 0, 0, []byte(data)...))
	_, err := p.await("the answer to a ping", func(e event) bool {
		return e.Type == http2.FramePing && e.Flags.Has(http2.FlagPingAck) && string(e.data) == data
	})
	return err
}
