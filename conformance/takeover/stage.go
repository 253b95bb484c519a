package takeover

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"net"
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
	"cairn.dev/conformance/network"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
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
	t *testing.T
	// etcd is which release of it runs before, and after the way back.
	etcd  harness.Kind
	flags []string
	// links connect the members and the clients, if not loopback.
	links *network.Network
	// secrets are what clients of members with certificates show and trust.
	secrets *tls.Config
	// before runs before a member is started as the other kind.
	before func(server *harness.Server)
	// after runs once it is ready.
	after func()

	// hooking is held while a hook is served; mutex is not while it waits for a
	// server, which may be killed then.
	hooking, mutex sync.Mutex
	// running is the server of each member, by its name, if it is started.
	running map[string]*harness.Server
	// halted are those that a hook has stopped: nobody else may start them.
	halted map[*harness.Server]bool
	// past are those that other servers have replaced.
	past  []*harness.Server
	hooks *httptest.Server
}

// newStage starts three members of a release of etcd.
func newStage(t *testing.T, etcd harness.Kind, flags ...string) *stage {
	t.Helper()
	return stageIn(t, nil, etcd, 3, flags...)
}

// stageIn is newStage with as many members in a network, or on loopback.
func stageIn(t *testing.T, links *network.Network, etcd harness.Kind, size int, flags ...string) *stage {
	t.Helper()
	// A nil pointer in an interface is not nil.
	var place harness.Network
	if links != nil {
		place = links
	}
	return around(t, links, etcd, harness.StartCluster(t, etcd, size, place, flags...).Members, flags...)
}

// around is a stage with members that run with these flags.
func around(t *testing.T, links *network.Network, etcd harness.Kind, members []*harness.Server, flags ...string) *stage {
	t.Helper()
	s := &stage{t: t, etcd: etcd, flags: flags, links: links, running: map[string]*harness.Server{}, halted: map[*harness.Server]bool{}}
	for _, member := range members {
		s.running[member.Name] = member
	}
	s.hooks = httptest.NewUnstartedServer(http.HandlerFunc(func(writer http.ResponseWriter, request *http.Request) {
		if err := s.serve(request); err != nil {
			http.Error(writer, err.Error(), http.StatusInternalServerError)
		}
	}))
	if links != nil {
		// The tool runs where the clients are.
		err := s.amongClients(func() (err error) {
			s.hooks.Listener.Close()
			s.hooks.Listener, err = net.Listen("tcp", "127.0.0.1:0")
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	s.hooks.Start()
	t.Cleanup(s.hooks.Close)
	return s
}

// amongClients runs a function in the clients' network.
func (s *stage) amongClients(function func() error) error {
	if s.links == nil {
		return function()
	}
	return s.links.RunClient(function)
}

// client follows the members: it asks for the list of them all the time.
func (s *stage) client(endpoints ...string) *clientv3.Client {
	s.t.Helper()
	return s.connect(clientv3.Config{Endpoints: endpoints, AutoSyncInterval: 500 * time.Millisecond})
}

// direct asks one member.
func (s *stage) direct(member *harness.Server) *clientv3.Client {
	s.t.Helper()
	return s.connect(clientv3.Config{Endpoints: []string{member.Endpoint()}})
}

func (s *stage) connect(config clientv3.Config) *clientv3.Client {
	s.t.Helper()
	config.DialTimeout, config.Logger = 10*time.Second, zap.NewNop()
	config.TLS = s.secrets
	if s.links != nil {
		config.DialOptions = s.links.Options()
	}
	made, err := clientv3.New(config)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { made.Close() })
	return made
}

// browser gets pages of the members.
func (s *stage) browser() *http.Client {
	dialer := &net.Dialer{Timeout: 3 * time.Second}
	transport := &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, kind, address string) (conn net.Conn, err error) {
		err = s.amongClients(func() error {
			conn, err = dialer.DialContext(ctx, kind, address)
			return err
		})
		return conn, err
	}}
	return &http.Client{Transport: transport, Timeout: callMax}
}

// serve does what a hook asks for.
func (s *stage) serve(request *http.Request) error {
	if err := request.ParseForm(); err != nil {
		return err
	}
	s.hooking.Lock()
	defer s.hooking.Unlock()
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
	s.mutex.Lock()
	server := s.running[name]
	if server != nil {
		s.halted[server] = true
	}
	s.mutex.Unlock()
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
	to := map[string]harness.Kind{"cairn": harness.Cairn, "etcd": s.etcd}[form.Get("CAIRN_TAKEOVER_TO")]
	s.mutex.Lock()
	old := s.running[name]
	s.mutex.Unlock()
	if old != nil && old.Kind == to {
		// The command is run again: the tool was interrupted.
		return s.launch(old)
	}
	var next *harness.Server
	var err error
	if way == "in-place" {
		next, err = s.successor(old, to)
	} else {
		next, err = s.newcomer(to, form.Get("CAIRN_PEER_URLS"))
	}
	if err != nil {
		return err
	}
	next.Name = name
	for _, port := range []struct {
		urls string
		to   *int
	}{{form.Get("CAIRN_PEER_URLS"), &next.PeerPort}, {form.Get("CAIRN_CLIENT_URLS"), &next.ClientPort}} {
		if _, err := fmt.Sscanf(port.urls, next.Scheme()+"://"+next.Host+":%d", port.to); err != nil {
			return fmt.Errorf("%q: %v", port.urls, err)
		}
	}
	next.InitialCluster, next.InitialState = form.Get("CAIRN_INITIAL_CLUSTER"), form.Get("CAIRN_INITIAL_CLUSTER_STATE")
	if s.before != nil {
		s.before(next)
	}
	if err := s.replace(old, next); err != nil {
		return err
	}
	if s.after != nil {
		s.after()
	}
	return nil
}

