//go:build storage

package main

// The packages whose tests are run are named here so that the module's sums
// cover what they need. Nothing of them is part of the runner itself.
import (
	_ "k8s.io/apiserver/pkg/reconcilers"
	_ "k8s.io/apiserver/pkg/registry/generic/registry"
	_ "k8s.io/apiserver/pkg/storage/cacher"
	_ "k8s.io/apiserver/pkg/storage/etcd3"
	_ "k8s.io/apiserver/pkg/storage/etcd3/preflight"
	_ "k8s.io/apiserver/pkg/storage/etcd3/testing"
	_ "k8s.io/apiserver/pkg/storage/storagebackend/factory"
	_ "k8s.io/apiserver/pkg/util/peerproxy"
)
