package kubernetes

import (
	"context"
	"fmt"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
)

// kind is a resource whose objects the writers make: one of Kubernetes' own
// and one that a custom resource definition adds.
type kind struct {
	resource schema.GroupVersionResource
	name     string
	// field holds the value, within `section`.
	section string
	// prefix of the keys in the store.
	prefix string
}

const (
	// home is the namespace of the objects in the ledger.
	home  = "home"
	group = "conformance.cairn.dev"
)

var (
	configMaps = kind{
		resource: schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}, name: "ConfigMap",
		section: "data", prefix: "/registry/configmaps/" + home + "/",
	}
	widgets = kind{
		resource: schema.GroupVersionResource{Group: group, Version: "v1", Resource: "widgets"}, name: "Widget",
		section: "spec", prefix: "/registry/" + group + "/widgets/" + home + "/",
	}
	definitions = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}
)

// object is a new object of the kind, of the ledger.
func (k kind) object(name, value string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": k.resource.GroupVersion().String(), "kind": k.name,
		"metadata": map[string]any{"name": name, "namespace": home, "labels": map[string]any{"ledger": "yes"}},
		k.section:  map[string]any{"value": value},
	}}
}

// value is what the object holds.
func (k kind) value(object *unstructured.Unstructured) string {
	value, _, _ := unstructured.NestedString(object.Object, k.section, "value")
	return value
}

// key is the object's name in the ledger.
func (k kind) key(name string) string { return k.resource.Resource + "/" + name }

// define adds the custom resource and waits until it is served.
func define(t testing.TB, client dynamic.Interface) {
	t.Helper()
	definition := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
		"metadata": map[string]any{"name": "widgets." + group},
		"spec": map[string]any{
			"group": group, "scope": "Namespaced",
			"names": map[string]any{"plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList"},
			"versions": []any{map[string]any{
				"name": "v1", "served": true, "storage": true,
				"schema": map[string]any{"openAPIV3Schema": map[string]any{
					"type": "object",
					"properties": map[string]any{"spec": map[string]any{
						"type": "object", "properties": map[string]any{"value": map[string]any{"type": "string"}},
					}},
				}},
			}},
		},
	}}
	ctx, cancel := context.WithTimeout(t.Context(), settleMax)
	defer cancel()
	if _, err := client.Resource(definitions).Create(ctx, definition, v1.CreateOptions{}); err != nil {
		t.Fatalf("define widgets: %v", err)
	}
	await(t, "the custom resource is served", func(ctx context.Context) error {
		_, err := client.Resource(widgets.resource).Namespace(home).List(ctx, v1.ListOptions{})
		return err
	})
}

// list reads all objects of the ledger page by page. It checks what every page
// promises: one resource version, names in order, none twice.
func (k kind) list(ctx context.Context, client dynamic.Interface, page int64) (found map[string]content, version uint64, err error) {
	found = map[string]content{}
	options := v1.ListOptions{LabelSelector: "ledger=yes", Limit: page}
	last := ""
	for {
		objects, err := client.Resource(k.resource).Namespace(home).List(ctx, options)
		if err != nil {
			return nil, 0, err
		}
		if now := versionOf(objects.GetResourceVersion()); version == 0 {
			version = now
		} else if version != now {
			return nil, 0, wrongf("a page of %s has the version %d, the first one had %d", k.name, now, version)
		}
		for index := range objects.Items {
			object := &objects.Items[index]
			if object.GetName() <= last {
				return nil, 0, wrongf("%s `%s` follows `%s`", k.name, object.GetName(), last)
			}
			last = object.GetName()
			found[k.key(last)] = content{true, k.value(object), versionOf(object.GetResourceVersion())}
		}
		if options.Continue = objects.GetContinue(); options.Continue == "" {
			return found, version, nil
		}
	}
}

// wrong is an error that no fault excuses.
type wrong struct{ text string }

func (w wrong) Error() string { return w.text }

func wrongf(format string, values ...any) error { return wrong{fmt.Sprintf(format, values...)} }

// settleMax is how long something may take that a fault may delay.
const settleMax = 3 * time.Minute

// await tries until there is no error.
func await(t testing.TB, what string, try func(ctx context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), settleMax)
	defer cancel()
	for {
		err := try(ctx)
		if err == nil {
			return
		}
		select {
		case <-ctx.Done():
			t.Fatalf("%s: %v after %v", what, err, settleMax)
		case <-time.After(50 * time.Millisecond):
		}
	}
}
