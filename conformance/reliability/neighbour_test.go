package reliability

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"cairn.dev/conformance/harness"
)

// load runs cairn-bench over all keys, and returns the latencies in
// microseconds. The one who measures is a process of its own, so that the
// test's own work does not count as latency.
func load(t testing.TB, kind string, server *harness.Server, keys int, arguments ...any) map[string]float64 {
	t.Helper()
	// Keys of 16 digits: seven are the same for all.
	command := exec.Command(os.Getenv("CAIRN_BENCH"), kind, "--endpoints", server.Endpoint(),
		"--key", "0000000", "--keys", fmt.Sprint(keys), "--scattered", "true")
	for _, argument := range arguments {
		command.Args = append(command.Args, fmt.Sprint(argument))
	}
	output, err := command.Output()
	if err != nil {
		t.Fatalf("%v: %v\n%s", command.Args, err, output)
	}
	var result struct {
		Latency map[string]float64 `json:"latency_us"`
	}
	if err := json.Unmarshal(output, &result); err != nil {
		t.Fatal(err)
	}
	return result.Latency
}

// TestNeighbours measures one client's reads and puts while another repeats
// the most expensive requests there are: its p99 may at most double. Under
// NEIGHBOUR_FLOOR_US a p99 is as good as none, whatever it was before: the
// machine that runs this has other things to do. CAIRN_BENCH is cairn-bench
// (make neighbours).
//
// The data is in memory, and the quiet p99 is taken anew before each hostile
// client: a disk that others write to would otherwise decide the test.
func TestNeighbours(t *testing.T) {
	keys := harness.Number(t, "NEIGHBOUR_KEYS", 100_000)
	floorUs := float64(harness.Number(t, "NEIGHBOUR_FLOOR_US", 1_000))
	milliseconds := harness.Number(t, "NEIGHBOUR_MS", 1_000)

	if os.Getenv("CAIRN_BENCH") == "" {
		t.Fatal("CAIRN_BENCH names no cairn-bench: run `make neighbours`")
	}
	server := harness.Prepare(t, harness.Subject(), memoryDir(t), "--quota-backend-bytes=8589934592")
	server.Run()
	load(t, "put", server, keys, "--requests", keys, "--connections", 100, "--streams", 10)
	probe := func(kind string) float64 {
		return load(t, kind, server, keys, "--seconds", float64(milliseconds)/1000)["p99"]
	}
	kinds := []string{"range", "put"}
	for number, hostile := range hostiles(keys) {
		if only := os.Getenv("NEIGHBOUR"); !strings.Contains(hostile.name, only) {
			continue
		}
		quiet := map[string]float64{}
		for _, kind := range kinds {
			quiet[kind] = probe(kind)
		}
		stop := start(t, server, number, keys)
		time.Sleep(300 * time.Millisecond)
		for _, kind := range kinds {
			p99 := probe(kind)
			t.Logf("%-40s %s p99 %7.0f us, quiet %7.0f us: %5.1fx", hostile.name, kind, p99, quiet[kind], p99/quiet[kind])
			if harness.Subject() == harness.Cairn && p99 > max(2*quiet[kind], floorUs) {
				t.Errorf("%s raises the p99 of a neighbour's %s from %.0f us to %.0f us", hostile.name, kind, quiet[kind], p99)
			}
		}
		times := stop()
		t.Logf("%-40s was asked %d times", hostile.name, times)
		if times == 0 {
			t.Errorf("%s was never asked: the test has proved nothing", hostile.name)
		}
	}
	checkAlive(t, server)
}

// memoryDir is a directory on a tmpfs where the machine has one.
func memoryDir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "cairn-reliability-")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return filepath.Join(dir, "data")
}
