package utl

import (
	"fmt"
	"math/rand"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"cairn.dev/conformance/harness"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// TestTimes measures each command that moves a member which is stopped, or a
// snapshot: MOVE_MB (1) of values of 1 KB, in as many keys. What comes out must
// have the history that went in. Without MOVE_TIMES=1 it has nothing to tell.
func TestTimes(t *testing.T) {
	if os.Getenv("MOVE_TIMES") == "" {
		t.Skip("MOVE_TIMES=1 measures how long moving takes")
	}
	dir := t.TempDir()
	path := func(name string) string { return filepath.Join(dir, name) }
	etcd := harness.Start(t, harness.Etcd, "--quota-backend-bytes=17179869184", "--unsafe-no-fsync")
	fillWith(t, etcd, harness.Number(t, "MOVE_MB", 1))
	want := historyOf(t, etcd)
	clock := &stopwatch{t: t}
	saved, ctl := path("etcd.db"), harness.Tool(t, "etcdctl")
	clock.run("`etcdctl snapshot save`, of etcd", ctl, "--command-timeout=10m", "--endpoints="+etcd.Endpoint(), "snapshot", "save", saved)
	etcd.Stop()
	etcd.SetFlags("--quota-backend-bytes=17179869184")
	clock.start("(etcd starts on it again)", etcd)
	etcd.Stop()
	size, err := os.Stat(filepath.Join(etcd.DataDir, "member", "snap", "db"))
	if err != nil {
		t.Fatal(err)
	}
	util := func(what string, args ...string) {
		clock.run(what, harness.CairnBinary(t), append([]string{"util"}, args...)...)
	}
	util("`cairn util migrate`", "migrate", "--from", etcd.DataDir, "--data-dir", path("migrated"))
	util("`cairn util snapshot restore`, of etcd's snapshot", "snapshot", "restore", saved, "--data-dir", path("restored"))
	for _, made := range []string{"migrated", "restored"} {
		server := inPlaceOf(t, etcd, harness.Cairn, path(made))
		if made == "restored" {
			server = harness.Prepare(t, harness.Cairn, path(made))
		}
		server.Run()
		if got := historyOf(t, server); got != want {
			t.Errorf("%s: %s, not %s", made, got, want)
		}
		server.Stop()
	}
	cairn := adopt(t, etcd, "--adopt-etcd-data")
	clock.start("`cairn serve --adopt-etcd-data`, until it serves", cairn)
	if got := historyOf(t, cairn); got != want {
		t.Errorf("adopted: %s, not %s", got, want)
	}
	cairn.Stop()
	clock.start("(Cairn starts on it again)", cairn)
	cairn.Stop()
	own := path("cairn.db")
	util("`cairn util snapshot save`, of a stopped member", "snapshot", "save", own, "--data-dir", cairn.DataDir)
	clock.run("`etcdutl snapshot restore`, of that", harness.Tool(t, "etcdutl"), "snapshot", "restore", own, "--data-dir", path("etcdutl"))
	util("`cairn util export`", "export", "--data-dir", cairn.DataDir, "--to", path("exported"))
	back := inPlaceOf(t, etcd, harness.Etcd, path("exported"))
	clock.start("(etcd starts on what was exported)", back)
	if got := historyOf(t, back); got != want {
		t.Errorf("exported: %s, not %s", got, want)
	}
	t.Logf("etcd's database has %d MiB:\n| command | time | processor time |\n|---|--:|--:|\n%s", size.Size()>>20, clock.table.String())
}

// fillWith puts so many MB.
func fillWith(t *testing.T, server *harness.Server, megabytes int) {
	t.Helper()
	const each, clients = 100, 4
	var filling sync.WaitGroup
	for client := range clients {
		own, random := server.Client(), rand.New(rand.NewSource(int64(client)))
		filling.Go(func() {
			for number := client; number < megabytes*1024/each+1; number += clients {
				var puts []clientv3.Op
				for key := range each {
					value := make([]byte, 1024)
					random.Read(value)
					puts = append(puts, clientv3.OpPut(fmt.Sprintf("key/%08d", number*each+key), string(value)))
				}
				if _, err := own.Txn(t.Context()).Then(puts...).Commit(); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	filling.Wait()
}

// historyOf is the revision of a member and the hash of its history.
func historyOf(t *testing.T, server *harness.Server) string {
	t.Helper()
	hash, err := server.Client().HashKV(harness.Context(t), server.Endpoint(), 0)
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("hash %08x at revision %d", hash.Hash, hash.Header.Revision)
}

// stopwatch keeps what took how long.
type stopwatch struct {
	t     *testing.T
	table strings.Builder
}

func (s *stopwatch) note(what string, took, processor time.Duration) {
	fmt.Fprintf(&s.table, "| %s | %.1f s | %.1f s |\n", what, took.Seconds(), processor.Seconds())
}

// run measures a command, which must succeed.
func (s *stopwatch) run(what, program string, args ...string) {
	s.t.Helper()
	command, begun := exec.Command(program, args...), time.Now()
	if out, err := command.CombinedOutput(); err != nil {
		s.t.Fatalf("%s: %v\n%s", what, err, out)
	}
	s.note(what, time.Since(begun), command.ProcessState.UserTime()+command.ProcessState.SystemTime())
}

// start measures a server until it serves.
func (s *stopwatch) start(what string, server *harness.Server) {
	s.t.Helper()
	begun := time.Now()
	if err := server.TryRun(10 * time.Minute); err != nil {
		s.t.Fatal(err)
	}
	s.note(what, time.Since(begun), harness.ProcessorTime(s.t, server.Pid()))
}
