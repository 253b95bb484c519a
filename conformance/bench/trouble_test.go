package bench

import (
	"encoding/json"
	"fmt"
	"os"
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
		result := harness.Command{Path: tool, Args: args, Max: 10 * time.Second}.Run(t)
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
	// On a busy machine the run may be over before the server is there again.
	duration := 4 * time.Second
	harness.Attempt(t, func() error {
		defer func() { duration *= 4 }()
		server := harness.Start(t, harness.Subject())
		command, stdout, stderr := start(t, server.Endpoint(), fmt.Sprintf("--conns=4 --clients=20 --duration=%v put", duration))
		awaitCalls(t, server, "Put", 50)
		server.Kill()
		server.Run()
		if err := command.Wait(); err != nil {
			t.Fatalf("%v\n%s", err, stderr)
		}
		if metric(t, server, "grpc_server_started_total", "Put") == 0 || !strings.Contains(stdout.String(), "code = Unavailable") {
			return fmt.Errorf("%s%s", stdout, stderr)
		}
		return nil
	})
}

// A server that hangs shows: in the time, in the requests without an answer,
// and in those that an open loop did not get to. What goes well has no such lines.
func TestServerThatHangs(t *testing.T) {
	server := harness.Start(t, harness.Subject())
	lateness := harness.WatchLateness(t)
	for line, method := range map[string]string{
		"--clients=4 --duration=4s put --rate=50": "Put",
		"--clients=4 --duration=4s put":           "Put",
		"--clients=4 --duration=4s stm":           "Txn",
	} {
		// A busy machine may stop the server only when the run is over, or end the run late.
		harness.Attempt(t, func() error { return hang(t, server, lateness, line, method) })
	}
	harness.Attempt(t, func() error {
		path := filepath.Join(t.TempDir(), "run.json")
		result := run(t, ours(t), server.Endpoint(), "--json="+path+" --clients=20 --duration=2s put --rate=100")
		told := readReports(t, path)[0]
		if told.Requests+told.Unsent != 200 || told.Succeeded != told.Requests || told.Seconds < 1.9 {
			return fmt.Errorf("%+v\n%s", told, result.Stdout)
		}
		return nil
	})
}

// hang stops the server during a run, until that is over.
func hang(t *testing.T, server *harness.Server, lateness *harness.Lateness, line, method string) error {
	t.Helper()
	path := filepath.Join(t.TempDir(), "run.json")
	before := metric(t, server, "grpc_server_started_total", method)
	lateness.Take()
	command, stdout, stderr := start(t, server.Endpoint(), "--json="+path+" "+line)
	awaitCalls(t, server, method, before+20)
	server.Pause()
	err := command.Wait()
	server.Resume()
	late := lateness.Take().Seconds()
	if err != nil {
		t.Fatalf("%s: %v\n%s", line, err, stderr)
	}
	told := readReports(t, path)[0]
	if told.Seconds < 4 || told.Seconds > 4.9+late || told.Failed["DeadlineExceeded"] != 4 || told.Requests != told.Succeeded+4 {
		return fmt.Errorf("%s: %+v\n%s", line, told, stdout)
	}
	isOpen := strings.Contains(line, "--rate")
	if all := told.Requests + told.Unsent; isOpen && all != 200 || !isOpen && told.Unsent != 0 {
		return fmt.Errorf("%s: %+v", line, told)
	}
	if isOpen != strings.Contains(stdout.String(), "not sent: due before the end") {
		return fmt.Errorf("%s:\n%s", line, stdout)
	}
	return nil
}

// awaitCalls waits until a server has had so many calls of a method.
func awaitCalls(t *testing.T, server *harness.Server, method string, count int) {
	t.Helper()
	await(t, server, "grpc_server_started_total", method, count)
}

// await waits until a count of a server's, by method, is this high.
func await(t *testing.T, server *harness.Server, name, method string, count int) {
	t.Helper()
	for deadline := time.Now().Add(2 * time.Minute); metric(t, server, name, method) < count; {
		if time.Now().After(deadline) {
			t.Fatalf("%s of %s is never %d", name, method, count)
		}
		time.Sleep(time.Millisecond)
	}
}

// end waits for a tool, and ends it when it is still there after this time.
func end(t *testing.T, command *exec.Cmd, limit time.Duration) error {
	t.Helper()
	ended := make(chan error, 1)
	go func() { ended <- command.Wait() }()
	select {
	case err := <-ended:
		return err
	case <-time.After(limit):
		command.Process.Kill()
		return fmt.Errorf("still there after %v: %w", limit, <-ended)
	}
}

// readLast is the last line of a file of reports.
func readLast(t *testing.T, path string) report {
	t.Helper()
	reports := readReports(t, path)
	return reports[len(reports)-1]
}

