package reliability

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"net"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
)

// rawCall is one gRPC call on a bare connection, whose client decides what it
// reads: a library would read what the server sends, whatever the test wants.
type rawCall struct {
	conn net.Conn
}

// call opens a connection and sends one request. The windows it grants are the
// largest there are, so that only the socket's own buffers hold the server
// back. open leaves the client's side of the stream open (for a watch).
func call(t testing.TB, address, path string, message proto.Message, open bool) *rawCall {
	t.Helper()
	return callAfter(t, greeting(), address, path, message, open)
}

// callAfter is a call whose client begins with other words.
func callAfter(t testing.TB, out []byte, address, path string, message proto.Message, open bool) *rawCall {
	t.Helper()
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	// The client is slow because of what it does, not because of a large buffer.
	_ = conn.(*net.TCPConn).SetReadBuffer(64 << 10)
	body, err := proto.Marshal(message)
	if err != nil {
		t.Fatal(err)
	}
	frame := make([]byte, 5, 5+len(body))
	binary.BigEndian.PutUint32(frame[1:], uint32(len(body)))
	frame = append(frame, body...)

	out = appendFrame(out, 1, 4, 1, headerBlock(address, path))
	for len(frame) > 16384 {
		out = appendFrame(out, 0, 0, 1, frame[:16384])
		frame = frame[16384:]
	}
	last := byte(1)
	if open {
		last = 0
	}
	out = appendFrame(out, 0, last, 1, frame)
	if _, err := conn.Write(out); err != nil {
		t.Fatal(err)
	}
	return &rawCall{conn}
}

// greeting is the client's preface, with the largest windows there are.
func greeting() []byte {
	out := []byte(clientPreface)
	out = appendFrame(out, 4, 0, 0, []byte{0, 4, 0x7f, 0xff, 0xff, 0xff})
	return appendFrame(out, 8, 0, 0, []byte{0x7f, 0xff, 0, 0})
}

// shutGreeting is the preface of a client that lets nothing through.
func shutGreeting() []byte {
	return appendFrame([]byte(clientPreface), 4, 0, 0, []byte{0, 4, 0, 0, 0, 0})
}

// openUp grants such a client's call the largest windows there are.
func (c *rawCall) openUp() error {
	const more = 1<<31 - 1 - 65535
	window := binary.BigEndian.AppendUint32(nil, more)
	_, err := c.conn.Write(appendFrame(appendFrame(nil, 8, 0, 0, window), 8, 0, 1, window))
	return err
}

func appendFrame(out []byte, kind, flags byte, stream uint32, payload []byte) []byte {
	out = append(out, byte(len(payload)>>16), byte(len(payload)>>8), byte(len(payload)), kind, flags)
	out = binary.BigEndian.AppendUint32(out, stream)
	return append(out, payload...)
}

// headerBlock uses literals only: no table, nothing to keep in step.
func headerBlock(authority, path string) []byte {
	block := []byte{0x83, 0x86}
	for _, header := range [][2]string{
		{"\x01", authority}, {"\x04", path}, {"\x0f\x10", "application/grpc"}, {"\x00\x02te", "trailers"},
	} {
		block = append(block, header[0]...)
		block = append(block, byte(len(header[1])))
		block = append(block, header[1]...)
	}
	return block
}

// drain reads until the stream ends and returns the bytes of its DATA frames,
// which it does not keep. Settings and pings are left without answer: one call
// does not live long enough for that to matter.
func (c *rawCall) drain(limit time.Duration) (dataBytes int64, err error) {
	return c.drainTo(math.MaxInt64, limit)
}

// drainTo is drain for a stream that never ends: until so much is there.
func (c *rawCall) drainTo(enough int64, limit time.Duration) (dataBytes int64, err error) {
	_ = c.conn.SetReadDeadline(time.Now().Add(limit))
	buffer := make([]byte, 1<<20)
	var head [9]byte
	for {
		if _, err := io.ReadFull(c.conn, head[:]); err != nil {
			return dataBytes, err
		}
		length := int64(head[0])<<16 | int64(head[1])<<8 | int64(head[2])
		kind, flags, stream := head[3], head[4], binary.BigEndian.Uint32(head[5:])
		for rest := length; rest > 0; {
			n, err := c.conn.Read(buffer[:min(rest, int64(len(buffer)))])
			if err != nil {
				return dataBytes, err
			}
			rest -= int64(n)
		}
		switch {
		case kind == 7:
			return dataBytes, fmt.Errorf("the server sent GOAWAY")
		case kind == 3 && stream == 1:
			return dataBytes, fmt.Errorf("the server reset the stream")
		case kind == 0 && stream == 1:
			dataBytes += length
		}
		if dataBytes >= enough || (kind == 0 || kind == 1) && stream == 1 && flags&1 != 0 {
			return dataBytes, nil
		}
	}
}

// sipping is a connection that is read little by little until some time.
type sipping struct {
	net.Conn
	bytes int
	until time.Time
}

func (s *sipping) Read(into []byte) (int, error) {
	if time.Now().Before(s.until) {
		time.Sleep(10 * time.Millisecond)
		into = into[:min(len(into), s.bytes)]
	}
	return s.Conn.Read(into)
}

// sip lets the call be read no faster than so many bytes each 10 ms, for a while.
func (c *rawCall) sip(bytes int, length time.Duration) {
	c.conn = &sipping{c.conn, bytes, time.Now().Add(length)}
}

// crowdConn is one connection that asks the same on many streams at once.
type crowdConn struct {
	conn    net.Conn
	in      *bufio.Reader
	headers []byte
	body    []byte
	next    uint32
	// taken is the DATA read since the window was opened last.
	taken uint32
}

func crowd(t testing.TB, address, path string, message proto.Message) *crowdConn {
	t.Helper()
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	body, err := proto.Marshal(message)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Write(greeting()); err != nil {
		t.Fatal(err)
	}
	framed := append(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(body))), body...)
	return &crowdConn{conn: conn, in: bufio.NewReaderSize(conn, 256<<10), headers: headerBlock(address, path), body: framed, next: 1}
}

// ask sends so many requests in one go and reads all their answers.
func (c *crowdConn) ask(streams int) error {
	// The window is the largest there is, but not endless.
	var out []byte
	if c.taken > 0 {
		out = appendFrame(out, 8, 0, 0, binary.BigEndian.AppendUint32(nil, c.taken))
		c.taken = 0
	}
	for range streams {
		out = appendFrame(out, 1, 4, c.next, c.headers)
		out = appendFrame(out, 0, 1, c.next, c.body)
		c.next += 2
	}
	_ = c.conn.SetDeadline(time.Now().Add(time.Minute))
	if _, err := c.conn.Write(out); err != nil {
		return err
	}
	var head [9]byte
	for answered := 0; answered < streams; {
		if _, err := io.ReadFull(c.in, head[:]); err != nil {
			return err
		}
		kind, flags := head[3], head[4]
		if kind == 7 || kind == 3 {
			return fmt.Errorf("the server sent frame type %d", kind)
		}
		if (kind == 0 || kind == 1) && flags&1 != 0 {
			answered++
		}
		length := uint32(head[0])<<16 | uint32(head[1])<<8 | uint32(head[2])
		if kind == 0 {
			c.taken += length
		}
		if _, err := c.in.Discard(int(length)); err != nil {
			return err
		}
	}
	return nil
}
