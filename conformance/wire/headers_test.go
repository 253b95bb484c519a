package wire

import (
	"bytes"
	"compress/gzip"
	"slices"
	"strings"
	"testing"

	"cairn.dev/conformance/harness"
	"github.com/google/go-cmp/cmp"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/protobuf/proto"
)

const (
	rangePath = "/etcdserverpb.KV/Range"
	// deadlineExceeded is the code as it stands in a header.
	deadlineExceeded = "4"
)

// rawCase is one call, told frame by frame.
type rawCase struct {
	name    string
	headers []header
	data    []byte
	// open leaves the client's side open.
	open bool
	// textOpen compares codes only.
	textOpen bool
	// refused only wants that the call is not answered.
	refused bool
	// endOpen only wants the call to end: the library decides how.
	endOpen bool
	// expires is set where the deadline ends the call: either side may notice
	// first, so it ends with a status or with a reset.
	expires bool
}

func runRaw(t *testing.T, cases []rawCase) {
	etcd, subject := harness.StartPair(t)
	for _, c := range cases {
		var outcomes [2]outcome
		for i, server := range []*harness.Server{etcd, subject} {
			conn, err := dialRaw(server.Endpoint())
			if err != nil {
				t.Fatal(err)
			}
			outcomes[i], err = conn.call(c.headers, c.data, c.open)
			conn.Close()
			if err != nil {
				t.Errorf("%s, %s: %v", c.name, server.Kind, err)
			}
			if c.textOpen {
				outcomes[i].Message = ""
			}
			if c.refused {
				if outcomes[i].Code == "0" || outcomes[i].Messages != 0 {
					t.Errorf("%s, %s: answered: %+v", c.name, server.Kind, outcomes[i])
				}
				outcomes[i] = outcome{}
			}
			if c.endOpen {
				outcomes[i] = outcome{}
			}
			if c.expires && (outcomes[i].Code == deadlineExceeded || outcomes[i].Reset) {
				outcomes[i] = outcome{Code: deadlineExceeded}
			}
		}
		if difference := cmp.Diff(outcomes[0], outcomes[1]); difference != "" {
			t.Errorf("%s:\n%s", c.name, difference)
		}
	}
}

func rangeBody() []byte {
	message, _ := proto.Marshal(&pb.RangeRequest{Key: []byte("k")})
	return framed(0, message)
}

func TestHeaders(t *testing.T) {
	usual := grpcHeaders(rangePath)
	body := rangeBody()
	with := func(name, value string) []header { return append(slices.Clone(usual), header{name, value}) }
	runRaw(t, []rawCase{
		{name: "a proper call", headers: usual, data: body},
		{name: "+proto", headers: replace(usual, "content-type", "application/grpc+proto"), data: body},
		{name: "no te", headers: replace(usual, "te", ""), data: body},
		{name: "https scheme", headers: replace(usual, ":scheme", "https"), data: body},
		{name: "hasleader", headers: with("hasleader", "true"), data: body},
		{name: "hasleader of nonsense", headers: with("hasleader", "perhaps"), data: body},
		{name: "an api version", headers: with("client-api-version", "3.7"), data: body},
		{name: "an empty api version", headers: with("client-api-version", ""), data: body},
		{name: "an api version that is no UTF-8", headers: with("client-api-version", "\xff\xfe"), data: body},
		{name: "a token without auth", headers: with("token", "abc.1"), data: body},
		{name: "an authorization without auth", headers: with("authorization", "Bearer abc"), data: body},
		{name: "binary metadata", headers: with("x-bin", "AAEC"), data: body},
		{name: "a user agent", headers: with("user-agent", "grpc-go/1.0"), data: body},
		{name: "20 KB of metadata", headers: with("x", strings.Repeat("x", 20_000)), data: body},
	})
}

