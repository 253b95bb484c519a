package tls

import (
	"context"
	"crypto/tls"
	"fmt"
	"strings"
	"testing"
	"time"

	"cairn.dev/conformance/harness"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

// A user who is known by a certificate reads from a member that was restarted
// without a quorum, within the permissions of that user; nobody else does.
func TestCertificateUsersOfAMemberAlone(t *testing.T) {
	t.Parallel()
	if harness.Subject() == harness.Etcd {
		t.Skip("etcd takes no clients before there is a quorum")
	}
	authority := newAuthority(t, "authority")
	own := authority.server("server")
	servers := members(t, harness.Subject(), func(int) []string { return nil })
	var initial []string
	for index, server := range servers {
		initial = append(initial, fmt.Sprintf("m%d=%s", index, server.PeerURL()))
	}
	for index, server := range servers {
		client := "https://" + server.Endpoint()
		server.SetFlags(fmt.Sprintf("--name=m%d", index), "--data-dir="+server.DataDir, "--initial-cluster="+strings.Join(initial, ","),
			"--listen-client-urls="+client, "--advertise-client-urls="+client, "--bcrypt-cost=4",
			"--listen-peer-urls="+server.PeerURL(), "--initial-advertise-peer-urls="+server.PeerURL(),
			"--cert-file="+own.cert, "--key-file="+own.key, "--trusted-ca-file="+authority.file, "--client-cert-auth")
	}
	runAll(t, servers)
	root, reader := authority.trust(authority.client("root")), authority.trust(authority.client("reader"))
	alone := servers[0]
	dial := func(config *tls.Config) *clientv3.Client {
		t.Helper()
		client, err := clientv3.New(clientv3.Config{Endpoints: []string{alone.Endpoint()}, TLS: config, Logger: zap.NewNop()})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { client.Close() })
		return client
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	client := dial(root)
	_, user := client.UserAddWithOptions(ctx, "root", "", &clientv3.UserAddOptions{NoPassword: true})
	_, role := client.UserGrantRole(ctx, "root", "root")
	_, other := client.UserAddWithOptions(ctx, "reader", "", &clientv3.UserAddOptions{NoPassword: true})
	_, added := client.RoleAdd(ctx, "some")
	_, permitted := client.RoleGrantPermission(ctx, "some", "open", "", clientv3.PermissionType(clientv3.PermRead))
	_, granted := client.UserGrantRole(ctx, "reader", "some")
	_, put := client.Put(ctx, "open", "1")
	_, hidden := client.Put(ctx, "hidden", "1")
	_, enabled := client.AuthEnable(ctx)
	for _, err := range []error{user, role, other, added, permitted, granted, put, hidden, enabled} {
		if err != nil {
			t.Fatal(err)
		}
	}
	// Writes make the member know that what came before is committed; an idle one writes that down within a second or two.
	for range 5 {
		if _, err := client.Put(ctx, "open", "1"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(500 * time.Millisecond)
	}
	for _, server := range servers {
		server.Kill()
	}
	seen := alone.Launch()
	for deadline := time.Now().Add(patience); !strings.Contains(alone.Log()[seen:], "no quorum yet"); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("it does not serve:\n%s", alone.LogTail())
		}
	}
	read := func(client *clientv3.Client, key string) string {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		got, err := client.Get(ctx, key, clientv3.WithSerializable())
		if err != nil {
			return err.Error()
		}
		return fmt.Sprint(len(got.Kvs))
	}
	// Whether the member has loaded its users already is a matter of time.
	said := ""
	for deadline := time.Now().Add(patience); said != "1" && time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		said = read(dial(reader), "open")
	}
	if said != "1" {
		t.Errorf("the reader reads: %s", said)
	}
	if said := read(dial(reader), "hidden"); !strings.Contains(said, "permission denied") {
		t.Errorf("the reader reads what is not for it: %s", said)
	}
	if said := read(dial(root), "hidden"); said != "1" {
		t.Errorf("root reads: %s", said)
	}
	if said := read(dial(authority.trust(authority.client("nobody"))), "open"); !strings.Contains(said, "user name is empty") && !strings.Contains(said, "permission denied") && !strings.Contains(said, "user name not found") {
		t.Errorf("a stranger reads: %s", said)
	}
}
