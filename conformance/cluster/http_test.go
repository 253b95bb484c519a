package cluster

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"cairn.dev/conformance/harness"
)

// get fetches a page.
func get(t *testing.T, url string) (int, string) {
	t.Helper()
	response, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(body)
}

// The calls that members make to each other are etcd's.
func TestPeerCalls(t *testing.T) {
	type page struct {
		code int
		body string
	}
	ask := func(kind harness.Kind, ports []int) map[string]page {
		cluster := prepare(t, kind, 3)
		for at, member := range cluster.Members {
			member.PeerPort, member.ClientPort = ports[2*at], ports[2*at+1]
		}
		initial := cluster.Initial()
		for _, member := range cluster.Members {
			member.InitialCluster = initial
		}
		cluster.Run()
		// Only the leader knows the time of leases.
		asked := cluster.Leader()
		// A leader raises it some time after it was elected.
		clusterVersion(t, cluster.Members, "3.7.0")
		pages := map[string]page{}
		for _, path := range []string{
			"/members", "/version", "/downgrade/enabled", "/nothing", "/members/promote/1", "/leases", "/members/hashkv",
		} {
			code, body := get(t, asked.PeerURL()+path)
			pages["GET "+path] = page{code, body}
		}
		for _, path := range []string{"/members", "/members/promote/x", "/members/promote/12345", "/leases", "/leases/internal"} {
			// A lease's id; one level deeper for its time to live.
			body := "\x08\x07"
			if path == "/leases/internal" {
				body = "\x0a\x02" + body
			}
			response, err := http.Post(asked.PeerURL()+path, "application/protobuf", strings.NewReader(body))
			if err != nil {
				t.Fatal(err)
			}
			answer, _ := io.ReadAll(response.Body)
			response.Body.Close()
			pages["POST "+path] = page{response.StatusCode, string(answer)}
		}
		for _, member := range cluster.Members {
			member.Kill()
		}
		return pages
	}
	var ports []int
	for range 6 {
		ports = append(ports, harness.Port(t))
	}
	etcd, subject := ask(harness.Etcd, ports), ask(harness.Subject(), ports)
	for path, want := range etcd {
		got := subject[path]
		if want.code != got.code {
			t.Errorf("%s: %d %q, etcd answers %d %q", path, got.code, got.body, want.code, want.body)
			continue
		}
		var left, right any
		if json.Unmarshal([]byte(want.body), &left) == nil && json.Unmarshal([]byte(got.body), &right) == nil {
			wanted, _ := json.Marshal(left)
			have, _ := json.Marshal(right)
			if string(wanted) != string(have) {
				t.Errorf("%s: %s, etcd answers %s", path, have, wanted)
			}
		}
	}
}

func TestMembershipMetrics(t *testing.T) {
	cluster := start(t, harness.Subject(), 3)
	leader := cluster.Leader()
	version := `etcd_cluster_version{cluster_version="3.7"} 1`
	_, page := get(t, leader.URL("/metrics"))
	// The leader puts it into the log some time after it was elected.
	for deadline := time.Now().Add(settleMax); !strings.Contains(page, version) && time.Now().Before(deadline); {
		time.Sleep(50 * time.Millisecond)
		_, page = get(t, leader.URL("/metrics"))
	}
	for _, name := range []string{
		version, "etcd_network_known_peers{Local=", "etcd_server_is_leader 1",
		"etcd_server_is_learner 0", "etcd_server_has_leader 1",
	} {
		if !strings.Contains(page, name) {
			t.Errorf("no %s", name)
		}
	}
}
