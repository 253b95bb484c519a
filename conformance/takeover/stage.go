package takeover

import (
	"bytes"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"cairn.dev/conformance/harness"
)

const (
	startMax = 60 * time.Second
	// toolMax is how long the tool may take for three members.
	toolMax = 4 * time.Minute
)

// Flags with which a member that lags behind needs a snapshot, and with which
// members of both kinds look for differences between them.
var trimming = []string{
	"--snapshot-count=100", "--snapshot-catchup-entries=20",
	"--feature-gates=InitialCorruptCheck=true,CompactHashCheck=true", "--compact-hash-check-time=2s", "--corrupt-check-time=2s",
}

// stage is the hosts: what runs on each, and who starts and stops it.
type stage struct {
	t     *testing.T
	flags []string
	// before runs before a member is started as the other kind.
	before func(server *harness.Server)

	mutex sync.Mutex
	// running is the server of each member, by its name, if it is started.
	running map[string]*harness.Server
	// past are those that other servers have replaced.
	past  []*harness.Server
	hooks *httptest.Server
}

// newStage starts three members of a kind.
func newStage(t *testing.T, kind harness.Kind, flags ...string) *stage {
	t.Helper()
	s := &stage{t: t, flags: flags, running: map[string]*harness.Server{}}
	cluster := harness.StartCluster(t, kind, 3, nil, flags...)
	for _, member := range cluster.Members {
		s.running[member.Name] = member
	}
	s.hooks = httptest.NewServer(http.HandlerFunc(func(writer http.ResponseWriter, request *http.Request) {
		if err := s.serve(request); err != nil {
			http.Error(writer, err.Error(), http.StatusInternalServerError)
		}
	}))
	t.Cleanup(s.hooks.Close)
	return s
}

// serve does what a hook asks for.
func (s *stage) serve(request *http.Request) error {
	if err := request.ParseForm(); err != nil {
		return err
	}
	s.mutex.Lock()
	defer s.mutex.Unlock()
	switch request.URL.Path {
	case "/stop":
		return s.stop(request.PostForm)
	case "/start":
		return s.start(request.PostForm)
	}
	return fmt.Errorf("no such hook: %s", request.URL.Path)
}

func (s *stage) stop(form url.Values) error {
	name := form.Get("CAIRN_MEMBER_NAME")
	server := s.running[name]
	if server == nil {
		return fmt.Errorf("there is no member %q", name)
	}
	if form.Get("CAIRN_TAKEOVER_WAY") == "in-place" {
		server.Stop()
		return nil
	}
	retire(server)
	return nil
}

// retire lets a member that was removed end by itself.
func retire(server *harness.Server) {
	if _, err := server.Wait(10 * time.Second); err != nil {
		server.Stop()
	}
}

func (s *stage) start(form url.Values) error {
	name, way := form.Get("CAIRN_MEMBER_NAME"), form.Get("CAIRN_TAKEOVER_WAY")
	to := map[string]harness.Kind{"cairn": harness.Cairn, "etcd": harness.Etcd}[form.Get("CAIRN_TAKEOVER_TO")]
	old := s.running[name]
	if old != nil && old.Kind == to {
		// The command is run again: the tool was interrupted.
		if old.Running() {
			return nil
		}
		return old.TryRun(startMax)
	}
	var next *harness.Server
	switch {
	case way == "in-place" && to == harness.Cairn:
		next = harness.Prepare(s.t, to, old.DataDir, append([]string{"--adopt-etcd-data"}, s.flags...)...)
	case way == "in-place":
		dir := filepath.Join(s.t.TempDir(), "exported")
		tool := exec.Command(harness.CairnBinary(s.t), "util", "export", "--data-dir", old.DataDir, "--to", dir)
		if out, err := tool.CombinedOutput(); err != nil {
			return fmt.Errorf("export: %v\n%s", err, out)
		}
		next = harness.Prepare(s.t, to, dir, s.flags...)
	default:
		next = harness.Prepare(s.t, to, filepath.Join(s.t.TempDir(), "data"), s.flags...)
	}
	next.Name = name
	for _, port := range []struct {
		urls string
		to   *int
	}{{form.Get("CAIRN_PEER_URLS"), &next.PeerPort}, {form.Get("CAIRN_CLIENT_URLS"), &next.ClientPort}} {
		if _, err := fmt.Sscanf(port.urls, "http://127.0.0.1:%d", port.to); err != nil {
			return fmt.Errorf("%q: %v", port.urls, err)
		}
	}
	next.InitialCluster, next.InitialState = form.Get("CAIRN_INITIAL_CLUSTER"), form.Get("CAIRN_INITIAL_CLUSTER_STATE")
	if old != nil {
		s.past = append(s.past, old)
	}
	s.running[name] = next
	if s.before != nil {
		s.before(next)
	}
	return next.TryRun(startMax)
}

