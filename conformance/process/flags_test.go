// Package process looks at the server as a supervisor does: flags,
// environment, exit codes, log, signals, directories and HTTP.
package process

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"cairn.dev/conformance/harness"
)

const endMax = time.Minute

// run runs the server's program to its end.
func run(t *testing.T, kind harness.Kind, args ...string) harness.Result {
	t.Helper()
	return harness.Command{Path: harness.Binary(t, kind), Args: args, Max: endMax}.Run(t)
}

// Command lines that the server refuses, with etcd's exit code.
func TestRefusedFlags(t *testing.T) {
	dir := "--data-dir=" + filepath.Join(t.TempDir(), "data")
	for _, args := range [][]string{
		{"--no-such-flag"},
		{"--no-such-flag=1"},
		{"-no-such-flag"},
		{"--heartbeat-interval=x"},
		{"--heartbeat-interval"},
		{"--snapshot-count=-1"},
		{"--max-request-bytes=1e9"},
		{"--quota-backend-bytes=lots"},
		{"--warning-apply-duration=5"},
		{"--unsafe-no-fsync=perhaps"},
		{"--log-format=xml"},
		{"--log-level=loud"},
		{"--auto-compaction-mode=often"},
		{"--auto-compaction-retention=-1"},
		{"--auto-compaction-retention=x"},
		{"--initial-cluster-state=old"},
		{"--listen-client-urls=http://127.0.0.1:43001"},
		{"--listen-client-urls=127.0.0.1:43001", "--advertise-client-urls=http://127.0.0.1:43001"},
		{"--listen-client-urls=http://example.com:43001", "--advertise-client-urls=http://127.0.0.1:43001"},
		{"--listen-client-urls=ftp://127.0.0.1:43001", "--advertise-client-urls=http://127.0.0.1:43001"},
		{"--election-timeout=400"},
		{"--election-timeout=60000"},
		{"--heartbeat-interval=0"},
		{"--initial-cluster=other=http://127.0.0.1:2380"},
		{"--initial-advertise-peer-urls=http://127.0.0.1:43003"},
		{"--discovery-token=token"},
		{"--discovery-endpoints=http://127.0.0.1:43004"},
		{"--discovery-fallback=proxy"},
		{"--discovery-fallback=never"},
		{"--initial-cluster=default=http://localhost:2380", "--discovery-srv=example.invalid"},
		{"--discovery-srv=example.invalid"},
		{"--max-learners=x"},
		{"--raft-read-timeout=5"},
		{"--strict-reconfig-check=perhaps"},
		{"--initial-cluster=default=http://127.0.0.1:43005,default=http://127.0.0.1:43005"},
		{"extra"},
	} {
		want := run(t, harness.Etcd, append([]string{dir}, args...)...)
		got := run(t, harness.Subject(), append([]string{dir}, args...)...)
		if want.Code != got.Code {
			t.Errorf("%v: exit %d, etcd's is %d\n%s%s", args, got.Code, want.Code, got.Stdout, got.Stderr)
		}
		if strings.Contains(want.Stderr, "Usage") && !strings.Contains(got.Stderr, "Usage") {
			t.Errorf("%v: no usage on standard error: %q", args, got.Stderr)
		}
		if want.Code == 0 || want.Code == -1 {
			t.Errorf("%v: etcd accepts it", args)
		}
	}
}

func TestVersionAndHelp(t *testing.T) {
	want, got := run(t, harness.Etcd, "--version"), run(t, harness.Subject(), "--version")
	first := func(text string) string { return strings.SplitN(text, "\n", 2)[0] }
	if first(want.Stdout) != first(got.Stdout) || got.Code != 0 {
		t.Errorf("--version: exit %d, %q, etcd prints %q", got.Code, got.Stdout, want.Stdout)
	}
	for _, flag := range []string{"-h", "--help"} {
		result := run(t, harness.Subject(), flag)
		if text := result.Stdout + result.Stderr; result.Code != 0 || !strings.Contains(text, "listen-client-urls") {
			t.Errorf("%s: exit %d, %q", flag, result.Code, text)
		}
	}
}

// Flags that the server accepts, in every spelling.
func TestAcceptedFlags(t *testing.T) {
	for _, flags := range [][]string{
		{"--max-request-bytes=5", "--max-request-bytes=10000"},
		{"-max-request-bytes", "10000", "--unsafe-no-fsync"},
		{"--max-request-bytes", "10000", "--unsafe-no-fsync=true", "--unsafe-no-fsync=0"},
		{
			"--max-request-bytes=10000", "--snapshot-count=1000", "--heartbeat-interval=50", "--election-timeout=500",
			"--initial-cluster-token=new", "--initial-cluster-state=new", "--auto-compaction-mode=revision",
			"--auto-compaction-retention=1000", "--quota-backend-bytes=100000000", "--max-txn-ops=10",
			"--warning-apply-duration=1s", "--log-level=warn", "--log-format=json", "--log-level=info",
		},
		{"--max-request-bytes=10000", "--auto-compaction-mode=periodic", "--auto-compaction-retention=1h30m"},
		{"--max-request-bytes=10000", "--auto-compaction-retention=2", "--quota-backend-bytes=-1"},
	} {
		server := harness.Start(t, harness.Subject(), flags...)
		limited(t, server, strings.Join(flags, " "))
		server.Stop()
	}
}

