package attacks

import (
	"bytes"
	"encoding/binary"

	"golang.org/x/net/http2/hpack"

	"cairn.dev/conformance/frames"
)

// burst is the frames of many streams in one buffer, whose stream numbers are
// put in anew each time it is sent.
type burst struct {
	bytes []byte
	// at is where each frame's stream number stands, first what it is in a burst
	// that begins with stream 1.
	at      []int
	first   []uint32
	streams uint32
}

// newBurst lays out the frames that make returns for each of so many streams.
func newBurst(streams int, make func(stream uint32) []byte) *burst {
	b := &burst{streams: uint32(streams)}
	for i := range streams {
		b.bytes = append(b.bytes, make(uint32(2*i+1))...)
	}
	for place := 0; place < len(b.bytes); {
		head := b.bytes[place:]
		if stream := binary.BigEndian.Uint32(head[5:]); stream > 0 {
			b.at, b.first = append(b.at, place+5), append(b.first, stream)
		}
		place += 9 + int(head[0])<<16 + int(head[1])<<8 + int(head[2])
	}
	return b
}

// send writes the burst on fresh streams; false if the connection is over, or
// has no numbers left.
func (l *line) send(b *burst) bool {
	if l.arena.over() || l.next >= 1<<31-2*b.streams {
		return false
	}
	for i, place := range b.at {
		binary.BigEndian.PutUint32(b.bytes[place:], b.first[i]+l.next-1)
	}
	l.next += 2 * b.streams
	return l.write(b.bytes)
}

// prime sends one request, so that its header fields are in the server's table,
// and returns the block that names them: a few bytes.
func (l *line) prime(fields []hpack.HeaderField, body []byte) []byte {
	var block bytes.Buffer
	encoder := hpack.NewEncoder(&block)
	for range 2 {
		if block.Len() > 0 {
			id := l.stream()
			l.write(frames.Headers(id, false, block.Bytes()), frames.Data(id, true, body))
			block.Reset()
		}
		for _, field := range fields {
			_ = encoder.WriteField(field)
		}
	}
	return block.Bytes()
}
