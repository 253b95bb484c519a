package checks

import (
	"fmt"
	"strings"
	"testing"

	"cairn.dev/conformance/harness"
)

type network struct {
	Members []struct {
		Member, URL, Error, Verdict          string
		RequestSeconds, ConnectSeconds       times
		ClockAheadSeconds, ClockErrorSeconds *float64
	}
	RecommendedHeartbeatIntervalMs, RecommendedElectionTimeoutMs int
	Verdict                                                      string
}

// patient is what even a busy machine keeps to.
var patient = []string{"--heartbeat-interval=10000", "--election-timeout=50000", "--count=10"}

// Members are found through one of them, and one that is gone is told of.
func TestNetwork(t *testing.T) {
	for _, kind := range []harness.Kind{harness.Etcd, harness.Cairn} {
		t.Run(string(kind), func(t *testing.T) {
			cluster := harness.StartCluster(t, kind, 3, nil)
			first, gone := cluster.Members[0], cluster.Members[2]
			ask := append([]string{"check", "network", "--endpoints", first.Endpoint()}, patient...)
			var found network
			result := object(t, &found, ask...)
			checkVerdict(t, result, found.Verdict, true)
			if len(found.Members) != 3 || found.RecommendedElectionTimeoutMs != 10*found.RecommendedHeartbeatIntervalMs {
				t.Errorf("%s", result.Stdout)
			}
			for _, member := range found.Members {
				if member.RequestSeconds.Count != 10 || !member.RequestSeconds.inOrder() || !member.ConnectSeconds.inOrder() {
					t.Errorf("%+v", member)
				}
				// All are on this machine.
				if member.ClockAheadSeconds == nil || max(*member.ClockAheadSeconds, -*member.ClockAheadSeconds) > *member.ClockErrorSeconds+0.1 {
					t.Errorf("clocks are apart: %s", result.Stdout)
				}
			}

			gone.Kill()
			result = cairn(t, ask...)
			told := fmt.Sprintf("FAIL: %s (%s): cannot connect: Connection refused", gone.Name, gone.PeerURL())
			if result.Code != 1 || !strings.Contains(result.Stdout, told) || strings.Count(result.Stdout, "PASS: ") != 2 {
				t.Errorf("exit %d, no `%s` in\n%s%s", result.Code, told, result.Stdout, result.Stderr)
			}
			if !strings.Contains(result.Stdout, "\nRecommended: --heartbeat-interval=") {
				t.Errorf("nothing is recommended:\n%s", result.Stdout)
			}
		})
	}
}

// Peers are asked on the URLs that they have for each other.
func TestNetworkOfPeers(t *testing.T) {
	for _, kind := range []harness.Kind{harness.Etcd, harness.Cairn} {
		server := harness.Start(t, kind)
		nobody := fmt.Sprintf("http://127.0.0.1:%d", harness.Port(t))
		var found network
		result := object(t, &found, append([]string{"check", "network", "--peers", server.PeerURL() + "," + nobody}, patient...)...)
		checkVerdict(t, result, found.Verdict, false)
		if len(found.Members) != 2 || found.Members[0].Verdict != "PASS" || found.Members[0].RequestSeconds.Count != 10 {
			t.Errorf("%s", result.Stdout)
		}
		if !strings.Contains(found.Members[1].Error, "Connection refused") || found.Members[1].URL != nobody {
			t.Errorf("%s", result.Stdout)
		}
	}
}

// Of several URLs of a member, those that lead nowhere from here do no harm:
// it passes, and is asked for all that it says of itself.
func TestNetworkBesideDeadURLs(t *testing.T) {
	for _, kind := range []harness.Kind{harness.Etcd, harness.Cairn} {
		server := harness.Prepare(t, kind, t.TempDir()+"/data")
		dead := fmt.Sprintf("http://127.0.0.1:%d", harness.Port(t))
		client, peer := "http://"+server.Endpoint(), server.PeerURL()
		// The servers sort them: one that is dead comes before, one behind.
		behind := "http://127.0.0.9:65000"
		server.SetFlags("--listen-client-urls="+client, "--advertise-client-urls="+dead+","+client+","+behind, "--listen-peer-urls="+peer,
			"--initial-advertise-peer-urls="+peer+","+behind, "--initial-cluster=default="+peer+",default="+behind)
		server.Run()
		var found network
		result := object(t, &found, append([]string{"check", "network", "--endpoints", server.Endpoint()}, patient...)...)
		checkVerdict(t, result, found.Verdict, true)
		var seen report
		result = object(t, &seen, "doctor", "--endpoints", server.Endpoint(), "--data-dir", t.TempDir())
		for _, name := range []string{"quota", "history"} {
			if len(seen.texts(name)) != 1 {
				t.Errorf("%s: nothing about `%s`: %s", kind, name, result.Stdout)
			}
		}
	}
}

// Certificates are looked at as etcdctl looks at them.
func TestNetworkWithCertificates(t *testing.T) {
	server := harness.Prepare(t, harness.Cairn, t.TempDir()+"/data")
	client, peer := "https://"+server.Endpoint(), strings.Replace(server.PeerURL(), "http:", "https:", 1)
	server.SetFlags("--auto-tls", "--listen-client-urls="+client, "--advertise-client-urls="+client,
		"--peer-auto-tls", "--listen-peer-urls="+peer, "--initial-advertise-peer-urls="+peer, "--initial-cluster=default="+peer)
	server.Run()
	for _, where := range []string{"--endpoints=" + client, "--peers=" + peer} {
		result := cairn(t, append([]string{"check", "network", where, "--insecure-skip-tls-verify"}, patient...)...)
		if result.Code != 0 || strings.Count(result.Stdout, "PASS: ") != 1 {
			t.Errorf("%s: exit %d\n%s%s", where, result.Code, result.Stdout, result.Stderr)
		}
		result = cairn(t, append([]string{"check", "network", where}, patient...)...)
		if result.Code != 1 || !strings.Contains(result.Stdout+result.Stderr, "certificate") {
			t.Errorf("%s: exit %d\n%s%s", where, result.Code, result.Stdout, result.Stderr)
		}
	}
}

func TestNetworkRefusals(t *testing.T) {
	for _, row := range []struct {
		args []string
		code int
		text string
	}{
		{[]string{"--endpoints", fmt.Sprintf("127.0.0.1:%d", harness.Port(t)), "--command-timeout=1s"}, 1, "context deadline exceeded"},
		{[]string{"--peers", ""}, 128, "--peers names nobody"},
		{[]string{"--peers", "ftp://a:1"}, 3, "has a scheme that is none of"},
		{[]string{"--election-timeout=499"}, 128, "--election-timeout[499ms] should be at least as 5 times as --heartbeat-interval[100ms]"},
		{[]string{"--election-timeout=50001"}, 128, "--election-timeout[50001ms] is too long"},
		{[]string{"--heartbeat-interval=0"}, 128, "--heartbeat-interval must be more than 0"},
		{[]string{"--count=0"}, 128, "--count must be between 1 and"},
	} {
		result := cairn(t, append([]string{"check", "network"}, row.args...)...)
		if result.Code != row.code || !strings.Contains(result.Stderr, row.text) {
			t.Errorf("%v: exit %d: %s%s", row.args, result.Code, result.Stdout, result.Stderr)
		}
	}
}
