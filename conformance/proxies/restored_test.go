package proxies

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"cairn.dev/conformance/harness"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// setBack has a server go on with the copy of its directory that `older` makes
// of it before `newer` is called, which writes something.
func setBack(t testing.TB, server *harness.Server, newer func()) {
	t.Helper()
	server.Stop()
	older := filepath.Join(t.TempDir(), "older")
	if err := os.CopyFS(older, os.DirFS(server.DataDir)); err != nil {
		t.Fatal(err)
	}
	server.Run()
	newer()
	server.Kill()
	if err := os.RemoveAll(server.DataDir); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(older, server.DataDir); err != nil {
		t.Fatal(err)
	}
	server.Run()
}

// Once members are back with older data, a proxy serves nothing that it kept,
// ends the watches of what is gone so that clients read anew, and goes on.
func TestProxyRestoredMembers(t *testing.T) {
	t.Parallel()
	if harness.Subject() == harness.Etcd {
		t.Skip("the genuine proxy's watches wait for a revision that members have yet to reach")
	}
	for _, flags := range [][]string{nil, {leasingFlag}} {
		t.Run(fmt.Sprint("flags ", flags), func(t *testing.T) {
			t.Parallel()
			ctx := harness.Context(t)
			server := harness.Start(t, harness.Subject())
			proxy := startProxy(t, []string{server.Endpoint()}, flags...)
			client := clientOf(t, proxy)
			mustPut(ctx, t, client, "a", "old")
			var watches []clientv3.WatchChan
			setBack(t, server, func() {
				// One that has got events, one that has only been told that it was
				// created, and one that begins in the future.
				for _, c := range []struct {
					key     string
					options []clientv3.OpOption
				}{
					{"a", nil},
					{"nothing", []clientv3.OpOption{clientv3.WithProgressNotify()}},
					{"a", []clientv3.OpOption{clientv3.WithRev(1_000_000)}},
				} {
					mustPut(ctx, t, client, "before", "v")
					watch := ownClient(t, proxy).Watch(ctx, c.key, append(c.options, clientv3.WithCreatedNotify())...)
					if created, ok := <-watch; !ok || !created.Created || created.Err() != nil {
						t.Fatalf("%v", created)
					}
					watches = append(watches, watch)
				}
				for number := range 20 {
					mustPut(ctx, t, client, "a", fmt.Sprint(number))
				}
				for last := ""; last != "19"; {
					answer := <-watches[0]
					if answer.Err() != nil || len(answer.Events) == 0 {
						t.Fatalf("%v, %v", answer, answer.Err())
					}
					last = string(answer.Events[len(answer.Events)-1].Kv.Value)
				}
				reads(ctx, t, client, "a", "19")
				if _, err := client.Get(ctx, "a", clientv3.WithSerializable()); err != nil {
					t.Fatal(err)
				}
			})
			// What is read is what there is.
			await(t, "the proxy does not go on", func() bool {
				got, err := client.Get(ctx, "a")
				return err == nil && string(got.Kvs[0].Value) == "old"
			})
			await(t, "a serializable read shows what is gone", func() bool {
				got, err := client.Get(ctx, "a", clientv3.WithSerializable())
				return err == nil && string(got.Kvs[0].Value) == "old"
			})
			select {
			case answer := <-watches[0]:
				// Lease keys that come and go add some to what there was before.
				if err := answer.Err(); !errors.Is(err, rpctypes.ErrCompacted) || answer.CompactRevision < 2 || answer.CompactRevision > 15 {
					t.Errorf("the watch says %v, %v", answer, err)
				}
			case <-time.After(patience):
				t.Error("the watch of what is gone waits")
			}
			proxy.awaitLog(t, "the members' data went back")
			select {
			case answer := <-watches[2]:
				t.Errorf("a watch that begins in the future says %v", answer)
			default:
			}
			// Everything works anew.
			watch := client.Watch(ctx, "a", clientv3.WithCreatedNotify())
			if created := <-watch; !created.Created {
				t.Fatalf("%v, %v", created, created.Err())
			}
			mustPut(ctx, t, client, "a", "new")
			if answer := <-watch; answer.Err() != nil || len(answer.Events) != 1 || string(answer.Events[0].Kv.Value) != "new" {
				t.Errorf("a new watch says %v, %v", answer, answer.Err())
			}
			for range 3 {
				reads(ctx, t, client, "a", "new")
			}
		})
	}
}
