package http2

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"cairn.dev/conformance/frames"
	"cairn.dev/conformance/harness"
)

// hits are the limits that were run into, by name.
func hits(t *testing.T, server *harness.Server) map[string]string {
	t.Helper()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: answerMax}
	response, err := client.Get(server.URL("/metrics"))
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	page, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]string{}
	for _, line := range hitLine.FindAllStringSubmatch(string(page), -1) {
		found[line[1]] = line[2]
	}
	return found
}

var hitLine = regexp.MustCompile(`(?m)^cairn_rpc_(?:limit_hits|connection_errors)_total\{[a-z]+="(\w+)"\} (\d+)$`)

// TestLimits runs into each limit that a flag sets, on a connection of its own:
// what the client sees, and the counter that shows it.
func TestLimits(t *testing.T) {
	if harness.Subject() != harness.Cairn {
		t.Skip("the flags are Cairn's own")
	}
	server := harness.Start(t, harness.Cairn, "--max-header-bytes=4096", "--client-handshake-timeout=3s",
		"--client-header-timeout=3s", "--client-body-timeout=3s",
		"--client-rate-limits=resets=5,forced_resets=5,idle_frames=20,tiny_data=20,window_updates=20")
	calm := func(p *peer) error { return p.connectionError(http2.ErrCodeEnhanceYourCalm) }
	flood := func(frame []byte) func(*peer) error {
		return func(p *peer) error {
			p.send(slices.Concat(slices.Repeat([][]byte{frame}, 50)...))
			return calm(p)
		}
	}
	cases := []struct {
		limit string
		run   func(p *peer) error
	}{
		{"header_list", func(p *peer) error {
			_, err := p.answer(p.begin(with(rangeHeaders, field("long", strings.Repeat("x", 5_000))), true))
			return err
		}},
		{"header_block", func(p *peer) error {
			p.send(frames.Raw(http2.FrameHeaders, 0, 1, 0x82), slices.Concat(slices.Repeat([][]byte{
				frames.Raw(http2.FrameContinuation, 0, 1),
			}, 40)...))
			return calm(p)
		}},
		{"header_table", func(p *peer) error {
			p.send(frames.Raw(http2.FrameHeaders, http2.FlagHeadersEndHeaders, 1, 0x3f, 0xe2, 0x1f, 0x82))
			return p.connectionError(http2.ErrCodeCompression)
		}},
		{"header_time", func(p *peer) error {
			p.send(frames.Raw(http2.FrameHeaders, 0, 1, 0x82))
			return p.ended()
		}},
		{"body_time", func(p *peer) error {
			id := p.begin(rangeHeaders, false)
			p.send(frames.Data(id, false, rangeBody[:3]))
			return p.refused(id, "14")
		}},
		{"resets", func(p *peer) error {
			for range 10 {
				p.send(frames.Reset(p.begin(watchHeaders, false), http2.ErrCodeCancel))
			}
			return calm(p)
		}},
		{"forced_resets", func(p *peer) error {
			for range 10 {
				p.send(frames.Window(p.begin(watchHeaders, false), 0))
			}
			return calm(p)
		}},
		{"idle_frames", flood(frames.Settings())},
		{"window_updates", flood(frames.Window(0, 1))},
		{"tiny_data", func(p *peer) error {
			id := p.begin(watchHeaders, false)
			p.send(slices.Concat(slices.Repeat([][]byte{frames.Data(id, false, []byte{0})}, 4)...))
			p.send(frames.Data(id, false, []byte{0x7f}))
			return flood(frames.Data(id, false, []byte("x")))(p)
		}},
		{"stream_window", func(p *peer) error {
			id := p.begin(watchHeaders, false)
			p.send(frames.Window(id, windowMax))
			return p.streamError(id, http2.ErrCodeFlowControl)
		}},
		{"connection_window", func(p *peer) error {
			p.send(frames.Window(0, windowMax))
			return p.connectionError(http2.ErrCodeFlowControl)
		}},
	}
	for _, c := range cases {
		t.Run(c.limit, func(t *testing.T) {
			if before := hits(t, server)[c.limit]; before != "0" {
				t.Fatalf("it was counted %q times before", before)
			}
			p, err := dial(server)
			if err != nil {
				t.Fatal(err)
			}
			defer p.close()
			if err := c.run(p); err != nil {
				t.Error(err)
			}
			if after := hits(t, server)[c.limit]; after != "1" {
				t.Errorf("it was counted %q times, not once", after)
			}
		})
	}
	t.Run("handshake", func(t *testing.T) {
		conn, err := net.Dial("tcp", server.Endpoint())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		_ = conn.SetReadDeadline(time.Now().Add(answerMax))
		if _, err := conn.Read(make([]byte, 1)); err != io.EOF {
			t.Errorf("a silent connection: %v", err)
		}
		if count := hits(t, server)["handshake"]; count != "1" {
			t.Errorf("it was counted %q times", count)
		}
	})
	found := hits(t, server)
	for code, least := range map[string]string{"ENHANCE_YOUR_CALM": "6", "COMPRESSION_ERROR": "1"} {
		if found[code] != least {
			t.Errorf("%s is counted %q times, not %s", code, found[code], least)
		}
	}
}

// TestConnectionLimit opens more connections than there may be: the surplus is
// closed at once, those that are open go on, and the log says so.
func TestConnectionLimit(t *testing.T) {
	if harness.Subject() != harness.Cairn {
		t.Skip("the flag is Cairn's own")
	}
	const most = 4
	server := harness.Start(t, harness.Cairn, fmt.Sprintf("--max-client-connections=%d", most))
	var open []*peer
	deadline := time.Now().Add(answerMax)
	for len(open) < most {
		p, err := dial(server)
		if err == nil {
			open = append(open, p)
		} else if time.Now().After(deadline) {
			// The harness' own may still have been open.
			t.Fatal(err)
		}
	}
	for range 10 {
		conn, err := net.Dial("tcp", server.Endpoint())
		if err != nil {
			t.Fatal(err)
		}
		_ = conn.SetReadDeadline(time.Now().Add(answerMax))
		if _, err := conn.Read(make([]byte, 1)); err == nil || strings.Contains(err.Error(), "timeout") {
			t.Errorf("one too many: %v", err)
		}
		conn.Close()
	}
	for _, p := range open {
		if err := p.alive(); err != nil {
			t.Error(err)
		}
	}
	for _, p := range open[1:] {
		p.close()
	}
	// Until the server has seen that, it turns away who asks.
	for deadline := time.Now().Add(answerMax); ; time.Sleep(quietTime) {
		p, err := dial(server)
		if err == nil {
			p.close()
			break
		}
		if time.Now().After(deadline) {
			t.Fatal(err)
		}
	}
	if count := hits(t, server)["connections"]; count == "" || count == "0" {
		t.Errorf("it was counted %q times", count)
	}
	server.AwaitLog(t, "turned client connections away")
}
