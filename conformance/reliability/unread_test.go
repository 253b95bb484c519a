package reliability

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"cairn.dev/conformance/harness"
)

// metric is one sample of the server's page; labels as they stand there, braces
// included. The page must have the metric; zero if it has no sample with these
// labels yet.
func metric(t testing.TB, server *harness.Server, name, labels string) int {
	t.Helper()
	response, err := http.Get(server.URL("/metrics"))
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	page, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile("(?m)^" + regexp.QuoteMeta(name+labels) + ` (\d+)`).FindSubmatch(page)
	if found == nil {
		if !strings.Contains(string(page), "# TYPE "+name+" ") {
			t.Fatalf("the page has no metric %s", name)
		}
		return 0
	}
	value, _ := strconv.Atoi(string(found[1]))
	return value
}

// onlyOurs skips a test of bounds that the genuine server does not have.
func onlyOurs(t *testing.T) {
	t.Helper()
	if harness.Subject() == harness.Etcd {
		t.Skip("the bounds are ours")
	}
}

// TestUnreadTxns lets a hundred connections ask for ten transactions each, of
// nearly 128 ranges, and read nothing. Whole, the answers would take 4 GB.
func TestUnreadTxns(t *testing.T) {
	onlyOurs(t)
	const connections, streams, values, valueBytes = 100, 10, 127, 32_768
	server := harness.Start(t, harness.Subject())
	fillValues(t, server, "big/", values, valueBytes)
	for _, row := range []struct {
		name     string
		growthMB int
		first    *pb.RequestOp
	}{
		// Their pairs are copied as they are read, like those of a range: each of the thousand holds a window of 64 KiB and the places
		// of its pairs. 101 MB were seen.
		{"that only read", 128, nil},
		// These are answered when they are applied: what they take is claimed before, and of a host's share there is a half.
		{"that write", 448, &pb.RequestOp{Request: &pb.RequestOp_RequestPut{RequestPut: &pb.PutRequest{Key: []byte("written")}}}},
	} {
		t.Run(row.name, func(t *testing.T) {
			txn := &pb.TxnRequest{}
			if row.first != nil {
				txn.Success = append(txn.Success, row.first)
			}
			for number := range values {
				get := &pb.RangeRequest{Key: fmt.Appendf(nil, "big/%06d", number)}
				txn.Success = append(txn.Success, &pb.RequestOp{Request: &pb.RequestOp_RequestRange{RequestRange: get}})
			}
			time.Sleep(time.Second)
			before := memoryMB(t, server)
			peak := peakMemory(t, server)
			var calls []*crowdConn
			for range connections {
				crowd := crowd(t, server.Endpoint(), "/etcdserverpb.KV/Txn", txn)
				defer crowd.conn.Close()
				crowd.begin(t, streams)
				calls = append(calls, crowd)
			}
			// A good client goes on beside them.
			client := server.Client()
			for count := range 60 {
				ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
				if _, err := client.Put(ctx, "good", fmt.Sprint(count)); err != nil {
					t.Errorf("put %d beside it: %v", count, err)
				}
				if got, err := client.Get(ctx, "good"); err != nil || string(got.Kvs[0].Value) != fmt.Sprint(count) {
					t.Errorf("get %d beside it: %v, %v", count, got, err)
				}
				cancel()
				time.Sleep(50 * time.Millisecond)
			}
			held := func() int { return metric(t, server, "cairn_budget_held_bytes", `{pool="long_answers"}`) }
			if held() == 0 {
				t.Error("what they take is not counted")
			}
			checkGrowth(t, fmt.Sprintf("%d unread transactions of %d ranges, %s", connections*streams, values, row.name), before, peak(), row.growthMB)
			for _, call := range calls {
				call.conn.Close()
			}
			await(t, "what they held is free", func() bool { return held() == 0 })
			// And one that reads gets all of it.
			one := call(t, server.Endpoint(), "/etcdserverpb.KV/Txn", txn, false)
			if bytes, err := one.drain(2 * time.Minute); err != nil || bytes < values*valueBytes {
				t.Errorf("one that reads: %d bytes, %v", bytes, err)
			}
		})
	}
}

// begin sends so many requests without reading their answers.
func (c *crowdConn) begin(t testing.TB, streams int) {
	t.Helper()
	var out []byte
	for range streams {
		out = appendFrame(out, 1, 4, c.next, c.headers)
		rest := c.body
		for len(rest) > 16384 {
			out = appendFrame(out, 0, 0, c.next, rest[:16384])
			rest = rest[16384:]
		}
		out = appendFrame(out, 0, 1, c.next, rest)
		c.next += 2
	}
	if _, err := c.conn.Write(out); err != nil {
		t.Fatal(err)
	}
}

