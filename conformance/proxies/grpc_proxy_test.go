package proxies

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/zap"

	"cairn.dev/conformance/harness"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
)

// startProxy starts a gRPC proxy before the endpoints, and waits until it is
// ready.
func startProxy(t testing.TB, endpoints []string, flags ...string) *proxy {
	t.Helper()
	all := []string{"grpc-proxy", "start", "--endpoints=" + strings.Join(endpoints, ","), "--advertise-client-url="}
	return start(t, "started gRPC proxy", append(all, flags...))
}

func endpointsOf(cluster *harness.Cluster) (endpoints []string) {
	for _, member := range cluster.Members {
		endpoints = append(endpoints, member.Endpoint())
	}
	return endpoints
}

// page is a page of the proxy and its status.
func (p *proxy) page(t testing.TB, path string) (int, string) {
	t.Helper()
	response, err := http.Get("http://" + p.address + path)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(body)
}

// Every service answers through the proxy.
func TestProxyServices(t *testing.T) {
	t.Parallel()
	ctx := harness.Context(t)
	server := harness.Start(t, harness.Subject())
	proxy := startProxy(t, []string{server.Endpoint()})
	client := clientOf(t, proxy)
	must := func(what string, err error) {
		t.Helper()
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
	}
	_, err := client.Put(ctx, "a", "1")
	must("put", err)
	txn, err := client.Txn(ctx).If(clientv3.Compare(clientv3.Value("a"), "=", "1")).Then(clientv3.OpPut("b", "2"), clientv3.OpGet("a")).Commit()
	must("txn", err)
	if !txn.Succeeded || string(txn.Responses[1].GetResponseRange().Kvs[0].Value) != "1" {
		t.Errorf("the transaction says %v", txn)
	}
	got, err := client.Get(ctx, "", clientv3.WithPrefix())
	must("get", err)
	if len(got.Kvs) != 2 {
		t.Errorf("%d keys", len(got.Kvs))
	}
	lease, err := client.Grant(ctx, 60)
	must("grant", err)
	_, err = client.Put(ctx, "l", "", clientv3.WithLease(lease.ID))
	must("put with a lease", err)
	_, err = client.KeepAliveOnce(ctx, lease.ID)
	must("keep-alive", err)
	ttl, err := client.TimeToLive(ctx, lease.ID, clientv3.WithAttachedKeys())
	must("time to live", err)
	if len(ttl.Keys) != 1 || string(ttl.Keys[0]) != "l" {
		t.Errorf("the lease has %q", ttl.Keys)
	}
	_, err = client.Revoke(ctx, lease.ID)
	must("revoke", err)
	session, err := concurrency.NewSession(client, concurrency.WithTTL(60))
	must("session", err)
	mutex := concurrency.NewMutex(session, "lock")
	must("lock", mutex.Lock(ctx))
	must("unlock", mutex.Unlock(ctx))
	election := concurrency.NewElection(session, "election")
	must("campaign", election.Campaign(ctx, "me"))
	must("resign", election.Resign(ctx))
	members, err := client.MemberList(ctx)
	must("member list", err)
	if len(members.Members) != 1 || len(members.Members[0].ClientURLs) != 1 {
		t.Errorf("members: %v", members.Members)
	}
	_, err = client.Status(ctx, proxy.address)
	must("status", err)
	snapshot, err := client.Snapshot(ctx)
	must("snapshot", err)
	if size, err := io.Copy(io.Discard, snapshot); err != nil || size < 10_000 {
		t.Errorf("the snapshot has %d bytes, %v", size, err)
	}
	if _, err := client.Get(ctx, "a", clientv3.WithRev(1_000_000)); err == nil || !strings.Contains(err.Error(), "required revision is a future revision") {
		t.Errorf("a future revision: %v", err)
	}
	if status, body := proxy.page(t, "/health"); status != 200 || !strings.Contains(body, `"health":"true"`) {
		t.Errorf("/health: %d %s", status, body)
	}
	if status, body := proxy.page(t, "/metrics"); status != 200 || !strings.Contains(body, "etcd_server_has_leader 1") {
		t.Errorf("/metrics: %d, %d bytes", status, len(body))
	}
	if status, _ := proxy.page(t, "/nothing"); status != 404 {
		t.Errorf("/nothing: %d", status)
	}
	server.Kill()
	if status, body := proxy.page(t, "/health"); status != 503 || !strings.Contains(body, `"health":"false"`) {
		t.Errorf("/health without a member: %d %s", status, body)
	}
}

