package bench

import (
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"cairn.dev/conformance/harness"
)

// start runs our tool and leaves it running.
func start(t *testing.T, endpoint, line string) (*exec.Cmd, *strings.Builder, *strings.Builder) {
	t.Helper()
	command := exec.Command(ours(t), append([]string{"--endpoints=" + endpoint}, words(line)...)...)
	stdout, stderr := &strings.Builder{}, &strings.Builder{}
	command.Stdout, command.Stderr = stdout, stderr
	command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { command.Process.Kill() })
	return command, stdout, stderr
}

// Without a server both tools wait for one.
func TestNoServer(t *testing.T) {
	server := harness.Prepare(t, harness.Subject(), filepath.Join(t.TempDir(), "data"))
	waiting, stdout, stderr := start(t, server.Endpoint(), "put --total=50")
	for name, tool := range tools(t) {
		args := []string{"--endpoints=" + server.Endpoint(), "--dial-timeout=100ms", "put", "--total=3"}
		result := harness.Command{Path: tool, Args: args, Max: 2 * time.Second}.Run(t)
		if result.Code != -1 || result.Stdout != "" || !strings.Contains(strings.ToLower(result.Stderr), "connection refused") {
			t.Errorf("%s: exit %d\n%s%s", name, result.Code, result.Stdout, result.Stderr)
		}
	}
	server.Run()
	if err := waiting.Wait(); err != nil || !strings.Contains(stdout.String(), "Requests/sec") {
		t.Errorf("%v\n%s%s", err, stdout, stderr)
	}
}

// A server that is gone for a while is told as errors, and the run goes on.
func TestServerThatRestarts(t *testing.T) {
	server := harness.Start(t, harness.Subject())
	command, stdout, stderr := start(t, server.Endpoint(), "--conns=4 --clients=20 --duration=4s put")
	for metric(t, server, "grpc_server_started_total", "Put") < 50 {
		time.Sleep(10 * time.Millisecond)
	}
	server.Kill()
	server.Run()
	if err := command.Wait(); err != nil {
		t.Fatalf("%v\n%s", err, stderr)
	}
	if metric(t, server, "grpc_server_started_total", "Put") == 0 || !strings.Contains(stdout.String(), "code = Unavailable") {
		t.Errorf("%s%s", stdout, stderr)
	}
}

// Tokens that a server does not know any more are replaced: each client has
// one refusal. Cairn's outlive a restart, etcd's do not.
func TestTokensThatAreForgotten(t *testing.T) {
	server := harness.Start(t, harness.Etcd)
	for _, args := range []string{"user add root:secret", "user grant-role root root", "auth enable"} {
		server.MustCtl(strings.Fields(args)...)
	}
	command, stdout, stderr := start(t, server.Endpoint(), "--user=root:secret --conns=4 --clients=20 --duration=5s put")
	for metric(t, server, "grpc_server_started_total", "Put") < 50 {
		time.Sleep(10 * time.Millisecond)
	}
	// A login that is not in the database yet would be done again.
	time.Sleep(time.Second)
	server.Kill()
	server.Run()
	if err := command.Wait(); err != nil {
		t.Fatalf("%v\n%s", err, stderr)
	}
	refused := 0
	if found := regexp.MustCompile(`\[(\d+)\]\t.*invalid auth token`).FindStringSubmatch(stdout.String()); found != nil {
		refused, _ = strconv.Atoi(found[1])
	}
	if puts := metric(t, server, "grpc_server_started_total", "Put"); refused < 1 || refused > 20 || puts < 200 {
		t.Errorf("%d puts, %d refused\n%s%s", puts, refused, stdout, stderr)
	}
}

