package proxies

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"go.yaml.in/yaml/v2"

	"cairn.dev/conformance/harness"
)

// Each service of deploy/compose-proxy.yaml runs a program that is in the
// image, and serves what the members have: its command, with the addresses of
// this machine in the place of those of containers.
func TestCompose(t *testing.T) {
	t.Parallel()
	if harness.Subject() == harness.Etcd {
		t.Skip("about Cairn's image")
	}
	read := func(path string) []byte {
		text, err := os.ReadFile(filepath.Join("..", "..", path))
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	var file struct {
		Services map[string]struct {
			Command []string
			Ports   []string
		}
	}
	if err := yaml.Unmarshal(read("deploy/compose-proxy.yaml"), &file); err != nil {
		t.Fatal(err)
	}
	if len(file.Services) != 3 {
		t.Errorf("there are %d services", len(file.Services))
	}
	// The image has no program that the first word would be an argument of.
	links := regexp.MustCompile(`(?m)^for name in (.*); do ln -s cairn `).FindSubmatch(read("packaging/rootfs"))
	if links == nil {
		t.Fatal("packaging/rootfs has no names of programs")
	}
	programs := append(strings.Fields(string(links[1])), "cairn")

	ctx := harness.Context(t)
	cluster := harness.StartCluster(t, harness.Subject(), 3, nil)
	mustPut(ctx, t, cluster.Client(), "a", "v")
	for name, service := range file.Services {
		if len(service.Ports) != 1 || len(service.Command) < 3 || !slices.Contains(programs, service.Command[0]) {
			t.Errorf("%s: the image has no program for %q, ports %q", name, service.Command, service.Ports)
			continue
		}
		dir, inside := t.TempDir(), service.Ports[0][strings.LastIndex(service.Ports[0], ":"):]
		own, peer := fmt.Sprintf("127.0.0.1:%d", harness.Port(t)), fmt.Sprintf("127.0.0.1:%d", harness.Port(t))
		places := []string{"0.0.0.0" + inside, own, name + ":2379", own, "0.0.0.0:2380", peer, name + ":2380", peer, "/var/lib/etcd", dir}
		for number, member := range cluster.Members {
			places = append(places, fmt.Sprintf("m%d:2379", number+1), member.Endpoint(), fmt.Sprintf("http://m%d:2380", number+1), member.PeerURL())
		}
		words := strings.Split(strings.NewReplacer(places...).Replace(strings.Join(service.Command[1:], "\n")), "\n")
		log, err := os.Create(filepath.Join(dir, "log"))
		if err != nil {
			t.Fatal(err)
		}
		defer log.Close()
		command := exec.Command(harness.Binary(t, harness.Subject()), words...)
		command.Dir, command.Stdout, command.Stderr = dir, log, log
		command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		if err := command.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			command.Process.Kill()
			command.Wait()
		})
		front := &proxy{address: own, pid: command.Process.Pid, logPath: log.Name()}
		await(t, name+" is not ready", func() bool {
			text := front.log(t)
			return strings.Contains(text, "ready to proxy client requests") || strings.Contains(text, "started gRPC proxy") ||
				strings.Contains(text, "ready to serve client requests")
		})
		reads(ctx, t, clientOf(t, front), "a", "v")
	}
}
