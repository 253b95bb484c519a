package reliability

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"cairn.dev/conformance/harness"
)

// fill puts values of the given size until the server says that it has no
// space, and returns how many it took. Any other error fails the test: the
// limit must be noticed before a write fails.
func fill(t testing.TB, client *clientv3.Client, valueBytes, putsMax int) int {
	t.Helper()
	value := make([]byte, valueBytes)
	random := rand.NewChaCha8([32]byte{})
	for n := range putsMax {
		random.Read(value)
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		_, err := client.Put(ctx, fmt.Sprintf("fill/%06d", n), string(value))
		cancel()
		if errors.Is(err, rpctypes.ErrNoSpace) {
			return n
		}
		if err != nil {
			t.Fatalf("put %d failed with something other than NOSPACE: %v", n, err)
		}
	}
	t.Fatalf("%d puts of %d bytes and no NOSPACE", putsMax, valueBytes)
	return 0
}

// checkNoSpace looks at a member with the alarm: what must be refused is, and
// what an operator needs works.
func checkNoSpace(t testing.TB, client *clientv3.Client, endpoint string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	alarms, err := client.AlarmList(ctx)
	if err != nil || len(alarms.Alarms) != 1 || alarms.Alarms[0].Alarm.String() != "NOSPACE" {
		t.Errorf("alarms: %v, %v; expected one NOSPACE", alarms, err)
	}
	if status, err := client.Status(ctx, endpoint); err != nil || !strings.Contains(strings.Join(status.Errors, " "), "NOSPACE") {
		t.Errorf("status: %v, %v; its errors should name NOSPACE", status, err)
	}
	if _, err := client.Put(ctx, "small", "x"); !errors.Is(err, rpctypes.ErrNoSpace) {
		t.Errorf("a small put: %v, expected NOSPACE", err)
	}
	if _, err := client.Grant(ctx, 60); !errors.Is(err, rpctypes.ErrNoSpace) {
		t.Errorf("a lease grant: %v, expected NOSPACE", err)
	}
	if got, err := client.Get(ctx, "fill/000000"); err != nil || len(got.Kvs) != 1 {
		t.Errorf("a read: %v, %v", got, err)
	}
}

// clear deletes and compacts everything, and for etcd defragments: Cairn gives
// space back by itself.
func clear(t testing.TB, server *harness.Server, client *clientv3.Client) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	deleted, err := client.Delete(ctx, "fill/", clientv3.WithPrefix())
	if err != nil {
		t.Fatalf("delete under NOSPACE: %v", err)
	}
	if _, err := client.Compact(ctx, deleted.Header.Revision, clientv3.WithCompactPhysical()); err != nil {
		t.Fatalf("compaction under NOSPACE: %v", err)
	}
	if server.Kind == harness.Etcd {
		if _, err := client.Defragment(ctx, server.Endpoint()); err != nil {
			t.Fatal(err)
		}
	}
}

// disarm clears the alarm and waits until writes are taken again.
func disarm(t testing.TB, client *clientv3.Client) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if _, err := client.AlarmDisarm(ctx, &clientv3.AlarmMember{}); err != nil {
		t.Fatalf("disarm: %v", err)
	}
	if _, err := client.Put(ctx, "after", "x"); err != nil {
		t.Fatalf("a put after the alarm was cleared: %v", err)
	}
}

// TestQuota fills the quota, clears the alarm as with etcd, and fills it again:
// the space is there a second time.
func TestQuota(t *testing.T) {
	const quotaBytes, valueBytes = 32 << 20, 64 << 10
	server := harness.Start(t, harness.Subject(), fmt.Sprint("--quota-backend-bytes=", quotaBytes))
	client := server.Client()
	took := fill(t, client, valueBytes, 2*quotaBytes/valueBytes)
	if took < quotaBytes/valueBytes*8/10 {
		t.Errorf("NOSPACE after %d MB of %d", took*valueBytes>>20, quotaBytes>>20)
	}
	checkNoSpace(t, client, server.Endpoint())
	clear(t, server, client)
	disarm(t, client)
	if again := fill(t, client, valueBytes, 2*quotaBytes/valueBytes); again < took*9/10 {
		t.Errorf("%d puts fitted at first, %d after the space was cleared", took, again)
	}
}

