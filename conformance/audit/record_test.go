package audit

import (
	"testing"
	"time"
)

// recorder counts the errors that a check would raise.
type recorder struct {
	testing.TB
	errors int
}

func (r *recorder) Helper()               {}
func (r *recorder) Error(...any)          { r.errors++ }
func (r *recorder) Errorf(string, ...any) { r.errors++ }

// TestRecord plants what a server must never do: the check has to see it.
func TestRecord(t *testing.T) {
	ms := func(n int) time.Duration { return time.Duration(n) * time.Millisecond }
	put := func(value string, revision int64, called, returned int) operation {
		return operation{client: 1, key: "k", value: value, put: true, revision: revision, called: ms(called), returned: ms(returned)}
	}
	get := func(value string, revision int64, called, returned int) operation {
		return operation{client: 2, key: "k", value: value, revision: revision, called: ms(called), returned: ms(returned)}
	}
	unknown := put("u", 0, 1, 0)
	unknown.returned = never
	for _, planted := range []struct {
		name       string
		operations []operation
		took       map[string]int64
		bad        bool
	}{
		{"sound", []operation{put("a", 2, 1, 2), get("a", 2, 3, 4), put("b", 3, 3, 5), get("b", 3, 4, 6)}, map[string]int64{"a": 2, "b": 3}, false},
		{"lost write", []operation{put("a", 2, 1, 2)}, map[string]int64{}, true},
		{"moved write", []operation{put("a", 2, 1, 2)}, map[string]int64{"a": 3}, true},
		{"stale read", []operation{put("a", 2, 1, 2), put("b", 3, 3, 4), get("a", 2, 5, 6)}, map[string]int64{"a": 2, "b": 3}, true},
		{"read of nothing", []operation{put("a", 2, 1, 2), get("", 0, 3, 4)}, map[string]int64{"a": 2}, true},
		{"unknown that took effect late", []operation{unknown, get("", 0, 2, 3), get("u", 2, 4, 5)}, map[string]int64{"u": 2}, false},
		{"unknown that never did", []operation{unknown, get("", 0, 2, 3)}, map[string]int64{}, false},
		{"unknown, seen and then gone", []operation{unknown, get("u", 2, 2, 3), get("", 0, 4, 5)}, map[string]int64{"u": 2}, true},
	} {
		raised := &recorder{TB: t}
		(&Record{operations: planted.operations}).Check(raised, planted.took)
		if (raised.errors > 0) != planted.bad {
			t.Errorf("%s: %d errors", planted.name, raised.errors)
		}
	}
}
