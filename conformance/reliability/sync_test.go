package reliability

import (
	"bytes"
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	clientv3 "go.etcd.io/etcd/client/v3"

	"cairn.dev/conformance/harness"
)

// startTraced starts a server whose log of writes is in a directory of its own.
func startTraced(t *testing.T, flags ...string) (server *harness.Server, walDir string) {
	t.Helper()
	walDir = filepath.Join(t.TempDir(), "wal")
	return harness.Start(t, harness.Subject(), append(flags, "--wal-dir="+walDir)...), walDir
}

// putAll sends count puts over a connection of its own, `parallel` at a time.
// Values are `value-N.`, N from first on. It returns how many were
// acknowledged.
func putAll(server *harness.Server, first, count, parallel int) int {
	client := pb.NewKVClient(server.Conn())
	var (
		waiting sync.WaitGroup
		mutex   sync.Mutex
		done    int
		next    = make(chan int)
	)
	for range parallel {
		waiting.Add(1)
		go func() {
			defer waiting.Done()
			for n := range next {
				ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
				_, err := client.Put(ctx, &pb.PutRequest{Key: fmt.Appendf(nil, "key-%d", n), Value: marker(n)})
				cancel()
				if err == nil {
					mutex.Lock()
					done++
					mutex.Unlock()
				}
			}
		}()
	}
	for n := first; n < first+count; n++ {
		next <- n
	}
	close(next)
	waiting.Wait()
	return done
}

func marker(n int) []byte { return fmt.Appendf(nil, "value-%d.", n) }

// checkSynced demands for each answered put: its value was written to the log,
// and a sync that began after that write ended before the answer was sent.
func checkSynced(t testing.TB, records []syscallRecord, server *harness.Server, walDir string) (answered int) {
	t.Helper()
	writes, syncs := walCalls(records, walDir)
	located := 0
	for _, exchange := range exchanges(records, fmt.Sprint(":", server.ClientPort)) {
		at := bytes.Index(exchange.request, []byte("value-"))
		if exchange.answered == 0 || at < 0 {
			continue
		}
		answered++
		value := exchange.request[at : at+bytes.IndexByte(exchange.request[at:], '.')+1]
		from := exchange.arrived
		for _, write := range writes {
			// A log written in pages may cut the value in two: then the arrival is the bound.
			if write.end > exchange.arrived && bytes.Contains(write.data, value) {
				from, located = write.end, located+1
				break
			}
		}
		if !syncedBefore(syncs, from, exchange.answered) {
			t.Errorf("`%s` was answered before a sync of the log had ended (arrived %d, written %d, answered %d)",
				value, exchange.arrived, from, exchange.answered)
		}
	}
	if located < answered*9/10 {
		t.Errorf("only %d of %d values were found in the log's writes", located, answered)
	}
	return answered
}

// TestSyncBeforeAnswer proves with strace that one client's put is on disk when
// it is answered.
func TestSyncBeforeAnswer(t *testing.T) {
	puts := harness.Number(t, "SYNC_PUTS", 50)
	server, walDir := startTraced(t)
	trace := startTrace(t, server)
	if done := putAll(server, 0, puts, 1); done != puts {
		t.Fatalf("%d of %d puts succeeded", done, puts)
	}
	records := trace.records()
	if answered := checkSynced(t, records, server, walDir); answered != puts {
		t.Errorf("strace shows the answers of %d puts, expected %d", answered, puts)
	}
	_, syncs := walCalls(records, walDir)
	t.Logf("%d puts, %d syncs of the log", puts, len(syncs))
}

// TestSyncCheckFinds runs a server that does not sync: the check must notice.
func TestSyncCheckFinds(t *testing.T) {
	server, walDir := startTraced(t, "--unsafe-no-fsync")
	trace := startTrace(t, server)
	putAll(server, 0, 10, 1)
	check := &recorder{TB: t}
	checkSynced(check, trace.records(), server, walDir)
	if len(check.found) < 10 {
		t.Errorf("10 puts without sync, and the check found only %v", check.found)
	}
}

