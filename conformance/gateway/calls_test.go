package gateway

import (
	"encoding/base64"
	"fmt"
	"strings"
	"testing"

	"cairn.dev/conformance/harness"
)

func b64(text string) string { return base64.StdEncoding.EncodeToString([]byte(text)) }

// Every path of one answer, with requests that succeed and that fail.
func TestCalls(t *testing.T) {
	for name, client := range transports() {
		t.Run(name, func(t *testing.T) {
			etcd, subject := harness.StartPair(t)
			compare(t, client, etcd, subject,
				post("/v3/kv/put", `{"key":"Zm9v","value":"YmFy"}`),
				post("/v3/kv/range", `{"key":"Zm9v"}`),
				post("/v3beta/kv/range", `{"key":"Zm9v"}`),
				post("/v3/kv/put", `{"key":"Zm9v","value":"YmF6","prev_kv":true}`),
				post("/v3/kv/put", `{"key":"Zm9vMg==","value":""}`),
				post("/v3/kv/range", `{"key":"Zm9v","rangeEnd":"Zm9w","sort_order":"DESCEND","sortTarget":1,"limit":1}`),
				post("/v3/kv/range", `{"key":"AA==","range_end":"AA","count_only":true}`),
				post("/v3/kv/range", `{"key":"Zm9v","revision":2}`),
				post("/v3/kv/range", `{"key":"Zm9v","revision":"2000"}`),
				post("/v3/kv/range", `{"key":"Zm9v","keys_only":true}`),
				post("/v3/kv/deleterange", `{"key":"Zm9v","range_end":"Zm9w","prev_kv":true}`),
				post("/v3/kv/deleterange", `{"key":"Zm9v"}`),
				post("/v3/kv/txn", `{"compare":[{"key":"Zm9v","target":"VERSION","result":"EQUAL","version":"0"}],`+
					`"success":[{"request_put":{"key":"Zm9v","value":"YmFy"}},{"requestRange":{"key":"Zm9v"}}],`+
					`"failure":[{"requestDeleteRange":{"key":"Zm9v"}}]}`),
				post("/v3/kv/txn", `{"compare":[{"key":"Zm9v","target":3,"result":1,"value":"YQ"}],`+
					`"success":[{"request_txn":{"success":[{"request_range":{"key":"Zm9v"}}]}}]}`),
				post("/v3/kv/txn", `{"compare":[{"key":"Zm9v","target":"CREATE","create_revision":7}],"failure":[{"request_range":{"key":"eA=="}}]}`),
				post("/v3/kv/txn", `{}`),
				post("/v3/kv/txn", `{"success":[{}]}`),
				post("/v3/kv/compaction", `{"revision":3,"physical":true}`),
				post("/v3/kv/compaction", `{"revision":3}`),
				post("/v3/kv/range", `{"key":"Zm9v","revision":2}`),
				post("/v3/lease/grant", `{"TTL":600,"ID":77}`),
				post("/v3/lease/grant", `{"TTL":600,"ID":77}`),
				post("/v3/lease/grant", `{"TTL":"9000000001"}`),
				post("/v3/kv/put", `{"key":"bGVhc2Vk","value":"eA==","lease":77}`),
				post("/v3/lease/timetolive", `{"ID":77,"keys":true}`),
				post("/v3/kv/lease/timetolive", `{"ID":"78"}`),
				post("/v3/lease/leases", ``),
				post("/v3/kv/lease/leases", `{}`),
				post("/v3/lease/keepalive", `{"ID":77}`),
				post("/v3/lease/keepalive", `{"ID":77}{"ID":"78"} {"ID":77}`),
				post("/v3/lease/revoke", `{"ID":77}`),
				post("/v3/kv/lease/revoke", `{"ID":77}`),
				post("/v3/maintenance/alarm", `{"action":"GET"}`),
				post("/v3/maintenance/alarm", `{"action":"ACTIVATE","memberID":"5","alarm":"NOSPACE"}`),
				post("/v3/maintenance/alarm", `{}`),
				post("/v3/maintenance/alarm", `{"action":2,"memberID":5,"alarm":1}`),
				post("/v3/maintenance/defragment", `{}`),
				post("/v3/maintenance/hashkv", `{}`),
				post("/v3/maintenance/hashkv", `{"revision":1000}`),
				post("/v3/maintenance/transfer-leadership", `{"targetID":"1"}`),
				post("/v3/cluster/member/remove", `{"ID":"1"}`),
				post("/v3/cluster/member/update", `{"ID":"1","peerURLs":["http://127.0.0.1:1"]}`),
				post("/v3/cluster/member/promote", `{"ID":"1"}`),
				post("/v3/cluster/member/add", `{"peerURLs":["nonsense"]}`),
			)
			// Names that hold for any server.
			for _, path := range []string{"/v3/maintenance/status", "/v3/maintenance/hash", "/v3/cluster/member/list"} {
				want, got := ask(t, client, etcd, post(path, "{}")), ask(t, client, subject, post(path, "{}"))
				if want.status != got.status || keys(want.body) != keys(got.body) {
					t.Errorf("%s: fields %s, etcd's %s", path, keys(got.body), keys(want.body))
				}
			}
		})
	}
}

