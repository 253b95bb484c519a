//go:build e2e

package main

// The suites are named here so that the module's sums cover what they need.
// Nothing of them is part of the runner itself.
import (
	_ "go.etcd.io/etcd/tests/v3/common"
	_ "go.etcd.io/etcd/tests/v3/e2e"
	_ "go.etcd.io/etcd/tests/v3/robustness/scenarios"
	_ "go.etcd.io/etcd/tests/v3/robustness/validate"
)
