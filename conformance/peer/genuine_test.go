package peer

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"testing"
	"time"

	"cairn.dev/conformance/harness"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/client/pkg/v3/types"
	"go.etcd.io/etcd/server/v3/etcdserver/api/membership"
	"go.etcd.io/etcd/server/v3/etcdserver/api/rafthttp"
	stats "go.etcd.io/etcd/server/v3/etcdserver/api/v2stats"
	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
	"go.uber.org/zap"
	"google.golang.org/protobuf/proto"
)

// genuine is a member made of etcd's own Raft and etcd's own transport. It
// keeps the log and applies nothing.
type genuine struct {
	transport *rafthttp.Transport
	node      *raft.RawNode
	log       *founded
	inbox     chan func()

	mu        sync.Mutex
	committed [][]byte
	leader    uint64
}

// founded is a log whose cluster exists from the start.
type founded struct {
	*raft.MemoryStorage
	voters []uint64
}

func (f *founded) InitialState() (*raftpb.HardState, *raftpb.ConfState, error) {
	hard, _, err := f.MemoryStorage.InitialState()
	return hard, &raftpb.ConfState{Voters: f.voters}, err
}

func (g *genuine) Process(_ context.Context, m *raftpb.Message) error {
	g.inbox <- func() { g.node.Step(m) }
	return nil
}
func (g *genuine) IsIDRemoved(uint64) bool { return false }
func (g *genuine) ReportUnreachable(id uint64) {
	// Called from within Send, by the one who empties the inbox.
	go func() { g.inbox <- func() { g.node.ReportUnreachable(id) } }()
}
func (g *genuine) ReportSnapshot(uint64, raft.SnapshotStatus) {}

// startGenuine starts the member `id` of `cluster`, and its peer.
func startGenuine(t *testing.T, listener net.Listener, cluster *membership.RaftCluster, own, other *membership.Member) *genuine {
	t.Helper()
	g := &genuine{inbox: make(chan func(), 1000)}
	g.log = &founded{MemoryStorage: raft.NewMemoryStorage(), voters: []uint64{uint64(own.ID), uint64(other.ID)}}
	node, err := raft.NewRawNode(&raft.Config{
		ID: uint64(own.ID), ElectionTick: 10, HeartbeatTick: 1, Storage: g.log, MaxSizePerMsg: 1 << 20,
		MaxInflightMsgs: 256, PreVote: true, CheckQuorum: true,
		Logger: &raft.DefaultLogger{Logger: zap.NewStdLog(zap.NewNop())},
	})
	if err != nil {
		t.Fatal(err)
	}
	g.node = node
	g.transport = &rafthttp.Transport{
		Logger: zap.NewNop(), ID: own.ID, ClusterID: cluster.ID(), Raft: g, DialTimeout: time.Second,
		URLs: types.MustNewURLs(own.PeerURLs), ServerStats: stats.NewServerStats("", ""),
		LeaderStats: stats.NewLeaderStats(zap.NewNop(), own.ID.String()), ErrorC: make(chan error, 1),
	}
	if err := g.transport.Start(); err != nil {
		t.Fatal(err)
	}
	routes := http.NewServeMux()
	routes.Handle("/raft", g.transport.Handler())
	routes.Handle("/raft/", g.transport.Handler())
	// What a leader asks before it settles the cluster's version.
	routes.HandleFunc("/version", func(answer http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(answer, `{"etcdserver":"3.7.3","etcdcluster":"3.7.0","storage":"3.7.0"}`)
	})
	server := &http.Server{Handler: routes}
	go server.Serve(listener)
	g.transport.AddPeer(other.ID, other.PeerURLs)
	stop, stopped := make(chan struct{}), make(chan struct{})
	go g.run(stop, stopped)
	t.Cleanup(func() {
		close(stop)
		<-stopped
		// What still comes is thrown away, so that nobody waits for the inbox.
		go func() {
			for range g.inbox {
			}
		}()
		g.transport.Stop()
		server.Close()
	})
	return g
}

