package audit

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"time"
)

// line is one of a file: what a history has one of, or one operation, lease,
// watch, or event of the watch above it.
type line struct {
	History   *head      `json:"history,omitempty"`
	Operation *Operation `json:"operation,omitempty"`
	Lease     *Lease     `json:"lease,omitempty"`
	Watch     *int64     `json:"watch,omitempty"`
	Event     *Event     `json:"event,omitempty"`
}

// head is what a history has one of.
type head struct {
	Prefixes   []string            `json:"prefixes"`
	HeadersLag bool                `json:"headers_lag,omitempty"`
	Stale      time.Duration       `json:"stale,omitempty"`
	Overdue    time.Duration       `json:"overdue,omitempty"`
	First      int64               `json:"first"`
	Last       int64               `json:"last"`
	Stored     map[string][]Stored `json:"stored,omitempty"`
}

// write writes the history to a file, which it closes.
func (h *History) write(file io.WriteCloser) error {
	buffer := bufio.NewWriter(file)
	encoder := json.NewEncoder(buffer)
	var failed error
	put := func(one line) {
		if err := encoder.Encode(one); failed == nil {
			failed = err
		}
	}
	put(line{History: &head{h.Prefixes, h.HeadersLag, h.Stale, h.Overdue, h.First, h.Last, h.Stored}})
	for _, done := range h.Operations {
		put(line{Operation: &done})
	}
	for _, lease := range h.Leases {
		put(line{Lease: &lease})
	}
	for _, watch := range h.Watches {
		put(line{Watch: &watch.First})
		for _, event := range watch.Events {
			put(line{Event: &event})
		}
	}
	if err := buffer.Flush(); failed == nil {
		failed = err
	}
	if err := file.Close(); failed == nil {
		failed = err
	}
	return failed
}

// FromFile reads a history that was written to a file.
func FromFile(path string) (*History, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	h := empty()
	for decoder := json.NewDecoder(bufio.NewReader(file)); ; {
		var next line
		if err := decoder.Decode(&next); err == io.EOF {
			return h, nil
		} else if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		switch {
		case next.History != nil:
			head := next.History
			h.Prefixes, h.HeadersLag, h.Stale, h.Overdue = head.Prefixes, head.HeadersLag, head.Stale, head.Overdue
			h.First, h.Last = head.First, head.Last
			if head.Stored != nil {
				h.Stored = head.Stored
			}
		case next.Operation != nil:
			h.try(*next.Operation)
			h.add(*next.Operation)
		case next.Lease != nil:
			h.Leases[next.Lease.Key] = *next.Lease
		case next.Watch != nil:
			h.Watches = append(h.Watches, Watch{First: *next.Watch})
		case next.Event != nil && len(h.Watches) > 0:
			watch := &h.Watches[len(h.Watches)-1]
			watch.Events = append(watch.Events, *next.Event)
		default:
			return nil, fmt.Errorf("%s: a line is not of a history", path)
		}
	}
}
