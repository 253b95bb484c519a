package utl

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"cairn.dev/conformance/harness"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// takeOver makes data of Cairn of a stopped member's, and starts a member on
// it in its place.
func takeOver(t *testing.T, from *harness.Server) *harness.Server {
	t.Helper()
	before := fingerprint(t, from.DataDir)
	to := inPlaceOf(t, from, harness.Cairn, filepath.Join(t.TempDir(), "data"))
	t.Log(run(t, "migrate", "--from", from.DataDir, "--data-dir", to.DataDir))
	if fingerprint(t, from.DataDir) != before {
		t.Error("the source was written")
	}
	return to
}

// A member of etcd becomes the same member of Cairn, stopped in peace or killed
// with entries in its log that its database lacks. EARLIER=1: of the two
// releases before as well, whose servers take minutes to build.
func TestMigrate(t *testing.T) {
	kinds := []harness.Kind{harness.Etcd}
	if os.Getenv("EARLIER") != "" {
		kinds = append(kinds, harness.Etcd36, harness.Etcd35)
	}
	for _, kind := range kinds {
		for _, end := range []string{"stopped", "killed"} {
			t.Run(string(kind)+"/"+end, func(t *testing.T) { migrate(t, kind, end == "stopped") })
		}
	}
}

func migrate(t *testing.T, kind harness.Kind, stopped bool) {
	// Snapshots often, so that the log begins somewhere in the middle.
	server := harness.Start(t, kind, "--snapshot-count=100")
	write(t, server.Client(), 2)
	settle(t, server)
	want := observe(t, server)
	if stopped {
		server.Stop()
	} else {
		for i := range 50 {
			if _, err := server.Client().Put(harness.Context(t), fmt.Sprintf("late/%d", i), "value"); err != nil {
				t.Fatal(err)
			}
		}
		want = observe(t, server)
		server.Kill()
	}
	to := takeOver(t, server)
	to.Run()
	got := observe(t, to)
	if kind == harness.Etcd35 {
		// Its successors show what root may do anyway, and is stored nowhere.
		if want.roles["root"] != "[]" || !strings.Contains(got.roles["root"], "READWRITE") {
			t.Errorf("the role root: %s, then %s", want.roles["root"], got.roles["root"])
		}
		want.roles["root"] = got.roles["root"]
	}
	compare(t, want, got)
	if want.header.ClusterId != got.header.ClusterId || want.header.MemberId != got.header.MemberId {
		t.Errorf("another member: %v, not %v", got.header, want.header)
	}
	client := to.Client()
	put, err := client.Put(harness.Context(t), "after", "the move")
	if err != nil || put.Header.Revision != want.last+1 {
		t.Fatalf("the first put: %v, %v", put, err)
	}
	if _, err := client.AuthEnable(harness.Context(t)); err != nil {
		t.Fatal(err)
	}
	if result := to.Ctl("--dial-timeout=20s", "--user=ann:word", "get", "key/", "--prefix", "--keys-only"); result.Code != 0 {
		t.Errorf("a user that was taken over: %+v", result)
	}
	if result := to.Ctl("--dial-timeout=20s", "--user=ann:word", "put", "key/1", "x"); result.Code == 0 {
		t.Error("a permission was not taken over")
	}
}

// What etcd's own tool has restored from a snapshot is taken over too.
func TestMigrateRestored(t *testing.T) {
	server, file := save(t, harness.Etcd)
	want := observe(t, server)
	from := harness.Prepare(t, harness.Etcd, filepath.Join(t.TempDir(), "restored"))
	result := harness.Command{Path: harness.Tool(t, "etcdutl"), Args: []string{
		"snapshot", "restore", file, "--data-dir", from.DataDir, "--initial-cluster", "default=" + from.PeerURL(),
		"--initial-advertise-peer-urls", from.PeerURL(),
	}}.Run(t)
	if result.Code != 0 {
		t.Fatal(result)
	}
	to := takeOver(t, from)
	to.Run()
	compare(t, want, observe(t, to))
}

