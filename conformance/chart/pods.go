// Package chart checks what is given to Kubernetes: the scripts that the pods of the Helm chart run, with real members, and what the chart
// is rendered to.
package chart

import (
	"bytes"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"cairn.dev/conformance/harness"
	certificates "cairn.dev/conformance/tls"
)

const (
	scripts = "../../deploy/helm/cairn/files/scripts"
	domain  = "headless.test"
	// Generous, because the machine may build something else meanwhile.
	waitMax = 5 * time.Minute
)

// standIns are tools of busybox that other systems do not have, or have with other flags. Where busybox is not installed, links of these
// names lead to the test program, which does what the scripts need of them.
var standIns = []string{"httpd", "wget"}

// Pods are the pods of a StatefulSet: processes with names that /etc/hosts knows in a mount namespace of their own. Each has the address
// 127.1.SET.NUMBER, so that all of them listen on the same ports.
type Pods struct {
	t                     testing.TB
	dir, settings, bin    string
	client, peer, metrics int
	// Env is added to the environment of every script.
	Env []string
	set int
	// scheme of clients and peers.
	scheme string
}

// Pod is a running start.sh.
type Pod struct {
	Number  int
	pods    *Pods
	process *exec.Cmd
	exited  chan struct{}
	log     *logFile
}

type logFile struct {
	lock sync.Mutex
	text bytes.Buffer
}

func (l *logFile) Write(part []byte) (int, error) {
	l.lock.Lock()
	defer l.lock.Unlock()
	return l.text.Write(part)
}

func (l *logFile) String() string {
	l.lock.Lock()
	defer l.lock.Unlock()
	return l.text.String()
}

// newPods prepares the disks of a StatefulSet of so many pods.
func newPods(t testing.TB, replicas int) *Pods {
	t.Helper()
	if os.Getuid() != 0 {
		harness.Unproved(t, "mount namespaces need root")
	}
	own, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	p := &Pods{
		t: t, dir: dir, settings: filepath.Join(dir, "settings"), bin: filepath.Join(dir, "bin"), set: 1 + os.Getpid()%250, scheme: "http",
		client: harness.Port(t), peer: harness.Port(t), metrics: harness.Port(t),
	}
	for _, folder := range []string{p.settings, p.bin} {
		if err := os.Mkdir(folder, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"etcd", "etcdctl", "etcdutl"} {
		if err := os.Symlink(harness.CairnBinary(t), filepath.Join(p.bin, name)); err != nil {
			t.Fatal(err)
		}
	}
	// The pods have the tools of busybox; so has the test, where it is installed.
	if busybox, err := exec.LookPath("busybox"); err == nil {
		if output, err := exec.Command(busybox, "--install", "-s", p.bin).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, output)
		}
	}
	if _, err := exec.LookPath("busybox"); err != nil {
		for _, name := range standIns {
			if err := os.Symlink(own, filepath.Join(p.bin, name)); err != nil {
				t.Fatal(err)
			}
		}
	}
	p.names(8)
	p.setting("found", "yes")
	p.Scale(replicas)
	return p
}

// secure has clients and peers use TLS, with certificates of one authority.
func (p *Pods) secure() {
	set := certificates.NewSet(p.t, "*."+domain)
	p.scheme = "https"
	p.Env = append(p.Env,
		"ETCD_CERT_FILE="+set.Cert, "ETCD_KEY_FILE="+set.Key, "ETCD_TRUSTED_CA_FILE="+set.Authority, "ETCD_CLIENT_CERT_AUTH=true",
		"ETCD_PEER_CERT_FILE="+set.Cert, "ETCD_PEER_KEY_FILE="+set.Key, "ETCD_PEER_TRUSTED_CA_FILE="+set.Authority, "ETCD_PEER_CLIENT_CERT_AUTH=true",
		"ETCDCTL_CACERT="+set.Authority, "ETCDCTL_CERT="+set.Cert, "ETCDCTL_KEY="+set.Key,
	)
}

// names makes the names of so many pods known, but for those left out.
func (p *Pods) names(count int, without ...int) {
	var hosts strings.Builder
	for number := range count {
		if !slices.Contains(without, number) {
			fmt.Fprintf(&hosts, "%s pod-%d.%s\n", p.address(number), number, domain)
		}
	}
	p.write(filepath.Join(p.dir, "hosts"), hosts.String())
}

func (p *Pods) write(path, text string) {
	p.t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		p.t.Fatal(err)
	}
}

func (p *Pods) setting(name, value string) { p.write(filepath.Join(p.settings, name), value) }

// Scale says how many pods there are to be.
func (p *Pods) Scale(replicas int) { p.setting("replicas", fmt.Sprint(replicas)) }

func (p *Pods) address(number int) string { return fmt.Sprintf("127.1.%d.%d", p.set, 1+number) }

// Data is the data directory of a pod.
func (p *Pods) Data(number int) string {
	return filepath.Join(p.dir, fmt.Sprint("disk-", number), "data")
}

// Endpoints of the first pods, as the chart gives them to scripts.
func (p *Pods) Endpoints(count int) string {
	var all []string
	for number := range count {
		all = append(all, fmt.Sprintf("%s://pod-%d.%s:%d", p.scheme, number, domain, p.client))
	}
	return strings.Join(all, ",")
}

