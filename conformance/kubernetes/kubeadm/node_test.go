package kubeadm

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	kubeadmapi "k8s.io/kubernetes/cmd/kubeadm/app/apis/kubeadm"
	"k8s.io/kubernetes/cmd/kubeadm/app/constants"
	"k8s.io/kubernetes/cmd/kubeadm/app/phases/certs"
	configutil "k8s.io/kubernetes/cmd/kubeadm/app/util/config"
	staticpodutil "k8s.io/kubernetes/cmd/kubeadm/app/util/staticpod"

	"cairn.dev/conformance/harness"
	"cairn.dev/conformance/kubernetes/plane"
	"cairn.dev/conformance/network"
)

// readyMax is generous, because the machine may build something else meanwhile.
const readyMax = 2 * time.Minute

// node is a machine of the control plane in a network of its own. Its kubelet
// is played by the test: it starts what the manifests say.
type node struct {
	t         *testing.T
	links     *network.Network
	place     int
	config    *kubeadmapi.InitConfiguration
	manifests string
	logs      string
	programs  map[string]*plane.Component
	// kind is whose etcd is started, and extra are flags besides those of the
	// manifest.
	kind  harness.Kind
	extra []string
}

// newNode has the configuration and the certificates of a node; a node that is
// not the first one gets the authorities of the first.
func newNode(t *testing.T, links *network.Network, place int, first *node) *node {
	t.Helper()
	folder := t.TempDir()
	config, err := configutil.DefaultedStaticInitConfiguration()
	if err != nil {
		t.Fatal(err)
	}
	config.KubernetesVersion = "v1.37.2"
	config.NodeRegistration.Name = fmt.Sprintf("node-%d", place)
	config.LocalAPIEndpoint.AdvertiseAddress = links.Host(place)
	config.CertificatesDir = filepath.Join(folder, "pki")
	config.Etcd.Local.DataDir = filepath.Join(folder, "etcd")
	n := &node{
		t: t, links: links, place: place, config: config,
		manifests: filepath.Join(folder, "manifests"), logs: folder, programs: map[string]*plane.Component{},
		kind: harness.Subject(),
	}
	if err := os.Mkdir(n.manifests, 0o700); err != nil {
		t.Fatal(err)
	}
	if first != nil {
		n.copyAuthorities(first)
	}
	if err := certs.CreatePKIAssets(config); err != nil {
		t.Fatalf("certificates: %v", err)
	}
	return n
}

func (n *node) copyAuthorities(first *node) {
	n.t.Helper()
	if err := os.MkdirAll(filepath.Join(n.config.CertificatesDir, "etcd"), 0o700); err != nil {
		n.t.Fatal(err)
	}
	for _, name := range []string{"ca.crt", "ca.key", "etcd/ca.crt", "etcd/ca.key", "front-proxy-ca.crt", "front-proxy-ca.key", "sa.pub", "sa.key"} {
		content, err := os.ReadFile(filepath.Join(first.config.CertificatesDir, name))
		if err != nil {
			n.t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(n.config.CertificatesDir, name), content, 0o600); err != nil {
			n.t.Fatal(err)
		}
	}
}

// manifest is a static pod as kubeadm wrote it.
func (n *node) manifest(name string) *corev1.Pod {
	n.t.Helper()
	pod, err := staticpodutil.ReadStaticPodFromDisk(constants.GetStaticPodFilepath(name, n.manifests))
	if err != nil {
		n.t.Fatal(err)
	}
	return pod
}

// start starts a static pod with the command line of its manifest, word for
// word, and waits until all of its probes pass.
func (n *node) start(name string) {
	n.t.Helper()
	pod := n.manifest(name)
	command := pod.Spec.Containers[0].Command
	if command[0] != name {
		n.t.Fatalf("the command of `%s` is %q", name, command)
	}
	binary := ""
	if name == constants.Etcd {
		binary = harness.Binary(n.t, n.kind)
		command = append(command, n.extra...)
	} else {
		binary = harness.Tool(n.t, name)
	}
	n.t.Logf("%s: %q", n.config.NodeRegistration.Name, command)
	program := plane.NewComponent(n.t, n.logs, name, binary, command[1:])
	program.Place = func(start func() error) error { return n.links.Run(n.place, start) }
	program.Start()
	n.programs[name] = program
	n.awaitProbes(name)
}

// awaitProbes waits until startup, readiness and liveness are what the
// manifest asks for.
func (n *node) awaitProbes(name string) {
	n.t.Helper()
	container := n.manifest(name).Spec.Containers[0]
	ports := map[string]int32{}
	for _, port := range container.Ports {
		ports[port.Name] = port.ContainerPort
	}
	for _, probe := range []*corev1.Probe{container.StartupProbe, container.ReadinessProbe, container.LivenessProbe} {
		get := probe.HTTPGet
		port := get.Port.IntVal
		if port == 0 {
			port = ports[get.Port.StrVal]
		}
		if get.Scheme == corev1.URISchemeHTTPS {
			// The API server's; the test's own client waits for it.
			continue
		}
		n.await(fmt.Sprintf("http://%s%s", net.JoinHostPort(get.Host, fmt.Sprint(port)), get.Path), n.programs[name])
	}
}

// await waits until a page on the node is answered with 200.
func (n *node) await(url string, program *plane.Component) {
	n.t.Helper()
	client := &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, kind, address string) (conn net.Conn, err error) {
			err = n.links.Run(n.place, func() error {
				conn, err = (&net.Dialer{}).DialContext(ctx, kind, address)
				return err
			})
			return conn, err
		},
	}}
	var last string
	for deadline := time.Now().Add(readyMax); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		response, err := client.Get(url)
		if err == nil {
			body, _ := io.ReadAll(response.Body)
			response.Body.Close()
			if response.StatusCode == http.StatusOK {
				return
			}
			last = fmt.Sprintf("%s: %s", response.Status, body)
		} else {
			last = err.Error()
		}
		if program.Ended() {
			break
		}
	}
	n.t.Fatalf("%s on %s: %s\n%s", url, n.config.NodeRegistration.Name, last, program.LogTail())
}

// restart kills a static pod and starts it again, as a kubelet does.
func (n *node) restart(name string) {
	n.t.Helper()
	n.programs[name].Kill()
	n.start(name)
}
