package main

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
)

const (
	suitesModule = "go.etcd.io/etcd/tests/v3"
	binPrefix    = "published-bin-"
)

// tools is what a run needs: the folder with `etcd`, `etcdctl` and `etcdutl`,
// and the folder with the sources and test binaries of the suites.
type tools struct {
	bin, sources string
}

// remove removes what only this run needed.
func (t tools) remove() {
	if strings.HasPrefix(filepath.Base(t.bin), binPrefix) {
		os.RemoveAll(t.bin)
	}
}

// build builds the genuine tools and the suites, unless the cache has them,
// and links the server beside the tools under the name `etcd`.
func build(cache, server string) (tools, error) {
	module, err := moduleFolder()
	if err != nil {
		return tools{}, err
	}
	if cache == "" {
		user, err := os.UserCacheDir()
		if err != nil {
			return tools{}, err
		}
		cache = filepath.Join(user, "cairn-conformance")
	}
	tag, err := sourceTag(module)
	if err != nil {
		return tools{}, err
	}
	root := filepath.Join(cache, "published-"+tag)
	genuine, sources := filepath.Join(root, "genuine"), filepath.Join(root, "suites")
	if err := os.MkdirAll(genuine, 0o700); err != nil {
		return tools{}, err
	}
	unlock, err := lock(filepath.Join(root, "lock"))
	if err != nil {
		return tools{}, err
	}
	defer unlock()
	for name, from := range map[string]string{
		"etcd": "go.etcd.io/etcd/server/v3", "etcdctl": "go.etcd.io/etcd/etcdctl/v3", "etcdutl": "go.etcd.io/etcd/etcdutl/v3",
	} {
		if name == "etcd" && server != "" {
			continue
		}
		if err := once(filepath.Join(genuine, name), func(to string) error {
			return command(module, "go", "build", "-o", to, from)
		}); err != nil {
			return tools{}, err
		}
	}
	if err := once(sources, func(to string) error { return buildSuites(module, to) }); err != nil {
		return tools{}, err
	}
	bin, err := binFolder(genuine, server)
	return tools{bin: bin, sources: sources}, err
}

// once makes a file or folder under another name and renames it, so that what
// was left unfinished is made again.
func once(path string, produce func(to string) error) error {
	if _, err := os.Stat(path); err == nil {
		return nil
	}
	unfinished := path + ".new"
	if err := os.RemoveAll(unfinished); err != nil {
		return err
	}
	if err := produce(unfinished); err != nil {
		return fmt.Errorf("make `%s`: %w", path, err)
	}
	return os.Rename(unfinished, path)
}

// buildSuites copies the sources of the suites from the module cache, sets the
// cluster shapes, and builds one test binary per suite.
func buildSuites(module, to string) error {
	published, err := suitesFolder(module)
	if err != nil {
		return err
	}
	if err := copyTree(published, to); err != nil {
		return err
	}
	if err := adapt(to); err != nil {
		return err
	}
	// The sums are those of this module; only the place of the sources differs.
	for _, name := range []string{"go.mod", "go.sum"} {
		content, err := os.ReadFile(filepath.Join(module, name))
		if err != nil {
			return err
		}
		if name == "go.mod" {
			content = fmt.Appendf(content, "\nreplace %s => %s\n", suitesModule, to)
		}
		if err := os.WriteFile(filepath.Join(to, "build."+strings.TrimPrefix(name, "go.")), content, 0o600); err != nil {
			return err
		}
	}
	for _, suite := range suites {
		binary := filepath.Join(to, suite.name+".test")
		err := command(module, "go", "test", "-c", "-modfile="+filepath.Join(to, "build.mod"), "-tags=e2e", "-o", binary,
			suitesModule+"/"+suite.name)
		if err != nil {
			return err
		}
	}
	return nil
}

// suitesFolder is where the module cache keeps the suites.
func suitesFolder(module string) (string, error) {
	list := exec.Command("go", "mod", "download", "-json", suitesModule)
	list.Dir = module
	output, err := list.Output()
	if err != nil {
		return "", fmt.Errorf("go mod download %s: %w: %s", suitesModule, err, output)
	}
	var downloaded struct{ Dir string }
	if err := json.Unmarshal(output, &downloaded); err != nil {
		return "", err
	}
	return downloaded.Dir, nil
}

// copyTree copies a folder; the copies are writable, which the module cache is
// not.
func copyTree(from, to string) error {
	return filepath.WalkDir(from, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		relative, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		target := filepath.Join(to, relative)
		if entry.IsDir() {
			return os.MkdirAll(target, 0o700)
		}
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		return os.WriteFile(target, content, 0o600)
	})
}

// binFolder is a new folder with the tools under the names that the suites
// look for. Cairn reads etcd's flags when it is started as `etcd`.
func binFolder(genuine, server string) (string, error) {
	if server == "" {
		return genuine, nil
	}
	server, err := filepath.Abs(server)
	if err != nil {
		return "", err
	}
	if _, err := os.Stat(server); err != nil {
		return "", fmt.Errorf("no server to test: %w", err)
	}
	bin, err := os.MkdirTemp("", binPrefix)
	if err != nil {
		return "", err
	}
	for name, target := range map[string]string{
		"etcd": server, "etcdctl": filepath.Join(genuine, "etcdctl"), "etcdutl": filepath.Join(genuine, "etcdutl"),
	} {
		if err := os.Symlink(target, filepath.Join(bin, name)); err != nil {
			return "", err
		}
	}
	return bin, nil
}

// moduleFolder is the folder of this module's go.mod.
func moduleFolder() (string, error) {
	output, err := exec.Command("go", "env", "GOMOD").Output()
	if err != nil {
		return "", fmt.Errorf("go env GOMOD: %w", err)
	}
	folder := filepath.Dir(strings.TrimSpace(string(output)))
	if filepath.Base(folder) != "published" {
		return "", errors.New("run this inside conformance/published")
	}
	return folder, nil
}

// sourceTag names what was built: a changed module, compiler or adaptation
// builds anew.
func sourceTag(module string) (string, error) {
	hash := sha256.New()
	fmt.Fprintln(hash, runtime.Version())
	for _, name := range []string{"go.mod", "go.sum", "adapt.go", "build.go"} {
		content, err := os.ReadFile(filepath.Join(module, name))
		if err != nil {
			return "", err
		}
		hash.Write(content)
	}
	return fmt.Sprintf("%x", hash.Sum(nil)[:8]), nil
}

func command(dir, name string, args ...string) error {
	run := exec.Command(name, args...)
	run.Dir = dir
	if output, err := run.CombinedOutput(); err != nil {
		return fmt.Errorf("%s %s: %w\n%s", name, strings.Join(args, " "), err, output)
	}
	return nil
}
