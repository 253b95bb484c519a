package main

import (
	"errors"
	"flag"
	"runtime"
	"slices"
	"time"
)

// Result is what one load prints, as JSON.
type Result struct {
	Requests  int                `json:"requests"`
	Failed    int                `json:"failed"`
	Seconds   float64            `json:"seconds"`
	Rate      float64            `json:"rate"`
	DataBytes int64              `json:"data_bytes"` // payload of all DATA frames received
	Latency   map[string]float64 `json:"latency_us"`
}

// runLoad puts `total` values, the i-th one under key number (first + i) * step mod keys: every key once, in an order
// that jumps over the whole key space, so that no server profits from neighbours. Or it reads the same keys.
func runLoad(kind string, arguments []string) (any, error) {
	flags := flag.NewFlagSet(kind, flag.ExitOnError)
	address := flags.String("address", "127.0.0.1:2379", "host:port of the server")
	connections := flags.Int("connections", 100, "connections")
	streams := flags.Int("streams", 10, "requests in flight on each connection")
	total := flags.Int("total", 100_000, "requests")
	seconds := flags.Float64("seconds", 0, "begin no request after so many seconds; 0: send all of them")
	first := flags.Int("first", 0, "number of the first request; a load can be cut into several runs")
	keys := flags.Int("keys", 100_000, "size of the key space")
	keyBytes := flags.Int("key-bytes", 16, "length of a key: digits, zero padded")
	valueBytes := flags.Int("value-bytes", 256, "length of a value (put)")
	_ = flags.Parse(arguments)
	if min(*total, *keys, *connections, *streams, *keyBytes, *valueBytes) < 1 {
		return nil, errors.New("every count must be at least 1")
	}
	if *keyBytes+*valueBytes > 16_000 {
		return nil, errors.New("a request must fit into one DATA frame of 16 KiB")
	}
	path := "/etcdserverpb.KV/Put"
	if kind == "get" {
		path, *valueBytes = "/etcdserverpb.KV/Range", 0
	}

	runtime.GOMAXPROCS(1)
	loop, err := newLoop(*address, path, *connections, *streams, newSource(*first, *total, *keys, *keyBytes, *valueBytes))
	if err != nil {
		return nil, err
	}
	loop.limit = time.Duration(*seconds * float64(time.Second))
	started := time.Now()
	if err := loop.run(); err != nil {
		return nil, err
	}
	elapsed, requests := time.Since(started).Seconds(), len(loop.latencies)
	return Result{
		Requests:  requests,
		Failed:    loop.failed,
		Seconds:   elapsed,
		Rate:      float64(requests) / elapsed,
		DataBytes: loop.dataBytes,
		Latency:   percentiles(loop.latencies),
	}, nil
}

// percentiles names the usual points of the distribution; the latencies come in nanoseconds and leave in microseconds.
func percentiles(latencies []uint32) map[string]float64 {
	points := map[string]float64{}
	if len(latencies) == 0 {
		return points
	}
	slices.Sort(latencies)
	for name, share := range map[string]float64{"p50": 0.5, "p90": 0.9, "p99": 0.99, "p999": 0.999, "max": 1} {
		at := min(int(share*float64(len(latencies))), len(latencies)-1)
		points[name] = float64(latencies[at]) / 1000
	}
	return points
}
