package utl

import (
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"cairn.dev/conformance/harness"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// giveBack is a member of etcd on what a stopped member of Cairn was exported
// to, in its place. It is not started.
func giveBack(t *testing.T, from *harness.Server, flags ...string) *harness.Server {
	t.Helper()
	to := inPlaceOf(t, from, harness.Etcd, filepath.Join(t.TempDir(), "etcd"), flags...)
	t.Log(run(t, "export", "--data-dir", from.DataDir, "--to", to.DataDir))
	return to
}

// A stopped or killed member of Cairn becomes the same member of etcd, and
// Cairn's again.
func TestExport(t *testing.T) {
	for _, end := range []string{"stopped", "killed"} {
		t.Run(end, func(t *testing.T) {
			from := harness.Start(t, harness.Cairn, "--snapshot-count=100")
			write(t, from.Client(), 8)
			if end == "stopped" {
				settle(t, from)
			}
			want := observe(t, from)
			if end == "stopped" {
				from.Stop()
			} else {
				// Sooner than the first checkpoint: all of it is in the log.
				from.Kill()
				// See settle: a start forgets it.
				delete(want.hashes, want.first)
			}
			founded := withNewIDs(t, from, harness.Etcd)
			founded.Run()
			compareFounded(t, want, founded)
			to := giveBack(t, from)
			to.Run()
			settle(t, to)
			got := observe(t, to)
			compare(t, want, got)
			if want.header.ClusterId != got.header.ClusterId || want.header.MemberId != got.header.MemberId {
				t.Errorf("another member: %v, not %v", got.header, want.header)
			}
			if _, err := to.Client().Put(harness.Context(t), "after", "the move"); err != nil {
				t.Fatal(err)
			}
			// It goes on after a restart, from its own files.
			after := observe(t, to)
			to.Stop()
			to.Run()
			compare(t, after, observe(t, to))
			to.Stop()
			again := adopt(t, to, "--adopt-etcd-data")
			again.Run()
			compare(t, after, observe(t, again))
		})
	}
}

// withNewIDs is a member of etcd in a cluster of its own with what a stopped
// member of Cairn has: our tool saves it, etcd's restores it. It is not started.
func withNewIDs(t *testing.T, from *harness.Server, kind harness.Kind) *harness.Server {
	t.Helper()
	file, said := saveStopped(t, from.DataDir)
	version := map[harness.Kind]string{harness.Etcd: "3.7.0", harness.Etcd36: "3.6.0"}[kind]
	if !strings.Contains(said, "\nServer version "+version+"\n") {
		t.Errorf("it is of %s, but the command says %q", version, said)
	}
	to := harness.Prepare(t, kind, filepath.Join(t.TempDir(), "founded"))
	to.Name = "founded"
	result := harness.Command{Path: harness.Tool(t, "etcdutl"), Args: []string{
		"snapshot", "restore", file, "--data-dir", to.DataDir, "--name", to.Name, "--initial-cluster", to.Name + "=" + to.PeerURL(),
		"--initial-advertise-peer-urls", to.PeerURL(), "--initial-cluster-token", "founded",
	}}.Run(t)
	if result.Code != 0 {
		t.Fatal(result)
	}
	return to
}

// compareFounded checks that a running member has all that another one had, and
// is a member of another cluster, alone in it.
func compareFounded(t *testing.T, want state, founded *harness.Server) {
	t.Helper()
	got := observe(t, founded)
	compare(t, want, got)
	if want.header.ClusterId == got.header.ClusterId || want.header.MemberId == got.header.MemberId {
		t.Errorf("the same member or cluster: %v", got.header)
	}
	alone(t, founded, got.header.MemberId)
}

// alone checks that a member is the only one, and that it can be written to.
func alone(t *testing.T, member *harness.Server, id uint64) {
	t.Helper()
	client, ctx := member.Client(), harness.Context(t)
	members, err := client.MemberList(ctx)
	if err != nil || len(members.Members) != 1 || members.Members[0].ID != id {
		t.Errorf("members %v, not %x alone: %v", members, id, err)
	}
	if _, err := client.Put(ctx, "after", "the move"); err != nil {
		t.Error(err)
	}
}

// What one of three members was exported to starts alone with etcd's
// --force-new-cluster, as the same member with all data. EARLIER=1: under etcd
// 3.6 as well, after a downgrade.
func TestExportForced(t *testing.T) {
	kinds := []harness.Kind{harness.Etcd}
	if os.Getenv("EARLIER") != "" {
		kinds = append(kinds, harness.Etcd36)
	}
	for _, kind := range kinds {
		t.Run(string(kind), func(t *testing.T) {
			cluster := harness.StartCluster(t, harness.Cairn, 3, nil, "--snapshot-count=100")
			from := cluster.Members[0]
			write(t, from.Client(), 10)
			if kind == harness.Etcd36 {
				downgrade(t, cluster)
			}
			settle(t, from)
			want := observe(t, from)
			for _, member := range cluster.Members {
				member.Stop()
			}
			founded := withNewIDs(t, from, kind)
			founded.Run()
			compareFounded(t, want, founded)

			to := inPlaceOf(t, from, kind, filepath.Join(t.TempDir(), "etcd"), "--force-new-cluster")
			t.Log(run(t, "export", "--data-dir", from.DataDir, "--to", to.DataDir))
			to.Run()
			got := observe(t, to)
			compare(t, want, got)
			if want.header.ClusterId != got.header.ClusterId || want.header.MemberId != got.header.MemberId {
				t.Errorf("another member: %v, not %v", got.header, want.header)
			}
			alone(t, to, want.header.MemberId)
			// It stays alone without the flag.
			after := observe(t, to)
			to.Stop()
			to.SetFlags()
			to.Run()
			compare(t, after, observe(t, to))
			alone(t, to, want.header.MemberId)
		})
	}
}

// downgrade lowers a cluster to the release before, and waits until all members
// have their storage's version of it.
func downgrade(t *testing.T, cluster *harness.Cluster) {
	t.Helper()
	if _, err := cluster.Client().Downgrade(harness.Context(t), clientv3.DowngradeEnable, "3.6.0"); err != nil {
		t.Fatal(err)
	}
	for _, member := range cluster.Members {
		var seen struct{ Etcdcluster, Storage string }
		for deadline := time.Now().Add(time.Minute); seen.Etcdcluster != "3.6.0" || seen.Storage != "3.6.0"; time.Sleep(20 * time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("%s has versions %v", member.Name, seen)
			}
			response, err := http.Get(member.URL("/version"))
			if err != nil {
				t.Fatal(err)
			}
			err = json.NewDecoder(response.Body).Decode(&seen)
			response.Body.Close()
			if err != nil {
				t.Fatal(err)
			}
		}
	}
}

