package kubeadm

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/kubernetes/cmd/kubeadm/app/constants"
	"k8s.io/kubernetes/cmd/kubeadm/app/phases/controlplane"
	etcdphase "k8s.io/kubernetes/cmd/kubeadm/app/phases/etcd"
	"k8s.io/kubernetes/cmd/kubeadm/app/phases/kubeconfig"
	etcdutil "k8s.io/kubernetes/cmd/kubeadm/app/util/etcd"

	"cairn.dev/conformance/kubernetes/plane"
	"cairn.dev/conformance/network"
)

// TestKubeadm has kubeadm begin a cluster on one node, join two more, and take
// one away. Every etcd is started with the command line that kubeadm wrote, and
// has to pass the probes of its manifest.
func TestKubeadm(t *testing.T) {
	if !plane.Isolated(t) {
		return
	}
	links := network.Around(t, 3)
	first := newNode(t, links, 0, nil)
	if err := etcdphase.CreateLocalEtcdStaticPodManifestFile(first.manifests, "", first.config.NodeRegistration.Name,
		&first.config.ClusterConfiguration, &first.config.LocalAPIEndpoint, false); err != nil {
		t.Fatal(err)
	}
	first.start(constants.Etcd)
	// What kubeadm before 1.34 and other installers probe.
	for _, page := range []string{"/health?exclude=NOSPACE&serializable=true", "/health?serializable=false", "/health?serializable=true", "/health", "/metrics"} {
		first.await("http://127.0.0.1:2381"+page, first.programs[constants.Etcd])
	}
	client := startAPIServer(t, first)
	mirror(t, client, first)

	nodes := []*node{first}
	for place := 1; place < 3; place++ {
		joining := newNode(t, links, place, first)
		join(t, client, joining)
		mirror(t, client, joining)
		nodes = append(nodes, joining)
	}

	pki := first.config.CertificatesDir
	if err := etcdphase.CheckLocalEtcdClusterStatus(client, pki); err != nil {
		t.Errorf("kubeadm finds the cluster: %v", err)
	}
	members, err := etcdutil.NewFromCluster(client, pki)
	if err != nil {
		t.Fatal(err)
	}
	if len(members.Endpoints) != 3 {
		t.Errorf("Sync finds %q", members.Endpoints)
	}
	expectMembers(t, members, "node-0", "node-1", "node-2")
	// A node that joins once more is told of the members as they are.
	again, err := members.AddMemberAsLearner("node-2", etcdutil.GetPeerURL(&nodes[2].config.LocalAPIEndpoint))
	if err != nil || len(again) != 3 {
		t.Errorf("a member that is there is added: %v, %v", again, err)
	}
	if _, err := members.GetMemberID("https://10.77.0.9:2380"); !errors.Is(err, etcdutil.ErrNoMemberIDForPeerURL) {
		t.Errorf("the identifier of nobody: %v", err)
	}

	// A static pod that dies comes back with the same command line.
	nodes[1].restart(constants.Etcd)
	if available, err := members.WaitForClusterAvailable(60, time.Second); !available || err != nil {
		t.Errorf("after a restart: %t, %v", available, err)
	}

	// `kubeadm reset` on the third node.
	if err := etcdphase.RemoveStackedEtcdMemberFromCluster(client, nodes[2].config); err != nil {
		t.Fatalf("remove a member: %v", err)
	}
	expectMembers(t, members, "node-0", "node-1")
	if err := etcdphase.RemoveStackedEtcdMemberFromCluster(client, nodes[2].config); err != nil {
		t.Errorf("remove a member that is gone: %v", err)
	}
	// The API server, which knows its own node's member alone, goes on.
	ctx, cancel := context.WithTimeout(t.Context(), readyMax)
	defer cancel()
	if _, err := client.CoreV1().ConfigMaps("default").Create(ctx, &corev1.ConfigMap{ObjectMeta: v1.ObjectMeta{Name: "after"}}, v1.CreateOptions{}); err != nil {
		t.Errorf("a write after all of it: %v", err)
	}
}

