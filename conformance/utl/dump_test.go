package utl

import (
	"strings"
	"testing"

	"cairn.dev/conformance/harness"
)

// Requests are printed as protobuf writes them, as etcd's own tool does, and
// without passwords, whose log it may be.
func TestDump(t *testing.T) {
	for _, kind := range []harness.Kind{harness.Etcd, harness.Subject()} {
		server := harness.Start(t, kind)
		server.MustCtl("put", "a\tkey", "some value")
		server.MustCtl("del", "a", "--prefix")
		server.MustCtl("lease", "grant", "100")
		server.MustCtl("user", "add", "somebody:secret")
		server.Stop()
		text := run(t, "wal", "dump", "--data-dir", server.DataDir)
		for _, part := range []string{
			`put:{key:"a\tkey" value:"some value"}`, `delete_range:{key:"a" range_end:"b"}`, `lease_grant:{TTL:100 ID:`,
			`auth_user_add:{name:"somebody"`, "header:{ID:", "method=ConfChangeAddNode id=", "cluster_version_set:{ver:",
		} {
			if !strings.Contains(text, part) {
				t.Errorf("%s: no %s in\n%s", kind, part, text)
			}
		}
		for _, part := range []string{"secret", "Some(", "InternalRaftRequest", "None"} {
			if strings.Contains(text, part) {
				t.Errorf("%s: %s in\n%s", kind, part, text)
			}
		}
	}
}
