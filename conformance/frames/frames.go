// Package frames builds HTTP/2 frames byte by byte, right or wrong, for the
// tests that send what a library would not.
package frames

import (
	"encoding/binary"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// BytesMax is the largest frame that is always allowed.
const BytesMax = 16_384

// Raw is any frame, right or wrong.
func Raw(kind http2.FrameType, flags http2.Flags, stream uint32, payload ...byte) []byte {
	length := len(payload)
	frame := []byte{byte(length >> 16), byte(length >> 8), byte(length), byte(kind), byte(flags)}
	frame = binary.BigEndian.AppendUint32(frame, stream)
	return append(frame, payload...)
}

// Settings announces settings.
func Settings(settings ...http2.Setting) []byte {
	var payload []byte
	for _, setting := range settings {
		payload = binary.BigEndian.AppendUint16(payload, uint16(setting.ID))
		payload = binary.BigEndian.AppendUint32(payload, setting.Val)
	}
	return Raw(http2.FrameSettings, 0, 0, payload...)
}

// Window opens a window; stream 0 is the connection's.
func Window(stream, increment uint32) []byte {
	return Raw(http2.FrameWindowUpdate, 0, stream, binary.BigEndian.AppendUint32(nil, increment)...)
}

// Reset gives a stream up.
func Reset(stream uint32, code http2.ErrCode) []byte {
	return Raw(http2.FrameRSTStream, 0, stream, binary.BigEndian.AppendUint32(nil, uint32(code))...)
}

// Priority makes a stream depend on another one.
func Priority(stream, parent uint32) []byte {
	return Raw(http2.FramePriority, 0, stream, append(binary.BigEndian.AppendUint32(nil, parent), 16)...)
}

// Headers is a whole header block in one frame.
func Headers(stream uint32, end bool, block []byte) []byte {
	flags := http2.FlagHeadersEndHeaders
	if end {
		flags |= http2.FlagHeadersEndStream
	}
	return Raw(http2.FrameHeaders, flags, stream, block...)
}

// Data is a piece of a body in one frame.
func Data(stream uint32, end bool, data []byte) []byte {
	flags := http2.Flags(0)
	if end {
		flags = http2.FlagDataEndStream
	}
	return Raw(http2.FrameData, flags, stream, data...)
}

// DataAll cuts a body into frames that are always allowed.
func DataAll(stream uint32, end bool, data []byte) []byte {
	var frames []byte
	for len(data) > BytesMax {
		frames = append(frames, Data(stream, false, data[:BytesMax])...)
		data = data[BytesMax:]
	}
	return append(frames, Data(stream, end, data)...)
}

// Padded is a payload with the length of its padding in front and the padding
// behind.
func Padded(payload []byte, padding int) []byte {
	return append(append([]byte{byte(padding)}, payload...), make([]byte, padding)...)
}

// Literals is a header block that leaves no trace in any table: literals without
// indexing, not Huffman coded.
func Literals(fields ...hpack.HeaderField) []byte {
	var block []byte
	for _, field := range fields {
		block = append(block, 0)
		block = AppendString(block, field.Name)
		block = AppendString(block, field.Value)
	}
	return block
}

// AppendString is RFC 7541 section 5.2, not Huffman coded.
func AppendString(block []byte, text string) []byte {
	return append(AppendInteger(block, 7, 0, len(text)), text...)
}

// AppendInteger is RFC 7541 section 5.1; first holds the bits above the prefix.
func AppendInteger(block []byte, prefixBits int, first byte, value int) []byte {
	limit := 1<<prefixBits - 1
	if value < limit {
		return append(block, first|byte(value))
	}
	block = append(block, first|byte(limit))
	for value -= limit; value >= 0x80; value >>= 7 {
		block = append(block, byte(value)|0x80)
	}
	return append(block, byte(value))
}