// keys are the names of a body's fields.
func keys(body any) string {
	values, _ := body.([]any)
	var names []string
	for _, value := range values {
		object, _ := value.(map[string]any)
		for _, name := range []string{"header", "version", "dbSize", "leader", "raftIndex", "raftTerm", "raftAppliedIndex",
			"dbSizeInUse", "storageVersion", "dbSizeQuota", "hash", "members", "downgradeInfo", "code", "message"} {
			if _, there := object[name]; there {
				names = append(names, name)
			}
		}
	}
	return strings.Join(names, " ")
}

// Requests that are wrong in every way.
func TestMistakes(t *testing.T) {
	etcd, subject := harness.StartPair(t)
	deep := func(levels int) string {
		return strings.Repeat(`{"success":[{"request_txn":`, levels) + `{}` + strings.Repeat(`}]}`, levels)
	}
	for name, client := range transports() {
		t.Run(name, func(t *testing.T) {
			var questions []question
			for _, body := range []string{
				``, ` `, `{`, `{}`, `[]`, `null`, `"x"`, `5`, `true`, `hello`, `{"key"}`, `{"key":}`, `{"key":"Zm9v"`, `{"key":"Zm9v",}`,
				`{"key":"Zm9v"}}`, `{"key":"Zm9v"} garbage`, `{'key':1}`, `{"key":5}`, `{"key":null}`, `{"key":{}}`, `{"key":[]}`,
				`{"key":["Zm9v"]}`, `{"key":"*"}`, `{"key":"Zm9"}`, `{"key":"Zm9v="}`, `{"key":"Zm9v","limit":"abc"}`,
				`{"key":"Zm9v","limit":1.5}`, `{"key":"Zm9v","limit":1e2}`, `{"key":"Zm9v","limit":"1e2"}`, `{"key":"Zm9v","limit":" 1"}`,
				`{"key":"Zm9v","limit":""}`, `{"key":"Zm9v","limit":9223372036854775807}`, `{"key":"Zm9v","limit":9223372036854775808}`,
				`{"key":"Zm9v","limit":-0}`, `{"key":"Zm9v","limit":true}`, `{"key":"Zm9v","limit":01}`, `{"key":"Zm9v","limit":1.0}`,
				`{"key":"Zm9v","key":"Zm9v"}`, `{"key":"Zm9v","range_end":"","rangeEnd":""}`, `{"key":"Zm9v","foo":{"a":[1,{}]}}`,
				`{"key":"Zm9v","sort_order":"XX"}`, `{"key":"Zm9v","sort_order":9}`, `{"key":"Zm9v","sort_order":1.5}`,
				`{"key":"Zm9v","serializable":"true"}`, `{"key":"Zm9v","serializable":1}`, `{"KEY":"Zm9v"}`, "{\n \"key\":\n  7}",
				`{"key":"\u005am9v"}`, `{"k\u0065y":"Zm9v"}`, "{\"key\":\"\xff\"}",
			} {
				questions = append(questions, post("/v3/kv/range", body))
			}
			for _, body := range []string{
				`{"success":[{"requestRange":{"key":"Zm9v"},"requestPut":{}}]}`, `{"success":{}}`, `{"success":[null]}`, `{"success":[5]}`,
				`{"compare":[{"version":1,"value":""}]}`, deep(1), deep(60), deep(127), deep(128),
			} {
				questions = append(questions, post("/v3/kv/txn", body))
			}
			questions = append(questions, post("/v3/maintenance/alarm", `{"memberID":-1}`),
				post("/v3/cluster/member/add", `{"peerURLs":"http://a:1"}`), post("/v3/cluster/member/add", `{"peerURLs":[5]}`))
			for _, path := range []string{
				"/v3/kv/range/", "/v3/kv/rang", "/v3/", "/v3", "/v3/kv", "/v3beta/nothing", "/v3alpha/kv/range", "//v3/kv/range",
				"/v3/kv/../kv/range", "/v3/kv/rangestream", "/v2/keys",
			} {
				questions = append(questions, post(path, `{"key":"Zm9v"}`))
			}
			for _, verb := range []string{"GET", "PUT", "DELETE", "PATCH", "HEAD", "OPTIONS"} {
				questions = append(questions, question{verb: verb, path: "/v3/kv/range"}, question{verb: verb, path: "/v3/none"},
					question{verb: verb, path: "/v3/watch"})
			}
			compare(t, client, etcd, subject, questions...)
		})
	}
}

// Values as large as gRPC takes them, and larger ones.
func TestSizes(t *testing.T) {
	for name, client := range transports() {
		t.Run(name, func(t *testing.T) {
			etcd, subject := harness.StartPair(t)
			for _, size := range []int{1 << 20, 1_500_000, 1_572_864, 2_000_000} {
				compare(t, client, etcd, subject, post("/v3/kv/put", fmt.Sprintf(`{"key":"Zm9v","value":"%s"}`, b64(strings.Repeat("x", size)))))
			}
			compare(t, client, etcd, subject, post("/v3/kv/range", `{"key":"Zm9v"}`))
		})
	}
}