// limited checks that a limit of 10,000 bytes per request is in force.
func limited(t *testing.T, server *harness.Server, what string) {
	t.Helper()
	client := server.Client()
	if _, err := client.Put(harness.Context(t), "k", strings.Repeat("v", 9_900)); err != nil {
		t.Errorf("%s: %v", what, err)
	}
	if _, err := client.Put(harness.Context(t), "k", strings.Repeat("v", 10_100)); err == nil {
		t.Errorf("%s: a put over --max-request-bytes is accepted", what)
	}
}

// Flags of earlier releases that ask for nothing which a client of version 3 would miss are passed over with a warning: Patroni, charts
// and units give them. Flags of etcd's backend, which is not here, are taken in silence.
func TestFlagsOfOthers(t *testing.T) {
	if harness.Subject() == harness.Etcd {
		t.Skip("etcd 3.7 refuses flags of earlier releases")
	}
	server := harness.Prepare(t, harness.Cairn, filepath.Join(t.TempDir(), "data"),
		"--enable-v2=true", "--enable-v2", "--proxy", "off", "--proxy-failure-wait=5000", "--discovery=", "--debug",
		"--log-package-levels=etcdserver=WARNING", "--backend-batch-limit=100", "--backend-batch-interval=10ms",
		"--backend-bbolt-freelist-type=map")
	server.Setenv("ETCD_PROXY_READ_TIMEOUT", "0")
	server.Run()
	server.MustCtl("put", "a", "b")
	log := server.Log()
	for _, flag := range []string{"enable-v2", "proxy", "proxy-failure-wait", "proxy-read-timeout", "discovery", "debug", "log-package-levels"} {
		if !strings.Contains(log, "flag --"+flag+" has no effect: ") {
			t.Errorf("--%s is not warned of", flag)
		}
	}
	if strings.Contains(log, "flag --backend") {
		t.Errorf("flags of the backend are warned of:\n%s", log)
	}
	server.Stop()
	// What would have the process promise something that it does not keep is refused, with what to use instead.
	for flag, instead := range map[string]string{
		"--proxy=on":                          "etcd grpc-proxy start",
		"--proxy=readonly":                    "etcd gateway start",
		"--discovery=https://example.invalid": "--discovery-endpoints",
		"--experimental-enable-v2v3=/v2":      "no API of version 2",
	} {
		got := run(t, harness.Cairn, "--data-dir="+filepath.Join(t.TempDir(), "data"), flag)
		if got.Code != 1 || !strings.Contains(got.Stderr, instead) {
			t.Errorf("%s: exit %d, %q", flag, got.Code, got.Stderr)
		}
	}
}

// Each flag can be given as ETCD_*.
func TestEnvironment(t *testing.T) {
	server := harness.Prepare(t, harness.Subject(), filepath.Join(t.TempDir(), "data"))
	client, peer := "http://"+server.Endpoint(), server.PeerURL()
	for name, value := range map[string]string{
		"ETCD_NAME":                        "from-environment",
		"ETCD_DATA_DIR":                    server.DataDir,
		"ETCD_LISTEN_CLIENT_URLS":          client,
		"ETCD_ADVERTISE_CLIENT_URLS":       client,
		"ETCD_LISTEN_PEER_URLS":            peer,
		"ETCD_INITIAL_ADVERTISE_PEER_URLS": peer,
		"ETCD_INITIAL_CLUSTER":             "from-environment=" + peer,
		"ETCD_MAX_REQUEST_BYTES":           "10000",
		"ETCD_UNSAFE_NO_FSYNC":             "true",
		"ETCD_NO_SUCH_FLAG":                "ignored",
	} {
		server.Setenv(name, value)
	}
	server.Bare = true
	server.Run()
	limited(t, server, "a variable")
	if members := server.MustCtl("member", "list"); !strings.Contains(members, "from-environment") {
		t.Errorf("member list: %q", members)
	}
	if _, err := os.Stat(filepath.Join(server.DataDir, "member")); err != nil {
		t.Error(err)
	}
}

