package utl

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"cairn.dev/conformance/harness"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// stage is a moment of a member: a whole snapshot of it, what leads to it from
// the first one, and what the member said of its history.
type stage struct {
	whole string
	chain []string
	hash  *clientv3.HashKVResponse
}

// saveSince has our tool save an increment.
func saveSince(t *testing.T, server *harness.Server, file, since string, flags ...string) harness.Result {
	t.Helper()
	args := []string{"ctl", "--endpoints", server.Endpoint(), "snapshot", "save", file, "--since", since}
	return harness.Command{Path: harness.CairnBinary(t), Args: append(args, flags...)}.Run(t)
}

// stages saves a whole snapshot and increments, with changes of every kind
// between them; the history is compacted in some, before and behind what the
// increment follows.
func stages(t *testing.T, server *harness.Server) []stage {
	t.Helper()
	ctx, client, dir := harness.Context(t), server.Client(), t.TempDir()
	must := func(_ any, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	var found []stage
	save := func() {
		t.Helper()
		number := len(found)
		next := stage{whole: filepath.Join(dir, fmt.Sprintf("whole%d.db", number))}
		server.MustCtl("snapshot", "save", next.whole)
		if number == 0 {
			next.chain = []string{next.whole}
		} else {
			before := found[number-1].chain
			increment := filepath.Join(dir, fmt.Sprintf("increment%d", number))
			if result := saveSince(t, server, increment, before[len(before)-1]); result.Code != 0 {
				t.Fatalf("%+v", result)
			}
			next.chain = append(append([]string{}, before...), increment)
		}
		hash, err := client.HashKV(ctx, server.Endpoint(), 0)
		must(nil, err)
		next.hash = hash
		found = append(found, next)
	}
	put := func(from, to int, value string) {
		t.Helper()
		for i := from; i < to; i++ {
			must(client.Put(ctx, fmt.Sprintf("key/%04d", i), value))
		}
	}

	write(t, client, 1)
	put(0, 200, "first")
	lease, err := client.Grant(ctx, 5000)
	must(nil, err)
	gone, err := client.Grant(ctx, 5000)
	must(nil, err)
	must(client.Put(ctx, "leased", "1", clientv3.WithLease(lease.ID)))
	must(client.Put(ctx, "leased too", "1", clientv3.WithLease(gone.ID)))
	save()

	// Changes of everything, nothing compacted.
	put(100, 150, "second")
	must(client.Delete(ctx, "key/0007"))
	must(client.Revoke(ctx, gone.ID))
	must(client.UserDelete(ctx, "ann"))
	must(client.UserAdd(ctx, "bob", "word"))
	must(client.RoleAdd(ctx, "writes"))
	must(client.RoleGrantPermission(ctx, "writes", "a", "b", clientv3.PermissionType(clientv3.PermWrite)))
	must(client.Txn(ctx).Then(clientv3.OpPut("one", "1"), clientv3.OpDelete("key/0008"), clientv3.OpPut("two", "2")).Commit())
	save()

	// Compacted to a revision before the increment, and deletions from before
	// that are gone.
	base := last(t, client)
	put(150, 180, "third")
	must(client.Compact(ctx, base-20, clientv3.WithCompactPhysical()))
	save()

	// Compacted beyond what the increment follows: keys that it has are deleted
	// and nothing is left of that.
	must(client.Delete(ctx, "key/", clientv3.WithRange("key/0050")))
	put(40, 60, "fourth")
	must(client.Delete(ctx, "key/0055"))
	must(client.Compact(ctx, last(t, client), clientv3.WithCompactPhysical()))
	put(300, 310, "fifth")
	save()

	// The last change is a deletion that stays: the history is compacted to it.
	must(client.Delete(ctx, "key/0056"))
	must(client.Compact(ctx, last(t, client), clientv3.WithCompactPhysical()))
	save()

	// Nothing but a user.
	must(client.UserAdd(ctx, "cid", "word"))
	save()

	// Nothing at all.
	save()
	return found
}

// content reads a file.
func content(t testing.TB, file string) []byte {
	t.Helper()
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return content
}

// A snapshot and its increments are what a whole snapshot of the same moment
// is, byte for byte; both tools restore it, and a member on it has the same
// history.
func TestIncrements(t *testing.T) {
	if harness.Subject() == harness.Etcd {
		t.Skip("about Cairn only")
	}
	server := harness.Start(t, harness.Cairn)
	found := stages(t, server)
	for number, stage := range found {
		name := fmt.Sprintf("stage %d", number)
		if status, whole := run(t, append([]string{"snapshot", "status"}, stage.chain...)...), run(t, "snapshot", "status", stage.whole); number > 0 {
			// All but the size.
			a, b := strings.Split(status, ", "), strings.Split(whole, ", ")
			if len(a) != 5 || len(b) != 5 || a[0] != b[0] || a[1] != b[1] || a[2] != b[2] || a[4] != b[4] {
				t.Errorf("%s: status %s, of a whole snapshot %s", name, status, whole)
			}
		}
		merged := stage.whole
		if number > 0 {
			merged = filepath.Join(t.TempDir(), "merged.db")
			run(t, append([]string{"snapshot", "merge", "--to", merged}, stage.chain...)...)
			if !bytes.Equal(content(t, merged), content(t, stage.whole)) {
				t.Errorf("%s: the merged file is not the whole snapshot", name)
				equalSnapshots(t, merged, stage.whole)
			}
			info, err := os.Stat(merged)
			if err != nil || info.Mode().Perm() != 0o600 {
				t.Errorf("%s: %v %v", name, info.Mode(), err)
			}
			if left, _ := filepath.Glob(merged + ".*"); len(left) > 0 {
				t.Errorf("%s: left behind: %v", name, left)
			}
			increment := stage.chain[number]
			t.Logf("%s: an increment of %d bytes, a whole snapshot of %d", name, len(content(t, increment)), len(content(t, stage.whole)))
		}
		for kind, tool := range map[harness.Kind]string{harness.Etcd: harness.Tool(t, "etcdutl"), harness.Cairn: ours(t)} {
			restored := harness.Prepare(t, kind, filepath.Join(t.TempDir(), "data"))
			files := []string{merged}
			if kind == harness.Cairn {
				files = stage.chain
			}
			args := append([]string{"snapshot", "restore", "--data-dir", restored.DataDir, "--name", "default",
				"--initial-cluster", "default=" + restored.PeerURL(), "--initial-advertise-peer-urls", restored.PeerURL()}, files...)
			if result := (harness.Command{Path: tool, Args: args}).Run(t); result.Code != 0 {
				t.Fatalf("%s: %s", name, result.Stderr)
			}
			restored.Run()
			hash, err := restored.Client().HashKV(harness.Context(t), restored.Endpoint(), 0)
			if err != nil || hash.Hash != stage.hash.Hash || hash.CompactRevision != stage.hash.CompactRevision || hash.HashRevision != stage.hash.HashRevision {
				t.Errorf("%s on %s: %v %v, the source had %v", name, kind, hash, err, stage.hash)
			}
			equalSides(t, server, restored, number == len(found)-1)
			restored.Stop()
		}
	}
}

// equalSides compares leases, users and roles of a member with those that the
// source has now.
func equalSides(t *testing.T, source, restored *harness.Server, isLast bool) {
	t.Helper()
	if !isLast {
		return
	}
	for _, words := range [][]string{{"user", "list"}, {"role", "list"}, {"role", "get", "writes"}, {"lease", "list"}, {"alarm", "list"}} {
		// Leases are listed in any order.
		if a, b := sorted(source.MustCtl(words...)), sorted(restored.MustCtl(words...)); a != b {
			t.Errorf("%v: %q, the source has %q", words, b, a)
		}
	}
	if result := restored.Ctl("put", "new", "1"); result.Code != 0 {
		t.Errorf("%+v", result)
	}
}

func sorted(text string) string {
	lines := strings.Split(text, "\n")
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

// What does not follow is refused, and nothing is made.
func TestIncrementsRefused(t *testing.T) {
	if harness.Subject() == harness.Etcd {
		t.Skip("about Cairn only")
	}
	server := harness.Start(t, harness.Cairn)
	found := stages(t, server)
	chain := found[len(found)-1].chain
	other := harness.Start(t, harness.Cairn)
	elsewhere := stages(t, other)
	foreign := elsewhere[len(elsewhere)-1].chain
	spoiled := func(file string, change func([]byte) []byte) string {
		path := filepath.Join(t.TempDir(), filepath.Base(file))
		if err := os.WriteFile(path, change(content(t, file)), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	flipped := func(at int) func([]byte) []byte {
		return func(content []byte) []byte {
			content[(at+len(content))%len(content)] ^= 1
			return content
		}
	}
	with := func(number int, file string) []string {
		files := append([]string{}, chain[:number]...)
		return append(append(files, file), chain[number+1:]...)
	}
	cut := func(content []byte) []byte { return content[:len(content)-512] }
	for name, c := range map[string]struct {
		files []string
		want  string
	}{
		"a gap":                {append(append([]string{}, chain[:1]...), chain[2:]...), "without a gap"},
		"the wrong order":      {[]string{chain[0], chain[2], chain[1]}, "in the order in which they were saved"},
		"twice the same":       {[]string{chain[0], chain[1], chain[1]}, "in the order in which they were saved"},
		"no base":              {chain[1:], "name the snapshot that it follows"},
		"a torn one":           {with(3, spoiled(chain[3], cut)), "sha256"},
		"torn in the head":     {with(3, spoiled(chain[3], func(content []byte) []byte { return content[:100] })), "it is cut off"},
		"a flipped head":       {with(2, spoiled(chain[2], flipped(100))), "its head is damaged"},
		"a flipped page":       {with(2, spoiled(chain[2], flipped(3*4096))), "sha256"},
		"a flipped sum":        {with(2, spoiled(chain[2], flipped(-1))), "sha256"},
		"a flipped base":       {with(0, spoiled(chain[0], flipped(3*4096))), "sha256"},
		"a flipped base's sum": {with(0, spoiled(chain[0], flipped(-1))), filepath.Base(chain[0]) + "`: expected sha256"},
		"a base without one":   {with(0, spoiled(chain[0], func(content []byte) []byte { return content[:len(content)-32] })), filepath.Base(chain[0]) + "`: it has no checksum (sha256)"},
		"another's base":       {append([]string{foreign[0]}, chain[1:]...), "does not follow"},
		"another's last":       {with(len(chain)-1, foreign[len(chain)-1]), "cluster"},
		"no increment":         {[]string{chain[0], chain[0]}, "is no increment"},
		"none of that name":    {[]string{chain[0], "/nowhere"}, "/nowhere"},
		"one alone":            {[]string{chain[1]}, "name the snapshot that it follows"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "data")
			if text := refused(t, append([]string{"snapshot", "restore", "--data-dir", dir}, c.files...)...); !strings.Contains(text, c.want) {
				t.Errorf("restore: %s", text)
			}
			absent(t, dir)
			if len(c.files) > 1 {
				if text := refused(t, append([]string{"snapshot", "status"}, c.files...)...); !strings.Contains(text, c.want) {
					t.Errorf("status: %s", text)
				}
				file := filepath.Join(t.TempDir(), "merged.db")
				if text := refused(t, append([]string{"snapshot", "merge", "--to", file}, c.files...)...); !strings.Contains(text, c.want) {
					t.Errorf("merge: %s", text)
				}
				if left, _ := filepath.Glob(file + "*"); len(left) > 0 {
					t.Errorf("left behind: %v", left)
				}
			}
		})
	}
	// The genuine tool takes none for a snapshot.
	dir := filepath.Join(t.TempDir(), "data")
	copied := spoiled(chain[1], func(content []byte) []byte { return content })
	if result := (harness.Command{Path: harness.Tool(t, "etcdutl"), Args: []string{"snapshot", "restore", copied, "--data-dir", dir}}).Run(t); result.Code == 0 {
		t.Error("the genuine tool restores an increment")
	}

	// A member has to have what the file has.
	notSaved := func(server *harness.Server, since, want string) {
		t.Helper()
		file := filepath.Join(t.TempDir(), "next")
		result := saveSince(t, server, file, since)
		if result.Code == 0 || !strings.Contains(result.Stderr, want) {
			t.Errorf("%+v", result)
		}
		if left, _ := filepath.Glob(file + "*"); len(left) > 0 {
			t.Errorf("left behind: %v", left)
		}
	}
	server.MustCtl("put", "more", "1")
	notSaved(server, foreign[0], "does not have what")
	notSaved(server, foreign[len(foreign)-1], "cluster")
	notSaved(server, spoiled(chain[0], flipped(3*4096)), "sha256")
	notSaved(server, spoiled(chain[1], flipped(3*4096)), "sha256")
	notSaved(server, "/nowhere", "/nowhere")
	empty := harness.Start(t, harness.Cairn)
	notSaved(empty, chain[0], "this member is at revision")
	// No file of a chain is replaced or removed.
	before := map[string][]byte{}
	for _, file := range chain {
		before[file] = content(t, file)
	}
	part := filepath.Join(t.TempDir(), "base.part")
	if err := os.WriteFile(part, before[chain[0]], 0o600); err != nil {
		t.Fatal(err)
	}
	before[part] = before[chain[0]]
	unfinished := strings.TrimSuffix(part, ".part")
	dangling := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink("nowhere", dangling); err != nil {
		t.Fatal(err)
	}
	for target, since := range map[string]string{chain[0]: chain[2], chain[1]: chain[1], chain[2]: chain[1], unfinished: part, dangling: chain[1]} {
		if result := saveSince(t, server, target, since); result.Code != 5 || !strings.Contains(result.Stderr, "name another") {
			t.Errorf("%s since %s: %+v", target, since, result)
		}
	}
	for target, files := range map[string][]string{chain[0]: chain, chain[1]: chain, chain[3]: chain[:2], unfinished: append([]string{part}, chain[1:]...), dangling: chain} {
		if text := refused(t, append([]string{"snapshot", "merge", "--to", target}, files...)...); !strings.Contains(text, "name another") {
			t.Errorf("merge to %s: %s", target, text)
		}
	}
	for file, want := range before {
		if !bytes.Equal(content(t, file), want) {
			t.Errorf("%s is another file now", file)
		}
	}
	// Another history of the same name: a cluster restored from the first
	// snapshot, with changes of its own.
	restored := harness.Prepare(t, harness.Cairn, filepath.Join(t.TempDir(), "data"))
	run(t, "snapshot", "restore", chain[0], "--data-dir", restored.DataDir, "--name", "default",
		"--initial-cluster", "default="+restored.PeerURL(), "--initial-advertise-peer-urls", restored.PeerURL())
	restored.Run()
	for i := range 400 {
		restored.MustCtl("put", fmt.Sprint("own", i), "1")
	}
	next := filepath.Join(t.TempDir(), "next")
	if result := saveSince(t, restored, next, chain[0]); result.Code != 0 {
		t.Errorf("%+v", result)
	}
	notSaved(restored, found[1].whole, "does not have what")
	// etcd does not know of it.
	genuine := harness.Start(t, harness.Etcd)
	whole := filepath.Join(t.TempDir(), "whole.db")
	genuine.MustCtl("snapshot", "save", whole)
	if result := saveSince(t, genuine, next+"2", whole); result.Code == 0 || !strings.Contains(result.Stderr, "does not know increments") {
		t.Errorf("of etcd: %+v", result)
	}
	if left, _ := filepath.Glob(next + "2*"); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

// Only root gets an increment, as it is with whole snapshots.
func TestIncrementsOfUsers(t *testing.T) {
	if harness.Subject() == harness.Etcd {
		t.Skip("about Cairn only")
	}
	server := harness.Start(t, harness.Cairn)
	write(t, server.Client(), 1)
	base := filepath.Join(t.TempDir(), "base.db")
	server.MustCtl("snapshot", "save", base)
	server.MustCtl("auth", "enable")
	next := filepath.Join(t.TempDir(), "next")
	for user, want := range map[string]string{"": "user name is empty", "ann:word": "permission denied"} {
		var flags []string
		if user != "" {
			flags = []string{"--user", user}
		}
		if result := saveSince(t, server, next, base, flags...); result.Code == 0 || !strings.Contains(result.Stderr, want) {
			t.Errorf("%q: %+v", user, result)
		}
	}
	if left, _ := filepath.Glob(next + "*"); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
	if result := saveSince(t, server, next, base, "--user", "root:secret"); result.Code != 0 {
		t.Fatalf("%+v", result)
	}
	if text := run(t, "snapshot", "status", base, next); text == "" {
		t.Error("no status")
	}
}

// The first file may be of etcd: its cluster has moved to Cairn since, with its
// history.
func TestIncrementsOfMoved(t *testing.T) {
	if harness.Subject() == harness.Etcd {
		t.Skip("about Cairn only")
	}
	server := harness.Start(t, harness.Etcd)
	write(t, server.Client(), 3)
	settle(t, server)
	base := filepath.Join(t.TempDir(), "base.db")
	server.MustCtl("snapshot", "save", base)
	server.Stop()
	moved := takeOver(t, server)
	moved.Run()
	ctx, client := harness.Context(t), moved.Client()
	files := []string{base}
	for number := range 2 {
		for i := range 30 {
			if _, err := client.Put(ctx, fmt.Sprintf("key/%03d", i), "moved"); err != nil {
				t.Fatal(err)
			}
		}
		next := filepath.Join(t.TempDir(), fmt.Sprint("increment", number))
		if result := saveSince(t, moved, next, files[number]); result.Code != 0 {
			t.Fatalf("%+v", result)
		}
		files = append(files, next)
		whole, merged := filepath.Join(t.TempDir(), "whole.db"), filepath.Join(t.TempDir(), "merged.db")
		moved.MustCtl("snapshot", "save", whole)
		run(t, append([]string{"snapshot", "merge", "--to", merged}, files...)...)
		if !bytes.Equal(content(t, merged), content(t, whole)) {
			t.Error("the merged file is not the whole snapshot")
			equalSnapshots(t, merged, whole)
		}
		if _, err := client.Compact(ctx, last(t, client)-5, clientv3.WithCompactPhysical()); err != nil {
			t.Fatal(err)
		}
	}
}

// Members of a cluster have the same history: an increment of one follows the
// file of another, whatever either has rewritten.
func TestIncrementsOfAnyMember(t *testing.T) {
	if harness.Subject() == harness.Etcd {
		t.Skip("about Cairn only")
	}
	cluster := harness.StartCluster(t, harness.Cairn, 3, nil)
	ctx, client := harness.Context(t), cluster.Client()
	// A linearizable read: the member has all that was written.
	caughtUp := func(member *harness.Server) { member.MustCtl("get", "x") }
	write(t, client, 4)
	files := []string{filepath.Join(t.TempDir(), "base.db")}
	caughtUp(cluster.Members[0])
	cluster.Members[0].MustCtl("snapshot", "save", files[0])
	for number, member := range []*harness.Server{cluster.Members[1], cluster.Members[2], cluster.Members[0]} {
		for i := range 40 {
			if _, err := client.Put(ctx, fmt.Sprintf("key/%03d", i+number*20), "later"); err != nil {
				t.Fatal(err)
			}
		}
		if number == 1 {
			if _, err := client.Compact(ctx, last(t, client)-10, clientv3.WithCompactPhysical()); err != nil {
				t.Fatal(err)
			}
		}
		caughtUp(member)
		next := filepath.Join(t.TempDir(), fmt.Sprint("increment", number))
		if result := saveSince(t, member, next, files[number]); result.Code != 0 {
			t.Fatalf("%+v", result)
		}
		files = append(files, next)
		whole, merged := filepath.Join(t.TempDir(), "whole.db"), filepath.Join(t.TempDir(), "merged.db")
		member.MustCtl("snapshot", "save", whole)
		run(t, append([]string{"snapshot", "merge", "--to", merged}, files...)...)
		equalSnapshots(t, merged, whole)
	}
}
