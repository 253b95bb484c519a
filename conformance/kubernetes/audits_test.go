package kubernetes

import (
	"testing"
	"time"
)

// mistakes counts what an audit finds.
type mistakes struct {
	testing.TB
	found int
}

func (m *mistakes) Helper()               {}
func (m *mistakes) Logf(string, ...any)   {}
func (m *mistakes) Error(...any)          { m.found++ }
func (m *mistakes) Errorf(string, ...any) { m.found++ }

// TestAudits plants what the audits are there for: each must be found, and
// what is right must pass.
func TestAudits(t *testing.T) {
	streamOf := func(gaps []gap, versions ...uint64) *stream {
		s := &stream{since: 10, gaps: gaps}
		for _, version := range versions {
			s.see(event{"object", version, false})
		}
		return s
	}
	ledgerOf := func(possible ...content) *ledger {
		l := newLedger()
		l.acknowledge("configmaps/object", possible[0])
		for _, maybe := range possible[1:] {
			l.unanswered("configmaps/object", maybe)
		}
		return l
	}
	found := func(contents ...content) map[string]content {
		all := map[string]content{}
		for _, one := range contents {
			all["configmaps/object"] = one
		}
		return all
	}
	start := time.Now()
	terms := func(taken time.Duration) *reigns {
		return &reigns{broken: map[int]bool{}, history: []reign{
			{holder: "a", renewed: start, duration: 6 * time.Second},
			{holder: "b", acquired: start.Add(taken)},
		}}
	}
	made := content{present: true, value: "made", version: 12}
	for name, check := range map[string]struct {
		audit func(t testing.TB)
		wrong bool
	}{
		"the same events":          {func(t testing.TB) { auditStreams(t, streamOf(nil, 11, 12, 13), streamOf(nil, 11, 12, 13)) }, false},
		"a missing event":          {func(t testing.TB) { auditStreams(t, streamOf(nil, 11, 13), streamOf(nil, 11, 12, 13)) }, true},
		"a missing last event":     {func(t testing.TB) { auditStreams(t, streamOf(nil, 11, 12), streamOf(nil, 11, 12, 13)) }, true},
		"an event that never was":  {func(t testing.TB) { auditStreams(t, streamOf(nil, 11, 12, 13), streamOf(nil, 11, 13)) }, true},
		"a gap that was told of":   {func(t testing.TB) { auditStreams(t, streamOf([]gap{{11, 12}}, 11, 13), streamOf(nil, 11, 12, 13)) }, false},
		"an event twice":           {func(t testing.TB) { auditStreams(t, streamOf(nil, 11, 12, 12), streamOf(nil, 11, 12, 12)) }, true},
		"events in a wrong order":  {func(t testing.TB) { auditStreams(t, streamOf(nil, 12, 11), streamOf(nil, 12, 11)) }, true},
		"an answered write":        {func(t testing.TB) { auditWrites(t, ledgerOf(made), configMaps, streamOf(nil, 11, 12)) }, false},
		"an unseen answered write": {func(t testing.TB) { auditWrites(t, ledgerOf(made), configMaps, streamOf(nil, 11, 13)) }, true},
		"an object as it was left": {func(t testing.TB) { ledgerOf(made).audit(t, found(made)) }, false},
		"a lost object":            {func(t testing.TB) { ledgerOf(made).audit(t, found()) }, true},
		"an older content":         {func(t testing.TB) { ledgerOf(made).audit(t, found(content{true, "before", 11})) }, true},
		"another version":          {func(t testing.TB) { ledgerOf(made).audit(t, found(content{true, "made", 11})) }, true},
		"an unanswered deletion":   {func(t testing.TB) { ledgerOf(made, content{}).audit(t, found()) }, false},
		"a lease that had run out": {terms(7 * time.Second).audit, false},
		"a lease that was taken":   {terms(4 * time.Second).audit, true},
	} {
		m := &mistakes{TB: t}
		check.audit(m)
		if wrong := m.found > 0; wrong != check.wrong {
			t.Errorf("%s: %d mistakes found", name, m.found)
		}
	}
}
