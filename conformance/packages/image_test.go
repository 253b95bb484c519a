package packages

import (
	"crypto/x509"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"cairn.dev/conformance/harness"
	certificates "cairn.dev/conformance/tls"
)

// image is an unpacked image, and what it is configured to run.
type image struct {
	t    *testing.T
	root string
	User string
	Cmd,
	Env,
	Entrypoint []string
	WorkingDir   string
	ExposedPorts map[string]struct{}
	Labels       map[string]string
}

// open unpacks an image of a release.
func open(t *testing.T, path string) *image {
	t.Helper()
	dir := t.TempDir()
	run(t, "tar", "-C", dir, "-xf", path)
	read := func(path string, into any) {
		content, err := os.ReadFile(filepath.Join(dir, path))
		if err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(content, into); err != nil {
			t.Fatal(err)
		}
	}
	blob := func(digest string) string { return "blobs/" + strings.Replace(digest, ":", "/", 1) }
	type descriptor struct{ Digest string }
	var index struct{ Manifests []descriptor }
	read("index.json", &index)
	var manifest struct {
		Config descriptor
		Layers []descriptor
	}
	read(blob(index.Manifests[0].Digest), &manifest)
	config := struct {
		Architecture, OS string
		Config           image
	}{}
	read(blob(manifest.Config.Digest), &config)
	opened := &config.Config
	opened.t, opened.root = t, filepath.Join(dir, "root")
	if config.Architecture != "amd64" || config.OS != "linux" {
		t.Errorf("the image is for %s, %s", config.OS, config.Architecture)
	}
	run(t, "mkdir", opened.root)
	for _, layer := range manifest.Layers {
		run(t, "tar", "-C", opened.root, "-xpzf", filepath.Join(dir, blob(layer.Digest)))
	}
	return opened
}

// command is what `docker run IMAGE args...` starts: the program is looked for in the image, and sees nothing but the image.
func (i *image) command(args ...string) *exec.Cmd {
	i.t.Helper()
	if len(args) == 0 {
		args = i.Cmd
	}
	path := args[0]
	if !strings.Contains(path, "/") {
		folders := strings.TrimPrefix(i.Env[0], "PATH=")
		for _, folder := range strings.Split(folders, ":") {
			if _, err := os.Stat(filepath.Join(i.root, folder, path)); err == nil {
				path = filepath.Join(folder, path)
				break
			}
		}
	}
	command := &exec.Cmd{Path: path, Args: args, Env: i.Env, Dir: i.WorkingDir}
	command.SysProcAttr = &syscall.SysProcAttr{Chroot: i.root, Pdeathsig: syscall.SIGKILL}
	var user, group uint32
	if _, err := fmt.Sscanf(i.User, "%d:%d", &user, &group); err == nil {
		command.SysProcAttr.Credential = &syscall.Credential{Uid: user, Gid: group}
	}
	return command
}

// serve starts a member in the image, with its data in the working directory, and returns its client URL and what ends it. It is started as
// `IMAGE etcd FLAGS`; or, bare, as `IMAGE` with the same flags in the environment (`docker run -e`). Clients use the scheme; `more` are further
// flags with their values.
func (i *image) serve(bare bool, scheme string, more ...[2]string) (string, func()) {
	i.t.Helper()
	client, peer := fmt.Sprint(scheme, "://127.0.0.1:", harness.Port(i.t)), fmt.Sprint("http://127.0.0.1:", harness.Port(i.t))
	words, env := []string{"etcd"}, []string{}
	for _, flag := range append([][2]string{
		{"name", "x"}, {"listen-client-urls", client}, {"advertise-client-urls", client},
		{"listen-peer-urls", peer}, {"initial-advertise-peer-urls", peer}, {"initial-cluster", "x=" + peer},
	}, more...) {
		words = append(words, "--"+flag[0]+"="+flag[1])
		env = append(env, "ETCD_"+strings.ToUpper(strings.ReplaceAll(flag[0], "-", "_"))+"="+flag[1])
	}
	command := i.command(words...)
	if bare {
		command = i.command()
		command.Env = append(slices.Clone(command.Env), env...)
	}
	log, err := os.Create(filepath.Join(i.t.TempDir(), "log"))
	if err != nil {
		i.t.Fatal(err)
	}
	defer log.Close()
	command.Stdout, command.Stderr = log, log
	if err := command.Start(); err != nil {
		i.t.Fatal(err)
	}
	end := sync.OnceFunc(func() {
		command.Process.Signal(syscall.SIGTERM)
		if err := command.Wait(); err == nil || command.ProcessState.ExitCode() == 1 {
			i.t.Errorf("the member ends with %v", command.ProcessState)
		}
	})
	i.t.Cleanup(end)
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		if content, _ := os.ReadFile(log.Name()); strings.Contains(string(content), "ready to serve client requests") {
			return client, end
		}
	}
	content, _ := os.ReadFile(log.Name())
	i.t.Fatalf("the member does not start:\n%s", content)
	return "", nil
}

