package attacks

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"cairn.dev/conformance/frames"
)

const (
	windowDefault = 65_535
	windowMax     = 1<<31 - 1
)

// decodedMax is how many header blocks of a connection are looked into: enough
// to know what the server says, and the attacker has better to do.
const decodedMax = 100

// arena is what the connections of one attack have in common.
type arena struct {
	address string
	stop    <-chan struct{}
	tally   tally

	guard sync.Mutex
	open  map[net.Conn]bool
}

// begin is an attack on an address until stop is closed.
func begin(address string, stop <-chan struct{}) *arena {
	a := &arena{address: address, stop: stop, open: map[net.Conn]bool{}}
	go func() {
		<-stop
		a.guard.Lock()
		defer a.guard.Unlock()
		for conn := range a.open {
			conn.Close()
		}
	}()
	return a
}

// over says whether the attack is to end.
func (a *arena) over() bool {
	select {
	case <-a.stop:
		return true
	default:
		return false
	}
}

// pause waits, unless the attack is to end.
func (a *arena) pause(length time.Duration) {
	select {
	case <-a.stop:
	case <-time.After(length):
	}
}

// line is one connection of an attacker. It is written to from one goroutine.
type line struct {
	arena *arena
	conn  net.Conn
	// next is the stream that comes next.
	next uint32
	// credit is what the server's window for the connection has left, as far as
	// attacks keep to it; streamWindow what it grants each stream.
	credit, streamWindow atomic.Int64
	// gone is set when the server has ended the connection.
	gone atomic.Bool
}

// dial opens a connection without sending anything; nil if the server takes
// none, after a moment.
func (a *arena) dial() *line {
	conn, err := net.DialTimeout("tcp", a.address, 5*time.Second)
	if err != nil {
		a.tally.got("connection refused")
		a.pause(10 * time.Millisecond)
		return nil
	}
	a.tally.Connections.Add(1)
	a.guard.Lock()
	a.open[conn] = true
	a.guard.Unlock()
	l := &line{arena: a, conn: conn, next: 1}
	l.credit.Store(windowDefault)
	l.streamWindow.Store(windowDefault)
	return l
}

// connect dials, shakes hands with the given settings and grants the connection
// the largest window. What comes is read and counted.
func (a *arena) connect(settings ...http2.Setting) *line {
	l := a.dial()
	if l == nil {
		return nil
	}
	l.write([]byte(http2.ClientPreface), frames.Settings(settings...), frames.Window(0, windowMax-windowDefault))
	go l.read(0, 0)
	return l
}

// connectDeaf is connect, but nothing is ever read.
func (a *arena) connectDeaf(settings ...http2.Setting) *line {
	l := a.dial()
	if l == nil {
		return nil
	}
	_ = l.conn.(*net.TCPConn).SetReadBuffer(4 << 10)
	l.write([]byte(http2.ClientPreface), frames.Settings(settings...), frames.Window(0, windowMax-windowDefault))
	return l
}

// stream takes the next number.
func (l *line) stream() uint32 {
	id := l.next
	l.next += 2
	return id
}

// spend takes bytes from the connection's window and waits until it has them;
// false if the attack ends first.
func (l *line) spend(bytes int) bool {
	for l.credit.Load() < int64(bytes) {
		if l.arena.over() || l.gone.Load() {
			return false
		}
		time.Sleep(time.Millisecond)
	}
	l.credit.Add(-int64(bytes))
	return true
}

// write sends; false if the connection is over.
func (l *line) write(parts ...[]byte) bool {
	buffers := net.Buffers(parts)
	n, err := buffers.WriteTo(l.conn)
	l.arena.tally.Bytes.Add(n)
	return err == nil
}

// close ends the connection from this side, a moment later: the reader is to see
// why the server has ended it, if it has.
func (l *line) close() {
	if tcp, ok := l.conn.(*net.TCPConn); ok {
		_ = tcp.CloseWrite()
	}
	_ = l.conn.SetReadDeadline(time.Now().Add(200 * time.Millisecond))
}

