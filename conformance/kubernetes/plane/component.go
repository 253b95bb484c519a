package plane

import (
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
)

// Component is one program of the control plane.
type Component struct {
	// Place starts the process where it is to run; here if nil.
	Place func(start func() error) error

	name    string
	t       testing.TB
	binary  string
	flags   []string
	log     string
	process *exec.Cmd
	exited  chan struct{}
}

// NewComponent is a program that is not started. Its log is NAME.log in the
// folder.
func NewComponent(t testing.TB, dir, name, binary string, flags []string) *Component {
	return &Component{name: name, t: t, binary: binary, flags: flags, log: filepath.Join(dir, name+".log")}
}

// Start starts the program and does not wait for it.
func (c *Component) Start() {
	c.t.Helper()
	log, err := os.OpenFile(c.log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		c.t.Fatal(err)
	}
	defer log.Close()
	command := exec.Command(c.binary, c.flags...)
	command.Stdout, command.Stderr = log, log
	// A test process that is killed must not leave programs behind.
	command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	start := command.Start
	if c.Place != nil {
		start = func() error { return c.Place(command.Start) }
	}
	if err := start(); err != nil {
		c.t.Fatal(err)
	}
	exited := make(chan struct{})
	go func() {
		command.Wait()
		close(exited)
	}()
	c.process, c.exited = command, exited
	// It has no state of its own, and would wait for its clients on SIGTERM.
	c.t.Cleanup(func() {
		command.Process.Kill()
		<-exited
	})
}

// Kill ends the program with SIGKILL.
func (c *Component) Kill() {
	c.process.Process.Kill()
	<-c.exited
}

// Pid of the running process.
func (c *Component) Pid() int { return c.process.Process.Pid }

// Ended says whether the program is gone.
func (c *Component) Ended() bool {
	select {
	case <-c.exited:
		return true
	default:
		return false
	}
}

// LogTail is the end of the log, for messages.
func (c *Component) LogTail() string {
	content, err := os.ReadFile(c.log)
	if err != nil {
		return err.Error()
	}
	return string(content[max(0, len(content)-6000):])
}