// Two signals at once are one: what is sent to a process and to its group. The
// answers that are under way are waited for, and nothing counts as not sent
// that was not due yet.
func TestSignalsAtOnce(t *testing.T) {
	server := harness.Start(t, harness.Subject())
	for line, method := range map[string]string{"put --rate=100 --total=10000": "Put", "stm --rate=100 --total=10000": "Txn"} {
		path := filepath.Join(t.TempDir(), "run.json")
		command, stdout, stderr := start(t, server.Endpoint(), "--clients=4 --json="+path+" "+line)
		awaitCalls(t, server, method, metric(t, server, "grpc_server_started_total", method)+50)
		command.Process.Signal(os.Interrupt)
		command.Process.Signal(os.Interrupt)
		command.Wait()
		told := readReports(t, path)[0]
		if command.ProcessState.ExitCode() != 130 || told.Unsent > 1000 || len(told.Failed) > 0 || told.Succeeded == 0 {
			t.Errorf("%s: exit %d: %+v\n%s%s", line, command.ProcessState.ExitCode(), told, stdout, stderr)
		}
	}
}

// Ctrl-C ends a run whose compactions wait for a server that is gone.
func TestInterruptionWithoutServer(t *testing.T) {
	server := harness.Start(t, harness.Subject())
	command, stdout, stderr := start(t, server.Endpoint(), "put --compact-interval=100ms --total=100000000")
	awaitCalls(t, server, "Put", 100)
	server.Kill()
	time.Sleep(time.Second)
	command.Process.Signal(os.Interrupt)
	end(t, command, 30*time.Second)
	if command.ProcessState.ExitCode() != 130 || !strings.Contains(stdout.String(), "Requests/sec") {
		t.Errorf("exit %d\n%s%s", command.ProcessState.ExitCode(), stdout, stderr)
	}
}

// Watches go on after a server was started anew: no event is missing, and none
// comes twice. That would end the run, so that all are there when their number is.
func TestWatchesThatAreResumed(t *testing.T) {
	for line, events := range map[string]int{
		"watch --put-total=16 --put-rate=4 --streams=2 --watch-per-stream=2":            64,
		"watch-latency --put-total=16 --put-rate=4 --streams=2 --watchers-per-stream=2": 64,
	} {
		harness.Attempt(t, func() error { return resumeWatches(t, line, events) })
	}
}

// resumeWatches returns an error if the server was ended while a put was on its
// way, which ends the run, or after all of it.
func resumeWatches(t *testing.T, line string, events int) error {
	t.Helper()
	server := harness.Start(t, harness.Subject())
	path := filepath.Join(t.TempDir(), "run.json")
	command, stdout, stderr := start(t, server.Endpoint(), "--json="+path+" "+line)
	awaitCalls(t, server, "Put", 6)
	// No put is on its way, unless the machine is busy.
	time.Sleep(100 * time.Millisecond)
	server.Kill()
	server.Run()
	err := command.Wait()
	said := stderr.String()
	if err != nil && (strings.Contains(said, "cannot put: ") || strings.Contains(said, "Failed to Put for watch latency benchmark: ")) {
		return fmt.Errorf("%s: a put was on its way\n%s", line, stderr)
	}
	if err != nil {
		t.Fatalf("%s: %v\n%s%s", line, err, stdout, stderr)
	}
	if last := readLast(t, path); last.Succeeded != events {
		t.Errorf("%s: %+v", line, last)
	}
	if !strings.Contains(stderr.String(), "are resumed") {
		return fmt.Errorf("%s: nothing was lost\n%s", line, stderr)
	}
	return nil
}

// Watchers are asked for one behind the other: that goes on where it was when
// answers come together with the end of the connection.
func TestWatchersThatAreLostWhileTheyAreCreated(t *testing.T) {
	for line, watchers := range map[string]int{
		"watch --put-total=1 --streams=10 --watch-per-stream=4000":            40000,
		"watch-latency --put-total=1 --streams=10 --watchers-per-stream=4000": 40000,
	} {
		// On a busy machine all may be there before the tool is stopped.
		harness.Attempt(t, func() error {
			server := harness.Start(t, harness.Subject())
			path := filepath.Join(t.TempDir(), "run.json")
			command, stdout, stderr := start(t, server.Endpoint(), "--json="+path+" "+line)
			await(t, server, "grpc_server_msg_received_total", "Watch", 1000)
			command.Process.Signal(syscall.SIGSTOP)
			time.Sleep(200 * time.Millisecond)
			created := metric(t, server, "grpc_server_msg_received_total", "Watch")
			server.Kill()
			server.Run()
			command.Process.Signal(syscall.SIGCONT)
			if err := end(t, command, 3*time.Minute); err != nil {
				t.Fatalf("%s: %v\n%s%s", line, err, stdout, stderr)
			}
			last := readLast(t, path)
			if last.Succeeded != watchers {
				t.Errorf("%s: %d watchers, %+v\n%s", line, created, last, stderr)
			}
			if created >= watchers || !strings.Contains(stderr.String(), "are resumed") {
				return fmt.Errorf("%s: %d watchers, %+v\n%s", line, created, last, stderr)
			}
			return nil
		})
	}
}

