package reliability

import (
	"encoding/binary"
	"fmt"
	"io"
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

	out := []byte(clientPreface)
	out = appendFrame(out, 4, 0, 0, []byte{0, 4, 0x7f, 0xff, 0xff, 0xff})
	out = appendFrame(out, 8, 0, 0, []byte{0x7f, 0xff, 0, 0})
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
		if (kind == 0 || kind == 1) && stream == 1 && flags&1 != 0 {
			return dataBytes, nil
		}
	}
}
