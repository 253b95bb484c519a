package takeover

import (
	"flag"
	"fmt"
	"math/rand"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"cairn.dev/conformance/harness"
	"go.etcd.io/bbolt"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/protobuf/proto"
)

func TestMain(m *testing.M) {
	if what := os.Getenv(hookVariable); what != "" {
		os.Exit(hook(what))
	}
	// They wait for most of their time.
	flag.Parse()
	if err := flag.Set("test.parallel", "5"); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}

// Three members become Cairn's where they are, and etcd's again, beside clients
// that lose nothing: ROUNDS, with FILL_MB of data.
func TestInPlace(t *testing.T) {
	t.Parallel()
	s := newStage(t, harness.Etcd, trimming...)
	s.fill()
	for round := range harness.Number(t, "ROUNDS", 1) {
		crowd := gather(s)
		begun := time.Now()
		out := s.move()
		forth := time.Since(begun)
		if round == 0 {
			t.Log(out)
		}
		if strings.Count(out, " have HashKV ") != 3 {
			t.Errorf("the members were not compared after each step:\n%s", out)
		}
		s.only(harness.Cairn, 3)
		begun = time.Now()
		s.move("--back")
		s.only(harness.Etcd, 3)
		t.Logf("to Cairn in %v, back in %v", forth.Round(time.Second), time.Since(begun).Round(time.Second))
		crowd.finish(s)
	}
}

// fill puts FILL_MB of data.
func (s *stage) fill() {
	s.t.Helper()
	own := s.running["m0"].Client()
	for number := range harness.Number(s.t, "FILL_MB", 0) {
		// Members on a busy disk may be slower than etcd waits.
		s.await("a put", func() bool {
			_, err := own.Put(harness.Context(s.t), fmt.Sprintf("fill/%06d", number), strings.Repeat("x", 1<<20))
			return err == nil
		})
	}
}

// The tool is killed or interrupted at any moment, and goes on where it was.
func TestInterrupted(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewSource(int64(harness.Seed(t))))
	s := newStage(t, harness.Etcd, trimming...)
	for range harness.Number(t, "ROUNDS", 1) {
		const killsMax = 3
		crowd := gather(s)
		for _, direction := range [][]string{nil, {"--back"}} {
			kills := 0
			for ; ; kills++ {
				begun, after := time.Now(), time.Duration(300+random.Intn(4000))*time.Millisecond
				signal := []os.Signal{syscall.SIGKILL, syscall.SIGINT}[random.Intn(2)]
				done := s.run(func(string) os.Signal {
					if kills < killsMax && time.Since(begun) > after {
						return signal
					}
					return nil
				}, hooked(t, direction...)...)
				if done.code == 0 {
					break
				}
				// 5: interrupted; -1: killed.
				if (done.code != 5 && done.code != -1) || kills >= killsMax {
					t.Fatalf("exit %d after %d kills:\n%s", done.code, kills, done.out)
				}
			}
			t.Logf("%v: interrupted %d times", direction, kills)
			s.only(map[bool]harness.Kind{true: harness.Etcd, false: harness.Cairn}[direction != nil], 3)
		}
		crowd.finish(s)
	}
}

// New members with other addresses take the places of the old ones, and others
// of etcd theirs.
func TestNewAddresses(t *testing.T) {
	t.Parallel()
	s := newStage(t, harness.Etcd, trimming...)
	old := []string{"m0", "m1", "m2"}
	for round := range harness.Number(t, "ROUNDS", 1) {
		crowd := gather(s)
		for _, to := range []harness.Kind{harness.Cairn, harness.Etcd} {
			names, args := s.elsewhere(to, round, 3)
			// Once it is interrupted where a learner was let in, once where an old member is still there.
			for _, where := range []string{"added as learner", "has its vote"} {
				done := s.run(func(printed string) os.Signal {
					if strings.Contains(printed, where) {
						return syscall.SIGKILL
					}
					return nil
				}, hooked(t, args...)...)
				if done.code != -1 {
					t.Fatalf("exit %d before %q:\n%s", done.code, where, done.out)
				}
			}
			out := s.move(args...)
			if round == 0 {
				t.Log(out)
			}
			for _, name := range old {
				s.drop(name)
			}
			s.only(to, 3)
			old = names
		}
		crowd.finish(s)
	}
}

