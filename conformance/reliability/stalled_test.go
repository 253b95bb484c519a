package reliability

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"cairn.dev/conformance/harness"
)

// What clients that do not read may cost the server, all together.
const stalledGrowthMB = 64

// patient has Cairn keep clients that take nothing for longer than any of this
// takes; it ends them after 20 s otherwise.
func patient() []string {
	if harness.Subject() != harness.Cairn {
		return nil
	}
	return []string{"--client-write-timeout=10m"}
}

// fillValues puts count values under the prefix, 32 at a time.
func fillValues(t testing.TB, server *harness.Server, prefix string, count, valueBytes int) {
	t.Helper()
	const writers = 32
	client := server.Client()
	value := strings.Repeat(fmt.Sprintf("%016x", rand.Uint64()), valueBytes/16)
	next, failed := make(chan int), make(chan error, writers)
	for range writers {
		go func() {
			var err error
			for n := range next {
				if err == nil {
					_, err = client.Put(context.Background(), fmt.Sprintf("%s%06d", prefix, n), value)
				}
			}
			failed <- err
		}()
	}
	for n := range count {
		next <- n
	}
	close(next)
	for range writers {
		if err := <-failed; err != nil {
			t.Fatal(err)
		}
	}
}

// checkKernelQueues looks at what the kernel keeps for the connections of a
// server's client port: the whole machine, its members' connections included,
// shares what there is for TCP.
func checkKernelQueues(t testing.TB, server *harness.Server, stalled int) {
	t.Helper()
	waiting, largest := kernelQueues(t, server)
	// A busy server may not have written so much yet.
	for deadline := time.Now().Add(time.Minute); waiting < stalled && time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		waiting, largest = kernelQueues(t, server)
	}
	t.Logf("the kernel keeps up to %d KiB for a connection, more than 64 for %d", largest>>10, waiting)
	if waiting < stalled {
		t.Errorf("%d connections have something to be sent, %d clients read nothing", waiting, stalled)
	}
	if harness.Subject() == harness.Cairn && largest > 768<<10 {
		t.Errorf("the kernel keeps %d KiB for a connection", largest>>10)
	}
}

// kernelQueues are how many connections of the port have more than 64 KiB to be
// sent, and the most that one of them has.
func kernelQueues(t testing.TB, server *harness.Server) (waiting int, largest int64) {
	t.Helper()
	table, err := os.ReadFile("/proc/net/tcp")
	if err != nil {
		t.Fatal(err)
	}
	address, err := net.ResolveTCPAddr("tcp", server.Endpoint())
	if err != nil {
		t.Fatal(err)
	}
	waiting, largest = 0, 0
	for _, line := range strings.Split(string(table), "\n")[1:] {
		// The number, the local and remote address, the state, what is to be sent and what is to be read, ...
		fields := strings.Fields(line)
		if len(fields) < 5 || !strings.HasSuffix(fields[1], fmt.Sprintf(":%04X", address.Port)) {
			continue
		}
		unsent, _, _ := strings.Cut(fields[4], ":")
		bytes, err := strconv.ParseInt(unsent, 16, 64)
		if err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		if bytes > 64<<10 {
			waiting++
		}
		largest = max(largest, bytes)
	}
	return waiting, largest
}

// TestStalledRange lets ten clients ask for 50 MB each and read nothing.
func TestStalledRange(t *testing.T) {
	const clients, values = 10, 500
	server := harness.Start(t, harness.Subject(), patient()...)
	fillValues(t, server, "big/", values, 100_000)
	time.Sleep(time.Second)
	before := memoryMB(t, server)
	peak := peakMemory(t, server)
	request := &pb.RangeRequest{Key: []byte("big/"), RangeEnd: []byte("big0")}
	var calls []*rawCall
	for range clients {
		calls = append(calls, call(t, server.Endpoint(), "/etcdserverpb.KV/Range", request, false))
	}
	time.Sleep(3 * time.Second)
	checkAlive(t, server)
	checkGrowth(t, fmt.Sprintf("%d clients that ask for %d MB and do not read", clients, values/10), before, peak(), stalledGrowthMB)
	checkKernelQueues(t, server, clients)
	// The answer is still whole for one that reads at last.
	bytes, err := calls[0].drain(2 * time.Minute)
	if err != nil || bytes < values*100_000 {
		t.Errorf("the first of them reads now: %d bytes, %v", bytes, err)
	}
}

// TestStalledWatch opens ten watch streams that nobody reads while 50 MB of
// events pass, more than all buffers on the way hold. Each of them must still
// get every event when it is read at last.
func TestStalledWatch(t *testing.T) {
	const streams, values, valueBytes = 10, 10_000, 5_000
	server := harness.Start(t, harness.Subject(), patient()...)
	// A first round without watchers, for what the member keeps of any writes (the newest entries of its log).
	fillValues(t, server, "big/", values, valueBytes)
	request := &pb.WatchRequest{RequestUnion: &pb.WatchRequest_CreateRequest{
		CreateRequest: &pb.WatchCreateRequest{Key: []byte("big/"), RangeEnd: []byte("big0"), PrevKv: true},
	}}
	var calls []*rawCall
	for range streams {
		calls = append(calls, call(t, server.Endpoint(), "/etcdserverpb.Watch/Watch", request, true))
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	late := server.Client().Watch(ctx, "big/", clientv3.WithPrefix())
	// Each of them hears of what comes once it watches.
	awaitWatchers(t, server, streams+1)
	before := memoryMB(t, server)
	peak := peakMemory(t, server)
	fillValues(t, server, "big/", values, valueBytes)
	time.Sleep(2 * time.Second)
	checkAlive(t, server)
	checkGrowth(t, fmt.Sprintf("%d watch streams that nobody reads, %d MB of events", streams, values*valueBytes/1_000_000),
		before, peak(), stalledGrowthMB)

	// A watch never ends: the stalled ones are read until everything is there. With the previous value, each event comes twice.
	var reading sync.WaitGroup
	for number, call := range calls {
		reading.Add(1)
		go func() {
			defer reading.Done()
			const due = 2 * values * (valueBytes - 16)
			if bytes, err := call.drainTo(due, 5*time.Minute); bytes < due {
				t.Errorf("stream %d got %d bytes of events, at least %d are due: %v", number, bytes, due, err)
			}
		}()
	}
	reading.Wait()
	// And the one that the library reads late gets them in order.
	seen, revision := 0, int64(0)
	for response := range late {
		seen += len(response.Events)
		for _, event := range response.Events {
			if event.Kv.ModRevision <= revision {
				t.Errorf("revision %d after %d", event.Kv.ModRevision, revision)
			}
			revision = event.Kv.ModRevision
		}
		if seen == values {
			break
		}
	}
}

// checkAlive puts and gets over a new connection.
func checkAlive(t testing.TB, server *harness.Server) {
	t.Helper()
	client := server.Client()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	put, err := client.Put(ctx, "alive", "yes")
	if err != nil {
		t.Fatalf("a put beside it: %v", err)
	}
	got, err := client.Get(ctx, "alive")
	if err != nil || len(got.Kvs) != 1 || got.Kvs[0].ModRevision != put.Header.Revision {
		t.Fatalf("a get beside it: %v, %v", got, err)
	}
}
