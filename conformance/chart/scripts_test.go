package chart

import (
	"bufio"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"cairn.dev/conformance/harness"
)

// ctl asks the first pods with our etcdctl, by the names that pods have.
func (p *Pods) ctl(count int, args ...string) string {
	p.t.Helper()
	output, err := p.tryCtl(count, args...)
	if err != nil {
		p.t.Fatalf("etcdctl %v: %v\n%s", args, err, output)
	}
	return output
}

func (p *Pods) tryCtl(count int, args ...string) (string, error) {
	command := p.script("start.sh")
	command.Args[len(command.Args)-1] = fmt.Sprintf("mount --bind %s/hosts /etc/hosts && exec etcdctl \"$@\"", p.dir)
	command.Args = append(command.Args, append([]string{"etcdctl", "--endpoints=" + p.Endpoints(count), "--dial-timeout=" + fmt.Sprint(waitMax), "--command-timeout=" + fmt.Sprint(waitMax)}, args...)...)
	output, err := command.CombinedOutput()
	return string(output), err
}

// voters waits until the cluster has exactly these pods, and all of them vote: a pod may be ready a moment before it is promoted.
func (p *Pods) voters(count int, want ...int) {
	p.t.Helper()
	var lines []string
	for deadline := time.Now().Add(waitMax); time.Now().Before(deadline); time.Sleep(100 * time.Millisecond) {
		lines = strings.Split(strings.TrimSpace(p.ctl(count, "member", "list")), "\n")
		voters := 0
		for _, number := range want {
			for _, line := range lines {
				if strings.Contains(line, fmt.Sprintf(", started, pod-%d, ", number)) && strings.HasSuffix(line, ", false") {
					voters++
				}
			}
		}
		if voters == len(want) && len(lines) == len(want) {
			return
		}
	}
	p.t.Fatalf("the voters are not the pods %v:\n%s", want, strings.Join(lines, "\n"))
}

// A cluster is founded by its first pod, grows by pods that join as learners, and shrinks before its pods go; a pod whose disk is lost is
// replaced, and a snapshot is the beginning of another cluster.
func TestLifeOfAStatefulSet(t *testing.T) {
	if harness.Subject() == harness.Etcd {
		t.Skip("the image of the chart is Cairn's")
	}
	t.Run("http", func(t *testing.T) { life(t, func(*Pods) {}) })
	t.Run("https", func(t *testing.T) { life(t, (*Pods).secure) })
}