// All members of a cluster are stopped, then taken over, then started, and find
// each other again.
func TestMigrateCluster(t *testing.T) {
	var servers []*harness.Server
	var list []string
	for i := range 3 {
		server := harness.Prepare(t, harness.Etcd, filepath.Join(t.TempDir(), "data"))
		server.Name = fmt.Sprintf("m%d", i)
		servers, list = append(servers, server), append(list, fmt.Sprintf("m%d=%s", i, server.PeerURL()))
	}
	start := func(servers []*harness.Server) {
		t.Helper()
		started := make(chan error, len(servers))
		for _, server := range servers {
			server.InitialCluster = strings.Join(list, ",")
			go func() { started <- server.TryRun(60e9) }()
		}
		for range servers {
			if err := <-started; err != nil {
				t.Fatal(err)
			}
		}
	}
	start(servers)
	write(t, servers[0].Client(), 3)
	for _, server := range servers {
		settle(t, server)
	}
	want := observe(t, servers[0])
	for _, server := range servers {
		server.Stop()
	}
	var moved []*harness.Server
	for _, server := range servers {
		moved = append(moved, takeOver(t, server))
	}
	start(moved)
	for _, server := range moved {
		compare(t, want, observe(t, server))
	}
	members, err := moved[0].Client().MemberList(harness.Context(t))
	if err != nil || len(members.Members) != 3 {
		t.Fatalf("members: %v, %v", members, err)
	}
	if _, err := moved[2].Client().Put(harness.Context(t), "after", "the move", clientv3.WithPrevKV()); err != nil {
		t.Fatal(err)
	}
}

// What cannot be taken over is refused, and nothing is left that looks whole.
func TestMigrateRefusals(t *testing.T) {
	server := harness.Start(t, harness.Etcd)
	write(t, server.Client(), 4)
	target := filepath.Join(t.TempDir(), "target")
	if text := refused(t, "--timeout=1s", "migrate", "--from", server.DataDir, "--data-dir", target); !strings.Contains(text, "in use") {
		t.Errorf("a running member: %s", text)
	}
	server.Stop()
	if text := refused(t, "migrate", "--from", target, "--data-dir", target); !strings.Contains(text, "no such file") {
		t.Errorf("no member: %s", text)
	}
	for _, inside := range []string{server.DataDir, filepath.Join(server.DataDir, "a", "b")} {
		if text := refused(t, "migrate", "--from", server.DataDir, "--data-dir", inside); !strings.Contains(text, "only read") {
			t.Errorf("into the source: %s", text)
		}
	}
	if text := refused(t, "migrate", "--from", server.DataDir, "--data-dir", target, "--wal-dir", filepath.Join(server.DataDir, "w")); !strings.Contains(text, "only read") {
		t.Errorf("the log into the source: %s", text)
	}
	full := t.TempDir()
	if err := os.WriteFile(filepath.Join(full, "something"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if text := refused(t, "migrate", "--from", server.DataDir, "--data-dir", full); !strings.Contains(text, "not empty") {
		t.Errorf("a directory that is not empty: %s", text)
	}
	db := filepath.Join(server.DataDir, "member", "snap", "db")
	content, err := os.ReadFile(db)
	if err != nil {
		t.Fatal(err)
	}
	for page := 3; page < len(content)/4096; page++ {
		copy(content[page*4096+8:], []byte{0xff, 0xff})
	}
	if err := os.WriteFile(db, content, 0o600); err != nil {
		t.Fatal(err)
	}
	if text := refused(t, "migrate", "--from", server.DataDir, "--data-dir", target); !strings.Contains(text, "damaged") {
		t.Errorf("a damaged database: %s", text)
	}
	absent(t, target)
	// A directory that was there stays, empty.
	empty := t.TempDir()
	refused(t, "migrate", "--from", server.DataDir, "--data-dir", empty, "--wal-dir", target)
	entries, err := os.ReadDir(empty)
	if err != nil || len(entries) > 0 {
		t.Errorf("%v is left: %v", entries, err)
	}
	absent(t, target)
}

// What is Cairn's already is called that, and stays as it is.
func TestMigrateFromCairn(t *testing.T) {
	server := harness.Start(t, harness.Subject())
	if harness.Subject() == harness.Etcd {
		t.Skip("about Cairn only")
	}
	server.Stop()
	before, target := fingerprint(t, server.DataDir), filepath.Join(t.TempDir(), "target")
	if text := refused(t, "migrate", "--from", server.DataDir, "--data-dir", target); !strings.Contains(text, "holds the data of a member of Cairn already") {
		t.Errorf("said: %s", text)
	}
	absent(t, target)
	if fingerprint(t, server.DataDir) != before {
		t.Error("the source was changed")
	}
}
