package clients

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// cacheFolder is where a client's packages are kept between runs: outside of
// the clone, one folder for each version of the files that name them.
func cacheFolder(t *testing.T, client string, files ...string) string {
	t.Helper()
	hash := sha256.New()
	for _, name := range files {
		content, err := os.ReadFile(filepath.Join(client, name))
		if err != nil {
			t.Fatal(err)
		}
		hash.Write(content)
	}
	root := os.Getenv("CAIRN_CACHE_DIR")
	if root == "" {
		user, err := os.UserCacheDir()
		if err != nil {
			t.Fatalf("%v (set CAIRN_CACHE_DIR)", err)
		}
		root = filepath.Join(user, "cairn-conformance")
	}
	return filepath.Join(root, "clients", fmt.Sprintf("%s-%x", client, hash.Sum(nil)[:8]))
}

// installed runs the steps that fill a folder, unless an earlier run has
// finished them.
func installed(t *testing.T, folder string, steps func() error) {
	t.Helper()
	done := filepath.Join(folder, "done")
	if _, err := os.Stat(done); err == nil {
		return
	}
	if err := errors.Join(os.RemoveAll(folder), os.MkdirAll(folder, 0o700)); err != nil {
		t.Fatal(err)
	}
	if err := steps(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(done, nil, 0o600); err != nil {
		t.Fatal(err)
	}
}

// command runs a tool in a folder; the error holds what it printed.
func command(dir string, line ...string) error {
	tool, err := exec.LookPath(line[0])
	if err != nil {
		return fmt.Errorf("%w (packages: see README.md)", err)
	}
	run := exec.Command(tool, line[1:]...)
	run.Dir = dir
	if output, err := run.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w\n%s", strings.Join(line, " "), err, output)
	}
	return nil
}

// copyFiles copies files of a client's folder, for tools that install beside
// them.
func copyFiles(from, to string, names ...string) error {
	for _, name := range names {
		content, err := os.ReadFile(filepath.Join(from, name))
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(to, name), content, 0o600); err != nil {
			return err
		}
	}
	return nil
}

// sources are the files of a folder, as paths below the client's own.
func sources(t *testing.T, folder string) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(folder)
	if err != nil {
		t.Fatal(err)
	}
	_, below, _ := strings.Cut(folder, "/")
	for _, entry := range entries {
		names = append(names, filepath.Join(below, entry.Name()))
	}
	return names
}