func (g *genuine) run(stop, stopped chan struct{}) {
	defer close(stopped)
	ticks := time.NewTicker(100 * time.Millisecond)
	defer ticks.Stop()
	for {
		select {
		case <-stop:
			return
		case <-ticks.C:
			g.node.Tick()
		case step := <-g.inbox:
			step()
		}
		for g.node.HasReady() {
			ready := g.node.Ready()
			if !raft.IsEmptyHardState(ready.HardState) {
				g.log.SetHardState(ready.HardState)
			}
			g.log.Append(ready.Entries)
			g.transport.Send(ready.Messages)
			g.mu.Lock()
			for _, entry := range ready.CommittedEntries {
				if entry.GetType() == raftpb.EntryNormal {
					g.committed = append(g.committed, entry.GetData())
				} else {
					var change raftpb.ConfChange
					if proto.Unmarshal(entry.GetData(), &change) == nil {
						g.node.ApplyConfChange(&change)
					}
				}
			}
			if ready.SoftState != nil {
				g.leader = ready.SoftState.Lead
			}
			g.mu.Unlock()
			g.node.Advance(ready)
		}
	}
}

// puts are the keys that the committed entries write.
func (g *genuine) puts() map[string]bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	keys := map[string]bool{}
	for _, data := range g.committed {
		var request pb.InternalRaftRequest
		if proto.Unmarshal(data, &request) == nil && request.Put != nil {
			keys[string(request.Put.Key)] = true
		}
	}
	return keys
}

// A member made of etcd's code and one of ours make a cluster: votes, appends
// and answers go both ways through etcd's own transport, also after either
// side was gone for a while.
func TestGenuinePeer(t *testing.T) {
	rafthttp.ConnReadTimeout = rafthttp.DefaultConnReadTimeout
	listener, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", harness.Port(t)))
	if err != nil {
		t.Fatal(err)
	}
	server := harness.Prepare(t, harness.Subject(), t.TempDir()+"/data")
	url := "http://" + listener.Addr().String()
	server.InitialCluster = "default=" + server.PeerURL() + ",genuine=" + url
	urls, err := types.NewURLsMap(server.InitialCluster)
	if err != nil {
		t.Fatal(err)
	}
	cluster, err := membership.NewClusterFromURLsMap(zap.NewNop(), "etcd-cluster", urls)
	if err != nil {
		t.Fatal(err)
	}
	own, subject := cluster.MemberByName("genuine"), cluster.MemberByName("default")
	peer := startGenuine(t, listener, cluster, own, subject)
	server.Run()
	ctx := harness.Context(t)
	value := bytes.Repeat([]byte("v"), 1<<20)
	for i := range 50 {
		size := (i % 5) * (i % 5) * 50_000
		if _, err := server.Client().Put(ctx, fmt.Sprintf("before-%d", i), string(value[:size])); err != nil {
			t.Fatal(err)
		}
	}
	if server.Kind != harness.Etcd {
		active := fmt.Sprintf("etcd_network_active_peers{Local=%q,Remote=%q} 1", subject.ID.String(), own.ID.String())
		for deadline := time.Now().Add(startMax); !bytes.Contains(metricsPage(t, server), []byte(active)); time.Sleep(50 * time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("the metrics do not say %s", active)
			}
		}
	}
	server.Kill()
	server.Run()
	for i := range 50 {
		if _, err := server.Client().Put(ctx, fmt.Sprintf("after-%d", i), "v"); err != nil {
			t.Fatal(err)
		}
	}
	deadline := time.Now().Add(startMax)
	for len(peer.puts()) < 100 && time.Now().Before(deadline) {
		time.Sleep(50 * time.Millisecond)
	}
	if puts := peer.puts(); len(puts) != 100 {
		t.Errorf("the genuine member has %d of 100 puts", len(puts))
	}
	select {
	case err := <-peer.transport.ErrorC:
		t.Errorf("the genuine transport says %v", err)
	default:
	}
}

func metricsPage(t *testing.T, server *harness.Server) []byte {
	t.Helper()
	response, err := http.Get(server.URL("/metrics"))
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	var page bytes.Buffer
	if _, err := page.ReadFrom(response.Body); err != nil && !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	return page.Bytes()
}
