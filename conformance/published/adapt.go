package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
)

// shapes is added to the package `common`: it runs each test on the cluster
// shapes of this list. The package's own list has three members only with TLS.
const shapes = `//go:build e2e

package common

import "go.etcd.io/etcd/tests/v3/framework/config"

func init() {
	clusterTestCases = func() []testCase {
		return []testCase{
			{name: "NoTLS", config: config.ClusterConfig{ClusterSize: 1}},
			{name: "NoTLS3", config: config.ClusterConfig{ClusterSize: 3}},
		}
	}
}
`

// edit replaces a text that a file holds a known number of times.
type edit struct {
	path     string
	count    int
	from, to string
}

// inTheClear makes tests that encrypt connections without being about TLS run
// without it.
var inTheClear = []edit{
	{"e2e/ctl_v3_test.go", 1, "cfg:         *e2e.NewConfigAutoTLS(),", "cfg:         *e2e.NewConfigNoTLS(),"},
	{"e2e/ctl_v3_lease_test.go", 2, "e2e.NewConfigAutoTLS()", "e2e.NewConfigNoTLS()"},
	{"e2e/watch_test.go", 2, "cfg.Client = e2e.ClientConfig{ConnectionType: e2e.ClientTLS}", "cfg.Client = e2e.ClientConfig{}"},
	{"e2e/discovery_v3_test.go", 1, "(t, 1, 3, e2e.ClientTLS, true)", "(t, 1, 3, e2e.ClientNonTLS, false)"},
	{"e2e/discovery_v3_test.go", 1, "(t, 3, 3, e2e.ClientTLS, true)", "(t, 3, 3, e2e.ClientNonTLS, false)"},
	{"e2e/discovery_v3_test.go", 1, "e2e.WithIsPeerTLS(true)", "e2e.WithIsPeerTLS(false)"},
	{"e2e/discovery_v3_test.go", 1, "e2e.WithIsPeerAutoTLS(true)", "e2e.WithIsPeerAutoTLS(false)"},
}

// adapt changes the copied sources of the suites where they would otherwise
// need what no issue has asked for yet.
func adapt(folder string) error {
	// After e2e_test.go in the order of names, hence of initialisation.
	if err := os.WriteFile(filepath.Join(folder, "common", "zz_shapes_test.go"), []byte(shapes), 0o600); err != nil {
		return err
	}
	for _, edit := range inTheClear {
		if err := edit.apply(folder); err != nil {
			return err
		}
	}
	return nil
}

// apply fails when the published text is not what the edit was written for.
func (e edit) apply(folder string) error {
	path := filepath.Join(folder, e.path)
	content, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if count := bytes.Count(content, []byte(e.from)); count != e.count {
		return fmt.Errorf("`%s` holds `%s` %d times, not %d", e.path, e.from, count, e.count)
	}
	return os.WriteFile(path, bytes.ReplaceAll(content, []byte(e.from), []byte(e.to)), 0o600)
}