// TestDiskFull fills a disk of 256 MB. NOSPACE must come before any write
// fails, and the way back (delete, compact, restart) must work without help.
func TestDiskFull(t *testing.T) {
	disk := t.TempDir()
	const diskBytes, valueBytes = 256 << 20, 100 << 10
	if err := syscall.Mount("tmpfs", disk, "tmpfs", 0, fmt.Sprint("size=", diskBytes)); err != nil {
		harness.Unproved(t, fmt.Sprint("a tmpfs needs root: ", err))
	}
	t.Cleanup(func() { syscall.Unmount(disk, syscall.MNT_DETACH) })
	// etcd does not look at the disk: its quota stands in, so that the test itself is proved.
	quota := "--quota-backend-bytes=8589934592"
	if harness.Subject() == harness.Etcd {
		quota = "--quota-backend-bytes=50000000"
	}
	server := harness.Prepare(t, harness.Subject(), disk+"/data", quota)
	server.Run()
	client := server.Client()

	took := fill(t, client, valueBytes, diskBytes/valueBytes)
	atFull := freeBytes(t, disk)
	t.Logf("NOSPACE after %d MB; %d MB of the disk are free", took*valueBytes>>20, atFull>>20)
	checkNoSpace(t, client, server.Endpoint())
	server.Kill()
	server.Run()
	checkNoSpace(t, client, server.Endpoint())
	server.Stop()
	server.Run()
	// A small delete first: it writes, like everything, and must find room.
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if _, err := client.Delete(ctx, "fill/000001"); err != nil {
		t.Fatalf("delete on a full disk: %v", err)
	}
	clear(t, server, client)
	for deadline := time.Now().Add(spaceMax); ; time.Sleep(200 * time.Millisecond) {
		if free := freeBytes(t, disk); free >= atFull+uint64(took*valueBytes*8/10) {
			t.Logf("%d MB are free again", free>>20)
			break
		} else if time.Now().After(deadline) {
			t.Fatalf("%d MB were deleted and compacted, but only %d MB are free (%d MB when full):\n%s",
				took*valueBytes>>20, free>>20, atFull>>20, listFiles(disk))
		}
	}
	disarm(t, client)
	if again := fill(t, client, valueBytes, diskBytes/valueBytes); again < took*8/10 {
		t.Errorf("%d puts fitted at first, %d after the space was cleared", took, again)
	}
	for line := range strings.Lines(server.Log()) {
		if strings.Contains(strings.ToLower(line), "no space left on device") {
			t.Fatalf("a write failed: %s", line)
		}
	}
}

// fillWithSmallKeys puts keys with hardly a value, many to a transaction, until
// the server says that it has no space, and returns how many there are.
func fillWithSmallKeys(t testing.TB, client *clientv3.Client, keysMax int) int {
	t.Helper()
	const perTxn, writers = 120, 8
	var next atomic.Int64
	var done sync.WaitGroup
	failed := make(chan error, writers)
	for range writers {
		done.Go(func() {
			for {
				first := int(next.Add(perTxn)) - perTxn
				if first >= keysMax {
					failed <- fmt.Errorf("%d keys and no NOSPACE", keysMax)
					return
				}
				ops := make([]clientv3.Op, perTxn)
				for at := range ops {
					ops[at] = clientv3.OpPut(smallKey(first+at), "x")
				}
				ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
				_, err := client.Txn(ctx).Then(ops...).Commit()
				cancel()
				if errors.Is(err, rpctypes.ErrNoSpace) {
					return
				}
				if err != nil {
					failed <- fmt.Errorf("a transaction of puts failed with something other than NOSPACE: %w", err)
					return
				}
			}
		})
	}
	done.Wait()
	close(failed)
	for err := range failed {
		t.Fatal(err)
	}
	return int(next.Load())
}

func smallKey(number int) string {
	return fmt.Sprintf("many/%08d", number)
}

// spaceMax is how long a request on a full disk may take, or the space of what was
// compacted to come back.
const spaceMax = 2 * time.Minute

// TestManyDeletesOnAFullDisk deletes everything at once from a full disk. The
// records of the deletion have no room there, which must be noticed before it
// is in the log: every member would die of it again at each start. Deleting and
// compacting part by part is the way back, whether the parts lie side by side
// or here and there, when no file is soon mostly dead.
func TestManyDeletesOnAFullDisk(t *testing.T) {
	for name, step := range map[string]int{"in order": 1, "here and there": 7} {
		t.Run(name, func(t *testing.T) { manyDeletesOnAFullDisk(t, step) })
	}
}

