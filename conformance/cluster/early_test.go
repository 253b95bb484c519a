package cluster

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"cairn.dev/conformance/harness"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

const patience = 60 * time.Second

// page waits until a URL is answered at all.
func page(t *testing.T, url string) (int, string) {
	t.Helper()
	client := http.Client{Timeout: 10 * time.Second}
	var last error
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		response, err := client.Get(url)
		if err != nil {
			last = err
			continue
		}
		body, err := io.ReadAll(response.Body)
		response.Body.Close()
		if err != nil {
			last = err
			continue
		}
		return response.StatusCode, string(body)
	}
	t.Fatalf("%s is not answered: %v", url, last)
	return 0, ""
}

// probed checks what probes are told by a member that waits for a quorum.
func probed(t *testing.T, base string) {
	t.Helper()
	if code, body := page(t, base+"/livez"); code != 200 {
		t.Errorf("/livez: %d %s", code, body)
	}
	if code, body := page(t, base+"/health"); code != 503 || !strings.Contains(body, "RAFT NO LEADER") {
		t.Errorf("/health: %d %s", code, body)
	}
	if code, body := page(t, base+"/metrics"); code != 200 || !strings.Contains(body, "\netcd_server_has_leader 0\n") {
		t.Errorf("/metrics: %d, without etcd_server_has_leader 0", code)
	}
}

// syncs is how often a member has synced its log.
func syncs(t *testing.T, member *harness.Server) string {
	t.Helper()
	_, body := page(t, member.URL("/metrics"))
	for line := range strings.Lines(body) {
		if count, ok := strings.CutPrefix(line, "etcd_disk_wal_fsync_duration_seconds_count "); ok {
			return strings.TrimSpace(count)
		}
	}
	t.Fatal("syncs are not counted")
	return ""
}

// writeAndRest writes, and waits until the member has its commit index on the
// disk: it syncs once more by itself.
func writeAndRest(t *testing.T, cluster *Cluster, member *harness.Server) {
	t.Helper()
	for range 20 {
		cluster.MustCtl("put", "a", "value")
		cluster.AwaitLevel()
		before := syncs(t, member)
		if awaits(func() bool { return syncs(t, member) != before }) {
			return
		}
	}
	t.Fatal("the commit index is not written")
}

// awaits is whether something becomes so within three seconds.
func awaits(isSo func() bool) bool {
	for deadline := time.Now().Add(3 * time.Second); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		if isSo() {
			return true
		}
	}
	return false
}

// post makes a call by JSON.
func post(t *testing.T, url, body, token string) (answer map[string]any) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if token != "" {
		request.Header.Set("Authorization", token)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if err := json.NewDecoder(response.Body).Decode(&answer); err != nil {
		t.Fatal(err)
	}
	return answer
}

// A new member that waits for the others of its cluster answers probes, on the
// client port too, and tells clients that there is no leader.
func TestProbesBeforeTheFirstQuorum(t *testing.T) {
	t.Parallel()
	server := harness.Prepare(t, harness.Subject(), t.TempDir()+"/data")
	metrics := fmt.Sprintf("http://127.0.0.1:%d", harness.Port(t))
	server.InitialCluster = fmt.Sprintf("default=%s,other=http://127.0.0.1:%d", server.PeerURL(), harness.Port(t))
	server.SetFlags("--listen-metrics-urls=" + metrics)
	server.Launch()
	probed(t, metrics)
	if server.Kind == harness.Etcd {
		return
	}
	probed(t, server.URL(""))
	for _, args := range [][]string{{"put", "a", "1"}, {"get", "a", "--consistency=s"}, {"endpoint", "status"}} {
		result := server.Ctl(args...)
		if result.Code == 0 || !strings.Contains(result.Stdout+result.Stderr, "etcdserver: no leader") {
			t.Errorf("%v: exit %d\n%s%s", args, result.Code, result.Stdout, result.Stderr)
		}
	}
	if strings.Contains(server.Log(), "ready to serve client requests") {
		t.Error("the member says that it is ready")
	}
}

