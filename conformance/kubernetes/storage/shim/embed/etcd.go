package embed

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"time"
)

const (
	readyText = "ready to serve client requests"
	// tailMax is how much of the log an error quotes.
	tailMax = 4000
	stopMax = 20 * time.Second
)

// Etcd is a process that runs.
type Etcd struct {
	// Server is what the tests ask.
	Server *Server

	config  *Config
	process *exec.Cmd
	log     *log
	errors  chan error
	exited  chan struct{}
	closing sync.Once
	closed  chan struct{}
}

// Server answers what the tests want to know of the process.
type Server struct{ etcd *Etcd }

// Cluster has the members, of which there is one.
type Cluster struct{ config *Config }

// StartEtcd starts the process and does not wait until it is ready.
func StartEtcd(config *Config) (*Etcd, error) {
	binary := os.Getenv("ETCD_BINARY")
	if !filepath.IsAbs(binary) {
		return nil, fmt.Errorf("ETCD_BINARY=%q is not the path of a server", binary)
	}
	e := &Etcd{
		config: config, log: &log{ready: make(chan struct{})},
		errors: make(chan error, 1), exited: make(chan struct{}), closed: make(chan struct{}),
	}
	e.Server = &Server{e}
	e.process = exec.Command(binary, config.flags()...)
	e.process.Stdout, e.process.Stderr = e.log, e.log
	// A test process that is killed must not leave servers behind.
	e.process.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := e.process.Start(); err != nil {
		return nil, err
	}
	go e.wait()
	return e, nil
}

// wait tells of a process that ends by itself.
func (e *Etcd) wait() {
	err := e.process.Wait()
	select {
	case <-e.closed:
	default:
		e.errors <- fmt.Errorf("the server ended: %v\n%s", err, e.log.tail())
	}
	close(e.errors)
	close(e.exited)
}

// Err has an error if the process ends by itself, and is closed when it has
// ended.
func (e *Etcd) Err() <-chan error { return e.errors }

// Pid of the process.
func (e *Etcd) Pid() int { return e.process.Process.Pid }

// Close ends the process and waits for it.
func (e *Etcd) Close() {
	e.closing.Do(func() {
		close(e.closed)
		e.process.Process.Signal(syscall.SIGTERM)
	})
	select {
	case <-e.exited:
	case <-time.After(stopMax):
		e.process.Process.Kill()
		<-e.exited
		panic(errors.New("the server did not end on SIGTERM\n" + e.log.tail()))
	}
}

// ReadyNotify is closed when the process serves clients.
func (s *Server) ReadyNotify() <-chan struct{} { return s.etcd.log.ready }

// Stop ends the process.
func (s *Server) Stop() { s.etcd.Close() }

// Cluster has what the members advertise.
func (s *Server) Cluster() *Cluster { return &Cluster{s.etcd.config} }

// ClientURLs are the advertised ones.
func (c *Cluster) ClientURLs() []string {
	var all []string
	for _, one := range c.config.AdvertiseClientUrls {
		all = append(all, one.String())
	}
	return all
}

// log keeps the end of what the process prints and waits for the line that
// says that it is ready.
type log struct {
	mutex sync.Mutex
	text  []byte
	seen  bool
	ready chan struct{}
}

// Write takes a piece of the log.
func (l *log) Write(piece []byte) (int, error) {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	l.text = append(l.text, piece...)
	if !l.seen && bytes.Contains(l.text, []byte(readyText)) {
		l.seen = true
		close(l.ready)
	}
	if over := len(l.text) - 2*tailMax; over > 0 {
		l.text = append([]byte(nil), l.text[over:]...)
	}
	return len(piece), nil
}

func (l *log) tail() string {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	return string(l.text[max(0, len(l.text)-tailMax):])
}
