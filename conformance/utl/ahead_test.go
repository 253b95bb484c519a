package utl

import (
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"cairn.dev/conformance/harness"
	"go.etcd.io/bbolt"
	"go.etcd.io/etcd/server/v3/storage/wal"
	"go.etcd.io/etcd/server/v3/storage/wal/walpb"
	"go.etcd.io/raft/v3/raftpb"
	"go.uber.org/zap"
)

// receive makes the log of a stopped member one of a member that was killed
// after it had noted that a snapshot came, and before the database that came
// with it took the place of its own.
func receive(t *testing.T, server *harness.Server, index uint64) {
	t.Helper()
	dir := filepath.Join(server.DataDir, "member", "wal")
	log, err := wal.Open(zap.NewNop(), dir, &walpb.Snapshot{})
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	_, state, _, err := log.ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	term := state.GetTerm()
	snapshot := walpb.Snapshot{Index: &index, Term: &term, ConfState: &raftpb.ConfState{Voters: []uint64{1}}}
	if err := log.SaveSnapshot(&snapshot); err != nil {
		t.Fatal(err)
	}
	state.Commit = &index
	if err := log.Save(state, nil); err != nil {
		t.Fatal(err)
	}
}

// endAt has a database say that this entry is the last one in it.
func endAt(t *testing.T, path string, index uint64) {
	t.Helper()
	database, err := bbolt.Open(path, 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer database.Close()
	err = database.Update(func(tx *bbolt.Tx) error {
		return tx.Bucket([]byte("meta")).Put([]byte("consistent_index"), binary.BigEndian.AppendUint64(nil, index))
	})
	if err != nil {
		t.Fatal(err)
	}
}

// A member that has received a snapshot of its leader, and was killed before it
// used it, is taken over with what it received, or not at all.
func TestMigrateReceived(t *testing.T) {
	server := harness.Start(t, harness.Etcd)
	write(t, server.Client(), 5)
	settle(t, server)
	want := observe(t, server)
	server.Stop()
	receive(t, server, 1_000_000)
	target := filepath.Join(t.TempDir(), "target")
	if text := refused(t, "migrate", "--from", server.DataDir, "--data-dir", target); !strings.Contains(text, "00000000000f4240.snap.db") {
		t.Errorf("the database is not there: %s", text)
	}
	absent(t, target)
	// What came is what another member had: here, what this one had.
	snap := filepath.Join(server.DataDir, "member", "snap")
	content, err := os.ReadFile(filepath.Join(snap, "db"))
	if err != nil {
		t.Fatal(err)
	}
	received := filepath.Join(snap, fmt.Sprintf("%016x.snap.db", 1_000_000))
	if err := os.WriteFile(received, content, 0o600); err != nil {
		t.Fatal(err)
	}
	// An older state under that name would take back what was acknowledged.
	if text := refused(t, "migrate", "--from", server.DataDir, "--data-dir", target); !strings.Contains(text, "not at 1000000") {
		t.Errorf("the database is of another entry: %s", text)
	}
	absent(t, target)
	endAt(t, received, 1_000_000)
	text := run(t, "migrate", "--from", server.DataDir, "--data-dir", target)
	if !strings.Contains(text, fmt.Sprintf("revision %d (entry 1000000 of the log)", want.last)) {
		t.Errorf("migrate: %s", text)
	}
}
