package reliability

import (
	"errors"
	"fmt"
	"testing"
)

// recorder notes what an audit finds instead of failing.
type recorder struct {
	testing.TB
	found []string
}

func (r *recorder) Helper()           {}
func (r *recorder) Error(args ...any) { r.found = append(r.found, fmt.Sprint(args...)) }
func (r *recorder) Errorf(format string, args ...any) {
	r.found = append(r.found, fmt.Sprintf(format, args...))
}

// TestLedgerFinds plants one fault at a time: an audit that finds nothing would
// make every other test here worthless.
func TestLedgerFinds(t *testing.T) {
	put := func(revision int64, value string) change {
		return change{revision: revision, key: "k", value: value}
	}
	for name, history := range map[string][]change{
		"nothing wrong":       {put(2, "a"), put(3, "b"), put(4, "c")},
		"a lost write":        {put(2, "a"), put(3, "b")},
		"a lost write inside": {put(2, "a"), put(4, "c")},
		"an altered value":    {put(2, "a"), put(3, "x"), put(4, "c")},
		"a write twice":       {put(2, "a"), put(3, "b"), put(3, "a"), put(4, "c")},
		"swapped writes":      {put(2, "b"), put(3, "a"), put(4, "c")},
	} {
		ledger := newLedger()
		for revision, value := range map[int64]string{2: "a", 3: "b", 4: "c"} {
			writes := []change{{key: "k", value: value}}
			ledger.try(writes)
			ledger.acknowledge(revision, 1, writes)
		}
		audit := &recorder{TB: t}
		ledger.audit(audit, history, 2, 4)
		if (len(audit.found) > 0) != (name != "nothing wrong") {
			t.Errorf("%s: the audit found %v", name, audit.found)
		}
	}

	// Whatever the error was, NOSPACE for one: the write may have been made.
	failed := newLedger()
	failed.try([]change{{key: "k", value: "a"}})
	failed.fail()
	for _, history := range [][]change{{put(2, "a")}, nil} {
		audit := &recorder{TB: t}
		failed.audit(audit, history, 2, 1+int64(len(history)))
		if len(audit.found) > 0 {
			t.Errorf("a write that failed and is there %d times: the audit found %v", len(history), audit.found)
		}
	}

	ledger := newLedger()
	ledger.acknowledge(5, 7, []change{put(0, "late")})
	audit := &recorder{TB: t}
	ledger.audit(audit, nil, 6, 5)
	if len(audit.found) == 0 {
		t.Error("a revision below one acknowledged earlier was not found")
	}
}

// TestFollowerFinds plants what a watcher must never be told, one thing at a time.
func TestFollowerFinds(t *testing.T) {
	put := func(revision int64, key, value string) change {
		return change{revision: revision, key: key, value: value}
	}
	gone := change{revision: 4, deleted: true, key: "a"}
	history := []change{put(2, "a", "1"), put(3, "a", "2"), put(3, "b", "2"), gone, put(5, "a", "3")}
	one, two, three, four, five := history[0], history[1], history[2], history[3], history[4]
	for _, planted := range []struct {
		name string
		told []change
		err  error
		bad  bool
	}{
		{"nothing", history, nil, false},
		{"a write after all of them, which was given up on", append(history[:5:5], put(6, "c", "4")), nil, false},
		{"no event at all", nil, nil, true},
		{"the first event is missing", []change{two, three, four, five}, nil, true},
		{"an event is missing", []change{one, four, five}, nil, true},
		{"half a transaction is missing", []change{one, two, four, five}, nil, true},
		{"the last event is missing", []change{one, two, three, four}, nil, true},
		{"an event twice in a row", []change{one, one, two, three, four, five}, nil, true},
		{"an event again after later ones", []change{one, two, three, four, one, five}, nil, true},
		{"the last event twice", []change{one, two, three, four, five, five}, nil, true},
		{"two events the wrong way round", []change{one, two, three, five, four}, nil, true},
		{"two revisions the wrong way round", []change{one, four, two, three, five}, nil, true},
		{"a transaction the wrong way round", []change{one, three, two, four, five}, nil, true},
		{"another value", []change{one, two, three, four, put(5, "a", "1")}, nil, true},
		{"another revision", []change{put(1, "a", "1"), two, three, four, five}, nil, true},
		{"a put for a deletion", []change{one, two, three, put(4, "a", ""), five}, nil, true},
		{"an event that never was", []change{one, two, three, four, put(5, "x", "0"), five}, nil, true},
		{"an end of the watch", history, errors.New("compacted"), true},
	} {
		audit := &recorder{TB: t}
		(&follower{history: planted.told, err: planted.err}).auditWithin(0, audit, 0, history, 5)
		if (len(audit.found) > 0) != planted.bad {
			t.Errorf("%s is planted: the audit found %v", planted.name, audit.found)
		}
	}
}
