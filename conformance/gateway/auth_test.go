package gateway

import (
	"reflect"
	"strings"
	"testing"

	"cairn.dev/conformance/harness"
)

// Users, roles and tokens through the gateway.
func TestAuth(t *testing.T) {
	etcd, subject := harness.StartPair(t)
	client := plain
	compare(t, client, etcd, subject,
		post("/v3/auth/status", `{}`), post("/v3/auth/enable", `{}`), post("/v3/auth/authenticate", `{"name":"root","password":"secret"}`),
		post("/v3/auth/user/add", `{"name":"root","password":"secret"}`), post("/v3/auth/user/add", `{"name":"root","password":"secret"}`),
		post("/v3/auth/user/add", `{"name":"anna","options":{"no_password":false},"password":"a"}`), post("/v3/auth/user/add", `{}`),
		post("/v3/auth/role/add", `{"name":"root"}`), post("/v3/auth/role/add", `{"name":"readers"}`),
		post("/v3/auth/role/grant", `{"name":"readers","perm":{"permType":"READ","key":"Zm9v","range_end":"Zm9w"}}`),
		post("/v3/auth/role/grant", `{"name":"readers"}`), post("/v3/auth/role/get", `{"role":"readers"}`),
		post("/v3/auth/role/list", ``), post("/v3/auth/user/list", ``), post("/v3/auth/user/grant", `{"user":"anna","role":"readers"}`),
		post("/v3/auth/user/grant", `{"user":"root","role":"root"}`), post("/v3/auth/user/get", `{"name":"anna"}`),
		post("/v3/auth/user/changepw", `{"name":"anna","password":"b"}`), post("/v3/auth/enable", ``), post("/v3/auth/status", ``),
		post("/v3/kv/range", `{"key":"Zm9v"}`), post("/v3/auth/authenticate", `{"name":"anna","password":"a"}`),
		post("/v3/maintenance/snapshot", `{}`),
	)
	// A watch that is refused stays open, so only its first answer is compared.
	var refused [2]any
	for place, server := range []*harness.Server{etcd, subject} {
		refused[place] = begin(t, client, server, "/v3/watch", strings.NewReader(`{"create_request":{"key":"eA=="}}`)).next(t)
	}
	if !reflect.DeepEqual(refused[0], refused[1]) {
		t.Errorf("a watch without a token:\n- %+v\n+ %+v", refused[0], refused[1])
	}
	for _, who := range []string{`{"name":"anna","password":"b"}`, `{"name":"root","password":"secret"}`, ""} {
		tokens := map[harness.Kind]string{}
		for _, server := range []*harness.Server{etcd, subject} {
			tokens[server.Kind] = "nonsense"
			if who != "" {
				tokens[server.Kind] = token(t, server, who)
			}
		}
		for _, q := range []question{
			post("/v3/kv/range", `{"key":"Zm9v"}`), post("/v3/kv/range", `{"key":"eA=="}`), post("/v3/kv/put", `{"key":"Zm9v"}`),
			post("/v3/auth/user/get", `{"name":"anna"}`), post("/v3/auth/user/list", `{}`), post("/v3/lease/keepalive", `{"ID":1}`),
			post("/v3/maintenance/defragment", `{}`), post("/v3/kv/txn", `{"success":[{"request_range":{"key":"eA=="}}]}`),
		} {
			for _, header := range []string{"Authorization", "Grpc-Metadata-Token"} {
				want, got := q, q
				want.headers, got.headers = map[string]string{header: tokens[etcd.Kind]}, map[string]string{header: tokens[subject.Kind]}
				if one, other := ask(t, client, etcd, want), ask(t, client, subject, got); !equal(one, other) {
					t.Errorf("%s as %s by %s:\n- %+v\n+ %+v", q, who, header, one, other)
				}
			}
		}
	}
}

func token(t *testing.T, server *harness.Server, who string) string {
	t.Helper()
	var token string
	for _, value := range askRaw(t, server, "/v3/auth/authenticate", who) {
		token, _ = value["token"].(string)
	}
	if token == "" {
		t.Fatalf("%s: no token for %s", server.Kind, who)
	}
	return token
}
