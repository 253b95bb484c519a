package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"

	"cairn.dev/conformance/kubernetes/plane"
)

// writeMax is how long a writer waits for an answer; it is longer than an
// election of the store.
const writeMax = 15 * time.Second

// crowd is everybody who uses the API server at once.
type crowd struct {
	t       *testing.T
	client  *kubernetes.Clientset
	objects dynamic.Interface
	ledger  *ledger

	// users come and go; the nodes stay until all has settled.
	users, nodes *band

	// increments of the counters: answered, unanswered, and refused because
	// another client was quicker.
	added, maybeAdded, conflicts atomic.Int64
	// what the others did.
	pages, restarted, namespaces, rollouts, beats atomic.Int64
	leaders                                       elections
}

// counters are config maps that several clients increment.
const counters = 3

func newCrowd(t *testing.T, control *plane.Plane) *crowd {
	t.Helper()
	objects, err := dynamic.NewForConfig(control.Config)
	if err != nil {
		t.Fatal(err)
	}
	c := &crowd{t: t, client: control.Client(), objects: objects, ledger: newLedger(), users: newBand(), nodes: newBand()}
	t.Cleanup(c.users.stop)
	t.Cleanup(c.nodes.stop)
	await(t, "the namespace", func(ctx context.Context) error {
		_, err := c.client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: v1.ObjectMeta{Name: home}}, v1.CreateOptions{})
		if apierrors.IsAlreadyExists(err) {
			return nil
		}
		return err
	})
	define(t, objects)
	for number := range counters {
		if _, err := c.client.CoreV1().ConfigMaps(home).Create(t.Context(), counter(number), v1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	return c
}

// start lets everybody begin.
func (c *crowd) start() {
	for number := range 3 {
		c.users.loop(func() { c.write(configMaps, number) })
		c.users.loop(func() { c.write(widgets, number) })
		c.users.loop(c.increment)
	}
	c.users.loop(func() { c.page(configMaps) })
	c.users.loop(func() { c.page(widgets) })
	c.comeAndGo()
	c.roll()
	c.elect()
}

var serial atomic.Int64

// write makes one object, changes it, and deletes one of three.
func (c *crowd) write(kind kind, writer int) {
	name := fmt.Sprintf("w%d-%06d", writer, serial.Add(1))
	client := c.objects.Resource(kind.resource).Namespace(home)
	key := kind.key(name)

	wanted := content{present: true, value: "made"}
	ctx, cancel := once()
	object, err := client.Create(ctx, kind.object(name, wanted.value), v1.CreateOptions{})
	cancel()
	if !c.note(key, wanted, object != nil && err == nil, err) {
		return
	}
	wanted.version = versionOf(object.GetResourceVersion())
	c.ledger.acknowledge(key, wanted)

	for change := range 2 {
		wanted = content{present: true, value: fmt.Sprintf("change %d", change)}
		changed := kind.object(name, wanted.value)
		changed.SetResourceVersion(object.GetResourceVersion())
		ctx, cancel := once()
		object, err = client.Update(ctx, changed, v1.UpdateOptions{})
		cancel()
		if !c.note(key, wanted, err == nil, err) {
			return
		}
		before := c.ledger.last(key)
		wanted.version = versionOf(object.GetResourceVersion())
		if wanted.version <= before {
			c.t.Errorf("an update of `%s` was given the version %d after %d", key, wanted.version, before)
		}
		c.ledger.acknowledge(key, wanted)
	}
	if rand.IntN(3) > 0 {
		return
	}
	c.ledger.leave(key)
	ctx, cancel = once()
	err = client.Delete(ctx, name, v1.DeleteOptions{})
	cancel()
	if c.note(key, content{}, err == nil, err) {
		c.ledger.acknowledge(key, content{})
	}
}

// note says whether the write was answered. An answer that says that the
// object is not as its only writer left it is an error in itself.
func (c *crowd) note(key string, wanted content, answered bool, err error) bool {
	if answered {
		return true
	}
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) || apierrors.IsAlreadyExists(err) || apierrors.IsInvalid(err) {
		c.t.Errorf("`%s` has one writer, which was told: %v", key, err)
	}
	c.ledger.unanswered(key, wanted)
	time.Sleep(100 * time.Millisecond)
	return false
}

func counter(number int) *corev1.ConfigMap {
	return &corev1.ConfigMap{
		ObjectMeta: v1.ObjectMeta{Name: fmt.Sprintf("counter-%d", number), Namespace: home}, Data: map[string]string{"count": "0"},
	}
}

// increment adds one to a counter that others add to, too.
func (c *crowd) increment() {
	client := c.client.CoreV1().ConfigMaps(home)
	name := counter(rand.IntN(counters)).Name
	ctx, cancel := once()
	defer cancel()
	current, err := client.Get(ctx, name, v1.GetOptions{})
	if err != nil {
		time.Sleep(100 * time.Millisecond)
		return
	}
	current.Data["count"] = fmt.Sprint(number(current.Data["count"]) + 1)
	_, err = client.Update(ctx, current, v1.UpdateOptions{})
	switch {
	case err == nil:
		c.added.Add(1)
	case apierrors.IsConflict(err):
		c.conflicts.Add(1)
	default:
		c.maybeAdded.Add(1)
		time.Sleep(100 * time.Millisecond)
	}
}

// page lists in pages while others write, and holds each list against the
// ledger: it has what was there before and after it.
func (c *crowd) page(kind kind) {
	prefix := kind.key("")
	known, before := c.ledger.known(), c.ledger.certain(prefix)
	ctx, cancel := once()
	defer cancel()
	found, version, err := kind.list(ctx, c.objects, 50)
	var mistake wrong
	switch {
	case errors.As(err, &mistake):
		c.t.Error(err)
		return
	case apierrors.IsResourceExpired(err):
		// Compacted between two pages.
		c.restarted.Add(1)
		return
	case err != nil:
		time.Sleep(100 * time.Millisecond)
		return
	}
	c.pages.Add(1)
	if version < known {
		c.t.Errorf("a list of %s has the version %d after a client was told of %d", kind.name, version, known)
	}
	after := c.ledger.certain(prefix)
	for key := range before {
		if _, listed := found[key]; !listed && after[key] {
			c.t.Errorf("`%s` is missing in a list at %d", key, version)
		}
	}
	time.Sleep(200 * time.Millisecond)
}

// auditCounters checks that no increment was lost or made twice.
func (c *crowd) auditCounters() {
	total := int64(0)
	for index := range counters {
		await(c.t, "read a counter", func(ctx context.Context) error {
			found, err := c.client.CoreV1().ConfigMaps(home).Get(ctx, counter(index).Name, v1.GetOptions{})
			if err == nil {
				total += number(found.Data["count"])
			}
			return err
		})
	}
	added, maybe := c.added.Load(), c.maybeAdded.Load()
	if total < added || total > added+maybe {
		c.t.Errorf("the counters are at %d; %d increments were answered, %d were not", total, added, maybe)
	}
	if added == 0 || c.conflicts.Load() == 0 {
		c.t.Errorf("%d increments and %d conflicts prove nothing", added, c.conflicts.Load())
	}
}