// Ctrl-C ends a run with the report of what there is.
func TestInterruption(t *testing.T) {
	server := harness.Start(t, harness.Subject())
	for _, line := range []string{
		"--clients=10 put --total=100000000",
		"range foo --total=100000000 --rate=500",
		"txn-mixed k --total=100000000",
		"stm --total=100000000",
		"lease-keepalive --total=100000000",
		"watch --put-total=100000000 --streams=2 --watch-per-stream=2",
		"watch-get --watchers=2 --events=100000 --streams=1",
		"watch-latency --put-total=100000000",
	} {
		command, stdout, stderr := start(t, server.Endpoint(), line)
		time.Sleep(1500 * time.Millisecond)
		if command.Process.Signal(syscall.SIGINT); command.Wait() == nil || command.ProcessState.ExitCode() != 130 {
			// The puts before `watch-get` may still be under way.
			if !strings.HasPrefix(line, "watch-get") {
				t.Errorf("%s: exit %d\n%s", line, command.ProcessState.ExitCode(), stderr)
			}
			continue
		}
		if !strings.Contains(stdout.String(), "Requests/sec") {
			t.Errorf("%s:\n%s%s", line, stdout, stderr)
		}
	}
}

// Users without permission see it in the error distribution; wrong passwords
// end the run.
func TestUsers(t *testing.T) {
	server := harness.Start(t, harness.Subject())
	for _, line := range []string{
		"user add root:root", "role add root", "user grant-role root root",
		"user add reader:pass", "role add reading", "role grant-permission reading read --prefix a",
		"user grant-role reader reading", "auth enable",
	} {
		server.MustCtl(strings.Fields(line)...)
	}
	genuine, own := harness.Tool(t, "benchmark"), ours(t)
	for _, line := range []string{
		"--user=root:root put --total=20",
		"--user=root:root --conns=3 --clients=9 stm --total=20",
		"--user=root:root watch --put-total=5 --streams=2 --watch-per-stream=2",
		"--user=root:root watch-latency --put-total=5",
		"--user=root:root lease-keepalive --total=5",
		"--user=reader:pass range a --total=20",
		"--user=reader:pass range b --total=20",
		"--user=reader:pass put --total=20",
		"--user=reader:pass txn-put --total=20",
		"put --total=20",
		"range a --total=20",
		"--user=reader:wrong put --total=20",
		"--user=nobody:wrong put --total=20",
	} {
		want, got := run(t, genuine, server.Endpoint(), line), run(t, own, server.Endpoint(), line)
		if want.Code != got.Code || shape(want.Stdout) != shape(got.Stdout) {
			t.Errorf("%s: exit %d\n%s%s\nnot %d\n%s", line, got.Code, shape(got.Stdout), got.Stderr, want.Code, shape(want.Stdout))
		}
		if want.Code != 0 && !strings.Contains(want.Stderr, complaint(got)) {
			t.Errorf("%s: `%s`, not\n%s", line, complaint(got), want.Stderr)
		}
	}
}

// Over TLS everything works; who does not trust the certificate waits.
func TestTLS(t *testing.T) {
	server := harness.Prepare(t, harness.Subject(), filepath.Join(t.TempDir(), "data"))
	url := "https://" + server.Endpoint()
	server.SetFlags("--auto-tls", "--listen-client-urls="+url, "--advertise-client-urls="+url)
	server.Run()
	own := ours(t)
	for _, line := range []string{
		"put --total=50", "range foo --total=50", "txn-put --total=10", "stm --total=10", "lease-keepalive --total=10",
		"watch --put-total=5 --streams=2 --watch-per-stream=2", "watch-get --watchers=5 --events=3", "watch-latency --put-total=5",
		"put --total=10 --check-hashkv", "--target-leader put --total=10",
	} {
		result := run(t, own, url, "--conns=2 --clients=4 --insecure-skip-tls-verify "+line)
		if result.Code != 0 || !strings.Contains(result.Stdout, "Requests/sec") || strings.Contains(result.Stdout, "Error distribution") {
			t.Errorf("%s: exit %d\n%s%s", line, result.Code, result.Stdout, result.Stderr)
		}
	}
	for name, tool := range tools(t) {
		args := []string{"--endpoints=" + url, "put", "--total=3"}
		result := harness.Command{Path: tool, Args: args, Max: 2 * time.Second}.Run(t)
		if result.Code != -1 || result.Stdout != "" || !strings.Contains(result.Stderr, "certificate") {
			t.Errorf("%s: exit %d\n%s%s", name, result.Code, result.Stdout, result.Stderr)
		}
	}
}
