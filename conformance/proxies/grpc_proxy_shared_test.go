package proxies

import (
	"context"
	"crypto/tls"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/zap"

	"cairn.dev/conformance/harness"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/naming/endpoints"
)

// Serializable reads are answered again until something is written through the
// proxy, and never by what another token has read.
func TestProxySerializableReads(t *testing.T) {
	t.Parallel()
	ctx := harness.Context(t)
	server := harness.Start(t, harness.Subject())
	proxy := startProxy(t, []string{server.Endpoint()})
	client := clientOf(t, proxy)
	read := func(client *clientv3.Client, want string) {
		t.Helper()
		got, err := client.Get(ctx, "a", clientv3.WithSerializable())
		if err != nil || len(got.Kvs) != 1 || string(got.Kvs[0].Value) != want {
			t.Fatalf("a serializable read says %v, %v and not %q", got, err, want)
		}
	}
	for number := range 100 {
		value := fmt.Sprint(number)
		if _, err := client.Put(ctx, "a", value); err != nil {
			t.Fatal(err)
		}
		for range 3 {
			read(client, value)
		}
	}
	if harness.Subject() == harness.Cairn {
		_, page := proxy.page(t, "/proxy/metrics")
		if !strings.Contains(page, "etcd_grpc_proxy_cache_hits_total 2") {
			t.Errorf("the cache did not answer:\n%s", page)
		}
	}
	for _, line := range []string{
		"user add root:r", "role add root", "user grant-role root root", "user add stranger:p", "auth enable",
	} {
		server.MustCtl(strings.Fields(line)...)
	}
	login := func(name, password string) *clientv3.Client {
		client, err := clientv3.New(clientv3.Config{
			Endpoints: []string{proxy.address}, DialTimeout: 10 * time.Second, Username: name, Password: password, Logger: zap.NewNop(),
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { client.Close() })
		return client
	}
	root, stranger := login("root", "r"), login("stranger", "p")
	read(root, "99")
	if got, err := stranger.Get(ctx, "a", clientv3.WithSerializable()); err == nil {
		t.Errorf("a stranger reads %v", got)
	}
}

// Leases of many clients are kept alive over one stream: each as long as its
// client wants, over the death of a member, and ends are told.
func TestProxyKeepsLeasesAlive(t *testing.T) {
	t.Parallel()
	const clients = 20
	// Not shorter: the requests of all wait one behind the other, which takes seconds on a busy machine.
	const ttl = 20
	ctx := harness.Context(t)
	cluster := harness.StartCluster(t, harness.Subject(), 3, nil)
	proxy := startProxy(t, endpointsOf(cluster))
	direct := cluster.Client()
	var leases [clients]clientv3.LeaseID
	var ends [clients]<-chan *clientv3.LeaseKeepAliveResponse
	var stops [clients]context.CancelFunc
	for number := range clients {
		client := ownClient(t, proxy)
		lease, err := client.Grant(ctx, ttl)
		if err != nil {
			t.Fatal(err)
		}
		var alive context.Context
		alive, stops[number] = context.WithCancel(ctx)
		defer stops[number]()
		leases[number] = lease.ID
		if ends[number], err = client.KeepAlive(alive, lease.ID); err != nil {
			t.Fatal(err)
		}
	}
	for number, answers := range ends {
		if answer := <-answers; answer == nil || answer.ID != leases[number] || answer.TTL != ttl {
			t.Fatalf("client %d is told %v of lease %x", number, answer, leases[number])
		}
	}
	cluster.Members[0].Kill()
	// Half of the clients stop.
	for number := range clients / 2 {
		stops[number]()
	}
	var done sync.WaitGroup
	for number, answers := range ends {
		done.Go(func() {
			for answer := range answers {
				if answer.ID != leases[number] {
					t.Errorf("client %d is told of lease %x", number, answer.ID)
				}
			}
		})
	}
	reader := cluster.Client(1, 2)
	left := func(number int) int64 {
		call, cancel := context.WithTimeout(ctx, 5*time.Second)
		defer cancel()
		lease, err := reader.TimeToLive(call, leases[number])
		if err != nil {
			return 0
		}
		return lease.TTL
	}
	for number := range clients / 2 {
		await(t, fmt.Sprintf("lease %d is still kept alive", number), func() bool { return left(number) == -1 })
	}
	for number := clients / 2; number < clients; number++ {
		if left(number) == -1 {
			t.Errorf("lease %d is not kept alive", number)
		}
	}
	cluster.Members[0].Run()
	// What somebody else ends is told.
	for number := clients / 2; number < clients; number++ {
		if _, err := direct.Revoke(ctx, leases[number]); err != nil {
			t.Fatal(err)
		}
	}
	done.Wait()
}

// A proxy registers itself so that etcd's naming resolver finds it, and the
// list of members shows all proxies.
func TestProxyRegisters(t *testing.T) {
	t.Parallel()
	ctx := harness.Context(t)
	server := harness.Start(t, harness.Subject())
	flags := func(address string) []string {
		return []string{"--resolver-prefix=proxies", "--resolver-ttl=20", "--advertise-client-url=" + address}
	}
	one := startProxy(t, []string{server.Endpoint()}, flags("10.1.1.1:1")...)
	startProxy(t, []string{server.Endpoint()}, flags("10.1.1.2:2")...)
	client := server.Client()
	manager, err := endpoints.NewManager(client, "proxies")
	if err != nil {
		t.Fatal(err)
	}
	registered := func(count int) func() bool {
		return func() bool {
			list, err := manager.List(ctx)
			return err == nil && len(list) == count && list["proxies/10.1.1.1:1"].Addr == "10.1.1.1:1"
		}
	}
	await(t, "the proxies are not registered", registered(2))
	shown := func(want string) func() bool {
		return func() bool {
			list, err := clientOf(t, one).MemberList(ctx)
			if err != nil {
				t.Fatal(err)
			}
			addresses := map[string]bool{}
			for _, member := range list.Members {
				if member.Name == "" || len(member.ClientURLs) != 1 {
					t.Fatalf("a member is %v", member)
				}
				addresses[member.ClientURLs[0]] = true
			}
			return fmt.Sprint(addresses) == want
		}
	}
	await(t, "the proxies are not shown", shown("map[10.1.1.1:1:true 10.1.1.2:2:true]"))
	// As if a third one came and went.
	if err := manager.AddEndpoint(ctx, "proxies/10.1.1.3:3", endpoints.Endpoint{Addr: "10.1.1.3:3", Metadata: `{"name":"third"}`}); err != nil {
		t.Fatal(err)
	}
	await(t, "the third is not shown", shown("map[10.1.1.1:1:true 10.1.1.2:2:true 10.1.1.3:3:true]"))
	if err := manager.DeleteEndpoint(ctx, "proxies/10.1.1.3:3"); err != nil {
		t.Fatal(err)
	}
	await(t, "the third is still shown", shown("map[10.1.1.1:1:true 10.1.1.2:2:true]"))
	// A lease that is lost is replaced.
	got, err := client.Get(ctx, "proxies/10.1.1.1:1")
	if err != nil || len(got.Kvs) != 1 || got.Kvs[0].Lease == 0 {
		t.Fatalf("the record is %v, %v", got, err)
	}
	if _, err := client.Revoke(ctx, clientv3.LeaseID(got.Kvs[0].Lease)); err != nil {
		t.Fatal(err)
	}
	await(t, "the proxy does not register again", registered(2))
}

// A proxy follows the list of members.
func TestProxyFollowsMembers(t *testing.T) {
	t.Parallel()
	ctx := harness.Context(t)
	cluster := harness.StartCluster(t, harness.Subject(), 1, nil)
	first := cluster.Members[0]
	proxy := startProxy(t, []string{first.Endpoint()}, "--endpoints-auto-sync-interval=200ms", "--experimental-enable-grpc-logging")
	client := clientOf(t, proxy)
	if _, err := client.Put(ctx, "a", "v"); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		cluster.Add(ctx, first.Client(), harness.Subject()).Run()
	}
	proxy.awaitLog(t, cluster.Members[2].Endpoint())
	first.Kill()
	await(t, "the proxy does not go on", func() bool {
		call, cancel := context.WithTimeout(ctx, 5*time.Second)
		defer cancel()
		_, err := client.Get(call, "a")
		return err == nil
	})
	if harness.Subject() == harness.Cairn {
		proxy.awaitLog(t, `"msg":"finished call","grpc.service":"etcdserverpb.KV","grpc.method":"Range","grpc.code":"Ok"`)
	}
	first.Run()
}

