package tls

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"cairn.dev/conformance/harness"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

// patience is what a client that is let in may need, on a busy machine.
const patience = time.Minute

// refusal is how long a client tries that is not let in.
const refusal = 1500 * time.Millisecond

// prepare is a server that listens for clients at https, not started yet.
func prepare(t testing.TB, kind harness.Kind, flags ...string) *harness.Server {
	t.Helper()
	server := harness.Prepare(t, kind, filepath.Join(t.TempDir(), "data"))
	server.Bare = true
	client, peer := "https://"+server.Endpoint(), server.PeerURL()
	server.SetFlags(append([]string{
		"--name=default", "--data-dir=" + server.DataDir, "--initial-cluster=default=" + peer,
		"--listen-client-urls=" + client, "--advertise-client-urls=" + client,
		"--listen-peer-urls=" + peer, "--initial-advertise-peer-urls=" + peer,
	}, flags...)...)
	return server
}

func start(t testing.TB, kind harness.Kind, flags ...string) *harness.Server {
	t.Helper()
	server := prepare(t, kind, flags...)
	server.Run()
	return server
}

// both runs a test against the genuine server and the one under test.
func both(t *testing.T, test func(t *testing.T, kind harness.Kind)) {
	t.Parallel()
	for _, kind := range []harness.Kind{harness.Etcd, harness.Cairn} {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			test(t, kind)
		})
	}
}

// put writes and reads a key over a connection of its own.
func put(endpoint string, config *tls.Config, limit time.Duration) error {
	context, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	client, err := clientv3.New(clientv3.Config{
		Endpoints: []string{endpoint}, TLS: config, Context: context, Logger: zap.NewNop(),
	})
	if err != nil {
		return err
	}
	defer client.Close()
	if _, err := client.Put(context, "key", "value"); err != nil {
		return err
	}
	got, err := client.Get(context, "key")
	if err != nil {
		return err
	}
	if len(got.Kvs) != 1 || string(got.Kvs[0].Value) != "value" {
		return fmt.Errorf("unexpected answer: %v", got)
	}
	return nil
}

// get asks for a page over a connection of its own: its status and text.
func get(url string, config *tls.Config) (int, string, error) {
	transport := &http.Transport{TLSClientConfig: config.Clone(), DisableKeepAlives: true}
	client := &http.Client{Transport: transport, Timeout: patience}
	response, err := client.Get(url)
	if err != nil {
		return 0, "", err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	return response.StatusCode, string(text), err
}

// admits fails the test unless the client is let in, by gRPC and HTTP.
func admits(t *testing.T, server *harness.Server, config *tls.Config) {
	t.Helper()
	if err := put("https://"+server.Endpoint(), config, patience); err != nil {
		t.Fatalf("a client is kept out: %v\n%s", err, server.LogTail())
	}
	if status, text, err := get("https://"+server.Endpoint()+"/health", config); err != nil || status != http.StatusOK {
		t.Fatalf("a client is kept out of HTTP: %d %q %v\n%s", status, text, err, server.LogTail())
	}
}

// refuses fails the test if the client is let in, by gRPC or HTTP.
func refuses(t *testing.T, server *harness.Server, config *tls.Config) {
	t.Helper()
	if err := put("https://"+server.Endpoint(), config, refusal); err == nil {
		t.Fatal("a client is let in")
	}
	if status, _, err := get("https://"+server.Endpoint()+"/health", config); err == nil {
		t.Fatalf("a client is let in by HTTP: %d", status)
	}
}

// logs waits until the log has a text.
func logs(t *testing.T, server *harness.Server, text string) {
	t.Helper()
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		if strings.Contains(server.Log(), text) {
			return
		}
	}
	t.Fatalf("the log lacks %q\n%s", text, server.LogTail())
}

// handshake shakes hands with the server, and waits until it has had the
// chance to refuse: what it has to say comes after the handshake.
func handshake(endpoint string, config *tls.Config) (tls.ConnectionState, error) {
	dialer := &tls.Dialer{Config: config}
	context, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	connection, err := dialer.DialContext(context, "tcp", endpoint)
	if err != nil {
		return tls.ConnectionState{}, err
	}
	defer connection.Close()
	fmt.Fprintf(connection, "GET /version HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n", endpoint)
	connection.SetDeadline(time.Now().Add(patience))
	answer, err := io.ReadAll(connection)
	if err == nil && !strings.HasPrefix(string(answer), "HTTP/1.1 200") {
		err = errors.New("closed without an answer")
	}
	return connection.(*tls.Conn).ConnectionState(), err
}
