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
// module below the module root, package, and a flag of the build if it needs
// one.
var tools = map[string][]string{
	"etcd":      {".", "./etcd"},
	"etcd-3.6":  {"earlier/v3.6", "go.etcd.io/etcd/server/v3"},
	"etcd-3.5":  {"earlier/v3.5", "go.etcd.io/etcd/server/v3"},
	"etcdctl":   {".", "go.etcd.io/etcd/etcdctl/v3"},
	"etcdutl":   {".", "go.etcd.io/etcd/etcdutl/v3"},
	"benchmark": {"benchmark", "go.etcd.io/etcd/v3/tools/benchmark"},
	"promtool":  {"promtool", "github.com/prometheus/prometheus/cmd/promtool"},
	"helm":      {"helm", "helm.sh/helm/v3/cmd/helm"},
	"versitygw": {"s3", "github.com/versity/versitygw/cmd/versitygw"},

	"kube-apiserver":          {"kubernetes/programs", "k8s.io/kubernetes/cmd/kube-apiserver", KubernetesVersion},
	"kube-controller-manager": {"kubernetes/programs", "k8s.io/kubernetes/cmd/kube-controller-manager", KubernetesVersion},
	"kube-scheduler":          {"kubernetes/programs", "k8s.io/kubernetes/cmd/kube-scheduler", KubernetesVersion},
}

// KubernetesVersion is what the programs say of themselves, as in the release
// that kubernetes/programs/go.mod names.
const KubernetesVersion = "-ldflags=-X=k8s.io/component-base/version.gitVersion=v1.37.2"

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
	arguments := append([]string{"build", "-o", path + ".new"}, source[2:]...)
	build := exec.Command("go", append(arguments, source[1])...)
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
