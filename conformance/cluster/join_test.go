package cluster

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"cairn.dev/conformance/harness"
)

func TestLearner(t *testing.T) {
	t.Parallel()
	cluster := start(t, harness.Subject(), 3)
	cluster.Leader()
	for at := range 30 {
		cluster.MustCtl("put", fmt.Sprintf("key%d", at), "value")
	}
	learner := cluster.Prepare()
	said := cluster.MustChange("member", "add", learner.Name, "--learner", "--peer-urls="+learner.PeerURL())
	if !strings.Contains(said, "added as learner to cluster") {
		t.Errorf("it says %q", said)
	}
	if result := cluster.Ctl("member", "add", "second", "--learner", "--peer-urls=http://127.0.0.1:1"); !strings.Contains(result.Stderr, "too many learner members") {
		t.Errorf("a second learner: %s", result.Stderr)
	}
	var learnerID string
	for _, line := range strings.Split(cluster.MustCtl("member", "list"), "\n") {
		if strings.Contains(line, "unstarted") {
			learnerID = strings.SplitN(line, ",", 2)[0]
		}
	}
	if result := cluster.Ctl("member", "promote", learnerID); !strings.Contains(result.Stderr, "in sync with leader") {
		t.Errorf("promoted before it runs: %s", result.Stderr)
	}
	leader := cluster.Leader()
	if result := cluster.Ctl("member", "promote", hex(t, leader)); !strings.Contains(result.Stderr, "can only promote a learner member") {
		t.Errorf("promote a voter: %s", result.Stderr)
	}
	cluster.Joining(learner).Run()
	if status := mustStatus(t, learner); !status.Learner {
		t.Errorf("its status: %+v", status)
	}
	for _, args := range [][]string{{"put", "a", "1"}, {"get", "key1"}, {"member", "list"}, {"lease", "grant", "10"}} {
		if result := learner.Ctl(args...); !strings.Contains(result.Stderr, "rpc not supported for learner") {
			t.Errorf("%v on a learner: %s%s", args, result.Stdout, result.Stderr)
		}
	}
	if got := learner.MustCtl("get", "key29", "--consistency=s"); !strings.Contains(got, "value") {
		t.Errorf("the learner reads %q", got)
	}
	// There may be another leader by now, or while it is asked.
	result := cluster.Leader().Ctl("move-leader", learnerID)
	for tries := 0; strings.Contains(result.Stderr, "not leader") && tries < 10; tries++ {
		result = cluster.Leader().Ctl("move-leader", learnerID)
	}
	if !strings.Contains(result.Stderr, "bad leader transferee") {
		t.Errorf("a learner is to lead: %s", result.Stderr)
	}
	// Any member takes the request; the leader decides.
	follower := cluster.Follower()
	said = follower.MustCtl("member", "promote", learnerID)
	if !strings.Contains(said, "promoted in cluster") {
		t.Errorf("it says %q", said)
	}
	cluster.Members = append(cluster.Members, learner)
	learner.MustCtl("put", "a", "1")
	if status := mustStatus(t, learner); status.Learner {
		t.Errorf("its status: %+v", status)
	}
	if result := cluster.Ctl("member", "promote", learnerID); !strings.Contains(result.Stderr, "can only promote a learner member") {
		t.Errorf("promoted again: %s", result.Stderr)
	}
	if result := cluster.Ctl("member", "promote", "12345"); !strings.Contains(result.Stderr, "member not found") {
		t.Errorf("promote an unknown one: %s", result.Stderr)
	}
	cluster.AwaitLevel()
}

func TestLearnerIsRemovedFreely(t *testing.T) {
	cluster := start(t, harness.Subject(), 1)
	said := cluster.MustCtl("member", "add", "l", "--learner", "--peer-urls=http://127.0.0.1:1")
	id := strings.Fields(said)[1]
	cluster.MustCtl("member", "remove", id)
	cluster.MustCtl("put", "a", "1")
}

