package reliability

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"cairn.dev/conformance/harness"
)

// smallDisk mounts a file system in memory, of 64 MB: the member's segments are
// of 4 MB there.
func smallDisk(t testing.TB) string {
	t.Helper()
	disk := t.TempDir()
	if err := syscall.Mount("tmpfs", disk, "tmpfs", 0, "size=64m"); err != nil {
		harness.Unproved(t, fmt.Sprint("a tmpfs needs root: ", err))
	}
	t.Cleanup(func() { syscall.Unmount(disk, syscall.MNT_DETACH) })
	return disk
}

// noQuota leaves it to the disk. etcd does not look at the disk: its quota
// stands in, so that the tests themselves are proved.
func noQuota() string {
	if harness.Subject() == harness.Etcd {
		return "--quota-backend-bytes=12000000"
	}
	return "--quota-backend-bytes=8589934592"
}

// fillLease puts keys on a lease, many to a transaction, until there is no
// space, and returns how many there may be.
func fillLease(t testing.TB, client *clientv3.Client, lease clientv3.LeaseID) int {
	t.Helper()
	const perTxn, writers, keysMax = 120, 4, 2_000_000
	var mutex sync.Mutex
	next, full := 0, false
	var done sync.WaitGroup
	for range writers {
		done.Go(func() {
			for {
				mutex.Lock()
				first, stop := next, full || next >= keysMax
				next += perTxn
				mutex.Unlock()
				if stop {
					return
				}
				ops := make([]clientv3.Op, perTxn)
				for at := range ops {
					ops[at] = clientv3.OpPut(smallKey(first+at), "x", clientv3.WithLease(lease))
				}
				ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
				_, err := client.Txn(ctx).Then(ops...).Commit()
				cancel()
				if isNoSpace(err) {
					mutex.Lock()
					full = true
					mutex.Unlock()
				} else if err != nil {
					t.Errorf("a transaction of puts failed with something other than NOSPACE: %v", err)
					return
				}
			}
		})
	}
	done.Wait()
	if t.Failed() || !full {
		t.Fatalf("%d keys and no NOSPACE", next)
	}
	return next
}

// deleteParts deletes the first keys in parts, compacting when there is no room
// for the next, until enough says so or all are deleted.
func deleteParts(t testing.TB, client *clientv3.Client, keys, part int, enough func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 240*time.Second)
	defer cancel()
	revision, compacted := int64(0), int64(0)
	for first := 0; first < keys && !enough(); {
		deleted, err := client.Delete(ctx, smallKey(first), clientv3.WithRange(smallKey(first+part)))
		switch {
		case err == nil:
			first += part
			revision = deleted.Header.Revision
		case isNoSpace(err) && compacted < revision:
			if _, err := client.Compact(ctx, revision, clientv3.WithCompactPhysical()); err != nil {
				t.Fatal(err)
			}
			compacted = revision
		case isNoSpace(err):
			time.Sleep(200 * time.Millisecond)
		default:
			t.Fatalf("a deletion of %d keys: %v", part, err)
		}
	}
	if revision > compacted {
		if _, err := client.Compact(ctx, revision, clientv3.WithCompactPhysical()); err != nil && err != rpctypes.ErrCompacted {
			t.Fatal(err)
		}
	}
}

// soon makes a call that must not wait for a member that has ended.
func soon(call func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	return call(ctx)
}

