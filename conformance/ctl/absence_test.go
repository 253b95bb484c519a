package ctl

import (
	"fmt"
	"net"
	"os/exec"
	"strings"
	"testing"
	"time"

	"cairn.dev/conformance/harness"
)

// A member that takes connections and never speaks holds nobody up, however
// long connecting may take: with neither tool.
func TestHungMember(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	server := harness.Start(t, harness.Cairn)
	for _, tool := range []string{harness.Tool(t, "etcdctl"), ours(t)} {
		for _, patience := range []string{"0", "60s"} {
			begun := time.Now()
			result := harness.Command{Path: tool, Args: []string{
				"--endpoints=" + listener.Addr().String() + "," + server.Endpoint(), "--dial-timeout=" + patience,
				"--command-timeout=60s", "put", "a", "b",
			}}.Run(t)
			// Far from both times: the machine may be busy.
			if took := time.Since(begun); result.Code != 0 || took > 45*time.Second {
				t.Errorf("%s with %s to connect: %+v after %v", tool, patience, result, took)
			}
		}
	}
}

// Members that are away are asked at the same time: one after the other would
// take the time of a command for each.
func TestHealthOfManyAway(t *testing.T) {
	harness.Attempt(t, func() error {
		begun := time.Now()
		result := harness.Command{Path: ours(t), Args: []string{
			"--endpoints=127.0.0.1:1,127.0.0.1:2,127.0.0.1:3", "--command-timeout=5s", "endpoint", "health",
		}}.Run(t)
		if took := time.Since(begun); result.Code != 1 || took > 12*time.Second {
			return fmt.Errorf("%+v after %v", result, took)
		}
		return nil
	})
}

// A mirror waits for its destination, however long that is away, and misses
// nothing.
func TestMirrorCatchesUp(t *testing.T) {
	from, to := harness.Start(t, harness.Cairn), harness.Start(t, harness.Cairn)
	begin(t, "--endpoints="+from.Endpoint(), "--command-timeout=1s", "make-mirror", to.Endpoint())
	from.MustCtl("put", "before", "1")
	await(t, to.Client(), "before")
	to.Stop()
	from.MustCtl("put", "meanwhile", "2")
	time.Sleep(8 * time.Second)
	to.Run()
	from.MustCtl("put", "behind", "3")
	await(t, to.Client(), "behind")
	await(t, to.Client(), "meanwhile")
}

// The program of a lock reads nothing of what its caller is to read.
func TestProgramsLeaveInput(t *testing.T) {
	server := harness.Start(t, harness.Cairn)
	for _, tool := range []string{harness.Tool(t, "etcdctl"), ours(t)} {
		command := exec.Command("sh", "-c", `while read x; do "$0" --endpoints=$1 lock W -- cat; echo $x; done`, tool, server.Endpoint())
		command.Stdin = strings.NewReader("1\n2\n3\n")
		if said, err := command.Output(); err != nil || string(said) != "1\n2\n3\n" {
			t.Errorf("%s: %q, %v", tool, said, err)
		}
	}
}

// Lines of `watch -i` are bytes, and what was asked of nobody is not answered
// later.
func TestInteractiveLines(t *testing.T) {
	server := harness.Start(t, harness.Cairn)
	server.MustCtl("put", "\xff", "found")
	for _, tool := range []string{harness.Tool(t, "etcdctl"), ours(t)} {
		lines := `(printf 'progress\nwatch \377 --rev=1\n'; sleep 3) | "$0" --endpoints=$1 watch -i`
		harness.Attempt(t, func() error {
			said, _ := exec.Command("sh", "-c", lines, tool, server.Endpoint()).Output()
			if string(said) != "PUT\n\xff\nfound\n" {
				return fmt.Errorf("%s: %q", tool, said)
			}
			return nil
		})
	}
}
