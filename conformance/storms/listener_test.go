package storms

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"golang.org/x/net/http2"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
)

// audience says what the watchers of a connection ask for.
type audience struct {
	streams, each int
	// Keys that begin with this are watched.
	prefix string
	// from is the first revision; zero: from now on.
	from int64
}

// listener is a connection with watch streams, without a client's machinery: it
// reads millions of events a second beside the server that sends them.
type listener struct {
	socket  net.Conn
	input   *bufio.Reader
	began   time.Time
	streams []heard
	// taken are the bytes that were read since the server was last told of it.
	taken int
	// now is when the bytes came that are being looked at.
	now time.Duration
	// created, events and last are for others to look at; last is when the last event came.
	created, events, last atomic.Int64
	isClosed              atomic.Bool
	lag                   histogram
}

// heard is what has come on a stream.
type heard struct {
	// part is the beginning of a message.
	part  []byte
	taken int
	// revisions are the last that each watcher has heard of.
	revisions []int64
}

const (
	windowMax = math.MaxInt32
	// The server hears of what was read in steps of so many bytes.
	windowStep = 1 << 20
	inputBytes = 256 << 10
)

// listen opens a connection and asks for the watchers. What is not read yet is
// bounded by the windows: as large as can be, or with `small` those of HTTP/2
// itself.
func listen(endpoint string, began time.Time, who audience, small bool) (*listener, error) {
	socket, err := net.Dial("tcp", endpoint)
	if err != nil {
		return nil, err
	}
	l := &listener{socket: socket, input: bufio.NewReaderSize(socket, inputBytes), began: began, streams: make([]heard, who.streams)}
	if _, err := io.WriteString(socket, http2.ClientPreface); err != nil {
		return nil, err
	}
	output := bufio.NewWriter(socket)
	framer := http2.NewFramer(output, nil)
	if small {
		err = framer.WriteSettings()
	} else {
		err = errors.Join(framer.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: windowMax}),
			framer.WriteWindowUpdate(0, windowMax-65_535))
	}
	block, blockErr := headerBlock(endpoint, "/etcdserverpb.Watch/Watch")
	if err := errors.Join(err, blockErr); err != nil {
		return nil, err
	}
	end := []byte(who.prefix)
	end[len(end)-1]++
	for number := range l.streams {
		l.streams[number].revisions = make([]int64, who.each)
		stream := uint32(2*number + 1)
		if err := framer.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: block, EndHeaders: true}); err != nil {
			return nil, err
		}
		for watcher := range who.each {
			create := &etcdserverpb.WatchCreateRequest{Key: []byte(who.prefix), RangeEnd: end, StartRevision: who.from, WatchId: int64(watcher + 1)}
			message, err := proto.Marshal(&etcdserverpb.WatchRequest{RequestUnion: &etcdserverpb.WatchRequest_CreateRequest{CreateRequest: create}})
			if err != nil {
				return nil, err
			}
			body := append(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(message))), message...)
			if err := framer.WriteData(stream, false, body); err != nil {
				return nil, err
			}
		}
	}
	return l, output.Flush()
}

// close ends the connection; run returns nil then.
func (l *listener) close() {
	l.isClosed.Store(true)
	l.socket.Close()
}

// run reads until the connection is closed.
func (l *listener) run() error {
	for {
		if err := l.frame(); err != nil {
			if l.isClosed.Load() {
				return nil
			}
			return err
		}
	}
}

// peek is the next bytes, which have to be discarded.
func (l *listener) peek(count int) ([]byte, error) {
	waits := l.input.Buffered() < count
	found, err := l.input.Peek(count)
	if waits {
		l.now = time.Since(l.began)
	}
	return found, err
}

