package cluster

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"cairn.dev/conformance/harness"
	bolt "go.etcd.io/bbolt"
)

// damage is what happens to an image on its way.
type damage struct {
	// what it is.
	what string
	// says is what the receiver's log must say of it.
	says string
	// change returns the body that arrives in place of this one.
	change func(body io.Reader) io.Reader
}

// tamper stands before the peer port of a member, and damages the images that
// are sent to it: each the next one of a list, and those after it are let through.
type tamper struct {
	t       testing.TB
	address string

	mutex sync.Mutex
	list  []damage
}

// startTamper begins to pass on what comes for a server.
func startTamper(t testing.TB, server *harness.Server) *tamper {
	t.Helper()
	target, err := url.Parse(server.PeerURL())
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", harness.Port(t)))
	if err != nil {
		t.Fatal(err)
	}
	tamper := &tamper{t: t, address: "http://" + listener.Addr().String()}
	proxy := httputil.NewSingleHostReverseProxy(target)
	// Streams never end: every message is to be passed on at once.
	proxy.FlushInterval = -1
	proxy.ErrorHandler = func(w http.ResponseWriter, _ *http.Request, _ error) { w.WriteHeader(http.StatusBadGateway) }
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/raft/snapshot" {
			tamper.change(r)
		}
		proxy.ServeHTTP(w, r)
	})
	// A connection that breaks is what is wanted.
	quiet := log.New(io.Discard, "", 0)
	proxy.ErrorLog = quiet
	served := &http.Server{Handler: handler, ErrorLog: quiet}
	go served.Serve(listener)
	t.Cleanup(func() { served.Close() })
	return tamper
}

func (p *tamper) change(r *http.Request) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	if len(p.list) == 0 {
		return
	}
	next := p.list[0]
	p.list = p.list[1:]
	r.Body = io.NopCloser(next.change(r.Body))
	r.ContentLength = -1
}

// await sets what happens to the next images.
func (p *tamper) await(list ...damage) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	p.list = list
}

// sent waits until all of these images have been sent.
func (p *tamper) sent() {
	p.t.Helper()
	left := func() int {
		p.mutex.Lock()
		defer p.mutex.Unlock()
		return len(p.list)
	}
	for deadline := time.Now().Add(60 * time.Second); left() > 0; time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			p.t.Fatalf("%d images were not sent", left())
		}
	}
}

// failing ends with an error.
type failing struct{}

func (failing) Read([]byte) (int, error) { return 0, errors.New("the connection broke") }

// whole changes a body that is read whole before: its image, after the message.
func whole(t testing.TB, change func(image []byte) []byte) func(io.Reader) io.Reader {
	return announced(t, func(_, image []byte) []byte { return change(image) })
}

// announced is whole for a change that looks at the leader's message.
func announced(t testing.TB, change func(message, image []byte) []byte) func(io.Reader) io.Reader {
	return func(body io.Reader) io.Reader {
		all, err := io.ReadAll(body)
		if err != nil || len(all) < 8 {
			return failing{}
		}
		head := 8 + int(binary.BigEndian.Uint64(all))
		if len(all) < head {
			t.Errorf("a body of %d bytes, with a message to byte %d", len(all), head)
			return failing{}
		}
		return io.MultiReader(bytes.NewReader(all[:head]), bytes.NewReader(change(all[8:head], bytes.Clone(all[head:]))))
	}
}

// inBolt changes what is in the buckets of an image.
func inBolt(t testing.TB, change func(*bolt.Tx) error) func(io.Reader) io.Reader {
	return whole(t, func(image []byte) []byte { return changed(t, image, change) })
}

// changed is a database after a change.
func changed(t testing.TB, image []byte, change func(*bolt.Tx) error) []byte {
	path := filepath.Join(t.TempDir(), "db")
	if err := os.WriteFile(path, image, 0o600); err != nil {
		t.Error(err)
	}
	db, err := bolt.Open(path, 0o600, nil)
	if err == nil {
		err = errors.Join(db.Update(change), db.Close())
	}
	if err != nil {
		t.Error(err)
	}
	image, err = os.ReadFile(path)
	if err != nil {
		t.Error(err)
	}
	return image
}
