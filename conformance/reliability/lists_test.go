package reliability

import (
	"fmt"
	"sync"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"cairn.dev/conformance/harness"
)

// What 16 clients that list the whole store may cost the server, all together,
// however large the store is.
const listsGrowthMB = 256

// TestSlowLists lets 16 clients list LIST_MB each, all at once: half of them read
// as fast as they can, half little by little at first. Each answer must be whole.
func TestSlowLists(t *testing.T) {
	const clients, valueBytes = 16, 500_000
	megabytes := harness.Number(t, "LIST_MB", 128)
	values := megabytes * 1_000_000 / valueBytes
	server := harness.Start(t, harness.Subject(), "--quota-backend-bytes=8589934592")
	fillValues(t, server, "big/", values, valueBytes)
	time.Sleep(time.Second)
	before := memoryMB(t, server)
	peak := peakMemory(t, server)
	request := &pb.RangeRequest{Key: []byte("big/"), RangeEnd: []byte("big0")}
	start := time.Now()
	var reading sync.WaitGroup
	for number := range clients {
		call := call(t, server.Endpoint(), "/etcdserverpb.KV/Range", request, false)
		reading.Go(func() {
			defer call.conn.Close()
			if number%2 == 0 {
				call.sip(16<<10, 3*time.Second)
			}
			bytes, err := call.drain(5 * time.Minute)
			if whole := int64(values) * valueBytes; err != nil || bytes < whole {
				t.Errorf("client %d got %d bytes, at least %d are due: %v", number, bytes, whole, err)
			}
		})
	}
	reading.Wait()
	t.Logf("%d lists of %d MB took %v", clients, megabytes, time.Since(start).Round(time.Millisecond))
	checkAlive(t, server)
	checkGrowth(t, fmt.Sprintf("%d clients that list %d MB each", clients, megabytes), before, peak(), listsGrowthMB)
}
