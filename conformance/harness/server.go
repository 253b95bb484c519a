package harness

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

const (
	readyText = "ready to serve client requests"
	// Generous, because the machine may build something else meanwhile.
	startMax = 60 * time.Second
	stopMax  = 60 * time.Second
	// A leader of etcd that checks for corruption every 2 s may begin one check
	// after the other while it stops, each of which takes 7 s then.
	stopEtcdMax = 65 * time.Second
)

// Server is one running server process with its own directory and ports.
type Server struct {
	Kind Kind
	// DataDir is what --data-dir names.
	DataDir string
	// Name of the member.
	Name string
	// Host is the address of the ports.
	Host string
	// ClientPort and PeerPort are the ports that it listens on.
	ClientPort, PeerPort int
	// Place starts the process where it is to run; here and now if nil.
	Place func(start func() error) error
	// Secure says that its URLs are of TLS; the additional flags name certificates.
	Secure bool
	// Bare leaves out the usual flags: only the additional ones are given.
	Bare bool

	// InitialCluster and InitialState are the flags of those names; by default
	// the server founds a cluster of its own.
	InitialCluster, InitialState string
	// Discovered leaves --initial-cluster out: the members find each other.
	Discovered bool

	t       testing.TB
	binary  string
	flags   []string
	env     []string
	logPath string
	process *exec.Cmd
	exited  chan struct{}
	pid     atomic.Int64
	// stopped is true once the process was asked to end.
	stopped bool
}

// Start starts a server on a fresh directory and waits until it is ready. It
// is stopped when the test ends. flags follow the usual ones, so they win.
func Start(t testing.TB, kind Kind, flags ...string) *Server {
	t.Helper()
	server := Prepare(t, kind, filepath.Join(t.TempDir(), "data"), flags...)
	server.Run()
	return server
}

// StartPair starts the genuine server and the one under test with the same
// flags.
func StartPair(t testing.TB, flags ...string) (etcd, subject *Server) {
	t.Helper()
	return Start(t, Etcd, flags...), Start(t, Subject(), flags...)
}

// Prepare is a server that is not started yet, on the given directory.
func Prepare(t testing.TB, kind Kind, dataDir string, flags ...string) *Server {
	t.Helper()
	return &Server{
		Kind: kind, DataDir: dataDir, Name: "default", Host: "127.0.0.1", ClientPort: Port(t), PeerPort: Port(t),
		t: t, binary: Binary(t, kind), flags: flags,
		logPath: filepath.Join(t.TempDir(), "log"),
	}
}

// Endpoint is the host and port that clients use.
func (s *Server) Endpoint() string { return fmt.Sprintf("%s:%d", s.Host, s.ClientPort) }

// PeerURL is the advertised peer URL.
func (s *Server) PeerURL() string {
	return fmt.Sprintf("%s://%s:%d", s.Scheme(), s.Host, s.PeerPort)
}

// URL is the client URL followed by a path.
func (s *Server) URL(path string) string { return s.Scheme() + "://" + s.Endpoint() + path }

// Scheme of its URLs.
func (s *Server) Scheme() string {
	if s.Secure {
		return "https"
	}
	return "http"
}

// Pid of the running process.
func (s *Server) Pid() int { return s.process.Process.Pid }

// PidNow is the process that runs at this moment, 0 if none does; it may be
// asked while the process is started.
func (s *Server) PidNow() int { return int(s.pid.Load()) }

// Setenv adds a variable to the environment of the next run.
func (s *Server) Setenv(name, value string) { s.env = append(s.env, name+"="+value) }

// SetFlags replaces the additional flags of the next run.
func (s *Server) SetFlags(flags ...string) { s.flags = flags }

// SetBinary changes the program of the next run.
func (s *Server) SetBinary(path string) { s.binary = path }

// Run starts the process and waits until it is ready. The test fails if it
// is not.
func (s *Server) Run() {
	s.t.Helper()
	if err := s.TryRun(startMax); err != nil {
		s.t.Fatal(err)
	}
	if s.Kind == Etcd && !s.Bare {
		s.AwaitStorageVersion()
	}
}

// AwaitStorageVersion waits until the genuine server has raised the version of
// its storage to the cluster's, which it does some time after it is ready.
func (s *Server) AwaitStorageVersion() {
	s.t.Helper()
	for deadline := time.Now().Add(startMax); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		var versions struct{ Etcdcluster, Storage string }
		response, err := http.Get(s.URL("/version"))
		if err != nil {
			continue
		}
		err = json.NewDecoder(response.Body).Decode(&versions)
		response.Body.Close()
		if err == nil && versions.Storage == versions.Etcdcluster {
			return
		}
	}
	s.t.Fatal("the storage version stays behind")
}

// TryRun starts the process and waits until it is ready, has ended (an error)
// or the time is over (an error, and it is killed).
func (s *Server) TryRun(wait time.Duration) error {
	s.t.Helper()
	return s.AwaitReady(s.Launch(), wait)
}

// Launch starts the process and does not wait for it; what it returns is for
// AwaitReady.
func (s *Server) Launch() (seen int) {
	s.t.Helper()
	log, err := os.OpenFile(s.logPath, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		s.t.Fatal(err)
	}
	defer log.Close()
	seen = len(s.Log())
	command := exec.Command(s.binary, s.allFlags()...)
	command.Env = append(plainEnvironment(), s.env...)
	command.Dir = filepath.Dir(s.logPath)
	command.Stdout, command.Stderr = log, log
	// A test process that is killed must not leave servers behind.
	command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	start := command.Start
	if s.Place != nil {
		start = func() error { return s.Place(command.Start) }
	}
	if err := start(); err != nil {
		s.t.Fatal(err)
	}
	exited := make(chan struct{})
	s.pid.Store(int64(command.Process.Pid))
	go func() {
		command.Wait()
		s.pid.Store(0)
		close(exited)
	}()
	s.process, s.exited, s.stopped = command, exited, false
	s.t.Cleanup(func() {
		if !s.running() && !s.stopped {
			s.t.Errorf("the %s server ended by itself: %v\n%s", s.Kind, command.ProcessState, s.LogTail())
		}
		s.Stop()
	})
	return seen
}

