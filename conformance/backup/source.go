// Package backup holds archives of `cairn backup` beside what the members had.
package backup

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"cairn.dev/conformance/harness"
)

// fact is what a member said at one revision.
type fact struct {
	revision, compacted int64
	hash                uint32
	// by is a time at which the member had this state and no later one.
	by time.Time
}

// source changes a member, and notes what it says.
type source struct {
	t      testing.TB
	client *clientv3.Client
	member *harness.Server
	random *rand.Rand
	facts  []fact
	leases []clientv3.LeaseID
}

func newSource(t testing.TB, member *harness.Server, seed uint64) *source {
	return &source{t: t, client: member.Client(), member: member, random: rand.New(rand.NewPCG(seed, 0))}
}

// change does one thing that a client may do.
func (s *source) change(ctx context.Context) error {
	key := fmt.Sprintf("k%03d", s.random.IntN(200))
	var err error
	switch kind := s.random.IntN(40); {
	case kind == 0:
		answer, failed := s.client.Grant(ctx, 3_600)
		if err = failed; err == nil {
			s.leases = append(s.leases, answer.ID)
		}
	case kind == 1 && len(s.leases) > 0:
		id := s.leases[0]
		s.leases = s.leases[1:]
		_, err = s.client.Revoke(ctx, id)
	case kind == 2 && len(s.facts) > 40:
		_, err = s.client.Compact(ctx, s.facts[len(s.facts)-s.random.IntN(20)-1].revision)
		if err != nil && strings.Contains(err.Error(), "compacted") {
			err = nil
		}
	case kind < 9:
		_, err = s.client.Delete(ctx, key)
	case kind < 14:
		_, err = s.client.Txn(ctx).Then(clientv3.OpPut("t/"+key, "a"), clientv3.OpPut("t/"+key+"/b", "b"),
			clientv3.OpDelete("k10", clientv3.WithPrefix())).Commit()
	case kind < 20 && len(s.leases) > 0:
		_, err = s.client.Put(ctx, key, "leased", clientv3.WithLease(s.leases[s.random.IntN(len(s.leases))]))
	default:
		_, err = s.client.Put(ctx, key, strings.Repeat("v", s.random.IntN(2_000)))
	}
	return err
}

// run makes changes until there are so many revisions more, and notes the hash of each.
func (s *source) run(revisions int) {
	s.t.Helper()
	ctx := context.Background()
	for last, wanted := s.last().revision, len(s.facts)+revisions; len(s.facts) < wanted; {
		if err := s.change(ctx); err != nil {
			s.t.Fatal(err)
		}
		hash, err := s.client.HashKV(ctx, s.member.Endpoint(), 0)
		if err != nil {
			s.t.Fatal(err)
		}
		now := fact{hash.HashRevision, hash.CompactRevision, hash.Hash, time.Now()}
		if now.revision != last {
			s.facts = append(s.facts, now)
			last = now.revision
		}
	}
}

func (s *source) last() fact {
	if len(s.facts) == 0 {
		return fact{}
	}
	return s.facts[len(s.facts)-1]
}

// follower is a `cairn backup` that runs.
type follower struct {
	t       testing.TB
	process *exec.Cmd
	mutex   sync.Mutex
	text    strings.Builder
	ended   chan error
}

func (f *follower) Write(part []byte) (int, error) {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	return f.text.Write(part)
}

func (f *follower) log() string {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	return f.text.String()
}

// follow starts one.
func follow(t testing.TB, env []string, args ...string) *follower {
	t.Helper()
	f := &follower{t: t, ended: make(chan error, 1)}
	f.process = exec.Command(harness.CairnBinary(t), append([]string{"backup"}, args...)...)
	f.process.Env = append(os.Environ(), env...)
	f.process.Stderr = f
	f.process.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := f.process.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { f.ended <- f.process.Wait() }()
	t.Cleanup(func() { f.process.Process.Kill() })
	return f
}

// stop ends it, and returns its exit code.
func (f *follower) stop(signal os.Signal) int {
	f.t.Helper()
	f.process.Process.Signal(signal)
	return f.wait()
}

func (f *follower) wait() int {
	f.t.Helper()
	select {
	case <-f.ended:
		return f.process.ProcessState.ExitCode()
	case <-time.After(3 * time.Minute):
		f.t.Fatalf("it does not end: %s", f.log())
		return 0
	}
}

// await waits until what it has said has a text in it.
func (f *follower) await(text string) {
	f.t.Helper()
	for deadline := time.Now().Add(3 * time.Minute); !strings.Contains(f.log(), text); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			f.t.Fatalf("it does not say %q: %s", text, f.log())
		}
	}
}

// status is what `cairn backup status` says.
type status struct {
	FirstRevision, LastIndex, FirstIndex int64
	CompleteUntil                        string
	Pieces                               int
	Bases                                []struct{ Index, Revision int64 }
	Gaps                                 []struct{ After, Until int64 }
}

func statusOf(t testing.TB, env []string, place ...string) status {
	t.Helper()
	result := cairn(t, env, append([]string{"backup", "status", "-w", "json"}, place...)...)
	if result.Code != 0 {
		t.Fatalf("status: %+v", result)
	}
	var found status
	if err := json.Unmarshal([]byte(result.Stdout), &found); err != nil {
		t.Fatalf("%v: %s", err, result.Stdout)
	}
	return found
}

func cairn(t testing.TB, env []string, args ...string) harness.Result {
	t.Helper()
	return harness.Command{Path: harness.CairnBinary(t), Args: args, Env: env, Max: 2 * time.Minute}.Run(t)
}

// check restores a state into a snapshot file, and compares its hash with what the member had said.
func check(t testing.TB, env []string, want fact, how []string, place ...string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "restored.db")
	defer os.Remove(file)
	args := append(append([]string{"restore", "--to-snapshot", file}, how...), place...)
	if result := cairn(t, env, args...); result.Code != 0 {
		t.Fatalf("%v: %+v", args, result)
	}
	result := cairn(t, nil, "util", "hashkv", file)
	wanted := fmt.Sprintf("%d, %d, %d", want.hash, want.revision, want.compacted)
	if result.Code != 0 || strings.TrimSpace(result.Stdout) != wanted {
		t.Errorf("%v: hash, revision and compact revision are %q, the member had said %q: %s", how, result.Stdout, wanted, result.Stderr)
	}
}

func atRevision(revision int64) []string {
	return []string{"--to-revision", strconv.FormatInt(revision, 10)}
}

// awaitArchived waits until the archive has everything that the member has applied.
func awaitArchived(t testing.TB, s *source, env []string, place ...string) {
	t.Helper()
	answer, err := s.client.Status(context.Background(), s.member.Endpoint())
	if err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(3 * time.Minute); ; time.Sleep(100 * time.Millisecond) {
		found := statusOf(t, env, place...)
		if found.LastIndex >= int64(answer.RaftAppliedIndex) && found.CompleteUntil != "" {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("entry %d is not archived: %+v", answer.RaftAppliedIndex, found)
		}
	}
}