// What cannot be exported is refused, and nothing is left that looks whole.
func TestExportRefusals(t *testing.T) {
	server := harness.Start(t, harness.Cairn)
	write(t, server.Client(), 9)
	to := filepath.Join(t.TempDir(), "to")
	if text := refused(t, "export", "--data-dir", server.DataDir, "--to", to); !strings.Contains(text, "is locked") {
		t.Errorf("a member that runs: %s", text)
	}
	server.Stop()
	if text := refused(t, "export", "--data-dir", server.DataDir); !strings.Contains(text, "\"to\" not set") {
		t.Errorf("no target: %s", text)
	}
	if text := refused(t, "export", "--data-dir", to, "--to", to); !strings.Contains(text, "does not hold the data of a member of Cairn") {
		t.Errorf("no member: %s", text)
	}
	if text := refused(t, "export", "--data-dir", server.DataDir, "--to", filepath.Join(server.DataDir, "to")); !strings.Contains(text, "only read") {
		t.Errorf("into the source: %s", text)
	}
	full := t.TempDir()
	if err := os.WriteFile(filepath.Join(full, "something"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if text := refused(t, "export", "--data-dir", server.DataDir, "--to", full); !strings.Contains(text, "is not empty") {
		t.Errorf("a directory that is not empty: %s", text)
	}
	if found, _ := filepath.Glob(filepath.Join(to, "*")); len(found) != 0 {
		t.Errorf("left: %v", found)
	}
	// A mark says that the log lost what was acknowledged.
	mark := filepath.Join(server.DataDir, "member", "lost-log")
	if err := os.WriteFile(mark, []byte("lost"), 0o600); err != nil {
		t.Fatal(err)
	}
	if text := refused(t, "export", "--data-dir", server.DataDir, "--to", to); !strings.Contains(text, "must not start again") {
		t.Errorf("a member that lost its log: %s", text)
	}
	if err := os.Remove(mark); err != nil {
		t.Fatal(err)
	}
	// What is left of an attempt that failed is not in the way of the next.
	t.Log(run(t, "export", "--data-dir", server.DataDir, "--to", to))
	// etcd may go on from it now, so the source is not exported or started again by mistake.
	if text := refused(t, "export", "--data-dir", server.DataDir, "--to", filepath.Join(t.TempDir(), "again")); !strings.Contains(text, "it was exported to `"+to) {
		t.Errorf("exported twice: %s", text)
	}
	if err := server.TryRun(time.Minute); err == nil {
		t.Fatal("a member that was exported starts")
	}
	if code, err := server.Wait(time.Second); err != nil || code != 65 || !strings.Contains(server.Log(), "it was exported to") {
		t.Errorf("exit %d, %v\n%s", code, err, server.LogTail())
	}
	server.SetFlags("--unsafe-ignore-lost-log")
	server.Run()
}
