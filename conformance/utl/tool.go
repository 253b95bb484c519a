package utl

import (
	"crypto/sha256"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"cairn.dev/conformance/harness"
)

// ours is the binary under the name of etcd's tool.
func ours(t testing.TB) string {
	t.Helper()
	link := filepath.Join(t.TempDir(), "etcdutl")
	if err := os.Symlink(harness.CairnBinary(t), link); err != nil {
		t.Fatal(err)
	}
	return link
}

// run runs our tool, which must succeed.
func run(t testing.TB, args ...string) string {
	t.Helper()
	result := harness.Command{Path: ours(t), Args: args}.Run(t)
	if result.Code != 0 {
		t.Fatalf("etcdutl %v: exit %d\n%s%s", args, result.Code, result.Stdout, result.Stderr)
	}
	return result.Stdout
}

// refused runs our tool, which must fail; it returns what it says.
func refused(t testing.TB, args ...string) string {
	t.Helper()
	result := harness.Command{Path: ours(t), Args: args}.Run(t)
	if result.Code == 0 {
		t.Fatalf("etcdutl %v succeeds\n%s%s", args, result.Stdout, result.Stderr)
	}
	return result.Stderr
}

// absent fails a test when something was left behind where nothing was before.
func absent(t testing.TB, path string) {
	t.Helper()
	if _, err := os.Lstat(path); !os.IsNotExist(err) {
		t.Errorf("`%s` is left: %v", path, err)
	}
}

// fingerprint is a checksum of everything in a directory, names and times
// included.
func fingerprint(t testing.TB, dir string) string {
	t.Helper()
	hash := sha256.New()
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		fmt.Fprintln(hash, path, info.Size(), info.Mode(), info.ModTime().UnixNano())
		if entry.IsDir() {
			return nil
		}
		content, err := os.ReadFile(path)
		hash.Write(content)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("%x", hash.Sum(nil))
}