// follow reads a watch until it has seen keys from first to last, each once and
// in order.
func follow(ctx context.Context, client *clientv3.Client, prefix string, first, last int, revision int64, ready func()) error {
	options := []clientv3.OpOption{clientv3.WithPrefix(), clientv3.WithCreatedNotify()}
	if revision > 0 {
		options = append(options, clientv3.WithRev(revision))
	}
	next := first
	for answer := range client.Watch(ctx, prefix, options...) {
		if err := answer.Err(); err != nil {
			return err
		}
		if answer.Created {
			ready()
		}
		for _, event := range answer.Events {
			if want := fmt.Sprintf("%s%04d", prefix, next); string(event.Kv.Key) != want {
				return fmt.Errorf("%s came, and %s is next", event.Kv.Key, want)
			}
			next++
		}
		if next > last {
			return nil
		}
	}
	return fmt.Errorf("ended before %d: %v", next, ctx.Err())
}

// Many clients that watch the same keys, from now and from older revisions,
// share one watch at a member; each sees each event once while members die.
func TestProxySharesWatches(t *testing.T) {
	t.Parallel()
	const clients, old, puts = 40, 30, 120
	ctx, cancel := context.WithCancel(harness.Context(t))
	defer cancel()
	cluster := harness.StartCluster(t, harness.Subject(), 3, nil)
	proxy := startProxy(t, endpointsOf(cluster))
	writer := cluster.Client()
	put := func(number int) int64 {
		key := fmt.Sprintf("k%04d", number)
		for {
			call, done := context.WithTimeout(ctx, 5*time.Second)
			answer, err := writer.Txn(call).If(clientv3.Compare(clientv3.Version(key), "=", 0)).Then(clientv3.OpPut(key, "v")).Commit()
			done()
			if err == nil {
				return answer.Header.Revision
			}
			if ctx.Err() != nil {
				t.Fatal(err)
			}
		}
	}
	first := put(0)
	for number := 1; number < old; number++ {
		put(number)
	}
	var ready, done sync.WaitGroup
	errs := make(chan error, clients)
	for number := range clients {
		client, err := clientv3.New(clientv3.Config{Endpoints: []string{proxy.address}, DialTimeout: 10 * time.Second, Logger: zap.NewNop()})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { client.Close() })
		ready.Add(1)
		var once sync.Once
		done.Go(func() {
			from, revision := old, int64(0)
			if number%2 == 1 {
				from, revision = 0, first
			}
			if err := follow(ctx, client, "k", from, old+puts-1, revision, func() { once.Do(ready.Done) }); err != nil {
				errs <- fmt.Errorf("client %d from %d: %w", number, revision, err)
				once.Do(ready.Done)
			}
		})
	}
	ready.Wait()
	for number := range puts {
		put(old + number)
		if number == puts/3 {
			cluster.Members[0].Kill()
		}
		if number == 2*puts/3 {
			cluster.Members[0].Run()
			cluster.Members[1].Kill()
		}
	}
	if harness.Subject() == harness.Cairn {
		await(t, "the watches are not shared", func() bool {
			_, page := proxy.page(t, "/proxy/metrics")
			return strings.Contains(page, "cairn_proxy_member_watches 1\n") || strings.Contains(page, "cairn_proxy_member_watches 0\n")
		})
	}
	done.Wait()
	close(errs)
	for err := range errs {
		t.Error(err)
	}
	cluster.Members[1].Run()
}