// Puts that were due too fast are not made, and what was made is heard of.
func TestPutsThatAreNotMade(t *testing.T) {
	server := harness.Start(t, harness.Subject())
	path := filepath.Join(t.TempDir(), "run.json")
	line := "--json=" + path + " --duration=2s watch --put-rate=100000 --put-total=1000000 --streams=2 --watch-per-stream=2"
	result := run(t, ours(t), server.Endpoint(), line)
	if result.Code != 0 || !strings.Contains(result.Stderr, "puts were due before the end and not sent") {
		t.Fatalf("exit %d\n%s%s", result.Code, result.Stdout, result.Stderr)
	}
	puts := metric(t, server, "grpc_server_started_total", "Put")
	if last := readLast(t, path); last.Succeeded != 4*puts || puts == 0 {
		t.Errorf("%d puts, %+v", puts, last)
	}
}

// A path that cannot be written is refused before anything is measured.
func TestReportsThatCannotBeWritten(t *testing.T) {
	server := harness.Start(t, harness.Subject())
	result := run(t, ours(t), server.Endpoint(), "--json=/nonexistent/run.json put --total=5")
	if result.Code != 1 || result.Stdout != "" || !strings.Contains(result.Stderr, "cannot write `/nonexistent/run.json`") {
		t.Errorf("exit %d\n%s%s", result.Code, result.Stdout, result.Stderr)
	}
	if puts := metric(t, server, "grpc_server_started_total", "Put"); puts != 0 {
		t.Errorf("%d puts", puts)
	}
}

// report is what matters here of a line of a file of reports.
type report struct {
	Requests, Succeeded, Unsent int
	Failed                      map[string]int
	Seconds                     float64
}

func readReports(t *testing.T, path string) (reports []report) {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(content)) {
		var one report
		if err := json.Unmarshal([]byte(line), &one); err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		reports = append(reports, one)
	}
	return reports
}

// Tokens that a server does not know any more are replaced: each client has
// one refusal. Cairn's outlive a restart, etcd's do not.
func TestTokensThatAreForgotten(t *testing.T) {
	server := harness.Start(t, harness.Etcd)
	for _, args := range []string{"user add root:secret", "user grant-role root root", "auth enable"} {
		server.MustCtl(strings.Fields(args)...)
	}
	command, stdout, stderr := start(t, server.Endpoint(), "--user=root:secret --conns=4 --clients=20 put --total=100000000")
	awaitCalls(t, server, "Put", 50)
	// A login that is not in the database yet would be done again.
	time.Sleep(time.Second)
	server.Kill()
	server.Run()
	awaitCalls(t, server, "Put", 200)
	command.Process.Signal(os.Interrupt)
	command.Wait()
	refused := 0
	if found := regexp.MustCompile(`\[(\d+)\]\t.*invalid auth token`).FindStringSubmatch(stdout.String()); found != nil {
		refused, _ = strconv.Atoi(found[1])
	}
	if puts := metric(t, server, "grpc_server_started_total", "Put"); refused < 1 || refused > 20 || puts < 200 || command.ProcessState.ExitCode() != 130 {
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
		before := calls(t, server)
		command, stdout, stderr := start(t, server.Endpoint(), line)
		// It may be long in starting.
		for deadline := time.Now().Add(time.Minute); calls(t, server) == before && time.Now().Before(deadline); {
			time.Sleep(20 * time.Millisecond)
		}
		time.Sleep(1500 * time.Millisecond)
		if command.Process.Signal(syscall.SIGINT); command.Wait() == nil || command.ProcessState.ExitCode() != 130 {
			t.Errorf("%s: exit %d\n%s", line, command.ProcessState.ExitCode(), stderr)
		}
		// The puts before `watch-get` may still be under way.
		if !strings.Contains(stdout.String(), "Requests/sec") && !strings.Contains(stderr.String(), "cannot put: ") {
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
		result := harness.Command{Path: tool, Args: args, Max: 10 * time.Second}.Run(t)
		if result.Code != -1 || result.Stdout != "" || !strings.Contains(result.Stderr, "certificate") {
			t.Errorf("%s: exit %d\n%s%s", name, result.Code, result.Stdout, result.Stderr)
		}
	}
}
