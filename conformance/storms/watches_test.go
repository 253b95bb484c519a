package storms

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"cairn.dev/conformance/harness"
)

const watched = "watched/"

// hall is all the listeners of a test.
type hall struct {
	t         *testing.T
	began     time.Time
	listeners []*listener
	watchers  int
	running   sync.WaitGroup
}

// open has so many connections listen, and waits until all watchers are there.
func (h *hall) open(endpoint string, connections int, who audience) {
	h.t.Helper()
	for range connections {
		one, err := listen(endpoint, h.began, who, false)
		if err != nil {
			h.t.Fatal(err)
		}
		h.listeners = append(h.listeners, one)
		h.watchers += who.streams * who.each
		h.running.Go(func() {
			if err := one.run(); err != nil {
				h.t.Errorf("a watch: %v", err)
			}
		})
	}
	h.await("watchers", h.watchers, func(l *listener) int64 { return l.created.Load() })
}

// await waits until the listeners have so many of something together.
func (h *hall) await(what string, wanted int, of func(*listener) int64) {
	h.t.Helper()
	for deadline := time.Now().Add(8 * time.Minute); ; time.Sleep(5 * time.Millisecond) {
		count := 0
		for _, one := range h.listeners {
			count += int(of(one))
		}
		if count == wanted {
			return
		}
		if count > wanted || h.t.Failed() || time.Now().After(deadline) {
			h.t.Fatalf("%d %s, not %d", count, what, wanted)
		}
	}
}

func (h *hall) awaitEvents(puts int) {
	h.t.Helper()
	h.await("events", puts*h.watchers, func(l *listener) int64 { return l.events.Load() })
}

// end is when the last event came.
func (h *hall) end() (last time.Duration) {
	for _, one := range h.listeners {
		last = max(last, time.Duration(one.last.Load()))
	}
	return last
}

// lag is how long after the time of its put each event came, of all that came since it was asked before.
func (h *hall) lag() *histogram {
	all := &histogram{}
	for _, one := range h.listeners {
		all.merge(&one.lag)
		one.lag = histogram{}
	}
	return all
}

func (h *hall) close() {
	for _, one := range h.listeners {
		one.close()
	}
	h.running.Wait()
}

// putAll puts keys as fast as they are answered.
func putAll(t *testing.T, server *harness.Server, began time.Time, puts, clients, valueBytes int) {
	t.Helper()
	ctx, fail := context.WithCancelCause(harness.Context(t))
	defer fail(nil)
	connections := make([]*clientv3.Client, min(clients, 8))
	for number := range connections {
		connections[number] = server.Client()
	}
	var next atomic.Int64
	var group sync.WaitGroup
	for worker := range clients {
		client := connections[worker%len(connections)]
		group.Go(func() {
			for number := next.Add(1) - 1; number < int64(puts) && ctx.Err() == nil; number = next.Add(1) - 1 {
				if _, err := client.Put(ctx, fmt.Sprintf("%s%08d", watched, number%10_000), stamped(time.Since(began), valueBytes)); err != nil {
					fail(fmt.Errorf("put %d: %w", number, err))
				}
			}
		})
	}
	group.Wait()
	if err := context.Cause(ctx); err != nil {
		t.Fatal(err)
	}
}

// putsMax is how many puts are under way at most: none is to be refused or to
// time out where the server or the machine is slow.
const putsMax = 100

// putAt puts keys at times fixed beforehand, or as soon after that as no more
// than putsMax are under way. Their values say when they were due.
func putAt(t *testing.T, server *harness.Server, began time.Time, puts, rate, valueBytes int) {
	t.Helper()
	ctx, fail := context.WithCancelCause(harness.Context(t))
	defer fail(nil)
	client := server.Client()
	if _, err := client.Get(ctx, "any"); err != nil {
		t.Fatal(err)
	}
	first, places := time.Now(), make(chan struct{}, putsMax)
	var group sync.WaitGroup
	for number := 0; number < puts && ctx.Err() == nil; number++ {
		due := first.Add(time.Duration(number) * time.Second / time.Duration(rate))
		time.Sleep(time.Until(due))
		places <- struct{}{}
		group.Go(func() {
			if _, err := client.Put(ctx, fmt.Sprintf("%s%08d", watched, number%10_000), stamped(due.Sub(began), valueBytes)); err != nil {
				fail(fmt.Errorf("put %d: %w", number, err))
			}
			<-places
		})
	}
	group.Wait()
	if err := context.Cause(ctx); err != nil {
		t.Fatal(err)
	}
}

// kinds are the subject and, with BESIDE=1, the genuine server.
func kinds(t *testing.T) []harness.Kind {
	t.Helper()
	if harness.Number(t, "BESIDE", 0) == 1 {
		return []harness.Kind{harness.Subject(), harness.Etcd}
	}
	return []harness.Kind{harness.Subject()}
}

