package storms

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/protobuf/proto"

	"cairn.dev/conformance/harness"
)

// TestConnections opens CONNECTIONS (2,000) at once: each asks for one key, and
// is then idle. Says what an idle one takes of the member's memory, and how fast
// CALLS (2) from every one of them are answered when they all come together.
// With BESIDE=1 the genuine server's figures, too.
func TestConnections(t *testing.T) {
	t.Parallel()
	connections, calls := harness.Number(t, "CONNECTIONS", 2_000), harness.Number(t, "CALLS", 2)
	allowFiles(t, uint64(connections)+1_000)
	const idleMax = 10 << 10
	for _, kind := range kinds(t) {
		server := harness.Start(t, kind)
		before := harness.AnonymousBytes(t, server.Pid())
		began := time.Now()
		opened := openAll(t, server.Endpoint(), connections)
		took := time.Since(began)
		// What the burst took is given back within moments, or on a busy machine somewhat later.
		idle, idleWait := 0, time.Minute
		if kind == harness.Etcd {
			idleWait = 10 * time.Second
		}
		for deadline := time.Now().Add(idleWait); time.Now().Before(deadline); time.Sleep(500 * time.Millisecond) {
			idle = (harness.AnonymousBytes(t, server.Pid()) - before) / connections
			if kind != harness.Etcd && idle <= idleMax {
				break
			}
		}
		used := harness.ProcessorTime(t, server.Pid())
		latencies := callAll(t, opened, calls)
		used = harness.ProcessorTime(t, server.Pid()) - used
		busy := (harness.AnonymousBytes(t, server.Pid()) - before) / connections
		at := func(share float64) time.Duration {
			return latencies[int(share*float64(len(latencies)-1))].Round(10 * time.Microsecond)
		}
		t.Logf("%-5s %d connections opened in %v; %d bytes each while they are idle, %d after %d calls at once: p50 %v, p99 %v, slowest %v, %v of the member's processor time each",
			kind, connections, took.Round(time.Millisecond), idle, busy, len(latencies), at(0.5), at(0.99), at(1),
			(used / time.Duration(len(latencies))).Round(100*time.Nanosecond))
		if kind != harness.Etcd && idle > idleMax {
			t.Errorf("an idle connection takes %d bytes", idle)
		}
		for _, connection := range opened {
			connection.socket.Close()
		}
		server.Stop()
	}
}

// allowFiles has this process, and those that it starts, open so many files.
func allowFiles(t *testing.T, files uint64) {
	t.Helper()
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	if limit.Cur >= files {
		return
	}
	limit.Cur, limit.Max = files, max(limit.Max, files)
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		harness.Unproved(t, fmt.Sprintf("no %d open files: %v", files, err))
	}
}

// bare is a connection without a client's machinery, of which there can be tens
// of thousands in a test.
type bare struct {
	socket net.Conn
	framer *http2.Framer
	stream uint32
	block  []byte
	body   []byte
}

func openBare(endpoint string) (*bare, error) {
	socket, err := net.Dial("tcp", endpoint)
	if err != nil {
		return nil, err
	}
	if _, err := io.WriteString(socket, http2.ClientPreface); err != nil {
		return nil, err
	}
	b := &bare{socket: socket, framer: http2.NewFramer(socket, socket), stream: 1}
	b.framer.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	b.block, err = headerBlock(endpoint, "/etcdserverpb.KV/Range")
	if err != nil {
		return nil, err
	}
	message, err := proto.Marshal(&etcdserverpb.RangeRequest{Key: []byte("key")})
	if err != nil {
		return nil, err
	}
	b.body = append(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(message))), message...)
	return b, b.framer.WriteSettings()
}

// headerBlock is what a call of this method begins with.
func headerBlock(endpoint, path string) ([]byte, error) {
	var block bytes.Buffer
	encoder := hpack.NewEncoder(&block)
	// Each block stands for itself: no name is kept for the next.
	for _, field := range [][2]string{
		{":method", "POST"}, {":scheme", "http"}, {":path", path}, {":authority", endpoint},
		{"content-type", "application/grpc"}, {"te", "trailers"},
	} {
		if err := encoder.WriteField(hpack.HeaderField{Name: field[0], Value: field[1], Sensitive: true}); err != nil {
			return nil, err
		}
	}
	return block.Bytes(), nil
}

// call reads the key, and fails unless the call ends well.
func (b *bare) call() error {
	headers := http2.HeadersFrameParam{StreamID: b.stream, BlockFragment: b.block, EndHeaders: true}
	if err := b.framer.WriteHeaders(headers); err != nil {
		return err
	}
	if err := b.framer.WriteData(b.stream, true, b.body); err != nil {
		return err
	}
	got := 0
	for {
		frame, err := b.framer.ReadFrame()
		if err != nil {
			return err
		}
		switch frame := frame.(type) {
		case *http2.SettingsFrame:
			if !frame.IsAck() {
				if err := b.framer.WriteSettingsAck(); err != nil {
					return err
				}
			}
		case *http2.PingFrame:
			if err := b.framer.WritePing(true, frame.Data); err != nil {
				return err
			}
		case *http2.DataFrame:
			got += len(frame.Data())
		case *http2.MetaHeadersFrame:
			if frame.StreamID == b.stream && frame.StreamEnded() {
				b.stream += 2
				for _, field := range frame.Fields {
					if field.Name == "grpc-status" && field.Value == "0" && got > 0 {
						return nil
					}
				}
				return fmt.Errorf("the call ended after %d bytes with %v", got, frame.Fields)
			}
		case *http2.RSTStreamFrame, *http2.GoAwayFrame:
			return fmt.Errorf("the server sent %v", frame)
		}
	}
}

// openers is how many connections are being opened at a time.
const openers = 64

func openAll(t *testing.T, endpoint string, connections int) []*bare {
	t.Helper()
	opened := make([]*bare, connections)
	var next atomic.Int64
	var group sync.WaitGroup
	for range openers {
		group.Go(func() {
			for number := next.Add(1) - 1; number < int64(connections); number = next.Add(1) - 1 {
				connection, err := openBare(endpoint)
				if err == nil {
					err = connection.call()
				}
				if err != nil {
					t.Errorf("connection %d: %v", number, err)
					return
				}
				opened[number] = connection
			}
		})
	}
	group.Wait()
	if t.Failed() {
		t.FailNow()
	}
	return opened
}

// callAll calls once on every connection, as many times, and returns how long
// each call took, in order.
func callAll(t *testing.T, opened []*bare, calls int) []time.Duration {
	t.Helper()
	took := make([]time.Duration, calls*len(opened))
	var group sync.WaitGroup
	for number, connection := range opened {
		group.Go(func() {
			for call := range calls {
				began := time.Now()
				if err := connection.call(); err != nil {
					t.Errorf("connection %d: %v", number, err)
					return
				}
				took[call*len(opened)+number] = time.Since(began)
			}
		})
	}
	group.Wait()
	slices.Sort(took)
	return took
}
