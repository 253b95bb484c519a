package utl

import (
	"context"
	"fmt"
	"math/rand"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"cairn.dev/conformance/harness"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// adopt is a member of Cairn on etcd's own directory, in its place. It is not
// started.
func adopt(t *testing.T, from *harness.Server, flags ...string) *harness.Server {
	t.Helper()
	return inPlaceOf(t, from, harness.Cairn, from.DataDir, flags...)
}

// inPlaceOf is another server for the same member, on another directory or the
// same. It is not started.
func inPlaceOf(t *testing.T, from *harness.Server, kind harness.Kind, dir string, flags ...string) *harness.Server {
	t.Helper()
	to := harness.Prepare(t, kind, dir, flags...)
	to.Name, to.ClientPort, to.PeerPort, to.InitialCluster = from.Name, from.ClientPort, from.PeerPort, from.InitialCluster
	return to
}

// backups are etcd's files beside those of the member that replaced it.
func backups(t *testing.T, server *harness.Server) []string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(server.DataDir, "etcd-backup-*"))
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// A stopped or killed etcd's directory becomes Cairn's where it lies, if the
// flag says so, and goes back to etcd by a rename.
func TestAdopt(t *testing.T) {
	for _, end := range []string{"stopped", "killed"} {
		t.Run(end, func(t *testing.T) {
			from := harness.Start(t, harness.Etcd, "--snapshot-count=100")
			write(t, from.Client(), 5)
			settle(t, from)
			want := observe(t, from)
			if end == "stopped" {
				from.Stop()
			} else {
				from.Kill()
			}
			before := fingerprint(t, from.DataDir)
			to := adopt(t, from)
			if err := to.TryRun(time.Minute); err == nil || !strings.Contains(err.Error(), "--adopt-etcd-data") {
				t.Fatalf("without the flag: %v", err)
			}
			if fingerprint(t, from.DataDir) != before {
				t.Error("a start that was refused has written")
			}
			to.Setenv("ETCD_ADOPT_ETCD_DATA", "true")
			to.Run()
			compare(t, want, observe(t, to))
			if lines := strings.Count(to.Log(), "took over the data of etcd"); lines != 1 {
				t.Errorf("%d log lines say so:\n%s", lines, to.LogTail())
			}
			if _, err := to.Client().Put(harness.Context(t), "after", "the move"); err != nil {
				t.Fatal(err)
			}
			after := observe(t, to)
			to.Stop()
			// The flag may stay.
			to.Run()
			compare(t, after, observe(t, to))
			to.Stop()
			found := backups(t, to)
			if len(found) != 1 {
				t.Fatalf("backups: %v", found)
			}
			// The way back, to where etcd was.
			back := harness.Prepare(t, harness.Etcd, filepath.Join(t.TempDir(), "back"))
			back.Name, back.PeerPort, back.InitialCluster = from.Name, from.PeerPort, from.InitialCluster
			if err := os.Mkdir(back.DataDir, 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.Rename(found[0], filepath.Join(back.DataDir, "member")); err != nil {
				t.Fatal(err)
			}
			back.Run()
			settle(t, back)
			compare(t, want, observe(t, back))
		})
	}
}

// A log in a directory of its own is adopted, too, and a kill at any moment
// costs nothing: SEED, ROUNDS.
func TestAdoptKilled(t *testing.T) {
	seed := harness.Seed(t)
	random := rand.New(rand.NewSource(int64(seed)))
	wal := filepath.Join(t.TempDir(), "log")
	from := harness.Start(t, harness.Etcd, "--snapshot-count=100", "--wal-dir="+wal)
	write(t, from.Client(), 6)
	settle(t, from)
	want := observe(t, from)
	from.Kill()
	for round := range harness.Number(t, "ROUNDS", 6) {
		dir := t.TempDir()
		data, log := filepath.Join(dir, "data"), filepath.Join(dir, "log")
		for source, target := range map[string]string{from.DataDir: data, wal: log} {
			if err := os.CopyFS(target, os.DirFS(source)); err != nil {
				t.Fatal(err)
			}
		}
		to := harness.Prepare(t, harness.Cairn, data, "--adopt-etcd-data", "--wal-dir="+log)
		to.Name, to.PeerPort, to.InitialCluster = from.Name, from.PeerPort, from.InitialCluster
		kills := 0
		for ; kills < 3; kills++ {
			if err := to.TryRun(time.Duration(random.Intn(60_000)) * time.Microsecond); err == nil {
				break
			}
		}
		if !to.Running() {
			to.Run()
		}
		compare(t, want, observe(t, to))
		for pattern, wanted := range map[string]int{data + "/etcd-backup-*": 1, log + "-etcd-backup-*": 1, data + "/adopting": 0, log + ".adopting": 0} {
			if found, _ := filepath.Glob(pattern); len(found) != wanted {
				t.Errorf("round %d, %d kills: %v is there", round, kills, found)
			}
		}
		to.Stop()
	}
}

// The members of a running cluster are adopted one by one, in place, under
// writes, and given back to etcd one by one, and so on: ROUNDS. No acknowledged
// write is lost, and all members have the same history at each step.
func TestAdoptCluster(t *testing.T) {
	cluster := harness.StartCluster(t, harness.Etcd, 3, nil)
	write(t, cluster.Client(), 7)
	for _, member := range cluster.Members {
		settle(t, member)
	}
	ctx, stop := context.WithCancel(harness.Context(t))
	defer stop()
	var writers sync.WaitGroup
	acknowledged := make([]int, 4)
	for writer := range acknowledged {
		client := cluster.Client()
		writers.Go(func() {
			for number := 0; ctx.Err() == nil; number++ {
				one, cancel := context.WithTimeout(ctx, 2*time.Second)
				_, err := client.Put(one, fmt.Sprintf("written/%d/%06d", writer, number), "x")
				cancel()
				if err == nil {
					acknowledged[writer]++
				}
			}
		})
	}
	replace := func(with func(member *harness.Server) *harness.Server) {
		t.Helper()
		for number, member := range cluster.Members {
			time.Sleep(300 * time.Millisecond)
			member.Stop()
			to := with(member)
			cluster.Members[number] = to
			to.Run()
			sameHistory(t, cluster)
		}
	}
	for range harness.Number(t, "ROUNDS", 1) {
		replace(func(member *harness.Server) *harness.Server {
			return adopt(t, member, append(memberFlags(cluster), "--adopt-etcd-data")...)
		})
		replace(func(member *harness.Server) *harness.Server { return giveBack(t, member, memberFlags(cluster)...) })
	}
	time.Sleep(300 * time.Millisecond)
	stop()
	writers.Wait()
	client := cluster.Client()
	for writer, number := range acknowledged {
		// Others may have been written, too: their answers were lost.
		got, err := client.Get(harness.Context(t), fmt.Sprintf("written/%d/", writer), clientv3.WithPrefix(), clientv3.WithCountOnly())
		if err != nil || got.Count < int64(number) || number == 0 {
			t.Errorf("writer %d: %v keys of %d acknowledged, %v", writer, got, number, err)
		}
	}
	sameHistory(t, cluster)
	t.Log("acknowledged:", acknowledged)
}

func memberFlags(cluster *harness.Cluster) []string {
	var all []string
	for _, member := range cluster.Members {
		all = append(all, member.Name+"="+member.PeerURL())
	}
	return []string{"--initial-cluster=" + strings.Join(all, ","), "--initial-cluster-state=new"}
}

// sameHistory compares the hashes of all members at a revision that all have.
func sameHistory(t *testing.T, cluster *harness.Cluster) {
	t.Helper()
	client := cluster.Client()
	got, err := client.Get(harness.Context(t), "any")
	if err != nil {
		t.Fatal(err)
	}
	revision := got.Header.Revision
	var first *clientv3.HashKVResponse
	for _, member := range cluster.Members {
		own := member.Client()
		if _, err := own.Get(harness.Context(t), "any"); err != nil {
			t.Fatal(err)
		}
		hash, err := own.HashKV(harness.Context(t), member.Endpoint(), revision)
		if err != nil {
			t.Fatal(err)
		}
		if first == nil {
			first = hash
		}
		if hash.Hash != first.Hash || hash.CompactRevision != first.CompactRevision {
			t.Errorf("%s has hash %v at revision %d, not %v", member.Name, hash, revision, first)
		}
	}
}