func manyDeletesOnAFullDisk(t *testing.T, step int) {
	disk := t.TempDir()
	if err := syscall.Mount("tmpfs", disk, "tmpfs", 0, "size=256m"); err != nil {
		harness.Unproved(t, fmt.Sprint("a tmpfs needs root: ", err))
	}
	t.Cleanup(func() { syscall.Unmount(disk, syscall.MNT_DETACH) })
	quota := "--quota-backend-bytes=8589934592"
	if harness.Subject() == harness.Etcd {
		quota = "--quota-backend-bytes=50000000"
	}
	server := harness.Prepare(t, harness.Subject(), disk+"/data", quota)
	server.Run()
	client := server.Client()
	keys := fillWithSmallKeys(t, client, 5_000_000)
	t.Logf("NOSPACE after %d keys; %d MB of the disk are free", keys, freeBytes(t, disk)>>20)

	// Each call has a limit, and so has the wait for space: all of it takes as long as the machine does.
	call := func(ask func(ctx context.Context) error) error {
		ctx, cancel := context.WithTimeout(t.Context(), spaceMax)
		defer cancel()
		return ask(ctx)
	}
	if harness.Subject() == harness.Cairn {
		everything := clientv3.OpDelete("many/", clientv3.WithPrefix())
		err := call(func(ctx context.Context) error {
			_, err := client.Do(ctx, everything)
			return err
		})
		if !errors.Is(err, rpctypes.ErrNoSpace) {
			t.Fatalf("a deletion of %d keys on a full disk: %v, expected NOSPACE", keys, err)
		}
		nested := clientv3.OpTxn(nil, []clientv3.Op{everything}, nil)
		err = call(func(ctx context.Context) error {
			_, err := client.Txn(ctx).Then(nested).Commit()
			return err
		})
		if !errors.Is(err, rpctypes.ErrNoSpace) {
			t.Fatalf("a transaction that deletes %d keys on a full disk: %v, expected NOSPACE", keys, err)
		}
	}
	const slice = 10_000
	var revision, compacted int64
	refused, lastDone := 0, time.Now()
	// Every slice comes once: a step that is a prime visits all, when it does not divide their number.
	slices := (keys + slice - 1) / slice
	if slices%step == 0 {
		slices++
	}
	for done := 0; done < slices; {
		first := done * step % slices * slice
		err := call(func(ctx context.Context) error {
			deleted, err := client.Delete(ctx, smallKey(first), clientv3.WithRange(smallKey(first+slice)))
			if err == nil {
				revision = deleted.Header.Revision
			}
			return err
		})
		switch {
		case err == nil:
			done++
			lastDone = time.Now()
		case errors.Is(err, rpctypes.ErrNoSpace) && compacted < revision:
			// The space of what was deleted comes back once it is compacted.
			err := call(func(ctx context.Context) error {
				_, err := client.Compact(ctx, revision, clientv3.WithCompactPhysical())
				return err
			})
			if err != nil {
				t.Fatalf("a compaction after %d of %d deletions: %v", done, slices, err)
			}
			compacted = revision
		case errors.Is(err, rpctypes.ErrNoSpace) && time.Since(lastDone) < spaceMax:
			refused++
			time.Sleep(500 * time.Millisecond)
		default:
			t.Fatalf("a deletion of %d keys after %d of %d, having waited %d times for space: %v", slice, done, slices, refused, err)
		}
	}
	t.Logf("deleted all of them, having waited %d times for space", refused)
	var left *clientv3.GetResponse
	err := call(func(ctx context.Context) (err error) {
		left, err = client.Get(ctx, "many/", clientv3.WithPrefix(), clientv3.WithCountOnly())
		return err
	})
	if err != nil || left.Count != 0 {
		t.Fatalf("%v keys are left, %v", left, err)
	}
	server.Kill()
	server.Run()
	if log := strings.ToLower(server.Log()); strings.Contains(log, "no space left on device") {
		t.Errorf("a write failed:\n%s", server.LogTail())
	}
}

// listFiles says what takes the space of a disk.
func listFiles(directory string) string {
	var list strings.Builder
	_ = filepath.WalkDir(directory, func(path string, entry os.DirEntry, err error) error {
		var stat syscall.Stat_t
		if err == nil && entry.Type().IsRegular() && syscall.Stat(path, &stat) == nil {
			fmt.Fprintf(&list, "%8d kB  %s\n", stat.Blocks/2, path)
		}
		return nil
	})
	return list.String()
}

func freeBytes(t testing.TB, directory string) uint64 {
	t.Helper()
	var stat syscall.Statfs_t
	if err := syscall.Statfs(directory, &stat); err != nil {
		t.Fatal(os.NewSyscallError("statfs", err))
	}
	return stat.Bavail * uint64(stat.Bsize)
}
