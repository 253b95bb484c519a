package observers

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"cairn.dev/conformance/harness"
)

// TestSetBack: a member whose directory was set back to an older copy, and that
// has gone on in another way since, is not followed. The observer keeps what it
// has and says why; with an empty directory it follows again.
func TestSetBack(t *testing.T) {
	t.Run("running", func(t *testing.T) { setBack(t, false) })
	// One that was stopped in good order has applied its whole log.
	t.Run("stopped", func(t *testing.T) { setBack(t, true) })
}

func setBack(t *testing.T, isStopped bool) {
	member := harness.Start(t, harness.Subject())
	ctx := harness.Context(t)
	put(t, member.Client(), "first", 50, "x")
	member.Stop()
	older := filepath.Join(t.TempDir(), "older")
	if err := os.CopyFS(older, os.DirFS(member.DataDir)); err != nil {
		t.Fatal(err)
	}
	member.Run()
	observer := start(t, "o", member)
	client := observer.Client()
	last := put(t, member.Client(), "gone", 100, "x")
	if answer, err := client.Get(ctx, "gone/00099"); err != nil || len(answer.Kvs) != 1 {
		t.Fatalf("%v %v", answer, err)
	}
	watched := client.Watch(ctx, "", clientv3.WithPrefix())
	if isStopped {
		observer.Stop()
	}
	member.Kill()
	if err := os.RemoveAll(member.DataDir); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(older, member.DataDir); err != nil {
		t.Fatal(err)
	}
	keeps := func() {
		t.Helper()
		answer, err := client.Get(ctx, "gone", clientv3.WithPrefix(), clientv3.WithSerializable())
		if err != nil || len(answer.Kvs) != 100 || answer.Header.Revision != last {
			t.Errorf("what the observer has has changed: %v", err)
		}
		if answer, err := client.Get(briefly(t), "first/00000"); err == nil {
			t.Errorf("a linearizable read is answered: %v", answer)
		}
	}
	// Behind the observer at first, then ahead of it with other entries.
	member.Run()
	if isStopped {
		observer.Launch()
	}
	observer.AwaitLog(t, "and this observer at entry")
	keeps()
	put(t, member.Client(), "other", 300, "y")
	observer.AwaitLog(t, "has another history: one of the two was set back to older data")
	keeps()
	if status, text := page(t, observer, "/readyz"); status == 200 || !strings.Contains(text, "observer_source") {
		t.Errorf("it is ready: %d %s", status, text)
	}
	if count := metric(t, observer, "cairn_observer_histories_refused_total"); count == 0 {
		t.Error("no refusal is counted")
	}
	// Nothing of the other history gets in.
	select {
	case answer := <-watched:
		for _, event := range answer.Events {
			t.Errorf("a watch shows %v", event)
		}
	default:
	}
	// The member serves on.
	put(t, member.Client(), "other", 10, "z")
	observer.Stop()
	if err := os.RemoveAll(observer.DataDir); err != nil {
		t.Fatal(err)
	}
	observer.Run()
	hashes(t, member, observer)
}

// metric is a number of a server's page.
func metric(t testing.TB, server *harness.Server, name string) int {
	t.Helper()
	_, text := page(t, server, "/metrics")
	for line := range strings.Lines(text) {
		if number, ok := strings.CutPrefix(strings.TrimSpace(line), name+" "); ok {
			value, err := strconv.Atoi(number)
			if err != nil {
				t.Fatal(err)
			}
			return value
		}
	}
	t.Fatalf("no %s", name)
	return 0
}

// TestDiskFull: an observer whose disk is full ends and says why. Members go
// on without an alarm, and once there is room the observer does.
func TestDiskFull(t *testing.T) {
	disk := t.TempDir()
	if err := syscall.Mount("tmpfs", disk, "tmpfs", 0, "size=96m"); err != nil {
		harness.Unproved(t, "a tmpfs needs root: "+err.Error())
	}
	t.Cleanup(func() { syscall.Unmount(disk, syscall.MNT_DETACH) })
	member := harness.Start(t, harness.Subject())
	ctx := harness.Context(t)
	observer := harness.Prepare(t, harness.Subject(), filepath.Join(disk, "data"))
	observer.Name, observer.Discovered = "o", true
	follow(observer, member)
	observer.Run()
	other := start(t, "other", member)
	client := member.Client()
	hashes(t, member, observer, other)
	// As much as members have room for, and the observer has not.
	value := strings.Repeat("0123456789abcdef", 4_000)
	filled := 0
	fill := func() {
		put(t, client, "fill/"+strconv.Itoa(filled), 100, value)
		filled++
	}
	own := observer.Client()
	for observer.Running() {
		if filled == 40 {
			t.Fatalf("more than 240 MB, and the observer still runs\n%s", observer.LogTail())
		}
		fill()
		// One that comes late would be sent a snapshot.
		until(t, "an observer that is level or ends", func() bool {
			answer, err := own.Get(briefly(t), fmt.Sprintf("fill/%d/%05d", filled-1, 99), clientv3.WithKeysOnly())
			return !observer.Running() || err == nil && len(answer.Kvs) == 1
		})
	}
	code, err := observer.Wait(0)
	if err != nil || code == 0 {
		t.Errorf("exit code %d, %v", code, err)
	}
	saysWhy := func(log string) {
		t.Helper()
		// The log, the store or a checkpoint: what is the first that finds no room.
		for line := range strings.Lines(log) {
			if strings.Contains(line, "this member stops") && strings.Contains(line, "No space left on device") {
				return
			}
		}
		t.Errorf("the log does not say why:\n%s", log)
	}
	saysWhy(observer.LogTail())
	put(t, client, "after", 10, "x")
	if alarms, err := client.AlarmList(ctx); err != nil || len(alarms.Alarms) != 0 {
		t.Errorf("alarms: %v, %v", alarms, err)
	}
	hashes(t, member, other)
	// Started before there is room it says so again. It needs no log of what its
	// store has by then, so only values that are more than the disk are certain
	// not to fit. If the member has no log of them any more, they would come as a
	// snapshot, which is refused: the observer keeps what it has and asks again.
	for filled < 20 {
		fill()
	}
	seen := observer.Launch()
	refused := func() bool {
		return strings.Contains(observer.Log()[seen:], "the received snapshot needs")
	}
	until(t, "an observer without room that ends or refuses a snapshot", func() bool { return !observer.Running() || refused() })
	if observer.Running() {
		observer.Stop()
	} else {
		if code, err := observer.Wait(0); err != nil || code == 0 {
			t.Errorf("exit code %d, %v", code, err)
		}
		saysWhy(observer.Log()[seen:])
	}
	put(t, client, "again", 10, "x")
	if err := syscall.Mount("tmpfs", disk, "tmpfs", syscall.MS_REMOUNT, "size=1g"); err != nil {
		t.Fatal(err)
	}
	observer.Run()
	hashes(t, member, observer, other)
}
