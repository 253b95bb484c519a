package integration

import (
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"cairn.dev/conformance/harness"
)

// usual are the packages below test/integration/ whose tests depend on the store: objects, lists, watches, patches, apply, leases.
var usual = []string{"apiserver", "apiserver/apply", "apiserver/coordinatedleaderelection", "apiserver/peerproxy"}

// TestSuites runs packages of Kubernetes' integration tests on the genuine server, which the tests start, and on Cairn in both ways that they
// know: by a URL, and started by them. What passes on the genuine one must pass on Cairn. Others' tests judge by the clock, so what does not is
// tried once more, alone.
func TestSuites(t *testing.T) {
	if os.Getenv("KUBERNETES_INTEGRATION") == "" || harness.Subject() == harness.Etcd {
		t.Skip("KUBERNETES_INTEGRATION=1 builds tests of Kubernetes, which takes a quarter of an hour, and runs them on both servers")
	}
	packages := usual
	if chosen := os.Getenv("SUITES"); chosen != "" {
		packages = strings.Fields(chosen)
	}
	limit := time.Duration(harness.Number(t, "MINUTES", 15)) * time.Minute
	kubernetes := sources(t)
	flags := modules(t, kubernetes)
	for _, name := range packages {
		t.Run(name, func(t *testing.T) {
			s := build(t, kubernetes, name, flags, limit)
			all := s.names()
			genuine := s.startsItsOwn(harness.Etcd)
			// With fewer, something is missing on this machine.
			if passed := genuine.whole(); len(passed) == 0 || len(passed)*4 < len(all)*3 {
				t.Errorf("%d of %d tests pass on etcd, which proves little; others than %v", len(passed), len(all), passed)
			}
			for _, way := range []struct {
				name string
				run  func(kind harness.Kind, only ...string) outcomes
			}{{"started by the tests", s.startsItsOwn}, {"given by its URL", s.isGiven}} {
				lost := way.run(harness.Cairn).lost(genuine)
				if len(lost) == 0 {
					continue
				}
				t.Logf("%s, %s: once more alone: %v", name, way.name, lost)
				again := way.run(harness.Cairn, above(lost)...)
				lost = slices.DeleteFunc(lost, func(test string) bool { return again[test] == "pass" })
				for _, test := range lost {
					t.Errorf("%s passes on etcd, not on Cairn %s", test, way.name)
				}
			}
		})
	}
}
