package http2

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"cairn.dev/conformance/frames"
	"cairn.dev/conformance/harness"
)

// TestHPACK is RFC 7541: what cannot be decompressed ends the connection with
// COMPRESSION_ERROR, and what can be odd but right is understood.
func TestHPACK(t *testing.T) {
	server := harness.Start(t, harness.Subject())
	plain := frames.Literals(rangeHeaders...)
	broken := func(name string, block ...byte) testCase {
		return testCase{name: name, run: func(p *peer) error {
			p.send(frames.Headers(1, true, append(frames.Literals(rangeHeaders...), block...)))
			return p.connectionError(compressError)
		}}
	}
	// The block comes before a whole request's, then the request's own.
	before := func(name string, block ...byte) testCase {
		return testCase{name: name, run: func(p *peer) error {
			p.send(frames.Headers(1, false, append(block, plain...)), frames.Data(1, true, rangeBody))
			p.next = 3
			if err := p.served(1); err != nil {
				return err
			}
			return p.alive()
		}}
	}
	behind := func(name string, block ...byte) testCase {
		return testCase{name: name, run: func(p *peer) error {
			p.send(frames.Headers(1, false, append(frames.Literals(rangeHeaders...), block...)), frames.Data(1, true, rangeBody))
			return p.served(1)
		}}
	}
	literal := func(first byte, name, value string) []byte {
		return frames.AppendString(frames.AppendString([]byte{first}, name), value)
	}
	huffman := func(text string) []byte {
		coded := hpack.AppendHuffmanString(nil, text)
		return append(frames.AppendInteger(nil, 7, 0x80, len(coded)), coded...)
	}
	runCases(t, server, []testCase{
		broken("index 0", 0x80),
		broken("index 62 of an empty table", 0xbe),
		broken("index 2^31", frames.AppendInteger(nil, 7, 0x80, 1<<31)...),
		broken("a name's index 62 of an empty table", frames.AppendInteger(nil, 6, 0x40, 62)...),
		broken("an index without end", 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x0f),
		broken("an index cut short", 0xff),
		broken("an index cut short behind a byte", 0xff, 0x80),
		broken("a name without its length", 0x00),
		broken("a name longer than the block", 0x00, 0x05, 'a'),
		broken("a value longer than the block", 0x00, 0x01, 'a', 0x05, 'b'),
		broken("a value without its length", 0x00, 0x01, 'a'),
		broken("a length of 2^40", append([]byte{0x00, 0x01, 'a'}, frames.AppendInteger(nil, 7, 0, 1<<40)...)...),
		broken("Huffman: the end of string", 0x00, 0x01, 'a', 0x84, 0xff, 0xff, 0xff, 0xff),
		broken("Huffman: a byte of padding", 0x00, 0x01, 'a', 0x82, 0x1f, 0xff),
		broken("Huffman: padding of zeros", 0x00, 0x01, 'a', 0x81, 0x18),
		broken("Huffman: nothing but padding of a byte", 0x00, 0x01, 'a', 0x81, 0xff),
		broken("a table size behind a field", 0x20),
		{name: "a table size above the limit", run: func(p *peer) error {
			limit := 4096
			if size, stated := p.settings[settingTable]; stated {
				limit = int(size)
			}
			p.send(frames.Headers(1, true, append(frames.AppendInteger(nil, 5, 0x20, limit+1), plain...)))
			return p.connectionError(compressError)
		}},
		{name: "an entry that the size has taken out", run: func(p *peer) error {
			p.send(frames.Headers(1, false, append(frames.Literals(rangeHeaders...), literal(0x40, "x", "1")...)), frames.Data(1, true, rangeBody))
			if err := p.served(1); err != nil {
				return err
			}
			p.send(frames.Headers(3, true, append(append([]byte{0x20}, plain...), 0xbe)))
			return p.connectionError(compressError)
		}},
		{name: "an entry that newer ones have pushed out", run: func(p *peer) error {
			block := append(frames.Literals(rangeHeaders...), literal(0x40, "first", "1")...)
			for range 200 {
				block = append(block, literal(0x40, "x", strings.Repeat("y", 31))...)
			}
			p.send(frames.Headers(1, false, block), frames.Data(1, true, rangeBody))
			if err := p.served(1); err != nil {
				return err
			}
			// 4,096 bytes hold 64 entries of 64 bytes: 62 + 63 is the oldest.
			p.send(frames.Headers(3, false, append(frames.Literals(rangeHeaders...), frames.AppendInteger(nil, 7, 0x80, 62+63)...)), frames.Data(3, true, rangeBody))
			if err := p.served(3); err != nil {
				return err
			}
			p.send(frames.Headers(5, true, append(frames.Literals(rangeHeaders...), frames.AppendInteger(nil, 7, 0x80, 62+64)...)))
			return p.connectionError(compressError)
		}},
		{name: "an entry larger than the table empties it", run: func(p *peer) error {
			block := append(frames.Literals(rangeHeaders...), literal(0x40, "x", "1")...)
			block = append(block, literal(0x40, "x", strings.Repeat("y", 4_096))...)
			p.send(frames.Headers(1, false, block), frames.Data(1, true, rangeBody))
			if err := p.served(1); err != nil {
				return err
			}
			p.send(frames.Headers(3, true, append(frames.Literals(rangeHeaders...), 0xbe)))
			return p.connectionError(compressError)
		}},
		{name: "a name taken from the entry that its own pushes out", run: func(p *peer) error {
			block := append(frames.Literals(rangeHeaders...), literal(0x40, "x-name", strings.Repeat("y", 2_000))...)
			// The new entry needs the whole table; its name is index 62.
			block = append(block, frames.AppendInteger(nil, 6, 0x40, 62)...)
			block = frames.AppendString(block, strings.Repeat("z", 4_000))
			block = append(block, 0xbe)
			p.send(frames.Headers(1, false, block), frames.Data(1, true, rangeBody))
			return p.served(1)
		}},
		before("a table size of 0", 0x20),
		before("table sizes of 0 and 4,096", append([]byte{0x20}, frames.AppendInteger(nil, 5, 0x20, 4096)...)...),
		before("the same table size twice", append(frames.AppendInteger(nil, 5, 0x20, 100), frames.AppendInteger(nil, 5, 0x20, 100)...)...),
		behind("never indexed", literal(0x10, "x", "secret")...),
		behind("never indexed, with a name's index", append(frames.AppendInteger(nil, 4, 0x10, 23), 1, 'x')...),
		behind("an empty Huffman string", 0x00, 0x01, 'a', 0x80),
		behind("every byte, Huffman coded", append([]byte{0x00, 0x01, 'a'}, huffman(everyByte())...)...),
		behind("an integer in more bytes than it needs",
			append(append([]byte{0x00, 0x7f, 0x80, 0x80, 0x00}, strings.Repeat("x", 127)...), 0)...),
		{name: "a block that holds nothing", run: func(p *peer) error {
			p.send(frames.Headers(1, true, nil))
			return p.malformed(1)
		}},
	})
}

