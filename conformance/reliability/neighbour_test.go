package reliability

import (
	"encoding/json"
	"fmt"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/protobuf/proto"

	"cairn.dev/conformance/harness"
)

// buildLoadgen builds the generator of this module: the one who measures is a
// process of its own, so that the test's own work does not count as latency.
func buildLoadgen(t testing.TB) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "loadgen")
	if output, err := exec.Command("go", "build", "-o", path, "cairn.dev/conformance/loadgen").CombinedOutput(); err != nil {
		t.Fatalf("build loadgen: %v\n%s", err, output)
	}
	return path
}

// loadgen runs the generator and returns the latencies in microseconds.
func loadgen(t testing.TB, path, kind string, server *harness.Server, arguments ...any) map[string]float64 {
	t.Helper()
	command := exec.Command(path, kind, "--address", server.Endpoint())
	for _, argument := range arguments {
		command.Args = append(command.Args, fmt.Sprint(argument))
	}
	output, err := command.Output()
	if err != nil {
		t.Fatalf("loadgen %v: %v", command.Args, err)
	}
	var result struct {
		Failed  int                `json:"failed"`
		Latency map[string]float64 `json:"latency_us"`
	}
	if err := json.Unmarshal(output, &result); err != nil {
		t.Fatal(err)
	}
	if result.Failed > 0 {
		t.Errorf("%d requests of loadgen %s failed", result.Failed, kind)
	}
	return result.Latency
}

// hostile is a request that one client repeats without pause.
type hostile struct {
	name    string
	path    string
	message proto.Message
	// bytesMin is what a whole answer has at least; 0: an error is an answer too.
	bytesMin int64
}

func hostiles(keys int) []hostile {
	const rangePath, txnPath = "/etcdserverpb.KV/Range", "/etcdserverpb.KV/Txn"
	all := func(change func(*pb.RangeRequest)) *pb.RangeRequest {
		request := &pb.RangeRequest{Key: []byte{0}, RangeEnd: []byte{0}}
		change(request)
		return request
	}
	byValue := func(r *pb.RangeRequest) {
		r.SortTarget, r.SortOrder = pb.RangeRequest_VALUE, pb.RangeRequest_DESCEND
	}
	return []hostile{
		{"the list of all keys", rangePath, all(func(*pb.RangeRequest) {}), int64(keys) * 272},
		{"the list of all keys, sorted by value", rangePath, all(byValue), int64(keys) * 272},
		{"the ten highest values", rangePath, all(func(r *pb.RangeRequest) { byValue(r); r.Limit = 10 }), 10 * 272},
		{"a filter that no key passes", rangePath, all(func(r *pb.RangeRequest) { r.MinModRevision = 1 << 60 }), 1},
		{"a count at an old revision", rangePath, all(func(r *pb.RangeRequest) { r.CountOnly, r.Revision = true, int64(keys)/2 }), 1},
		{"a count under a limit", rangePath, all(func(r *pb.RangeRequest) { r.Limit = 1 }), 1},
		{"10 MB of nested transactions", txnPath, nestedTxn(10 << 20), 0},
		{"1 MB of nested transactions", txnPath, nestedTxn(1 << 20), 0},
	}
}

// nestedTxn packs transactions into one another until they have that size.
// Each level holds a little less than its parent, so depth costs what width
// would.
func nestedTxn(bytes int) *pb.TxnRequest {
	filler := make([]byte, 8<<10)
	txn := &pb.TxnRequest{}
	for size := 0; size < bytes; size += len(filler) + 32 {
		put := &pb.RequestOp{Request: &pb.RequestOp_RequestPut{RequestPut: &pb.PutRequest{Key: []byte("nested"), Value: filler}}}
		inner := &pb.RequestOp{Request: &pb.RequestOp_RequestTxn{RequestTxn: txn}}
		txn = &pb.TxnRequest{Success: []*pb.RequestOp{put}, Failure: []*pb.RequestOp{inner}}
	}
	return txn
}

// repeat sends the request again and again, each time on a connection of its
// own, until stop is closed. It returns how often.
func (h hostile) repeat(t testing.TB, server *harness.Server, stop <-chan struct{}) (times int) {
	for {
		select {
		case <-stop:
			return times
		default:
		}
		call := call(t, server.Endpoint(), h.path, h.message, false)
		bytes, err := call.drain(60 * time.Second)
		call.conn.Close()
		if h.bytesMin > 0 && (err != nil || bytes < h.bytesMin) {
			t.Errorf("%s: %d bytes (at least %d are due), %v", h.name, bytes, h.bytesMin, err)
			return times
		}
		times++
	}
}

// TestNeighbours measures one client's reads and puts while another repeats
// the most expensive requests there are: its p99 may at most double. Under
// NEIGHBOUR_FLOOR_US a p99 is as good as none, whatever it was before: the
// machine that runs this has other things to do.
func TestNeighbours(t *testing.T) {
	keys := size(t, "NEIGHBOUR_KEYS", 100_000)
	floorUs := float64(size(t, "NEIGHBOUR_FLOOR_US", 5_000))
	milliseconds := size(t, "NEIGHBOUR_MS", 1_500)

	generator := buildLoadgen(t)
	server := harness.Start(t, harness.Subject(), "--quota-backend-bytes=8589934592")
	loadgen(t, generator, "put", server, "--total", keys, "--keys", keys)
	probe := func(kind string) float64 {
		return loadgen(t, generator, kind, server, "--connections", 1, "--streams", 1, "--keys", keys,
			"--total", 10_000_000, "--seconds", float64(milliseconds)/1000)["p99"]
	}
	kinds := []string{"get", "put"}
	quiet := map[string]float64{}
	for _, kind := range kinds {
		quiet[kind] = probe(kind)
	}
	for _, hostile := range hostiles(keys) {
		stop := make(chan struct{})
		var running sync.WaitGroup
		running.Add(1)
		times := 0
		go func() {
			defer running.Done()
			times = hostile.repeat(t, server, stop)
		}()
		time.Sleep(200 * time.Millisecond)
		for _, kind := range kinds {
			p99 := probe(kind)
			t.Logf("%-40s %s p99 %7.0f us, quiet %7.0f us: %5.1fx", hostile.name, kind, p99, quiet[kind], p99/quiet[kind])
			if harness.Subject() == harness.Cairn && p99 > max(2*quiet[kind], floorUs) {
				t.Errorf("%s raises the p99 of a neighbour's %s from %.0f us to %.0f us", hostile.name, kind, quiet[kind], p99)
			}
		}
		close(stop)
		running.Wait()
		t.Logf("%-40s was answered %d times", hostile.name, times)
		if times == 0 {
			t.Errorf("%s was never answered: the test has proved nothing", hostile.name)
		}
	}
	t.Logf("memory at the end: %d MB", memoryMB(t, server))
	checkAlive(t, server)
}
