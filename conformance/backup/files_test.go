package backup

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"cairn.dev/conformance/harness"
)

// TestRestore follows a member into a directory, is killed and goes on, and restores what the member had at some of its revisions and
// times.
func TestRestore(t *testing.T) {
	t.Parallel()
	member := harness.Start(t, harness.Cairn)
	s := newSource(t, member, harness.Seed(t))
	s.run(20)
	dir := "file://" + t.TempDir()
	to := []string{"--endpoints", member.Endpoint(), "--to", dir, "--every", "200ms"}
	from := []string{"--from", dir}
	f := follow(t, nil, to...)
	f.await("a base is at entry")
	begin := len(s.facts)
	for range 3 {
		s.run(40)
		// Whatever it was doing.
		f.stop(syscall.SIGKILL)
		s.run(5)
		f = follow(t, nil, to...)
	}
	s.run(20)
	awaitArchived(t, s, nil, from...)
	s.run(5)
	if code := f.stop(syscall.SIGTERM); code != 0 {
		t.Fatalf("it ends with %d: %s", code, f.log())
	}
	if found := statusOf(t, nil, from...); len(found.Gaps) > 0 || found.FirstRevision > s.facts[begin-1].revision {
		t.Fatalf("%+v", found)
	}
	// What it had at its end is there.
	check(t, nil, s.last(), nil, from...)
	for range harness.Number(t, "REVISIONS", 12) {
		want := s.facts[begin+s.random.IntN(len(s.facts)-begin)]
		check(t, nil, want, atRevision(want.revision), from...)
	}

	// A cluster on it.
	restored := harness.Prepare(t, harness.Cairn, filepath.Join(t.TempDir(), "data"))
	want := s.facts[begin+30]
	args := append([]string{"restore", "--data-dir", restored.DataDir, "--name", "default", "--initial-cluster", "default=" + restored.PeerURL(),
		"--initial-advertise-peer-urls", restored.PeerURL()}, append(atRevision(want.revision), from...)...)
	if result := cairn(t, nil, args...); result.Code != 0 {
		t.Fatalf("%+v", result)
	}
	restored.Run()
	hash, err := restored.Client().HashKV(harness.Context(t), restored.Endpoint(), want.revision)
	if err != nil || hash.Hash != want.hash {
		t.Fatalf("%v %v, the source had %+v", hash, err, want)
	}
	if _, err := restored.Client().Put(harness.Context(t), "new", "1"); err != nil {
		t.Fatal(err)
	}

	// What is not there is told of.
	for _, wrong := range []struct {
		args []string
		text string
	}{
		{atRevision(s.last().revision + 1), "it ends with entry"},
		{atRevision(1), "it begins with entry"},
		{[]string{"--to-time", "2020-01-01T00:00:00Z"}, "it begins with entry"},
		{[]string{"--to-time", "2099-01-01T00:00:00Z"}, "goes up to"},
		{[]string{"--to-time", "soon"}, "is no time"},
	} {
		file := filepath.Join(t.TempDir(), "none.db")
		result := cairn(t, nil, append(append([]string{"restore", "--to-snapshot", file}, wrong.args...), from...)...)
		if result.Code == 0 || !strings.Contains(result.Stderr, wrong.text) {
			t.Errorf("%v: %+v", wrong.args, result)
		}
		if left, _ := filepath.Glob(file + "*"); len(left) > 0 {
			t.Errorf("%v leaves %v", wrong.args, left)
		}
	}
}

// TestTimes restores what a member had at some time.
func TestTimes(t *testing.T) {
	t.Parallel()
	member := harness.Start(t, harness.Cairn)
	s := newSource(t, member, harness.Seed(t))
	s.run(5)
	dir := "file://" + t.TempDir()
	f := follow(t, nil, "--endpoints", member.Endpoint(), "--to", dir, "--every", "100ms")
	f.await("a base is at entry")
	var wanted []fact
	for range 3 {
		s.run(5)
		awaitArchived(t, s, nil, "--from", dir)
		// From here to the next change the state is this one, as the archive has been told.
		now := s.last()
		now.by = time.Now()
		time.Sleep(10 * time.Millisecond)
		wanted = append(wanted, now)
	}
	// The archive vouches for a time once two election timeouts have passed since.
	for deadline := time.Now().Add(3 * time.Minute); ; time.Sleep(200 * time.Millisecond) {
		s.run(1)
		awaitArchived(t, s, nil, "--from", dir)
		until, err := time.Parse(time.RFC3339, statusOf(t, nil, "--from", dir).CompleteUntil)
		if err != nil {
			t.Fatal(err)
		}
		if until.After(wanted[len(wanted)-1].by) {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("the archive is complete until %v only", until)
		}
	}
	f.stop(syscall.SIGTERM)
	for _, want := range wanted {
		check(t, nil, want, []string{"--to-time", want.by.UTC().Format("2006-01-02T15:04:05.000Z")}, "--from", dir)
	}
}

