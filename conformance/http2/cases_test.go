package http2

import (
	"testing"

	"golang.org/x/net/http2"

	"cairn.dev/conformance/harness"
)

// testCase is one connection and what must come of it.
type testCase struct {
	name string
	// settings of the client, which are acknowledged before the case begins.
	settings []http2.Setting
	run      func(p *peer) error
}

// runCases gives each case a connection of its own.
func runCases(t *testing.T, server *harness.Server, cases []testCase) {
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			p, err := dial(server, c.settings...)
			if err != nil {
				t.Fatal(err)
			}
			defer p.close()
			judge(t, c.run(p), c.name)
		})
	}
}
