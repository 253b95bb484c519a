package main

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
)

const (
	suitesModule = "go.etcd.io/etcd/tests/v3"
	binPrefix    = "published-bin-"
)

// tools is what a run needs: the folder with `etcd`, `etcdctl` and `etcdutl`,
// the one with the test binaries, and the one with the published sources.
type tools struct {
	bin, suites, sources string
	// genuine is true when `etcd` is the genuine server.
	genuine bool
	// ours is true when `etcdctl` and `etcdutl` are not the genuine ones.
	ours bool
	// proxied is true when the suites put a gRPC proxy before each member.
	proxied bool
}

// remove removes what only this run needed.
func (t tools) remove() {
	if strings.HasPrefix(filepath.Base(t.bin), binPrefix) {
		os.RemoveAll(t.bin)
	}
}

// build builds the genuine tools and the suites, unless the cache has them,
// and links the server beside the tools under the name `etcd`. The suites come
// with a gRPC proxy before each member if `proxied`.
func build(cache, server, ctl string, patient, proxied bool) (tools, error) {
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
	genuine, binaries, tags := filepath.Join(root, "genuine"), filepath.Join(root, "suites"), "e2e"
	if proxied {
		binaries, tags = filepath.Join(root, "suites-proxied"), "e2e,cluster_proxy"
	}
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
	if err := once(binaries, func(to string) error { return buildSuites(module, to, tags) }); err != nil {
		return tools{}, err
	}
	sources, err := suitesFolder(module)
	if err != nil {
		return tools{}, err
	}
	bin, err := binFolder(genuine, server, ctl)
	if err == nil && patient && bin != genuine {
		err = makePatient(bin)
	}
	return tools{bin: bin, suites: binaries, sources: sources, genuine: server == "", ours: ctl != "", proxied: proxied}, err
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

// buildSuites builds one test binary per suite, from the sources as they are
// published, with these build tags. The robustness suite knows no proxy.
func buildSuites(module, to, tags string) error {
	if err := os.Mkdir(to, 0o700); err != nil {
		return err
	}
	all := slices.Clone(suites)
	if tags == "e2e" {
		all = append(all, robustness)
	}
	for _, suite := range all {
		err := command(module, "go", "test", "-c", "-tags="+tags, "-o", filepath.Join(to, suite.name+".test"), suitesModule+"/"+suite.name)
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

// binFolder is a new folder with the programs under the names that the suites
// look for: Cairn does what its name says. Those not given are the genuine ones.
func binFolder(genuine, server, ctl string) (string, error) {
	if server == "" && ctl == "" {
		return genuine, nil
	}
	targets := map[string]string{}
	for name, binary := range map[string]string{"etcd": server, "etcdctl": ctl, "etcdutl": ctl} {
		if binary == "" {
			targets[name] = filepath.Join(genuine, name)
			continue
		}
		path, err := filepath.Abs(binary)
		if err != nil {
			return "", err
		}
		if _, err := os.Stat(path); err != nil {
			return "", fmt.Errorf("no binary to test: %w", err)
		}
		targets[name] = path
	}
	bin, err := os.MkdirTemp("", binPrefix)
	if err != nil {
		return "", err
	}
	for name, target := range targets {
		if err := os.Symlink(target, filepath.Join(bin, name)); err != nil {
			return "", err
		}
	}
	return bin, nil
}

// makePatient puts a script in the place of the server, which lets it wait for
// silent peers. The suites blackhole one direction of a member's traffic until
// it is behind by more than the log holds. Ours closes a stream on which
// nothing came for five seconds, the other side then posts its answers, and the
// member stays level for good. etcd writes into the black hole as long as it is
// there, and so does ours with this flag.
func makePatient(bin string) error {
	server := filepath.Join(bin, "server")
	if err := os.Mkdir(server, 0o700); err != nil {
		return err
	}
	// The server looks at the name that it is started under.
	if err := os.Rename(filepath.Join(bin, "etcd"), filepath.Join(server, "etcd")); err != nil {
		return err
	}
	script := "#!/bin/sh\nexec \"${0%/*}/server/etcd\" --raft-read-timeout=10m \"$@\"\n"
	return os.WriteFile(filepath.Join(bin, "etcd"), []byte(script), 0o700)
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

// sourceTag names what was built: a changed module or compiler builds anew.
func sourceTag(module string) (string, error) {
	hash := sha256.New()
	fmt.Fprintln(hash, runtime.Version())
	for _, name := range []string{"go.mod", "go.sum", "build.go"} {
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
