package harness

import (
	"bytes"
	"context"
	"errors"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"
)

// Result is what a finished command left.
type Result struct {
	Stdout, Stderr string
	// Code is the exit code, -1 if the command was ended by a signal.
	Code int
}

// Command is one run of a tool.
type Command struct {
	Path  string
	Args  []string
	Stdin string
	Env   []string
	// Max is how long the command may run before it is killed; 60 s if zero.
	Max time.Duration
	// Lines ends the command once it has printed that many lines: for `watch`,
	// which never ends by itself.
	Lines int
}

// Run runs the command to its end.
func (c Command) Run(t testing.TB) Result {
	t.Helper()
	if c.Max == 0 {
		c.Max = 60 * time.Second
	}
	ctx, cancel := context.WithTimeout(context.Background(), c.Max)
	defer cancel()
	command := exec.CommandContext(ctx, c.Path, c.Args...)
	command.Env = append(plainEnvironment(), c.Env...)
	command.Stdin = strings.NewReader(c.Stdin)
	command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	command.WaitDelay = time.Second
	stdout := &lineBuffer{lines: c.Lines, enough: cancel}
	var stderr bytes.Buffer
	command.Stdout, command.Stderr = stdout, &stderr
	err := command.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) && ctx.Err() == nil {
		t.Fatalf("run `%s`: %v", c.Path, err)
	}
	return Result{Stdout: stdout.text.String(), Stderr: stderr.String(), Code: command.ProcessState.ExitCode()}
}

// lineBuffer keeps what is written and tells when it has the wanted number of
// lines.
type lineBuffer struct {
	text   bytes.Buffer
	lines  int
	enough func()
}

func (b *lineBuffer) Write(part []byte) (int, error) {
	b.text.Write(part)
	if b.lines > 0 && bytes.Count(b.text.Bytes(), []byte("\n")) >= b.lines {
		b.enough()
	}
	return len(part), nil
}

// CtlPatience is the time that etcdctl is given unless a test says otherwise:
// its own 5 s are few where a member does not get a processor for seconds.
const CtlPatience = "--command-timeout=20s"

// Ctl runs etcdctl against the server.
func (s *Server) Ctl(args ...string) Result {
	s.t.Helper()
	args = append([]string{CtlPatience, "--endpoints=" + s.Endpoint()}, args...)
	return Command{Path: Tool(s.t, "etcdctl"), Args: args}.Run(s.t)
}

// MustCtl is Ctl for commands that must succeed; it returns the output.
func (s *Server) MustCtl(args ...string) string {
	s.t.Helper()
	result := s.Ctl(args...)
	if result.Code != 0 {
		s.t.Fatalf("etcdctl %v: exit %d\n%s%s", args, result.Code, result.Stdout, result.Stderr)
	}
	return result.Stdout
}