// TestManyWatchers has WATCHERS (500) watch one prefix, on 10 streams of each of
// up to 100 connections. First come WATCH_PUTS (200) as fast as they are answered, then as
// many at WATCH_RATE (100) a second: every watcher hears of each once. Says how
// many events a second that were, and how long after its put was due each event came.
func TestManyWatchers(t *testing.T) {
	t.Parallel()
	watchers, puts := harness.Number(t, "WATCHERS", 500), harness.Number(t, "WATCH_PUTS", 200)
	rate := harness.Number(t, "WATCH_RATE", 100)
	const streams = 10
	connections := max(1, min(100, watchers/streams))
	each := max(1, watchers/connections/streams)
	for _, kind := range kinds(t) {
		server := harness.Start(t, kind)
		hall := &hall{t: t, began: time.Now()}
		hall.open(server.Endpoint(), connections, audience{streams: streams, each: each, prefix: watched})
		began, used := time.Since(hall.began), harness.ProcessorTime(t, server.Pid())
		putAll(t, server, hall.began, puts, 64, 32)
		hall.awaitEvents(puts)
		took := hall.end() - began
		used = harness.ProcessorTime(t, server.Pid()) - used
		events := puts * hall.watchers
		t.Logf("%-5s %d watchers of a prefix, %d puts as fast as they are answered: %.0f events/s, %v of the member's processor time each",
			kind, hall.watchers, puts, float64(events)/took.Seconds(), used/time.Duration(events))
		hall.lag()
		began = time.Since(hall.began)
		putAt(t, server, hall.began, puts, rate, 32)
		hall.awaitEvents(2 * puts)
		took = hall.end() - began
		t.Logf("%-5s the same at %d puts/s: %.0f events/s, from the put to the event %v", kind, rate, float64(events)/took.Seconds(), hall.lag())
		hall.close()
		server.Stop()
	}
}

// TestOldWatchers has OLD_WATCHERS (20) watch from before the first of OLD_EVENTS
// (5,000), all at once. Says how many events a second they hear of.
func TestOldWatchers(t *testing.T) {
	t.Parallel()
	watchers, events := harness.Number(t, "OLD_WATCHERS", 20), harness.Number(t, "OLD_EVENTS", 5_000)
	const connections = 10
	for _, kind := range kinds(t) {
		server := harness.Start(t, kind, "--quota-backend-bytes=8589934592")
		hall := &hall{t: t, began: time.Now()}
		putAll(t, server, hall.began, events, 256, 32)
		before, used := harness.AnonymousBytes(t, server.Pid()), harness.ProcessorTime(t, server.Pid())
		began := time.Since(hall.began)
		hall.open(server.Endpoint(), connections, audience{streams: max(1, watchers/connections), each: 1, prefix: watched, from: 1})
		hall.awaitEvents(events)
		took := hall.end() - began
		used = harness.ProcessorTime(t, server.Pid()) - used
		all := events * hall.watchers
		t.Logf("%-5s %d watchers from an old revision on, %d events each: %.0f events/s, %v of the member's processor time each, memory grew by %d MiB",
			kind, hall.watchers, events, float64(all)/took.Seconds(), used/time.Duration(all), (harness.AnonymousBytes(t, server.Pid())-before)>>20)
		hall.close()
		server.Stop()
	}
}

// stalledMax is what may wait for watchers that do not read: 8,192 events for
// each, and for all together a million and 128 for each, of which there are no
// more than another million; and what each has on its way.
func stalledMax(watchers int) int {
	return min(watchers*8_192, 1<<20+min(watchers*128, 1<<20))*320 + watchers<<16
}

// TestStalledWatchers has STALLED (100) watchers, each on a connection of its
// own, that read nothing, beside 100 that do, while STALL_PUTS (2,000) come at
// STALL_RATE (500) a second. The others hear of each put once. Says how long after its put each
// event came, without the stalled ones and beside them, in the first and in the second half of the puts, and how much memory the member takes.
func TestStalledWatchers(t *testing.T) {
	t.Parallel()
	stalled := harness.Number(t, "STALLED", 100)
	puts, rate := harness.Number(t, "STALL_PUTS", 2_000), harness.Number(t, "STALL_RATE", 500)
	const connections, streams, valueBytes = 10, 10, 256
	allowFiles(t, uint64(stalled)+1_000)
	for _, kind := range kinds(t) {
		server := harness.Start(t, kind)
		hall := &hall{t: t, began: time.Now()}
		hall.open(server.Endpoint(), connections, audience{streams: streams, each: 1, prefix: watched})
		putAt(t, server, hall.began, puts, rate, valueBytes)
		hall.awaitEvents(puts)
		quiet := hall.lag()
		before := harness.AnonymousBytes(t, server.Pid())
		var silent []*listener
		for range stalled {
			one, err := listen(server.Endpoint(), hall.began, audience{streams: 1, each: 1, prefix: watched}, true)
			if err != nil {
				t.Fatal(err)
			}
			silent = append(silent, one)
		}
		ctx, stop := context.WithCancel(harness.Context(t))
		grown := make(chan int, 1)
		go func() {
			most := 0
			defer func() { grown <- most }()
			for ctx.Err() == nil {
				most = max(most, harness.AnonymousBytes(t, server.Pid())-before)
				time.Sleep(50 * time.Millisecond)
			}
		}()
		// At first those that do not read are sent what their connections take.
		var beside [2]*histogram
		for half := range beside {
			putAt(t, server, hall.began, puts/2, rate, valueBytes)
			hall.awaitEvents(puts + (half+1)*(puts/2))
			beside[half] = hall.lag()
		}
		stop()
		most := <-grown
		t.Logf("%-5s %d watchers that read, %d puts/s: from the put to the event %v; beside %d that do not read: %v in the first half, %v in the second; memory grew by %d MiB",
			kind, hall.watchers, rate, quiet, stalled, beside[0], beside[1], most>>20)
		if kind != harness.Etcd && most > stalledMax(stalled+hall.watchers)+(64<<20) {
			t.Errorf("memory grew by %d MiB", most>>20)
		}
		for _, one := range silent {
			one.close()
		}
		hall.close()
		server.Stop()
	}
}
