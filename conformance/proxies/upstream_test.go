package proxies

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"cairn.dev/conformance/harness"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// Where no member answers, calls end soon and say why, so that clients can go on
// elsewhere, and as soon as one answers everything is served: a watch that was
// asked for meanwhile, too.
func TestProxyWithoutMembers(t *testing.T) {
	t.Parallel()
	ctx := harness.Context(t)
	server := harness.Prepare(t, harness.Subject(), filepath.Join(t.TempDir(), "data"))
	proxy := startProxy(t, []string{server.Endpoint()})
	conn := connTo(t, proxy.address)
	kv := pb.NewKVClient(conn)
	// The genuine proxy keeps a call for as long as its client waits.
	patience, isUnreached := 300*time.Millisecond, func(err error) bool {
		return status.Code(err) == codes.Unavailable || status.Code(err) == codes.DeadlineExceeded
	}
	if harness.Subject() == harness.Cairn {
		patience, isUnreached = time.Minute, func(err error) bool {
			return status.Code(err) == codes.Unavailable && strings.Contains(err.Error(), "no member can be reached: ")
		}
	}
	call, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	var done sync.WaitGroup
	for name, ask := range map[string]func() error{
		"put": func() error {
			_, err := kv.Put(call, &pb.PutRequest{Key: []byte("a")})
			return err
		},
		"range": func() error {
			_, err := kv.Range(call, &pb.RangeRequest{Key: []byte("a")})
			return err
		},
		"serializable range": func() error {
			_, err := kv.Range(call, &pb.RangeRequest{Key: []byte("a"), Serializable: true})
			return err
		},
		"snapshot": func() error {
			stream, err := pb.NewMaintenanceClient(conn).Snapshot(call, &pb.SnapshotRequest{})
			if err == nil {
				_, err = stream.Recv()
			}
			return err
		},
	} {
		done.Go(func() {
			if err := ask(); !isUnreached(err) {
				t.Errorf("%s: %v", name, err)
			}
		})
	}
	done.Wait()
	if harness.Subject() == harness.Cairn {
		// The log is written beside the calls.
		proxy.awaitLog(t, "could not pass on a call")
	}
	watches := make(chan clientv3.WatchChan, 1)
	watcher := ownClient(t, proxy)
	go func() { watches <- watcher.Watch(ctx, "a", clientv3.WithCreatedNotify()) }()
	server.Run()
	watch := <-watches
	if created := <-watch; !created.Created || created.Err() != nil {
		t.Fatalf("%v, %v", created, created.Err())
	}
	mustPut(ctx, t, watcher, "a", "v")
	if answer := <-watch; len(answer.Events) != 1 {
		t.Errorf("%v, %v", answer, answer.Err())
	}
}

// Once members of another cluster are where those were that a proxy asked,
// nothing of the one is shown as the other's: watches end and say why.
func TestProxyOtherCluster(t *testing.T) {
	t.Parallel()
	if harness.Subject() == harness.Etcd {
		t.Skip("the genuine proxy does not notice")
	}
	ctx := harness.Context(t)
	server := harness.Start(t, harness.Subject())
	proxy := startProxy(t, []string{server.Endpoint()})
	client := clientOf(t, proxy)
	mustPut(ctx, t, client, "a", "one")
	watch := client.Watch(ctx, "a", clientv3.WithCreatedNotify())
	<-watch
	if got, err := client.Get(ctx, "a", clientv3.WithSerializable()); err != nil || len(got.Kvs) != 1 {
		t.Fatalf("%v, %v", got, err)
	}
	server.Kill()
	if err := os.RemoveAll(server.DataDir); err != nil {
		t.Fatal(err)
	}
	server.SetFlags("--initial-cluster-token=other")
	server.Run()
	for number := range 10 {
		mustPut(ctx, t, server.Client(), "a", fmt.Sprint("other ", number))
	}
	select {
	case answer := <-watch:
		if len(answer.Events) > 0 || answer.Err() == nil {
			t.Errorf("the watch of another cluster goes on with %v", answer)
		}
	case <-time.After(patience):
		t.Error("the watch of another cluster waits")
	}
	proxy.awaitLog(t, "belong to another cluster")
	for _, options := range [][]clientv3.OpOption{nil, {clientv3.WithSerializable()}} {
		if got, err := client.Get(ctx, "a", options...); err != nil || len(got.Kvs) != 1 || string(got.Kvs[0].Value) != "other 9" {
			t.Errorf("%v, %v", got, err)
		}
	}
}