// AwaitReady waits until a launched process is ready, like TryRun.
func (s *Server) AwaitReady(seen int, wait time.Duration) error {
	s.t.Helper()
	deadline := time.After(wait)
	for {
		if bytes.Contains([]byte(s.Log()[seen:]), []byte(readyText)) {
			return nil
		}
		select {
		case <-s.exited:
			s.stopped = true
			return fmt.Errorf("the server ended: %v\n%s", s.process.ProcessState, s.LogTail())
		case <-deadline:
			s.Kill()
			return fmt.Errorf("the server is not ready after %v\n%s", wait, s.LogTail())
		case <-time.After(10 * time.Millisecond):
		}
	}
}

func (s *Server) allFlags() []string {
	if s.Bare {
		return s.flags
	}
	client, peer := s.URL(""), s.PeerURL()
	initial := s.InitialCluster
	if initial == "" {
		initial = s.Name + "=" + peer
	}
	usual := []string{
		"--name=" + s.Name,
		"--data-dir=" + s.DataDir,
		"--listen-client-urls=" + client,
		"--advertise-client-urls=" + client,
		"--listen-peer-urls=" + peer,
		"--initial-advertise-peer-urls=" + peer,
	}
	if !s.Discovered {
		usual = append(usual, "--initial-cluster="+initial)
	}
	if s.InitialState != "" {
		usual = append(usual, "--initial-cluster-state="+s.InitialState)
	}
	return append(usual, s.flags...)
}

// plainEnvironment is the environment without variables that a server or
// etcdctl would read.
func plainEnvironment() []string {
	var kept []string
	for _, variable := range os.Environ() {
		if !bytes.HasPrefix([]byte(variable), []byte("ETCD")) {
			kept = append(kept, variable)
		}
	}
	return kept
}

// Stop asks the process to end and waits for it; it is killed if it does not.
func (s *Server) Stop() {
	if !s.running() {
		return
	}
	s.stopped = true
	s.process.Process.Signal(syscall.SIGTERM)
	limit := stopMax
	if s.Kind != Cairn {
		limit = stopEtcdMax
	}
	select {
	case <-s.exited:
	case <-time.After(limit):
		s.t.Errorf("the %s server %s (pid %d) does not end on SIGTERM\n%s", s.Kind, s.Name, s.Pid(), s.stuck())
		s.Kill()
	}
}

// stuck says what a process does that ought to have ended.
func (s *Server) stuck() string {
	var threads strings.Builder
	tasks, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*", s.Pid()))
	for _, task := range tasks {
		name, _ := os.ReadFile(filepath.Join(task, "comm"))
		call, _ := os.ReadFile(filepath.Join(task, "syscall"))
		where, _ := os.ReadFile(filepath.Join(task, "wchan"))
		fmt.Fprintf(&threads, "%s: %s: %s\n", bytes.TrimSpace(name), where, bytes.TrimSpace(call))
	}
	tail := s.LogTail()
	if s.Kind != Cairn {
		// The Go runtime writes every goroutine's stack and ends.
		seen := len(s.Log())
		s.process.Process.Signal(syscall.SIGQUIT)
		select {
		case <-s.exited:
		case <-time.After(time.Second):
		}
		tail += "\n" + s.Log()[seen:]
	}
	return tail + "\n" + threads.String()
}

// Kill ends the process with SIGKILL.
func (s *Server) Kill() {
	if !s.running() {
		return
	}
	s.stopped = true
	s.process.Process.Kill()
	<-s.exited
}

// Signal sends a signal; the process may end from it.
func (s *Server) Signal(signal os.Signal) {
	s.stopped = true
	s.process.Process.Signal(signal)
}

// Pause stops the process until Resume.
func (s *Server) Pause() { s.process.Process.Signal(syscall.SIGSTOP) }

// Resume lets a paused process go on.
func (s *Server) Resume() { s.process.Process.Signal(syscall.SIGCONT) }

// Wait waits for the process to end by itself and returns its exit code, -1
// for a signal.
func (s *Server) Wait(limit time.Duration) (int, error) {
	select {
	case <-s.exited:
	case <-time.After(limit):
	}
	if s.running() {
		return 0, errors.New("the process is still running")
	}
	s.stopped = true
	return s.process.ProcessState.ExitCode(), nil
}

// Running says whether the process runs.
func (s *Server) Running() bool { return s.running() }

func (s *Server) running() bool {
	if s.process == nil {
		return false
	}
	select {
	case <-s.exited:
		return false
	default:
		return true
	}
}

// AwaitLog waits until the process has printed a text.
func (s *Server) AwaitLog(t testing.TB, text string) {
	t.Helper()
	for deadline := time.Now().Add(startMax); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		if strings.Contains(s.Log(), text) {
			return
		}
	}
	t.Fatalf("the log does not say %q:\n%s", text, s.LogTail())
}

// Log is everything that the process has printed.
func (s *Server) Log() string {
	content, err := os.ReadFile(s.logPath)
	if err != nil && !os.IsNotExist(err) {
		s.t.Fatal(err)
	}
	return string(content)
}

// LogTail is the end of the log, for messages.
func (s *Server) LogTail() string {
	log := s.Log()
	return log[max(0, len(log)-4000):]
}
