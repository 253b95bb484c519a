package clients

import (
	"bufio"
	"bytes"
	"os/exec"
	"strings"
	"testing"
	"time"

	"cairn.dev/conformance/harness"
)

// programMax ends a client that hangs.
const programMax = 3 * time.Minute

// areas are what every client is asked to do, in this order: the last turns
// authentication on, and off again.
var areas = []string{"kv", "txn", "watch", "lease", "lock", "auth"}

// inTheClear lists what is not tried without TLS.
var inTheClear = map[string]string{
	"python/auth": "its package sends credentials over TLS only",
}

// test runs a client's program against a server without TLS and against one
// that asks for TLS and a client's certificate.
func test(t *testing.T, install func(t *testing.T) program) {
	program := install(t)
	t.Run("plain", func(t *testing.T) {
		server := harness.Start(t, harness.Subject())
		program.run(t, "ENDPOINT="+server.Endpoint())
	})
	t.Run("tls", func(t *testing.T) {
		files := makeCertificates(t)
		server := startTLS(t, files)
		program.run(t, "ENDPOINT="+server.Endpoint(), "CA="+files.authority, "CERT="+files.client.certificate, "KEY="+files.client.key)
	})
}

// program is a client that is ready to run.
type program struct {
	name string
	// command runs it; the areas follow.
	command []string
	env     []string
}

// run has the program try each area and makes a subtest of each answer: a line
// `ok AREA` or `failed AREA: why`.
func (p program) run(t *testing.T, env ...string) {
	tried := areas
	if len(env) == 1 && inTheClear[p.name+"/auth"] != "" {
		tried = areas[:len(areas)-1]
	}
	command := exec.Command(p.command[0], append(p.command[1:], tried...)...)
	command.Env = append(append(command.Environ(), p.env...), env...)
	// Apart: threads of a package complain in the middle of a line.
	var output, complaints bytes.Buffer
	command.Stdout, command.Stderr = &output, &complaints
	command.WaitDelay = time.Second
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	timer := time.AfterFunc(programMax, func() { command.Process.Kill() })
	defer timer.Stop()
	err := command.Wait()
	for _, area := range tried {
		t.Run(area, func(t *testing.T) {
			switch answer, why := answerOf(output.Bytes(), area); answer {
			case "ok":
			case "failed":
				t.Error(why)
			default:
				t.Errorf("no answer (%v)", err)
			}
		})
	}
	if err != nil || t.Failed() {
		t.Errorf("%s: %v\n%s\n%s", p.name, err, output.Bytes(), complaints.Bytes())
	}
}

// answerOf finds the line of an area.
func answerOf(output []byte, area string) (answer, why string) {
	lines := bufio.NewScanner(bytes.NewReader(output))
	for lines.Scan() {
		answer, rest, _ := strings.Cut(lines.Text(), " ")
		name, why, _ := strings.Cut(rest, ": ")
		if name == area && (answer == "ok" || answer == "failed") {
			return answer, why
		}
	}
	return "", ""
}
