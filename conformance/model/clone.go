package model

import (
	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/protobuf/proto"
)

// clone copies a pair for an answer: answers may be changed by who gets them.
func clone(pair *mvccpb.KeyValue) *mvccpb.KeyValue {
	if pair == nil {
		return nil
	}
	return proto.Clone(pair).(*mvccpb.KeyValue)
}

func cloneAll(pairs []*mvccpb.KeyValue) []*mvccpb.KeyValue {
	copies := make([]*mvccpb.KeyValue, len(pairs))
	for i, pair := range pairs {
		copies[i] = clone(pair)
	}
	return copies
}
