package harness

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// Proxy is a running program that passes clients on to members: `gateway
// start` or `grpc-proxy start`.
type Proxy struct {
	// Address is where it listens, host and port.
	Address string
	PID     int
	LogPath string

	t       testing.TB
	kind    Kind
	ready   string
	args    []string
	command *exec.Cmd
	ended   chan struct{}
	// isKilled: its end is the test's doing.
	isKilled *atomic.Bool
}

// StartGateway starts a gateway to the endpoints, and waits until it is ready.
func StartGateway(t testing.TB, endpoints []string, flags ...string) *Proxy {
	t.Helper()
	all := []string{"gateway", "start", "--endpoints=" + strings.Join(endpoints, ",")}
	return StartProxy(t, "ready to proxy client requests", append(all, flags...))
}

// StartGrpcProxy starts a gRPC proxy before the endpoints, and waits until it
// is ready.
func StartGrpcProxy(t testing.TB, endpoints []string, flags ...string) *Proxy {
	t.Helper()
	all := []string{"grpc-proxy", "start", "--endpoints=" + strings.Join(endpoints, ","), "--advertise-client-url="}
	return StartProxy(t, "started gRPC proxy", append(all, flags...))
}

// StartGrpcProxyOf is StartGrpcProxy with the program of this kind.
func StartGrpcProxyOf(t testing.TB, kind Kind, endpoints []string, flags ...string) *Proxy {
	t.Helper()
	all := []string{"grpc-proxy", "start", "--endpoints=" + strings.Join(endpoints, ","), "--advertise-client-url="}
	return startProxyOf(t, kind, "started gRPC proxy", append(all, flags...))
}

// StartProxy starts a program of the server under test at an address of its
// own, waits until its log says that it is ready, and ends it with the test.
func StartProxy(t testing.TB, ready string, args []string) *Proxy {
	t.Helper()
	return startProxyOf(t, Subject(), ready, args)
}

func startProxyOf(t testing.TB, kind Kind, ready string, args []string) *Proxy {
	t.Helper()
	p := &Proxy{
		Address: fmt.Sprintf("127.0.0.1:%d", Port(t)), LogPath: filepath.Join(t.TempDir(), "log"),
		t: t, kind: kind, ready: ready, args: args,
	}
	t.Cleanup(func() {
		if p.command == nil {
			return
		}
		select {
		case <-p.ended:
			if !p.isKilled.Load() {
				t.Errorf("`%s` ended by itself: %v\n%s", args[0], p.command.ProcessState, p.Log())
			}
		default:
		}
		p.Kill()
	})
	p.Run()
	return p
}

// Run starts the program, anew after Kill, and waits until it is ready.
func (p *Proxy) Run() {
	p.t.Helper()
	log, err := os.Create(p.LogPath)
	if err != nil {
		p.t.Fatal(err)
	}
	defer log.Close()
	command := exec.Command(Binary(p.t, p.kind), append(p.args, "--listen-addr="+p.Address)...)
	command.Dir = filepath.Dir(p.LogPath)
	command.Stdout, command.Stderr = log, log
	// A test process that is killed must not leave it behind.
	command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := command.Start(); err != nil {
		p.t.Fatal(err)
	}
	ended := make(chan struct{})
	p.command, p.ended, p.isKilled, p.PID = command, ended, &atomic.Bool{}, command.Process.Pid
	go func() {
		command.Wait()
		close(ended)
	}()
	for deadline := time.Now().Add(startMax); !strings.Contains(p.Log(), p.ready); time.Sleep(10 * time.Millisecond) {
		select {
		case <-ended:
			p.t.Fatalf("`%s` ended: %v\n%s", p.args[0], command.ProcessState, p.Log())
		default:
		}
		if time.Now().After(deadline) {
			p.t.Fatalf("`%s` is not ready after %v\n%s", p.args[0], startMax, p.Log())
		}
	}
}

// Kill ends the program at once.
func (p *Proxy) Kill() {
	p.isKilled.Store(true)
	p.command.Process.Kill()
	<-p.ended
}

// Log is everything that the program has printed since it was started last.
func (p *Proxy) Log() string {
	p.t.Helper()
	text, err := os.ReadFile(p.LogPath)
	if err != nil {
		p.t.Fatal(err)
	}
	return string(text)
}