func life(t *testing.T, prepare func(*Pods)) {
	pods := newPods(t, 3)
	prepare(pods)
	running := pods.StartAll(3)
	pods.voters(3, 0, 1, 2)
	pods.ctl(3, "put", "greeting", "hello")

	t.Log("more pods")
	pods.Scale(5)
	// As if it had been let in beside another learner: neither would start, so it leaves and takes its turn.
	// The cluster takes it once all members have been connected for a while.
	add := []string{"member", "add", "pod-4", "--learner", fmt.Sprintf("--peer-urls=%s://pod-4.%s:%d", pods.scheme, domain, pods.peer)}
	for deadline := time.Now().Add(waitMax); ; time.Sleep(100 * time.Millisecond) {
		output, err := pods.tryCtl(3, add...)
		if err == nil {
			break
		}
		if !strings.Contains(output, "unhealthy cluster") || time.Now().After(deadline) {
			t.Fatalf("%v: %v\n%s", add, err, output)
		}
	}
	for number := 3; number < 5; number++ {
		running[number] = pods.Start(number)
	}
	for number := 3; number < 5; number++ {
		running[number].Ready()
	}
	pods.voters(5, 0, 1, 2, 3, 4)

	t.Log("fewer pods")
	output, err := pods.Run("shrink.sh", "BASE=pod", "REPLICAS=3", "ENDPOINTS="+pods.Endpoints(3))
	if err != nil {
		t.Fatalf("shrink.sh: %v\n%s", err, output)
	}
	pods.voters(3, 0, 1, 2)
	// A member that learns of its removal ends.
	for number := 3; number < 5; number++ {
		running[number].Await()
	}
	pods.Scale(3)
	if output, err := pods.Run("shrink.sh", "BASE=pod", "REPLICAS=3", "ENDPOINTS="+pods.Endpoints(3)); err != nil {
		t.Errorf("again: %v\n%s", err, output)
	}

	t.Log("a pod that comes back, and a disk that is lost")
	running[2].Stop()
	running[2] = pods.Start(2)
	running[2].Ready()
	running[0].Kill()
	if err := os.RemoveAll(pods.Data(0)); err != nil {
		t.Fatal(err)
	}
	running[0] = pods.Start(0)
	running[0].Ready()
	pods.voters(3, 0, 1, 2)
	if got := pods.ctl(1, "get", "greeting", "--print-value-only"); strings.TrimSpace(got) != "hello" {
		t.Errorf("the replaced pod has %q", got)
	}

	t.Log("snapshots")
	backup := filepath.Join(pods.dir, "backup")
	if err := os.Mkdir(backup, 0o700); err != nil {
		t.Fatal(err)
	}
	pods.write(filepath.Join(backup, "other.db"), "not ours")
	pods.write(filepath.Join(backup, "pod-20200101T000000Z.db"), "old")
	pods.write(filepath.Join(backup, "pod-20200102T000000Z.db"), "old")
	env := []string{"BACKUP_DIR=" + backup, "NAME=pod", "KEEP=2", "ENDPOINT=" + pods.Endpoints(1)}
	if output, err := pods.Run("backup.sh", env...); err != nil {
		t.Fatalf("backup.sh: %v\n%s", err, output)
	}
	kept, err := filepath.Glob(filepath.Join(backup, "*"))
	if err != nil || len(kept) != 3 || !strings.HasSuffix(kept[0], "/other.db") || !strings.HasSuffix(kept[1], "/pod-20200102T000000Z.db") {
		t.Fatalf("kept: %v, %v", kept, err)
	}
	snapshot := kept[2]
	env[3] = "ENDPOINT=" + pods.scheme + "://" + pods.address(8) + ":1"
	if output, err := pods.Run("backup.sh", append(env, "TIMEOUT=2s")...); err == nil {
		t.Errorf("a backup of nobody succeeds: %s", output)
	}
	if left, _ := filepath.Glob(filepath.Join(backup, "*")); len(left) != 3 {
		t.Errorf("a failed backup leaves %v", left)
	}
	for number := range 3 {
		running[number].Stop()
	}

	t.Log("all pods at once, as after all of them were deleted")
	running = pods.StartAll(3)
	pods.voters(3, 0, 1, 2)
	for number := range 3 {
		running[number].Stop()
	}

	t.Log("a single pod that has lost its disk")
	if err := os.RemoveAll(pods.Data(0)); err != nil {
		t.Fatal(err)
	}
	pods.setting("found", "no")
	pods.Scale(1)
	alone := pods.Start(0)
	alone.Await()
	if alone.process.ProcessState.ExitCode() != 1 || !strings.Contains(alone.log.String(), "no new cluster may be founded") {
		t.Errorf("exit %v: %s", alone.process.ProcessState, alone.log)
	}

	t.Log("a cluster from the snapshot")
	restored := newPods(t, 2)
	prepare(restored)
	restored.StartAll(2, "RESTORE_FROM="+snapshot)
	restored.voters(2, 0, 1)
	if got := restored.ctl(2, "get", "greeting", "--print-value-only"); strings.TrimSpace(got) != "hello" {
		t.Errorf("the restored cluster has %q", got)
	}
}

