package harness

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/zap"
	"google.golang.org/grpc"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// Network is where the members of a cluster run, if not on loopback.
type Network interface {
	// Host is the address of a member.
	Host(member int) string
	// Run runs a function inside a member's network.
	Run(member int, function func() error) error
	// Options of a client's connections.
	Options() []grpc.DialOption
}

// Cluster is a set of members that know each other.
type Cluster struct {
	Members []*Server
	// Disk is where members that are added have their data, if not beside the
	// others: a directory of another disk.
	Disk string

	t       testing.TB
	network Network
	flags   []string
}

// StartCluster starts a new cluster and waits until each member is ready. A
// nil network is loopback.
func StartCluster(t testing.TB, kind Kind, size int, network Network, flags ...string) *Cluster {
	t.Helper()
	cluster := &Cluster{t: t, network: network, flags: flags}
	for range size {
		cluster.prepare(kind)
	}
	for _, member := range cluster.Members {
		member.SetFlags(cluster.MemberFlags("new")...)
	}
	cluster.RunAll()
	return cluster
}

// prepare adds a member that is not started.
func (c *Cluster) prepare(kind Kind) *Server {
	number := len(c.Members)
	dir := c.t.TempDir()
	if c.Disk != "" {
		var err error
		if dir, err = os.MkdirTemp(c.Disk, "member"); err != nil {
			c.t.Fatal(err)
		}
		c.t.Cleanup(func() { os.RemoveAll(dir) })
	}
	server := Prepare(c.t, kind, filepath.Join(dir, "data"))
	server.Name = fmt.Sprintf("m%d", number)
	if c.network != nil {
		server.Host = c.network.Host(number)
		server.Place = func(start func() error) error { return c.network.Run(number, start) }
	}
	c.Members = append(c.Members, server)
	return server
}

// MemberFlags are those of every member: who belongs to the cluster, and the
// flags that it was started with.
func (c *Cluster) MemberFlags(state string) []string {
	var all []string
	for _, member := range c.Members {
		all = append(all, member.Name+"="+member.PeerURL())
	}
	return append([]string{"--initial-cluster=" + strings.Join(all, ","), "--initial-cluster-state=" + state}, c.flags...)
}

// RunAll starts all members at once and waits until each is ready.
func (c *Cluster) RunAll() {
	c.t.Helper()
	var starting sync.WaitGroup
	errors := make([]error, len(c.Members))
	for number, member := range c.Members {
		starting.Go(func() { errors[number] = member.TryRun(startMax) })
	}
	starting.Wait()
	for number, err := range errors {
		if err != nil {
			c.t.Fatalf("member %d: %v", number, err)
		}
	}
}

// Twin is another cluster with the same names and addresses, on directories of
// its own and not started. Only one of the two can run at a time.
func (c *Cluster) Twin(flags ...string) *Cluster {
	c.t.Helper()
	twin := &Cluster{t: c.t, network: c.network, flags: flags}
	for number, original := range c.Members {
		server := twin.prepare(original.Kind)
		server.ClientPort, server.PeerPort = original.ClientPort, original.PeerPort
		twin.Members[number] = server
	}
	for _, member := range twin.Members {
		member.SetFlags(twin.MemberFlags("new")...)
	}
	return twin
}

// Add announces a new member to the cluster and prepares it, with an empty
// directory; its Run is the caller's. It waits until the members have been
// connected for as long as etcd asks for.
func (c *Cluster) Add(ctx context.Context, client *clientv3.Client, kind Kind) *Server {
	c.t.Helper()
	return c.announce(kind, func(urls []string) error {
		_, err := client.MemberAdd(ctx, urls)
		return err
	})
}

// AddLearner is Add for a member without a vote.
func (c *Cluster) AddLearner(ctx context.Context, client *clientv3.Client, kind Kind) *Server {
	c.t.Helper()
	return c.announce(kind, func(urls []string) error {
		_, err := client.MemberAddAsLearner(ctx, urls)
		return err
	})
}

func (c *Cluster) announce(kind Kind, add func(urls []string) error) *Server {
	c.t.Helper()
	server := c.prepare(kind)
	for {
		err := add([]string{server.PeerURL()})
		if err == nil {
			break
		}
		if !errors.Is(err, rpctypes.ErrUnhealthy) {
			c.t.Fatalf("add a member: %v", err)
		}
		time.Sleep(50 * time.Millisecond)
	}
	for number, member := range c.Members {
		if member != server && member.Running() {
			c.awaitKnown(number, server.PeerURL())
		}
	}
	server.SetFlags(c.MemberFlags("existing")...)
	return server
}

// awaitKnown waits a little until a member knows of another one. The new one may
// ask any member who belongs to the cluster, and does not start unless it is
// told of itself. A member that does not answer is not waited for.
func (c *Cluster) awaitKnown(number int, peerURL string) {
	c.t.Helper()
	client := c.Client(number)
	ctx, cancel := context.WithTimeout(c.t.Context(), 5*time.Second)
	defer cancel()
	for ctx.Err() == nil {
		members, err := client.MemberList(ctx, clientv3.WithSerializable())
		if err != nil {
			return
		}
		for _, member := range members.Members {
			if slices.Contains(member.PeerURLs, peerURL) {
				return
			}
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// Client is a client of the given members (all if none is named), closed when
// the test ends.
func (c *Cluster) Client(members ...int) *clientv3.Client {
	c.t.Helper()
	var endpoints []string
	for number, member := range c.Members {
		for _, wanted := range members {
			if number == wanted {
				endpoints = append(endpoints, member.Endpoint())
			}
		}
		if len(members) == 0 {
			endpoints = append(endpoints, member.Endpoint())
		}
	}
	config := clientv3.Config{Endpoints: endpoints, DialTimeout: 10 * time.Second, Logger: zap.NewNop()}
	if c.network != nil {
		config.DialOptions = c.network.Options()
	}
	client, err := clientv3.New(config)
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() { client.Close() })
	return client
}

// Leader is the number of the member that the majority takes for the leader;
// it waits for one.
func (c *Cluster) Leader(clients []*clientv3.Client) int {
	c.t.Helper()
	for deadline := time.Now().Add(startMax); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		votes := map[uint64]int{}
		ids := map[uint64]int{}
		for number, client := range clients {
			ctx, cancel := context.WithTimeout(context.Background(), time.Second)
			status, err := client.Status(ctx, c.Members[number].Endpoint())
			cancel()
			if err != nil {
				continue
			}
			ids[status.Header.MemberId] = number
			votes[status.Leader]++
		}
		for leader, count := range votes {
			if number, known := ids[leader]; known && leader != 0 && count > len(c.Members)/2 {
				return number
			}
		}
	}
	c.t.Fatal("no leader")
	return 0
}
