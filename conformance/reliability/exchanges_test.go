package reliability

import (
	"bytes"
	"encoding/binary"
	"sort"
	"strings"
)

// exchange is one request and its answer as the server's system calls show
// them; positions are those of syscallRecord.
type exchange struct {
	request  []byte // the gRPC frame
	arrived  int    // end of the read that brought the last byte
	answered int    // begin of the write with the first byte of the answer's message; 0: never
}

const clientPreface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

// frameStream cuts the bytes of one direction of a connection into HTTP/2
// frames.
type frameStream struct {
	rest    []byte
	started bool
}

func (s *frameStream) feed(data []byte, each func(kind, flags byte, stream uint32, payload []byte)) {
	s.rest = append(s.rest, data...)
	if !s.started {
		if bytes.HasPrefix([]byte(clientPreface), s.rest[:min(len(s.rest), len(clientPreface))]) && len(s.rest) < len(clientPreface) {
			return
		}
		s.rest = bytes.TrimPrefix(s.rest, []byte(clientPreface))
		s.started = true
	}
	for len(s.rest) >= 9 {
		length := int(s.rest[0])<<16 | int(s.rest[1])<<8 | int(s.rest[2])
		if len(s.rest) < 9+length {
			return
		}
		each(s.rest[3], s.rest[4], binary.BigEndian.Uint32(s.rest[5:])&0x7fffffff, s.rest[9:9+length])
		s.rest = s.rest[9+length:]
	}
}

type streamName struct {
	socket string
	stream uint32
}

// exchanges finds the requests whose connection was opened while strace was
// attached. `port` is the server's.
func exchanges(records []syscallRecord, port string) []*exchange {
	reads, writes := map[string]*frameStream{}, map[string]*frameStream{}
	open := map[streamName]*exchange{}
	var all []*exchange
	// The position of a read is its end, that of a write its begin.
	position := func(r syscallRecord) int {
		if r.isWrite() {
			return r.begin
		}
		return r.end
	}
	records = append([]syscallRecord(nil), records...)
	sort.SliceStable(records, func(a, b int) bool { return position(records[a]) < position(records[b]) })
	for _, record := range records {
		if !strings.HasPrefix(record.file, "TCP") || !strings.Contains(record.file, port+"->") || len(record.data) == 0 {
			continue
		}
		side := reads
		if record.isWrite() {
			side = writes
		}
		if side[record.file] == nil {
			side[record.file] = &frameStream{}
		}
		side[record.file].feed(record.data, func(kind, flags byte, stream uint32, payload []byte) {
			if kind != 0 { // only DATA
				return
			}
			name := streamName{record.file, stream}
			at := open[name]
			if record.isWrite() {
				if at != nil && at.answered == 0 {
					at.answered = record.begin
				}
				return
			}
			if at == nil {
				at = &exchange{}
				open[name] = at
				all = append(all, at)
			}
			at.request = append(at.request, payload...)
			at.arrived = record.end
		})
	}
	return all
}

// walCalls are the writes and syncs on files below a directory, in order.
func walCalls(records []syscallRecord, directory string) (writes, syncs []syscallRecord) {
	for _, record := range records {
		if !strings.HasPrefix(record.file, directory+"/") || strings.HasSuffix(record.file, ".tmp") {
			continue
		}
		switch {
		case record.isSync():
			syncs = append(syncs, record)
		case record.isWrite():
			writes = append(writes, record)
		}
	}
	return writes, syncs
}

// syncedBefore says whether a sync that had begun after `from` ended well
// before `to`.
func syncedBefore(syncs []syscallRecord, from, to int) bool {
	for _, sync := range syncs {
		if sync.result == 0 && sync.begin > from && sync.end < to {
			return true
		}
	}
	return false
}