// TestLeaseOfManyKeysOnAFullDisk lets a lease expire whose keys fill a disk. The
// records of their deletion have no room there: the lease waits, with the alarm
// up, instead of ending every member at the same entry, at each start again.
func TestLeaseOfManyKeysOnAFullDisk(t *testing.T) {
	disk := smallDisk(t)
	server := harness.Prepare(t, harness.Subject(), disk+"/data", noQuota())
	server.Run()
	client := server.Client()
	ctx, cancel := context.WithTimeout(context.Background(), 400*time.Second)
	defer cancel()
	lease, err := client.Grant(ctx, 20)
	if err != nil {
		t.Fatal(err)
	}
	keeping, stop := context.WithCancel(ctx)
	kept, err := client.KeepAlive(keeping, lease.ID)
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		for range kept {
		}
	}()
	keys := fillLease(t, client, lease.ID)
	t.Logf("NOSPACE after %d keys; %d MB of the disk are free", keys, freeBytes(t, disk)>>20)
	if harness.Subject() == harness.Cairn {
		server.AwaitLog(t, `"msg":"no space left on the disk: raising the NOSPACE alarm","space":"disk"`)
		if err := soon(func(ctx context.Context) error {
			_, err := client.Revoke(ctx, lease.ID)
			return err
		}); !isNoSpace(err) {
			t.Fatalf("the end of a lease with %d keys on a full disk: %v, expected NOSPACE", keys, err)
		}
	}
	stop()
	if harness.Subject() == harness.Cairn {
		const waits = "expired leases wait for room on the disk"
		for _, restart := range []bool{false, true} {
			said := 0
			if restart {
				server.Kill()
				said = strings.Count(server.Log(), waits)
				server.Run()
			}
			await(t, "that the expired lease waits for room", func() bool {
				if !server.Running() {
					t.Fatalf("the member has ended:\n%s", server.LogTail())
				}
				return strings.Count(server.Log(), waits) > said
			})
			alarms, err := client.AlarmList(ctx)
			if err != nil || len(alarms.Alarms) != 1 || alarms.Alarms[0].Alarm.String() != "NOSPACE" {
				t.Errorf("alarms: %v, %v; expected one NOSPACE", alarms, err)
			}
			left, err := client.TimeToLive(ctx, lease.ID)
			if err != nil || left.GrantedTTL != 20 {
				t.Fatalf("the lease should wait: %v, %v", left, err)
			}
		}
	}
	isGone := func() bool {
		left, err := client.TimeToLive(ctx, lease.ID)
		return err == nil && left.TTL == -1
	}
	deleteParts(t, client, keys, 5_000, isGone)
	await(t, "the end of the lease, now that there is room", isGone)
	if left, err := client.Get(ctx, "many/", clientv3.WithPrefix(), clientv3.WithCountOnly()); err != nil || left.Count != 0 {
		t.Errorf("%v keys are left, %v", left, err)
	}
	server.Kill()
	server.Run()
	if log := strings.ToLower(server.Log()); strings.Contains(log, "no space left on device") {
		t.Errorf("a write failed:\n%s", server.LogTail())
	}
}

// TestTheFullestDiskDecides deletes through a member with plenty of room what a
// member with a small disk has none for.
func TestTheFullestDiskDecides(t *testing.T) {
	disk := smallDisk(t)
	flags := []string{noQuota()}
	members, clients := startMembers(t, []string{t.TempDir(), t.TempDir(), disk}, flags, flags, flags)
	ctx, cancel := context.WithTimeout(context.Background(), 400*time.Second)
	defer cancel()
	lease, err := clients[0].Grant(ctx, 3600)
	if err != nil {
		t.Fatal(err)
	}
	keys := fillLease(t, clients[0], lease.ID)
	t.Logf("NOSPACE after %d keys; %d MB of the small disk are free", keys, freeBytes(t, disk)>>20)
	if harness.Subject() == harness.Cairn {
		for number, client := range clients {
			if err := soon(func(ctx context.Context) error {
				_, err := client.Delete(ctx, "many/", clientv3.WithPrefix())
				return err
			}); !isNoSpace(err) {
				t.Fatalf("a deletion of %d keys through %s: %v, expected NOSPACE", keys, members[number].Name, err)
			}
			if err := soon(func(ctx context.Context) error {
				_, err := client.Revoke(ctx, lease.ID)
				return err
			}); !isNoSpace(err) {
				t.Fatalf("the end of a lease with %d keys through %s: %v, expected NOSPACE", keys, members[number].Name, err)
			}
		}
	}
	deleteParts(t, clients[0], keys, 5_000, func() bool { return false })
	await(t, "the end of the empty lease", func() bool {
		_, err := clients[1].Revoke(ctx, lease.ID)
		return err == nil || err == rpctypes.ErrLeaseNotFound
	})
	for number, client := range clients {
		left, err := client.Get(ctx, "many/", clientv3.WithPrefix(), clientv3.WithCountOnly())
		if err != nil || left.Count != 0 {
			t.Errorf("%v keys are left at %s, %v", left, members[number].Name, err)
		}
		if log := strings.ToLower(members[number].Log()); strings.Contains(log, "no space left on device") {
			t.Errorf("a write failed:\n%s", members[number].LogTail())
		}
	}
}
