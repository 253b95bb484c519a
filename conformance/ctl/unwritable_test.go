package ctl

import (
	"errors"
	"os"
	"os/exec"
	"testing"

	"cairn.dev/conformance/harness"
)

// full opens a device to which nothing can be written.
func full(t *testing.T) *os.File {
	t.Helper()
	file, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { file.Close() })
	return file
}

// The tools end with the same codes where nothing can be said of why.
func TestUnwritable(t *testing.T) {
	server := harness.Start(t, harness.Cairn)
	for _, args := range [][]string{
		{"nonsense"}, {"get"}, {"get", "--nonsense"}, {"put", "a", "b"}, {"help", "nonsense"}, {"role", "get", "nobody"}, {"del", "a", "b"},
	} {
		codes := []int{}
		for _, tool := range []string{harness.Tool(t, "etcdctl"), ours(t)} {
			command := exec.Command(tool, append([]string{"--endpoints=" + server.Endpoint()}, args...)...)
			command.Stderr = full(t)
			err := command.Run()
			var ended *exec.ExitError
			if err != nil && !errors.As(err, &ended) {
				t.Fatal(err)
			}
			codes = append(codes, command.ProcessState.ExitCode())
		}
		if codes[0] != codes[1] {
			t.Errorf("%v: exit %d, etcd's %d", args, codes[1], codes[0])
		}
	}
}
