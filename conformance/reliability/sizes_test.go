package reliability

import (
	"os"
	"strconv"
	"testing"
)

// size is a number from the environment, so that one test serves CI and a long
// run.
func size(t testing.TB, variable string, usual int) int {
	t.Helper()
	text := os.Getenv(variable)
	if text == "" {
		return usual
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		t.Fatalf("%s=%q is not a positive number", variable, text)
	}
	return n
}
