package harness

import (
	"os"
	"path/filepath"
	"testing"
)

// CopyOf is a copy of a file, for tools that write to what they look at.
func CopyOf(t testing.TB, file string) string {
	t.Helper()
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "copy.db")
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}
