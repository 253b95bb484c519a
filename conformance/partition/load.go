package partition

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

const (
	writerCount = 16
	keyCount    = 32
	// requestMax is how long a client waits for an answer.
	requestMax = 3 * time.Second
)

// load is clients that put and get until they are stopped. Each holds to one
// member, so that the cut off ones are asked too.
type load struct {
	record *record
	cancel context.CancelFunc
	ended  sync.WaitGroup
}

// startLoad starts the writers, spread over the members' clients, with a pause
// between requests that keeps the history small enough to check.
func startLoad(clients []*clientv3.Client, record *record, pause time.Duration) *load {
	ctx, cancel := context.WithCancel(context.Background())
	l := &load{record: record, cancel: cancel}
	for writer := range writerCount {
		l.ended.Go(func() {
			random := rand.New(rand.NewPCG(uint64(writer), 1))
			for sequence := 0; ctx.Err() == nil; sequence++ {
				l.once(ctx, clients[writer%len(clients)], operation{
					client: writer, key: fmt.Sprintf("key/%02d", random.IntN(keyCount)),
					value: fmt.Sprintf("%d/%d", writer, sequence), put: random.IntN(2) == 0,
				})
				time.Sleep(pause)
			}
		})
	}
	return l
}

func (l *load) stop() {
	l.cancel()
	l.ended.Wait()
}

// once sends one request. A put's value is written by nobody else.
func (l *load) once(ctx context.Context, client *clientv3.Client, next operation) {
	ctx, cancel := context.WithTimeout(ctx, requestMax)
	defer cancel()
	known := l.record.highest()
	next.called = l.record.now()
	if next.put {
		response, err := client.Put(ctx, next.key, next.value)
		next.returned = l.record.now()
		if err != nil {
			l.record.lose(next)
			return
		}
		next.revision = response.Header.Revision
		// A put must come after what was acknowledged before it.
		l.record.add(next, known+1, response.Header.Revision)
		return
	}
	response, err := client.Get(ctx, next.key)
	next.returned = l.record.now()
	if err != nil {
		l.record.lose(next)
		return
	}
	next.value = ""
	for _, kv := range response.Kvs {
		next.value, next.revision = string(kv.Value), kv.ModRevision
	}
	l.record.add(next, known, response.Header.Revision)
}
