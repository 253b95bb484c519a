package audit

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
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

// Load is clients that put and get until they are stopped. Each has one
// of the given `clients`, so that whoever was cut off is asked too.
type Load struct {
	record *Record
	cancel context.CancelFunc
	ended  sync.WaitGroup
}

// Mix is what clients ask for.
type Mix struct {
	// PutsOneIn is how many requests have one put among them.
	PutsOneIn int
	// Keys are those that are put and read.
	Keys int
	// Transactions: keys are put by transactions that have nothing else.
	Transactions bool
	// Unjudged are the places of clients whose reads are made and not recorded:
	// what they ask promises less than the newest value.
	Unjudged []int
}

// StartLoad starts the writers, spread over the clients, with a pause
// between requests that keeps the history small enough to check.
func StartLoad(clients []*clientv3.Client, record *Record, pause time.Duration) *Load {
	return StartMix(clients, record, pause, Mix{PutsOneIn: 2, Keys: keyCount})
}

// StartMix is StartLoad with another mix.
func StartMix(clients []*clientv3.Client, record *Record, pause time.Duration, mix Mix) *Load {
	ctx, cancel := context.WithCancel(context.Background())
	l := &Load{record: record, cancel: cancel}
	for writer := range writerCount {
		l.ended.Go(func() {
			random := rand.New(rand.NewPCG(uint64(writer), 1))
			for sequence := 0; ctx.Err() == nil; sequence++ {
				place := writer % len(clients)
				l.once(ctx, clients[place], operation{
					client: writer, key: fmt.Sprintf("key/%02d", random.IntN(mix.Keys)),
					value: fmt.Sprintf("%d/%d", writer, sequence), put: random.IntN(mix.PutsOneIn) == 0,
				}, mix.Transactions, slices.Contains(mix.Unjudged, place))
				time.Sleep(pause)
			}
		})
	}
	return l
}

// Stop ends the load and waits until every client has ended.
func (l *Load) Stop() {
	l.cancel()
	l.ended.Wait()
}

// once sends one request. A put's value is written by nobody else.
func (l *Load) once(ctx context.Context, client *clientv3.Client, next operation, byTransaction, unjudged bool) {
	ctx, cancel := context.WithTimeout(ctx, requestMax)
	defer cancel()
	known := l.record.highest()
	next.called = l.record.Now()
	if next.put {
		revision, err := put(ctx, client, next, byTransaction)
		next.returned = l.record.Now()
		if err != nil {
			l.record.lose(next)
			return
		}
		next.revision = revision
		// A put must come after what was acknowledged before it.
		l.record.add(next, known+1, revision)
		return
	}
	response, err := client.Get(ctx, next.key)
	next.returned = l.record.Now()
	if err != nil {
		l.record.lose(next)
		return
	}
	if unjudged {
		return
	}
	next.value = ""
	for _, kv := range response.Kvs {
		next.value, next.revision = string(kv.Value), kv.ModRevision
	}
	l.record.add(next, known, response.Header.Revision)
}

// put puts a key, and returns the revision of that.
func put(ctx context.Context, client *clientv3.Client, next operation, byTransaction bool) (int64, error) {
	if byTransaction {
		response, err := client.Txn(ctx).Then(clientv3.OpPut(next.key, next.value)).Commit()
		if err != nil {
			return 0, err
		}
		return response.Header.Revision, nil
	}
	response, err := client.Put(ctx, next.key, next.value)
	if err != nil {
		return 0, err
	}
	return response.Header.Revision, nil
}