// elsewhere is so many new members, and the flags that make the tool move to them.
// In a network each is where another member than the one was that it replaces.
func (s *stage) elsewhere(to harness.Kind, round, count int) (names, args []string) {
	s.t.Helper()
	var peers, clients []string
	for number := range count {
		name, host := fmt.Sprintf("%s%d%d", to, round, number), "127.0.0.1"
		if s.links != nil {
			host = s.links.Host((number + 1) % 3)
		}
		names = append(names, name)
		peers = append(peers, fmt.Sprintf("%s=http://%s:%d", name, host, harness.Port(s.t)))
		clients = append(clients, fmt.Sprintf("%s=http://%s:%d", name, host, harness.Port(s.t)))
	}
	args = []string{"--way=new-addresses", "--new-members=" + strings.Join(peers, ","), "--new-client-urls=" + strings.Join(clients, ",")}
	if to != harness.Cairn {
		args = append(args, "--back")
	}
	return names, args
}

// The same addresses with empty disks: each member goes and comes back. It goes
// on after a kill right after a removal, if it is told which member is missing.
// With ROUNDS they go to etcd again, and so on, with FILL_MB of data.
func TestEmptyDisk(t *testing.T) {
	t.Parallel()
	s := newStage(t, harness.Etcd, trimming...)
	s.fill()
	rounds := harness.Number(t, "ROUNDS", 1)
	for range rounds {
		crowd := gather(s)
		t.Log(s.emptied())
		s.only(harness.Cairn, 3)
		if rounds > 1 {
			t.Log(s.emptied("--back"))
			s.only(harness.Etcd, 3)
		}
		crowd.finish(s)
	}
}

// emptied moves all members to empty disks, by two runs of the tool.
func (s *stage) emptied(way ...string) string {
	s.t.Helper()
	way = append(way, "--way=empty-disk")
	begun := time.Now()
	done := s.run(func(printed string) os.Signal {
		if strings.Contains(printed, " is removed\n") {
			return syscall.SIGKILL
		}
		return nil
	}, hooked(s.t, way...)...)
	_, again, found := strings.Cut(done.out, "go on with the same flags and ")
	if done.code != -1 || !found {
		s.t.Fatalf("exit %d:\n%s", done.code, done.out)
	}
	again, _, _ = strings.Cut(strings.ReplaceAll(again, "'", ""), "\n")
	s.t.Log(again)
	out := s.move(append(way, strings.Fields(again)...)...)
	s.t.Logf("%v in %v", way, time.Since(begun).Round(time.Second))
	return out
}

// A member of etcd that differs from the others is found before anything is
// changed, and one that is changed on the way before the next member is.
func TestDifference(t *testing.T) {
	t.Parallel()
	s := newStage(t, harness.Etcd)
	ctx, own := harness.Context(t), s.running["m0"].Client()
	for number := range 20 {
		if _, err := own.Put(ctx, fmt.Sprintf("key/%02d", number), "value"); err != nil {
			t.Fatal(err)
		}
	}
	starts := 0
	s.before = func(server *harness.Server) {
		if starts++; starts == 2 {
			falsify(t, server.DataDir)
		}
	}
	done := s.run(nil, hooked(t)...)
	kinds := map[harness.Kind]int{}
	for _, member := range s.members() {
		kinds[member.Kind]++
	}
	if done.code != 7 || !strings.Contains(done.out, "the members differ: HashKV") || !strings.Contains(done.out, "To go back") {
		t.Errorf("exit %d:\n%s", done.code, done.out)
	}
	if kinds[harness.Cairn] != 2 || kinds[harness.Etcd] != 1 {
		t.Errorf("it did not stop at the difference: %v", kinds)
	}
	done = s.run(nil, hooked(t)...)
	if done.code != 7 || !strings.Contains(done.out, "nothing was changed") || starts != 2 {
		t.Errorf("exit %d, %d starts:\n%s", done.code, starts, done.out)
	}
}

// falsify changes a value in the database of a stopped etcd.
func falsify(t *testing.T, dir string) {
	db, err := bbolt.Open(filepath.Join(dir, "member", "snap", "db"), 0o600, nil)
	if err != nil {
		t.Error(err)
		return
	}
	defer db.Close()
	err = db.Update(func(tx *bbolt.Tx) error {
		bucket := tx.Bucket([]byte("key"))
		key, value := bucket.Cursor().First()
		var kv mvccpb.KeyValue
		if err := proto.Unmarshal(value, &kv); err != nil {
			return err
		}
		kv.Value = []byte("VALUE")
		changed, err := proto.Marshal(&kv)
		if err != nil {
			return err
		}
		return bucket.Put(key, changed)
	})
	if err != nil {
		t.Error(err)
	}
}

