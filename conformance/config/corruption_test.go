package config

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"cairn.dev/conformance/harness"
)

const value = "a value that is not what it was"

// leaderOf is the member that leads.
func leaderOf(t *testing.T, cluster *harness.Cluster) *harness.Server {
	t.Helper()
	for deadline := time.Now().Add(endMax); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		for _, member := range cluster.Members {
			if !member.Running() {
				continue
			}
			status, err := member.Client().Status(harness.Context(t), member.Endpoint())
			if err == nil && status.Leader == status.Header.MemberId {
				return member
			}
		}
	}
	t.Fatal("no leader")
	return nil
}

// damaged is a cluster with one member, a follower, whose stopped data was
// changed behind all checksums.
func damaged(t *testing.T, flags ...string) (*harness.Cluster, *harness.Server) {
	t.Helper()
	if harness.Subject() == harness.Etcd {
		t.Skip("changes Cairn's files")
	}
	cluster := harness.StartCluster(t, harness.Subject(), 3, nil, append(flags, "--snapshot-count=10")...)
	leader := leaderOf(t, cluster)
	leader.MustCtl("put", "key", value)
	for number := range 40 {
		leader.MustCtl("put", fmt.Sprintf("other%d", number), "x")
	}
	victim := cluster.Members[0]
	if victim == leader {
		victim = cluster.Members[1]
	}
	// It has all of them: a follower may be behind.
	victim.MustCtl("get", "other39")
	victim.Stop()
	if err := damage(victim.DataDir, value); err != nil {
		t.Fatal(err)
	}
	return cluster, victim
}

// awaitAlarm waits for the alarm of this member, and no other.
func awaitAlarm(t *testing.T, cluster *harness.Cluster, victim *harness.Server) {
	t.Helper()
	leader := leaderOf(t, cluster)
	var id string
	for _, line := range strings.Split(leader.MustCtl("member", "list"), "\n") {
		if strings.Contains(line, ", "+victim.Name+", ") {
			id = strings.SplitN(line, ",", 2)[0]
		}
	}
	var number uint64
	if _, err := fmt.Sscanf(id, "%x", &number); err != nil {
		t.Fatal(err)
	}
	want := fmt.Sprintf("memberID:%d alarm:CORRUPT", number)
	for deadline := time.Now().Add(2 * time.Minute); ; time.Sleep(100 * time.Millisecond) {
		alarms := strings.Join(strings.Fields(leader.MustCtl("alarm", "list")), " ")
		if alarms == want {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("alarms %q, want %q\n%s", alarms, want, leader.LogTail())
		}
	}
	for _, command := range [][]string{{"put", "a", "b"}, {"del", "a"}, {"lease", "grant", "10"}, {"compaction", "20"}} {
		if result := leader.Ctl(command...); result.Code == 0 || !strings.Contains(result.Stderr, "corrupt cluster") {
			t.Errorf("%v: exit %d, %q", command, result.Code, result.Stderr)
		}
	}
	if got := leader.MustCtl("get", "key"); !strings.Contains(got, value) {
		t.Errorf("the leader reads %q", got)
	}
}

func TestPeriodicCheck(t *testing.T) {
	cluster, victim := damaged(t, "--corrupt-check-time=1s")
	victim.Run()
	awaitAlarm(t, cluster, victim)
	// Said after the alarm.
	leaderOf(t, cluster).AwaitLog(t, "finished peer corruption check")
}

func TestCompactionCheck(t *testing.T) {
	cluster, victim := damaged(t, "--feature-gates=CompactHashCheck=true", "--compact-hash-check-time=1s")
	victim.Run()
	leaderOf(t, cluster).MustCtl("compaction", "30")
	awaitAlarm(t, cluster, victim)
	leader := leaderOf(t, cluster)
	for _, line := range []string{"finished scheduled compaction", "finished compaction hash check"} {
		leader.AwaitLog(t, line)
	}
}

func TestInitialCheck(t *testing.T) {
	_, victim := damaged(t, "--feature-gates=InitialCorruptCheck=true")
	if err := victim.TryRun(endMax); err == nil {
		t.Fatal("a member with other data than its peers serves")
	}
	if !strings.Contains(victim.Log(), "found data inconsistency with peers") {
		t.Error(victim.LogTail())
	}
}

// A sound cluster passes every check, and every check is made.
func TestSoundCluster(t *testing.T) {
	cluster := harness.StartCluster(t, harness.Subject(), 3, nil, "--corrupt-check-time=500ms",
		"--feature-gates=CompactHashCheck=true,InitialCorruptCheck=true", "--compact-hash-check-time=500ms")
	leader := leaderOf(t, cluster)
	for number := range 30 {
		leader.MustCtl("put", fmt.Sprintf("k%d", number%5), "x")
	}
	leader.MustCtl("compaction", "15")
	cluster.Members[0].Stop()
	cluster.Members[0].Run()
	if log := cluster.Members[0].Log(); !strings.Contains(log, "initial corruption checking passed") {
		t.Error("the restarted member does not tell of its check")
	}
	// The checks from now on have all members to ask, and a compaction to compare.
	leader = leaderOf(t, cluster)
	before := len(leader.Log())
	leader.MustCtl("compaction", "20")
	for _, line := range []string{
		`finished peer corruption check.*"number-of-peers-checked": ?2`,
		`finished compaction hash check.*"number-of-hashes-checked": ?1`,
	} {
		wanted := regexp.MustCompile(line)
		for deadline := time.Now().Add(endMax); !wanted.MatchString(leader.Log()[before:]); time.Sleep(50 * time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("the leader's log has no line like %s", line)
			}
		}
	}
	if alarms := strings.TrimSpace(leaderOf(t, cluster).MustCtl("alarm", "list")); alarms != "" {
		t.Errorf("alarms: %s", alarms)
	}
}
