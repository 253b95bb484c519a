package kubernetes

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/tools/cache"
)

// informed are the resources that informers hold.
var informed = []schema.GroupVersionResource{
	configMaps.resource, widgets.resource, pods, leases,
	{Version: "v1", Resource: "namespaces"}, {Version: "v1", Resource: "nodes"},
	{Group: "apps", Version: "v1", Resource: "deployments"}, {Group: "apps", Version: "v1", Resource: "replicasets"},
	{Group: "discovery.k8s.io", Version: "v1", Resource: "endpointslices"},
}

var (
	pods   = schema.GroupVersionResource{Version: "v1", Resource: "pods"}
	leases = schema.GroupVersionResource{Group: "coordination.k8s.io", Version: "v1", Resource: "leases"}
)

// informer is a client-go informer and what its handlers were told.
type informer struct {
	resource schema.GroupVersionResource
	shared   cache.SharedIndexInformer

	mutex sync.Mutex
	// told is the version of each object by the handlers.
	told  map[string]uint64
	count int
	wrong []string
}

// inform starts informers and waits until each has its first list.
func inform(b *band, t testing.TB, client dynamic.Interface) []*informer {
	t.Helper()
	factory := dynamicinformer.NewDynamicSharedInformerFactory(client, 0)
	var all []*informer
	for _, resource := range informed {
		i := &informer{resource: resource, shared: factory.ForResource(resource).Informer(), told: map[string]uint64{}}
		i.shared.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: i.added, UpdateFunc: i.updated, DeleteFunc: i.deleted})
		all = append(all, i)
	}
	factory.Start(b.ended.Done())
	for resource, synced := range factory.WaitForCacheSync(b.ended.Done()) {
		if !synced {
			t.Fatalf("the informer of %v has no list", resource)
		}
	}
	return all
}

func nameOf(object any) (name string, version uint64) {
	if last, ok := object.(cache.DeletedFinalStateUnknown); ok {
		object = last.Obj
	}
	found := object.(*unstructured.Unstructured)
	return found.GetNamespace() + "/" + found.GetName(), versionOf(found.GetResourceVersion())
}

func (i *informer) added(object any) {
	name, version := nameOf(object)
	i.mutex.Lock()
	defer i.mutex.Unlock()
	i.count++
	if before, there := i.told[name]; there {
		i.wrong = append(i.wrong, fmt.Sprintf("`%s` was added at %d and was there at %d", name, version, before))
	}
	i.told[name] = version
}

func (i *informer) updated(old, now any) {
	name, version := nameOf(now)
	_, before := nameOf(old)
	i.mutex.Lock()
	defer i.mutex.Unlock()
	i.count++
	if told, there := i.told[name]; !there || told != before || version < before {
		i.wrong = append(i.wrong, fmt.Sprintf("`%s` went from %d to %d, the handlers knew %d (%t)", name, before, version, told, there))
	}
	i.told[name] = version
}

func (i *informer) deleted(object any) {
	name, version := nameOf(object)
	i.mutex.Lock()
	defer i.mutex.Unlock()
	i.count++
	if before, there := i.told[name]; !there || version < before {
		i.wrong = append(i.wrong, fmt.Sprintf("`%s` was deleted at %d, the handlers knew %d (%t)", name, version, before, there))
	}
	delete(i.told, name)
}

// audit waits until the informer and its handlers have what a list shows.
func (i *informer) audit(t testing.TB, client dynamic.Interface) {
	t.Helper()
	await(t, "the informer of "+i.resource.Resource+" is level with a list", func(ctx context.Context) error {
		listed, err := client.Resource(i.resource).List(ctx, v1.ListOptions{})
		if err != nil {
			return err
		}
		wanted := map[string]uint64{}
		for index := range listed.Items {
			name, version := nameOf(&listed.Items[index])
			wanted[name] = version
		}
		stored := map[string]uint64{}
		for _, object := range i.shared.GetStore().List() {
			name, version := nameOf(object)
			stored[name] = version
		}
		if err := same(stored, wanted); err != nil {
			return fmt.Errorf("its store: %w", err)
		}
		i.mutex.Lock()
		defer i.mutex.Unlock()
		if err := same(i.told, wanted); err != nil {
			return fmt.Errorf("its handlers: %w", err)
		}
		return nil
	})
	for _, wrong := range i.wrong {
		t.Errorf("the informer of %s: %s", i.resource.Resource, wrong)
	}
	t.Logf("informer of %s: %d events, %d objects", i.resource.Resource, i.count, len(i.told))
}

func same(found, wanted map[string]uint64) error {
	for name, version := range wanted {
		if found[name] != version {
			return fmt.Errorf("`%s` is at %d, listed at %d", name, found[name], version)
		}
	}
	if len(found) != len(wanted) {
		return fmt.Errorf("%d objects, listed are %d", len(found), len(wanted))
	}
	return nil
}

func text(version uint64) string { return strconv.FormatUint(version, 10) }
