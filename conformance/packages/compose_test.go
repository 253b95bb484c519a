package packages

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"maps"
	"math/big"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.yaml.in/yaml/v2"

	"cairn.dev/conformance/network"
)

// container is one service of a compose file, with what of it concerns the image.
type container struct {
	Command     words
	Environment map[string]string
	Volumes     []string
}

// words are a command, which compose files write as a line or as a list.
type words []string

func (w *words) UnmarshalYAML(read func(any) error) error {
	var list []string
	if read(&list) == nil {
		*w = list
		return nil
	}
	var line string
	if err := read(&line); err != nil {
		return err
	}
	*w = strings.Fields(line)
	return nil
}

// services reads a compose file.
func services(t *testing.T, path string) map[string]container {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var file struct{ Services map[string]container }
	if err := yaml.Unmarshal(content, &file); err != nil {
		t.Fatal(err)
	}
	return file.Services
}

// composed are containers of one image by buildah, which needs no daemon. Each is in a network of its own and finds the others by the names of
// their services, as with compose; so all of them can use the ports of the image.
type composed struct {
	t        *testing.T
	links    *network.Network
	buildah  []string
	bare     []string
	services map[string]container
	places   map[string]int
	volumes  string
	kills    []func() error
	running  sync.WaitGroup
}

// compose makes a container for each service, and one for tools. Nothing runs in them yet.
func compose(t *testing.T, image string, services map[string]container) *composed {
	t.Helper()
	dir := t.TempDir()
	c := &composed{
		t:        t,
		links:    network.New(t, len(services)),
		buildah:  []string{"buildah", "--root=" + dir + "/root", "--runroot=" + dir + "/runroot", "--storage-driver=vfs"},
		bare:     open(t, image).Cmd,
		services: services,
		places:   map[string]int{},
		volumes:  filepath.Join(dir, "volumes"),
	}
	var hosts []string
	for place, name := range slices.Sorted(maps.Keys(services)) {
		c.places[name] = place
		hosts = append(hosts, "--add-host="+name+":"+c.links.Host(place))
	}
	call := func(args ...string) string {
		var failure bytes.Buffer
		command := exec.Command(c.buildah[0], append(slices.Clone(c.buildah[1:]), args...)...)
		command.Stderr = &failure
		output, err := command.Output()
		if err != nil {
			t.Fatalf("buildah %v: %v\n%s", args, err, failure.Bytes())
		}
		return strings.TrimSpace(string(output))
	}
	id := call("pull", "--quiet", "oci-archive:"+image)
	for _, name := range append(slices.Collect(maps.Keys(services)), "tools") {
		call(append([]string{"from", "--pull=never", "--name=" + name}, append(hosts, id)...)...)
	}
	t.Cleanup(c.kill)
	return c
}

// command is what runs words in a container. It ends with all that it has started.
func (c *composed) command(name string, options, words []string) *exec.Cmd {
	line := append([]string{"unshare", "--pid", "--fork", "--kill-child", "--mount-proc"}, c.buildah...)
	line = append(append(line, "run", "--isolation=chroot"), options...)
	line = append(append(line, name, "--"), words...)
	command := exec.Command(line[0], line[1:]...)
	command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	return command
}

// up starts every service, with what its volumes already hold, and waits until all are ready.
func (c *composed) up() {
	c.t.Helper()
	logs, ended := map[string]*os.File{}, make(chan string, len(c.services))
	for name, service := range c.services {
		words, options := []string(service.Command), []string{}
		if len(words) == 0 {
			words = c.bare
		}
		for variable, value := range service.Environment {
			options = append(options, "--env="+variable+"="+value)
		}
		for _, volume := range service.Volumes {
			from, to, _ := strings.Cut(volume, ":")
			if !filepath.IsAbs(from) {
				from = filepath.Join(c.volumes, from)
				if err := os.MkdirAll(from, 0o700); err != nil {
					c.t.Fatal(err)
				}
			}
			options = append(options, "--volume="+from+":"+to)
		}
		log, err := os.CreateTemp(c.t.TempDir(), name)
		if err != nil {
			c.t.Fatal(err)
		}
		defer log.Close()
		logs[name] = log
		command := c.command(name, options, words)
		command.Stdout, command.Stderr = log, log
		if err := c.links.Run(c.places[name], command.Start); err != nil {
			c.t.Fatal(err)
		}
		c.running.Go(func() {
			command.Wait()
			ended <- name
		})
		c.kills = append(c.kills, command.Process.Kill)
	}
	read := func(name string) string {
		content, err := os.ReadFile(logs[name].Name())
		if err != nil {
			c.t.Fatal(err)
		}
		return string(content)
	}
	// Generous, since buildah does much before it starts a program, and the machine may be busy.
	deadline := time.After(10 * time.Minute)
	for name := range logs {
		for !strings.Contains(read(name), "ready to serve client requests") {
			select {
			case <-time.After(50 * time.Millisecond):
			case other := <-ended:
				c.t.Fatalf("%s has ended:\n%s", other, read(other))
			case <-deadline:
				c.t.Fatalf("%s is not ready:\n%s", name, read(name))
			}
		}
	}
}

// kill kills all services, as at a power cut.
func (c *composed) kill() {
	for _, kill := range c.kills {
		kill()
	}
	c.running.Wait()
	c.kills = nil
}

