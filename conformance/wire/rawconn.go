package wire

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// rawConn is an HTTP/2 connection that sends whatever headers and data it is
// told to.
type rawConn struct {
	net.Conn
	framer *http2.Framer
	fields bytes.Buffer
	hpack  *hpack.Encoder
	next   uint32
}

func dialRaw(endpoint string) (*rawConn, error) {
	conn, err := net.Dial("tcp", endpoint)
	if err != nil {
		return nil, err
	}
	c := &rawConn{Conn: conn, framer: http2.NewFramer(conn, conn), next: 1}
	c.hpack = hpack.NewEncoder(&c.fields)
	c.framer.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	conn.SetDeadline(time.Now().Add(callMax))
	if _, err := conn.Write([]byte(http2.ClientPreface)); err != nil {
		return nil, err
	}
	return c, c.framer.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1 << 30})
}

// header is one header field; order and repetition matter.
type header struct{ name, value string }

// grpcHeaders are those of a proper call.
func grpcHeaders(path string, more ...header) []header {
	return append([]header{
		{":method", "POST"}, {":scheme", "http"}, {":path", path}, {":authority", "test"},
		{"content-type", "application/grpc"}, {"te", "trailers"},
	}, more...)
}

// replace is the list with the field of that name changed, or left out if the
// value is empty.
func replace(headers []header, name, value string) []header {
	var changed []header
	for _, field := range headers {
		if field.name != name {
			changed = append(changed, field)
		} else if value != "" {
			changed = append(changed, header{name, value})
		}
	}
	return changed
}

// outcome is what a client is told at the end of a call.
type outcome struct {
	// Status is the HTTP status, Code and Message the gRPC one.
	Status, ContentType, Code, Message string
	// Messages counts the gRPC messages that came.
	Messages int
	// Reset is set when the stream or the connection was broken off.
	Reset bool
}

// call opens a stream and waits for its end. If open is set the client's side
// stays open.
func (c *rawConn) call(headers []header, data []byte, open bool) (outcome, error) {
	c.fields.Reset()
	for _, field := range headers {
		if err := c.hpack.WriteField(hpack.HeaderField{Name: field.name, Value: field.value}); err != nil {
			return outcome{}, err
		}
	}
	id := c.next
	c.next += 2
	if err := c.writeHeaders(id, c.fields.Bytes()); err != nil {
		return outcome{}, err
	}
	if err := c.framer.WriteData(id, !open, data); err != nil {
		return outcome{}, err
	}
	return c.await(id)
}

func (c *rawConn) writeHeaders(id uint32, block []byte) error {
	const frameMax = 16384
	first := block[:min(frameMax, len(block))]
	rest := block[len(first):]
	err := c.framer.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: first, EndHeaders: len(rest) == 0})
	for len(rest) > 0 && err == nil {
		part := rest[:min(frameMax, len(rest))]
		rest = rest[len(part):]
		err = c.framer.WriteContinuation(id, len(rest) == 0, part)
	}
	return err
}

func (c *rawConn) await(id uint32) (outcome, error) {
	var seen outcome
	var body []byte
	for {
		frame, err := c.framer.ReadFrame()
		var timeout net.Error
		if errors.As(err, &timeout) && timeout.Timeout() {
			return seen, fmt.Errorf("no end after %v", callMax)
		}
		if err != nil {
			seen.Reset = true
			return seen, nil
		}
		switch frame := frame.(type) {
		case *http2.SettingsFrame:
			if !frame.IsAck() {
				c.framer.WriteSettingsAck()
			}
		case *http2.PingFrame:
			if !frame.IsAck() {
				c.framer.WritePing(true, frame.Data)
			}
		case *http2.GoAwayFrame:
			seen.Reset = true
			return seen, nil
		}
		if frame.Header().StreamID != id {
			continue
		}
		switch frame := frame.(type) {
		case *http2.MetaHeadersFrame:
			for _, field := range frame.Fields {
				seen.take(field)
			}
		case *http2.DataFrame:
			body = append(body, frame.Data()...)
			seen.Messages = countMessages(body)
		case *http2.RSTStreamFrame:
			// A server that has answered may ask the client to stop sending.
			seen.Reset = seen.Code == "" && frame.ErrCode != http2.ErrCodeNo
			return seen, nil
		}
		if frame.Header().Flags.Has(http2.FlagDataEndStream) {
			return seen, nil
		}
	}
}

func (o *outcome) take(field hpack.HeaderField) {
	switch field.Name {
	case ":status":
		o.Status = field.Value
	case "content-type":
		o.ContentType = field.Value
	case "grpc-status":
		o.Code = field.Value
	case "grpc-message":
		o.Message = field.Value
	}
}

func countMessages(body []byte) int {
	count := 0
	for len(body) >= 5 {
		size := 5 + int(body[1])<<24 + int(body[2])<<16 + int(body[3])<<8 + int(body[4])
		if size > len(body) {
			break
		}
		body, count = body[size:], count+1
	}
	return count
}

// framed is a message with its five bytes in front.
func framed(flag byte, message []byte) []byte {
	size := len(message)
	return append([]byte{flag, byte(size >> 24), byte(size >> 16), byte(size >> 8), byte(size)}, message...)
}
