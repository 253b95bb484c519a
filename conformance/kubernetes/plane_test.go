package kubernetes

import (
	"context"
	"errors"
	"os"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"cairn.dev/conformance/harness"
	"cairn.dev/conformance/kubernetes/plane"
)

// compaction is how often the API server compacts the store.
const compaction = "--etcd-compaction-interval=20s"

// TestOneMember runs a control plane on one member, which is killed meanwhile.
func TestOneMember(t *testing.T) {
	plane.Programs(t)
	member := harness.Start(t, harness.Subject())
	endpoints := []string{member.Endpoint()}
	control := plane.Start(t, endpoints, compaction)
	run(t, control, endpoints, func() []string { return endpoints }, func() {
		time.Sleep(calm)
		t.Log("a killed member")
		member.Kill()
		member.Run()
		time.Sleep(calm)
	})
}

// TestThreeMembers runs a control plane on three members while each fault
// happens in turn, ROUNDS times.
func TestThreeMembers(t *testing.T) {
	if testing.Short() {
		t.Skip("the short form has one member")
	}
	if !plane.Isolated(t) {
		return
	}
	s := newStore(t)
	control := plane.Start(t, s.endpoints(), compaction)
	living := func() (endpoints []string) {
		for _, member := range s.places {
			if member != nil {
				endpoints = append(endpoints, member.Endpoint())
			}
		}
		return endpoints
	}
	run(t, control, s.endpoints(), living, func() {
		time.Sleep(calm)
		for round := range harness.Number(t, "ROUNDS", 1) {
			for _, fault := range faults {
				began := time.Now()
				fault.inject(s, control)
				t.Logf("round %d: %s, %v", round, fault.name, time.Since(began).Round(time.Millisecond))
				time.Sleep(calm)
			}
		}
	})
}

// calm is the time in which nothing is broken.
const calm = 8 * time.Second

// run has everybody use the control plane while the trouble lasts, lets all
// settle, and audits.
func run(t *testing.T, control *plane.Plane, endpoints []string, living func() []string, trouble func()) {
	t.Helper()
	if folder := os.Getenv("KEEP_LOGS"); folder != "" {
		t.Cleanup(func() { control.KeepLogs(folder) })
	}
	c := newCrowd(t, control)
	watchers := newBand()
	t.Cleanup(watchers.stop)
	storeClient := newClient(t, endpoints)

	leaders := &reigns{broken: map[int]bool{}}
	type pair struct{ store, api *stream }
	pairs := map[string]pair{}
	for _, one := range []struct {
		resource          schema.GroupVersionResource
		namespace, prefix string
		each              func(*unstructured.Unstructured)
	}{
		{configMaps.resource, home, configMaps.prefix, nil},
		{widgets.resource, home, widgets.prefix, nil},
		{pods, work, "/registry/pods/" + work + "/", nil},
		{leases, home, "/registry/leases/" + home + "/", leaders.see},
	} {
		pairs[one.resource.Resource] = pair{
			followStore(watchers, t, storeClient, one.prefix),
			follow(watchers, t, c.objects, one.resource, one.namespace, one.each),
		}
	}
	informers := inform(watchers, t, c.objects)

	c.play()
	c.start()
	trouble()
	await(t, "the API server has compacted the store", func(ctx context.Context) error {
		_, err := storeClient.Get(ctx, "none", clientv3.WithRev(1))
		if errors.Is(err, rpctypes.ErrCompacted) {
			return nil
		}
		return errors.New("revision 1 is there")
	})
	c.users.stop()
	c.auditDeployments()

	// The last change of each kind tells that a stream is complete.
	for name, version := range c.mark() {
		await(t, "the streams of "+name+" are complete", func(context.Context) error {
			if !pairs[name].api.has(version) || !pairs[name].store.has(version) {
				return errors.New("the last change has not come")
			}
			return nil
		})
	}
	for _, informer := range informers {
		informer.audit(t, c.objects)
	}
	c.nodes.stop()
	watchers.stop()

	found := map[string]content{}
	for _, kind := range []kind{configMaps, widgets} {
		await(t, "the last list", func(ctx context.Context) error {
			objects, version, err := kind.list(ctx, c.objects, 500)
			if err == nil && version < c.ledger.known() {
				t.Errorf("the last list of %s has the version %d, clients were told of %d", kind.name, version, c.ledger.known())
			}
			for key, content := range objects {
				found[key] = content
			}
			return err
		})
	}
	c.ledger.audit(t, found)
	c.auditCounters()
	for _, pair := range pairs {
		auditStreams(t, pair.api, pair.store)
	}
	for _, kind := range []kind{configMaps, widgets} {
		pair := pairs[kind.resource.Resource]
		auditWrites(t, c.ledger, kind, pair.api)
		auditWrites(t, c.ledger, kind, pair.store)
	}
	leaders.audit(t)
	auditHashes(t, living())
	t.Logf("%d increments, %d conflicts, %d lists in pages (%d began anew), %d namespaces, %d rollouts, %d terms, %d renewals of nodes",
		c.added.Load(), c.conflicts.Load(), c.pages.Load(), c.restarted.Load(), c.namespaces.Load(), c.rollouts.Load(),
		c.leaders.terms, c.beats.Load())
	for what, count := range map[string]int64{
		"lists": c.pages.Load(), "namespaces": c.namespaces.Load(), "rollouts": c.rollouts.Load(),
		"terms": int64(c.leaders.terms), "renewals": c.beats.Load(),
	} {
		if count == 0 {
			t.Errorf("no %s", what)
		}
	}
}

// mark writes one last object of each kind that is followed, and returns
// their versions.
func (c *crowd) mark() map[string]uint64 {
	c.t.Helper()
	versions := map[string]uint64{}
	const name = "last"
	for _, kind := range []kind{configMaps, widgets} {
		await(c.t, "the last "+kind.name, func(ctx context.Context) error {
			object := kind.object(name, "")
			object.SetLabels(nil)
			made, err := c.objects.Resource(kind.resource).Namespace(home).Create(ctx, object, v1.CreateOptions{})
			if err == nil {
				versions[kind.resource.Resource] = versionOf(made.GetResourceVersion())
			}
			return err
		})
	}
	await(c.t, "the last lease", func(ctx context.Context) error {
		made, err := c.client.CoordinationV1().Leases(home).Create(ctx, &coordinationv1.Lease{ObjectMeta: v1.ObjectMeta{Name: name}}, v1.CreateOptions{})
		if err == nil {
			versions["leases"] = versionOf(made.ResourceVersion)
		}
		return err
	})
	await(c.t, "the last pod", func(ctx context.Context) error {
		made, err := c.client.CoreV1().Pods(work).Create(ctx, &corev1.Pod{
			ObjectMeta: v1.ObjectMeta{Name: name},
			Spec:       corev1.PodSpec{SchedulerName: "nobody", Containers: []corev1.Container{{Name: "c", Image: "example.com/image:1"}}},
		}, v1.CreateOptions{})
		if err == nil {
			versions["pods"] = versionOf(made.ResourceVersion)
		}
		return err
	})
	return versions
}