// successor goes on with the data of a stopped member as another kind.
func (s *stage) successor(old *harness.Server, to harness.Kind) (*harness.Server, error) {
	dir, flags := old.DataDir, s.flags
	switch {
	case to == harness.Cairn:
		flags = append([]string{"--adopt-etcd-data"}, s.flags...)
	case old.Kind == harness.Cairn:
		dir = filepath.Join(s.t.TempDir(), "exported")
		tool := exec.Command(harness.CairnBinary(s.t), "util", "export", "--data-dir", old.DataDir, "--to", dir)
		if out, err := tool.CombinedOutput(); err != nil {
			return nil, fmt.Errorf("export: %v\n%s", err, out)
		}
	}
	next := harness.Prepare(s.t, to, dir, flags...)
	next.Name, next.Host, next.Place, next.Secure = old.Name, old.Host, old.Place, old.Secure
	next.ClientPort, next.PeerPort = old.ClientPort, old.PeerPort
	next.InitialCluster, next.InitialState = old.InitialCluster, old.InitialState
	return next, nil
}

// newcomer has an empty directory where its peer URL leads to.
func (s *stage) newcomer(to harness.Kind, peerURL string) (*harness.Server, error) {
	next := harness.Prepare(s.t, to, filepath.Join(s.t.TempDir(), "data"), s.flags...)
	if s.links == nil {
		return next, nil
	}
	parsed, err := url.Parse(peerURL)
	if err != nil {
		return nil, err
	}
	next.Host = parsed.Hostname()
	place := s.place(next)
	next.Place = func(start func() error) error { return s.links.Run(place, start) }
	return next, nil
}

// place is where in the network a server runs.
func (s *stage) place(server *harness.Server) (place int) {
	for s.links.Host(place) != server.Host {
		place++
	}
	return place
}

// replace starts a server as the member that another one was, if any.
func (s *stage) replace(old, next *harness.Server) error {
	s.mutex.Lock()
	if old != nil {
		s.past = append(s.past, old)
	}
	s.running[next.Name] = next
	s.mutex.Unlock()
	return s.launch(next)
}

// tidy removes the data of members that nothing runs on any more: each move
// leaves some hundred megabytes.
func (s *stage) tidy() {
	s.t.Helper()
	s.mutex.Lock()
	defer s.mutex.Unlock()
	inUse := map[string]bool{}
	for _, server := range s.running {
		inUse[server.DataDir] = true
	}
	for _, server := range s.past {
		if !inUse[server.DataDir] && !server.Running() {
			if err := os.RemoveAll(server.DataDir); err != nil {
				s.t.Error(err)
			}
		}
	}
	for dir := range inUse {
		backups, _ := filepath.Glob(filepath.Join(dir, "etcd-backup-*"))
		for _, backup := range backups {
			if err := os.RemoveAll(backup); err != nil {
				s.t.Error(err)
			}
		}
	}
	s.past = nil
}

// launch starts a server unless it runs, and waits until it is ready.
func (s *stage) launch(server *harness.Server) error {
	s.mutex.Lock()
	if server.Running() {
		s.mutex.Unlock()
		return nil
	}
	delete(s.halted, server)
	seen := server.Launch()
	s.mutex.Unlock()
	return server.AwaitReady(seen, startMax)
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
		all = append(all, server.URL(""))
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
		s.past = append(s.past, server)
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
	return toolIn(s.t, s.amongClients, s.hooks.URL, end, append([]string{"--endpoints=" + strings.Join(s.endpoints(), ",")}, args...)...)
}

// tool runs it beside members on loopback.
func tool(t *testing.T, hooks string, end func(printed string) os.Signal, args ...string) result {
	t.Helper()
	return toolIn(t, func(start func() error) error { return start() }, hooks, end, args...)
}

// toolIn runs it where a function starts it.
func toolIn(t *testing.T, place func(start func() error) error, hooks string, end func(printed string) os.Signal, args ...string) result {
	t.Helper()
	command := exec.Command(harness.CairnBinary(t), append([]string{"takeover"}, args...)...)
	command.Env = append(os.Environ(), urlVariable+"="+hooks)
	command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	var out buffer
	command.Stdout, command.Stderr = &out, &out
	// Commands of a tool that was killed go on, and hold these open.
	command.WaitDelay = time.Second
	if err := place(command.Start); err != nil {
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
