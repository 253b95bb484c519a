package main

import (
	"crypto/sha256"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"
)

// lastRelease is where the suites look for the server of the release before.
const lastRelease = "etcd-last-release"

// addLastRelease builds the genuine server of the release before, unless the
// cache has it, and puts it beside the programs under the name that the suites
// look for. `server` is the one under test, the genuine one if empty.
func (t *tools) addLastRelease(server string) error {
	module, err := moduleFolder()
	if err != nil {
		return err
	}
	source := filepath.Join(module, "..", "earlier", "v3.6")
	hash := sha256.New()
	fmt.Fprintln(hash, runtime.Version())
	for _, name := range []string{"go.mod", "go.sum"} {
		content, err := os.ReadFile(filepath.Join(source, name))
		if err != nil {
			return err
		}
		hash.Write(content)
	}
	cache := filepath.Join(filepath.Dir(filepath.Dir(t.suites)), fmt.Sprintf("published-%s-%x", lastRelease, hash.Sum(nil)[:8]))
	if err := os.MkdirAll(cache, 0o700); err != nil {
		return err
	}
	unlock, err := lock(filepath.Join(cache, "lock"))
	if err != nil {
		return err
	}
	defer unlock()
	binary := filepath.Join(cache, "etcd")
	if err := once(binary, func(to string) error {
		return command(source, "go", "build", "-o", to, "go.etcd.io/etcd/server/v3")
	}); err != nil {
		return err
	}
	// Other runs share the folder of the genuine programs.
	if !strings.HasPrefix(filepath.Base(t.bin), binPrefix) {
		own, err := os.MkdirTemp("", binPrefix)
		if err != nil {
			return err
		}
		for _, name := range []string{"etcd", "etcdctl", "etcdutl"} {
			if err := os.Symlink(filepath.Join(t.bin, name), filepath.Join(own, name)); err != nil {
				return err
			}
		}
		t.bin = own
	}
	link := filepath.Join(t.bin, lastRelease)
	if server == "" {
		return os.Symlink(binary, link)
	}
	if server, err = filepath.Abs(server); err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	return os.WriteFile(link, []byte(fmt.Sprintf(moving, server, self, noFailpoints, binary)), 0o700)
}

// moving is the release before in the place of the server under test. The suites
// start each of the two on the files that the other one has left, which takes an
// export of ours on the way there. The way back is a variable.
const moving = `#!/bin/sh
for argument; do
	case $argument in --data-dir=*) dir=${argument#--data-dir=} ;; esac
done
# Where etcd has this folder, ours has a file, so that etcd does not start there.
if [ -n "$dir" ] && [ -f "$dir/member/snap" ]; then
	'%s' util export --data-dir "$dir" --to "$dir-exported" >&2 || exit 1
	rm -rf "$dir" && mv "$dir-exported" "$dir" || exit 1
fi
if [ -n "$GOFAIL_HTTP" ]; then
	'%s' %s "$GOFAIL_HTTP" </dev/null >/dev/null 2>&1 &
fi
exec '%s' "$@"
`

// noFailpoints makes this program answer in the place of a server, its parent,
// that was not built with failpoints. The robustness suite starts no cluster with
// a member that it cannot ask, and does without a failpoint that a member lacks.
const noFailpoints = "no-failpoints"

func answerNoFailpoints(address string) {
	parent := os.Getppid()
	var listener net.Listener
	for os.Getppid() == parent {
		var err error
		if listener, err = net.Listen("tcp", address); err == nil {
			go http.Serve(listener, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	for os.Getppid() == parent {
		time.Sleep(10 * time.Millisecond)
	}
}

// adopting makes the server take over the files that etcd has left.
const adopting = "ETCD_ADOPT_ETCD_DATA=true"
