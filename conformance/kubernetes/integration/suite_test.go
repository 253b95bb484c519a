package integration

import (
	"slices"
	"testing"
)

func TestOutcomes(t *testing.T) {
	genuine := outcomes{"TestA": "pass", "TestB": "fail", "TestC": "pass", "TestC/x": "pass", "TestC/y": "skip", "TestD": "pass"}
	cairn := outcomes{"TestA": "pass", "TestB": "fail", "TestC": "fail", "TestC/x": "fail"}
	lost := cairn.lost(genuine)
	if want := []string{"TestC", "TestC/x", "TestD"}; !slices.Equal(lost, want) {
		t.Errorf("lost %v, not %v", lost, want)
	}
	if got, want := above(lost), []string{"TestC", "TestD"}; !slices.Equal(got, want) {
		t.Errorf("tried again %v, not %v", got, want)
	}
	if got, want := genuine.whole(), []string{"TestA", "TestC", "TestD"}; !slices.Equal(got, want) {
		t.Errorf("whole %v, not %v", got, want)
	}
	if got, want := genuine.String(), "4 passed, 1 failed, 1 skipped"; got != want {
		t.Errorf("%s, not %s", got, want)
	}
}