func (l *listener) frame() error {
	head, err := l.peek(9)
	if err != nil {
		return err
	}
	size := int(head[0])<<16 | int(head[1])<<8 | int(head[2])
	kind, flags, stream := http2.FrameType(head[3]), http2.Flags(head[4]), binary.BigEndian.Uint32(head[5:])
	l.input.Discard(9)
	if size > inputBytes {
		return fmt.Errorf("a frame of %d bytes", size)
	}
	payload, err := l.peek(size)
	if err != nil {
		return err
	}
	defer l.input.Discard(size)
	switch kind {
	case http2.FrameData:
		number := int(stream / 2)
		if number >= len(l.streams) {
			return fmt.Errorf("stream %d is nobody's", stream)
		}
		if err := l.data(&l.streams[number], payload); err != nil {
			return err
		}
		return l.give(stream, &l.streams[number], size)
	case http2.FrameHeaders:
		if flags.Has(http2.FlagHeadersEndStream) {
			return fmt.Errorf("stream %d was ended", stream)
		}
	case http2.FrameSettings:
		if !flags.Has(http2.FlagSettingsAck) {
			_, err = l.socket.Write([]byte{0, 0, 0, byte(http2.FrameSettings), byte(http2.FlagSettingsAck), 0, 0, 0, 0})
		}
	case http2.FramePing:
		if !flags.Has(http2.FlagPingAck) {
			answer := append([]byte{0, 0, 8, byte(http2.FramePing), byte(http2.FlagPingAck), 0, 0, 0, 0}, payload...)
			_, err = l.socket.Write(answer)
		}
	case http2.FrameRSTStream, http2.FrameGoAway:
		return fmt.Errorf("the server ends stream %d: %x", stream, payload)
	}
	return err
}

// give tells the server that so many bytes were read, in large steps.
func (l *listener) give(stream uint32, heard *heard, count int) error {
	l.taken += count
	heard.taken += count
	var out []byte
	add := func(stream uint32, taken *int) {
		if *taken >= windowStep {
			out = append(out, 0, 0, 4, byte(http2.FrameWindowUpdate), 0)
			out = binary.BigEndian.AppendUint32(out, stream)
			out = binary.BigEndian.AppendUint32(out, uint32(*taken))
			*taken = 0
		}
	}
	add(0, &l.taken)
	add(stream, &heard.taken)
	if out == nil {
		return nil
	}
	_, err := l.socket.Write(out)
	return err
}

// data takes the messages apart that a frame completes.
func (l *listener) data(heard *heard, data []byte) error {
	if len(heard.part) > 0 {
		heard.part = append(heard.part, data...)
		data = heard.part
	}
	for len(data) >= 5 {
		size := 5 + int(binary.BigEndian.Uint32(data[1:]))
		if len(data) < size {
			break
		}
		if err := l.response(heard, data[5:size]); err != nil {
			return err
		}
		data = data[size:]
	}
	// The rest may be a part of what it is copied to.
	heard.part = append(heard.part[:0], data...)
	return nil
}

// response looks at a WatchResponse: each watcher hears of each revision once,
// in order.
func (l *listener) response(heard *heard, message []byte) error {
	var watcher, created, events int64
	var canceled bool
	for rest := message; len(rest) > 0; {
		number, kind, tag := protowire.ConsumeTag(rest)
		if tag < 0 {
			return protowire.ParseError(tag)
		}
		rest = rest[tag:]
		var size int
		switch {
		case kind == protowire.VarintType:
			var value uint64
			value, size = protowire.ConsumeVarint(rest)
			switch number {
			case 2:
				watcher = int64(value)
			case 3:
				created = int64(value)
			case 4:
				canceled = value != 0
			}
		case number == 11:
			var event []byte
			event, size = protowire.ConsumeBytes(rest)
			if size >= 0 {
				if watcher < 1 || int(watcher) > len(heard.revisions) {
					return fmt.Errorf("an event for watcher %d", watcher)
				}
				events++
				if err := l.event(&heard.revisions[watcher-1], event); err != nil {
					return err
				}
			}
		default:
			size = protowire.ConsumeFieldValue(number, kind, rest)
		}
		if size < 0 {
			return protowire.ParseError(size)
		}
		rest = rest[size:]
	}
	if canceled {
		return fmt.Errorf("watcher %d was canceled", watcher)
	}
	l.created.Add(created)
	if events > 0 {
		l.events.Add(events)
		l.last.Store(int64(l.now))
	}
	return nil
}

