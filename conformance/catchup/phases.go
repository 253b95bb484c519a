package catchup

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"cairn.dev/conformance/harness"
)

// sample is one request of an open loop.
type sample struct {
	due  time.Time
	took time.Duration
}

// begins are the lines of a member's log with which a phase of joining begins.
var begins = []struct{ line, phase string }{
	{"offering a snapshot to a member", "the leader reads its state"},
	{"receiving database snapshot", "the state is sent"},
	{"received all of the database snapshot", "it is checked and indexed"},
	{"applied snapshot", "the log behind it is sent"},
}

// phase is a part of joining.
type phase struct {
	name  string
	begun time.Time
}

// phases finds them in the logs of all members.
func phases(members []*harness.Server, begun time.Time) []phase {
	found := []phase{{"the member starts", begun}}
	for _, member := range members {
		for line := range strings.Lines(member.Log()) {
			var entry struct {
				Msg string
				Ts  time.Time
			}
			if json.Unmarshal([]byte(line), &entry) != nil || entry.Ts.Before(begun) {
				continue
			}
			for _, begin := range begins {
				if strings.HasPrefix(entry.Msg, begin.line) {
					found = append(found, phase{begin.phase, entry.Ts})
				}
			}
		}
	}
	slices.SortFunc(found, func(a, b phase) int { return a.begun.Compare(b.begun) })
	return found
}

// describe tells what the requests took that were due in each phase.
func describe(samples []sample, phases []phase, end time.Time) string {
	var text strings.Builder
	for number, phase := range phases {
		until := end
		if number+1 < len(phases) {
			until = phases[number+1].begun
		}
		var times []time.Duration
		for _, sample := range samples {
			if !sample.due.Before(phase.begun) && sample.due.Before(until) {
				times = append(times, sample.took)
			}
		}
		fmt.Fprintf(&text, "%6.2f s  %-26s p50 %v, p99 %v, max %v of %d puts\n", until.Sub(phase.begun).Seconds(), phase.name,
			quantile(times, 0.5), quantile(times, 0.99), quantile(times, 1), len(times))
	}
	return text.String()
}

// quantile of some durations, which it sorts.
func quantile(times []time.Duration, share float64) time.Duration {
	if len(times) == 0 {
		return 0
	}
	slices.Sort(times)
	return times[min(int(float64(len(times))*share), len(times)-1)].Round(100 * time.Microsecond)
}
