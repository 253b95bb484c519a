// Command size fills a server with pods and measures what it costs to fill the
// API server's watch caches from it: one, and five at once.
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"net"
	"net/url"
	"os"
	"slices"
	"time"

	"go.etcd.io/etcd/server/v3/embed"

	"k8s.io/apiserver/pkg/features"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
)

func main() {
	log.SetFlags(log.Ltime)
	pods := flag.Int("pods", 150_000, "number of pods")
	bytes := flag.Int("bytes", 2048, "size of a pod in the store")
	rounds := flag.Int("rounds", 3, "how often each is measured")
	most := flag.Int("caches", 5, "number of watch caches that are filled at once, after one alone")
	growthMax := flag.Int64("growth-max", 0, "MiB by which the server's anonymous memory may grow while watch caches are filled; no limit if 0")
	stream := flag.Bool("stream", true, "read the pods through RangeStream, not in pages")
	flag.Parse()
	if err := utilfeature.DefaultMutableFeatureGate.Set(fmt.Sprintf("%s=%t", features.EtcdRangeStream, *stream)); err != nil {
		log.Fatal(err)
	}
	if err := run(*pods, *bytes, *rounds, *most, *growthMax<<20); err != nil {
		log.Fatal(err)
	}
}

func run(pods, bytes, rounds, most int, growthMax int64) error {
	dir, err := os.MkdirTemp("", "cairn-size-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	server, endpoint, err := start(dir)
	if err != nil {
		return err
	}
	defer server.Close()
	ctx, cancel := context.WithTimeout(context.Background(), time.Hour)
	defer cancel()
	before, err := usageOf(server.Pid())
	if err != nil {
		return err
	}
	began := time.Now()
	stored, err := fill(ctx, endpoint, pods, bytes)
	if err != nil {
		return fmt.Errorf("fill: %w", err)
	}
	after, err := usageOf(server.Pid())
	if err != nil {
		return err
	}
	fmt.Printf("filled with %d pods of %d bytes in %.1f s, %.1f s of the server's CPU; resident %d MiB (anonymous %d MiB)\n",
		pods, stored, time.Since(began).Seconds(), after.cpu-before.cpu, after.resident>>20, after.anonymous>>20)
	grown := int64(0)
	for _, caches := range slices.Compact([]int{1, most}) {
		for range rounds {
			growth, err := measure(ctx, server.Pid(), endpoint, caches, pods)
			if err != nil {
				return err
			}
			grown = max(grown, growth)
		}
	}
	if growthMax > 0 && grown > growthMax {
		return fmt.Errorf("the server's anonymous memory grew by %d MiB, and may grow by %d MiB", grown>>20, growthMax>>20)
	}
	return nil
}

// measure fills watch caches at once, prints what the server needed, and
// returns by how many bytes its anonymous memory grew.
func measure(ctx context.Context, pid int, endpoint string, caches, pods int) (growth int64, err error) {
	calls, err := streamCalls(endpoint)
	if err != nil {
		return 0, err
	}
	watch, err := watchUsage(pid)
	if err != nil {
		return 0, err
	}
	seconds, err := fillCaches(ctx, endpoint, caches, pods)
	if err != nil {
		return 0, err
	}
	used, err := watch.end()
	if err != nil {
		return 0, err
	}
	now, err := streamCalls(endpoint)
	if err != nil {
		return 0, err
	}
	fmt.Printf("%d watch caches: %.2f s, server: %.2f s of CPU, resident +%d MiB at most (anonymous +%d MiB), %d calls of RangeStream\n",
		caches, seconds, used.cpu, used.resident>>20, used.anonymous>>20, now-calls)
	return used.anonymous, nil
}

// start starts the server that ETCD_BINARY names on a directory.
func start(dir string) (*embed.Etcd, string, error) {
	config := embed.NewConfig()
	client, err := freeURL()
	if err != nil {
		return nil, "", err
	}
	peer, err := freeURL()
	if err != nil {
		return nil, "", err
	}
	config.ListenClientUrls, config.AdvertiseClientUrls = []url.URL{client}, []url.URL{client}
	config.ListenPeerUrls, config.AdvertisePeerUrls = []url.URL{peer}, []url.URL{peer}
	config.InitialCluster = config.InitialClusterFromName(config.Name)
	config.QuotaBackendBytes = 8 << 30
	config.Dir = dir
	server, err := embed.StartEtcd(config)
	if err != nil {
		return nil, "", err
	}
	select {
	case <-server.Server.ReadyNotify():
		return server, client.String(), nil
	case err := <-server.Err():
		return nil, "", err
	case <-time.After(time.Minute):
		server.Close()
		return nil, "", fmt.Errorf("the server is not ready")
	}
}

func freeURL() (url.URL, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return url.URL{}, err
	}
	defer listener.Close()
	return url.URL{Scheme: "http", Host: listener.Addr().String()}, nil
}
