package process

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"cairn.dev/conformance/harness"
)

// A release build has none of the mistakes that tests plant: the name of none
// is in the binary. (That the server does not even compile with the feature
// `mistakes` is checked where it begins, in crates/server/src/lib.rs.)
func TestNoMistakes(t *testing.T) {
	files, err := filepath.Glob("../../crates/*/src/mistake.rs")
	if err != nil || len(files) < 4 {
		t.Fatalf("found %d files with mistakes: %v", len(files), err)
	}
	binary, err := os.ReadFile(harness.Binary(t, harness.Cairn))
	if err != nil {
		t.Fatal(err)
	}
	count := 0
	for _, file := range files {
		source, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range regexp.MustCompile(`(?m)^    ([A-Z][A-Za-z]+),$`).FindAllSubmatch(source, -1) {
			count++
			if bytes.Contains(binary, name[1]) {
				t.Errorf("the binary holds the name of the mistake `%s` of %s", name[1], file)
			}
		}
	}
	if count < 50 {
		t.Errorf("the files name %d mistakes", count)
	}
}