// everyByte is each byte that a value may hold.
func everyByte() string {
	text := []byte{'x'}
	for b := 0x20; b < 0x100; b++ {
		if b != 0x7f {
			text = append(text, byte(b))
		}
	}
	return string(append(text, 'x'))
}

// TestEncodings sends headers in every form that HPACK has for them, chosen at
// random, on one connection. One field of each request is wrong on purpose (it
// is no base64) and comes back in the server's own words, so what the server
// has understood can be compared.
func TestEncodings(t *testing.T) {
	requests := harness.Number(t, "ENCODINGS", 3_000)
	server := harness.Start(t, harness.Subject())
	p, err := dial(server)
	if err != nil {
		t.Fatal(err)
	}
	defer p.close()
	random := rand.New(rand.NewPCG(harness.Seed(t), 0))
	encoder := &anyEncoder{random: random, sizeMax: 4096, limit: 4096}
	if size, stated := p.settings[settingTable]; stated {
		encoder.limit, encoder.sizeMax = int(size), min(4096, int(size))
	}
	for number := range requests {
		name, text := fmt.Sprintf("x%d-bin", random.IntN(20)), "!"+randomText(random)
		fields := frames.GRPC(rangePath)
		for range random.IntN(6) {
			fields = append(fields, field(fmt.Sprint("y-", random.IntN(30)), randomText(random)))
		}
		fields = append(fields, field(name, text))
		id := p.stream()
		p.send(frames.Headers(id, false, encoder.block(fields)), frames.Data(id, true, rangeBody))
		seen, err := p.answer(id)
		if err != nil {
			t.Fatalf("request %d: %v", number, err)
		}
		if !strings.Contains(seen.text, fmt.Sprintf("%q", text)) || !strings.Contains(seen.text, fmt.Sprintf("%q", name)) {
			t.Fatalf("request %d sent %q: %q and is answered %v", number, name, text, seen.fields)
		}
	}
}

// randomText is letters and digits, seldom long: some of it comes again.
func randomText(random *rand.Rand) string {
	const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.~"
	length := random.IntN(12)
	switch random.IntN(40) {
	case 0:
		length = random.IntN(5_000)
	case 1, 2, 3:
		length = random.IntN(300)
	}
	text := make([]byte, length)
	for i := range text {
		text[i] = letters[random.IntN(len(letters))]
	}
	if length == 3 {
		return "abc"
	}
	return string(text)
}

