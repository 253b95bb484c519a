package peer

import (
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"cairn.dev/conformance/harness"
)

// Anything may reach an open port.
func TestGarbage(t *testing.T) {
	server := harness.Start(t, harness.Subject())
	random := rand.New(rand.NewPCG(harness.Seed(t), 1))
	noise := func(length int) string {
		bytes := make([]byte, length)
		for i := range bytes {
			bytes[i] = byte(random.Uint32())
		}
		return string(bytes)
	}
	cluster := clusterID(t, server)
	unharmed(t, server, func() {
		var texts []string
		for range 50 {
			texts = append(texts, noise(1+random.IntN(4096))+"\r\n\r\n")
		}
		for _, text := range []string{
			"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + noise(500) + "\r\n\r\n",
			"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
			request("GET", "/raft/stream/msgapp/"+noise(20), cluster),
			request("GET", "/raft/stream/message/zzzz", cluster),
			request("GET", "/raft/stream/message/"+strings.Repeat("f", 60_000), cluster),
			request("POST", "/raft", cluster, "Content-Length: -1"),
			request("POST", "/raft", cluster, "Transfer-Encoding: chunked") + "ffffffffffffffff\r\n" + noise(1000),
			request("POST", "/raft", cluster, "Transfer-Encoding: chunked") + "zz\r\n",
			request("DELETE", "/raft", cluster),
			request("POST", "/leases", cluster, "Content-Length: 4") + noise(4),
			request("POST", "/leases/internal", cluster, "Content-Length: 4") + noise(4),
			request("POST", "/members/promote/nonsense", cluster, "Content-Length: 0"),
		} {
			if response := send(t, server, text, nil); response != nil && response.StatusCode < 300 {
				t.Errorf("%.60q is answered %s", text, response.Status)
			}
		}
		for range 200 {
			message := noise(1 + random.IntN(200))
			head := request("POST", "/raft", cluster, "Content-Type: application/protobuf", "Content-Length: "+strconv.Itoa(len(message)))
			texts = append(texts, head+message)
		}
		var sending sync.WaitGroup
		for sender := range 16 {
			sending.Go(func() {
				for number := sender; number < len(texts); number += 16 {
					send(t, server, texts[number], nil)
				}
			})
		}
		sending.Wait()
	})
}

// A head without an end, and connections that say nothing.
func TestEndlessHead(t *testing.T) {
	server := harness.Start(t, harness.Subject())
	unharmed(t, server, func() {
		for range 20 {
			send(t, server, "GET /raft/probing HTTP/1.1\r\n", func(conn net.Conn) {
				line := []byte("X-More: " + strings.Repeat("m", 1<<16) + "\r\n")
				for range 256 {
					if _, err := conn.Write(line); err != nil {
						return
					}
				}
			})
		}
	})
}

// Lengths of 10 GB: in the head, before a message, and before a snapshot.
func TestPostedLengths(t *testing.T) {
	aboutCairn(t)
	server := harness.Start(t, harness.Subject())
	cluster := clusterID(t, server)
	huge := strconv.FormatUint(hugeBytes, 10)
	pour := func(conn net.Conn) {
		conn.SetWriteDeadline(time.Now().Add(5 * time.Second))
		block := make([]byte, 1<<20)
		for range 512 {
			if _, err := conn.Write(block); err != nil {
				return
			}
		}
		conn.(*net.TCPConn).CloseWrite()
	}
	unharmed(t, server, func() {
		for _, path := range []string{"/raft", "/raft/snapshot", "/cairn/snapshot", "/leases", "/leases/internal", "/members/promote/1"} {
			text := request("POST", path, cluster, "Content-Type: application/octet-stream", "Content-Length: "+huge)
			for _, body := range []string{"", string(lengthWord(hugeBytes)), string(lengthWord(1 << 63)), string(lengthWord(512 << 20))} {
				response := send(t, server, text+body, pour)
				if response != nil && response.StatusCode < 400 {
					t.Errorf("POST %s of 10 GB is answered %s", path, response.Status)
				}
			}
		}
	})
}

// Whoever speaks for another cluster is told so, in the words that peers
// compare.
func TestWrongClusterID(t *testing.T) {
	server := harness.Start(t, harness.Subject())
	unharmed(t, server, func() {
		for _, text := range []string{
			request("POST", "/raft", "1234abcd", "Content-Length: 0"),
			request("GET", "/raft/stream/msgapp/1234", "1234abcd", "X-Raft-To: 1"),
			request("POST", "/raft/snapshot", "1234abcd", "Content-Length: 0"),
		} {
			response := send(t, server, text, nil)
			// A busy machine may take longer than the connection lasts.
			for range 5 {
				if response == nil {
					response = send(t, server, text, nil)
				}
			}
			if response == nil {
				t.Errorf("%.40q is not answered", text)
				continue
			}
			body, _ := io.ReadAll(response.Body)
			if response.StatusCode != http.StatusPreconditionFailed || strings.TrimSpace(string(body)) != "cluster ID mismatch" {
				t.Errorf("%.40q is answered %s, %q", text, response.Status, body)
			}
		}
	})
}