// drop ends the connection at once.
func (l *line) drop() {
	l.gone.Store(true)
	l.arena.guard.Lock()
	delete(l.arena.open, l.conn)
	l.arena.guard.Unlock()
	l.conn.Close()
}

// read counts what the server sends until the connection ends. A pace of more
// than 0 is a slow reader: so many bytes, then that pause.
func (l *line) read(paceBytes int, pause time.Duration) {
	defer l.drop()
	var source io.Reader = &counted{l.conn, &l.arena.tally}
	if paceBytes > 0 {
		_ = l.conn.(*net.TCPConn).SetReadBuffer(16 << 10)
		source = &slow{source, paceBytes, pause}
	}
	in := bufio.NewReaderSize(source, 64<<10)
	decoder, decoded := hpack.NewDecoder(4096, nil), 0
	taken := uint32(0)
	var head [9]byte
	for {
		if _, err := io.ReadFull(in, head[:]); err != nil {
			l.arena.ended(err)
			return
		}
		length := int(head[0])<<16 | int(head[1])<<8 | int(head[2])
		kind, flags := http2.FrameType(head[3]), http2.Flags(head[4])
		if flags.Has(http2.FlagDataEndStream) && (kind == http2.FrameData || kind == http2.FrameHeaders) {
			l.arena.tally.Answers.Add(1)
		}
		if kind == http2.FrameData {
			// The window is the largest there is, but not endless.
			if taken += uint32(length); taken >= 1<<30 {
				_, _ = l.conn.Write(frames.Window(0, taken))
				taken = 0
			}
		}
		if kind == http2.FrameData || kind == http2.FrameHeaders && decoded == decodedMax {
			if _, err := in.Discard(length); err != nil {
				l.arena.ended(err)
				return
			}
			continue
		}
		payload := make([]byte, length)
		if _, err := io.ReadFull(in, payload); err != nil {
			l.arena.ended(err)
			return
		}
		switch {
		case kind == http2.FrameGoAway && length >= 8:
			code := http2.ErrCode(binary.BigEndian.Uint32(payload[4:]))
			l.arena.tally.got(fmt.Sprintf("GOAWAY %v %q", code, payload[8:]))
		case kind == http2.FrameRSTStream && length == 4:
			l.arena.tally.got(fmt.Sprintf("RST_STREAM %v", http2.ErrCode(binary.BigEndian.Uint32(payload))))
		case kind == http2.FrameWindowUpdate && length == 4 && binary.BigEndian.Uint32(head[5:]) == 0:
			l.credit.Add(int64(binary.BigEndian.Uint32(payload)))
		case kind == http2.FrameSettings:
			for ; len(payload) >= 6; payload = payload[6:] {
				if binary.BigEndian.Uint16(payload) == uint16(http2.SettingInitialWindowSize) {
					l.streamWindow.Store(int64(binary.BigEndian.Uint32(payload[2:])))
				}
			}
		case kind == http2.FrameHeaders:
			decoded++
			fields, _ := decoder.DecodeFull(payload)
			for _, field := range fields {
				if field.Name == "grpc-status" && field.Value != "0" || field.Name == ":status" && field.Value != "200" {
					l.arena.tally.got(field.Name + " " + field.Value)
				}
			}
		}
	}
}

// ended counts how a connection has ended, if the server has ended it.
func (a *arena) ended(err error) {
	var operation *net.OpError
	switch {
	case a.over(), errors.As(err, &operation) && (operation.Timeout() || errors.Is(err, net.ErrClosed)):
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		a.tally.got("connection closed")
	default:
		a.tally.got("connection reset")
	}
}

// counted counts bytes.
type counted struct {
	io.Reader
	tally *tally
}

func (c *counted) Read(into []byte) (int, error) {
	n, err := c.Reader.Read(into)
	c.tally.BytesRead.Add(int64(n))
	return n, err
}

// slow reads a little, and then waits.
type slow struct {
	io.Reader
	bytes int
	pause time.Duration
}

func (s *slow) Read(into []byte) (int, error) {
	time.Sleep(s.pause)
	return s.Reader.Read(into[:min(len(into), s.bytes)])
}