// tool runs a tool of the image to its end.
func (i *image) tool(args ...string) string {
	i.t.Helper()
	output, err := i.command(args...).CombinedOutput()
	if err != nil {
		i.t.Fatalf("%v: %v\n%s", args, err, output)
	}
	return string(output)
}

// The image is etcd's: `IMAGE etcd ...` and `IMAGE etcdctl ...` run, and without words a member starts.
func TestImage(t *testing.T) {
	prefix := release(t, first)
	needs(t)
	for variant, user := range map[string]string{"": "", "-nonroot": "65532:65532"} {
		t.Run("image"+variant, func(t *testing.T) {
			image := open(t, prefix+"-linux-amd64-image"+variant+".tar")
			if image.User != user || !slices.Equal(image.Cmd, []string{"/usr/local/bin/etcd"}) || len(image.Entrypoint) > 0 || image.WorkingDir != "/var/lib/etcd" {
				t.Errorf("configuration: %+v", image)
			}
			if len(image.ExposedPorts) != 2 || image.Labels["org.opencontainers.image.version"] != first {
				t.Errorf("ports %v, labels %v", image.ExposedPorts, image.Labels)
			}
			var bill struct {
				BomFormat  string
				Components []struct{ Name, Version, Purl string }
			}
			content, err := os.ReadFile(filepath.Join(image.root, "usr/share/sbom/cairn.cdx.json"))
			if err == nil {
				err = json.Unmarshal(content, &bill)
			}
			if err != nil || bill.BomFormat != "CycloneDX" || len(bill.Components) < 80 {
				t.Errorf("bill of materials: %v, %s with %d components", err, bill.BomFormat, len(bill.Components))
			}
			checkNotices(t, filepath.Join(image.root, "usr/share/doc/cairn/THIRD-PARTY-NOTICES"))
			url, end := image.serve(true, "http")
			image.tool("etcdctl", "--endpoints="+url, "put", "greeting", "from the bare command")
			end()
			if entries, err := os.ReadDir(filepath.Join(image.root, image.WorkingDir)); err != nil || len(entries) != 1 || entries[0].Name() != "x.etcd" {
				t.Fatalf("data is not in the working directory: %v, %v", entries, err)
			}
			// The same data again, by the other way.
			url, end = image.serve(false, "http")
			if got := image.tool("etcdctl", "--endpoints="+url, "get", "greeting", "--print-value-only"); got != "from the bare command\n" {
				t.Errorf("got %q", got)
			}
			image.tool("etcdctl", "--endpoints="+url, "put", "greeting", "hello")
			if got := image.tool("etcdctl", "--endpoints="+url, "get", "greeting", "--print-value-only"); got != "hello\n" {
				t.Errorf("got %q", got)
			}
			image.tool("etcdctl", "--endpoints="+url, "snapshot", "save", "/tmp/snapshot.db")
			image.tool("etcdutl", "snapshot", "status", "/tmp/snapshot.db")
			image.tool("benchmark", "--endpoints="+url, "put", "--total=10")
			if version := image.tool(image.Cmd[0], "--version"); !strings.HasPrefix(version, "etcd Version: 3.7.3\n") {
				t.Errorf("--version prints %q", version)
			}
			image.names(url)
			end()
			image.trusts()
			if program, err := os.Stat(filepath.Join(image.root, "usr/local/bin/cairn")); err != nil {
				t.Error(err)
			} else {
				t.Logf("the program has %.1f MB", float64(program.Size())/1e6)
			}
		})
	}
}

// checkNotices checks that the licences of others' code are there: whoever passes the program on has to pass them on.
func checkNotices(t *testing.T, path string) {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Error(err)
	}
	for _, crate := range []string{"raft", "tokio", "rustls", "ring", "tikv-jemalloc-sys"} {
		if !regexp.MustCompile(`(?m)^` + crate + ` [0-9]`).Match(content) {
			t.Errorf("%s does not name %s", path, crate)
		}
	}
	for _, text := range []string{"Jason Evans", "TERMS AND CONDITIONS FOR USE, REPRODUCTION, AND DISTRIBUTION", "The above copyright notice and this permission notice"} {
		if !strings.Contains(string(content), text) {
			t.Errorf("%s lacks a licence with %q", path, text)
		}
	}
}

// The bill of materials is that of the architecture, where crates depend on others: cpufeatures asks libc on arm64 only.
func TestBill(t *testing.T) {
	if os.Getenv("PACKAGES") == "" {
		t.Skip("PACKAGES=1 makes what is released, and checks it")
	}
	needs(t, "cargo", "python3")
	for arch, want := range map[string][]string{"amd64": nil, "arm64": {"pkg:cargo/libc@"}} {
		path := filepath.Join(t.TempDir(), arch)
		command := exec.Command("packaging/bill", arch, path, path+".notices")
		command.Dir = root
		if output, err := command.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, output)
		}
		checkNotices(t, path+".notices")
		content, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		var bill struct {
			Dependencies []struct {
				Ref       string
				DependsOn []string
			}
		}
		if err := json.Unmarshal(content, &bill); err != nil {
			t.Fatal(err)
		}
		found := false
		for _, crate := range bill.Dependencies {
			if !strings.HasPrefix(crate.Ref, "pkg:cargo/cpufeatures@") {
				continue
			}
			found = true
			if !slices.EqualFunc(crate.DependsOn, want, strings.HasPrefix) {
				t.Errorf("%s: %s depends on %v, want %v", arch, crate.Ref, crate.DependsOn, want)
			}
		}
		if !found {
			t.Errorf("%s: no cpufeatures among %d crates: compare another one", arch, len(bill.Dependencies))
		}
	}
}

