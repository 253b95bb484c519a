package sharing

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"cairn.dev/conformance/harness"
)

// TestIsolation measures puts and gets of one user through the leader of three
// members, quiet and while 64 clients of another user list 8,000 keys each
// through it, without and with --client-share (make isolation). SERVER=etcd:
// etcd's. Those who list run at the lowest priority, as if they were on another
// machine; all measure with Cairn's `benchmark`, a process of its own.
func TestIsolation(t *testing.T) {
	if os.Getenv("ISOLATION") == "" {
		t.Skip("it needs an idle machine: set ISOLATION=1")
	}
	tool := tool(t)
	during := fmt.Sprintf("%ds", harness.Number(t, "ISOLATION_SECONDS", 10))
	shares := []string{"none"}
	if harness.Subject() == harness.Cairn {
		shares = append(shares, "50", "25", "10")
	}
	for _, share := range shares {
		var flags []string
		if share != "none" {
			flags = append(flags, "--client-share="+share)
		}
		cluster := harness.StartCluster(t, harness.Subject(), 3, nil, flags...)
		clients := []*clientv3.Client{cluster.Client(0), cluster.Client(1), cluster.Client(2)}
		leader := cluster.Members[cluster.Leader(clients)]
		fill(t, leader.Client(), 8_000)
		users(t, leader.Client(), "root", "greedy", "other")
		measured := func(kind ...string) run { return tool.run(t, leader, "other", during, kind...) }
		puts, gets := []string{"put", "--rate", "500", "--clients", "32"}, []string{"range", "other", "--rate", "500", "--clients", "32"}
		measured(puts...) // Warm.
		quietPuts, quietGets := measured(puts...), measured(gets...)
		lists := make(chan run)
		go func() {
			lists <- tool.run(t, leader, "greedy", fmt.Sprint(3*harness.Number(t, "ISOLATION_SECONDS", 10), "s"), "range", "list/", "--prefix", "--clients", "64", "--conns", "64")
		}()
		time.Sleep(2 * time.Second)
		putsBeside, getsBeside := measured(puts...), measured(gets...)
		for _, row := range []struct {
			kind          string
			quiet, beside run
		}{{"put", quietPuts, putsBeside}, {"get", quietGets, getsBeside}} {
			t.Logf("%-5s share %-4s %s: quiet %s, beside lists %s; p99 %.1fx", harness.Subject(), share, row.kind, row.quiet, row.beside,
				row.beside.Latency["p99"]/row.quiet.Latency["p99"])
		}
		t.Logf("%-5s share %-4s %.0f lists a second", harness.Subject(), share, (<-lists).Rate)
		for _, member := range cluster.Members {
			member.Kill()
		}
	}
}

// users enables authentication with these users, whose passwords are their
// names.
func users(t testing.TB, client *clientv3.Client, names ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if _, err := client.RoleAdd(ctx, "root"); err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if _, err := client.UserAdd(ctx, name, name); err != nil {
			t.Fatal(err)
		}
		if _, err := client.UserGrantRole(ctx, name, "root"); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := client.AuthEnable(ctx); err != nil {
		t.Fatal(err)
	}
}

// benchmark is Cairn's binary under the name that makes it that tool.
type benchmark string

func tool(t testing.TB) benchmark {
	t.Helper()
	link := filepath.Join(t.TempDir(), "benchmark")
	if err := os.Symlink(os.Getenv("CAIRN_BIN"), link); err != nil {
		t.Fatal(err)
	}
	return benchmark(link)
}

// run is what it measured; latencies in microseconds.
type run struct {
	Latency map[string]float64 `json:"latency_us"`
	Rate    float64            `json:"rate"`
	Failed  map[string]int     `json:"failed"`
}

func (r run) String() string {
	ms := func(name string) float64 { return r.Latency[name] / 1000 }
	return fmt.Sprintf("p50 %.2f p99 %.2f slowest %.1f ms", ms("p50"), ms("p99"), ms("max"))
}

func (b benchmark) run(t testing.TB, server *harness.Server, user, during string, kind ...string) (found run) {
	file := filepath.Join(t.TempDir(), "run.json")
	arguments := append(kind, "--endpoints", server.Endpoint(), "--user", user+":"+user, "--duration", during, "--json", file)
	command := exec.Command(string(b), arguments...)
	if user == "greedy" {
		command = exec.Command("nice", append([]string{"-n", "19", string(b)}, arguments...)...)
	}
	if output, err := command.CombinedOutput(); err != nil {
		t.Errorf("%v: %v\n%s", command.Args, err, output)
		return found
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Error(err)
		return found
	}
	if err := json.Unmarshal([]byte(strings.SplitN(string(text), "\n", 2)[0]), &found); err != nil {
		t.Errorf("%s: %v", text, err)
	}
	if len(found.Failed) > 0 {
		t.Logf("%s failed: %v", kind[0], found.Failed)
	}
	return found
}
