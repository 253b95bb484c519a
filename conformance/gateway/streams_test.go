package gateway

import (
	"bufio"
	"encoding/json"
	"io"
	"net/http"
	"reflect"
	"strings"
	"testing"
	"time"

	"cairn.dev/conformance/harness"
)

// dialogue is a call whose request is still open.
type dialogue struct {
	send  io.WriteCloser
	lines chan any
}

// open begins a call whose request goes on behind first.
func open(t *testing.T, client *http.Client, server *harness.Server, path, first string) dialogue {
	t.Helper()
	reader, writer := io.Pipe()
	call := begin(t, client, server, path, io.MultiReader(strings.NewReader(first), reader))
	call.send = writer
	t.Cleanup(func() { writer.Close() })
	return call
}

func begin(t *testing.T, client *http.Client, server *harness.Server, path string, body io.Reader) dialogue {
	t.Helper()
	request, err := http.NewRequestWithContext(harness.Context(t), "POST", server.URL(path), body)
	if err != nil {
		t.Fatal(err)
	}
	lines := make(chan any, 100)
	go func() {
		defer close(lines)
		response, err := client.Do(request)
		if err != nil {
			return
		}
		defer response.Body.Close()
		scanner := bufio.NewScanner(response.Body)
		scanner.Buffer(nil, 16<<20)
		for scanner.Scan() {
			var value any
			if err := json.Unmarshal(scanner.Bytes(), &value); err != nil {
				lines <- err.Error()
				return
			}
			lines <- mask(value)
		}
	}()
	return dialogue{lines: lines}
}

func (d dialogue) next(t *testing.T) any {
	t.Helper()
	select {
	case line, more := <-d.lines:
		if !more {
			return "the end"
		}
		return line
	case <-time.After(2 * time.Minute):
		t.Fatal("no answer")
		return nil
	}
}

// A watch by one POST.
func TestWatch(t *testing.T) {
	for name, client := range transports() {
		t.Run(name, func(t *testing.T) {
			etcd, subject := harness.StartPair(t)
			client.Timeout = 0
			var seen [2][]any
			for place, server := range []*harness.Server{etcd, subject} {
				client := client
				if server.Kind == harness.Etcd {
					client = &http.Client{Transport: plain.Transport}
				}
				create := `{"create_request":{"key":"Zm9v","range_end":"Zm9w","prev_kv":true}}`
				watch := begin(t, client, server, "/v3/watch", strings.NewReader(create))
				note := func() { seen[place] = append(seen[place], watch.next(t)) }
				note()
				ask(t, plain, server, post("/v3/kv/put", `{"key":"Zm9v","value":"YmFy"}`))
				note()
				ask(t, plain, server, post("/v3/kv/txn", `{"success":[{"request_put":{"key":"Zm9vMQ=="}},{"request_delete_range":{"key":"Zm9v"}}]}`))
				note()
			}
			if !reflect.DeepEqual(seen[0], seen[1]) {
				t.Errorf("- %+v\n+ %+v", seen[0], seen[1])
			}
		})
	}
}

// Cairn takes requests of an HTTP/1.1 client that goes on sending.
func TestOpenBodies(t *testing.T) {
	if harness.Subject() == harness.Etcd {
		t.Skip("Go's server reads no more of an HTTP/1.1 request once it has begun to answer")
	}
	for name, client := range transports() {
		t.Run(name, func(t *testing.T) {
			subject := harness.Start(t, harness.Subject())
			client.Timeout = 0
			ask(t, client, subject, post("/v3/lease/grant", `{"TTL":600,"ID":77}`))
			alive := open(t, client, subject, "/v3/lease/keepalive", `{"ID":77}`)
			for range 5 {
				line, _ := json.Marshal(alive.next(t))
				if !strings.Contains(string(line), `"TTL":"600"`) {
					t.Fatalf("%s", line)
				}
				io.WriteString(alive.send, `{"ID":"77"}`)
			}
			alive.send.Close()
			alive.next(t)
			if end := alive.next(t); end != "the end" {
				t.Errorf("%v behind the end", end)
			}
			watch := open(t, client, subject, "/v3/watch", `{"create_request":{"key":"Zm9v"}}`)
			watch.next(t)
			for request, want := range map[string]string{
				`{"create_request":{"key":"YQ==","watch_id":7}}`: `"watch_id":"7"`, `{"progress_request":{}}`: `"watch_id":"-1"`,
			} {
				io.WriteString(watch.send, request)
				if line, _ := json.Marshal(watch.next(t)); !strings.Contains(string(line), want) {
					t.Errorf("%s: %s", request, line)
				}
			}
		})
	}
}

// Streams that fail, or get nonsense.
func TestStreamMistakes(t *testing.T) {
	etcd, subject := harness.StartPair(t)
	for name, client := range transports() {
		t.Run(name, func(t *testing.T) {
			compare(t, client, etcd, subject, post("/v3/lease/keepalive", ``), post("/v3/lease/keepalive", `{"ID":5}`),
				post("/v3/lease/keepalive", `nonsense`), post("/v3/lease/keepalive", `{"ID":5}{"ID":true}{"ID":6}`),
				post("/v3/maintenance/snapshot", `{"key":`), post("/v3/election/observe", `[]`))
		})
	}
}

// The stream of a snapshot: blobs, and how much is left.
func TestSnapshot(t *testing.T) {
	etcd, subject := harness.StartPair(t)
	client := transports()["HTTP/1.1"]
	for _, server := range []*harness.Server{etcd, subject} {
		response, err := client.Post(server.URL("/v3/maintenance/snapshot"), "application/json", strings.NewReader("{}"))
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		scanner := bufio.NewScanner(response.Body)
		scanner.Buffer(nil, 16<<20)
		total := 0
		for scanner.Scan() {
			var line struct {
				Result struct {
					Blob           []byte
					RemainingBytes string `json:"remaining_bytes"`
					Version        string
				}
			}
			if err := json.Unmarshal(scanner.Bytes(), &line); err != nil || len(line.Result.Blob) == 0 {
				t.Fatalf("%s: %v: %.100s", server.Kind, err, scanner.Text())
			}
			total += len(line.Result.Blob)
		}
		if total%512 != 32 {
			t.Errorf("%s: %d bytes", server.Kind, total)
		}
	}
}
