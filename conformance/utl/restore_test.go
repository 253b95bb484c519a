package utl

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"cairn.dev/conformance/harness"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// A snapshot of either server becomes a member of Cairn with all that was in it.
func TestRestore(t *testing.T) {
	for _, kind := range []harness.Kind{harness.Etcd, harness.Cairn} {
		t.Run(string(kind), func(t *testing.T) {
			server, file := save(t, kind)
			want := observe(t, server)
			restored := harness.Prepare(t, harness.Cairn, filepath.Join(t.TempDir(), "restored"))
			run(t, "snapshot", "restore", file, "--data-dir", restored.DataDir, "--initial-cluster", "default="+restored.PeerURL(),
				"--initial-advertise-peer-urls", restored.PeerURL())
			if text := run(t, "store", "verify", "--data-dir", restored.DataDir); !strings.HasPrefix(text, "every checksum is right") {
				t.Errorf("store verify: %s", text)
			}
			restored.Run()
			compare(t, want, observe(t, restored))
			put, err := restored.Client().Put(harness.Context(t), "after", "restore")
			if err != nil || put.Header.Revision != want.last+1 {
				t.Errorf("the first put after the restore: %v, %v", put, err)
			}
			if text := refused(t, "store", "verify", "--data-dir", restored.DataDir); !strings.Contains(text, "stop the member") {
				t.Errorf("store verify of a member that runs: %s", text)
			}
			restored.Stop()
			if text := run(t, "wal", "dump", "--data-dir", restored.DataDir); !strings.Contains(text, "after") {
				t.Errorf("wal dump lacks the put:\n%s", text)
			}
		})
	}
}

// Clients that saw later revisions are sent back to the beginning.
func TestRestoreMovedOn(t *testing.T) {
	server, file := save(t, harness.Etcd)
	want := observe(t, server)
	restored := harness.Prepare(t, harness.Cairn, filepath.Join(t.TempDir(), "restored"))
	run(t, "snapshot", "restore", file, "--data-dir", restored.DataDir, "--initial-cluster", "default="+restored.PeerURL(),
		"--initial-advertise-peer-urls", restored.PeerURL(), "--bump-revision=1000000", "--mark-compacted")
	restored.Run()
	client := restored.Client()
	if at := last(t, client); at != want.last+1_000_000 {
		t.Errorf("revision %d, not %d", at, want.last+1_000_000)
	}
	ctx, cancel := context.WithCancel(harness.Context(t))
	defer cancel()
	watched := <-client.Watch(ctx, "key/", clientv3.WithPrefix(), clientv3.WithRev(want.last))
	if watched.CompactRevision != want.last+1_000_000 {
		t.Errorf("a watch from before: %+v", watched)
	}
	keys, err := client.Get(ctx, "", clientv3.WithPrefix())
	if err != nil || len(keys.Kvs) != len(want.keys[len(want.keys)-1].Kvs) {
		t.Errorf("%d keys, %v", len(keys.Kvs), err)
	}
}

// A revision that leaves none for later changes is refused, and nothing is left.
func TestRestoreMovedTooFar(t *testing.T) {
	_, file := save(t, harness.Etcd)
	target := filepath.Join(t.TempDir(), "target")
	for _, bump := range []string{"9223372036854775000", "9223372036854775807", "18446744073709551615"} {
		text := refused(t, "snapshot", "restore", file, "--data-dir", target, "--bump-revision="+bump, "--mark-compacted")
		if !strings.Contains(text, "leaves no revisions") {
			t.Errorf("--bump-revision=%s: %s", bump, text)
		}
		absent(t, target)
	}
}

// Three members are restored from one snapshot and form a cluster.
func TestRestoreCluster(t *testing.T) {
	server, file := save(t, harness.Etcd)
	want := observe(t, server)
	var members []*harness.Server
	var list []string
	for i := range 3 {
		member := harness.Prepare(t, harness.Cairn, filepath.Join(t.TempDir(), "restored"))
		member.Name = fmt.Sprintf("m%d", i)
		members = append(members, member)
		list = append(list, member.Name+"="+member.PeerURL())
	}
	cluster := strings.Join(list, ",")
	started := make(chan error, len(members))
	for _, member := range members {
		member.InitialCluster = cluster
		run(t, "snapshot", "restore", file, "--data-dir", member.DataDir, "--name", member.Name, "--initial-cluster", cluster,
			"--initial-advertise-peer-urls", member.PeerURL())
	}
	for _, member := range members {
		go func() { started <- member.TryRun(60e9) }()
	}
	for range members {
		if err := <-started; err != nil {
			t.Fatal(err)
		}
	}
	for _, member := range members {
		compare(t, want, observe(t, member))
	}
}