// tool runs `IMAGE words` to its end in the clients' network.
func (c *composed) tool(options []string, words ...string) string {
	c.t.Helper()
	var output, failure bytes.Buffer
	command := c.command("tools", options, words)
	command.Stdout, command.Stderr = &output, &failure
	if err := c.links.RunClient(command.Start); err != nil {
		c.t.Fatal(err)
	}
	if err := command.Wait(); err != nil {
		c.t.Fatalf("%v: %v\n%s%s", words, err, output.Bytes(), failure.Bytes())
	}
	return output.String()
}

// get is the value of a key at an endpoint.
func (c *composed) get(options []string, key string, flags ...string) string {
	c.t.Helper()
	return strings.TrimSpace(c.tool(options, append([]string{"etcdctl", "get", key, "--print-value-only"}, flags...)...))
}

// daprs is the compose file that dapr runs its conformance tests with, as its module has it.
func daprs(t *testing.T) string {
	t.Helper()
	var module struct{ Dir string }
	if err := json.Unmarshal([]byte(run(t, "go", "mod", "download", "-json", "github.com/dapr/components-contrib@v1.18.0")), &module); err != nil {
		t.Fatal(err)
	}
	return filepath.Join(module.Dir, ".github/infrastructure/docker-compose-etcd.yml")
}

// jetcds are the three containers that the launcher of jetcd's tests starts for a cluster with TLS. It has no compose file.
func jetcds(certificates string) map[string]container {
	names, members := []string{"etcd0", "etcd1", "etcd2"}, []string{}
	for _, name := range names {
		members = append(members, name+"=http://"+name+":2380")
	}
	started := map[string]container{}
	for _, name := range names {
		started[name] = container{
			Command: []string{
				"etcd", "--name", name, "--advertise-client-urls", "https://0.0.0.0:2379", "--listen-client-urls", "https://0.0.0.0:2379",
				"--data-dir", "/data.etcd", "--cert-file", "/etc/ssl/etcd/server.pem", "--key-file", "/etc/ssl/etcd/server-key.pem",
				"--initial-advertise-peer-urls", "http://" + name + ":2380", "--listen-peer-urls", "http://0.0.0.0:2380",
				"--initial-cluster-token", "jetcd", "--initial-cluster", strings.Join(members, ","), "--initial-cluster-state", "new",
			},
			Volumes: []string{name + ":/data.etcd", certificates + ":/etc/ssl/etcd:ro"},
		}
	}
	return started
}

// certify writes a certificate that is its own authority, and its key, under the names that jetcd's launcher gives them.
func certify(t *testing.T, names ...string) string {
	t.Helper()
	dir := t.TempDir()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "etcd"}, DNSNames: names, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	certificate, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	for name, block := range map[string]*pem.Block{
		"server.pem": {Type: "CERTIFICATE", Bytes: certificate}, "server-key.pem": {Type: "PRIVATE KEY", Bytes: secret},
	} {
		if err := os.WriteFile(filepath.Join(dir, name), pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// The image does what compose files, ours and other people's, ask of etcd's: they give the program, its flags and its environment.
func TestCompose(t *testing.T) {
	image := release(t, first) + "-linux-amd64-image.tar"
	needs(t, "buildah", "unshare", "ip")
	const url = "--endpoints=http://%s:2379"
	t.Run("ours", func(t *testing.T) {
		containers := compose(t, image, services(t, filepath.Join(root, "deploy/compose.yaml")))
		if len(containers.services) != 3 {
			t.Fatalf("%d services", len(containers.services))
		}
		containers.up()
		containers.tool(nil, "etcdctl", fmt.Sprintf(url, "m1"), "put", "greeting", "hello")
		for name := range containers.services {
			if got := containers.get(nil, "greeting", fmt.Sprintf(url, name)); got != "hello" {
				t.Errorf("%s has %q", name, got)
			}
		}
	})
	t.Run("dapr", func(t *testing.T) {
		containers := compose(t, image, services(t, daprs(t)))
		if len(containers.services) != 1 || len(containers.services["etcd"].Command) == 0 {
			t.Fatalf("services %v", containers.services)
		}
		containers.up()
		containers.tool(nil, "etcdctl", fmt.Sprintf(url, "etcd"), "put", "greeting", "hello")
		if got := containers.get(nil, "greeting", fmt.Sprintf(url, "etcd")); got != "hello" {
			t.Errorf("got %q", got)
		}
	})
	t.Run("jetcd", func(t *testing.T) {
		certificates := certify(t, "etcd0", "etcd1", "etcd2")
		containers := compose(t, image, jetcds(certificates))
		trust := []string{"--volume=" + certificates + ":/etc/ssl/etcd:ro"}
		flags := []string{"--endpoints=https://etcd0:2379,https://etcd1:2379,https://etcd2:2379", "--cacert=/etc/ssl/etcd/server.pem"}
		containers.up()
		containers.tool(trust, append([]string{"etcdctl", "put", "greeting", "hello"}, flags...)...)
		// It starts its containers again on the same data.
		containers.kill()
		containers.up()
		if got := containers.get(trust, "greeting", flags...); got != "hello" {
			t.Errorf("got %q after a restart", got)
		}
	})
}
