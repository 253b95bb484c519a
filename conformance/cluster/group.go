package cluster

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"cairn.dev/conformance/harness"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

// startMax is generous, because the machine may build something else meanwhile.
const startMax = 60 * time.Second

// settleMax is how long a cluster may take to come to rest after a change.
const settleMax = 60 * time.Second

// Cluster is several servers that are members of one cluster.
type Cluster struct {
	Members []*harness.Server

	t     testing.TB
	kind  harness.Kind
	flags []string
	made  int
}

// start founds a cluster and waits until all its members are ready.
func start(t testing.TB, kind harness.Kind, size int, flags ...string) *Cluster {
	t.Helper()
	cluster := prepare(t, kind, size, flags...)
	cluster.Run()
	return cluster
}

// prepare is a cluster whose members are not started yet.
func prepare(t testing.TB, kind harness.Kind, size int, flags ...string) *Cluster {
	t.Helper()
	cluster := &Cluster{t: t, kind: kind, flags: flags}
	for range size {
		cluster.Members = append(cluster.Members, cluster.Prepare())
	}
	initial := cluster.Initial()
	for _, member := range cluster.Members {
		member.InitialCluster = initial
	}
	return cluster
}

// Prepare is one more server with the flags of the cluster, on a fresh
// directory. It is not among the members yet.
func (c *Cluster) Prepare(flags ...string) *harness.Server {
	c.t.Helper()
	all := append(append([]string{}, c.flags...), flags...)
	server := harness.Prepare(c.t, c.kind, filepath.Join(c.t.TempDir(), "data"), all...)
	server.Name = fmt.Sprintf("m%d", c.made)
	c.made++
	return server
}

// Joining is a server that is to join the cluster: it was added under its
// peer URL.
func (c *Cluster) Joining(server *harness.Server) *harness.Server {
	server.InitialState = "existing"
	server.InitialCluster = c.Initial() + "," + server.Name + "=" + server.PeerURL()
	return server
}

// Initial is the flag that names the members.
func (c *Cluster) Initial() string {
	var parts []string
	for _, member := range c.Members {
		parts = append(parts, member.Name+"="+member.PeerURL())
	}
	return strings.Join(parts, ",")
}

// Run starts every member that does not run and waits until all are ready.
func (c *Cluster) Run() {
	c.t.Helper()
	errors := make([]error, len(c.Members))
	var group sync.WaitGroup
	for at, member := range c.Members {
		if !member.Running() {
			group.Go(func() { errors[at] = member.TryRun(startMax) })
		}
	}
	group.Wait()
	for at, err := range errors {
		if err != nil {
			c.t.Fatalf("member %s: %v", c.Members[at].Name, err)
		}
	}
	for _, member := range c.Members {
		if member.Kind == harness.Etcd {
			member.AwaitStorageVersion()
		}
	}
}

// Endpoints of the members that run, with commas.
func (c *Cluster) Endpoints() string {
	var all []string
	for _, member := range c.Members {
		if member.Running() {
			all = append(all, member.Endpoint())
		}
	}
	return strings.Join(all, ",")
}

// Ctl runs etcdctl against the members that run.
func (c *Cluster) Ctl(args ...string) harness.Result {
	c.t.Helper()
	args = append([]string{harness.CtlPatience, "--endpoints=" + c.Endpoints()}, args...)
	return harness.Command{Path: harness.Tool(c.t, "etcdctl"), Args: args}.Run(c.t)
}

// MustCtl is Ctl for commands that must succeed.
func (c *Cluster) MustCtl(args ...string) string {
	c.t.Helper()
	result := c.Ctl(args...)
	if result.Code != 0 {
		c.t.Fatalf("etcdctl %v: exit %d\n%s%s", args, result.Code, result.Stdout, result.Stderr)
	}
	return result.Stdout
}

