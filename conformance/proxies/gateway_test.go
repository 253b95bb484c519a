package proxies

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"go.uber.org/zap"

	"cairn.dev/conformance/harness"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// clientOf is a client that knows the proxy only.
func clientOf(t testing.TB, p *proxy) *clientv3.Client {
	t.Helper()
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{p.address}, DialTimeout: 10 * time.Second, Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	return client
}

// memberBehind is the member that a new connection is passed on to.
func memberBehind(ctx context.Context, t testing.TB, p *proxy) (uint64, error) {
	t.Helper()
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{p.address}, DialTimeout: 10 * time.Second, Logger: zap.NewNop()})
	if err != nil {
		return 0, err
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(ctx, 15*time.Second)
	defer cancel()
	status, err := client.Status(ctx, p.address)
	if err != nil {
		return 0, err
	}
	return status.Header.MemberId, nil
}

// A client that knows the gateway alone goes on while members die and come
// back: its watch sees every event once, and a member that is left out gets
// connections again once it answers.
func TestGatewayMembersComeAndGo(t *testing.T) {
	t.Parallel()
	ctx := harness.Context(t)
	cluster := harness.StartCluster(t, harness.Subject(), 3, nil)
	var endpoints []string
	for number, member := range cluster.Members {
		// With a scheme and without.
		endpoints = append(endpoints, []string{"http://", ""}[number%2]+member.Endpoint())
	}
	gateway := startGateway(t, endpoints, "--retry-delay=200ms")
	client := clientOf(t, gateway)
	behind := func() map[uint64]bool {
		found := map[uint64]bool{}
		for range 12 {
			if id, err := memberBehind(ctx, t, gateway); err == nil {
				found[id] = true
			}
		}
		return found
	}
	if found := behind(); len(found) != 3 {
		t.Errorf("connections go to %d of 3 members", len(found))
	}
	const puts = 60
	watch := client.Watch(ctx, "k", clientv3.WithPrefix())
	written := make(chan error, 1)
	go func() {
		for number := range puts {
			// A put whose answer was lost may have been made: each has a key of its own, and is only made if it was not.
			key := fmt.Sprintf("k%03d", number)
			for {
				call, cancel := context.WithTimeout(ctx, 5*time.Second)
				_, err := client.Txn(call).If(clientv3.Compare(clientv3.Version(key), "=", 0)).Then(clientv3.OpPut(key, "v")).Commit()
				cancel()
				if err == nil {
					break
				}
				if ctx.Err() != nil {
					written <- err
					return
				}
			}
			time.Sleep(20 * time.Millisecond)
		}
		written <- nil
	}()
	for _, member := range cluster.Members {
		member.Kill()
		gateway.awaitLogAfterConnecting(ctx, t, `"msg":"deactivated endpoint","address":"`+member.Endpoint()+`"`)
		if found := behind(); len(found) != 2 {
			t.Errorf("connections go to %d of the 2 members that are left", len(found))
		}
		member.Run()
		gateway.awaitLog(t, `"msg":"activated","address":"`+member.Endpoint()+`"`)
	}
	if err := <-written; err != nil {
		t.Fatal(err)
	}
	if found := behind(); len(found) != 3 {
		t.Errorf("connections go to %d of 3 members in the end", len(found))
	}
	for next := 0; next < puts; {
		answer, ok := <-watch
		if !ok || answer.Err() != nil {
			t.Fatalf("the watch ended after %d events: %v", next, answer.Err())
		}
		for _, event := range answer.Events {
			if want := fmt.Sprintf("k%03d", next); string(event.Kv.Key) != want || event.Kv.Version != 1 {
				t.Fatalf("event %d is of %s, version %d", next, event.Kv.Key, event.Kv.Version)
			}
			next++
		}
	}
}

// awaitLogAfterConnecting makes connections until the log says something: only
// a connection finds out that a member does not answer.
func (p *proxy) awaitLogAfterConnecting(ctx context.Context, t testing.TB, text string) {
	t.Helper()
	await(t, fmt.Sprintf("the log does not say %s:\n%s", text, p.log(t)), func() bool {
		memberBehind(ctx, t, p)
		return strings.Contains(p.log(t), text)
	})
}