// One member goes on alone from its data, and grows again.
func TestForceNewCluster(t *testing.T) {
	t.Parallel()
	cluster := start(t, harness.Subject(), 3)
	for at := range 20 {
		cluster.MustCtl("put", fmt.Sprintf("key%d", at), "value")
	}
	// etcd drops what the member does not know to be committed.
	cluster.MustCtl("put", "last", "value")
	cluster.AwaitLevel()
	left := cluster.Follower()
	id := hex(t, left)
	for _, member := range cluster.Members {
		member.Kill()
	}
	left.SetFlags("--force-new-cluster")
	left.Run()
	if list := left.MustCtl("member", "list"); strings.Count(list, "\n") != 1 || !strings.Contains(list, id) {
		t.Errorf("the members: %s", list)
	}
	if got := left.MustCtl("get", "key", "--prefix", "--count-only", "--write-out=fields"); !strings.Contains(got, `"Count" : 20`) {
		t.Errorf("the keys: %s", got)
	}
	left.MustCtl("put", "alone", "1")
	left.Stop()
	left.SetFlags()
	left.Run()
	cluster.Members = []*harness.Server{left}
	added := cluster.Prepare()
	cluster.MustCtl("member", "add", added.Name, "--peer-urls="+added.PeerURL())
	cluster.Joining(added).Run()
	cluster.Members = append(cluster.Members, added)
	if got := added.MustCtl("get", "alone"); !strings.Contains(got, "1") {
		t.Errorf("the new member reads %q", got)
	}
	cluster.AwaitLevel()
}

// A member that has not heard yet of the one that was added does not keep that
// one from joining: the next one is asked. etcd takes the first answer.
func TestJoinsWhereOneIsBehind(t *testing.T) {
	t.Parallel()
	if harness.Subject() == harness.Etcd {
		t.Skip("etcd takes the first answer")
	}
	joining := harness.Prepare(t, harness.Subject(), filepath.Join(t.TempDir(), "data"))
	joining.Name, joining.InitialState = "joining", "existing"
	var urls []string
	for range 2 {
		url := ""
		server := httptest.NewServer(http.HandlerFunc(func(answer http.ResponseWriter, request *http.Request) {
			answer.Header().Set("X-Etcd-Cluster-ID", "7")
			switch request.URL.Path {
			case "/version":
				fmt.Fprint(answer, `{"etcdserver":"3.7.3","etcdcluster":"3.7.0"}`)
			case "/members":
				list := fmt.Sprintf(`{"id":1,"peerURLs":[%q],"name":"one"},{"id":2,"peerURLs":[%q],"name":"two"}`, urls[0], urls[1])
				// They are asked in the order of their URLs.
				if url == slices.Max(urls) {
					list += fmt.Sprintf(`,{"id":3,"peerURLs":[%q],"name":""}`, joining.PeerURL())
				}
				fmt.Fprintf(answer, "[%s]", list)
			default:
				answer.WriteHeader(http.StatusNotFound)
			}
		}))
		defer server.Close()
		url = server.URL
		urls = append(urls, url)
	}
	joining.InitialCluster = fmt.Sprintf("one=%s,two=%s,joining=%s", urls[0], urls[1], joining.PeerURL())
	joining.Launch()
	joining.AwaitLog(t, `"local-member-id":"3"`)
	joining.AwaitLog(t, "joining a cluster")
	joining.Kill()
}

// Starts that must fail say why, and leave no log behind.
func TestRefusedStarts(t *testing.T) {
	cluster := start(t, harness.Subject(), 2)
	cluster.Leader()
	first, second := cluster.Members[0], cluster.Members[1]
	for name, test := range map[string]struct {
		prepare func(server *harness.Server)
		says    []string
	}{
		"not a founder": {
			func(server *harness.Server) { server.InitialCluster = "other=" + server.PeerURL() },
			[]string{"couldn't find local name"},
		},
		"other URLs": {
			func(server *harness.Server) { server.InitialCluster = server.Name + "=http://127.0.0.1:1" },
			[]string{"missing from --initial-advertise-peer-urls"},
		},
		"duplicate URL": {
			func(server *harness.Server) {
				server.InitialCluster = server.Name + "=" + server.PeerURL() + ",other=" + server.PeerURL()
			},
			[]string{"has duplicate url"},
		},
		"one name twice": {
			func(server *harness.Server) {
				server.InitialCluster = server.Name + "=" + server.PeerURL() + "," + server.Name + "=http://127.0.0.1:1"
			},
			[]string{"missing from --initial-advertise-peer-urls"},
		},
		"too few named": {
			func(server *harness.Server) {
				server.InitialState = "existing"
				server.InitialCluster = first.Name + "=" + first.PeerURL() + "," + server.Name + "=" + server.PeerURL()
			},
			[]string{"no match found for existing member", "PeerURLs"},
		},
		"not added": {
			func(server *harness.Server) { cluster.Joining(server) },
			[]string{"member count is unequal"},
		},
		"nobody there": {
			func(server *harness.Server) {
				server.InitialState = "existing"
				server.InitialCluster = "gone=http://127.0.0.1:1," + server.Name + "=" + server.PeerURL()
			},
			[]string{"cannot fetch cluster info from peer urls"},
		},
		"data lost": {
			func(server *harness.Server) {
				second.Kill()
				server.Name, server.PeerPort, server.InitialCluster = second.Name, second.PeerPort, second.InitialCluster
			},
			[]string{"has already been bootstrapped"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			server := harness.Prepare(t, harness.Subject(), filepath.Join(t.TempDir(), "data"))
			server.Name = "refused"
			test.prepare(server)
			err := server.TryRun(time.Minute)
			if err == nil {
				t.Fatal("it starts")
			}
			if code, err := server.Wait(time.Second); err != nil || code != 1 {
				t.Errorf("exit %d, %v", code, err)
			}
			for _, text := range test.says {
				if !strings.Contains(server.Log(), text) {
					t.Errorf("it does not say %q:\n%s", text, server.LogTail())
				}
			}
			if logs, _ := filepath.Glob(filepath.Join(server.DataDir, "member", "wal", "*.wal")); len(logs) > 0 {
				t.Errorf("it left %v", logs)
			}
		})
	}
}