// anyEncoder compresses header lists in any way that RFC 7541 allows.
type anyEncoder struct {
	random *rand.Rand
	// table is the dynamic table, newest first; its size in the RFC's counting.
	table                []hpack.HeaderField
	size, sizeMax, limit int
}

func (e *anyEncoder) block(fields []hpack.HeaderField) []byte {
	var block []byte
	for e.random.IntN(30) == 0 {
		e.sizeMax = e.random.IntN(e.limit + 1)
		e.evict()
		block = append(block, frames.AppendInteger(nil, 5, 0x20, e.sizeMax)...)
	}
	for _, field := range fields {
		block = e.field(block, field)
	}
	return block
}

func (e *anyEncoder) field(block []byte, field hpack.HeaderField) []byte {
	whole, name := 0, 0
	for i, entry := range append(staticTable(), e.table...) {
		if entry.Name == field.Name {
			if name == 0 || e.random.IntN(2) == 0 {
				name = i + 1
			}
			if entry.Value == field.Value {
				whole = i + 1
			}
		}
	}
	if whole > 0 && e.random.IntN(4) > 0 {
		return frames.AppendInteger(block, 7, 0x80, whole)
	}
	if e.random.IntN(4) == 0 {
		name = 0
	}
	form := e.random.IntN(4)
	switch form {
	case 0:
		block = frames.AppendInteger(block, 4, 0x00, name)
	case 1:
		block = frames.AppendInteger(block, 4, 0x10, name)
	default:
		block = frames.AppendInteger(block, 6, 0x40, name)
	}
	if name == 0 {
		block = e.text(block, field.Name)
	}
	block = e.text(block, field.Value)
	if form > 1 {
		e.table = append([]hpack.HeaderField{field}, e.table...)
		e.size += int(field.Size())
		e.evict()
	}
	return block
}

func (e *anyEncoder) text(block []byte, text string) []byte {
	if e.random.IntN(2) == 0 {
		return frames.AppendString(block, text)
	}
	coded := hpack.AppendHuffmanString(nil, text)
	return append(frames.AppendInteger(block, 7, 0x80, len(coded)), coded...)
}

func (e *anyEncoder) evict() {
	for e.size > e.sizeMax {
		last := len(e.table) - 1
		e.size -= int(e.table[last].Size())
		e.table = e.table[:last]
	}
}

// staticTable is the table of RFC 7541 appendix A, read off a decoder.
func staticTable() []hpack.HeaderField {
	if len(static) == 0 {
		decoder := hpack.NewDecoder(0, func(field hpack.HeaderField) { static = append(static, field) })
		for index := range byte(61) {
			_, _ = decoder.Write([]byte{0x80 | (index + 1)})
		}
	}
	return static[:len(static):len(static)]
}

var static []hpack.HeaderField

// TestServerHeaders looks at the header blocks that the server makes: they must
// be decodable whatever table the client grants.
func TestServerHeaders(t *testing.T) {
	server := harness.Start(t, harness.Subject())
	for _, size := range []uint32{0, 1, 33, 100, 4096, 65_536} {
		p, err := dial(server, set(settingTable, size))
		if err != nil {
			t.Fatal(err)
		}
		decoder := hpack.NewDecoder(min(4096, size), nil)
		decoder.SetAllowedMaxDynamicTableSize(size)
		for range 50 {
			id := p.call(rangeHeaders, rangeBody)
			for ended := false; !ended; {
				e, err := p.await("the answer", func(e event) bool { return e.StreamID == id })
				if err != nil {
					t.Fatalf("a table of %d: %v", size, err)
				}
				if e.Type == http2.FrameHeaders {
					fields, err := decoder.DecodeFull(e.fragment)
					if err != nil {
						t.Fatalf("a table of %d: %x: %v", size, e.fragment, err)
					}
					checkServerFields(t, fields)
				}
				ended = e.ends()
			}
		}
		p.close()
	}
}

// checkServerFields holds the server to what it asks of its clients.
func checkServerFields(t *testing.T, fields []hpack.HeaderField) {
	t.Helper()
	pseudoOver := false
	for _, field := range fields {
		pseudo := strings.HasPrefix(field.Name, ":")
		switch {
		case field.Name != strings.ToLower(field.Name):
			t.Errorf("a name in capitals: %v", field)
		case pseudo && (pseudoOver || field.Name != ":status"):
			t.Errorf("a pseudo field where none may be: %v", fields)
		case strings.TrimSpace(field.Value) != field.Value, strings.ContainsAny(field.Value, "\r\n\x00"):
			t.Errorf("a value that is none: %q", field)
		case field.Name == "connection", field.Name == "transfer-encoding", field.Name == "keep-alive", field.Name == "upgrade":
			t.Errorf("a field of HTTP/1.1: %v", field)
		}
		pseudoOver = pseudoOver || !pseudo
	}
}
