package harness

import "testing"

// attemptsMax is how often a scenario with a time bound is tried.
const attemptsMax = 3

// Attempt tries a scenario that has to end within a time, or without an
// election, until it does. A busy machine may spoil one attempt; a defect
// spoils all of them, and fails the test. What is wrong whatever the machine
// does is the scenario's to report.
func Attempt(t testing.TB, scenario func() error) {
	t.Helper()
	for attempt := 1; ; attempt++ {
		err := scenario()
		if err == nil {
			return
		}
		if attempt == attemptsMax {
			t.Fatalf("in each of %d attempts, in the last one: %v", attemptsMax, err)
		}
		t.Logf("attempt %d: %v", attempt, err)
	}
}
