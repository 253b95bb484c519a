package attacks

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
)

// tally is what an attacker has sent and what it got.
type tally struct {
	// Connections opened, and bytes written to them.
	Connections, Bytes atomic.Int64
	// Answers are streams that the server has ended.
	Answers atomic.Int64
	// BytesRead is everything that the server has sent.
	BytesRead atomic.Int64

	guard sync.Mutex
	ends  map[string]int64
}

// got counts one thing that the server has done.
func (t *tally) got(what string) {
	t.guard.Lock()
	defer t.guard.Unlock()
	if t.ends == nil {
		t.ends = map[string]int64{}
	}
	t.ends[what]++
}

// report is the tally as one process tells it to another.
type report struct {
	Connections, Bytes, Answers, BytesRead int64
	Ends                                   map[string]int64
}

func (t *tally) write(to io.Writer) error {
	t.guard.Lock()
	defer t.guard.Unlock()
	return json.NewEncoder(to).Encode(report{
		Connections: t.Connections.Load(), Bytes: t.Bytes.Load(), Answers: t.Answers.Load(), BytesRead: t.BytesRead.Load(),
		Ends: t.ends,
	})
}

// String is a cell of the table: the most frequent things first.
func (r report) String() string {
	names := slices.SortedFunc(maps.Keys(r.Ends), func(a, b string) int {
		return cmp.Or(cmp.Compare(r.Ends[b], r.Ends[a]), cmp.Compare(a, b))
	})
	var parts []string
	if r.Answers > 0 {
		parts = append(parts, fmt.Sprintf("%s streams answered", number(r.Answers)))
	}
	for _, name := range names[:min(3, len(names))] {
		parts = append(parts, fmt.Sprintf("%s × %s", number(r.Ends[name]), name))
	}
	if len(parts) == 0 {
		return "nothing"
	}
	return strings.Join(parts, ", ")
}

// number is short enough for a table.
func number(n int64) string {
	switch {
	case n >= 10_000_000:
		return fmt.Sprintf("%d M", n/1_000_000)
	case n >= 10_000:
		return fmt.Sprintf("%d k", n/1_000)
	}
	return fmt.Sprint(n)
}