// trusts checks that the image has certificate authorities, which all its users may read, and that its programs believe them: once the
// authority of a member is among them, a client needs no file to know the member by.
func (i *image) trusts() {
	i.t.Helper()
	path := filepath.Join(i.root, "etc/ssl/certs/ca-certificates.crt")
	authorities, err := os.ReadFile(path)
	if err != nil {
		i.t.Fatal(err)
	}
	// Systems trust some 140.
	if count := strings.Count(string(authorities), "-----BEGIN CERTIFICATE-----"); count < 50 || !x509.NewCertPool().AppendCertsFromPEM(authorities) {
		i.t.Errorf("%d certificate authorities", count)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm()&0o044 != 0o044 {
		i.t.Errorf("not all users may read the authorities: %v, %v", info, err)
	}

	set := certificates.NewSet(i.t)
	put := func(name, from string) string {
		content, err := os.ReadFile(from)
		if err == nil {
			err = os.WriteFile(filepath.Join(i.root, "tmp", name), content, 0o644)
		}
		if err != nil {
			i.t.Fatal(err)
		}
		return "/tmp/" + name
	}
	url, end := i.serve(false, "https", [2]string{"cert-file", put("member.crt", set.Cert)}, [2]string{"key-file", put("member.key", set.Key)})
	defer end()
	read := []string{"etcdctl", "--endpoints=" + url, "--dial-timeout=2s", "--command-timeout=5s", "get", "greeting", "--print-value-only"}
	if output, err := i.command(read...).CombinedOutput(); err == nil {
		i.t.Errorf("a member of an unknown authority is believed: %s", output)
	}
	own, err := os.ReadFile(set.Authority)
	if err != nil {
		i.t.Fatal(err)
	}
	if err := os.WriteFile(path, append(authorities, own...), 0o644); err != nil {
		i.t.Fatal(err)
	}
	// The machine may be busy.
	if got := i.tool("etcdctl", "--endpoints="+url, "--dial-timeout=20s", "--command-timeout=20s", "get", "greeting", "--print-value-only"); got != "hello\n" {
		i.t.Errorf("got %q", got)
	}
}

// names looks a member up by names of /etc/hosts and of DNS, though the system says that names are asked of a library that is not there.
func (i *image) names(url string) {
	i.t.Helper()
	port := url[strings.LastIndex(url, ":"):]
	place, err := net.ListenPacket("udp4", "127.0.0.1:53")
	if err != nil {
		harness.Unproved(i.t, "a DNS server of the test needs 127.0.0.1:53: "+err.Error())
	}
	defer place.Close()
	go answer(place)
	for path, text := range map[string]string{
		"etc/hosts":         "127.0.0.1 hosts.test\n",
		"etc/resolv.conf":   "nameserver 127.0.0.1\nsearch svc.test\noptions ndots:5 timeout:5\n",
		"etc/nsswitch.conf": "hosts: nosuchlibrary [NOTFOUND=return] resolve\n",
	} {
		if err := os.WriteFile(filepath.Join(i.root, path), []byte(text), 0o644); err != nil {
			i.t.Fatal(err)
		}
	}
	for _, name := range []string{"hosts.test", "dns.svc.test", "dns"} {
		i.tool("etcdctl", "--endpoints=http://"+name+port, "get", "greeting")
	}
	if output, err := i.command("etcdctl", "--endpoints=http://nobody.test"+port, "--dial-timeout=1s", "--command-timeout=2s", "get", "a").CombinedOutput(); err == nil {
		i.t.Errorf("a name that does not exist: %s", output)
	}
}

// answer answers for dns.svc.test, until the socket is closed.
func answer(place net.PacketConn) {
	packet := make([]byte, 4096)
	for {
		size, from, err := place.ReadFrom(packet)
		if err != nil {
			return
		}
		var message dnsmessage.Message
		if message.Unpack(packet[:size]) != nil || len(message.Questions) != 1 {
			continue
		}
		question := message.Questions[0]
		message.Response, message.RecursionAvailable, message.Additionals = true, true, nil
		switch {
		case question.Name.String() != "dns.svc.test.":
			message.RCode = dnsmessage.RCodeNameError
		case question.Type == dnsmessage.TypeA:
			message.Answers = []dnsmessage.Resource{{
				Header: dnsmessage.ResourceHeader{Name: question.Name, Class: dnsmessage.ClassINET, TTL: 1},
				Body:   &dnsmessage.AResource{A: [4]byte{127, 0, 0, 1}},
			}}
		}
		if reply, err := message.Pack(); err == nil {
			place.WriteTo(reply, from)
		}
	}
}