// A host without an address: etcd starts, and nobody ever reaches it.
func TestUnresolvedURL(t *testing.T) {
	t.Parallel()
	if harness.Subject() == harness.Etcd {
		t.Skip("about Cairn only")
	}
	url := "http://no-such-host.invalid:2380"
	server := harness.Prepare(t, harness.Subject(), filepath.Join(t.TempDir(), "data"), "--initial-advertise-peer-urls="+url)
	server.InitialCluster = server.Name + "=" + url
	if err := server.TryRun(60 * time.Second); err == nil {
		t.Fatal("it starts")
	}
	if code, err := server.Wait(time.Second); err != nil || code != 1 {
		t.Errorf("exit %d, %v", code, err)
	}
	if !strings.Contains(server.Log(), "failed to resolve the host of `"+url+"`") {
		t.Errorf("it says %s", server.LogTail())
	}
}

// A founder with another token would found another cluster at the same place:
// it is told, not left waiting. etcd only logs it and waits.
func TestOtherToken(t *testing.T) {
	if harness.Subject() == harness.Etcd {
		t.Skip("about Cairn only")
	}
	cluster := prepare(t, harness.Subject(), 3)
	cluster.Members[2].SetFlags("--initial-cluster-token=another")
	last := cluster.Members[2]
	cluster.Members = cluster.Members[:2]
	cluster.Run()
	if err := last.TryRun(time.Minute); err == nil {
		t.Fatal("it starts")
	}
	if !strings.Contains(last.Log(), "cluster ID mismatch") {
		t.Errorf("it says %s", last.LogTail())
	}
}

// Two members on one directory: the second one leaves it alone.
func TestDirectoryInUse(t *testing.T) {
	if harness.Subject() == harness.Etcd {
		t.Skip("etcd waits for the lock without end")
	}
	server := harness.Start(t, harness.Subject())
	server.MustCtl("put", "a", "1")
	second := harness.Prepare(t, harness.Subject(), server.DataDir)
	if err := second.TryRun(time.Minute); err == nil {
		t.Fatal("it starts")
	}
	if code, err := second.Wait(time.Second); err != nil || code != 1 {
		t.Errorf("exit %d, %v", code, err)
	}
	if !strings.Contains(second.Log(), "another process is using this directory") {
		t.Errorf("it says %s", second.LogTail())
	}
	server.MustCtl("put", "b", "1")
}

