package checks

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"testing"
	"time"

	"cairn.dev/conformance/harness"
	"golang.org/x/sys/unix"
)

// topReport is what `cairn top --json` prints for each look.
type topReport struct {
	Leader  string
	Members []struct {
		Name, Role, Error string
		PutsPerSecond     float64
		FsyncP99Seconds   *float64
		Connections       float64
		StageP99Seconds   map[string]*float64
	}
	SampledWrites int
	Hottest       []struct {
		Prefix string
		Writes int
	}
}

// The page shows what a cluster does, also of a genuine one as far as that
// tells, and a member that is down as such.
func TestTop(t *testing.T) {
	if harness.Subject() == harness.Etcd {
		t.Skip("about our tool only")
	}
	for _, kind := range []harness.Kind{harness.Etcd, harness.Cairn} {
		t.Run(string(kind), func(t *testing.T) {
			cluster := harness.StartCluster(t, kind, 3, nil)
			client := cluster.Members[0].Client()
			ended := make(chan struct{})
			t.Cleanup(func() { <-ended })
			stop := make(chan struct{})
			go func() {
				defer close(ended)
				for i := 0; ; i++ {
					select {
					case <-stop:
						return
					default:
					}
					client.Put(t.Context(), fmt.Sprintf("/registry/%s/%d", []string{"pods", "pods", "pods", "leases"}[i%4], i%100), "value")
				}
			}()
			defer close(stop)
			look := func(args ...string) (found topReport, text string) {
				t.Helper()
				args = append([]string{"top", "--once", "--interval=1s", "--endpoints=" + cluster.Members[0].Endpoint()}, args...)
				result := cairn(t, args...)
				if result.Code != 0 {
					t.Fatalf("%v: %+v", args, result)
				}
				json.Unmarshal([]byte(result.Stdout), &found)
				return found, result.Stdout
			}
			// On a busy machine a look may be too short for writes.
			end := time.Now().Add(2 * time.Minute)
			again := func(is bool) bool { return !is && time.Now().Before(end) }
			found, text := look("--json")
			for again(found.isBusy()) {
				found, text = look("--json")
			}
			if !found.isBusy() || found.Leader == "" || found.Hottest[0].Prefix != "/registry/pods/" {
				t.Fatalf("%s", text)
			}
			roles, follower := map[string]int{}, 0
			for _, member := range found.Members {
				roles[member.Role]++
				// The client, and the page, talk to m0.
				if member.Name != "m0" && member.Role == "follower" {
					fmt.Sscanf(member.Name, "m%d", &follower)
				}
				// The stages of a write are those of the member that took it.
				if member.Name == "m0" && kind == harness.Cairn && (member.StageP99Seconds["log_sync"] == nil || member.StageP99Seconds["replication"] == nil) {
					t.Errorf("no stages: %s", text)
				}
			}
			if roles["leader"] != 1 || roles["follower"] != 2 {
				t.Errorf("roles: %v", roles)
			}
			// The leader goes on, and so do the writes.
			if follower == 0 {
				t.Fatalf("no follower: %s", text)
			}
			cluster.Members[follower].Kill()
			parts := []string{"2 of 3 members", "FSYNC P99", "HOTTEST PREFIXES", `"/registry/pods/"`, fmt.Sprintf("m%d         down", follower)}
			_, text = look()
			for again(lacks(text, parts) == nil) {
				_, text = look()
			}
			if missing := lacks(text, parts); missing != nil {
				t.Errorf("no %q in\n%s", missing, text)
			}
		})
	}
}

// isBusy tells whether there were enough writes, on all members, for what is
// said of them.
func (r topReport) isBusy() bool {
	for _, member := range r.Members {
		if member.PutsPerSecond <= 0 || member.FsyncP99Seconds == nil {
			return false
		}
	}
	return len(r.Members) == 3 && r.SampledWrites >= 20
}

// lacks are the parts that a text does not have.
func lacks(text string, parts []string) (missing []string) {
	for _, part := range parts {
		if !strings.Contains(text, part) {
			missing = append(missing, part)
		}
	}
	return missing
}

