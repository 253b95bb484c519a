package soak

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"cairn.dev/conformance/harness"
)

const (
	workers    = 64
	keysOf     = 300
	requestMax = 10 * time.Second
)

var padding = strings.Repeat("x", 230)

// load is what the clients do: each worker has keys of its own, which it
// writes with numbers that only grow, and a watch on them.
type load struct {
	t       *testing.T
	workers []*worker
	// Of the requests and of the watches.
	cancels           [2]context.CancelFunc
	writing, watching sync.WaitGroup
	watched           bool
	// Odd while something happens to a member.
	disturbances atomic.Int64
}

type worker struct {
	load   *load
	number int
	client *clientv3.Client
	random *rand.Rand
	// The number of the last write, and what is known of each key.
	last  int
	known [keysOf]known

	mutex    sync.Mutex
	seen     map[int]bool // by the watch, before their acknowledgement
	due      map[int]bool // acknowledged, not seen yet
	seenUpTo int
	events   int
	acked    int
	failed   int
	quiet    []time.Duration // samples of puts while nothing happened
	faulty   []time.Duration
}

// known is what a key must be: at least the acknowledged number, at most the
// tried one; a deletion is a number without a value.
type known struct{ acknowledged, tried int }

func newLoad(t *testing.T, cluster *harness.Cluster) *load {
	l := &load{t: t}
	clients := make([]*clientv3.Client, 8)
	for number := range clients {
		clients[number] = cluster.Client()
	}
	for number := range workers {
		l.workers = append(l.workers, &worker{load: l, number: number, client: clients[number%len(clients)],
			random: rand.New(rand.NewPCG(uint64(number), 2)), seen: map[int]bool{}, due: map[int]bool{}})
	}
	return l
}

// measure runs all workers without a pause, and returns requests per second.
func (l *load) measure(span time.Duration) float64 {
	l.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), span)
	defer cancel()
	var done atomic.Int64
	var all sync.WaitGroup
	for _, w := range l.workers {
		all.Go(func() {
			for ctx.Err() == nil {
				w.step()
				done.Add(1)
			}
		})
	}
	all.Wait()
	return float64(done.Load()) / span.Seconds()
}

// start begins the load at a rate, and the watches.
func (l *load) start(rate float64) {
	var contexts [2]context.Context
	for number := range contexts {
		contexts[number], l.cancels[number] = context.WithCancel(context.Background())
	}
	pause := time.Duration(workers / rate * float64(time.Second))
	l.watched = true
	for _, w := range l.workers {
		now, err := w.client.Get(contexts[1], key(w.number, 0))
		if err != nil {
			l.t.Fatal(err)
		}
		w.seenUpTo, w.due = w.last, map[int]bool{}
		events := w.client.Watch(contexts[1], fmt.Sprintf("soak/%02d/", w.number), clientv3.WithPrefix(), clientv3.WithRev(now.Header.Revision+1))
		l.watching.Go(func() { w.watch(contexts[1], events) })
		l.writing.Go(func() { w.requests(contexts[0], pause) })
	}
}

// requests makes one whenever it is due, however long the one before took.
// More than a second of them is not made up for.
func (w *worker) requests(ctx context.Context, pause time.Duration) {
	next := time.Now().Add(time.Duration(w.random.Int64N(int64(pause))))
	for {
		wait := time.Until(next)
		if wait < -time.Second {
			next = time.Now()
		}
		next = next.Add(pause)
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
			w.step()
		}
	}
}

// stop ends the load; the watches get what is on its way.
func (l *load) stop() {
	l.cancels[0]()
	l.writing.Wait()
	time.Sleep(requestMax / 2)
	l.cancels[1]()
	l.watching.Wait()
}

// disturbed notes that latencies meanwhile are not those of a quiet cluster.
func (l *load) disturbed(by func()) {
	l.disturbances.Add(1)
	defer l.disturbances.Add(1)
	by()
	time.Sleep(2 * time.Second)
}

// step makes one request.
func (w *worker) step() {
	ctx, cancel := context.WithTimeout(context.Background(), requestMax)
	defer cancel()
	number := w.random.IntN(keysOf)
	name, is := key(w.number, number), &w.known[number]
	before, began := w.load.disturbances.Load(), time.Now()
	write := func(request func(value string) error) {
		w.last++
		is.tried = w.last
		err := request(fmt.Sprintf("%d %s", w.last, padding))
		if w.told(w.last, err, time.Since(began), before%2 == 0 && before == w.load.disturbances.Load()) {
			is.acknowledged = w.last
		}
	}
	switch dice := w.random.IntN(100); {
	case dice < 60:
		write(func(value string) error { _, err := w.client.Put(ctx, name, value); return err })
	case dice < 70:
		write(func(value string) error {
			_, err := w.client.Txn(ctx).If(clientv3.Compare(clientv3.Version(name), ">", -1)).Then(clientv3.OpPut(name, value), clientv3.OpGet(name)).Commit()
			return err
		})
	case dice < 75:
		// What is granted ends by itself, and takes its key along, which no worker knows.
		lease, err := w.client.Grant(ctx, int64(2+w.random.IntN(20)))
		if err == nil {
			_, err = w.client.Put(ctx, fmt.Sprintf("leased/%02d/%04d", w.number, number), padding, clientv3.WithLease(lease.ID))
		}
		if err == nil && w.random.IntN(2) == 0 {
			_, err = w.client.Revoke(ctx, lease.ID)
		}
		w.count(err)
	default:
		is := *is
		answer, err := w.client.Get(ctx, name)
		w.count(err)
		if err != nil {
			return
		}
		found := 0
		if len(answer.Kvs) == 1 {
			found = numberOf(w.load.t, string(answer.Kvs[0].Value))
		}
		if found < is.acknowledged || found > is.tried {
			w.load.t.Errorf("%s is %d, acknowledged was %d and tried %d", name, found, is.acknowledged, is.tried)
		}
	}
}

