// Package peer holds the black-box tests of the peer port: what another
// cluster, a non-member or a broken peer may send must be refused in words,
// within bounded memory, and touch nothing.
package peer

import (
	"bufio"
	"encoding/binary"
	"net"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"cairn.dev/conformance/harness"
)

const (
	// hugeBytes is the length that a broken peer announces.
	hugeBytes = 10 << 30
	// growthMax is what bad input may cost in memory.
	growthMax = 96 << 20
	waitMax   = 10 * time.Second
	startMax  = 60 * time.Second
)

// aboutCairn skips what the genuine server does not withstand.
func aboutCairn(t *testing.T) {
	t.Helper()
	if harness.Subject() == harness.Etcd {
		t.Skip("about Cairn only: the genuine server takes the announced length at its word")
	}
}

// unharmed checks that a server still serves and has not grown, and then
// what a function did to it.
func unharmed(t *testing.T, server *harness.Server, harm func()) {
	t.Helper()
	server.MustCtl("put", "before", "harm")
	before := harness.AnonymousBytes(t, server.Pid())
	harm()
	if grown := harness.AnonymousBytes(t, server.Pid()) - before; grown > growthMax {
		t.Errorf("the server has grown by %d MB", grown>>20)
	}
	if got := server.MustCtl("get", "before", "--print-value-only"); got != "harm\n" {
		t.Errorf("the key is %q", got)
	}
	if strings.Contains(server.Log(), "panicked at") {
		t.Errorf("a thread panicked:\n%s", server.LogTail())
	}
}

// clusterID is what the server calls its cluster, in hexadecimal, as peers
// write it.
func clusterID(t *testing.T, server *harness.Server) string {
	t.Helper()
	response, err := http.Get(server.PeerURL() + "/raft/probing")
	if err != nil {
		t.Fatal(err)
	}
	response.Body.Close()
	status, err := server.Client().Status(harness.Context(t), server.Endpoint())
	if err != nil {
		t.Fatal(err)
	}
	return strconv.FormatUint(status.Header.ClusterId, 16)
}

// request is the head of a peer's request, with headers of a sound peer.
func request(method, path, cluster string, headers ...string) string {
	head := []string{
		method + " " + path + " HTTP/1.1", "Host: peer", "X-Server-From: 1234", "X-Server-Version: 3.7.3",
		"X-Min-Cluster-Version: 3.0.0", "X-Etcd-Cluster-ID: " + cluster,
	}
	return strings.Join(append(head, headers...), "\r\n") + "\r\n\r\n"
}

// send opens a connection to the peer port, sends the bytes and returns the
// answer; nil if the server hung up instead.
func send(t *testing.T, server *harness.Server, text string, more func(net.Conn)) *http.Response {
	t.Helper()
	conn, err := net.Dial("tcp", net.JoinHostPort(server.Host, strconv.Itoa(server.PeerPort)))
	if err != nil {
		t.Error(err)
		return nil
	}
	t.Cleanup(func() { conn.Close() })
	conn.SetDeadline(time.Now().Add(waitMax))
	conn.Write([]byte(text))
	if more != nil {
		more(conn)
	}
	response, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return nil
	}
	return response
}

// lengthWord is the length that precedes a message.
func lengthWord(length uint64) []byte { return binary.BigEndian.AppendUint64(nil, length) }
