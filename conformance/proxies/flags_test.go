package proxies

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"cairn.dev/conformance/frames"
	"cairn.dev/conformance/harness"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

// The further listener has pages, and no keys.
func TestProxyMetricsAddress(t *testing.T) {
	t.Parallel()
	ctx := harness.Context(t)
	server := harness.Start(t, harness.Subject())
	address := fmt.Sprintf("127.0.0.1:%d", harness.Port(t))
	startProxy(t, []string{server.Endpoint()}, "--metrics-addr=http://"+address)
	further := &proxy{address: address}
	for path, text := range map[string]string{
		"/metrics": "etcd_server_has_leader 1", "/health": `"health":"true"`,
		"/proxy/metrics": "etcd_grpc_proxy_cache_keys_total 0", "/proxy/health": `"health":"true"`,
	} {
		if status, body := further.page(t, path); status != http.StatusOK || !strings.Contains(body, text) {
			t.Errorf("%s: %d, %d bytes without %q", path, status, len(body), text)
		}
	}
	call, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	if got, err := pb.NewKVClient(connTo(t, address)).Range(call, &pb.RangeRequest{Key: []byte("a")}); err == nil {
		t.Errorf("it shows keys: %v", got)
	}
}

// What is larger than the flags allow is refused in gRPC's words, and a client
// that has as many streams as it may waits for one of them to end: not so
// without TLS at the genuine proxy.
func TestProxySizesAndStreams(t *testing.T) {
	t.Parallel()
	ctx := harness.Context(t)
	server := harness.Start(t, harness.Subject())
	proxy := startProxy(t, []string{server.Endpoint()}, "--max-send-bytes=100000", "--max-recv-bytes=150000", "--max-concurrent-streams=1")
	kv := pb.NewKVClient(connTo(t, proxy.address))
	put := func(key string, bytes int) error {
		_, err := kv.Put(ctx, &pb.PutRequest{Key: []byte(key), Value: make([]byte, bytes)})
		return err
	}
	if err := put("a", 110_000); status.Code(err) != codes.ResourceExhausted || !strings.Contains(err.Error(), "trying to send message larger than max") {
		t.Errorf("a request that is too large: %v", err)
	}
	for _, key := range []string{"a", "b"} {
		if err := put(key, 90_000); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := kv.Range(ctx, &pb.RangeRequest{Key: []byte("a")}); err != nil {
		t.Errorf("an answer that is not too large: %v", err)
	}
	_, err := kv.Range(ctx, &pb.RangeRequest{Key: []byte("a"), RangeEnd: []byte("c")})
	if status.Code(err) != codes.ResourceExhausted || !strings.Contains(err.Error(), "larger than max") {
		t.Errorf("an answer that is too large: %v", err)
	}
	if harness.Subject() == harness.Etcd {
		return
	}
	conn := connTo(t, proxy.address)
	held, giveUp := context.WithCancel(ctx)
	defer giveUp()
	if _, err := pb.NewWatchClient(conn).Watch(held); err != nil {
		t.Fatal(err)
	}
	second := make(chan error, 1)
	call, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	go func() {
		_, err := pb.NewKVClient(conn).Range(call, &pb.RangeRequest{Key: []byte("a")})
		second <- err
	}()
	select {
	case err := <-second:
		t.Errorf("beside the only stream there may be: %v", err)
	case <-time.After(200 * time.Millisecond):
		giveUp()
		if err := <-second; err != nil {
			t.Errorf("once the other has ended: %v", err)
		}
	}
}

// Keep-alives of many clients are one stream at a member.
func TestProxySharesKeepAlives(t *testing.T) {
	t.Parallel()
	const clients = 30
	ctx := harness.Context(t)
	server := harness.Start(t, harness.Subject())
	front := startProxy(t, []string{server.Endpoint()})
	var streams []pb.Lease_LeaseKeepAliveClient
	for range clients {
		lease, err := server.Client().Grant(ctx, 600)
		if err != nil {
			t.Fatal(err)
		}
		stream, err := pb.NewLeaseClient(connTo(t, front.address)).LeaseKeepAlive(ctx)
		if err != nil {
			t.Fatal(err)
		}
		// Before another begins, the one before is answered and stays.
		if err := stream.Send(&pb.LeaseKeepAliveRequest{ID: int64(lease.ID)}); err != nil {
			t.Fatal(err)
		}
		if answer, err := stream.Recv(); err != nil || answer.ID != int64(lease.ID) || answer.TTL != 600 {
			t.Fatalf("%v, %v", answer, err)
		}
		streams = append(streams, stream)
	}
	// Their requests come one after the other on the stream that the first began.
	for _, stream := range streams {
		if err := stream.CloseSend(); err != nil {
			t.Fatal(err)
		}
	}
	_, page := (&proxy{address: server.Endpoint()}).page(t, "/metrics")
	for line := range strings.Lines(page) {
		if strings.HasPrefix(line, "grpc_server_started_total{") && strings.Contains(line, `"LeaseKeepAlive"`) {
			if !strings.HasSuffix(line, " 1\n") {
				t.Errorf("%d clients are more than one stream: %s", clients, line)
			}
			return
		}
	}
	t.Error("no stream is counted")
}

// speak opens a connection that speaks HTTP/2 and does only what it is told.
func speak(t testing.TB, address string) (net.Conn, *http2.Framer) {
	t.Helper()
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	conn.SetDeadline(time.Now().Add(patience))
	if _, err := io.WriteString(conn, http2.ClientPreface); err != nil {
		t.Fatal(err)
	}
	framer := http2.NewFramer(conn, conn)
	if err := framer.WriteSettings(); err != nil {
		t.Fatal(err)
	}
	return conn, framer
}

// A client that pings more often than it may is disconnected, and one that
// does not answer pings too.
func TestProxyPings(t *testing.T) {
	t.Parallel()
	server := harness.Start(t, harness.Subject())
	endpoints := []string{server.Endpoint()}
	// pings sends some and counts those that are answered.
	pings := func(p *proxy) (answered int, ended *http2.GoAwayFrame) {
		t.Helper()
		conn, framer := speak(t, p.address)
		defer conn.Close()
		// Without a stream there is nothing to ping for, and two hours count.
		headers := http2.HeadersFrameParam{StreamID: 1, BlockFragment: frames.Literals(frames.GRPC("/etcdserverpb.Watch/Watch")...), EndHeaders: true}
		if err := framer.WriteHeaders(headers); err != nil {
			t.Fatal(err)
		}
		for answered < 10 {
			// Each after the answer to the one before.
			if err := framer.WritePing(false, [8]byte{1}); err != nil {
				t.Fatalf("after %d answers: %v", answered, err)
			}
			for before := answered; answered == before; {
				frame, err := framer.ReadFrame()
				if err != nil {
					t.Fatalf("after %d answers: %v", answered, err)
				}
				switch frame := frame.(type) {
				case *http2.PingFrame:
					if frame.IsAck() {
						answered++
					}
				case *http2.GoAwayFrame:
					return answered, frame
				}
			}
		}
		return answered, nil
	}
	if answered, ended := pings(startProxy(t, endpoints, "--grpc-keepalive-min-time=1h")); ended == nil || ended.ErrCode != http2.ErrCodeEnhanceYourCalm {
		t.Errorf("%d pings are answered, %v", answered, ended)
	}
	if answered, ended := pings(startProxy(t, endpoints, "--grpc-keepalive-min-time=1ns")); ended != nil {
		t.Errorf("%d pings are answered where all may come, then %v", answered, ended)
	}
	impatient := startProxy(t, endpoints, "--grpc-keepalive-interval=1s", "--grpc-keepalive-timeout=1s")
	_, framer := speak(t, impatient.address)
	for pinged := false; ; {
		frame, err := framer.ReadFrame()
		if errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatalf("a client that does not answer stays; pinged: %v", pinged)
		}
		if err != nil {
			if !pinged {
				t.Errorf("it is not asked: %v", err)
			}
			return
		}
		if ping, ok := frame.(*http2.PingFrame); ok && !ping.IsAck() {
			pinged = true
		}
	}
}
