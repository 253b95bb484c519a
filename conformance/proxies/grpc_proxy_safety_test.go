package proxies

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/zap"

	"cairn.dev/conformance/harness"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// ownClient is a client of the proxy with a connection of its own.
func ownClient(t testing.TB, p *proxy) *clientv3.Client {
	t.Helper()
	client, err := clientv3.New(clientv3.Config{
		Endpoints: []string{p.address}, DialTimeout: 10 * time.Second, Logger: zap.NewNop(), MaxCallSendMsgSize: 16 << 20,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	return client
}

// What clients send while no member takes it is bounded, and so is what they ask for and do not read.
func TestProxyMemoryIsBounded(t *testing.T) {
	t.Parallel()
	if harness.Subject() == harness.Etcd {
		t.Skip("the genuine proxy has no bound")
	}
	const held, unfinished = 64 << 20, 256 << 20
	ctx := harness.Context(t)
	server := harness.Start(t, harness.Subject())
	proxy := startProxy(t, []string{server.Endpoint()}, fmt.Sprintf("--max-held-bytes=%d", held))
	value := strings.Repeat("v", 1<<20)
	for number := range 32 {
		if _, err := server.Client().Put(ctx, fmt.Sprintf("big%d", number), value); err != nil {
			t.Fatal(err)
		}
	}
	honest := ownClient(t, proxy)
	if _, err := honest.Get(ctx, "big0"); err != nil {
		t.Fatal(err)
	}
	before := harness.AnonymousBytes(t, proxy.pid)
	server.Pause()
	var refused, ended atomic.Int64
	var done sync.WaitGroup
	attack, cancel := context.WithTimeout(ctx, 3*time.Minute)
	defer cancel()
	for range 20 {
		client := ownClient(t, proxy)
		for range 20 {
			done.Go(func() {
				_, err := client.Put(attack, "hostile", value)
				if err != nil && (strings.Contains(err.Error(), "too many requests") || strings.Contains(err.Error(), "incomplete requests exceed")) {
					refused.Add(1)
				}
				ended.Add(1)
			})
		}
	}
	await(t, "nothing is refused", func() bool { return refused.Load() >= 300 })
	// Requests that are not whole yet have bounds of their own. What was freed of those that were refused belongs to the allocator for
	// some seconds.
	grown := func() int { return harness.AnonymousBytes(t, proxy.pid) - before }
	await(t, "too much is held for requests", func() bool { return grown() <= held+unfinished })
	server.Resume()
	done.Wait()
	await(t, "too much is held for no request", func() bool { return grown() <= held })
	// 32 MiB each, of which a client takes nothing as long as it is busy with others.
	lists, giveUp := context.WithTimeout(ctx, 3*time.Minute)
	defer giveUp()
	var got atomic.Int64
	for range 10 {
		client := ownClient(t, proxy)
		for range 4 {
			done.Go(func() {
				answer, err := client.Get(lists, "big", clientv3.WithPrefix())
				switch {
				case err == nil && len(answer.Kvs) == 32:
					got.Add(1)
				case err == nil || !strings.Contains(err.Error(), "too many requests"):
					t.Errorf("a list: %v, %v", answer, err)
				}
			})
		}
	}
	var most int
	for listing := true; listing; {
		ready := make(chan struct{})
		go func() {
			done.Wait()
			close(ready)
		}()
		select {
		case <-ready:
			listing = false
		case <-time.After(20 * time.Millisecond):
		}
		most = max(most, grown())
	}
	if most > 5*held || got.Load() == 0 {
		t.Errorf("%d MiB are held for answers, of which %d came", most>>20, got.Load())
	}
	if _, err := honest.Put(ctx, "after", "v"); err != nil {
		t.Errorf("afterwards: %v", err)
	}
}

// A member that vanishes without closing anything does not keep watches silent.
func TestProxyMemberVanishes(t *testing.T) {
	t.Parallel()
	if harness.Subject() == harness.Etcd {
		t.Skip("the genuine proxy loses events")
	}
	ctx := harness.Context(t)
	cluster := harness.StartCluster(t, harness.Subject(), 3, nil)
	proxy := startProxy(t, endpointsOf(cluster), "--dial-keepalive-time=1s", "--dial-keepalive-timeout=1s")
	for number, member := range cluster.Members {
		created := make(chan struct{})
		seen := make(chan error, 1)
		prefix := fmt.Sprintf("v%d-", number)
		go func() {
			seen <- follow(ctx, ownClient(t, proxy), prefix, 0, 9, 0, func() { close(created) })
		}()
		<-created
		member.Pause()
		writer := cluster.Client((number + 1) % 3)
		for key := range 10 {
			for {
				call, cancel := context.WithTimeout(ctx, 5*time.Second)
				name := fmt.Sprintf("%s%04d", prefix, key)
				_, err := writer.Txn(call).If(clientv3.Compare(clientv3.Version(name), "=", 0)).Then(clientv3.OpPut(name, "v")).Commit()
				cancel()
				if err == nil {
					break
				}
				if ctx.Err() != nil {
					t.Fatal(err)
				}
			}
		}
		if err := <-seen; err != nil {
			t.Errorf("while member %d is silent: %v", number, err)
		}
		member.Resume()
	}
}

// Watches and streams pass a learner among the endpoints by.
func TestProxyLearner(t *testing.T) {
	t.Parallel()
	if harness.Subject() == harness.Etcd {
		t.Skip("the genuine proxy refuses what a learner refuses")
	}
	ctx := harness.Context(t)
	cluster := harness.StartCluster(t, harness.Subject(), 1, nil)
	learner := addLearner(ctx, t, cluster)
	proxy := startProxy(t, []string{learner, cluster.Members[0].Endpoint()})
	for number := range 6 {
		client := ownClient(t, proxy)
		key := fmt.Sprintf("l%d", number)
		watch := client.Watch(ctx, key, clientv3.WithCreatedNotify())
		if created, ok := <-watch; !ok || created.Err() != nil || !created.Created {
			t.Fatalf("watch %d: %v", number, created.Err())
		}
		if _, err := client.Put(ctx, key, "v"); err != nil {
			t.Fatalf("put %d: %v", number, err)
		}
		if answer := <-watch; answer.Err() != nil || len(answer.Events) != 1 {
			t.Errorf("watch %d says %v, %v", number, answer, answer.Err())
		}
		lease, err := client.Grant(ctx, 60)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := client.KeepAliveOnce(ctx, lease.ID); err != nil {
			t.Errorf("keep-alive %d: %v", number, err)
		}
	}
}

// addLearner adds a learner to a cluster of one, starts it and returns where it
// serves clients.
func addLearner(ctx context.Context, t testing.TB, cluster *harness.Cluster) string {
	t.Helper()
	first := cluster.Members[0]
	added := harness.Prepare(t, harness.Subject(), filepath.Join(t.TempDir(), "data"))
	added.Name, added.InitialState = "learner", "existing"
	added.InitialCluster = fmt.Sprintf("%s=%s,learner=%s", first.Name, first.PeerURL(), added.PeerURL())
	if _, err := first.Client().MemberAddAsLearner(ctx, []string{added.PeerURL()}); err != nil {
		t.Fatal(err)
	}
	added.Launch()
	await(t, "the learner does not serve", func() bool {
		call, cancel := context.WithTimeout(ctx, 5*time.Second)
		defer cancel()
		_, err := added.Client().Status(call, added.Endpoint())
		return err == nil
	})
	return added.Endpoint()
}

// Watches of single keys and of parts share the watch of a range that has them.
func TestProxySharesContainedWatches(t *testing.T) {
	t.Parallel()
	if harness.Subject() == harness.Etcd {
		t.Skip("the genuine proxy shares watches of the same range only")
	}
	ctx := harness.Context(t)
	server := harness.Start(t, harness.Subject())
	proxy := startProxy(t, []string{server.Endpoint()})
	client := ownClient(t, proxy)
	all := client.Watch(ctx, "p/", clientv3.WithPrefix(), clientv3.WithCreatedNotify())
	<-all
	var watches []clientv3.WatchChan
	for number := range 50 {
		key, options := fmt.Sprintf("p/%02d", number), []clientv3.OpOption{clientv3.WithCreatedNotify()}
		if number%10 == 0 {
			options = append(options, clientv3.WithPrefix())
		}
		watch := ownClient(t, proxy).Watch(ctx, key, options...)
		if created := <-watch; !created.Created {
			t.Fatalf("watch %d: %v", number, created.Err())
		}
		watches = append(watches, watch)
	}
	await(t, "the watches are not shared", func() bool {
		_, page := proxy.page(t, "/proxy/metrics")
		return strings.Contains(page, "cairn_proxy_member_watches 1\n") && strings.Contains(page, "cairn_proxy_client_watches 51\n")
	})
	for number, watch := range watches {
		if _, err := client.Put(ctx, fmt.Sprintf("p/%02d", number), ""); err != nil {
			t.Fatal(err)
		}
		if answer := <-watch; len(answer.Events) != 1 || string(answer.Events[0].Kv.Key) != fmt.Sprintf("p/%02d", number) {
			t.Errorf("watch %d says %v", number, answer)
		}
		if answer := <-all; len(answer.Events) != 1 {
			t.Errorf("the range says %v", answer)
		}
	}
}