// With no member left, clients are turned away at once, and let in again as
// soon as one answers, however long --retry-delay is.
func TestGatewayAloneAndBack(t *testing.T) {
	t.Parallel()
	if harness.Subject() == harness.Etcd {
		t.Skip("the genuine gateway turns clients away until --retry-delay is over")
	}
	ctx := harness.Context(t)
	server := harness.Start(t, harness.Subject())
	gateway := startGateway(t, []string{server.Endpoint()}, "--retry-delay=1h")
	if _, err := memberBehind(ctx, t, gateway); err != nil {
		t.Fatal(err)
	}
	server.Kill()
	for range 3 {
		conn, err := net.Dial("tcp", gateway.address)
		if err != nil {
			t.Fatal(err)
		}
		conn.SetDeadline(time.Now().Add(patience))
		if n, err := conn.Read(make([]byte, 1)); n > 0 || err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("%d bytes, %v", n, err)
		}
		conn.Close()
	}
	server.Run()
	if _, err := memberBehind(ctx, t, gateway); err != nil {
		t.Error(err)
	}
	gateway.awaitLog(t, `"msg":"activated"`)
	// The log is written beside the connections, in order.
	if said := strings.Count(gateway.log(t), "deactivated endpoint"); said != 1 {
		t.Errorf("the log says it %d times", said)
	}
}

// listen is a member that is none: each connection is given to serve.
func listen(t testing.TB, serve func(net.Conn)) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go serve(conn)
		}
	}()
	return listener.Addr().String()
}

// Clients that never read cost the gateway a bounded amount of memory, stop
// whoever sends to them, and delay nobody else.
func TestGatewayClientsThatNeverRead(t *testing.T) {
	t.Parallel()
	const clients = 300
	var sent atomic.Int64
	member := listen(t, func(conn net.Conn) {
		defer conn.Close()
		first := make([]byte, 1)
		if _, err := io.ReadFull(conn, first); err != nil {
			return
		}
		if first[0] == 'e' {
			io.Copy(conn, conn)
			return
		}
		// What the kernel holds for TCP belongs to the whole machine: without any left it resets the connections of other tests.
		conn.(*net.TCPConn).SetWriteBuffer(16 << 10)
		part := make([]byte, 1<<20)
		for {
			n, err := conn.Write(part)
			sent.Add(int64(n))
			if err != nil {
				return
			}
		}
	})
	gateway := startGateway(t, []string{member})
	dial := func(first string) net.Conn {
		conn, err := net.Dial("tcp", gateway.address)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		if first == "f" {
			// The less the kernel holds, the sooner everything is full.
			conn.(*net.TCPConn).SetReadBuffer(4096)
		}
		conn.SetDeadline(time.Now().Add(2 * time.Minute))
		if _, err := conn.Write([]byte(first)); err != nil {
			t.Fatal(err)
		}
		return conn
	}
	for range clients {
		dial("f")
	}
	last, since := int64(-1), time.Now()
	await(t, "what is sent to clients that do not read has no end", func() bool {
		if now := sent.Load(); now != last {
			last, since = now, time.Now()
		}
		return last > 0 && time.Since(since) > time.Second
	})
	echo := dial("e")
	message := bytes.Repeat([]byte("words "), 300_000)
	go echo.Write(message)
	got := make([]byte, len(message))
	if _, err := io.ReadFull(echo, got); err != nil || !bytes.Equal(got, message) {
		t.Errorf("another client does not get its echo: %v", err)
	}
	if harness.Subject() == harness.Cairn {
		// 64 MiB is what may wait in it.
		if bytes := harness.AnonymousBytes(t, gateway.pid); bytes > 100<<20 {
			t.Errorf("it has %d MiB", bytes>>20)
		}
	}
}