// A member that was started on the data of another cluster is kept out by its
// peers, says why and ends, with its data as it was. etcd only logs it, and
// waits without end.
func TestDataOfAnotherCluster(t *testing.T) {
	t.Parallel()
	if harness.Subject() == harness.Etcd {
		t.Skip("about Cairn's words")
	}
	other := start(t, harness.Subject(), 3)
	other.MustCtl("put", "other", "1")
	cluster := prepare(t, harness.Subject(), 3, "--initial-cluster-token=own")
	for at, member := range cluster.Members {
		member.PeerPort = other.Members[at].PeerPort
	}
	initial := cluster.Initial()
	for at, member := range cluster.Members {
		member.InitialCluster = initial
		other.Members[at].Kill()
	}
	cluster.Run()
	cluster.MustCtl("put", "own", "1")
	stray := other.Members[2]
	cluster.Members[2].Stop()
	if err := stray.TryRun(time.Minute); err == nil {
		t.Error("it serves clients")
	}
	if code, err := stray.Wait(time.Second); err != nil || code != 1 {
		t.Errorf("exit %d, %v", code, err)
	}
	lines := strings.Split(strings.TrimSpace(stray.Log()), "\n")
	if last := lines[len(lines)-1]; !strings.Contains(last, "cluster ID mismatch") || !strings.Contains(last, stray.DataDir) {
		t.Errorf("it does not end with why: %s", last)
	}
	cluster.Members[2].Run()
	if got := cluster.MustCtl("get", "", "--prefix", "--keys-only"); strings.TrimSpace(got) != "own" {
		t.Errorf("the keys: %q", got)
	}
	// Among its own it goes on where it was.
	for _, member := range cluster.Members {
		member.Stop()
	}
	other.Run()
	if got := stray.MustCtl("get", "other"); !strings.Contains(got, "1") {
		t.Errorf("it reads %q", got)
	}
}

// Founding members find each other in another cluster.
func TestDiscovery(t *testing.T) {
	t.Parallel()
	registry := harness.Start(t, harness.Etcd)
	registry.MustCtl("put", "/_etcd/registry/a-token/_config/size", "3")
	cluster := prepare(t, harness.Subject(), 3,
		"--discovery-token=a-token", "--discovery-endpoints="+registry.URL(""))
	for _, member := range cluster.Members {
		member.Discovered = true
	}
	cluster.Run()
	cluster.MustCtl("put", "a", "1")
	if list := cluster.MustCtl("member", "list"); strings.Count(list, "started") != 3 {
		t.Errorf("the members: %s", list)
	}
	late := cluster.Prepare()
	late.Discovered = true
	if err := late.TryRun(time.Minute); err == nil || !strings.Contains(late.Log(), "cluster is full") {
		t.Errorf("a fourth one: %v", err)
	}
	unknown := cluster.Prepare("--discovery-token=another")
	unknown.Discovered = true
	if err := unknown.TryRun(time.Minute); err == nil || !strings.Contains(unknown.Log(), "size key not found") {
		t.Errorf("an unknown token: %v", err)
	}
	cluster.Members[0].Kill()
	registry.Stop()
	cluster.Members[0].Run()
	cluster.AwaitLevel()
}

// Founders of both kinds find each other, so the keys in the registry are the
// same: what ours writes, etcd's own reads.
func TestDiscoveryKeys(t *testing.T) {
	registry := harness.Start(t, harness.Etcd)
	registry.MustCtl("put", "/_etcd/registry/a-token/_config/size", "1")
	server := harness.Prepare(t, harness.Subject(), filepath.Join(t.TempDir(), "data"),
		"--discovery-token=a-token", "--discovery-endpoints="+registry.URL(""))
	server.Discovered = true
	server.Run()
	want := "/_etcd/registry/a-token/members/" + hex(t, server) + "\ndefault=" + server.PeerURL()
	if got := registry.MustCtl("get", "/_etcd/registry/a-token/members", "--prefix"); strings.TrimSpace(got) != want {
		t.Errorf("the registry has %q, not %q", got, want)
	}
}

// A mistyped directory must not become an empty cluster of its own.
func TestForceNeedsData(t *testing.T) {
	if harness.Subject() == harness.Etcd {
		t.Skip("etcd begins a new cluster")
	}
	server := harness.Prepare(t, harness.Cairn, filepath.Join(t.TempDir(), "data"))
	server.SetFlags("--force-new-cluster")
	if err := server.TryRun(time.Minute); err == nil {
		t.Fatal("it starts")
	}
	if code, err := server.Wait(time.Second); err != nil || code != 1 {
		t.Errorf("exit %d, %v", code, err)
	}
	if !strings.Contains(server.Log(), "--force-new-cluster goes on with the data of a member, and there is none in") {
		t.Error(server.LogTail())
	}
	if _, err := os.Stat(server.DataDir); !os.IsNotExist(err) {
		t.Errorf("it left %s behind: %v", server.DataDir, err)
	}
	server.SetFlags()
	server.Run()
	if log := server.Log(); !strings.Contains(log, "began with an empty data directory") || strings.Contains(log, "restored the member") {
		t.Error(server.LogTail())
	}
}