func numberOf(t *testing.T, value string) int {
	text, _, _ := strings.Cut(value, " ")
	number, err := strconv.Atoi(text)
	if err != nil {
		t.Errorf("value %q", value)
	}
	return number
}

func (w *worker) count(err error) {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	if err != nil {
		w.failed++
	} else {
		w.acked++
	}
}

// told notes how a write ended; returns whether it was acknowledged.
func (w *worker) told(number int, err error, took time.Duration, quietly bool) bool {
	w.count(err)
	w.mutex.Lock()
	defer w.mutex.Unlock()
	samples := &w.faulty
	if quietly {
		samples = &w.quiet
	}
	if len(*samples) < 20_000 {
		*samples = append(*samples, took)
	} else {
		(*samples)[w.random.IntN(len(*samples))] = took
	}
	if err != nil {
		return false
	}
	if w.seen[number] {
		// What was seen before and never acknowledged had a client that gave up.
		for other := range w.seen {
			if other <= number {
				delete(w.seen, other)
			}
		}
	} else if number > w.seenUpTo {
		w.due[number] = true
	} else if w.load.watched {
		w.load.t.Errorf("worker %d: its watch never got write %d, and is at %d", w.number, number, w.seenUpTo)
	}
	return true
}

// watch checks that the events of the worker's writes come once and in order.
func (w *worker) watch(ctx context.Context, answers clientv3.WatchChan) {
	for answer := range answers {
		if err := answer.Err(); err != nil && ctx.Err() == nil {
			w.load.t.Errorf("worker %d: its watch ended: %v", w.number, err)
			return
		}
		w.mutex.Lock()
		for _, event := range answer.Events {
			number := numberOf(w.load.t, string(event.Kv.Value))
			if number <= w.seenUpTo {
				w.load.t.Errorf("worker %d: its watch gets write %d after %d", w.number, number, w.seenUpTo)
			}
			w.events++
			w.seenUpTo = number
			if w.due[number] {
				delete(w.due, number)
			} else {
				w.seen[number] = true
			}
			for missed := range w.due {
				if missed < number {
					w.load.t.Errorf("worker %d: its watch gets write %d without %d", w.number, number, missed)
					delete(w.due, missed)
				}
			}
		}
		w.mutex.Unlock()
	}
}

// check looks at what is there at the end.
func (l *load) check() {
	l.t.Helper()
	for _, w := range l.workers {
		if len(w.due) > 0 {
			l.t.Errorf("worker %d: its watch never got %d writes", w.number, len(w.due))
		}
		answer, err := w.client.Get(context.Background(), fmt.Sprintf("soak/%02d/", w.number), clientv3.WithPrefix())
		if err != nil {
			l.t.Fatal(err)
		}
		found := map[string]int{}
		for _, pair := range answer.Kvs {
			found[string(pair.Key)] = numberOf(l.t, string(pair.Value))
		}
		for number, is := range w.known {
			if value := found[key(w.number, number)]; value < is.acknowledged || value > is.tried {
				l.t.Errorf("%s is %d at the end, acknowledged was %d and tried %d", key(w.number, number), value, is.acknowledged, is.tried)
			}
		}
	}
}

// summary is one line about the load so far.
func (l *load) summary() string {
	acked, failed, events := 0, 0, 0
	var quiet, faulty []time.Duration
	for _, w := range l.workers {
		w.mutex.Lock()
		acked, failed, events = acked+w.acked, failed+w.failed, events+w.events
		quiet, faulty = append(quiet, w.quiet...), append(faulty, w.faulty...)
		w.mutex.Unlock()
	}
	at := func(samples []time.Duration, share float64) time.Duration {
		if len(samples) == 0 {
			return 0
		}
		slices.Sort(samples)
		return samples[int(math.Ceil(share*float64(len(samples)-1)))].Round(10 * time.Microsecond)
	}
	return fmt.Sprintf("%d requests answered, %d failed, %d events; writes p50 %v, p99 %v, slowest %v, and %v, %v, %v while something happened",
		acked, failed, events, at(quiet, 0.5), at(quiet, 0.99), at(quiet, 1), at(faulty, 0.5), at(faulty, 0.99), at(faulty, 1))
}
