// Package plane starts the programs of a Kubernetes control plane as a release
// has them, on an etcd that the test provides.
package plane

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"cairn.dev/conformance/harness"
)

// startMax is generous, because the machine may build something else meanwhile.
const startMax = 3 * time.Minute

// Plane is a control plane that runs.
type Plane struct {
	// Config is for clients with all rights, and without limits of their own.
	Config *rest.Config
	// Kubeconfig is a file for programs with all rights.
	Kubeconfig string
	// APIServer, Controllers and Scheduler are the programs.
	APIServer, Controllers, Scheduler *Component

	t testing.TB
}

// Programs builds the programs unless that was done before.
func Programs(t testing.TB) {
	t.Helper()
	for _, name := range []string{"kube-apiserver", "kube-controller-manager", "kube-scheduler"} {
		harness.Tool(t, name)
	}
}

// Start starts a control plane whose API server uses the given endpoints, and
// waits until it is ready. Its flags win over the usual ones.
func Start(t testing.TB, endpoints []string, flags ...string) *Plane {
	t.Helper()
	p := APIServer(t, endpoints, flags...)
	p.Controllers.Start()
	p.Scheduler.Start()
	return p
}

// APIServer is Start without the controllers and the scheduler.
func APIServer(t testing.TB, endpoints []string, flags ...string) *Plane {
	t.Helper()
	dir := t.TempDir()
	certificates := newCertificates(t, dir)
	const host = "127.0.0.1"
	port := harness.Port(t)
	url := fmt.Sprintf("https://%s:%d", host, port)
	certificates.server(t, "server", host, "localhost", "10.96.0.1", "kubernetes", "kubernetes.default.svc")
	certificates.client(t, "admin", "admin", "system:masters")
	certificates.client(t, "controllers", "system:kube-controller-manager")
	certificates.client(t, "scheduler", "system:kube-scheduler")

	var servers []string
	for _, endpoint := range endpoints {
		servers = append(servers, "http://"+endpoint)
	}
	accounts := certificates.path("accounts.key")
	p := &Plane{t: t}
	p.APIServer = NewComponent(t, dir, "kube-apiserver", harness.Tool(t, "kube-apiserver"), append([]string{
		"--etcd-servers=" + strings.Join(servers, ","),
		"--bind-address=" + host,
		"--advertise-address=10.77.0.100",
		fmt.Sprintf("--secure-port=%d", port),
		"--cert-dir=" + filepath.Join(dir, "made"),
		"--tls-cert-file=" + certificates.path("server.crt"),
		"--tls-private-key-file=" + certificates.path("server.key"),
		"--client-ca-file=" + certificates.path("ca.crt"),
		"--service-account-issuer=https://kubernetes.default.svc",
		"--service-account-key-file=" + accounts,
		"--service-account-signing-key-file=" + accounts,
		"--service-cluster-ip-range=10.96.0.0/16",
		"--authorization-mode=Node,RBAC",
	}, flags...))
	p.Controllers = NewComponent(t, dir, "kube-controller-manager", harness.Tool(t, "kube-controller-manager"), []string{
		"--kubeconfig=" + certificates.kubeconfig(t, "controllers", url),
		"--service-account-private-key-file=" + accounts,
		"--root-ca-file=" + certificates.path("ca.crt"),
		"--use-service-account-credentials=true",
		"--bind-address=" + host,
		fmt.Sprintf("--secure-port=%d", harness.Port(t)),
		"--cert-dir=" + filepath.Join(dir, "controllers"),
		"--leader-elect=true",
	})
	p.Scheduler = NewComponent(t, dir, "kube-scheduler", harness.Tool(t, "kube-scheduler"), []string{
		"--kubeconfig=" + certificates.kubeconfig(t, "scheduler", url),
		"--bind-address=" + host,
		fmt.Sprintf("--secure-port=%d", harness.Port(t)),
		"--cert-dir=" + filepath.Join(dir, "scheduler"),
		"--leader-elect=true",
	})

	p.Kubeconfig = certificates.kubeconfig(t, "admin", url)
	config, err := clientcmd.BuildConfigFromFlags("", p.Kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	config.QPS = -1
	p.Config = config
	p.APIServer.Start()
	p.AwaitReady()
	return p
}

// AwaitReady waits until the API server says that it is ready.
func (p *Plane) AwaitReady() {
	p.t.Helper()
	client := p.Client()
	var last error
	for deadline := time.Now().Add(startMax); time.Now().Before(deadline); time.Sleep(100 * time.Millisecond) {
		ctx, cancel := context.WithTimeout(p.t.Context(), 5*time.Second)
		_, last = client.RESTClient().Get().AbsPath("/readyz").DoRaw(ctx)
		cancel()
		if last == nil {
			return
		}
		if p.APIServer.Ended() {
			break
		}
	}
	p.t.Fatalf("the API server is not ready: %v\n%s", last, p.APIServer.LogTail())
}

// Client is a client with all rights.
func (p *Plane) Client() *kubernetes.Clientset {
	p.t.Helper()
	client, err := kubernetes.NewForConfig(p.Config)
	if err != nil {
		p.t.Fatal(err)
	}
	return client
}

// KeepLogs copies the logs into a folder.
func (p *Plane) KeepLogs(folder string) {
	for _, component := range []*Component{p.APIServer, p.Controllers, p.Scheduler} {
		if content, err := os.ReadFile(component.log); err == nil {
			os.WriteFile(filepath.Join(folder, component.name+".log"), content, 0o600)
		}
	}
}
