package http2

import (
	"encoding/binary"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// frameMax is the largest frame that is always allowed.
const frameMax = 16_384

// rawFrame is any frame, right or wrong.
func rawFrame(kind http2.FrameType, flags http2.Flags, stream uint32, payload ...byte) []byte {
	length := len(payload)
	frame := []byte{byte(length >> 16), byte(length >> 8), byte(length), byte(kind), byte(flags)}
	frame = binary.BigEndian.AppendUint32(frame, stream)
	return append(frame, payload...)
}

func settingsFrame(settings ...http2.Setting) []byte {
	var payload []byte
	for _, setting := range settings {
		payload = binary.BigEndian.AppendUint16(payload, uint16(setting.ID))
		payload = binary.BigEndian.AppendUint32(payload, setting.Val)
	}
	return rawFrame(http2.FrameSettings, 0, 0, payload...)
}

func windowFrame(stream, increment uint32) []byte {
	return rawFrame(http2.FrameWindowUpdate, 0, stream, binary.BigEndian.AppendUint32(nil, increment)...)
}

func resetFrame(stream uint32, code http2.ErrCode) []byte {
	return rawFrame(http2.FrameRSTStream, 0, stream, binary.BigEndian.AppendUint32(nil, uint32(code))...)
}

// priorityFrame makes a stream depend on another one.
func priorityFrame(stream, parent uint32) []byte {
	return rawFrame(http2.FramePriority, 0, stream, append(binary.BigEndian.AppendUint32(nil, parent), 16)...)
}

// headersFrame is a whole header block in one frame.
func headersFrame(stream uint32, end bool, block []byte) []byte {
	flags := http2.FlagHeadersEndHeaders
	if end {
		flags |= http2.FlagHeadersEndStream
	}
	return rawFrame(http2.FrameHeaders, flags, stream, block...)
}

func dataFrame(stream uint32, end bool, data []byte) []byte {
	flags := http2.Flags(0)
	if end {
		flags = http2.FlagDataEndStream
	}
	return rawFrame(http2.FrameData, flags, stream, data...)
}

// dataFrames cut a body into frames that are always allowed.
func dataFrames(stream uint32, end bool, data []byte) []byte {
	var frames []byte
	for len(data) > frameMax {
		frames = append(frames, dataFrame(stream, false, data[:frameMax])...)
		data = data[frameMax:]
	}
	return append(frames, dataFrame(stream, end, data)...)
}

// padded is a payload with the length of its padding in front and the padding
// behind.
func padded(payload []byte, padding int) []byte {
	return append(append([]byte{byte(padding)}, payload...), make([]byte, padding)...)
}

// literals is a header block that leaves no trace in any table: literals without
// indexing, not Huffman coded.
func literals(fields ...hpack.HeaderField) []byte {
	var block []byte
	for _, field := range fields {
		block = append(block, 0)
		block = appendString(block, field.Name)
		block = appendString(block, field.Value)
	}
	return block
}

func appendString(block []byte, text string) []byte {
	return append(appendInteger(block, 7, 0, len(text)), text...)
}

// appendInteger is RFC 7541 section 5.1; first holds the bits above the prefix.
func appendInteger(block []byte, prefixBits int, first byte, value int) []byte {
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