// A progress answer comes, and is not ahead of what the client has; a watch
// whose start is compacted ends with that.
func TestProxyProgressAndCompaction(t *testing.T) {
	t.Parallel()
	if harness.Subject() == harness.Etcd {
		t.Skip("the genuine proxy does not pass requests for progress on")
	}
	ctx := harness.Context(t)
	server := harness.Start(t, harness.Subject())
	proxy := startProxy(t, []string{server.Endpoint()})
	client := clientOf(t, proxy)
	watch := client.Watch(ctx, "p", clientv3.WithPrefix(), clientv3.WithCreatedNotify())
	if created := <-watch; !created.Created {
		t.Fatalf("not created: %v", created)
	}
	other, err := client.Put(ctx, "other", "")
	if err != nil {
		t.Fatal(err)
	}
	var told int64
	for deadline := time.Now().Add(patience); told < other.Header.Revision && time.Now().Before(deadline); {
		if err := client.RequestProgress(ctx); err != nil {
			t.Fatal(err)
		}
		select {
		case answer := <-watch:
			if !answer.IsProgressNotify() {
				t.Fatalf("not progress: %v", answer)
			}
			told = answer.Header.Revision
		case <-time.After(100 * time.Millisecond):
		}
	}
	if told != other.Header.Revision {
		t.Errorf("progress is %d of %d", told, other.Header.Revision)
	}
	for range 10 {
		if other, err = client.Put(ctx, "p", ""); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := client.Compact(ctx, other.Header.Revision); err != nil {
		t.Fatal(err)
	}
	for answer := range client.Watch(ctx, "p", clientv3.WithRev(2)) {
		if answer.CompactRevision != other.Header.Revision {
			t.Errorf("the watch says %v", answer)
		}
	}
}

// Clients of a proxy with a namespace see their keys as if there were no other.
func TestProxyNamespace(t *testing.T) {
	t.Parallel()
	ctx := harness.Context(t)
	server := harness.Start(t, harness.Subject())
	proxy := startProxy(t, []string{server.Endpoint()}, "--namespace=ns/")
	inside, outside := clientOf(t, proxy), server.Client()
	watch := inside.Watch(ctx, "", clientv3.WithPrefix(), clientv3.WithCreatedNotify(), clientv3.WithPrevKV())
	<-watch
	for _, key := range []string{"a", "ns/a", "ns/b", "ns0", "ns/a"} {
		if _, err := outside.Put(ctx, key, "v"); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := inside.Put(ctx, "c", "v"); err != nil {
		t.Fatal(err)
	}
	got, err := inside.Get(ctx, "", clientv3.WithPrefix())
	if err != nil {
		t.Fatal(err)
	}
	var keys []string
	for _, kv := range got.Kvs {
		keys = append(keys, string(kv.Key))
	}
	if strings.Join(keys, " ") != "a b c" {
		t.Errorf("inside are %q", keys)
	}
	if got, err := outside.Get(ctx, "ns/c"); err != nil || len(got.Kvs) != 1 {
		t.Errorf("outside is %v, %v", got, err)
	}
	var seen []string
	for len(seen) < 4 {
		answer, ok := <-watch
		if !ok || answer.Err() != nil {
			t.Fatalf("the watch ended: %v", answer.Err())
		}
		for _, event := range answer.Events {
			if event.PrevKv != nil && string(event.PrevKv.Key) != string(event.Kv.Key) {
				t.Errorf("before %q was %q", event.Kv.Key, event.PrevKv.Key)
			}
			seen = append(seen, string(event.Kv.Key))
		}
	}
	if strings.Join(seen, " ") != "a b a c" {
		t.Errorf("seen are %q", seen)
	}
}

// What a user may not read it does not get through the watch of one who may.
func TestProxyUsers(t *testing.T) {
	t.Parallel()
	ctx := harness.Context(t)
	server := harness.Start(t, harness.Subject())
	for _, line := range []string{
		"user add root:r", "role add root", "user grant-role root root",
		"user add reader:p", "role add reads", "role grant-permission reads read k --prefix", "user grant-role reader reads",
		"user add stranger:p", "auth enable",
	} {
		server.MustCtl(strings.Fields(line)...)
	}
	proxy := startProxy(t, []string{server.Endpoint()})
	login := func(name, password string) *clientv3.Client {
		client, err := clientv3.New(clientv3.Config{
			Endpoints: []string{proxy.address}, DialTimeout: 10 * time.Second, Username: name, Password: password, Logger: zap.NewNop(),
		})
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		t.Cleanup(func() { client.Close() })
		return client
	}
	root, reader, stranger := login("root", "r"), login("reader", "p"), login("stranger", "p")
	watch := reader.Watch(ctx, "k", clientv3.WithPrefix(), clientv3.WithCreatedNotify())
	if created := <-watch; created.Err() != nil || !created.Created {
		t.Fatalf("the reader's watch: %v", created.Err())
	}
	for answer := range stranger.Watch(ctx, "k", clientv3.WithPrefix()) {
		if answer.Err() == nil || len(answer.Events) > 0 {
			t.Errorf("a stranger is told %v", answer)
		}
	}
	if _, err := stranger.Get(ctx, "k1"); err == nil {
		t.Error("a stranger reads")
	}
	if _, err := reader.Put(ctx, "k1", ""); err == nil {
		t.Error("a reader writes")
	}
	if _, err := root.Put(ctx, "k1", "v"); err != nil {
		t.Fatal(err)
	}
	if answer := <-watch; answer.Err() != nil || len(answer.Events) != 1 {
		t.Errorf("the reader is told %v", answer)
	}
}

// Profiles are there where they are asked for, as the genuine proxy has them.
func TestProxyProfiles(t *testing.T) {
	t.Parallel()
	server := harness.Start(t, harness.Subject())
	get := func(proxy *proxy, path string) (int, []byte) {
		answer, err := http.Get("http://" + proxy.address + path)
		if err != nil {
			t.Fatal(err)
		}
		defer answer.Body.Close()
		body, err := io.ReadAll(answer.Body)
		if err != nil {
			t.Fatal(err)
		}
		return answer.StatusCode, body
	}
	plain := startProxy(t, []string{server.Endpoint()})
	if status, _ := get(plain, "/debug/pprof/"); status != http.StatusNotFound {
		t.Errorf("without the flag: %d", status)
	}
	profiled := startProxy(t, []string{server.Endpoint()}, "--enable-pprof")
	for _, path := range []string{"/debug/pprof", "/debug/pprof/"} {
		if status, body := get(profiled, path); status != http.StatusOK || !strings.Contains(string(body), "profile") {
			t.Errorf("%s: %d", path, status)
		}
	}
	if status, body := get(profiled, "/debug/pprof/cmdline"); status != http.StatusOK || !strings.Contains(string(body), "--enable-pprof") {
		t.Errorf("the command line: %d, %s", status, body)
	}
	if status, body := get(profiled, "/debug/pprof/profile?seconds=1"); status != http.StatusOK || !bytes.HasPrefix(body, []byte{0x1f, 0x8b}) {
		t.Errorf("a profile: %d, %d bytes", status, len(body))
	}
	if status, _ := get(profiled, "/debug/pprof/none"); status != http.StatusNotFound {
		t.Errorf("an unknown profile: %d", status)
	}
}

// What the proxy does not do is refused.
func TestProxyMistakes(t *testing.T) {
	t.Parallel()
	if harness.Subject() == harness.Etcd {
		t.Skip("about Cairn only")
	}
	for _, c := range []struct{ line, text string }{
		{"--nope", "unknown flag: --nope"},
		{"--resolver-prefix=a", "invalid resolver-ttl 0"},
		{"--resolver-ttl=5", `invalid resolver-prefix ""`},
		{"--resolver-prefix=a --resolver-ttl=5 --advertise-client-url=", `invalid advertise-client-url ""`},
		{"--auto-tls --self-signed-cert-validity=0", "selfSignedCertValidity is invalid,it should be greater than 0"},
		{"--listen-cipher-suites=TLS_NULL --auto-tls", `unexpected TLS cipher suite "TLS_NULL"`},
		{"--tls-min-version=TLS1.3 --tls-max-version=TLS1.2", "min version (TLS1.3) is greater than max version (TLS1.2)"},
		{"--tls-min-version=x", "tls-min-version is invalid"},
		{"--cert-file=a", "TLS of clients needs --cert-file and --key-file"},
		{"--cacert=/nowhere/ca.pem --endpoints=https://127.0.0.1:1", "/nowhere/ca.pem"},
		{"--endpoints=ftp://a:1", "scheme"},
		{"--listen-addr=256.0.0.1:1", "listen tcp 256.0.0.1:1: "},
	} {
		listen := fmt.Sprintf("--listen-addr=127.0.0.1:%d", harness.Port(t))
		// What --auto-tls makes is not to be among the sources.
		args := append([]string{"grpc-proxy", "start", listen, "--data-dir=" + t.TempDir()}, strings.Fields(c.line)...)
		got := harness.Command{Path: harness.Binary(t, harness.Subject()), Args: args}.Run(t)
		if got.Code != 1 || !strings.Contains(got.Stderr, c.text) {
			t.Errorf("%s: exit %d, %q", c.line, got.Code, got.Stderr)
		}
	}
}
