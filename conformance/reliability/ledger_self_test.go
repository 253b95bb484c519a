package reliability

import (
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
