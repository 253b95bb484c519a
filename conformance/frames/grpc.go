package frames

import (
	"encoding/binary"

	"golang.org/x/net/http2/hpack"
	"google.golang.org/protobuf/proto"
)

// Field is short for a header field.
func Field(name, value string) hpack.HeaderField { return hpack.HeaderField{Name: name, Value: value} }

// GRPC are the headers of a proper call.
func GRPC(path string, more ...hpack.HeaderField) []hpack.HeaderField {
	return append([]hpack.HeaderField{
		Field(":method", "POST"), Field(":scheme", "http"), Field(":path", path), Field(":authority", "test"),
		Field("content-type", "application/grpc"), Field("te", "trailers"),
	}, more...)
}

// Message is a gRPC message with its five bytes in front.
func Message(content proto.Message) []byte {
	data, err := proto.Marshal(content)
	if err != nil {
		panic(err)
	}
	return Framed(0, data)
}

// Framed puts the flag and the length before a message's bytes.
func Framed(flag byte, data []byte) []byte {
	return append(binary.BigEndian.AppendUint32([]byte{flag}, uint32(len(data))), data...)
}
