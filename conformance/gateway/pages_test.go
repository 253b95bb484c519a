package gateway

import (
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"sort"
	"strings"
	"testing"

	"cairn.dev/conformance/harness"
)

// Probes, version and pages that are not there.
func TestPages(t *testing.T) {
	etcd, subject := harness.StartPair(t)
	for name, client := range transports() {
		t.Run(name, func(t *testing.T) {
			for _, path := range []string{
				"/health", "/health?serializable=true", "/health?serializable=false", "/health?exclude=NOSPACE", "/livez", "/livez?verbose",
				"/livez?exclude=serializable_read&verbose", "/livez/serializable_read", "/livez/linearizable_read", "/livez/", "/livez/none",
				"/readyz", "/readyz?verbose", "/readyz?exclude=none", "/readyz?verbose&exclude=linearizable_read&exclude=non_learner",
				"/readyz/data_corruption", "/readyz/serializable_read?verbose", "/readyz/linearizable_read", "/readyz/non_learner?verbose=0",
				"/readyz/", "/version", "/version/", "/", "/none", "/debug", "/debug/", "/debug/pprof/", "/debug/requests",
				"/debug/events", "/metrics/", "/health/", "//health", "/a/../health",
			} {
				for _, verb := range []string{"GET", "POST", "HEAD"} {
					q := question{verb: verb, path: path}
					want, got := ask(t, client, etcd, q), ask(t, client, subject, q)
					// The order of the checks is anybody's.
					want.body, got.body = sorted(want.body), sorted(got.body)
					if want.status == http.StatusTemporaryRedirect {
						want.body, got.body = "", ""
						delete(want.headers, "Content-Type")
						delete(got.headers, "Content-Type")
					}
					if !equal(want, got) {
						t.Errorf("%s:\n- %+v\n+ %+v", q, want, got)
					}
				}
			}
		})
	}
}

func sorted(body any) any {
	text, is := body.(string)
	if !is {
		return body
	}
	lines := strings.Split(text, "\n")
	sort.Strings(lines)
	return strings.Join(lines, "\n")
}

func equal(a, b answer) bool {
	one, _ := json.Marshal([]any{a.status, a.headers, a.body})
	other, _ := json.Marshal([]any{b.status, b.headers, b.body})
	return string(one) == string(other)
}

// The probes find alarms.
func TestProbesSeeAlarms(t *testing.T) {
	etcd, subject := harness.StartPair(t)
	client := transports()["HTTP/1.1"]
	for _, alarm := range []string{"NOSPACE", "CORRUPT"} {
		for _, server := range []*harness.Server{etcd, subject} {
			ask(t, client, server, post("/v3/maintenance/alarm", `{"action":"ACTIVATE","memberID":5,"alarm":"`+alarm+`"}`))
		}
		for _, path := range []string{
			"/health", "/health?exclude=NOSPACE", "/health?exclude=NOSPACE&exclude=CORRUPT", "/livez?verbose", "/readyz/data_corruption",
			"/readyz?exclude=data_corruption",
		} {
			compare(t, client, etcd, subject, question{verb: "GET", path: path})
		}
		q := question{verb: "GET", path: "/readyz"}
		want, got := ask(t, client, etcd, q), ask(t, client, subject, q)
		want.body, got.body = sorted(want.body), sorted(got.body)
		if !equal(want, got) {
			t.Errorf("%s with %s:\n- %+v\n+ %+v", q, alarm, want, got)
		}
		for _, server := range []*harness.Server{etcd, subject} {
			ask(t, client, server, post("/v3/maintenance/alarm", `{"action":"DEACTIVATE","memberID":5,"alarm":"`+alarm+`"}`))
		}
	}
}

// Origins, hosts, and the gateway switched off.
func TestAccess(t *testing.T) {
	etcd, subject := harness.StartPair(t, "--cors=http://good.example:80", "--host-whitelist=127.0.0.1,good.example")
	for name, client := range transports() {
		t.Run(name, func(t *testing.T) {
			for _, path := range []string{"/health", "/v3/kv/range", "/none"} {
				for _, verb := range []string{"GET", "POST", "OPTIONS"} {
					for _, origin := range []string{"", "http://good.example:80", "http://good.example", "http://evil.example:80"} {
						compare(t, client, etcd, subject, question{verb: verb, path: path, body: `{"key":"Zm9v"}`, headers: map[string]string{"Origin": origin}})
					}
				}
				for _, host := range []string{"evil.example", "evil.example:80", "good.example", "good.example:2379"} {
					q := question{verb: "POST", path: path, body: `{"key":"Zm9v"}`, headers: map[string]string{"Host": host}}
					want, got := ask(t, client, etcd, q), ask(t, client, subject, q)
					if want.status == http.StatusMisdirectedRequest {
						if text, _ := got.body.(string); !strings.Contains(text, "--host-whitelist") {
							t.Errorf("%s: no explanation: %q", q, text)
						}
						want.body, got.body = "", ""
					}
					if !equal(want, got) {
						t.Errorf("%s:\n- %+v\n+ %+v", q, want, got)
					}
				}
			}
		})
	}
	etcd, subject = harness.StartPair(t, "--enable-grpc-gateway=false")
	compare(t, transports()["HTTP/1.1"], etcd, subject, post("/v3/kv/range", `{"key":"Zm9v"}`), question{verb: "GET", path: "/v3/"},
		question{verb: "GET", path: "/health"}, post("/v3", ``), question{verb: "OPTIONS", path: "/v3/kv/range"})
}

// Metrics come packed to those who ask, and /debug/vars is what expvar makes.
func TestDebugPages(t *testing.T) {
	etcd, subject := harness.StartPair(t, "--enable-pprof")
	client := transports()["HTTP/1.1"]
	for _, verb := range []string{"GET", "POST", "HEAD"} {
		for _, coding := range []string{"", "gzip", "identity"} {
			q := question{verb: verb, path: "/metrics", headers: map[string]string{"Accept-Encoding": coding}}
			want, got := ask(t, client, etcd, q), ask(t, client, subject, q)
			want.body, got.body = want.body == "", got.body == ""
			if !equal(want, got) {
				t.Errorf("%s:\n- %+v\n+ %+v", q, want, got)
			}
		}
	}
	for _, server := range []*harness.Server{etcd, subject} {
		response, err := client.Get(server.URL("/debug/vars"))
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(response.Body)
		response.Body.Close()
		var vars struct {
			Cmdline  []string
			Limit    int64 `json:"file_descriptor_limit"`
			Memstats struct{ Alloc, Sys, HeapAlloc, HeapSys uint64 }
			Raft     struct{ ID, RaftState string } `json:"raft.status"`
		}
		if err := json.Unmarshal(body, &vars); err != nil {
			t.Fatalf("%v: %s", err, body)
		}
		if len(vars.Cmdline) < 2 || vars.Limit == 0 || vars.Memstats.Sys == 0 || vars.Raft.RaftState != "StateLeader" {
			t.Errorf("%s: %s", server.Kind, body)
		}
		if !slices.Contains(vars.Cmdline, "--enable-pprof") {
			t.Errorf("%s: command line %q", server.Kind, vars.Cmdline)
		}
	}
	compare(t, client, etcd, subject, question{verb: "POST", path: "/debug/vars"}, question{verb: "HEAD", path: "/debug/vars"},
		question{verb: "GET", path: "/debug/pprof/none"})
}