// MustChange is MustCtl for a change of the members, which is refused until
// they have been connected for a while.
func (c *Cluster) MustChange(args ...string) string {
	c.t.Helper()
	for deadline := time.Now().Add(settleMax); ; time.Sleep(100 * time.Millisecond) {
		result := c.Ctl(args...)
		if result.Code == 0 {
			return result.Stdout
		}
		if !strings.Contains(result.Stderr, "unhealthy cluster") || time.Now().After(deadline) {
			c.t.Fatalf("etcdctl %v: exit %d\n%s%s", args, result.Code, result.Stdout, result.Stderr)
		}
	}
}

// Status is what a member says of itself.
type Status struct {
	ID, Leader, Term, Index uint64
	Learner                 bool
	Version                 string
}

// statusMax is how long a member may take to say how it is: one whose disk
// stalls may not say it at all.
const statusMax = 5 * time.Second

// statusOf asks a member; ok is false when it does not answer.
func statusOf(s *harness.Server) (status Status, ok bool) {
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{s.Endpoint()}, Logger: zap.NewNop()})
	if err != nil {
		return Status{}, false
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(context.Background(), statusMax)
	defer cancel()
	found, err := client.Status(ctx, s.Endpoint())
	if err != nil {
		return Status{}, false
	}
	return Status{
		ID: found.Header.MemberId, Leader: found.Leader, Term: found.RaftTerm, Index: found.RaftAppliedIndex,
		Learner: found.IsLearner, Version: found.Version,
	}, true
}

// mustStatus waits until a member answers.
func mustStatus(t testing.TB, s *harness.Server) Status {
	t.Helper()
	for deadline := time.Now().Add(settleMax); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		if status, ok := statusOf(s); ok {
			return status
		}
	}
	t.Fatalf("member %s does not answer", s.Name)
	return Status{}
}

// id of a member that runs.
func id(t testing.TB, s *harness.Server) uint64 {
	t.Helper()
	return mustStatus(t, s).ID
}

// hex is a member's id as etcdctl takes it.
func hex(t testing.TB, s *harness.Server) string {
	t.Helper()
	return fmt.Sprintf("%x", id(t, s))
}

// Leader waits until the members that run agree on a leader among them.
func (c *Cluster) Leader() *harness.Server {
	c.t.Helper()
	for deadline := time.Now().Add(settleMax); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		var leader *harness.Server
		agreed := map[uint64]bool{}
		for _, member := range c.Members {
			if !member.Running() {
				continue
			}
			status, ok := statusOf(member)
			if !ok {
				agreed[0] = true
				continue
			}
			agreed[status.Leader] = true
			if status.Leader == status.ID {
				leader = member
			}
		}
		if leader != nil && len(agreed) == 1 {
			return leader
		}
	}
	c.t.Fatal("no leader that all members agree on")
	return nil
}

// Follower is a member that runs and does not lead.
func (c *Cluster) Follower() *harness.Server {
	c.t.Helper()
	leader := c.Leader()
	for _, member := range c.Members {
		if member != leader && member.Running() {
			return member
		}
	}
	c.t.Fatal("there is no follower")
	return nil
}

// Drop takes a server off the list of members.
func (c *Cluster) Drop(server *harness.Server) {
	var rest []*harness.Server
	for _, member := range c.Members {
		if member != server {
			rest = append(rest, member)
		}
	}
	c.Members = rest
}

// AwaitLevel waits until all members that run have the same revision and hash.
func (c *Cluster) AwaitLevel() {
	c.t.Helper()
	var last string
	for deadline := time.Now().Add(settleMax); time.Now().Before(deadline); time.Sleep(100 * time.Millisecond) {
		result := c.Ctl("endpoint", "hashkv", "-w", "json")
		var answers []struct {
			HashKV struct {
				Hash            uint32
				CompactRevision int64 `json:"compact_revision"`
				HashRevision    int64 `json:"hash_revision"`
			}
		}
		last = result.Stdout + result.Stderr
		if err := json.Unmarshal([]byte(result.Stdout), &answers); result.Code != 0 || err != nil {
			continue
		}
		level := true
		for _, answer := range answers {
			level = level && answer.HashKV == answers[0].HashKV
		}
		if level && len(answers) > 0 {
			return
		}
	}
	c.t.Fatalf("the members are not level: %s", last)
}
