package main

import (
	"encoding/binary"
	"math/rand"
)

// source hands out gRPC frames with one request each. They differ in the digits of the key only, so one buffer serves
// all of them.
type source struct {
	frame  []byte
	digits []byte // the key inside frame
	next   uint64
	end    uint64
	step   uint64
	keys   uint64
}

// newSource makes puts with a value of valueBytes, or without one (0) linearizable reads: both messages begin with the
// key.
func newSource(first, total, keys, keyBytes, valueBytes int) *source {
	message := []byte{0x0a}
	message = binary.AppendUvarint(message, uint64(keyBytes))
	keyAt := len(message)
	message = append(message, make([]byte, keyBytes)...)
	if valueBytes > 0 {
		value := make([]byte, valueBytes)
		rand.New(rand.NewSource(1)).Read(value)
		message = append(message, 0x12)
		message = binary.AppendUvarint(message, uint64(valueBytes))
		message = append(message, value...)
	}

	frame := make([]byte, 5, 5+len(message))
	binary.BigEndian.PutUint32(frame[1:], uint32(len(message)))
	frame = append(frame, message...)
	return &source{
		frame:  frame,
		digits: frame[5+keyAt : 5+keyAt+keyBytes],
		next:   uint64(first),
		end:    uint64(first + total),
		step:   coprime(uint64(keys)),
		keys:   uint64(keys),
	}
}

// take returns the next frame, valid until the next call; nil when all are out.
func (s *source) take() []byte {
	if s.next == s.end {
		return nil
	}
	number := s.next % s.keys * s.step % s.keys
	s.next++
	for i := len(s.digits) - 1; i >= 0; i-- {
		s.digits[i] = byte('0' + number%10)
		number /= 10
	}
	return s.frame
}

// coprime finds a stride near 0.618 n that visits every number below n once.
func coprime(n uint64) uint64 {
	for step := n*618/1000 | 1; ; step++ {
		a, b := n, step
		for b != 0 {
			a, b = b, a%b
		}
		if a == 1 {
			return step
		}
	}
}
