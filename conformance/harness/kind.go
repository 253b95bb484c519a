// Package harness starts etcd-compatible servers and the genuine etcd tools
// for the black-box tests of this module.
package harness

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Kind says which server a test starts.
type Kind string

const (
	// Etcd is the genuine server, built from its module.
	Etcd Kind = "etcd"
	// Etcd36 and Etcd35 are the genuine server of the releases before.
	Etcd36 Kind = "etcd-3.6"
	Etcd35 Kind = "etcd-3.5"
	// Cairn is the server that the tests are about.
	Cairn Kind = "cairn"
)

// Subject is the kind under test. SERVER=etcd runs every test against the
// genuine server: that proves the tests, the model and the masks themselves.
func Subject() Kind {
	if os.Getenv("SERVER") == string(Etcd) {
		return Etcd
	}
	return Cairn
}

// Binary is the path of the executable that takes etcd's flags. Cairn reads
// them when it is started under the name `etcd`, so it gets a link with that
// name.
func Binary(t testing.TB, kind Kind) string {
	t.Helper()
	if kind != Cairn {
		return Tool(t, string(kind))
	}
	link := filepath.Join(t.TempDir(), "etcd")
	if err := os.Symlink(CairnBinary(t), link); err != nil {
		t.Fatal(err)
	}
	return link
}

// CairnBinary is CAIRN_BIN, or what `make build` left in the workspace.
func CairnBinary(t testing.TB) string {
	t.Helper()
	path := os.Getenv("CAIRN_BIN")
	if path == "" {
		target := os.Getenv("CARGO_TARGET_DIR")
		if target == "" {
			target = filepath.Join(moduleRoot(t), "..", "target")
		}
		path = filepath.Join(target, "dist", "cairn")
	}
	path, err := filepath.Abs(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); err != nil {
		t.Fatalf("no server to test: %v (run `make build`, or set CAIRN_BIN, or SERVER=etcd)", err)
	}
	return path
}

// moduleRoot is the folder of this module's go.mod: `go test` starts each
// package's tests in the package's folder, which may be in a module below.
func moduleRoot(t testing.TB) string {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for dir != filepath.Dir(dir) {
		content, err := os.ReadFile(filepath.Join(dir, "go.mod"))
		if err == nil && strings.HasPrefix(string(content), "module cairn.dev/conformance\n") {
			return dir
		}
		dir = filepath.Dir(dir)
	}
	t.Fatal("the tests must run inside the conformance module")
	return ""
}