// TestSyncUnderLoad proves the same for many clients, who share syncs, and that
// there are as many syncs as batches: none is left out and none is idle.
func TestSyncUnderLoad(t *testing.T) {
	puts := harness.Number(t, "SYNC_LOAD_PUTS", 2000)
	const connections, parallel = 8, 8
	server, walDir := startTraced(t)
	trace := startTrace(t, server)
	var waiting sync.WaitGroup
	var mutex sync.Mutex
	done := 0
	for number := range connections {
		waiting.Add(1)
		go func() {
			defer waiting.Done()
			acknowledged := putAll(server, number*puts, puts/connections, parallel)
			mutex.Lock()
			done += acknowledged
			mutex.Unlock()
		}()
	}
	waiting.Wait()
	due := puts / connections * connections
	if done != due {
		t.Fatalf("%d of %d puts succeeded", done, due)
	}
	records := trace.records()
	if answered := checkSynced(t, records, server, walDir); answered != due {
		t.Errorf("strace shows the answers of %d puts, expected %d", answered, due)
	}
	batches, idle, syncs := countBatches(records, walDir)
	t.Logf("%d puts, %d batches, %d syncs of the log (%d idle)", due, batches, syncs, idle)
	if idle > 0 || syncs != batches {
		t.Errorf("%d batches, %d syncs, %d of them with nothing to sync", batches, syncs, idle)
	}
	if syncs*2 > due {
		t.Errorf("%d syncs for %d puts: writes that wait together must share one", syncs, due)
	}
}

// countBatches counts runs of writes to the log, and its syncs. A sync without
// a write since the one before is idle.
func countBatches(records []syscallRecord, walDir string) (batches, idle, syncs int) {
	writes, all := walCalls(records, walDir)
	previous := 0
	for _, sync := range all {
		written := false
		for _, write := range writes {
			written = written || write.end > previous && write.end < sync.begin
		}
		if written {
			batches++
		} else {
			idle++
		}
		previous = sync.begin
	}
	return batches, idle, len(all)
}

// TestSyncFailure lets one sync fail. What the disk then holds is unknown, so
// nothing may be acknowledged any more, not even if a later sync succeeds, and
// the server must end and say why. What was acknowledged before must be there.
func TestSyncFailure(t *testing.T) {
	server, walDir := startTraced(t)
	before := putAll(server, 0, 20, 1)
	if before != 20 {
		t.Fatalf("%d of 20 puts succeeded", before)
	}
	trace := startTrace(t, server, "-e", "inject=fdatasync,fsync:error=EIO:when=10")
	stop := make(chan struct{})
	var waiting sync.WaitGroup
	for number := range 4 {
		waiting.Add(1)
		go func() {
			defer waiting.Done()
			for n := 1; ; n++ {
				select {
				case <-stop:
					return
				default:
					putAll(server, n*1000+number*100_000, 20, 4)
				}
			}
		}()
	}
	code, err := server.Wait(time.Minute)
	close(stop)
	if err != nil {
		server.Kill()
		waiting.Wait()
		t.Fatalf("after a failed sync: %v\n%s", err, server.LogTail())
	}
	waiting.Wait()
	if code == 0 {
		t.Error("the exit code after a failed sync is 0")
	}
	if log := server.LogTail(); !strings.Contains(strings.ToLower(log), "input/output error") {
		t.Errorf("the log does not name the error:\n%s", log)
	}

	records := trace.records()
	failed := 0
	_, syncs := walCalls(records, walDir)
	for _, sync := range syncs {
		if sync.result < 0 && failed == 0 {
			failed = sync.end
		}
	}
	if failed == 0 {
		t.Fatal("no sync of the log failed: the test has proved nothing")
	}
	acknowledged := map[string]bool{}
	for _, exchange := range exchanges(records, fmt.Sprint(":", server.ClientPort)) {
		at := bytes.Index(exchange.request, []byte("value-"))
		if exchange.answered == 0 || at < 0 {
			continue
		}
		value := string(exchange.request[at : at+bytes.IndexByte(exchange.request[at:], '.')+1])
		acknowledged[value] = true
		// What a sync before the failed one has covered may still be on its way out.
		if exchange.answered > failed && !syncedBefore(syncs, exchange.arrived, failed) {
			t.Errorf("`%s` was acknowledged after the failed sync", value)
		}
	}

	server.Run()
	listed, err := server.Client().Get(context.Background(), "key-", clientv3.WithPrefix())
	if err != nil {
		t.Fatal(err)
	}
	present := map[string]bool{}
	for _, kv := range listed.Kvs {
		present[string(kv.Value)] = true
	}
	for value := range acknowledged {
		if !present[value] {
			t.Errorf("`%s` was acknowledged and is lost", value)
		}
	}
	t.Logf("exit code %d; %d puts acknowledged under strace, %d keys after the restart", code, len(acknowledged), len(listed.Kvs))
}

// recorder notes what an audit finds instead of failing.
type recorder struct {
	testing.TB
	found []string
}

func (r *recorder) Helper()           {}
func (r *recorder) Error(args ...any) { r.found = append(r.found, fmt.Sprint(args...)) }
func (r *recorder) Errorf(format string, args ...any) {
	r.found = append(r.found, fmt.Sprintf(format, args...))
}
