package main

import (
	"errors"
	"fmt"
	"sort"

	"github.com/anishathalye/porcupine"
	"go.uber.org/zap"

	"go.etcd.io/etcd/tests/v3/robustness/model"
	"go.etcd.io/etcd/tests/v3/robustness/report"
)

// secondOpinion judges the report of a run for which porcupine found neither
// an order of all requests nor that there is none. It takes the order from the
// Raft logs, and needs no search: every answer must be the one that the suite's
// own model gives at the revision that the answer names, and no answer may name
// an older revision than one that had ended before its request began. Requests
// without an answer are right by being in the log or not.
func secondOpinion(folder string) (checked int, err error) {
	reports, err := report.LoadClientReports(folder)
	if err != nil {
		return 0, err
	}
	persisted, err := report.LoadClusterPersistedRequests(zap.NewNop(), folder)
	if err != nil {
		return 0, err
	}
	states, err := statesByRevision(persisted)
	if err != nil {
		return 0, err
	}
	var operations []porcupine.Operation
	for _, client := range reports {
		for _, operation := range client.KeyValue {
			if names(operation) > 0 {
				operations = append(operations, operation)
			}
		}
	}
	return len(operations), errors.Join(checkOrder(operations), checkAnswers(operations, states))
}

// names is the revision that an answer names, if it says how far the member was.
func names(operation porcupine.Operation) int64 {
	request, answer := operation.Input.(model.EtcdRequest), operation.Output.(model.MaybeEtcdResponse)
	isOld := request.Type == model.Range && request.Range.Revision != 0
	if answer.Error != "" || answer.ClientError != "" || isOld {
		return 0
	}
	return answer.Revision
}

// statesByRevision are the states that the requests of the log lead through.
// Leases come and go without a new revision, so one may have several.
func statesByRevision(persisted []model.EtcdRequest) (map[int64][]model.EtcdState, error) {
	state, err := model.NewReplay(persisted).StateForRevision(1)
	if err != nil {
		return nil, err
	}
	states := map[int64][]model.EtcdState{state.Revision: {state}}
	for _, request := range persisted {
		state, _ = state.Step(request)
		states[state.Revision] = append(states[state.Revision], state)
	}
	return states, nil
}

// checkOrder finds answers that are older than what was known before they were
// asked for.
func checkOrder(operations []porcupine.Operation) error {
	type end struct{ at, revision int64 }
	var ends []end
	for _, operation := range operations {
		ends = append(ends, end{operation.Return, names(operation)})
	}
	sort.Slice(ends, func(i, j int) bool { return ends[i].at < ends[j].at })
	for i := 1; i < len(ends); i++ {
		ends[i].revision = max(ends[i].revision, ends[i-1].revision)
	}
	var wrong error
	for _, operation := range operations {
		before := sort.Search(len(ends), func(i int) bool { return ends[i].at >= operation.Call })
		if before > 0 && names(operation) < ends[before-1].revision {
			wrong = errors.Join(wrong, fmt.Errorf("revision %d was known before, the answer is: %+v", ends[before-1].revision, operation))
		}
	}
	return wrong
}

// checkAnswers finds answers that the model gives at no state of their
// revision, nor at one before it: that is where a write was made.
func checkAnswers(operations []porcupine.Operation, states map[int64][]model.EtcdState) error {
	var wrong error
	for _, operation := range operations {
		request, answer := operation.Input.(model.EtcdRequest), operation.Output.(model.MaybeEtcdResponse)
		if request.Type != model.Range && request.Type != model.Txn {
			continue
		}
		isRight := false
		for _, revision := range []int64{answer.Revision - 1, answer.Revision} {
			for _, state := range states[revision] {
				_, wanted := state.Step(request)
				isRight = isRight || model.Match(wanted, answer)
			}
		}
		if !isRight {
			wrong = errors.Join(wrong, fmt.Errorf("no state of its revision gives this answer: %+v", operation))
		}
	}
	return wrong
}