// A member that is added while the page is shown appears on it.
func TestTopOfGrowingCluster(t *testing.T) {
	if harness.Subject() == harness.Etcd {
		t.Skip("about our tool only")
	}
	cluster := harness.StartCluster(t, harness.Cairn, 1, nil)
	command := exec.Command(harness.CairnBinary(t), "top", "--json", "--interval=200ms", "--endpoints="+cluster.Members[0].Endpoint())
	command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	output, err := command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { command.Wait() })
	t.Cleanup(func() { command.Process.Kill() })
	defer time.AfterFunc(2*time.Minute, func() { command.Process.Kill() }).Stop()
	lines, line := bufio.NewScanner(output), ""
	await := func(members int) {
		t.Helper()
		for lines.Scan() {
			line = lines.Text()
			var found topReport
			if err := json.Unmarshal([]byte(line), &found); err != nil {
				t.Fatalf("%v: %s", err, line)
			}
			up := 0
			for _, member := range found.Members {
				if member.Error == "" {
					up++
				}
			}
			if up == members {
				return
			}
		}
		t.Fatalf("there were never %d members: %s", members, line)
	}
	await(1)
	cluster.Add(harness.Context(t), cluster.Client(0), harness.Cairn).Run()
	await(2)
}

// In a terminal it draws itself in its size, and leaves the terminal as it
// was, whichever signal ends it.
func TestTopInTerminal(t *testing.T) {
	server := harness.Start(t, harness.Cairn)
	for _, c := range []struct {
		columns, lines uint16
		signal         syscall.Signal
	}{{80, 24, syscall.SIGINT}, {200, 60, syscall.SIGTERM}, {80, 24, syscall.SIGHUP}} {
		text, code := inTerminal(t, c.columns, c.lines, c.signal, "top", "--interval=500ms", "--endpoints="+server.Endpoint())
		before, page, found := strings.Cut(text, "\x1b[?1049h")
		page, after, left := strings.Cut(page, "\x1b[?1049l")
		if code != 0 || !found || !left || strings.Contains(before+after, "cairn top") || strings.Count(page, "\x1b[H") < 2 {
			t.Fatalf("%v: exit %d: %q", c, code, text)
		}
		for _, drawn := range strings.Split(page, "\x1b[H")[1:] {
			lines := strings.Split(drawn, "\r\n")
			if len(lines) > int(c.lines) || !strings.HasPrefix(lines[0], "cairn top   1 of 1 members") {
				t.Errorf("%v: %d lines: %q", c, len(lines), drawn)
			}
			for _, line := range lines {
				if line, _, _ = strings.Cut(line, "\x1b[K"); len([]rune(line)) > int(c.columns) {
					t.Errorf("%v: %q", c, line)
				}
			}
			if wide := strings.Contains(drawn, "DATABASE"); wide != (c.columns == 200) {
				t.Errorf("%v: %q", c, drawn)
			}
		}
	}
	// A file is no terminal.
	if result := cairn(t, "top", "--endpoints="+server.Endpoint()); result.Code != 128 || result.Stdout != "" || !strings.Contains(result.Stderr, "--once") {
		t.Errorf("without a terminal: %+v", result)
	}
}

// inTerminal runs the binary in a terminal of its own. It is sent the signal
// when it has drawn two pages.
func inTerminal(t *testing.T, columns, lines uint16, sent syscall.Signal, args ...string) (text string, code int) {
	t.Helper()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	must(err)
	defer master.Close()
	must(unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0))
	number, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	must(err)
	must(unix.IoctlSetWinsize(int(master.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: lines, Col: columns}))
	slave, err := os.OpenFile(fmt.Sprint("/dev/pts/", number), os.O_RDWR|syscall.O_NOCTTY, 0)
	must(err)
	command := exec.Command(harness.CairnBinary(t), args...)
	command.Stdin, command.Stdout, command.Stderr = slave, slave, slave
	command.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true, Pdeathsig: syscall.SIGKILL}
	// One that is ignored here, as under nohup, would be there, too; one that is caught is not.
	caught := make(chan os.Signal, 1)
	signal.Notify(caught, sent)
	defer signal.Stop(caught)
	must(command.Start())
	slave.Close()
	defer time.AfterFunc(time.Minute, func() { command.Process.Kill() }).Stop()
	piece, isSent := make([]byte, 4096), false
	for {
		// It fails when the other side is closed.
		count, err := master.Read(piece)
		if err != nil {
			break
		}
		text += string(piece[:count])
		if !isSent && strings.Count(text, "\x1b[H") >= 2 {
			isSent = true
			command.Process.Signal(sent)
		}
	}
	command.Wait()
	return text, command.ProcessState.ExitCode()
}
