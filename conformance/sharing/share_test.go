// Package sharing is about clients that share a member, and `--client-share`.
package sharing

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/zap"
	"google.golang.org/grpc"

	clientv3 "go.etcd.io/etcd/client/v3"

	"cairn.dev/conformance/harness"
)

// clientFrom is a client with an address of its own.
func clientFrom(t testing.TB, address, endpoint string) *clientv3.Client {
	t.Helper()
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(address)}}
	dial := func(ctx context.Context, target string) (net.Conn, error) {
		return dialer.DialContext(ctx, "tcp", strings.TrimPrefix(target, "http://"))
	}
	client, err := clientv3.New(clientv3.Config{
		Endpoints: []string{endpoint}, DialTimeout: 10 * time.Second, Logger: zap.NewNop(),
		DialOptions: []grpc.DialOption{grpc.WithContextDialer(dial)},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	return client
}

// metric is a number of the member's page.
func metric(t testing.TB, server *harness.Server, name string) int {
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
	for line := range strings.Lines(string(page)) {
		if value, found := strings.CutPrefix(line, name+" "); found {
			number, err := strconv.Atoi(strings.TrimSpace(value))
			if err != nil {
				t.Fatal(err)
			}
			return number
		}
	}
	t.Fatalf("no %s:\n%s", name, page)
	return 0
}

func fill(t testing.TB, client *clientv3.Client, keys int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for key := 0; key < keys; {
		var puts []clientv3.Op
		for ; key < keys && len(puts) < 100; key++ {
			puts = append(puts, clientv3.OpPut(fmt.Sprintf("list/%08d", key), strings.Repeat("v", 100)))
		}
		if _, err := client.Txn(ctx).Then(puts...).Commit(); err != nil {
			t.Fatal(err)
		}
	}
}

// A client that lists everything without a pause waits once somebody else is
// there, and gets right answers all the same: ranges, and ranges in a stream.
// Whoever else calls is answered, and a client that is alone never waits.
func TestClientShare(t *testing.T) {
	if harness.Subject() != harness.Cairn {
		t.Skip("the flag is Cairn's own")
	}
	const keys, listers = 3_000, 16
	server := harness.Start(t, harness.Cairn, "--client-share=1")
	fill(t, server.Client(), keys)
	waits := func() int { return metric(t, server, "cairn_client_share_waits_total") }
	// The client above is forgotten after a second.
	time.Sleep(1500 * time.Millisecond)
	before := waits()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	stop := make(chan struct{})
	var running sync.WaitGroup
	greedy := clientFrom(t, "127.0.0.2", server.Endpoint())
	list := func(lister int) error {
		if lister%2 == 0 {
			got, err := greedy.Get(ctx, "list/", clientv3.WithPrefix())
			if err == nil && got.Count != keys {
				err = fmt.Errorf("%d keys", got.Count)
			}
			return err
		}
		chunks, err := greedy.GetStream(ctx, "list/", clientv3.WithPrefix())
		if err != nil {
			return err
		}
		count := 0
		for chunk := range chunks {
			if err := chunk.Err(); err != nil {
				return err
			}
			count += len(chunk.Kvs)
		}
		if count != keys {
			return fmt.Errorf("%d keys", count)
		}
		return nil
	}
	for lister := range listers {
		running.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				if err := list(lister); err != nil {
					t.Errorf("a list: %v", err)
					return
				}
			}
		})
	}
	time.Sleep(time.Second)
	if alone := waits(); alone != before {
		t.Errorf("a client that is alone has waited %v times", alone-before)
	}
	other := clientFrom(t, "127.0.0.3", server.Endpoint())
	for deadline := time.Now().Add(time.Minute); ; {
		if _, err := other.Put(ctx, "other", "v"); err != nil {
			t.Fatal(err)
		}
		if got, err := other.Get(ctx, "other"); err != nil || got.Count != 1 {
			t.Fatal(got, err)
		}
		if waits()-before > 100 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("calls have waited %v times", waits()-before)
		}
	}
	close(stop)
	running.Wait()
	// The page is made 50 times a second at most, and was asked for more often.
	depth := func() int { return metric(t, server, `cairn_queue_depth{class="shares"}`) }
	for deadline := time.Now().Add(time.Minute); depth() != 0; time.Sleep(50 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%v calls wait for nothing", depth())
		}
	}
}
