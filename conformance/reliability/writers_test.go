package reliability

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// writers keep writing, one request each at a time, until they are stopped.
// An error is expected while the server is away; its outcome is unknown.
type writers struct {
	ledger *ledger
	cancel context.CancelFunc
	done   sync.WaitGroup
}

func startWriters(client *clientv3.Client, count int, ledger *ledger) *writers {
	ctx, cancel := context.WithCancel(context.Background())
	w := &writers{ledger: ledger, cancel: cancel}
	for number := range count {
		w.done.Add(1)
		go func() {
			defer w.done.Done()
			random := rand.New(rand.NewPCG(uint64(number), 1))
			for sequence := 0; ctx.Err() == nil; sequence++ {
				w.write(ctx, client, random, fmt.Sprintf("%d/%d", number, sequence))
			}
		}()
	}
	return w
}

func (w *writers) stop() {
	w.cancel()
	w.done.Wait()
}

// write sends one put, delete or transaction. Its values carry the name, so
// each value is written once.
func (w *writers) write(ctx context.Context, client *clientv3.Client, random *rand.Rand, name string) {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	key := func() string { return fmt.Sprintf("key/%03d", random.IntN(400)) }
	var writes []change
	var operations []clientv3.Op
	add := func(key, value string) {
		writes = append(writes, change{key: key, value: value})
		operations = append(operations, clientv3.OpPut(key, value))
	}
	switch roll := random.IntN(10); {
	case roll < 7:
		add(key(), name)
	case roll < 9:
		add("a"+key(), name+"/a")
		add("b"+key(), name+"/b")
	default:
		// A delete alone makes no revision when its key is absent; the put beside it always does.
		add("c"+key(), name)
		deleted := key()
		writes = append(writes, change{deleted: true, key: deleted})
		operations = append(operations, clientv3.OpDelete(deleted))
	}
	after := w.ledger.try(writes)
	if len(operations) == 1 {
		response, err := client.Do(ctx, operations[0])
		if err != nil {
			w.ledger.fail()
			return
		}
		w.ledger.acknowledge(response.Put().Header.Revision, after, writes)
		return
	}
	response, err := client.Txn(ctx).Then(operations...).Commit()
	if err != nil {
		w.ledger.fail()
		return
	}
	last := len(writes) - 1
	if writes[last].deleted && response.Responses[last].GetResponseDeleteRange().Deleted == 0 {
		writes = writes[:last]
	}
	w.ledger.acknowledge(response.Header.Revision, after, writes)
}
