package history

import (
	"testing"

	"cairn.dev/conformance/harness"
	"cairn.dev/conformance/model"
	"cairn.dev/conformance/workload"
)

const watchersMax = 10

// A program that uses clientv3 gets the model's answers to random requests,
// and its watches deliver the model's events.
func TestClientAgainstModel(t *testing.T) {
	seed := harness.Seed(t)
	count := harness.Number(t, "OPERATIONS", 20_000)
	api := harness.Start(t, harness.Subject()).Client()
	store := model.New()
	requests := workload.New(seed, store)
	subject := client{api}
	run := &comparison{t: t, reference: modelTarget{store}, subject: subject, asSeen: subject.asSeen}
	var watchers []*watcher
	for range count {
		run.ask(requests.Next())
		if requests.Chance(3) {
			watchers = append(watchers, openWatch(t, api, store, requests.Watch()))
		}
		if len(watchers) > watchersMax {
			i := requests.Below(len(watchers))
			watchers[i].close(t, store)
			watchers = append(watchers[:i], watchers[i+1:]...)
		}
	}
	for _, watcher := range watchers {
		watcher.close(t, store)
	}
}

// Requests that clientv3 does not send, too, get the model's answers.
func TestStubsAgainstModel(t *testing.T) {
	seed := harness.Seed(t)
	count := harness.Number(t, "OPERATIONS", 20_000) / 2
	server := newStubs(harness.Start(t, harness.Subject()).Conn())
	store := model.New()
	requests := workload.NewWild(seed, store)
	run := &comparison{t: t, reference: modelTarget{store}, subject: server}
	for range count {
		run.ask(requests.Next())
	}
}
