package config

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"cairn.dev/conformance/harness"
)

// clusterVersion waits until the member reports a version of its cluster.
func clusterVersion(t *testing.T, server *harness.Server, want string) {
	t.Helper()
	var versions struct{ Etcdcluster, Storage string }
	for deadline := time.Now().Add(2 * time.Minute); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		response, err := http.Get(server.URL("/version"))
		if err != nil {
			t.Fatal(err)
		}
		err = json.NewDecoder(response.Body).Decode(&versions)
		response.Body.Close()
		if err == nil && versions.Etcdcluster == want && versions.Storage == want {
			return
		}
	}
	t.Fatalf("%s: versions %+v, want %s", server.Kind, versions, want)
}

// A downgrade from its beginning to its cancellation: each answer is etcd's.
func TestDowngrade(t *testing.T) {
	kinds := []harness.Kind{harness.Etcd, harness.Subject()}
	transcripts := make([][]string, len(kinds))
	for at, kind := range kinds {
		server := harness.Start(t, kind)
		client := server.Client()
		note := func(format string, args ...any) {
			transcripts[at] = append(transcripts[at], fmt.Sprintf(format, args...))
		}
		ask := func(action clientv3.DowngradeAction, version string) {
			response, err := client.Downgrade(harness.Context(t), action, version)
			if err != nil {
				note("%d %q: %v", action, version, err)
			} else {
				note("%d %q: version %s, header %t", action, version, response.Version, response.Header != nil)
			}
		}
		status := func() {
			status, err := client.Status(harness.Context(t), server.Endpoint())
			if err != nil {
				t.Fatal(err)
			}
			note("status: storage %s, downgrade %t to %q", status.StorageVersion, status.DowngradeInfo.Enabled,
				status.DowngradeInfo.TargetVersion)
		}
		const validate, enable, cancel = clientv3.DowngradeValidate, clientv3.DowngradeEnable, clientv3.DowngradeCancel
		clusterVersion(t, server, "3.7.0")
		for _, version := range []string{"3.6", "3.6.0", "3.6.9", "3.6.1-rc.0", "3.5", "3.7", "4.6", "3", "", "x", "v3.6", "3.6.0.1"} {
			ask(validate, version)
		}
		ask(enable, "3.5")
		ask(enable, "six")
		ask(cancel, "")
		status()
		ask(enable, "3.6")
		clusterVersion(t, server, "3.6.0")
		const ready = "The server is ready to downgrade"
		for deadline := time.Now().Add(endMax); !strings.Contains(server.Log(), ready); time.Sleep(20 * time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("%s does not tell that it is ready", kind)
			}
		}
		status()
		ask(validate, "3.6")
		ask(validate, "3.5")
		ask(enable, "3.5")
		ask(cancel, "3.6")
		clusterVersion(t, server, "3.7.0")
		status()
		server.Stop()
	}
	if !slices.Equal(transcripts[0], transcripts[1]) {
		t.Errorf("etcd:\n%s\ngot:\n%s", strings.Join(transcripts[0], "\n"), strings.Join(transcripts[1], "\n"))
	}
}

// The downgrade is the cluster's: every member tells of it, and a start keeps it.
func TestDowngradeOfThree(t *testing.T) {
	cluster := harness.StartCluster(t, harness.Subject(), 3, nil)
	clusterVersion(t, cluster.Members[0], "3.7.0")
	cluster.Members[1].MustCtl("downgrade", "enable", "3.6.0")
	for _, member := range cluster.Members {
		clusterVersion(t, member, "3.6.0")
	}
	cluster.Members[2].Stop()
	cluster.Members[2].Run()
	clusterVersion(t, cluster.Members[2], "3.6.0")
	if result := cluster.Members[0].Ctl("downgrade", "enable", "3.5.0"); !strings.Contains(result.Stderr, "downgrade job in progress") {
		t.Errorf("a second one: %q", result.Stderr)
	}
	cluster.Members[2].MustCtl("downgrade", "cancel")
	for _, member := range cluster.Members {
		clusterVersion(t, member, "3.7.0")
	}
}
