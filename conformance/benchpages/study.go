package benchpages

import (
	"encoding/json"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"cairn.dev/conformance/harness"
)

// studyMax is how long one command may take: the machine may do something else meanwhile.
const studyMax = 5 * time.Minute

// run is what matters here of the file of a run.
type run struct {
	Format   string
	Version  int
	Kind     string
	Finished *string
	Command  []string
	Sides    []struct {
		Name, Version, Cluster string
		Members                []struct{ Name string }
	}
	Rows []row
}

type row struct {
	Table      string
	Parameters json.RawMessage
	Result     struct {
		State, Reason               string
		Requests, Succeeded, Unsent int64
		Errors                      map[string]int64
		Rate                        float64
		LatencyUs                   *struct{ Mean, P50, P90, P99, P999, Max float64 } `json:"latency_us"`
		ServerCPU                   *float64                                          `json:"server_cpu_us"`
		ServerMemory                *int64                                            `json:"server_memory_bytes"`
	}
}

// bench runs `cairn bench` to its end.
func bench(t testing.TB, args ...string) harness.Result {
	t.Helper()
	return harness.Command{Path: harness.CairnBinary(t), Args: append([]string{"bench"}, args...), Max: studyMax}.Run(t)
}

// mustBench is bench for commands that must end with the code; it returns what they printed.
func mustBench(t testing.TB, code int, args ...string) string {
	t.Helper()
	result := bench(t, args...)
	if result.Code != code {
		t.Fatalf("cairn bench %s: exit %d, not %d\n%s%s", strings.Join(args, " "), result.Code, code, result.Stdout, result.Stderr)
	}
	return result.Stdout + result.Stderr
}

// interruptedBench sends SIGINT once the file has some rows; it returns what was printed. The command must end with 130.
func interruptedBench(t testing.TB, path string, rows int, args ...string) string {
	t.Helper()
	command := exec.Command(harness.CairnBinary(t), append([]string{"bench"}, args...)...)
	command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	var output strings.Builder
	command.Stdout, command.Stderr = &output, &output
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	waitForRows(t, path, rows)
	command.Process.Signal(syscall.SIGINT)
	command.Wait()
	if code := command.ProcessState.ExitCode(); code != 130 {
		t.Fatalf("interrupted: exit %d\n%s", code, output.String())
	}
	return output.String()
}

// waitForRows waits until the file has so many.
func waitForRows(t testing.TB, path string, rows int) {
	t.Helper()
	for deadline := time.Now().Add(studyMax); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		if _, err := os.Stat(path); err == nil && len(readRun(t, path).Rows) >= rows {
			return
		}
	}
	t.Fatalf("there are not %d rows in the file", rows)
}

// readRun reads a file, which at every moment has to be whole.
func readRun(t testing.TB, path string) run {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var r run
	if err := json.Unmarshal(content, &r); err != nil {
		t.Fatalf("%v\n%s", err, content)
	}
	if r.Format != "cairn-bench-run" || r.Version != 1 {
		t.Fatalf("format %q, version %d", r.Format, r.Version)
	}
	return r
}