// Serializable reads do not go back behind what a client has seen, whichever
// member answers.
func TestProxyOrdersReads(t *testing.T) {
	t.Parallel()
	ctx := harness.Context(t)
	cluster := harness.StartCluster(t, harness.Subject(), 3, nil)
	proxy := startProxy(t, endpointsOf(cluster), "--experimental-serializable-ordering")
	client := clientOf(t, proxy)
	var last int64
	for number := range 300 {
		if number%3 == 0 {
			if _, err := client.Put(ctx, "a", fmt.Sprint(number)); err != nil {
				t.Fatal(err)
			}
		}
		got, err := client.Get(ctx, "a", clientv3.WithSerializable())
		if err != nil {
			t.Fatal(err)
		}
		if got.Header.Revision < last {
			t.Fatalf("revision %d after %d", got.Header.Revision, last)
		}
		last = got.Header.Revision
	}
}

// A proxy makes a certificate for itself, keeps it, and speaks the suites that
// it was told to.
func TestProxyMakesItsCertificate(t *testing.T) {
	t.Parallel()
	ctx := harness.Context(t)
	server := harness.Start(t, harness.Subject())
	dir := filepath.Join(t.TempDir(), "proxy")
	serial := ""
	for range 2 {
		proxy := startProxy(t, []string{server.Endpoint()}, "--auto-tls", "--data-dir="+dir, "--self-signed-cert-validity=2",
			"--listen-cipher-suites=TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384", "--tls-max-version=TLS1.2")
		settings := &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2"}, CipherSuites: []uint16{tls.TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256}, MaxVersion: tls.VersionTLS12}
		if conn, err := tls.Dial("tcp", proxy.address, settings); err == nil {
			conn.Close()
			t.Error("another suite is spoken")
		}
		settings.CipherSuites = nil
		conn, err := tls.Dial("tcp", proxy.address, settings)
		if err != nil {
			t.Fatal(err)
		}
		state := conn.ConnectionState()
		conn.Close()
		certificate := state.PeerCertificates[0]
		if state.CipherSuite != tls.TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384 || certificate.VerifyHostname("127.0.0.1") != nil {
			t.Errorf("suite %x, certificate for %v", state.CipherSuite, certificate.IPAddresses)
		}
		if left := time.Until(certificate.NotAfter); left < 700*24*time.Hour {
			t.Errorf("valid for %v", left)
		}
		if serial != "" && serial != certificate.SerialNumber.String() {
			t.Error("it is another one after a restart")
		}
		serial = certificate.SerialNumber.String()
		client, err := clientv3.New(clientv3.Config{
			Endpoints: []string{"https://" + proxy.address}, DialTimeout: 10 * time.Second, TLS: &tls.Config{InsecureSkipVerify: true}, Logger: zap.NewNop(),
		})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := client.Put(ctx, "a", "v"); err != nil {
			t.Error(err)
		}
		client.Close()
	}
}
