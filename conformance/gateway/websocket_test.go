package gateway

import (
	"encoding/json"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

	"cairn.dev/conformance/harness"
	"golang.org/x/net/websocket"
)

// The ends of what a line's end does not divide.
var ends, begins = regexp.MustCompile(`[-+.\w]$`), regexp.MustCompile(`^[-+.\w]`)

func dial(t *testing.T, server *harness.Server, path string) *websocket.Conn {
	t.Helper()
	socket, err := websocket.Dial("ws://"+server.Endpoint()+path, "", "http://127.0.0.1/")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { socket.Close() })
	socket.SetDeadline(time.Now().Add(time.Minute))
	return socket
}

func say(t *testing.T, socket *websocket.Conn, text string) {
	t.Helper()
	if err := websocket.Message.Send(socket, text); err != nil {
		t.Fatal(err)
	}
}

func hear(t *testing.T, socket *websocket.Conn) any {
	t.Helper()
	var text string
	if err := websocket.Message.Receive(socket, &text); err != nil {
		t.Fatal(err)
	}
	var value any
	if err := json.Unmarshal([]byte(plainBlanks(text)), &value); err != nil {
		t.Fatalf("%v: %q", err, text)
	}
	return mask(value)
}

// A watch and keep-alives over a websocket.
func TestWebsocket(t *testing.T) {
	etcd, subject := harness.StartPair(t)
	client := transports()["HTTP/1.1"]
	var seen [2][]any
	for place, server := range []*harness.Server{etcd, subject} {
		ask(t, client, server, post("/v3/lease/grant", `{"TTL":600,"ID":77}`))
		watch := dial(t, server, "/v3/watch")
		note := func(value any) { seen[place] = append(seen[place], value) }
		say(t, watch, `{"create_request":{"key":"Zm9v"}}`)
		note(hear(t, watch))
		ask(t, client, server, post("/v3/kv/put", `{"key":"Zm9v","value":"YmFy"}`))
		note(hear(t, watch))
		say(t, watch, `{"create_request":{"key":"YQ==","watch_id":9}}`)
		note(hear(t, watch))
		say(t, watch, `{"cancel_request":{"watch_id":9}}`)
		note(hear(t, watch))
		alive := dial(t, server, "/v3/lease/keepalive")
		for _, id := range []string{"77", "78", "77"} {
			say(t, alive, `{"ID":`+id+`}`)
			note(hear(t, alive))
		}
	}
	if !reflect.DeepEqual(seen[0], seen[1]) {
		t.Errorf("- %+v\n+ %+v", seen[0], seen[1])
	}
}

// One message of 100 is as large as it may be, one of a gigabyte is not taken,
// and a client that breaks the protocol loses its connection and nothing else.
func TestWebsocketMistakes(t *testing.T) {
	if harness.Subject() == harness.Etcd {
		t.Skip("the bounds are ours")
	}
	subject := harness.Start(t, harness.Subject())
	put := dial(t, subject, "/v3/kv/put")
	say(t, put, `{"key":"Zm9v","value":"`+strings.Repeat("YWJj", 1<<16)+`"}`)
	if line, _ := json.Marshal(hear(t, put)); !strings.Contains(string(line), `"revision":"2"`) {
		t.Errorf("a put: %s", line)
	}
	wrong := dial(t, subject, "/v3/kv/put")
	say(t, wrong, `{"key":5}`)
	if line, _ := json.Marshal(hear(t, wrong)); !strings.Contains(string(line), `"code":3`) {
		t.Errorf("a wrong put: %s", line)
	}
	large := dial(t, subject, "/v3/watch")
	if err := websocket.Message.Send(large, strings.Repeat(" ", 8<<20)); err == nil {
		var text string
		if err := websocket.Message.Receive(large, &text); err == nil {
			t.Errorf("8 MiB in one message are taken: %.100s", text)
		}
	}
	if _, err := websocket.Dial("ws://"+subject.Endpoint()+"/v3/none", "", "http://127.0.0.1/"); err == nil {
		t.Error("a websocket to nowhere")
	}
	raw := dial(t, subject, "/v3/watch")
	raw.Write([]byte("text before"))
	subject.MustCtl("get", "foo")
}

// A value may come in any number of frames, and what is wrong with one is said
// in the genuine server's words, by every kind of call. To calls of one message
// the genuine server answers nothing else: it reads on until the client leaves.
func TestWebsocketPieces(t *testing.T) {
	etcd, subject := harness.StartPair(t)
	client := transports()["HTTP/1.1"]
	for _, server := range []*harness.Server{etcd, subject} {
		ask(t, client, server, post("/v3/lease/grant", `{"TTL":600,"ID":77}`))
		ask(t, client, server, post("/v3/election/campaign", `{"name":"Zm9v","lease":77,"value":"YQ=="}`))
	}
	calls := []struct {
		path, text string
	}{
		{"/v3/election/observe", `{"name":"Zm9v"}`},
		{"/v3/maintenance/snapshot", `{"x":[{"y":"\u00e9"},-1.5e3,null]}`},
		{"/v3/kv/range", ` {"key":"Zm9v","limit":10}`},
		{"/v3/watch", `{"create_request":{"key":"Zm9v"}}`},
	}
	for _, call := range calls {
		t.Run(call.path, func(t *testing.T) {
			// Each text in two frames: a line ends between them, which is a fault inside a string only.
			answer := func(server *harness.Server, frames ...string) any {
				socket := dial(t, server, call.path)
				defer socket.Close()
				for _, frame := range frames {
					// Not taken any more behind a fault.
					websocket.Message.Send(socket, frame)
				}
				return hear(t, socket)
			}
			whole := answer(subject, call.text)
			for at := 1; at < len(call.text); at++ {
				first, second := call.text[:at], call.text[at:]
				want := whole
				// Strings, numbers and words do not go on behind the end of a line.
				if strings.Count(first, `"`)%2 == 1 || ends.MatchString(first) && begins.MatchString(second) {
					if call.path == "/v3/watch" {
						// It ends the client's part of a watch, and is not answered.
						continue
					}
					want = answer(etcd, first, second)
				}
				if got := answer(subject, first, second); !reflect.DeepEqual(want, got) {
					t.Errorf("%q %q:\n- %+v\n+ %+v", first, second, want, got)
				}
			}
			if call.path == "/v3/watch" {
				return
			}
			for _, text := range []string{`[`, `[]`, `"`, `"x`, `nul`, `null`, `5`, `-`, `}`, `{a`, `{"`, `{"x`, `{"x"}`, `{"x":}`, `{,`, `{"x":1,}`, `{"\`, `{"\u`} {
				// No text goes on like this.
				for _, end := range []string{"\x00", "\x1f", "\x7f", "\u00e9"} {
					if want, got := answer(etcd, text, end), answer(subject, text, end); !reflect.DeepEqual(want, got) {
						t.Errorf("%q %q:\n- %+v\n+ %+v", text, end, want, got)
					}
				}
			}
		})
	}
	// Whoever leaves in the middle takes nothing along.
	for _, call := range calls {
		for at := range call.text {
			socket := dial(t, subject, call.path)
			say(t, socket, call.text[:at])
			socket.Close()
		}
	}
	subject.MustCtl("put", "alive", "yes")
}
