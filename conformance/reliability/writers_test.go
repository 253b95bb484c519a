package reliability

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"cairn.dev/conformance/audit"
)

// ownKeys are what the keys of writers begin with.
var ownKeys = []string{"key/", "akey/", "bkey/", "ckey/"}

// writers keep writing, and reading now and then, one request each at a time, until they are stopped.
// An error is expected while the server is away; its outcome is unknown.
type writers struct {
	history *audit.History
	cancel  context.CancelFunc
	done    sync.WaitGroup
}

func startWriters(client *clientv3.Client, count int, history *audit.History) *writers {
	ctx, cancel := context.WithCancel(context.Background())
	w := &writers{history: history, cancel: cancel}
	for number := range count {
		w.done.Add(1)
		go func() {
			defer w.done.Done()
			random := rand.New(rand.NewPCG(uint64(number), 1))
			for sequence := 0; ctx.Err() == nil; sequence++ {
				w.once(ctx, client, random, number, fmt.Sprintf("%d/%d", number, sequence))
			}
		}()
	}
	return w
}

func (w *writers) stop() {
	w.cancel()
	w.done.Wait()
}

// once sends one put, delete, transaction or read. Values carry the name, so each
// is written once.
func (w *writers) once(ctx context.Context, client *clientv3.Client, random *rand.Rand, number int, name string) {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	key := func() string { return fmt.Sprintf("key/%03d", random.IntN(400)) }
	next := audit.Operation{Client: number}
	if random.IntN(4) == 0 {
		w.read(ctx, client, next, []string{"", "a", "b", "c"}[random.IntN(4)]+key())
		return
	}
	var operations []clientv3.Op
	add := func(key, value string) {
		next.Writes = append(next.Writes, audit.Write{Key: key, Value: value})
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
		next.Writes = append(next.Writes, audit.Write{Key: deleted, Deleted: true})
		operations = append(operations, clientv3.OpDelete(deleted))
	}
	w.history.Call(&next)
	if len(operations) == 1 {
		response, err := client.Do(ctx, operations[0])
		if err != nil {
			w.history.Lose(next)
			return
		}
		w.history.Answer(next, response.Put().Header.Revision)
		return
	}
	response, err := client.Txn(ctx).Then(operations...).Commit()
	if err != nil {
		// Whatever the error says, it may have been made: NOSPACE, too, is told of some that were applied.
		w.history.Lose(next)
		return
	}
	if place := len(next.Writes) - 1; next.Writes[place].Deleted && response.Responses[place].GetResponseDeleteRange().Deleted == 0 {
		w.history.Unmade(&next, place)
	}
	w.history.Answer(next, response.Header.Revision)
}

// read sends a linearizable read of one key.
func (w *writers) read(ctx context.Context, client *clientv3.Client, next audit.Operation, key string) {
	next.Read = &audit.Read{Key: key}
	w.history.Call(&next)
	response, err := client.Get(ctx, key)
	if err != nil {
		w.history.Lose(next)
		return
	}
	for _, kv := range response.Kvs {
		next.Read.Value, next.Read.Revision = string(kv.Value), kv.ModRevision
	}
	w.history.Answer(next, response.Header.Revision)
}
