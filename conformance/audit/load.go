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

// Keys is what the keys of a load begin with.
const Keys = "key/"

const (
	writerCount = 16
	keyCount    = 32
	// requestMax is how long a client waits for an answer.
	requestMax = 3 * time.Second
)

// Load is clients that put and get until they are stopped. Each has one
// of the given `clients`, so that whoever was cut off is asked too.
type Load struct {
	history *History
	cancel  context.CancelFunc
	ended   sync.WaitGroup
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
func StartLoad(clients []*clientv3.Client, history *History, pause time.Duration) *Load {
	return StartMix(clients, history, pause, Mix{PutsOneIn: 2, Keys: keyCount})
}

// StartMix is StartLoad with another mix.
func StartMix(clients []*clientv3.Client, history *History, pause time.Duration, mix Mix) *Load {
	ctx, cancel := context.WithCancel(context.Background())
	l := &Load{history: history, cancel: cancel}
	for writer := range writerCount {
		l.ended.Go(func() {
			random := rand.New(rand.NewPCG(uint64(writer), 1))
			for sequence := 0; ctx.Err() == nil; sequence++ {
				place := writer % len(clients)
				next, key := Operation{Client: writer}, fmt.Sprintf("%s%02d", Keys, random.IntN(mix.Keys))
				if random.IntN(mix.PutsOneIn) == 0 {
					next.Writes = []Write{{Key: key, Value: fmt.Sprintf("%d/%d", writer, sequence)}}
				} else {
					next.Read = &Read{Key: key}
				}
				l.once(ctx, clients[place], next, mix.Transactions, slices.Contains(mix.Unjudged, place))
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
func (l *Load) once(ctx context.Context, client *clientv3.Client, next Operation, byTransaction, unjudged bool) {
	ctx, cancel := context.WithTimeout(ctx, requestMax)
	defer cancel()
	l.history.Call(&next)
	if next.Read == nil {
		revision, err := put(ctx, client, next.Writes[0], byTransaction)
		if err != nil {
			l.history.Lose(next)
			return
		}
		l.history.Answer(next, revision)
		return
	}
	response, err := client.Get(ctx, next.Read.Key)
	if err != nil {
		l.history.Lose(next)
		return
	}
	if unjudged {
		return
	}
	for _, kv := range response.Kvs {
		next.Read.Value, next.Read.Revision = string(kv.Value), kv.ModRevision
	}
	l.history.Answer(next, response.Header.Revision)
}

// put puts a key, and returns the revision of that.
func put(ctx context.Context, client *clientv3.Client, next Write, byTransaction bool) (int64, error) {
	if byTransaction {
		response, err := client.Txn(ctx).Then(clientv3.OpPut(next.Key, next.Value)).Commit()
		if err != nil {
			return 0, err
		}
		return response.Header.Revision, nil
	}
	response, err := client.Put(ctx, next.Key, next.Value)
	if err != nil {
		return 0, err
	}
	return response.Header.Revision, nil
}
