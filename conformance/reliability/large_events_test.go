package reliability

import (
	"context"
	"encoding/base64"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	electionpb "go.etcd.io/etcd/server/v3/etcdserver/api/v3election/v3electionpb"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/protobuf/proto"

	"cairn.dev/conformance/harness"
)

// The key that all of these streams hear of: it leads an election, too.
const loudKey = "loud/1"

// watchLoud watches every key of the election.
func watchLoud(prevKV, fragment bool) *pb.WatchRequest {
	return &pb.WatchRequest{RequestUnion: &pb.WatchRequest_CreateRequest{CreateRequest: &pb.WatchCreateRequest{
		Key: []byte("loud/"), RangeEnd: []byte("loud0"), PrevKv: prevKV, Fragment: fragment,
	}}}
}

// TestUnreadLargeEvents lets hundreds of streams hear of a key of a megabyte,
// and of a hundred keys that are written at once, and lets nothing of it
// through. The member may hold what --max-held-bytes allows, and a little for
// each connection. Those that are read at last get all of it.
func TestUnreadLargeEvents(t *testing.T) {
	onlyOurs(t)
	const streams, json, valueBytes, heldMB = 300, 60, 1_000_000, 64
	server := harness.Start(t, harness.Subject(), fmt.Sprintf("--max-held-bytes=%d", heldMB<<20), "--client-write-timeout=10m")
	client := server.Client()
	ctx, cancel := context.WithTimeout(context.Background(), 8*time.Minute)
	defer cancel()
	value := strings.Repeat("v", valueBytes)
	many := func(round int) {
		var ops []clientv3.Op
		for key := range 100 {
			ops = append(ops, clientv3.OpPut(fmt.Sprintf("loud/%03d", key+100), value[:valueBytes/100]))
		}
		if _, err := client.Txn(ctx).Then(ops...).Commit(); err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
	}
	put := func(round int) {
		if _, err := client.Put(ctx, loudKey, value); err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
	}
	// A first round that nobody hears of, for what the member keeps of any writes.
	for round := range 20 {
		put(round)
		many(round)
	}

	var calls []*rawCall
	for number := range streams {
		path, request := "/etcdserverpb.Watch/Watch", proto.Message(watchLoud(number%3 == 1, number%6 == 1))
		if number%3 == 2 {
			path, request = "/v3electionpb.Election/Observe", &electionpb.LeaderRequest{Name: []byte("loud")}
		}
		calls = append(calls, callAfter(t, shutGreeting(), server.Endpoint(), path, request, number%3 != 2))
	}
	body := fmt.Sprintf(`{"create_request":{"key":"%s","range_end":"%s"}}`,
		base64.StdEncoding.EncodeToString([]byte("loud/")), base64.StdEncoding.EncodeToString([]byte("loud0")))
	var texts []net.Conn
	for range json {
		conn, err := net.Dial("tcp", server.Endpoint())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		texts = append(texts, conn)
		_ = conn.(*net.TCPConn).SetReadBuffer(4 << 10)
		fmt.Fprintf(conn, "POST /v3/watch HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
	}
	// Each of them hears of what comes once it watches.
	awaitWatchers(t, server, streams+json)
	time.Sleep(time.Second)
	before := memoryMB(t, server)
	peak := peakMemory(t, server)
	const rounds = 5
	for round := range rounds {
		put(round)
		many(round)
	}
	time.Sleep(2 * time.Second)
	checkAlive(t, server)
	t.Logf("%d bytes are claimed", metric(t, server, "cairn_budget_held_bytes", `{pool="long_answers"}`))
	checkGrowth(t, fmt.Sprintf("%d streams and %d of JSON that nobody reads, %d MB of events for each", streams, json, 2*rounds),
		before, peak(), 2*heldMB)

	// Each of those that are read now gets everything. All are of one host, whose part of the memory the others must give up.
	for _, conn := range texts {
		conn.Close()
	}
	var reading sync.WaitGroup
	for number, call := range calls {
		if number%30 > 2 {
			call.conn.Close()
			continue
		}
		due := int64(2 * rounds * valueBytes)
		switch number % 3 {
		case 1:
			due *= 2
		case 2:
			// What led first, and each change of it.
			due = (1 + rounds) * valueBytes
		}
		reading.Go(func() {
			if err := call.openUp(); err != nil {
				t.Error(err)
			}
			if bytes, err := call.drainTo(due, 5*time.Minute); bytes < due {
				t.Errorf("stream %d got %d bytes of events, at least %d are due: %v", number, bytes, due, err)
			}
		})
	}
	reading.Wait()
}

// awaitWatchers waits until so many watches are there, or more.
func awaitWatchers(t testing.TB, server *harness.Server, wanted int) {
	t.Helper()
	await(t, fmt.Sprint(wanted, " watches"), func() bool { return metric(t, server, "etcd_debugging_mvcc_watcher_total", "") >= wanted })
}

// TestUnreadRangeStreams lets hundreds of clients ask for large values in
// chunks and lets nothing of them through.
func TestUnreadRangeStreams(t *testing.T) {
	onlyOurs(t)
	const streams, values, valueBytes, growthMB = 300, 20, 1_000_000, 64
	server := harness.Start(t, harness.Subject(), "--client-write-timeout=10m")
	fillValues(t, server, "big/", values, valueBytes)
	time.Sleep(time.Second)
	before := memoryMB(t, server)
	peak := peakMemory(t, server)
	request := &pb.RangeRequest{Key: []byte("big/"), RangeEnd: []byte("big0")}
	var calls []*rawCall
	for range streams {
		calls = append(calls, callAfter(t, shutGreeting(), server.Endpoint(), "/etcdserverpb.KV/RangeStream", request, false))
	}
	time.Sleep(2 * time.Second)
	checkAlive(t, server)
	checkGrowth(t, fmt.Sprintf("%d streams of large values that nobody reads", streams), before, peak(), growthMB)
	for _, call := range calls[:10] {
		if err := call.openUp(); err != nil {
			t.Fatal(err)
		}
		if bytes, err := call.drain(2 * time.Minute); err != nil || bytes < values*valueBytes {
			t.Errorf("one that reads now got %d bytes: %v", bytes, err)
		}
	}
}
