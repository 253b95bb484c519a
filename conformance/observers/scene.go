package observers

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"cairn.dev/conformance/harness"
)

// levelMax is how long an observer may take to have what was written.
const levelMax = 2 * time.Minute

// prepare is an observer on a directory of its own that follows the servers,
// not started yet.
func prepare(t testing.TB, name string, sources ...*harness.Server) *harness.Server {
	t.Helper()
	observer := harness.Prepare(t, harness.Subject(), filepath.Join(t.TempDir(), "data"))
	observer.Name, observer.Discovered = name, true
	follow(observer, sources...)
	return observer
}

// follow sets what an observer follows from its next start on, and further
// flags of all observers.
func follow(observer *harness.Server, sources ...*harness.Server) {
	var urls []string
	for _, source := range sources {
		urls = append(urls, source.PeerURL())
	}
	observer.SetFlags("--observer", "--follow="+strings.Join(urls, ","))
}

// start starts an observer and waits until it is ready.
func start(t testing.TB, name string, sources ...*harness.Server) *harness.Server {
	t.Helper()
	observer := prepare(t, name, sources...)
	observer.Run()
	return observer
}

// page is what a server answers over HTTP, with its status.
func page(t testing.TB, server *harness.Server, path string) (int, string) {
	t.Helper()
	response, err := http.Get(server.URL(path))
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(body)
}

// until waits until something is so.
func until(t testing.TB, what string, isSo func() bool) {
	t.Helper()
	for deadline := time.Now().Add(levelMax); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		if isSo() {
			return
		}
	}
	t.Fatalf("waited in vain for %s", what)
}

// shows waits until a page has this status and a text, or lacks that.
func shows(t testing.TB, server *harness.Server, path string, status int, isThere bool, text string) {
	t.Helper()
	code, found := 0, ""
	for deadline := time.Now().Add(levelMax); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		if code, found = page(t, server, path); code == status && strings.Contains(found, text) == isThere {
			return
		}
	}
	t.Errorf("%s of %s: %d, %q there: %v", path, server.Name, code, text, strings.Contains(found, text))
}

// listed waits until `cairn ctl observers` of a server says all of the texts.
func listed(t testing.TB, server *harness.Server, texts []string, flags ...string) {
	t.Helper()
	args := append([]string{"ctl", harness.CtlPatience, "--endpoints=" + server.Endpoint(), "observers"}, flags...)
	list := harness.Command{Path: harness.CairnBinary(t), Args: args}
	var result harness.Result
	for deadline := time.Now().Add(levelMax); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		result = list.Run(t)
		if result.Code == 0 && !slices.ContainsFunc(texts, func(text string) bool { return !strings.Contains("\n"+result.Stdout, text) }) {
			return
		}
	}
	t.Errorf("the observers: %+v, wanted %q", result, texts)
}

// hashes compares the whole history of the servers at one revision.
func hashes(t testing.TB, servers ...*harness.Server) {
	t.Helper()
	var first *clientv3.HashKVResponse
	for number, server := range servers {
		client := server.Client()
		// A linearizable read makes a server level with the last write.
		read, err := client.Get(harness.Context(t), "level")
		if err != nil {
			t.Fatalf("%s: %v\n%s", server.Name, err, server.LogTail())
		}
		revision := int64(0)
		if first != nil {
			revision = first.HashRevision
		} else {
			revision = read.Header.Revision
		}
		answer, err := client.HashKV(harness.Context(t), server.Endpoint(), revision)
		if err != nil {
			t.Fatalf("%s: %v", server.Name, err)
		}
		if number == 0 {
			first = (*clientv3.HashKVResponse)(answer)
		} else if answer.Hash != first.Hash || answer.HashRevision != first.HashRevision || answer.CompactRevision != first.CompactRevision {
			t.Errorf("%s has the hash %x at revision %d (compacted to %d), %s has %x at %d (compacted to %d)",
				server.Name, answer.Hash, answer.HashRevision, answer.CompactRevision,
				servers[0].Name, first.Hash, first.HashRevision, first.CompactRevision)
		}
	}
}

// put writes keys through a client and returns the last revision.
func put(t testing.TB, client *clientv3.Client, prefix string, count int, value string) int64 {
	t.Helper()
	var last int64
	for number := range count {
		answer, err := client.Put(harness.Context(t), fmt.Sprintf("%s/%05d", prefix, number), value)
		if err != nil {
			t.Fatal(err)
		}
		last = answer.Header.Revision
	}
	return last
}

// briefly is the context of a call that is expected to fail.
func briefly(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	t.Cleanup(cancel)
	return ctx
}
