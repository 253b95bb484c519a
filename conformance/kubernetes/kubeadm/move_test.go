package kubeadm

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/kubernetes/cmd/kubeadm/app/constants"
	etcdphase "k8s.io/kubernetes/cmd/kubeadm/app/phases/etcd"

	"cairn.dev/conformance/harness"
	"cairn.dev/conformance/kubernetes/plane"
	"cairn.dev/conformance/network"
)

// TestMove moves a kubeadm cluster of one node from the genuine etcd to Cairn
// and back, as docs/kubernetes.md says. The API server runs all the time, and
// keeps what was written on either.
func TestMove(t *testing.T) {
	if harness.Subject() == harness.Etcd {
		t.Skip("it moves from one kind to the other")
	}
	if !plane.Isolated(t) {
		return
	}
	n := newNode(t, network.Around(t, 1), 0, nil)
	n.kind = harness.Etcd
	if err := etcdphase.CreateLocalEtcdStaticPodManifestFile(n.manifests, "", n.config.NodeRegistration.Name,
		&n.config.ClusterConfiguration, &n.config.LocalAPIEndpoint, false); err != nil {
		t.Fatal(err)
	}
	n.start(constants.Etcd)
	client := startAPIServer(t, n)
	var versions []string
	write := func(where string) {
		t.Helper()
		for number := range 20 {
			versions = append(versions, create(t, client, fmt.Sprintf("%s-%d", where, number)))
		}
	}
	write("etcd")

	n.programs[constants.Etcd].Kill()
	n.kind, n.extra = harness.Cairn, []string{"--adopt-etcd-data"}
	n.start(constants.Etcd)
	write("cairn")
	n.restart(constants.Etcd)

	n.programs[constants.Etcd].Kill()
	data := n.config.Etcd.Local.DataDir
	export := exec.Command(harness.CairnBinary(t), "util", "export", "--data-dir", data, "--to", data+"-new")
	if output, err := export.CombinedOutput(); err != nil {
		t.Fatalf("export: %v\n%s", err, output)
	}
	for _, rename := range [][2]string{{data, data + "-cairn"}, {data + "-new", data}} {
		if err := os.Rename(rename[0], rename[1]); err != nil {
			t.Fatal(err)
		}
	}
	n.kind, n.extra = harness.Etcd, nil
	n.start(constants.Etcd)
	write("back")

	listed := list(t, client)
	found := map[string]bool{}
	for _, object := range listed.Items {
		found[object.ResourceVersion] = true
	}
	for _, version := range versions {
		if !found[version] {
			t.Errorf("the object of version %s is lost", version)
		}
	}
}

// create makes a config map, waiting out restarts, and returns its version.
func create(t *testing.T, client kubernetes.Interface, name string) (version string) {
	t.Helper()
	retry(t, "create "+name, func(ctx context.Context) error {
		made, err := client.CoreV1().ConfigMaps("default").Create(ctx, &corev1.ConfigMap{ObjectMeta: v1.ObjectMeta{Name: name}}, v1.CreateOptions{})
		if err != nil {
			// An earlier try may have had no answer.
			var there *corev1.ConfigMap
			if there, err = client.CoreV1().ConfigMaps("default").Get(ctx, name, v1.GetOptions{}); err == nil {
				made = there
			}
		}
		if err == nil {
			version = made.ResourceVersion
		}
		return err
	})
	return version
}

func list(t *testing.T, client kubernetes.Interface) (found *corev1.ConfigMapList) {
	t.Helper()
	retry(t, "list", func(ctx context.Context) (err error) {
		found, err = client.CoreV1().ConfigMaps("default").List(ctx, v1.ListOptions{})
		return err
	})
	return found
}

func retry(t *testing.T, what string, call func(ctx context.Context) error) {
	t.Helper()
	var last error
	for deadline := time.Now().Add(readyMax); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		last = call(ctx)
		cancel()
		if last == nil {
			return
		}
	}
	t.Fatalf("%s: %v", what, last)
}
