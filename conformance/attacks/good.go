package attacks

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"cairn.dev/conformance/frames"
)

const (
	// readEach and putEach are how often the good client asks.
	readEach = time.Millisecond
	putEach  = 10 * time.Millisecond
	// answerMax is how long an answer may take.
	answerMax = time.Minute
)

// Experience is what a good client has seen.
type Experience struct {
	Reads, Puts int
	// Failures say what went wrong, as far as anything did.
	Failures []string
	// Latencies of reads and puts in microseconds, by name of the percentile.
	ReadUs, PutUs map[string]float64
}

// goodClient works by the clock on one connection until stop is closed.
type goodClient struct {
	conn net.Conn

	guard sync.Mutex
	// sent is when the open requests were sent.
	sent        map[uint32]time.Time
	isPut       map[uint32]bool
	reads, puts []time.Duration
	failures    []string
}

// beGood asks until stop is closed and returns what it has seen.
func beGood(address string, stop <-chan struct{}) (Experience, error) {
	conn, err := net.Dial("tcp", address)
	if err != nil {
		return Experience{}, err
	}
	defer conn.Close()
	c := &goodClient{conn: conn, sent: map[uint32]time.Time{}, isPut: map[uint32]bool{}}
	if _, err := conn.Write(slices.Concat([]byte(http2.ClientPreface), frames.Settings(open), frames.Window(0, windowMax-windowDefault))); err != nil {
		return Experience{}, err
	}
	ended := make(chan error, 1)
	go func() { ended <- c.read() }()

	readBlock := frames.Literals(getFields...)
	putBlock := frames.Literals(putFields...)
	put := frames.Message(&pb.PutRequest{Key: []byte("good"), Value: make([]byte, 256)})
	ticks := time.NewTicker(readEach)
	defer ticks.Stop()
	start, asked, id := time.Now(), 0, uint32(1)
	for running := true; running; {
		select {
		case <-stop:
			running = false
			continue
		case err := <-ended:
			c.failed(fmt.Sprintf("the connection ended: %v", err))
			return c.experience(), nil
		case <-ticks.C:
		}
		// A tick that was missed is made up for: who asks by the clock does not wait for the server.
		for due := int(time.Since(start) / readEach); asked < due; asked++ {
			body, block, isPut := getBody, readBlock, asked%int(putEach/readEach) == 0
			if isPut {
				body, block = put, putBlock
			}
			c.guard.Lock()
			c.sent[id], c.isPut[id] = time.Now(), isPut
			c.guard.Unlock()
			_ = conn.SetWriteDeadline(time.Now().Add(answerMax))
			if _, err := conn.Write(append(frames.Headers(id, false, block), frames.Data(id, true, body)...)); err != nil {
				c.failed(fmt.Sprintf("writing: %v", err))
				return c.experience(), nil
			}
			id += 2
		}
	}
	for deadline := time.Now().Add(answerMax); c.open() > 0; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			c.failed(fmt.Sprintf("%d requests are without answer after %v", c.open(), answerMax))
			break
		}
	}
	return c.experience(), nil
}

func (c *goodClient) open() int {
	c.guard.Lock()
	defer c.guard.Unlock()
	return len(c.sent)
}

func (c *goodClient) failed(what string) {
	c.guard.Lock()
	defer c.guard.Unlock()
	if len(c.failures) < 10 {
		c.failures = append(c.failures, what)
	}
}

func (c *goodClient) read() error {
	in := bufio.NewReader(c.conn)
	framer := http2.NewFramer(c.conn, in)
	framer.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	for {
		frame, err := framer.ReadFrame()
		if err != nil {
			return err
		}
		now := time.Now()
		switch frame := frame.(type) {
		case *http2.GoAwayFrame:
			return fmt.Errorf("GOAWAY %v %q", frame.ErrCode, frame.DebugData())
		case *http2.PingFrame:
			if !frame.IsAck() {
				_ = framer.WritePing(true, frame.Data)
			}
		case *http2.RSTStreamFrame:
			c.over(frame.StreamID, now, fmt.Errorf("RST_STREAM %v", frame.ErrCode))
		case *http2.MetaHeadersFrame:
			if frame.StreamEnded() {
				err := errors.New("no grpc-status")
				for _, field := range frame.Fields {
					if field.Name == "grpc-status" && field.Value == "0" {
						err = nil
					} else if field.Name == "grpc-status" {
						err = fmt.Errorf("%v", frame.Fields)
					}
				}
				c.over(frame.StreamID, now, err)
			}
		}
	}
}

// over takes note of an answer.
func (c *goodClient) over(id uint32, now time.Time, err error) {
	c.guard.Lock()
	sent, open := c.sent[id]
	isPut := c.isPut[id]
	delete(c.sent, id)
	delete(c.isPut, id)
	switch {
	case !open:
	case isPut:
		c.puts = append(c.puts, now.Sub(sent))
	default:
		c.reads = append(c.reads, now.Sub(sent))
	}
	c.guard.Unlock()
	if err != nil {
		c.failed(err.Error())
	}
}

func (c *goodClient) experience() Experience {
	c.guard.Lock()
	defer c.guard.Unlock()
	return Experience{
		Reads: len(c.reads), Puts: len(c.puts), Failures: c.failures,
		ReadUs: percentiles(c.reads), PutUs: percentiles(c.puts),
	}
}

func percentiles(latencies []time.Duration) map[string]float64 {
	points := map[string]float64{}
	slices.SortFunc(latencies, func(a, b time.Duration) int { return cmp.Compare(a, b) })
	for name, share := range map[string]float64{"p50": 0.5, "p99": 0.99, "max": 1} {
		if len(latencies) > 0 {
			points[name] = float64(latencies[min(int(share*float64(len(latencies))), len(latencies)-1)].Microseconds())
		}
	}
	return points
}