// A member that was restarted while the others are down answers what needs no
// quorum: probes, serializable reads, its status, a snapshot. It is ready once
// there is a quorum.
func TestRestartedAlone(t *testing.T) {
	t.Parallel()
	if harness.Subject() == harness.Etcd {
		t.Skip("etcd takes no clients before there is a quorum")
	}
	cluster := start(t, harness.Subject(), 3)
	alone := cluster.Members[1]
	writeAndRest(t, cluster, alone)
	for _, member := range cluster.Members {
		member.Kill()
	}
	seen := alone.Launch()
	probed(t, alone.URL(""))
	if got := alone.MustCtl("get", "a", "--consistency=s"); !strings.Contains(got, "value") {
		t.Errorf("read %q", got)
	}
	if got := alone.MustCtl("endpoint", "status"); !strings.Contains(got, "no leader") {
		t.Errorf("status %q", got)
	}
	alone.MustCtl("snapshot", "save", t.TempDir()+"/snapshot")
	if got := alone.MustCtl("member", "list", "--consistency=s"); strings.Count(got, "\n") != 3 {
		t.Errorf("members %q", got)
	}
	for _, args := range [][]string{{"put", "b", "1"}, {"member", "list"}, {"lease", "grant", "9"}} {
		result := alone.Ctl(args...)
		if result.Code == 0 || !strings.Contains(result.Stdout+result.Stderr, "etcdserver: no leader") {
			t.Errorf("%v: exit %d\n%s%s", args, result.Code, result.Stdout, result.Stderr)
		}
	}
	// A watch is opened again later. Only one that wants a leader is told that there
	// is none: etcd's client gives up then.
	watches := pb.NewWatchClient(alone.Conn())
	for wish, isWished := range map[string]bool{"true": true, "false": false} {
		stream, err := watches.Watch(metadata.AppendToOutgoingContext(t.Context(), "hasleader", wish))
		if err == nil {
			_, err = stream.Recv()
		}
		if status.Code(err) != codes.Unavailable || strings.Contains(err.Error(), "etcdserver: no leader") != isWished {
			t.Errorf("a watch with hasleader=%s: %v", wish, err)
		}
	}
	told, watcher := make(chan error, 1), alone.Client()
	// It returns once the watch is there.
	go func() {
		for response := range watcher.Watch(t.Context(), "b") {
			if len(response.Events) > 0 || response.Err() != nil {
				told <- response.Err()
				return
			}
		}
		told <- errors.New("the watch has ended")
	}()
	log := alone.Log()[seen:]
	if strings.Contains(log, "ready to serve client requests") || !strings.Contains(log, "no quorum yet") {
		t.Errorf("the log of a member that waits:\n%s", log)
	}
	// It has answered clients: it closes as a member that is ready does.
	alone.Signal(syscall.SIGTERM)
	if _, err := alone.Wait(patience); err != nil {
		t.Fatal(err)
	}
	if log := alone.Log()[seen:]; !strings.Contains(log, "stopped before the member was published") {
		t.Errorf("the end:\n%s", log)
	}
	seen = alone.Launch()
	cluster.Members[0].Launch()
	if err := alone.AwaitReady(seen, startMax); err != nil {
		t.Fatal(err)
	}
	// It may begin after any put.
	for deadline := time.Now().Add(patience); ; {
		alone.MustCtl("put", "b", "1")
		select {
		case err := <-told:
			if err != nil {
				t.Errorf("a watch that was begun without a quorum: %v", err)
			}
			return
		case <-time.After(100 * time.Millisecond):
		}
		if time.Now().After(deadline) {
			t.Fatal("a watch that was begun without a quorum is told nothing")
		}
	}
}

// Users and permissions guard the data of a member that waits for a quorum.
func TestRestartedAloneWithUsers(t *testing.T) {
	t.Parallel()
	if harness.Subject() == harness.Etcd {
		t.Skip("etcd takes no clients before there is a quorum")
	}
	key := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(key, []byte(strings.Repeat("k", 64)), 0o600); err != nil {
		t.Fatal(err)
	}
	cluster := start(t, harness.Subject(), 3, "--auth-token=jwt,sign-method=HS256,priv-key="+key+",ttl=1h")
	cluster.MustCtl("user", "add", "root:pw")
	cluster.MustCtl("user", "grant-role", "root", "root")
	cluster.MustCtl("auth", "enable")
	alone := cluster.Members[0]
	login := post(t, alone.URL("/v3/auth/authenticate"), `{"name":"root","password":"pw"}`, "")
	token, _ := login["token"].(string)
	// "YQ==" is a. A write makes the member know that what came before is committed.
	for range 20 {
		post(t, alone.URL("/v3/kv/put"), `{"key":"YQ==","value":"YQ=="}`, token)
		before := syncs(t, alone)
		if awaits(func() bool { return syncs(t, alone) != before }) {
			break
		}
	}
	for _, member := range cluster.Members {
		member.Kill()
	}
	alone.Launch()
	probed(t, alone.URL(""))
	// A token that the member can check alone still says who reads.
	if got := post(t, alone.URL("/v3/kv/range"), `{"key":"YQ==","serializable":true}`, token); got["count"] != "1" {
		t.Errorf("a read with a token: %v", got)
	}
	if got := post(t, alone.URL("/v3/auth/authenticate"), `{"name":"root","password":"pw"}`, ""); !strings.Contains(fmt.Sprint(got), "etcdserver: no leader") {
		t.Errorf("a login: %v", got)
	}
	for _, args := range [][]string{{"get", "a", "--consistency=s"}, {"endpoint", "status"}} {
		result := alone.Ctl(args...)
		// Whether the member knows already that its users are in force is a matter of time.
		said := result.Stdout + result.Stderr
		if result.Code == 0 || !strings.Contains(said, "user name is empty") && !strings.Contains(said, "etcdserver: no leader") {
			t.Errorf("%v: exit %d\n%s", args, result.Code, said)
		}
	}
}