// TestSilentSnapshots opens nine snapshot streams without a request in them:
// nobody else's backup has to wait for that.
func TestSilentSnapshots(t *testing.T) {
	onlyOurs(t)
	server := harness.Start(t, harness.Subject(), "--client-body-timeout=2s")
	client := server.Client()
	if _, err := client.Put(context.Background(), "key", strings.Repeat("x", 1000)); err != nil {
		t.Fatal(err)
	}
	conn, err := net.Dial("tcp", server.Endpoint())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	out := greeting()
	for stream := range uint32(9) {
		out = appendFrame(out, 1, 4, 2*stream+1, headerBlock(server.Endpoint(), "/etcdserverpb.Maintenance/Snapshot"))
	}
	if _, err := conn.Write(out); err != nil {
		t.Fatal(err)
	}
	await(t, "nine open streams", func() bool {
		return metric(t, server, "grpc_server_started_total",
			`{grpc_type="server_stream",grpc_service="etcdserverpb.Maintenance",grpc_method="Snapshot"}`) == 9
	})
	reader, err := client.Snapshot(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	if bytes, err := io.Copy(io.Discard, reader); err != nil || bytes < 4096 {
		t.Errorf("a backup beside them: %d bytes, %v", bytes, err)
	}
	reader.Close()
	// And they do not last.
	await(t, "the end of the silent streams", func() bool {
		return metric(t, server, "cairn_rpc_limit_hits_total", `{limit="body_time"}`) == 9
	})
}

// TestUnreadSnapshots asks for nine snapshots and lets nothing of them through:
// another client's backup gets the place of one of them.
func TestUnreadSnapshots(t *testing.T) {
	onlyOurs(t)
	server := harness.Start(t, harness.Subject(), "--client-write-timeout=2s")
	fillValues(t, server, "big/", 128, 32_768)
	crowd := crowd(t, server.Endpoint(), "/etcdserverpb.Maintenance/Snapshot", &pb.SnapshotRequest{})
	defer crowd.conn.Close()
	// The windows of its streams are shut from now on.
	if _, err := crowd.conn.Write(appendFrame(nil, 4, 0, 0, []byte{0, 4, 0, 0, 0, 0})); err != nil {
		t.Fatal(err)
	}
	crowd.begin(t, 9)
	await(t, "all places taken", func() bool { return metric(t, server, "etcd_mvcc_db_open_read_transactions", "") == 8 })
	client := server.Client()
	backup := func() (int64, error) {
		reader, err := client.Snapshot(context.Background())
		if err != nil {
			return 0, err
		}
		defer reader.Close()
		return io.Copy(io.Discard, reader)
	}
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(200 * time.Millisecond) {
		bytes, err := backup()
		if err == nil && bytes > 4<<20 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("a backup beside them: %d bytes, %v", bytes, err)
		}
	}
	if ended := metric(t, server, "cairn_snapshots_ended_total", ""); ended != 1 {
		t.Errorf("%d snapshots were ended for one that wanted a place", ended)
	}
	// The others go in the end although nobody wants their places, and what they keep with them.
	await(t, "the end of the others", func() bool {
		return metric(t, server, "etcd_mvcc_db_open_read_transactions", "") == 0
	})
	if ended := metric(t, server, "cairn_snapshots_ended_total", ""); ended != 8 {
		t.Errorf("%d of 8 snapshots were ended", ended)
	}
	checkAlive(t, server)
}

// TestJobsNobodyWaitsFor asks for many hashes of the whole store and goes away:
// what has not begun by then never does, and what has is given up.
func TestJobsNobodyWaitsFor(t *testing.T) {
	onlyOurs(t)
	const jobs = 200
	server := harness.Start(t, harness.Subject())
	fillValues(t, server, "big/", 4_000, 32_768)
	crowd := crowd(t, server.Endpoint(), "/etcdserverpb.Maintenance/HashKV", &pb.HashKVRequest{})
	crowd.begin(t, jobs)
	depth := func() int { return metric(t, server, "cairn_queue_depth", `{class="slow"}`) }
	await(t, "jobs that wait", func() bool { return depth() > jobs/2 })
	waiting := depth()
	crowd.conn.Close()
	await(t, "an empty queue", func() bool { return depth() == 0 })
	canceled := metric(t, server, "cairn_slow_jobs_canceled_total", "")
	t.Logf("%d of %d jobs were given up", canceled, jobs)
	if canceled == 0 {
		t.Errorf("%d jobs waited when their client went, %d were given up", waiting, canceled)
	}
	checkAlive(t, server)
}
