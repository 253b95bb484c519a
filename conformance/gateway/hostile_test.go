package gateway

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"cairn.dev/conformance/harness"
)

// resident is the memory of the server without the files that it has mapped, in MiB.
func resident(t *testing.T, server *harness.Server) int {
	t.Helper()
	return harness.AnonymousBytes(t, server.Pid()) >> 20
}

// zeros is a body without end.
type zeros struct{ left int }

func (z *zeros) Read(to []byte) (int, error) {
	if z.left == 0 {
		return 0, io.EOF
	}
	count := min(len(to), z.left)
	for place := range to[:count] {
		to[place] = ' '
	}
	z.left -= count
	return count, nil
}

// What a hostile client sends or does not read costs a bounded piece of memory,
// and others are served meanwhile.
func TestHostile(t *testing.T) {
	if harness.Subject() == harness.Etcd {
		t.Skip("the bounds are ours")
	}
	subject := harness.Start(t, harness.Subject())
	before := resident(t, subject)
	steps := []struct {
		name string
		grow int
		do   func(t *testing.T)
	}{
		{"a body of a gigabyte", 64, func(t *testing.T) {
			for name, client := range transports() {
				request, _ := http.NewRequestWithContext(harness.Context(t), "POST", subject.URL("/v3/kv/range"), &zeros{left: 1 << 30})
				response, err := client.Do(request)
				if err != nil {
					// Closed while it was sending.
					continue
				}
				response.Body.Close()
				if response.StatusCode != 413 {
					t.Errorf("%s: %d", name, response.StatusCode)
				}
			}
		}},
		{"nested a million times", 64, func(t *testing.T) {
			for name, client := range transports() {
				for _, open := range []string{"[", `{"success":[{"requestTxn":`} {
					got := ask(t, client, subject, post("/v3/kv/txn", strings.Repeat(open, 3_000_000/len(open))))
					if got.status != 400 || !strings.Contains(fmt.Sprint(got.body), "exceeded max depth") {
						t.Errorf("%s: %+v", name, got)
					}
				}
			}
		}},
		{"headers of a megabyte", 64, func(t *testing.T) {
			connection, err := net.Dial("tcp", subject.Endpoint())
			if err != nil {
				t.Fatal(err)
			}
			defer connection.Close()
			connection.SetDeadline(time.Now().Add(10 * time.Second))
			go fmt.Fprintf(connection, "GET /health HTTP/1.1\r\nHost: x\r\nX: %s\r\n\r\n", strings.Repeat("x", 1<<20))
			head := make([]byte, 64)
			if count, err := connection.Read(head); err == nil && !bytes.Contains(head[:count], []byte("431")) {
				t.Errorf("%s", head[:count])
			}
		}},
		{"answers that nobody reads", 384, func(t *testing.T) {
			var connections []net.Conn
			for range 50 {
				connection, err := net.Dial("tcp", subject.Endpoint())
				if err != nil {
					t.Fatal(err)
				}
				defer connection.Close()
				connections = append(connections, connection)
				body := `{"create_request":{"key":"Zm9v"}}`
				fmt.Fprintf(connection, "POST /v3/watch HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
			}
			client := transports()["HTTP/2"]
			value := b64(strings.Repeat("x", 1<<20))
			for range 32 {
				ask(t, client, subject, post("/v3/kv/put", `{"key":"Zm9v","value":"`+value+`"}`))
			}
			for range 50 {
				fmt.Fprintf(connections[0], "x")
			}
		}},
		{"values that never end", 384, func(t *testing.T) {
			for _, client := range transports() {
				for range 200 {
					body, writer := io.Pipe()
					request, _ := http.NewRequestWithContext(harness.Context(t), "POST", subject.URL("/v3/watch"), body)
					go client.Do(request)
					go func() {
						io.WriteString(writer, `{"x":"`)
						io.Copy(writer, &zeros{left: 4_000_000})
					}()
					t.Cleanup(func() { writer.Close() })
				}
			}
			time.Sleep(3 * time.Second)
		}},
	}
	for _, step := range steps {
		t.Run(step.name, func(t *testing.T) {
			step.do(t)
			// What stays counts; the allocator gives back what is freed when it comes to it.
			now := resident(t, subject)
			for deadline := time.Now().Add(10 * time.Second); now > before+step.grow && time.Now().Before(deadline); {
				time.Sleep(100 * time.Millisecond)
				now = resident(t, subject)
			}
			if now > before+step.grow {
				t.Errorf("%d MiB, %d before", now, before)
			} else {
				t.Logf("%d MiB, %d before", now, before)
			}
			subject.MustCtl("put", "alive", "yes")
		})
	}
}
