package http2

import (
	"context"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"cairn.dev/conformance/frames"
	"cairn.dev/conformance/harness"
)

// TestGracefulStop is section 6.8: SIGTERM while a list is on its way and a watch
// is open. The server first says that it will go (the last stream is the largest
// number there is, so that nothing on its way is lost), later which stream was
// the last; what has begun is finished, and then it ends.
func TestGracefulStop(t *testing.T) {
	const valueBytes, values = 100_000, 20
	server := harness.Start(t, harness.Subject())
	client := server.Client()
	for i := range values {
		if _, err := client.Put(context.Background(), string(rune('a'+i)), strings.Repeat("v", valueBytes)); err != nil {
			t.Fatal(err)
		}
	}
	client.Close()
	p, err := dial(server)
	if err != nil {
		t.Fatal(err)
	}
	defer p.close()
	idle, err := dial(server)
	if err != nil {
		t.Fatal(err)
	}
	defer idle.close()
	// The list stops at the window.
	list := p.call(rangeHeaders, listBody)
	if err := p.dataOn(list, windowDefault); err != nil {
		t.Fatal(err)
	}
	// Pings are answered by hand: the second GOAWAY follows the answer.
	p.setMute(true)

	server.Signal(syscall.SIGTERM)
	stopped := time.Now()
	first, err := p.await("the first GOAWAY", func(e event) bool { return e.Type == http2.FrameGoAway })
	if err != nil {
		t.Fatal(err)
	}
	if first.code != noError || first.number != windowMax {
		t.Errorf("the first GOAWAY is %v; NO_ERROR and %d are due", first, windowMax)
	}
	// A call that was on its way when the GOAWAY was sent is answered.
	late := p.begin(frames.GRPC("/no.Such/Method"), true)
	if err := p.refused(late, "12"); err != nil {
		t.Errorf("a call that crosses the first GOAWAY: %v", err)
	}
	p.setMute(false)
	p.send(frames.Window(list, 1<<30), frames.Window(0, 1<<30))
	got := windowDefault
	var final *event
	for {
		e, err := p.await("the end of the list", func(e event) bool {
			return e.StreamID == list && (e.Type == http2.FrameData || e.ends()) || e.Type == http2.FrameGoAway
		})
		if err != nil {
			t.Fatalf("after %d bytes: %v", got, err)
		}
		if e.Type == http2.FrameGoAway {
			final = &e
			continue
		}
		got += len(e.data)
		if e.ends() {
			if value(e.fields, "grpc-status") != "0" || got < values*valueBytes {
				t.Errorf("the list ends after %d bytes with %v", got, e)
			}
			break
		}
	}
	for final == nil {
		e, err := p.await("the final GOAWAY", func(e event) bool { return e.Type == http2.FrameGoAway })
		if err != nil {
			t.Fatal(err)
		}
		final = &e
	}
	if final.code != noError || final.number < late || final.number == windowMax {
		t.Errorf("the final GOAWAY is %v; NO_ERROR and at least %d are due", *final, late)
	}
	if err := p.ended(); err != nil {
		t.Error(err)
	}
	if err := idle.ended(); err != nil {
		t.Errorf("an idle connection: %v", err)
	}
	if _, err := server.Wait(answerMax); err != nil {
		t.Error(err)
	}
	t.Logf("it ended %v after SIGTERM", time.Since(stopped).Round(time.Millisecond))
}