// TestUsers has root alone take a backup, and restores users.
func TestUsers(t *testing.T) {
	t.Parallel()
	member := harness.Start(t, harness.Cairn)
	client := member.Client()
	ctx := harness.Context(t)
	for _, name := range []string{"root", "ann"} {
		if _, err := client.UserAdd(ctx, name, "word"); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := client.UserGrantRole(ctx, "root", "root"); err != nil {
		t.Fatal(err)
	}
	if _, err := client.AuthEnable(ctx); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	once := func(user string) harness.Result {
		args := []string{"backup", "--once", "--endpoints", member.Endpoint(), "--to", "file://" + dir}
		if user != "" {
			args = append(args, "--user", user)
		}
		return cairn(t, nil, args...)
	}
	for user, text := range map[string]string{
		"":         "etcdserver: user name is empty",
		"ann:word": "etcdserver: permission denied",
		"root:bad": "etcdserver: authentication failed, invalid user ID or password",
	} {
		if result := once(user); result.Code == 0 || !strings.Contains(result.Stderr, text) {
			t.Errorf("%q: %+v", user, result)
		}
		if left, _ := os.ReadDir(dir); len(left) > 0 {
			t.Errorf("%q has left %v", user, left)
		}
	}
	if result := once("root:word"); result.Code != 0 {
		t.Fatalf("%+v", result)
	}
	asRoot, err := clientv3.New(clientv3.Config{Endpoints: []string{member.Endpoint()}, Username: "root", Password: "word"})
	if err != nil {
		t.Fatal(err)
	}
	defer asRoot.Close()
	if _, err := asRoot.UserDelete(ctx, "ann"); err != nil {
		t.Fatal(err)
	}
	if result := once("root:word"); result.Code != 0 {
		t.Fatalf("%+v", result)
	}
	// The newest state lacks the user; the base, one entry before, has it. No revision tells the two apart.
	for _, want := range []struct {
		index int64
		users int
	}{{statusOf(t, nil, "--from", "file://"+dir).FirstIndex, 2}, {statusOf(t, nil, "--from", "file://"+dir).LastIndex, 1}} {
		restored := harness.Prepare(t, harness.Cairn, filepath.Join(t.TempDir(), "data"))
		result := cairn(t, nil, "restore", "--from", "file://"+dir, "--data-dir", restored.DataDir, "--to-index", fmt.Sprint(want.index),
			"--initial-cluster", "default="+restored.PeerURL(), "--initial-advertise-peer-urls", restored.PeerURL())
		if result.Code != 0 {
			t.Fatalf("%+v", result)
		}
		restored.Run()
		again, err := clientv3.New(clientv3.Config{Endpoints: []string{restored.Endpoint()}, Username: "root", Password: "word"})
		if err != nil {
			t.Fatal(err)
		}
		users, err := again.UserList(ctx)
		if err != nil || len(users.Users) != want.users {
			t.Errorf("at entry %d: %v %v", want.index, users, err)
		}
		again.Close()
		restored.Kill()
	}
}

// TestMistakes has the tool refuse what it cannot do, with the reason.
func TestMistakes(t *testing.T) {
	t.Parallel()
	member, other := harness.Start(t, harness.Cairn), harness.Start(t, harness.Cairn)
	dir := "file://" + t.TempDir()
	at := func(member *harness.Server, args ...string) harness.Result {
		return cairn(t, nil, append([]string{"backup", "--once", "--endpoints", member.Endpoint()}, args...)...)
	}
	if result := at(member, "--to", dir); result.Code != 0 {
		t.Fatalf("%+v", result)
	}
	for _, wrong := range []struct {
		result harness.Result
		text   string
	}{
		{at(other, "--to", dir), "is the archive of cluster"},
		{at(member), "--to is missing"},
		{at(member, "--to", "ftp://there"), "is neither"},
		{at(member, "--to", "file://here"), "write file:///PATH"},
		{at(member, "--to", "s3://"), "names no bucket"},
		{cairn(t, nil, "backup", "status", "--from", "file:///nowhere"), "nowhere"},
		{cairn(t, nil, "backup", "prune", "--from", dir), "--keep is missing"},
		{cairn(t, nil, "restore", "--from", "file://"+t.TempDir(), "--data-dir", filepath.Join(t.TempDir(), "x")), "there is no archive"},
		{cairn(t, nil, "restore", "--from", dir, "--to-index", "1", "--to-revision", "1"), "only one of"},
		{cairn(t, nil, "backup", "--once", "--endpoints", "127.0.0.1:1", "--to", dir, "--command-timeout", "1s"), "127.0.0.1:1"},
	} {
		if wrong.result.Code == 0 || !strings.Contains(wrong.result.Stderr, wrong.text) {
			t.Errorf("%q is not told: %+v", wrong.text, wrong.result)
		}
	}
}

// TestMembersDie follows a cluster whose members die one after the other.
func TestMembersDie(t *testing.T) {
	t.Parallel()
	cluster := harness.StartCluster(t, harness.Cairn, 3, nil)
	var endpoints []string
	for _, member := range cluster.Members {
		endpoints = append(endpoints, member.Endpoint())
	}
	dir := "file://" + t.TempDir()
	f := follow(t, nil, "--endpoints", strings.Join(endpoints, ","), "--to", dir, "--every", "200ms", "--command-timeout", "2s")
	f.await("a base is at entry")
	client := cluster.Client()
	put := func(count int) {
		for number := range count {
			for tries := 0; ; tries++ {
				ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
				_, err := client.Put(ctx, fmt.Sprint("k", number%50), fmt.Sprint(number))
				cancel()
				if err == nil {
					break
				}
				if tries > 20 {
					t.Fatal(err)
				}
			}
		}
	}
	for number, member := range cluster.Members {
		put(200)
		member.Kill()
		put(200)
		member.Run()
		t.Logf("member %d died and came back", number)
	}
	put(50)
	s := newSource(t, cluster.Members[0], 1)
	s.run(1)
	awaitArchived(t, s, nil, "--from", dir)
	if code := f.stop(syscall.SIGTERM); code != 0 {
		t.Fatalf("it ends with %d: %s", code, f.log())
	}
	if found := statusOf(t, nil, "--from", dir); len(found.Gaps) > 0 || len(found.Bases) != 1 {
		t.Errorf("%+v: %s", found, f.log())
	}
	check(t, nil, s.last(), nil, "--from", dir)
}