// What is wrong is said, with its exit code, and nothing is changed.
func TestRefusals(t *testing.T) {
	t.Parallel()
	s := newStage(t, harness.Etcd)
	refused := func(code int, text string, args ...string) {
		t.Helper()
		done := s.run(nil, args...)
		if done.code != code || !strings.Contains(done.out, text) {
			t.Errorf("%v: exit %d without %q:\n%s", args, done.code, text, done.out)
		}
	}
	refused(0, "Nothing was changed (--dry-run)", "--dry-run")
	refused(0, "hand leadership over, stop etcd, start Cairn on its data", "--dry-run")
	refused(0, "WARNING: from its removal to its promotion", "--dry-run", "--way=empty-disk")
	refused(0, "Nothing is to be moved.", "--dry-run", "--back", "--data-dir=/var/lib/etcd")
	refused(128, "needs --data-dir", "--back")
	refused(128, "needs --new-members", "--way=new-addresses")
	refused(1, "1 named, 0 of them in the cluster, 3 to be replaced", "--way=new-addresses", "--new-members=a=http://127.0.0.1:1")
	// Without commands the lines are printed and waited for.
	refused(8, "--adopt-etcd-data", "--timeout=2s")
	refused(8, "it still runs etcd", "--timeout=2s", "--print=systemd")
	refused(1, "the stop command for m", "--stop-command=exit 3", "--start-command=true")
	ctx, own := harness.Context(t), s.running["m0"].Client()
	status, err := own.Status(ctx, s.running["m0"].Endpoint())
	if err != nil {
		t.Fatal(err)
	}
	conn := pb.NewMaintenanceClient(s.running["m0"].Conn())
	alarm := &pb.AlarmRequest{Action: pb.AlarmRequest_ACTIVATE, MemberID: status.Header.MemberId, Alarm: pb.AlarmType_NOSPACE}
	if _, err := conn.Alarm(ctx, alarm); err != nil {
		t.Fatal(err)
	}
	refused(1, "NOSPACE", hooked(t)...)
	if _, err := own.AlarmDisarm(ctx, &clientv3.AlarmMember{}); err != nil {
		t.Fatal(err)
	}
	refused(0, "alarms   none", "--dry-run")
	s.running["m1"].Kill()
	refused(0, "m1 does not answer", "--dry-run")
	s.running["m2"].Kill()
	refused(2, "the list of members", "--dry-run", "--command-timeout=1s", "--timeout=1s")
	s.only(harness.Etcd, 1)
}

// With users it needs root.
func TestUsers(t *testing.T) {
	t.Parallel()
	s := newStage(t, harness.Etcd)
	ctx, own := harness.Context(t), s.running["m0"].Client()
	for _, err := range []error{
		second(own.UserAdd(ctx, "root", "secret")), second(own.UserAdd(ctx, "ann", "word")), second(own.RoleAdd(ctx, "root")),
		second(own.UserGrantRole(ctx, "root", "root")), second(own.AuthEnable(ctx)),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, refused := range []struct {
		code int
		text string
		args []string
	}{
		{1, "user name is empty", nil},
		{2, "authentication failed", []string{"--user=root:wrong"}},
		{1, "permission denied", []string{"--user=ann:word"}},
	} {
		done := s.run(nil, hooked(t, refused.args...)...)
		if done.code != refused.code || !strings.Contains(done.out, refused.text) {
			t.Errorf("%v: exit %d without %q:\n%s", refused.args, done.code, refused.text, done.out)
		}
	}
	s.only(harness.Etcd, 3)
	s.move("--user=root:secret")
	s.only(harness.Cairn, 3)
	s.move("--user=root:secret", "--back")
	s.only(harness.Etcd, 3)
}

func second[T any](_ T, err error) error { return err }

// What is no member is not taken for one.
func TestStrangers(t *testing.T) {
	t.Parallel()
	one, other := harness.Start(t, harness.Etcd), harness.Start(t, harness.Etcd)
	done := tool(t, "", nil, "--endpoints="+one.Endpoint()+","+other.Endpoint(), "--dry-run")
	// Whichever of them gives the list of members.
	if done.code != 3 || !strings.Contains(done.out, "is a member of cluster") {
		t.Errorf("exit %d:\n%s", done.code, done.out)
	}
	page := httptest.NewServer(http.NotFoundHandler())
	defer page.Close()
	done = tool(t, "", nil, "--endpoints="+page.URL, "--dry-run", "--command-timeout=1s", "--timeout=1s")
	if done.code != 2 {
		t.Errorf("exit %d:\n%s", done.code, done.out)
	}
}