// startAPIServer starts the API server as kubeadm would have its node's
// kubelet start it, on the node's etcd by TLS, and returns a client with all
// rights.
func startAPIServer(t *testing.T, n *node) *kubernetes.Clientset {
	t.Helper()
	if err := controlplane.CreateStaticPodFiles(n.manifests, "", &n.config.ClusterConfiguration, &n.config.LocalAPIEndpoint, false, constants.KubeAPIServer); err != nil {
		t.Fatal(err)
	}
	if err := kubeconfig.CreateKubeConfigFile(constants.SuperAdminKubeConfigFileName, n.logs, n.config); err != nil {
		t.Fatal(err)
	}
	n.start(constants.KubeAPIServer)
	config, err := clientcmd.BuildConfigFromFlags("", filepath.Join(n.logs, constants.SuperAdminKubeConfigFileName))
	if err != nil {
		t.Fatal(err)
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	var last error
	for deadline := time.Now().Add(readyMax); time.Now().Before(deadline); time.Sleep(100 * time.Millisecond) {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		_, last = client.RESTClient().Get().AbsPath("/readyz").DoRaw(ctx)
		cancel()
		if last == nil {
			return client
		}
	}
	t.Fatalf("the API server is not ready: %v\n%s", last, n.programs[constants.KubeAPIServer].LogTail())
	return nil
}

// mirror makes the object by which the API server knows of a static pod.
func mirror(t *testing.T, client kubernetes.Interface, n *node) {
	t.Helper()
	pod := n.manifest(constants.Etcd)
	pod.Name += "-" + n.config.NodeRegistration.Name
	pod.Annotations[corev1.MirrorPodAnnotationKey] = "test"
	pod.Spec.NodeName = n.config.NodeRegistration.Name
	ctx, cancel := context.WithTimeout(t.Context(), readyMax)
	defer cancel()
	for {
		_, err := client.CoreV1().Pods(v1.NamespaceSystem).Create(ctx, pod, v1.CreateOptions{})
		if err == nil {
			return
		}
		select {
		case <-ctx.Done():
			t.Fatalf("the mirror of %s: %v", pod.Name, err)
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// join has kubeadm add a node's etcd: it announces a learner, writes the
// manifest, waits for the kubelet, and promotes.
func join(t *testing.T, client kubernetes.Interface, n *node) {
	t.Helper()
	joined := make(chan error, 1)
	go func() {
		joined <- etcdphase.CreateStackedEtcdStaticPodManifestFile(client, n.manifests, "", n.config.NodeRegistration.Name,
			&n.config.ClusterConfiguration, &n.config.LocalAPIEndpoint, false, n.config.CertificatesDir)
	}()
	path := constants.GetStaticPodFilepath(constants.Etcd, n.manifests)
	for {
		if content, err := os.ReadFile(path); err == nil && len(content) > 0 {
			break
		}
		select {
		case err := <-joined:
			t.Fatalf("%s joins: %v", n.config.NodeRegistration.Name, err)
		case <-time.After(20 * time.Millisecond):
		}
	}
	n.start(constants.Etcd)
	if err := <-joined; err != nil {
		t.Fatalf("%s joins: %v\n%s", n.config.NodeRegistration.Name, err, n.programs[constants.Etcd].LogTail())
	}
}

func expectMembers(t *testing.T, client *etcdutil.Client, names ...string) {
	t.Helper()
	members, err := client.ListMembers()
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]bool{}
	for _, member := range members {
		found[member.Name] = true
	}
	if len(members) != len(names) {
		t.Errorf("the members are %v, not %q", members, names)
	}
	for _, name := range names {
		if !found[name] {
			t.Errorf("the members are %v, without `%s`", members, name)
		}
	}
}

// TestImageTags compares tags of our images as `kubeadm upgrade` does: with
// the tag that it would install by itself, and with each other.
func TestImageTags(t *testing.T) {
	for _, pair := range [][2]string{
		{constants.DefaultEtcdVersion, "3.7.3-cairn.1"},
		{constants.MinExternalEtcdVersion, "3.7.3-cairn.1"},
		{"3.7.3-0", "3.7.3-cairn.1"},
		{"3.7.3-cairn.1", "3.7.3-cairn.2"},
		{"3.7.3-cairn.9", "3.7.3-cairn.10"},
		{"3.7.3-cairn.10", "3.7.4-0"},
		{"3.7.3-cairn.10", "3.7.4-cairn.1"},
	} {
		older, err := version.ParseSemantic(pair[0])
		if err != nil {
			t.Fatal(err)
		}
		if order, err := older.Compare(pair[1]); err != nil || order >= 0 {
			t.Errorf("`%s` against `%s`: %d, %v", pair[0], pair[1], order, err)
		}
	}
}
