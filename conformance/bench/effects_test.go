package bench

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"cairn.dev/conformance/harness"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// The same command lines leave the same on two servers: revisions, keys and
// their lengths, leases, and what the server counted.
func TestEffects(t *testing.T) {
	type left struct {
		Revisions int64
		Keys      []string
		Leases    int
		Calls     map[string]int
	}
	methods := []string{"Put", "Range", "Txn", "LeaseGrant", "LeaseKeepAlive"}
	for _, line := range []string{
		"put --sequential-keys --key-space-size=500 --total=1200 --key-size=4 --val-size=30",
		"put --total=100 --key-space-size=1",
		"--conns=5 --clients=20 put --sequential-keys --key-space-size=200 --total=400",
		"txn-put --txn-ops=3 --key-space-size=100 --total=50",
		"txn-mixed k --total=40 --rw-ratio=0 --key-space-size=15",
		"range foo --total=70",
		"--clients=7 --conns=2 lease-keepalive --total=60",
		"stm --total=40 --keys=4 --keys-per-txn=4 --isolation=c --txn-wr-percent=100",
		"stm --total=40 --keys=4 --keys-per-txn=4 --isolation=r --txn-wr-percent=100",
		"stm --total=40 --keys=4 --keys-per-txn=4 --isolation=s --txn-wr-percent=50",
		"stm --total=40 --keys=4 --keys-per-txn=4 --isolation=ss --txn-wr-percent=100",
		"watch --put-total=30 --watched-key-total=3 --key-space-size=3 --sequential-keys --streams=2 --watch-per-stream=3",
		"watch-get --watchers=5 --events=4",
	} {
		results := map[string]left{}
		for name, tool := range tools(t) {
			server := harness.Start(t, harness.Subject())
			client := server.Client()
			ctx := harness.Context(t)
			if result := run(t, tool, server.Endpoint(), line); result.Code != 0 || strings.Contains(result.Stdout, "Error distribution") {
				t.Fatalf("%s: %s: exit %d\n%s%s", name, line, result.Code, result.Stdout, result.Stderr)
			}
			calls := map[string]int{}
			for _, method := range methods {
				calls[method] = metric(t, server, "grpc_server_started_total", method)
			}
			found, err := client.Get(ctx, "", clientv3.WithPrefix())
			if err != nil {
				t.Fatal(err)
			}
			leases, err := client.Leases(ctx)
			if err != nil {
				t.Fatal(err)
			}
			if strings.Contains(line, "watch-get") {
				delete(calls, "Range")
			}
			result := left{Revisions: found.Header.Revision, Leases: len(leases.Leases), Calls: calls}
			for _, kv := range found.Kvs {
				result.Keys = append(result.Keys, fmt.Sprintf("%x %d", kv.Key, len(kv.Value)))
			}
			results[name] = result
			server.Stop()
		}
		if !reflect.DeepEqual(results["ours"], results["genuine"]) {
			t.Errorf("%s:\n%+v\nnot\n%+v", line, results["ours"], results["genuine"])
		}
	}
}

// The engine counts what the server counted, in the report and in the file.
func TestCounts(t *testing.T) {
	server := harness.Start(t, harness.Subject())
	own := ours(t)
	for _, one := range []struct{ line, method string }{
		{"put", "Put"},
		{"range foo", "Range"},
		{"range foo --stream", "RangeStream"},
		{"txn-put", "Txn"},
		{"lease-keepalive", "LeaseKeepAlive"},
		{"put --rate=3000", "Put"},
	} {
		path := filepath.Join(t.TempDir(), "run.json")
		before := metric(t, server, "grpc_server_started_total", one.method)
		result := run(t, own, server.Endpoint(), "--conns=5 --clients=50 --duration=700ms --json="+path+" "+one.line)
		counted := metric(t, server, "grpc_server_started_total", one.method) - before
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatalf("%s: %v\n%s", one.line, err, result.Stderr)
		}
		var told struct{ Requests, Succeeded int }
		if err := json.Unmarshal(text, &told); err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		if told.Requests != counted || told.Succeeded != counted || counted == 0 {
			t.Errorf("%s: the server counted %d: %s", one.line, counted, text)
		}
	}
}

// Pages and streams read all keys.
func TestPages(t *testing.T) {
	server := harness.Start(t, harness.Subject())
	own := ours(t)
	run(t, own, server.Endpoint(), "--clients=100 put --total=25000 --key-space-size=25000 --sequential-keys --prefix=p/")
	count, err := server.Client().Get(harness.Context(t), "p/", clientv3.WithPrefix(), clientv3.WithCountOnly())
	if err != nil || count.Count != 25000 {
		t.Fatalf("%v %v", count, err)
	}
	before := metric(t, server, "grpc_server_started_total", "Range")
	result := run(t, own, server.Endpoint(), "--clients=2 range p/ --prefix --paginate --total=4")
	if pages := metric(t, server, "grpc_server_started_total", "Range") - before; pages != 12 || result.Code != 0 {
		t.Errorf("%d pages\n%s%s", pages, result.Stdout, result.Stderr)
	}
}

// `--target-leader` writes to the leader alone; otherwise connections go round
// the endpoints.
func TestLeader(t *testing.T) {
	cluster := harness.StartCluster(t, harness.Subject(), 3, nil)
	var clients []*clientv3.Client
	var endpoints []string
	for number, member := range cluster.Members {
		clients = append(clients, cluster.Client(number))
		endpoints = append(endpoints, member.Endpoint())
	}
	leader := cluster.Leader(clients)
	puts := func() (found []int) {
		for _, member := range cluster.Members {
			found = append(found, metric(t, member, "grpc_server_started_total", "Put"))
		}
		return found
	}
	own := ours(t)
	run(t, own, strings.Join(endpoints, ","), "--conns=6 --clients=12 --target-leader put --total=300")
	want := []int{0, 0, 0}
	want[leader] = 300
	if found := puts(); !slices.Equal(found, want) {
		t.Errorf("%v, not %v", found, want)
	}
	run(t, own, strings.Join(endpoints, ","), "--conns=6 --clients=12 put --total=300")
	for number, found := range puts() {
		if found == want[number] {
			t.Errorf("no puts went to member %d", number)
		}
	}
}
