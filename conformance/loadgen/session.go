package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"syscall"
)

// HTTP/2 frame types, flags and settings (RFC 9113, section 6).
const (
	frameData         = 0
	frameHeaders      = 1
	frameReset        = 3
	frameSettings     = 4
	framePing         = 6
	frameGoAway       = 7
	frameWindowUpdate = 8

	flagEndStream  = 1
	flagAck        = 1
	flagEndHeaders = 4

	settingTableSize      = 1
	settingStreamsMax     = 3
	settingInitialWindow  = 4
	windowInitial         = 65_535
	windowMax             = 1<<31 - 1
	windowRefreshBytes    = 1 << 30
	frameHeaderBytes      = 9
	connectionPreface     = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
	receiveBufferBytesMin = 64 << 10
)

// slot is one request in flight.
type slot struct {
	stream    uint32 // 0: free
	started   int64  // nanoseconds since the loop began
	dataBytes int64
}

// session is one HTTP/2 connection that sends the same request headers again and again.
type session struct {
	fd         int
	out        []byte
	in         []byte
	inLen      int
	blocked    bool // waits for room in the socket
	slots      []slot
	free       int
	nextStream uint32
	window     int64  // bytes of DATA the server still takes on this connection
	received   int64  // bytes of DATA since the last window update
	first      []byte // header block of the first request: fills the server's dynamic table
	later      []byte // header block of all others: refers to it
}

func newSession(fd int, authority, path string, streams int) *session {
	first, later := headerBlocks(authority, path)
	return &session{
		fd:         fd,
		in:         make([]byte, receiveBufferBytesMin),
		slots:      make([]slot, streams),
		free:       streams,
		nextStream: 1,
		window:     windowInitial,
		first:      first,
		later:      later,
	}
}

// headerBlocks encodes the request headers (RFC 7541): literals with incremental indexing the first time, table
// references afterwards.
func headerBlocks(authority, path string) (first, later []byte) {
	literal := func(block []byte, name byte, value string) []byte {
		block = append(block, 0x40|name, byte(len(value)))
		return append(block, value...)
	}
	first = []byte{0x83, 0x86} // :method POST, :scheme http
	first = literal(first, 1, authority)
	first = literal(first, 4, path)
	first = literal(first, 31, "application/grpc")
	first = append(first, 0x40, 2, 't', 'e', 8)
	first = append(first, "trailers"...)
	// The newest entry has number 62: te, content-type, :path, :authority.
	later = []byte{0x83, 0x86, 0x80 | 65, 0x80 | 64, 0x80 | 63, 0x80 | 62}
	return first, later
}

func appendFrame(out []byte, kind, flags byte, stream uint32, payload []byte) []byte {
	out = append(out, byte(len(payload)>>16), byte(len(payload)>>8), byte(len(payload)), kind, flags)
	out = binary.BigEndian.AppendUint32(out, stream)
	return append(out, payload...)
}

func windowUpdate(bytes uint32) []byte { return binary.BigEndian.AppendUint32(nil, bytes) }

// handshake exchanges settings while the socket still blocks.
func (s *session) handshake() error {
	s.out = append(s.out, connectionPreface...)
	settings := []byte{0, settingInitialWindow, 0x7f, 0xff, 0xff, 0xff}
	s.out = appendFrame(s.out, frameSettings, 0, 0, settings)
	s.out = appendFrame(s.out, frameWindowUpdate, 0, 0, windowUpdate(windowMax-windowInitial))
	for seen := false; !seen; {
		if _, err := s.flush(); err != nil {
			return err
		}
		n, err := syscall.Read(s.fd, s.in[s.inLen:])
		if err != nil || n == 0 {
			return fmt.Errorf("handshake: %w", errors.Join(err, io.ErrUnexpectedEOF))
		}
		s.inLen += n
		if seen, err = s.frames(nil); err != nil {
			return err
		}
	}
	_, err := s.flush() // the acknowledgement
	return err
}

func (s *session) hasRoom(bytes int) bool {
	return s.free > 0 && s.window >= int64(bytes) && !s.blocked
}

func (s *session) send(body []byte, now int64) {
	block := s.later
	if s.nextStream == 1 {
		block = s.first
	}
	s.out = appendFrame(s.out, frameHeaders, flagEndHeaders, s.nextStream, block)
	s.out = appendFrame(s.out, frameData, flagEndStream, s.nextStream, body)
	for i := range s.slots {
		if s.slots[i].stream == 0 {
			s.slots[i] = slot{stream: s.nextStream, started: now}
			break
		}
	}
	s.free--
	s.window -= int64(len(body))
	s.nextStream += 2
}

