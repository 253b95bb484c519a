package reliability

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/protobuf/proto"

	"cairn.dev/conformance/harness"
)

// hostile is a request that one client repeats without pause.
type hostile struct {
	name    string
	path    string
	message proto.Message
	// bytesMin is what a whole answer has at least; 0: an error is an answer too.
	bytesMin int64
	// stalled: ten clients ask once and do not read.
	stalled bool
	// streams: one connection asks so often at once, again and again.
	streams int
	// paceBytes: ten clients ask once and read so much each 10 ms.
	paceBytes int
}

func hostiles(keys int) []hostile {
	const rangePath, txnPath = "/etcdserverpb.KV/Range", "/etcdserverpb.KV/Txn"
	all := func(change func(*pb.RangeRequest)) *pb.RangeRequest {
		request := &pb.RangeRequest{Key: []byte{0}, RangeEnd: []byte{0}}
		change(request)
		return request
	}
	byValue := func(r *pb.RangeRequest) {
		r.SortTarget, r.SortOrder = pb.RangeRequest_VALUE, pb.RangeRequest_DESCEND
	}
	list := all(func(*pb.RangeRequest) {})
	whole := int64(keys) * 272
	return []hostile{
		{name: "the list of all keys", path: rangePath, message: list, bytesMin: whole},
		{name: "the list of all keys, not read", path: rangePath, message: list, stalled: true},
		{name: "the list of all keys, read slowly", path: rangePath, message: list, paceBytes: 16 << 10},
		{name: "10,000 reads at once on one connection", path: rangePath, streams: 10_000,
			message: &pb.RangeRequest{Key: []byte("0000000000000001")}},
		{name: "1,000 lists of 100 keys at once on one connection", path: rangePath, streams: 1_000,
			message: all(func(r *pb.RangeRequest) { r.Limit = 100 })},
		{name: "the list of all keys, sorted by value", path: rangePath, message: all(byValue), bytesMin: whole},
		{name: "the ten highest values", path: rangePath, bytesMin: 10 * 272,
			message: all(func(r *pb.RangeRequest) { byValue(r); r.Limit = 10 })},
		{name: "a filter that no key passes", path: rangePath, bytesMin: 1,
			message: all(func(r *pb.RangeRequest) { r.MinModRevision = 1 << 60 })},
		{name: "a count at an old revision", path: rangePath, bytesMin: 1,
			message: all(func(r *pb.RangeRequest) { r.CountOnly, r.Revision = true, int64(keys)/2 })},
		{name: "a count under a limit", path: rangePath, bytesMin: 1,
			message: all(func(r *pb.RangeRequest) { r.Limit = 1 })},
		{name: "10 MB of nested transactions", path: txnPath, message: nestedTxn(10 << 20)},
		{name: "1 MB of nested transactions", path: txnPath, message: nestedTxn(1 << 20)},
	}
}

// nestedTxn packs transactions into one another until they have that size.
// Each level holds a little less than its parent, so depth costs what width
// would.
func nestedTxn(bytes int) *pb.TxnRequest {
	filler := make([]byte, 8<<10)
	txn := &pb.TxnRequest{}
	for size := 0; size < bytes; size += len(filler) + 32 {
		put := &pb.RequestOp{Request: &pb.RequestOp_RequestPut{RequestPut: &pb.PutRequest{Key: []byte("nested"), Value: filler}}}
		inner := &pb.RequestOp{Request: &pb.RequestOp_RequestTxn{RequestTxn: txn}}
		txn = &pb.TxnRequest{Success: []*pb.RequestOp{put}, Failure: []*pb.RequestOp{inner}}
	}
	return txn
}

// Where a hostile client finds its orders: it is this test binary, started
// again.
const (
	hostileEndpoint = "HOSTILE_ENDPOINT"
	hostileNumber   = "HOSTILE_NUMBER"
	hostileKeys     = "HOSTILE_KEYS"
)

// start lets a process of its own repeat the request. It stands for another
// machine, so it runs at the lowest priority: the processor that it needs to
// read its answers is not the server's fault. The returned function ends it and
// tells how often it asked.
func start(t testing.TB, server *harness.Server, number, keys int) func() int {
	t.Helper()
	command := exec.Command("nice", "-n", "19", os.Args[0], "-test.run=^TestHostileClient$", "-test.v")
	command.Env = append(os.Environ(), hostileEndpoint+"="+server.Endpoint(),
		hostileNumber+"="+fmt.Sprint(number), hostileKeys+"="+fmt.Sprint(keys))
	orders, err := command.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	output, finished := make(chan string, 1), make(chan error, 1)
	go func() {
		text, err := command.Output()
		output <- string(text)
		finished <- err
	}()
	return func() int {
		t.Helper()
		orders.Close()
		text := <-output
		found := regexp.MustCompile(`asked (\d+) times`).FindStringSubmatch(text)
		if err := <-finished; err != nil || found == nil {
			t.Errorf("the hostile client: %v\n%s", err, text)
			return 0
		}
		times, _ := strconv.Atoi(found[1])
		return times
	}
}

// TestHostileClient is the other end of start, and nothing by itself.
func TestHostileClient(t *testing.T) {
	endpoint := os.Getenv(hostileEndpoint)
	if endpoint == "" {
		t.Skip("started by TestNeighbours")
	}
	stop := make(chan struct{})
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		close(stop)
	}()
	client := hostiles(harness.Number(t, hostileKeys, 0))[harness.Number(t, hostileNumber, 0)]
	t.Logf("asked %d times", client.repeat(t, endpoint, stop))
}

// repeat sends the request again and again, each time on a connection of its
// own, until stop is closed. It returns how often.
func (h hostile) repeat(t testing.TB, endpoint string, stop <-chan struct{}) (times int) {
	switch {
	case h.stalled, h.paceBytes > 0:
		for ; times < 10; times++ {
			call := call(t, endpoint, h.path, h.message, false)
			defer call.conn.Close()
			if h.paceBytes > 0 {
				call.sip(h.paceBytes, time.Hour)
				go call.drain(time.Hour)
			}
		}
		<-stop
		return times
	case h.streams > 0:
		crowd := crowd(t, endpoint, h.path, h.message)
		defer crowd.conn.Close()
		for ; ; times += h.streams {
			select {
			case <-stop:
				return times
			default:
			}
			if err := crowd.ask(h.streams); err != nil {
				t.Errorf("%s: %v", h.name, err)
				return times
			}
		}
	}
	for {
		select {
		case <-stop:
			return times
		default:
		}
		call := call(t, endpoint, h.path, h.message, false)
		bytes, err := call.drain(60 * time.Second)
		call.conn.Close()
		if h.bytesMin > 0 && (err != nil || bytes < h.bytesMin) {
			t.Errorf("%s: %d bytes (at least %d are due), %v", h.name, bytes, h.bytesMin, err)
			return times
		}
		times++
	}
}
