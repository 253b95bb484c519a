package harness

import (
	"crypto/sha256"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"
)

// tools are the genuine programs and where they are built: folder of the
// module below the module root, and package.
var tools = map[string][2]string{
	"etcd":      {".", "./etcd"},
	"etcd-3.6":  {"earlier/v3.6", "go.etcd.io/etcd/server/v3"},
	"etcd-3.5":  {"earlier/v3.5", "go.etcd.io/etcd/server/v3"},
	"etcdctl":   {".", "go.etcd.io/etcd/etcdctl/v3"},
	"etcdutl":   {".", "go.etcd.io/etcd/etcdutl/v3"},
	"benchmark": {"benchmark", "go.etcd.io/etcd/v3/tools/benchmark"},
	"promtool":  {"promtool", "github.com/prometheus/prometheus/cmd/promtool"},
}

// Tool is the path of a genuine etcd program, built once into
// CONFORMANCE_CACHE (or the user's cache folder). The folder is named by what
// was built, so a changed go.mod builds anew.
func Tool(t testing.TB, name string) string {
	t.Helper()
	source, ok := tools[name]
	if !ok {
		t.Fatalf("unknown tool `%s`", name)
	}
	module := filepath.Join(moduleRoot(t), source[0])
	dir := filepath.Join(cacheRoot(t), versionTag(t, module))
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, name)
	lock := lockFile(t, path+".lock", true)
	defer lock.Close()
	if _, err := os.Stat(path); err == nil {
		return path
	}
	build := exec.Command("go", "build", "-o", path+".new", source[1])
	build.Dir = module
	if output, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build `%s`: %v\n%s", name, err, output)
	}
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
	return path
}

func cacheRoot(t testing.TB) string {
	t.Helper()
	if dir := os.Getenv("CONFORMANCE_CACHE"); dir != "" {
		return dir
	}
	dir, err := os.UserCacheDir()
	if err != nil {
		t.Fatalf("%v (set CONFORMANCE_CACHE)", err)
	}
	return filepath.Join(dir, "cairn-conformance")
}

func versionTag(t testing.TB, module string) string {
	t.Helper()
	hash := sha256.New()
	fmt.Fprintln(hash, runtime.Version())
	for _, name := range []string{"go.mod", "go.sum"} {
		content, err := os.ReadFile(filepath.Join(module, name))
		if err != nil {
			t.Fatal(err)
		}
		hash.Write(content)
	}
	return fmt.Sprintf("%x", hash.Sum(nil)[:8])
}
