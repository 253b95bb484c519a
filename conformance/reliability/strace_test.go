package reliability

import (
	"bufio"
	"bytes"
	"encoding/hex"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"cairn.dev/conformance/harness"
)

// syscallRecord is one system call of the server. Begin and end are positions
// in the order in which strace saw calls begin and end.
type syscallRecord struct {
	begin, end int
	name       string
	file       string // path or socket behind the first argument
	data       []byte // what was read or written
	result     int64  // negative: failed
}

func (r syscallRecord) isSync() bool {
	return r.name == "fdatasync" || r.name == "fsync"
}

func (r syscallRecord) isWrite() bool {
	switch r.name {
	case "write", "writev", "pwrite64", "pwritev", "pwritev2", "sendto", "sendmsg":
		return true
	}
	return false
}

// trace is strace attached to a running server.
type trace struct {
	t       testing.TB
	path    string
	pid     int // of the server
	command *exec.Cmd
}

const tracedCalls = "fdatasync,fsync,read,readv,recvfrom,recvmsg,write,writev,pwrite64,pwritev,pwritev2,sendto,sendmsg"

// startTrace attaches strace and returns once it sees all threads.
func startTrace(t testing.TB, server *harness.Server, options ...string) *trace {
	t.Helper()
	if _, err := exec.LookPath("strace"); err != nil {
		harness.Unproved(t, "strace is not installed")
	}
	tr := &trace{t: t, path: filepath.Join(t.TempDir(), "strace"), pid: server.Pid()}
	arguments := append([]string{"-f", "-yy", "-xx", "-s", "16777216", "-e", "trace=" + tracedCalls,
		"-e", "signal=none", "-o", tr.path, "-p", fmt.Sprint(server.Pid())}, options...)
	tr.command = exec.Command("strace", arguments...)
	stderr, err := tr.command.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := tr.command.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(tr.stop)
	attached := make(chan string, 1)
	report := func(problem string) {
		select {
		case attached <- problem:
		default: // the first report decides
		}
	}
	go func() {
		lines := bufio.NewScanner(stderr)
		var all []string
		for lines.Scan() {
			all = append(all, lines.Text())
			if strings.Contains(lines.Text(), "attached") {
				report("")
			}
		}
		report("cannot attach: " + strings.Join(all, "\n"))
	}()
	select {
	case problem := <-attached:
		if problem != "" {
			harness.Unproved(t, "strace "+problem)
		}
	case <-time.After(time.Minute):
		t.Fatal("strace does not attach")
	}
	return tr
}

// stop detaches; the server goes on.
func (tr *trace) stop() {
	if tr.command.ProcessState == nil {
		tr.command.Process.Signal(os.Interrupt)
		tr.command.Wait()
	}
}

var (
	callLine    = regexp.MustCompile(`^(\d+) +(\w+)\(\d+<(.*?)>[,)]`)
	resumedLine = regexp.MustCompile(`^(\d+) +<\.\.\. (\w+) resumed>`)
	resultText  = regexp.MustCompile(`\) += (-?\d+)[^"]*$`)
	stringText  = regexp.MustCompile(`"((?:\\x[0-9a-f]{2})*)"`)
)

// settle waits until strace has written down what the server has done: a client
// has its answer before that, and the thread that sent it does not sleep until
// strace has seen the end of the call.
func (tr *trace) settle() {
	tr.t.Helper()
	time.Sleep(200 * time.Millisecond)
	await(tr.t, "a server at rest", func() bool {
		states, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/status", tr.pid))
		for _, state := range states {
			if text, err := os.ReadFile(state); err == nil && !strings.Contains(string(text), "State:\tS") {
				return false
			}
		}
		return true
	})
}

// records parses what strace has written.
func (tr *trace) records() []syscallRecord {
	tr.t.Helper()
	tr.settle()
	tr.stop()
	file, err := os.Open(tr.path)
	if err != nil {
		tr.t.Fatal(err)
	}
	defer file.Close()
	var found []syscallRecord
	type started struct {
		line string
		at   int
	}
	unfinished := map[string]started{} // by thread
	reader := bufio.NewReaderSize(file, 1<<20)
	for at := 0; ; at++ {
		raw, err := reader.ReadBytes('\n')
		if err != nil {
			return found
		}
		line, begin := string(bytes.TrimRight(raw, "\n")), at
		if head, ok := strings.CutSuffix(line, " <unfinished ...>"); ok {
			if thread, _, ok := strings.Cut(line, " "); ok {
				unfinished[thread] = started{head, at}
			}
			continue
		}
		if match := resumedLine.FindStringSubmatch(line); match != nil {
			first, ok := unfinished[match[1]]
			if !ok {
				continue
			}
			delete(unfinished, match[1])
			// A resumed call goes on where its first part was cut.
			line, begin = first.line+line[len(match[0]):], first.at
		}
		if record, ok := parseCall(line); ok {
			record.begin, record.end = begin, at
			found = append(found, record)
		}
	}
}

func parseCall(line string) (syscallRecord, bool) {
	head := callLine.FindStringSubmatch(line)
	result := resultText.FindStringSubmatch(line)
	if head == nil {
		return syscallRecord{}, false
	}
	record := syscallRecord{name: head[2], file: unhex(head[3]), result: -1}
	if result != nil {
		record.result, _ = strconv.ParseInt(result[1], 10, 64)
	}
	if record.isSync() || record.result <= 0 {
		return record, true
	}
	rest := line[len(head[0]):]
	for _, part := range stringText.FindAllStringSubmatch(rest, -1) {
		record.data = append(record.data, unhex(part[1])...)
		if int64(len(record.data)) >= record.result {
			record.data = record.data[:record.result]
			break
		}
	}
	return record, true
}

func unhex(text string) string {
	if !strings.HasPrefix(text, `\x`) {
		return text
	}
	plain, err := hex.DecodeString(strings.ReplaceAll(text, `\x`, ""))
	if err != nil {
		return text
	}
	return string(plain)
}