// Contents that are not gRPC's go to the HTTP side or are refused; there is no
// answer to the call.
func TestContentTypes(t *testing.T) {
	usual := grpcHeaders(rangePath)
	var cases []rawCase
	for _, kind := range []string{"text/plain", "application/json", "application/grpcweb", "application/grp", ""} {
		headers := replace(usual, "content-type", kind)
		cases = append(cases, rawCase{name: "content type " + kind, headers: headers, data: rangeBody(), refused: true})
	}
	for _, verb := range []string{"GET", "PUT", "HEAD"} {
		headers := replace(usual, ":method", verb)
		cases = append(cases, rawCase{name: "method " + verb, headers: headers, data: rangeBody(), textOpen: true})
	}
	runRaw(t, cases)
}

func TestTimeouts(t *testing.T) {
	create, _ := proto.Marshal(&pb.WatchRequest{RequestUnion: &pb.WatchRequest_CreateRequest{
		CreateRequest: &pb.WatchCreateRequest{Key: []byte("k")},
	}})
	watch := grpcHeaders("/etcdserverpb.Watch/Watch")
	var cases []rawCase
	for _, timeout := range []string{"1n", "100m", "200000u", "1S"} {
		headers := append(slices.Clone(watch), header{"grpc-timeout", timeout})
		name := "a watch of " + timeout
		cases = append(cases, rawCase{name: name, headers: headers, data: framed(0, create), open: true, expires: true})
	}
	for _, timeout := range []string{"10S", "99999999H", "1H", "10M"} {
		headers := append(grpcHeaders(rangePath), header{"grpc-timeout", timeout})
		cases = append(cases, rawCase{name: "a range of " + timeout, headers: headers, data: rangeBody()})
	}
	for _, timeout := range []string{"", "S", "100", "-1S", "1.5S", "999999999S", "10x", "abcS"} {
		headers := append(grpcHeaders(rangePath), header{"grpc-timeout", timeout})
		cases = append(cases, rawCase{name: "a timeout of " + timeout, headers: headers, data: rangeBody(), textOpen: true})
	}
	runRaw(t, cases)
}

// Broken framing and compression.
func TestFraming(t *testing.T) {
	usual := grpcHeaders(rangePath)
	body := rangeBody()
	message := body[5:]
	gzipped := append(slices.Clone(usual), header{"grpc-encoding", "gzip"})
	zipped := append(slices.Clone(usual), header{"grpc-encoding", "zip"})
	identity := append(slices.Clone(usual), header{"grpc-encoding", "identity"})
	long := framed(0, message)
	long[4] += 10
	huge := framed(0, message)
	huge[1] = 0xff
	cases := []rawCase{
		{name: "no message", refused: true, headers: usual},
		{name: "half a prefix", refused: true, headers: usual, data: body[:3]},
		{name: "a message cut short", refused: true, headers: usual, data: long},
		{name: "a length of 4 GB", headers: usual, data: huge},
		{name: "two messages", endOpen: true, headers: usual, data: append(slices.Clone(body), body...)},
		{name: "an empty message", headers: usual, data: framed(0, nil)},
		{name: "bytes after the message", endOpen: true, headers: usual, data: append(slices.Clone(body), 0, 0)},
		{name: "flag 2", headers: usual, data: framed(2, message)},
		{name: "compressed without an encoding", headers: usual, data: framed(1, message)},
		{name: "gzip", headers: gzipped, data: framed(1, zip(message))},
		{name: "gzip of nothing", headers: gzipped, data: framed(1, zip(nil))},
		{name: "gzip announced only", headers: gzipped, data: body},
		{name: "no gzip in gzip", headers: gzipped, data: framed(1, message)},
		{name: "gzip cut short", headers: gzipped, data: framed(1, zip(message)[:10])},
		{name: "a gzip bomb", headers: gzipped, data: framed(1, zip(make([]byte, 200<<20)))},
		{name: "an unknown encoding", headers: zipped, data: framed(1, message)},
		{name: "an unknown encoding announced only", headers: zipped, data: body},
		{name: "identity", headers: identity, data: body},
		{name: "identity compressed", headers: identity, data: framed(1, message)},
	}
	for i := range cases {
		cases[i].textOpen = true
	}
	runRaw(t, cases)
}

func zip(message []byte) []byte {
	var packed bytes.Buffer
	writer := gzip.NewWriter(&packed)
	writer.Write(message)
	writer.Close()
	return packed.Bytes()
}
