package main

import (
	"testing"

	"github.com/anishathalye/porcupine"

	"go.etcd.io/etcd/tests/v3/robustness/model"
)

// put and get are requests of a client, answered at a revision.
func put(call, end, revision int64, value string) porcupine.Operation {
	option := model.PutOptions{Key: "key", Value: model.ToValueOrHash(value)}
	request := model.EtcdRequest{Type: model.Txn, Txn: &model.TxnRequest{
		OperationsOnSuccess: []model.EtcdOperation{{Type: model.PutOperation, Put: option}},
	}}
	answer := model.MaybeEtcdResponse{EtcdResponse: model.EtcdResponse{
		Revision: revision, Txn: &model.TxnResponse{Results: []model.EtcdOperationResult{{}}},
	}}
	return porcupine.Operation{Input: request, Output: answer, Call: call, Return: end}
}

func get(call, end, revision, modified int64, value string) porcupine.Operation {
	request := model.EtcdRequest{Type: model.Range, Range: &model.RangeRequest{RangeOptions: model.RangeOptions{Start: "key"}}}
	found := model.KeyValue{Key: "key", ValueRevision: model.ValueRevision{
		Value: model.ToValueOrHash(value), ModRevision: modified, Version: modified - 1,
	}}
	answer := model.MaybeEtcdResponse{EtcdResponse: model.EtcdResponse{
		Revision: revision, Range: &model.RangeResponse{KVs: []model.KeyValue{found}, Count: 1},
	}}
	return porcupine.Operation{Input: request, Output: answer, Call: call, Return: end}
}

func TestSecondOpinion(t *testing.T) {
	good := []porcupine.Operation{put(0, 10, 2, "a"), get(11, 12, 2, 2, "a"), put(13, 30, 3, "b"), get(14, 15, 2, 2, "a"), get(31, 32, 3, 3, "b")}
	var persisted []model.EtcdRequest
	for _, operation := range good {
		if request := operation.Input.(model.EtcdRequest); request.Type == model.Txn {
			persisted = append(persisted, request)
		}
	}
	states, err := statesByRevision(persisted)
	if err != nil {
		t.Fatal(err)
	}
	if err := checkOrder(good); err != nil {
		t.Error(err)
	}
	if err := checkAnswers(good, states); err != nil {
		t.Error(err)
	}
	// A read from before a write that had ended.
	if checkOrder(append(good, get(40, 41, 2, 2, "a"))) == nil {
		t.Error("a stale read is not found")
	}
	for name, planted := range map[string]porcupine.Operation{
		"a value of another revision": get(40, 41, 3, 3, "a"), "a write that the log does not have": put(40, 41, 5, "c"),
	} {
		if checkAnswers([]porcupine.Operation{planted}, states) == nil {
			t.Errorf("%s is not found", name)
		}
	}
}
