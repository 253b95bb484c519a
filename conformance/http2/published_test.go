package http2

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/summerwind/h2spec/config"
	"github.com/summerwind/h2spec/generic"
	"github.com/summerwind/h2spec/hpack"
	"github.com/summerwind/h2spec/http2"
	"github.com/summerwind/h2spec/spec"

	"cairn.dev/conformance/harness"
)

// publishedWait is how long a case of the published suite waits for a frame. A
// server that does nothing is found by that, so it cannot be long. A case that
// fails runs once more with publishedPatience: some read thousands of frames,
// which takes longer than that on a busy machine.
const (
	publishedWait     = 2 * time.Second
	publishedPatience = 30 * time.Second
)

// TestPublished runs every case of h2spec, those of its strict mode included:
// the generic ones, HTTP/2 sections 3 to 8, and HPACK. It is used as a library,
// case by case, because its own runner knows no exceptions and ends the process
// when a connection is refused.
func TestPublished(t *testing.T) {
	server := harness.Start(t, harness.Subject())
	for _, group := range []*spec.TestGroup{generic.Spec(), http2.Spec(), hpack.Spec()} {
		runGroup(t, server, group)
	}
}

func runGroup(t *testing.T, server *harness.Server, group *spec.TestGroup) {
	for number, published := range append(group.Tests, group.StrictTests...) {
		t.Run(fmt.Sprintf("%s/%d", group.ID(), number+1), func(t *testing.T) {
			t.Parallel()
			run := func(wait time.Duration) error {
				settings := &config.Config{
					Host: server.Host, Port: server.ClientPort, Path: "/version",
					Timeout: wait, MaxHeaderLen: 4000, Strict: true,
				}
				conn, err := spec.Dial(settings)
				if err != nil {
					t.Fatal(err)
				}
				defer conn.Close()
				return published.Run(settings, conn)
			}
			err := run(publishedWait)
			if _, excepted := exceptions[t.Name()]; err != nil && !errors.Is(err, spec.ErrSkipped) && !excepted {
				err = run(publishedPatience)
			}
			judge(t, err, published.Desc)
		})
	}
	for _, inner := range group.Groups {
		runGroup(t, server, inner)
	}
}