// Watches that need a leader end where there is none, and others go on.
func TestProxyWithoutLeader(t *testing.T) {
	t.Parallel()
	if harness.Subject() == harness.Etcd {
		t.Skip("the genuine proxy lets it wait")
	}
	ctx := harness.Context(t)
	cluster := harness.StartCluster(t, harness.Subject(), 3, nil)
	proxy := startProxy(t, endpointsOf(cluster))
	client := ownClient(t, proxy)
	needs := client.Watch(clientv3.WithRequireLeader(ctx), "a", clientv3.WithCreatedNotify())
	plain := ownClient(t, proxy).Watch(ctx, "a", clientv3.WithCreatedNotify())
	for _, watch := range []clientv3.WatchChan{needs, plain} {
		if created := <-watch; !created.Created {
			t.Fatalf("%v, %v", created, created.Err())
		}
	}
	cluster.Members[0].Kill()
	cluster.Members[1].Kill()
	select {
	case answer := <-needs:
		if err := answer.Err(); err == nil || !strings.Contains(err.Error(), rpctypes.ErrNoLeader.Error()) {
			t.Errorf("a watch that needs a leader says %v, %v", answer, err)
		}
	case <-time.After(patience):
		t.Error("a watch that needs a leader waits without one")
	}
	cluster.Members[0].Run()
	cluster.Members[1].Run()
	writer := cluster.Client()
	await(t, "there is no leader again", func() bool {
		call, cancel := context.WithTimeout(ctx, 10*time.Second)
		defer cancel()
		_, err := writer.Txn(call).If(clientv3.Compare(clientv3.Version("a"), "=", 0)).Then(clientv3.OpPut("a", "v")).Commit()
		return err == nil
	})
	if answer := <-plain; answer.Err() != nil || len(answer.Events) != 1 {
		t.Errorf("a watch that needs none says %v, %v", answer, answer.Err())
	}
}

// A member that lags far behind shows nothing older than what was shown before
// with --experimental-serializable-ordering, and does without.
func TestProxyOrdersReadsOfALaggard(t *testing.T) {
	t.Parallel()
	ctx := harness.Context(t)
	server := harness.Start(t, harness.Subject())
	mustPut(ctx, t, server.Client(), "a", "old")
	server.Stop()
	older := filepath.Join(t.TempDir(), "older")
	if err := os.CopyFS(older, os.DirFS(server.DataDir)); err != nil {
		t.Fatal(err)
	}
	server.Run()
	laggard := harness.Prepare(t, harness.Subject(), older)
	laggard.Run()
	last := mustPut(ctx, t, server.Client(), "a", "new")
	endpoints := []string{laggard.Endpoint(), server.Endpoint()}
	asked := 0
	read := func(client *clientv3.Client) int64 {
		t.Helper()
		// Not the same read twice: answers may be given again.
		asked++
		got, err := client.Get(ctx, fmt.Sprint("none", asked), clientv3.WithSerializable())
		if err != nil {
			t.Fatal(err)
		}
		return got.Header.Revision
	}
	plain, seen := clientOf(t, startProxy(t, endpoints)), map[int64]bool{}
	await(t, "without the flag one of the two members is not asked", func() bool {
		seen[read(plain)] = true
		return seen[last] && seen[last-1]
	})
	client := clientOf(t, startProxy(t, endpoints, "--experimental-serializable-ordering"))
	await(t, "the newer revision is not shown", func() bool { return read(client) == last })
	for range 30 {
		if revision := read(client); revision != last {
			t.Errorf("revision %d after %d", revision, last)
		}
	}
	server.Kill()
	// The one that is left is further back.
	await(t, "older data is shown, or nothing is said", func() bool {
		call, cancel := context.WithTimeout(ctx, 5*time.Second)
		defer cancel()
		got, err := client.Get(call, "a", clientv3.WithSerializable())
		if err == nil && got.Header.Revision < last {
			t.Fatalf("revision %d after %d", got.Header.Revision, last)
		}
		return err != nil && strings.Contains(err.Error(), "no cluster members have a revision higher")
	})
	server.Run()
}