// members are those that run.
func (s *stage) members() []*harness.Server {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	var all []*harness.Server
	for _, server := range s.running {
		if server.Running() {
			all = append(all, server)
		}
	}
	return all
}

// endpoints of the members that run.
func (s *stage) endpoints() []string {
	var all []string
	for _, server := range s.members() {
		all = append(all, server.Endpoint())
	}
	return all
}

// only fails the test unless all members that run are of that kind.
func (s *stage) only(kind harness.Kind, count int) {
	s.t.Helper()
	members := s.members()
	for _, member := range members {
		if member.Kind != kind {
			s.t.Errorf("%s still runs %s", member.Name, member.Kind)
		}
	}
	if len(members) != count {
		s.t.Errorf("%d members run, not %d", len(members), count)
	}
}

// drop waits for the end of a member that was removed.
func (s *stage) drop(name string) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if server := s.running[name]; server != nil {
		retire(server)
		delete(s.running, name)
	}
}

// result is what a run of the tool left.
type result struct {
	out  string
	code int
}

// run is a run of the tool. end is asked every now and then with what it has
// printed, and may return a signal, once.
func (s *stage) run(end func(printed string) os.Signal, args ...string) result {
	s.t.Helper()
	return tool(s.t, s.hooks.URL, end, append([]string{"--endpoints=" + strings.Join(s.endpoints(), ",")}, args...)...)
}

func tool(t *testing.T, hooks string, end func(printed string) os.Signal, args ...string) result {
	t.Helper()
	command := exec.Command(harness.CairnBinary(t), append([]string{"takeover"}, args...)...)
	command.Env = append(os.Environ(), urlVariable+"="+hooks)
	command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	var out buffer
	command.Stdout, command.Stderr = &out, &out
	// Commands of a tool that was killed go on, and hold these open.
	command.WaitDelay = time.Second
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		command.Wait()
		close(done)
	}()
	deadline := time.After(toolMax)
	for {
		select {
		case <-done:
			return result{out.String(), command.ProcessState.ExitCode()}
		case <-deadline:
			command.Process.Kill()
			<-done
			t.Fatalf("the tool does not end:\n%s", out.String())
		case <-time.After(20 * time.Millisecond):
			if end != nil {
				if signal := end(out.String()); signal != nil {
					end = nil
					command.Process.Signal(signal)
				}
			}
		}
	}
}

// hooked are the flags that let the tool stop and start members.
func hooked(t *testing.T, args ...string) []string {
	t.Helper()
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	command := func(what string) string { return hookVariable + "=" + what + " exec '" + program + "'" }
	return append([]string{"--stop-command=" + command("stop"), "--start-command=" + command("start"), "--timeout=90s"}, args...)
}

// move runs the tool, which must succeed.
func (s *stage) move(args ...string) string {
	s.t.Helper()
	done := s.run(nil, hooked(s.t, args...)...)
	if done.code != 0 {
		s.t.Fatalf("exit %d:\n%s", done.code, done.out)
	}
	return done.out
}

// buffer may be read while it is written.
type buffer struct {
	mutex sync.Mutex
	text  bytes.Buffer
}

func (b *buffer) Write(part []byte) (int, error) {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	return b.text.Write(part)
}

func (b *buffer) String() string {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	return b.text.String()
}