// flush writes what is waiting; it reports whether the socket is full.
func (s *session) flush() (blocked bool, err error) {
	for len(s.out) > 0 {
		n, err := syscall.Write(s.fd, s.out)
		if err == syscall.EAGAIN {
			return true, nil
		}
		if err != nil {
			return false, err
		}
		s.out = s.out[:copy(s.out, s.out[n:])]
	}
	return false, nil
}

// receive reads once and handles every complete frame.
func (s *session) receive(l *loop) error {
	n, err := syscall.Read(s.fd, s.in[s.inLen:])
	if err == syscall.EAGAIN {
		return nil
	}
	if err != nil || n == 0 {
		return fmt.Errorf("the server closed the connection: %w", errors.Join(err, io.ErrUnexpectedEOF))
	}
	s.inLen += n
	_, err = s.frames(l)
	return err
}

// frames handles the complete frames at the front of the buffer and says whether settings were among them.
func (s *session) frames(l *loop) (settings bool, err error) {
	rest := s.in[:s.inLen]
	for len(rest) >= frameHeaderBytes {
		length := int(rest[0])<<16 | int(rest[1])<<8 | int(rest[2])
		if len(rest) < frameHeaderBytes+length {
			break
		}
		kind, flags := rest[3], rest[4]
		stream := binary.BigEndian.Uint32(rest[5:]) & windowMax
		payload := rest[frameHeaderBytes : frameHeaderBytes+length]
		rest = rest[frameHeaderBytes+length:]
		settings = settings || kind == frameSettings && flags&flagAck == 0
		if err := s.frame(l, kind, flags, stream, payload); err != nil {
			return settings, err
		}
	}
	s.inLen = copy(s.in, rest)
	if s.inLen == len(s.in) {
		return settings, errors.New("a frame longer than the buffer")
	}
	return settings, nil
}

func (s *session) frame(l *loop, kind, flags byte, stream uint32, payload []byte) error {
	switch kind {
	case frameData, frameHeaders, frameReset:
		if l == nil {
			return errors.New("an answer before the first request")
		}
		s.answer(l, kind, flags, stream, len(payload))
	case frameSettings:
		if flags&flagAck == 0 {
			s.out = appendFrame(s.out, frameSettings, flagAck, 0, nil)
			return s.settings(payload)
		}
	case framePing:
		if flags&flagAck == 0 {
			s.out = appendFrame(s.out, framePing, flagAck, 0, payload)
		}
	case frameWindowUpdate:
		if stream == 0 {
			s.window += int64(binary.BigEndian.Uint32(payload) & windowMax)
		}
	case frameGoAway:
		return fmt.Errorf("the server ended the connection: %q", payload)
	}
	return nil
}

func (s *session) settings(payload []byte) error {
	for ; len(payload) >= 6; payload = payload[6:] {
		value := binary.BigEndian.Uint32(payload[2:])
		switch binary.BigEndian.Uint16(payload) {
		case settingTableSize:
			if value < 512 {
				return fmt.Errorf("a header table of %d bytes is too small for this generator", value)
			}
		case settingStreamsMax:
			if value < uint32(len(s.slots)) {
				return fmt.Errorf("the server allows %d streams on a connection", value)
			}
		case settingInitialWindow:
			if value < 16<<10 {
				return fmt.Errorf("a stream window of %d bytes is too small for this generator", value)
			}
		}
	}
	return nil
}

// answer counts what belongs to a request in flight.
func (s *session) answer(l *loop, kind, flags byte, stream uint32, length int) {
	if kind == frameData {
		if s.received += int64(length); s.received > windowRefreshBytes {
			s.out = appendFrame(s.out, frameWindowUpdate, 0, 0, windowUpdate(uint32(s.received)))
			s.received = 0
		}
	}
	for i := range s.slots {
		at := &s.slots[i]
		if at.stream != stream {
			continue
		}
		if kind == frameData {
			at.dataBytes += int64(length)
		}
		if kind == frameReset || flags&flagEndStream != 0 {
			l.finished(at, kind != frameReset)
			at.stream = 0
			s.free++
		}
		return
	}
}
