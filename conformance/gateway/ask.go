package gateway

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"strings"
	"testing"
	"time"

	"cairn.dev/conformance/harness"
)

// question is one HTTP request.
type question struct {
	verb, path, body string
	headers          map[string]string
}

// answer is what a client sees of the response.
type answer struct {
	status  int
	headers map[string]string
	// body is parsed JSON, a line each, or text.
	body any
}

// headersCompared are the ones that clients act on.
var headersCompared = []string{
	"Content-Type", "Grpc-Metadata-Content-Type", "Access-Control-Allow-Headers", "Access-Control-Allow-Methods",
	"Access-Control-Allow-Origin", "Allow", "Location", "Www-Authenticate", "X-Content-Type-Options", "Content-Encoding",
}

// masked are fields that belong to a server.
var masked = map[string]bool{
	"cluster_id": true, "member_id": true, "raft_term": true, "dbSize": true, "dbSizeInUse": true, "raftIndex": true,
	"raftAppliedIndex": true, "raftTerm": true, "leader": true, "token": true, "peerURLs": true, "clientURLs": true,
	"memberID": true, "blob": true, "remaining_bytes": true,
}

// transports are the ways to ask.
func transports() map[string]*http.Client {
	clients := map[string]*http.Client{}
	for _, version := range []string{"HTTP/1.1", "HTTP/2"} {
		protocols := new(http.Protocols)
		protocols.SetHTTP1(version == "HTTP/1.1")
		protocols.SetUnencryptedHTTP2(version == "HTTP/2")
		clients[version] = &http.Client{
			Transport: &http.Transport{Protocols: protocols, DisableCompression: true},
			// Redirects are answers too.
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
			Timeout:       time.Minute,
		}
	}
	return clients
}

// plain asks over HTTP/1.1.
var plain = transports()["HTTP/1.1"]

func ask(t *testing.T, client *http.Client, server *harness.Server, q question) answer {
	t.Helper()
	request, err := http.NewRequestWithContext(harness.Context(t), q.verb, server.URL(q.path), strings.NewReader(q.body))
	if err != nil {
		t.Fatal(err)
	}
	for name, value := range q.headers {
		if name == "Host" {
			request.Host = value
		}
		request.Header.Set(name, value)
	}
	if server.Kind == harness.Etcd && client.Transport.(*http.Transport).Protocols.UnencryptedHTTP2() {
		// Without TLS the genuine server takes all of HTTP/2 for gRPC.
		client = plain
	}
	response, err := client.Do(request)
	if err != nil {
		t.Fatalf("%s: %v", q, err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatalf("%s: %v", q, err)
	}
	found := answer{status: response.StatusCode, headers: map[string]string{}, body: string(body)}
	for _, name := range headersCompared {
		if value := response.Header.Get(name); value != "" {
			found.headers[name] = value
		}
	}
	if strings.HasPrefix(found.headers["Content-Type"], "application/json") {
		found.body = parse(t, plainBlanks(string(body)))
	}
	return found
}

// plainBlanks undoes what Go's protobuf chooses anew for every build: the
// blank behind "proto:".
func plainBlanks(text string) string {
	return strings.ReplaceAll(text, "\u00a0", " ")
}

// parse reads the JSON values of a body and masks them.
func parse(t *testing.T, body string) any {
	t.Helper()
	var values []any
	decoder := json.NewDecoder(strings.NewReader(body))
	decoder.UseNumber()
	for decoder.More() {
		var value any
		if err := decoder.Decode(&value); err != nil {
			t.Fatalf("no JSON: %v: %q", err, body)
		}
		values = append(values, mask(value))
	}
	return values
}

func mask(value any) any {
	switch value := value.(type) {
	case map[string]any:
		for key, inner := range value {
			if _, text := inner.(string); masked[key] && text || key == "peerURLs" || key == "clientURLs" {
				value[key] = "masked"
			} else {
				value[key] = mask(inner)
			}
		}
	case []any:
		for place, inner := range value {
			value[place] = mask(inner)
		}
	}
	return value
}

func (q question) String() string {
	body := q.body
	if len(body) > 200 {
		body = body[:200] + "..."
	}
	return fmt.Sprintf("%s %s %s %v", q.verb, q.path, body, q.headers)
}

// compare asks both servers the questions, in order.
func compare(t *testing.T, client *http.Client, etcd, subject *harness.Server, questions ...question) {
	t.Helper()
	for _, q := range questions {
		want, got := ask(t, client, etcd, q), ask(t, client, subject, q)
		if !reflect.DeepEqual(want, got) {
			t.Errorf("%s:\n- %+v\n+ %+v", q, want, got)
		}
	}
}

func post(path, body string) question { return question{verb: "POST", path: path, body: body} }

// askRaw posts JSON and returns the values of the answer, unmasked.
func askRaw(t *testing.T, server *harness.Server, path, body string) []map[string]any {
	t.Helper()
	response, err := plain.Post(server.URL(path), "application/json", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	var values []map[string]any
	for decoder := json.NewDecoder(response.Body); decoder.More(); {
		var value map[string]any
		if err := decoder.Decode(&value); err != nil {
			t.Fatal(err)
		}
		values = append(values, value)
	}
	return values
}