func (l *listener) event(last *int64, event []byte) error {
	kv, _ := bytesField(event, 2)
	revision, _ := numberField(kv, 3)
	if revision <= *last {
		return fmt.Errorf("revision %d after %d", revision, *last)
	}
	*last = revision
	if value, found := bytesField(kv, 5); found && len(value) >= stampBytes {
		l.lag.add(l.now - time.Duration(binary.BigEndian.Uint64(value)))
	}
	return nil
}

// stampBytes at the beginning of a value say when it was to be put.
const stampBytes = 8

// stamped is a value of so many bytes that says when it was to be put.
func stamped(at time.Duration, bytes int) string {
	return string(append(binary.BigEndian.AppendUint64(nil, uint64(at)), make([]byte, max(0, bytes-stampBytes))...))
}

// bytesField is a field of a message that is well formed.
func bytesField(message []byte, wanted protowire.Number) ([]byte, bool) {
	for len(message) > 0 {
		number, kind, tag := protowire.ConsumeTag(message)
		if tag < 0 {
			return nil, false
		}
		message = message[tag:]
		if number == wanted && kind == protowire.BytesType {
			value, size := protowire.ConsumeBytes(message)
			return value, size >= 0
		}
		size := protowire.ConsumeFieldValue(number, kind, message)
		if size < 0 {
			return nil, false
		}
		message = message[size:]
	}
	return nil, false
}

func numberField(message []byte, wanted protowire.Number) (int64, bool) {
	for len(message) > 0 {
		number, kind, tag := protowire.ConsumeTag(message)
		if tag < 0 {
			return 0, false
		}
		message = message[tag:]
		if number == wanted && kind == protowire.VarintType {
			value, size := protowire.ConsumeVarint(message)
			return int64(value), size >= 0
		}
		size := protowire.ConsumeFieldValue(number, kind, message)
		if size < 0 {
			return 0, false
		}
		message = message[size:]
	}
	return 0, false
}

// histogram counts times in steps of 10 us up to a second, and what is longer.
type histogram struct {
	counts [100_001]int64
	most   time.Duration
}

const histogramStep = 10 * time.Microsecond

func (h *histogram) add(took time.Duration) {
	h.counts[min(max(0, int(took/histogramStep)), len(h.counts)-1)]++
	h.most = max(h.most, took)
}

// merge adds what others have counted.
func (h *histogram) merge(others ...*histogram) {
	for _, other := range others {
		for step, count := range other.counts {
			h.counts[step] += count
		}
		h.most = max(h.most, other.most)
	}
}

// at is the time that this share of all took at most.
func (h *histogram) at(share float64) time.Duration {
	var all, seen int64
	for _, count := range h.counts {
		all += count
	}
	for step, count := range h.counts {
		if seen += count; float64(seen) >= share*float64(all) {
			if step == len(h.counts)-1 {
				return h.most
			}
			return min(h.most, time.Duration(step+1)*histogramStep)
		}
	}
	return h.most
}

func (h *histogram) String() string {
	return fmt.Sprintf("p50 %v, p99 %v, slowest %v", h.at(0.5), h.at(0.99), h.most.Round(histogramStep))
}

func TestHistogram(t *testing.T) {
	var one, all histogram
	for number := range 1_000 {
		one.add(time.Duration(number) * time.Millisecond / 10)
	}
	one.add(3 * time.Second)
	all.merge(&one)
	if all.at(0.5) < 49*time.Millisecond || all.at(0.5) > 51*time.Millisecond || all.at(0.99) > 100*time.Millisecond || all.at(1) != 3*time.Second {
		t.Error(all.String())
	}
}
