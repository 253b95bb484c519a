package history

import (
	"testing"

	"cairn.dev/conformance/harness"
	"cairn.dev/conformance/model"
	"cairn.dev/conformance/workload"
)

const restarts = 5

// A server that is killed and started again goes on where the model is.
func TestRestarts(t *testing.T) {
	seed := harness.Seed(t)
	count := harness.Number(t, "OPERATIONS", 20_000) / 10
	server := harness.Start(t, harness.Subject(), "--snapshot-count=500")
	store := model.New()
	requests := workload.NewWild(seed, store)
	run := &comparison{t: t, reference: modelTarget{store}, subject: newStubs(server.Conn())}
	for i := range restarts {
		for range count / restarts {
			run.ask(requests.Next())
		}
		if i%2 == 0 {
			server.Kill()
		} else {
			server.Stop()
		}
		server.Run()
		run.subject = newStubs(server.Conn())
		run.ttlAdded = 1 // An election timeout, as in etcd.
		api := server.Client()
		for range 10 {
			openWatch(t, api, store, requests.Watch()).close(t, store)
		}
	}
}