// script is a command that runs a script as a pod does.
func (p *Pods) script(name string, env ...string) *exec.Cmd {
	path, err := filepath.Abs(filepath.Join(scripts, name))
	if err != nil {
		p.t.Fatal(err)
	}
	inside := fmt.Sprintf("mount --bind %s/hosts /etc/hosts && exec sh %s", p.dir, path)
	command := exec.Command("unshare", "-m", "sh", "-c", inside)
	command.Env = append([]string{"PATH=" + p.bin + ":/usr/sbin:/usr/bin:/sbin:/bin"}, append(p.Env, env...)...)
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	return command
}

// Run runs a script to its end and returns what it printed.
func (p *Pods) Run(name string, env ...string) (string, error) {
	command := p.script(name, append([]string{"ETCDCTL_DIAL_TIMEOUT=" + fmt.Sprint(waitMax)}, env...)...)
	timer := time.AfterFunc(waitMax, func() { syscall.Kill(-command.Process.Pid, syscall.SIGKILL) })
	defer timer.Stop()
	output, err := command.CombinedOutput()
	return string(output), err
}

// Start starts a pod, on its disk.
func (p *Pods) Start(number int, env ...string) *Pod {
	p.t.Helper()
	if err := os.MkdirAll(filepath.Dir(p.Data(number)), 0o700); err != nil {
		p.t.Fatal(err)
	}
	command := p.script("start.sh", append([]string{
		fmt.Sprint("POD_NAME=pod-", number), "PEER_DOMAIN=" + domain, "CLUSTER_TOKEN=token", "SETTINGS=" + p.settings,
		"CLIENT_SCHEME=" + p.scheme, fmt.Sprint("CLIENT_PORT=", p.client), "PEER_SCHEME=" + p.scheme, fmt.Sprint("PEER_PORT=", p.peer),
		"LISTEN=" + p.address(number), fmt.Sprintf("METRICS_URL=http://%s:%d", p.address(number), p.metrics), "DATA_DIR=" + p.Data(number),
	}, env...)...)
	pod := &Pod{Number: number, pods: p, process: command, exited: make(chan struct{}), log: &logFile{}}
	command.Stdout, command.Stderr = pod.log, pod.log
	// A pod ends with its first process; what that has started may still hold the log.
	command.WaitDelay = time.Second
	if err := command.Start(); err != nil {
		p.t.Fatal(err)
	}
	go func() {
		command.Wait()
		close(pod.exited)
	}()
	p.t.Cleanup(func() {
		pod.Kill()
		if p.t.Failed() {
			p.t.Logf("pod %d:\n%s", number, pod.log)
		}
	})
	return pod
}

// StartAll starts the first pods together, as a StatefulSet does, and waits until they are ready.
func (p *Pods) StartAll(count int, env ...string) map[int]*Pod {
	p.t.Helper()
	running := map[int]*Pod{}
	for number := range count {
		running[number] = p.Start(number, env...)
	}
	for _, pod := range running {
		pod.Ready()
	}
	return running
}

// Says waits until its log has a text.
func (p *Pod) Says(text string) {
	p.pods.t.Helper()
	for deadline := time.Now().Add(waitMax); time.Now().Before(deadline) && !p.Ended(); time.Sleep(20 * time.Millisecond) {
		if strings.Contains(p.log.String(), text) {
			return
		}
	}
	p.pods.t.Fatalf("pod %d does not say %q:\n%s", p.Number, text, p.log)
}

// Ready waits until the pod's probe says so: it is a voter, has data and a leader.
func (p *Pod) Ready() {
	t := p.pods.t
	t.Helper()
	url := fmt.Sprintf("http://%s:%d/readyz", p.pods.address(p.Number), p.pods.metrics)
	for deadline := time.Now().Add(waitMax); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		if p.Ended() {
			t.Fatalf("pod %d ended: %v\n%s", p.Number, p.process.ProcessState, p.log)
		}
		answer, err := http.Get(url)
		if err != nil {
			continue
		}
		answer.Body.Close()
		if answer.StatusCode == http.StatusOK {
			return
		}
	}
	t.Fatalf("pod %d is not ready:\n%s", p.Number, p.log)
}

// Ended says whether its process has ended.
func (p *Pod) Ended() bool {
	select {
	case <-p.exited:
		return true
	default:
		return false
	}
}

// Await waits until it has ended by itself.
func (p *Pod) Await() {
	p.pods.t.Helper()
	select {
	case <-p.exited:
	case <-time.After(waitMax):
		p.pods.t.Fatalf("pod %d does not end:\n%s", p.Number, p.log)
	}
}

// Stop ends the pod as a kubelet does.
func (p *Pod) Stop() {
	if !p.Ended() {
		p.process.Process.Signal(syscall.SIGTERM)
		p.Await()
	}
	p.Kill()
}

// Kill ends the pod and all that it started.
func (p *Pod) Kill() {
	syscall.Kill(-p.process.Process.Pid, syscall.SIGKILL)
	<-p.exited
}
