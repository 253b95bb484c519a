package ctl

import (
	"context"
	"fmt"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"cairn.dev/conformance/harness"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// Our make-mirror copies what is there and follows every change, from servers
// of both kinds to servers of both kinds.
func TestMirror(t *testing.T) {
	kinds := []harness.Kind{harness.Etcd, harness.Cairn}
	for i := range 4 {
		one, other := kinds[i/2], kinds[i%2]
		t.Run(fmt.Sprintf("%s to %s", one, other), func(t *testing.T) {
			from, to := harness.Start(t, one), harness.Start(t, other)
			source, mirror, ctx := from.Client(), to.Client(), harness.Context(t)
			put := func(key, value string) {
				t.Helper()
				if _, err := source.Put(ctx, key, value); err != nil {
					t.Fatal(err)
				}
			}
			for i := range 2500 {
				put(fmt.Sprintf("a/%04d", i), "before")
			}
			put("b/1", "elsewhere")
			command := exec.Command(ours(t), "--endpoints="+from.Endpoint(), "make-mirror", "--prefix=a/", "--dest-prefix=c/", to.Endpoint())
			command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
			if err := command.Start(); err != nil {
				t.Fatal(err)
			}
			defer func() {
				command.Process.Kill()
				command.Wait()
			}()
			var ops []clientv3.Op
			for i := range 100 {
				ops = append(ops, clientv3.OpPut(fmt.Sprintf("a/%04d", i*3), "later"))
			}
			if _, err := source.Txn(ctx).Then(ops...).Commit(); err != nil {
				t.Fatal(err)
			}
			if _, err := source.Delete(ctx, "a/01", clientv3.WithPrefix()); err != nil {
				t.Fatal(err)
			}
			put("a/last", "one")
			await(t, mirror, "c/last")
			want, err := source.Get(ctx, "a/", clientv3.WithPrefix())
			if err != nil {
				t.Fatal(err)
			}
			got, err := mirror.Get(ctx, "", clientv3.WithPrefix())
			if err != nil || len(got.Kvs) != len(want.Kvs) {
				t.Fatalf("%d keys, not %d: %v", len((*pb.RangeResponse)(got).Kvs), len(want.Kvs), err)
			}
			for i, kv := range want.Kvs {
				if "c"+string(kv.Key[1:]) != string(got.Kvs[i].Key) || string(kv.Value) != string(got.Kvs[i].Value) {
					t.Fatalf("%q is %q, not %q", got.Kvs[i].Key, got.Kvs[i].Value, kv.Value)
				}
			}
		})
	}
}

func await(t *testing.T, client *clientv3.Client, key string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(harness.Context(t), 2*time.Minute)
	defer cancel()
	for {
		found, err := client.Get(ctx, key)
		if err != nil {
			t.Fatalf("%s: %v", key, err)
		}
		if len(found.Kvs) > 0 {
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
}
