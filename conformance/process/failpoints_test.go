package process

import (
	"bytes"
	"os"
	"regexp"
	"testing"

	"cairn.dev/conformance/harness"
)

// A release build has no failpoints: neither their variables nor the name of
// one is in the binary. The names are those of the page.
func TestNoFailpoints(t *testing.T) {
	page, err := os.ReadFile("../../docs/failpoints.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := bytes.Cut(page, []byte("## The points"))
	table, _, _ = bytes.Cut(table, []byte("## Points of etcd that are not here"))
	names := regexp.MustCompile("`([a-z][A-Za-z]+)`").FindAllSubmatch(table, -1)
	if len(names) < 50 {
		t.Fatalf("the page names %d points", len(names))
	}
	binary, err := os.ReadFile(harness.Binary(t, harness.Cairn))
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Contains(binary, []byte("ETCD_")) {
		t.Fatal("the binary holds no text that could be looked for")
	}
	for _, text := range []string{"GOFAIL_", "failpoint panic"} {
		if bytes.Contains(binary, []byte(text)) {
			t.Errorf("the binary holds %q", text)
		}
	}
	for _, name := range names {
		// The table has the word for an action, too.
		if string(name[1]) != "return" && bytes.Contains(binary, name[1]) {
			t.Errorf("the binary holds the name of the point `%s`", name[1])
		}
	}
}