// The first pod founds a cluster only once every other pod has said that its disk is empty: whatever else it gets for an answer, or none, it
// waits. So a first pod that has lost its disk, and comes before the others, founds no second cluster beside the first.
func TestNoSecondCluster(t *testing.T) {
	if harness.Subject() == harness.Etcd {
		t.Skip("the image of the chart is Cairn's")
	}
	pods := newPods(t, 3)
	other := pods.Start(2)
	other.Says("waiting: ")
	answer := func(status int, text string) func(net.Conn) {
		return func(c net.Conn) {
			http.ReadRequest(bufio.NewReader(c))
			fmt.Fprintf(c, "HTTP/1.0 %d Status\r\nContent-Length: %d\r\n\r\n%s", status, len(text), text)
			c.Close()
		}
	}
	said := "token pod-1: the disk is empty\n"
	for _, c := range []struct {
		name     string
		nameless []int
		// what listens at the peer address of the other pod; nothing if nil.
		peer func(net.Conn)
	}{
		{"no such name", []int{1}, nil},
		{"nothing listens", nil, nil},
		{"no answer in time", nil, func(net.Conn) {}},
		{"an error with the right words", nil, answer(http.StatusServiceUnavailable, said)},
		{"something that is not HTTP", nil, func(c net.Conn) { c.Write([]byte(said)); c.Close() }},
		{"another pod at this address", nil, answer(http.StatusOK, "token pod-2: the disk is empty\n")},
		{"a pod of another cluster at this address", nil, answer(http.StatusOK, "another pod-1: the disk is empty\n")},
		{"nothing", nil, answer(http.StatusOK, "")},
	} {
		t.Log(c.name)
		pods.names(3, c.nameless...)
		var place net.Listener
		if c.peer != nil {
			var err error
			if place, err = net.Listen("tcp4", fmt.Sprint(pods.address(1), ":", pods.peer)); err != nil {
				t.Fatal(err)
			}
			go func() {
				for {
					connection, err := place.Accept()
					if err != nil {
						return
					}
					go c.peer(connection)
				}
			}()
		}
		first := pods.Start(0)
		first.Says("waiting: no member answers")
		first.Kill()
		if place != nil {
			place.Close()
		}
		if log := first.log.String(); !strings.Contains(log, "disks are empty: pod-1\n") || strings.Contains(log, "founding") {
			t.Errorf("%s:\n%s", c.name, log)
		}
		if _, err := os.Stat(pods.Data(0)); err == nil {
			t.Fatalf("%s: a cluster is founded", c.name)
		}
	}

	t.Log("all say so")
	pods.names(3)
	running := map[int]*Pod{0: pods.Start(0), 1: pods.Start(1), 2: other}
	for number := range 3 {
		running[number].Ready()
	}
	pods.voters(3, 0, 1, 2)
	pods.ctl(3, "put", "greeting", "hello")

	t.Log("all pods are deleted, and the first comes without its disk")
	for number := range 3 {
		running[number].Stop()
	}
	if err := os.RemoveAll(pods.Data(0)); err != nil {
		t.Fatal(err)
	}
	running[0] = pods.Start(0)
	running[0].Says("disks are empty: pod-1 pod-2\n")
	// A member without a quorum does not answer.
	pods.Start(1).Says("trouble with a peer")
	running[0].Kill()
	running[0] = pods.Start(0)
	running[0].Says("disks are empty: pod-1 pod-2\n")
	pods.Start(2)
	running[0].Ready()
	pods.voters(3, 0, 1, 2)
	if got := pods.ctl(1, "get", "greeting", "--print-value-only"); strings.TrimSpace(got) != "hello" {
		t.Errorf("the first pod has %q", got)
	}
}

// Users, roles and authentication are made once and may be made again; members join and leave with them, too.
func TestUsers(t *testing.T) {
	if harness.Subject() == harness.Etcd {
		t.Skip("the image of the chart is Cairn's")
	}
	pods := newPods(t, 1)
	// A cluster that has no users yet takes them, too: the pods have them from the beginning.
	pods.Env = []string{"ETCDCTL_USER=root", "ETCDCTL_PASSWORD=secret"}
	// Passwords are hashed at the lowest priority, which takes long on a busy machine.
	cheap := "ETCD_BCRYPT_COST=4"
	pods.Start(0, cheap).Ready()
	users := filepath.Join(pods.dir, "users")
	if err := os.Mkdir(users, 0o700); err != nil {
		t.Fatal(err)
	}
	pods.write(filepath.Join(users, "app"), "app's password")
	env := []string{
		"ENDPOINTS=" + pods.Endpoints(1), "ROOT_PASSWORD=secret", "USERS_DIR=" + users,
		"ROLES=\napp readwrite /app/\napp read /shared/", "GRANTS=\napp app\n",
	}
	as := pods.Env
	for range 2 {
		pods.Env = nil
		if output, err := pods.Run("users.sh", env...); err != nil {
			t.Fatalf("users.sh: %v\n%s", err, output)
		}
	}
	pods.Env = []string{"ETCDCTL_USER=app", "ETCDCTL_PASSWORD=app's password"}
	pods.ctl(1, "put", "/app/a", "1")
	if output, err := pods.tryCtl(1, "put", "/shared/a", "1"); err == nil || !strings.Contains(output, "permission denied") {
		t.Errorf("a put with the right to read: %v, %s", err, output)
	}
	pods.ctl(1, "get", "/shared/a")
	pods.Env = as
	pods.Scale(2)
	pods.Start(1, cheap).Ready()
	pods.voters(2, 0, 1)
}
