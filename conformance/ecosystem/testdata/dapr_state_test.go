// Package etcd calls dapr's conformance tests of state stores for its two stores on etcd, with the settings that dapr's
// own files have for them. Dapr's TestStateConformance, which does so for every store, would have to be built with them all.
package etcd

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dapr/components-contrib/state"
	"github.com/dapr/components-contrib/state/etcd"
	"github.com/dapr/components-contrib/tests/conformance"
	stores "github.com/dapr/components-contrib/tests/conformance/state"
	"github.com/dapr/kit/logger"
)

// settings is where dapr lists its stores and has a folder for each.
const settings = "../../config/state"

var made = map[string]func(logger.Logger) state.Store{
	"etcd.v1": etcd.NewEtcdStateStoreV1,
	"etcd.v2": etcd.NewEtcdStateStoreV2,
}

func TestStateConformance(t *testing.T) {
	listed, err := conformance.NewTestConfiguration(filepath.Join(settings, "tests.yml"))
	require.NoError(t, err)
	listed.Components = slices.DeleteFunc(listed.Components, func(each conformance.TestComponent) bool {
		return !strings.HasPrefix(each.Component, "etcd.")
	})
	listed.TestFn = func(component *conformance.TestComponent) func(*testing.T) {
		return func(t *testing.T) { conform(t, component) }
	}
	listed.Run(t)
}

func conform(t *testing.T, component *conformance.TestComponent) {
	require.Contains(t, made, component.Component)
	store := made[component.Component](logger.NewLogger("state"))

	folder := strings.ReplaceAll(component.Component, ".", "/")
	found, err := conformance.LoadComponents(filepath.Join(settings, folder))
	require.NoError(t, err)
	require.Len(t, found, 1)
	properties, err := conformance.ConvertMetadataToProperties(found[0].Spec.Metadata)
	require.NoError(t, err)

	conformance.ParseConfigurationMap(t, component.Config)
	config, err := stores.NewTestConfig(component.Component, component.Operations, component.Config)
	require.NoError(t, err)
	stores.ConformanceTests(t, properties, store, config)
}
