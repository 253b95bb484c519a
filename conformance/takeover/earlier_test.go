package takeover

import (
	"encoding/json"
	"os"
	"strings"
	"testing"
	"time"

	"cairn.dev/conformance/harness"
	clientv3 "go.etcd.io/etcd/client/v3"
)

const (
	earlier = "3.6.0"
	current = "3.7.0"
)

// needEarlier skips a test without EARLIER=1: the server of the release before
// takes minutes to build.
func needEarlier(t *testing.T) {
	t.Helper()
	if os.Getenv("EARLIER") == "" {
		t.Skip("EARLIER=1 builds etcd 3.6 and runs this")
	}
}

// Members of etcd 3.6 become Cairn's where they are, and 3.6 again: on the way,
// and when all of them were moved, which raises the cluster's version, so that
// the way back begins with a downgrade.
func TestEarlierInPlace(t *testing.T) {
	needEarlier(t)
	t.Parallel()
	s := newStage(t, harness.Etcd36, trimming...)
	for range harness.Number(t, "ROUNDS", 1) {
		crowd := gather(s)
		done := s.run(func(printed string) os.Signal {
			if strings.Count(printed, " have HashKV ") == 2 {
				return os.Interrupt
			}
			return nil
		}, hooked(t)...)
		t.Logf("exit %d:\n%s", done.code, done.out)
		sameHistory(s)
		s.move("--back")
		s.only(harness.Etcd36, 3)

		s.move()
		s.only(harness.Cairn, 3)
		s.awaitVersion(current)
		s.lower()
		t.Log(s.move("--back"))
		s.only(harness.Etcd36, 3)
		s.awaitEnd()
		crowd.finish(s)
	}
}

// The same with new members at other addresses, which get snapshots. None of 3.6
// can join while a downgrade is under way; some can beside one that runs.
func TestEarlierNewAddresses(t *testing.T) {
	needEarlier(t)
	t.Parallel()
	s := newStage(t, harness.Etcd36, trimming...)
	old := []string{"m0", "m1", "m2"}
	for round := range harness.Number(t, "ROUNDS", 1) {
		crowd := gather(s)
		s.toCairnElsewhere(&old, round, func(args ...string) { s.move(args...) })
		s.lower()
		_, args := s.elsewhere(harness.Etcd36, round, 3)
		if done := s.run(nil, hooked(t, args...)...); done.code != 1 || !strings.Contains(done.out, "no new member of that release can join") {
			t.Errorf("exit %d:\n%s", done.code, done.out)
		}
		s.backElsewhere(&old, round, func(args ...string) { s.move(args...) })
		crowd.finish(s)
	}
}

// replaced has new members take the places of old ones: move runs the tool.
func (s *stage) replaced(old *[]string, to harness.Kind, round int, move func(args ...string)) {
	s.t.Helper()
	names, args := s.elsewhere(to, round, len(*old))
	move(args...)
	for _, name := range *old {
		s.drop(name)
	}
	s.only(to, 3)
	*old = names
}

// toCairnElsewhere moves a cluster of 3.6 to new members of Cairn.
func (s *stage) toCairnElsewhere(old *[]string, round int, move func(args ...string)) {
	s.t.Helper()
	s.replaced(old, harness.Cairn, round, move)
	// While all others run 3.6, one of them sends the image.
	s.running[(*old)[0]].AwaitLog(s.t, "installed the database of an etcd member")
	s.awaitVersion(current)
}

// backElsewhere moves it back while a downgrade is under way: none of 3.6 can join
// then, but some can beside one that runs.
func (s *stage) backElsewhere(old *[]string, round int, move func(args ...string)) {
	s.t.Helper()
	first := (*old)[0]
	s.become(first, harness.Etcd36)
	own := s.client(s.endpoints()...)
	defer own.Close()
	if _, err := own.Downgrade(harness.Context(s.t), clientv3.DowngradeCancel, ""); err != nil {
		s.t.Fatal(err)
	}
	s.awaitEnd()
	rest := (*old)[1:]
	s.replaced(&rest, harness.Etcd36, round, move)
	s.awaitVersion(earlier)
	*old = append(rest, first)
}

// A downgrade is carried out while both kinds are in the cluster, and taken back.
func TestDowngrade(t *testing.T) {
	needEarlier(t)
	t.Parallel()
	s := newStage(t, harness.Etcd, trimming...)
	for range harness.Number(t, "ROUNDS", 1) {
		crowd := gather(s)
		s.become("m0", harness.Cairn)
		s.lower()
		s.become("m1", harness.Etcd36)
		s.become("m2", harness.Etcd36)
		// Now it is complete, and the leader says so.
		s.become("m0", harness.Etcd36)
		s.awaitEnd()
		s.become("m0", harness.Cairn)
		s.become("m1", harness.Etcd)
		s.become("m2", harness.Etcd)
		s.awaitVersion(current)
		s.become("m0", harness.Etcd)
		crowd.finish(s)
	}
}

// become restarts a member as another kind, and compares all members.
func (s *stage) become(name string, to harness.Kind) {
	s.t.Helper()
	old := s.running[name]
	old.Stop()
	next, err := s.successor(old, to)
	if err == nil {
		err = s.replace(old, next)
	}
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Logf("%s runs %s", name, to)
	sameHistory(s)
}

// lower begins a downgrade to the release before, and waits until all members
// have the cluster's version of it.
func (s *stage) lower() {
	s.t.Helper()
	own := s.client(s.endpoints()...)
	defer own.Close()
	if _, err := own.Downgrade(harness.Context(s.t), clientv3.DowngradeEnable, earlier); err != nil {
		s.t.Fatal(err)
	}
	s.awaitVersion(earlier)
}

// awaitVersion waits until all members have this version of the cluster, and of
// their storage.
func (s *stage) awaitVersion(wanted string) {
	s.t.Helper()
	for _, member := range s.members() {
		s.await(member.Name+" has version "+wanted, func() bool {
			var versions struct{ Etcdcluster, Storage string }
			response, err := s.browser().Get(member.URL("/version"))
			if err != nil {
				return false
			}
			defer response.Body.Close()
			err = json.NewDecoder(response.Body).Decode(&versions)
			return err == nil && versions.Etcdcluster == wanted && versions.Storage == wanted
		})
	}
}

// awaitEnd waits until no member knows of a downgrade.
func (s *stage) awaitEnd() {
	s.t.Helper()
	for _, member := range s.members() {
		own := s.direct(member)
		defer own.Close()
		s.await(member.Name+" knows of no downgrade", func() bool {
			status, err := own.Status(harness.Context(s.t), member.Endpoint())
			return err == nil && !status.DowngradeInfo.GetEnabled()
		})
	}
}

func (s *stage) await(what string, is func() bool) {
	s.t.Helper()
	for deadline := time.Now().Add(startMax); !is(); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(deadline) {
			s.t.Fatalf("waited in vain: %s", what)
		}
	}
}
