package ctl

import (
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"cairn.dev/conformance/harness"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// A snapshot of the server is one that etcd's own tools accept, and a genuine
// etcd that is started on it has the same history.
func TestSnapshot(t *testing.T) {
	server := harness.Start(t, harness.Subject())
	client := server.Client()
	leases := load(t, client)
	file := filepath.Join(t.TempDir(), "snapshot.db")
	server.MustCtl("snapshot", "save", file)
	revision := hashKV(t, client, server.Endpoint(), 0).HashRevision
	wantHash := hashKV(t, client, server.Endpoint(), revision)

	checkStatus(t, file, revision)
	// etcdutl hashkv opens the file for writing, which changes it.
	if output := utl(t, "hashkv", harness.CopyOf(t, file), "-w", "simple"); !strings.HasPrefix(output, fmt.Sprint(wantHash.Hash)) {
		t.Errorf("etcdutl hashkv: %q, the server says %d", output, wantHash.Hash)
	}

	restored := harness.Prepare(t, harness.Etcd, filepath.Join(t.TempDir(), "restored"))
	utl(t, "snapshot", "restore", file, "--data-dir", restored.DataDir, "--name", "default",
		"--initial-cluster", "default="+restored.PeerURL(), "--initial-advertise-peer-urls", restored.PeerURL())
	restored.Run()
	copied := restored.Client()
	gotHash := hashKV(t, copied, restored.Endpoint(), revision)
	if difference := harness.Diff(wantHash, nil, gotHash, nil); difference != "" {
		t.Errorf("HashKV at %d: %s", revision, difference)
	}
	for at := revision - 30; at <= revision; at += 10 {
		want, wantErr := client.Get(harness.Context(t), "", clientv3.WithPrefix(), clientv3.WithRev(at))
		got, gotErr := copied.Get(harness.Context(t), "", clientv3.WithPrefix(), clientv3.WithRev(at))
		difference := harness.Diff((*pb.RangeResponse)(want), wantErr, (*pb.RangeResponse)(got), gotErr)
		if difference != "" {
			t.Errorf("content at revision %d: %s", at, difference[:min(4000, len(difference))])
		}
	}
	for _, lease := range leases {
		want, wantErr := client.TimeToLive(harness.Context(t), lease, clientv3.WithAttachedKeys())
		got, gotErr := copied.TimeToLive(harness.Context(t), lease, clientv3.WithAttachedKeys())
		if wantErr != nil || gotErr != nil {
			t.Fatal(wantErr, gotErr)
		}
		if want.GrantedTTL != got.GrantedTTL || len(want.Keys) != len(got.Keys) {
			t.Errorf("lease %x: %d s with %q, restored %d s with %q", lease, want.GrantedTTL, want.Keys, got.GrantedTTL, got.Keys)
		}
	}
	put, err := copied.Put(harness.Context(t), "after", "restore")
	if err != nil || put.Header.Revision != revision+1 {
		t.Errorf("the first put after the restore: %v, %v", put, err)
	}
}

// load writes a history with deletes, large values and leases, the older half
// of it compacted, and returns the leases.
func load(t *testing.T, client *clientv3.Client) []clientv3.LeaseID {
	t.Helper()
	ctx := harness.Context(t)
	must := func(_ any, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	var leases []clientv3.LeaseID
	for range 3 {
		lease, err := client.Grant(ctx, 5000)
		must(lease, err)
		leases = append(leases, lease.ID)
		_, err = client.Put(ctx, fmt.Sprintf("leased/%x", lease.ID), "value", clientv3.WithLease(lease.ID))
		must(nil, err)
	}
	for i := range 40 {
		var ops []clientv3.Op
		for j := range 100 {
			ops = append(ops, clientv3.OpPut(fmt.Sprintf("key/%05d", (i*100+j)%2500), strings.Repeat("v", i*j)))
		}
		must(client.Txn(ctx).Then(ops...).Commit())
	}
	for i := range 40 {
		must(client.Delete(ctx, fmt.Sprintf("key/%05d", i*7)))
	}
	must(client.Put(ctx, "large", strings.Repeat("x", 1_500_000)))
	must(client.Put(ctx, "empty", ""))
	revision := hashKV(t, client, client.Endpoints()[0], 0).HashRevision
	must(client.Compact(ctx, revision-35, clientv3.WithCompactPhysical()))
	return leases
}

func hashKV(t *testing.T, client *clientv3.Client, endpoint string, revision int64) *pb.HashKVResponse {
	t.Helper()
	response, err := client.HashKV(harness.Context(t), endpoint, revision)
	if err != nil {
		t.Fatal(err)
	}
	return (*pb.HashKVResponse)(response)
}

func checkStatus(t *testing.T, file string, revision int64) {
	t.Helper()
	var status struct {
		Revision  int64
		TotalKey  int
		TotalSize int64
		Version   string
	}
	if err := json.Unmarshal([]byte(utl(t, "snapshot", "status", file, "-w", "json")), &status); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(file)
	if err != nil {
		t.Fatal(err)
	}
	if status.Revision != revision || status.Version != "3.7.0" || status.TotalKey < 2400 {
		t.Errorf("snapshot status at revision %d: %+v", revision, status)
	}
	// The image, a whole number of pages, and its SHA-256.
	if info.Size()%512 != 32 {
		t.Errorf("a snapshot of %d bytes", info.Size())
	}
}

func utl(t *testing.T, args ...string) string {
	t.Helper()
	result := harness.Command{Path: harness.Tool(t, "etcdutl"), Args: args}.Run(t)
	if result.Code != 0 {
		t.Fatalf("etcdutl %v: exit %d\n%s%s", args, result.Code, result.Stdout, result.Stderr)
	}
	return result.Stdout
}

// Nothing is left of a snapshot that is interrupted.
func TestSnapshotInterrupted(t *testing.T) {
	if harness.Subject() == harness.Etcd {
		t.Skip("about our tool only")
	}
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	for _, sent := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP} {
		file := filepath.Join(t.TempDir(), "saved.db")
		harness.Interrupted(t, file, 1, sent, ours(t), "--endpoints="+silent.Addr().String(), "snapshot", "save", file)
	}
}