// One that has said everything still gets its answer.
func TestGatewayHalfClose(t *testing.T) {
	t.Parallel()
	if harness.Subject() == harness.Etcd {
		t.Skip("the genuine gateway closes both directions with the first")
	}
	// Every eight bytes say where they are.
	numbered := func(bytesOf int) []byte {
		var text []byte
		for at := 0; at < bytesOf; at += 8 {
			text = fmt.Appendf(text, "%08x", at)
		}
		return text[:bytesOf]
	}
	member := listen(t, func(conn net.Conn) {
		defer conn.Close()
		question, err := io.ReadAll(conn)
		if err != nil || !bytes.Equal(question, numbered(len(question))) {
			t.Errorf("the member got %d bytes, %v", len(question), err)
		}
		if count, err := conn.Write(question); err != nil {
			t.Errorf("the member sent %d of %d bytes, %v", count, len(question), err)
		}
	})
	gateway := startGateway(t, []string{member})
	for _, bytesOf := range []int{1, 100_000, 5 << 20} {
		conn, err := net.Dial("tcp", gateway.address)
		if err != nil {
			t.Fatal(err)
		}
		conn.SetDeadline(time.Now().Add(patience))
		sent := numbered(bytesOf)
		if _, err := conn.Write(sent); err != nil {
			t.Fatal(err)
		}
		conn.(*net.TCPConn).CloseWrite()
		answer, err := io.ReadAll(conn)
		if err != nil || !bytes.Equal(answer, sent) {
			same := 0
			for same < min(len(answer), len(sent)) && answer[same] == sent[same] {
				same++
			}
			t.Errorf("%d bytes: %d came back, the first %d are right, then %q, %v", bytesOf, len(answer), same, answer[same:min(len(answer), same+16)], err)
		}
		conn.Close()
	}
}

// A member that is gone in the middle of its answer is gone for the client too:
// an end would make it take what it got for whole.
func TestGatewayCutAnswers(t *testing.T) {
	t.Parallel()
	if harness.Subject() == harness.Etcd {
		t.Skip("the genuine gateway ends the client's connection")
	}
	member := listen(t, func(conn net.Conn) {
		io.ReadFull(conn, make([]byte, 1))
		conn.Write(make([]byte, 300_000))
		conn.(*net.TCPConn).SetLinger(0)
		conn.Close()
	})
	gateway := startGateway(t, []string{member})
	for range 50 {
		conn, err := net.Dial("tcp", gateway.address)
		if err != nil {
			t.Fatal(err)
		}
		conn.SetDeadline(time.Now().Add(patience))
		if _, err := conn.Write([]byte("?")); err != nil {
			t.Fatal(err)
		}
		if got, err := io.ReadAll(conn); !errors.Is(err, syscall.ECONNRESET) {
			t.Fatalf("%d bytes, %v", len(got), err)
		}
		conn.Close()
	}
}

// What cannot be served is refused before anything is listened to, in etcd's
// words.
func TestGatewayMistakes(t *testing.T) {
	t.Parallel()
	taken := listen(t, func(conn net.Conn) { conn.Close() })
	free := fmt.Sprintf("127.0.0.1:%d", harness.Port(t))
	for _, c := range []struct {
		line, stdout, stderr string
		code                 int
	}{
		{"gateway", "gateway [command]", "", 0},
		{"gateway --help", "gateway [command]", "", 0},
		{"gateway start --help", "--retry-delay", "", 0},
		{"gateway start --nope", "", "unknown flag: --nope", 1},
		{"gateway start --endpoints", "", "flag needs an argument: --endpoints", 1},
		{"gateway start --retry-delay=5", "", `invalid argument "5" for "--retry-delay" flag: time: missing unit in duration "5"`, 1},
		{"gateway start --listen-addr=x", "failed to validate listen address: x", "", 1},
		{"gateway start --listen-addr=:23790", "failed to resolve listen host: ", "", 1},
		{"gateway start --endpoints=nohost", `error parsing endpoint "nohost"`, "", 1},
		{"gateway start --endpoints=no.such.host.invalid:1", "failed to resolve endpoint host: no.such.host.invalid", "", 1},
		{"gateway start --endpoints=", "no endpoints found", "", 1},
		{"gateway start --endpoints=" + free + " --listen-addr=" + free, "should not resolve to the gateway listen addr (" + free + ")", "", 1},
		{"gateway start --listen-addr=" + taken, "", "listen tcp " + taken + ": ", 1},
		{"gateway start --discovery-srv=no.such.host.invalid", "", "dns lookup errors: ", 1},
	} {
		got := harness.Command{Path: harness.Binary(t, harness.Subject()), Args: strings.Fields(c.line)}.Run(t)
		if got.Code != c.code || !strings.Contains(got.Stdout, c.stdout) || !strings.Contains(got.Stderr, c.stderr) {
			t.Errorf("%s: exit %d, %q, %q", c.line, got.Code, got.Stdout, got.Stderr)
		}
	}
}