// A flag and its variable together are refused, even if they are equal.
func TestShadowedVariable(t *testing.T) {
	for _, kind := range []harness.Kind{harness.Etcd, harness.Subject()} {
		server := harness.Prepare(t, kind, filepath.Join(t.TempDir(), "data"), "--max-txn-ops=10")
		server.Setenv("ETCD_MAX_TXN_OPS", "10")
		if err := server.TryRun(endMax); err == nil {
			t.Errorf("%s starts", kind)
			continue
		}
		if code, err := server.Wait(0); err != nil || code != 1 {
			t.Errorf("%s: exit %d, %v", kind, code, err)
		}
	}
}

// Cairn under its own name takes the same flags after `serve`, and without a
// subcommand.
func TestServe(t *testing.T) {
	if harness.Subject() == harness.Etcd {
		t.Skip("about Cairn only")
	}
	for _, words := range [][]string{{"serve"}, {}} {
		client, peer := harness.Port(t), harness.Port(t)
		server := harness.Prepare(t, harness.Cairn, filepath.Join(t.TempDir(), "data"))
		server.Bare = true
		server.SetBinary(harness.CairnBinary(t))
		server.ClientPort, server.PeerPort = client, peer
		server.SetFlags(append(words,
			"--data-dir", server.DataDir,
			fmt.Sprintf("--listen-client-urls=http://127.0.0.1:%d", client),
			fmt.Sprintf("--advertise-client-urls=http://127.0.0.1:%d", client),
			fmt.Sprintf("--listen-peer-urls=http://127.0.0.1:%d", peer),
			fmt.Sprintf("--initial-advertise-peer-urls=http://127.0.0.1:%d", peer),
			fmt.Sprintf("--initial-cluster=default=http://127.0.0.1:%d", peer))...)
		server.Run()
		server.MustCtl("put", "a", "b")
		server.Stop()
	}
	if result := (harness.Command{Path: harness.CairnBinary(t), Args: []string{"serve", "--no-such-flag"}, Max: endMax}).Run(t); result.Code != 2 {
		t.Errorf("an unknown flag of `cairn serve`: exit %d", result.Code)
	}
}

// A mistyped flag or command is told of in a few lines, the reason last, where a terminal shows it.
func TestMistypedFlag(t *testing.T) {
	if harness.Subject() == harness.Etcd {
		t.Skip("about Cairn only")
	}
	got := run(t, harness.Cairn, "--nmae=x")
	lines := strings.Split(strings.TrimSpace(got.Stderr), "\n")
	if got.Code != 2 || len(lines) > 5 || lines[len(lines)-1] != "flag provided but not defined: -nmae" || !strings.Contains(got.Stderr, "`cairn help`") {
		t.Errorf("exit %d, %q", got.Code, got.Stderr)
	}
}

// So are those of the tools.
func TestMistypedFlagOfTools(t *testing.T) {
	if harness.Subject() == harness.Etcd {
		t.Skip("about Cairn only")
	}
	for _, c := range []struct{ line, reason, help string }{
		{"ctl put --prefx k v", "unknown flag: --prefx", "`cairn ctl put --help`"},
		{"ctl --nonsense", "unknown flag: --nonsense", "`cairn ctl --help`"},
		{"ctl pit k", "unknown command \"pit\"", "cairn ctl --help"},
		{"util hashkv --rve 5 f", "unknown flag: --rve", "`cairn util hashkv --help`"},
		{"util snapshot restore f --dta-dir x", "unknown flag: --dta-dir", "`cairn util snapshot restore --help`"},
		{"bench put --clinets 5", "unknown flag: --clinets", "`cairn bench put --help`"},
		{"bench sweep --out x --nonsense 5", "`--nonsense` is not known", "`cairn bench sweep --help`"},
		{"bench compare --peer-endpoints x --nonsense 5", "`--nonsense` is not known", "`cairn bench compare --help`"},
		{"check disk --nonsense", "unknown flag: --nonsense", "`cairn check disk --help`"},
		{"doctor --nonsense", "unknown flag: --nonsense", "`cairn doctor --help`"},
		{"takeover --nonsense", "unknown flag: --nonsense", "`cairn takeover --help`"},
		{"gateway start --nonsense", "unknown flag: --nonsense", "`cairn gateway start --help`"},
		{"grpc-proxy start --nonsense", "unknown flag: --nonsense", "`cairn grpc-proxy start --help`"},
		{"cluster --nonsense", "flag provided but not defined: --nonsense", "`cairn cluster --help`"},
	} {
		got := harness.Command{Path: harness.CairnBinary(t), Args: strings.Fields(c.line)}.Run(t)
		lines := strings.Split(strings.TrimSpace(got.Stderr), "\n")
		if got.Code == 0 || got.Stdout != "" || len(lines) > 7 || !strings.Contains(got.Stderr, c.reason) || !strings.Contains(got.Stderr, c.help) {
			t.Errorf("%s: exit %d, %q", c.line, got.Code, got.Stderr)
		}
	}
}
