package process

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"cairn.dev/conformance/harness"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// A member whose memory is used up refuses writes, says why, and takes them
// again once keys are deleted, compacted and the alarm is disarmed.
func TestMemoryBudget(t *testing.T) {
	const budget = 96 << 20
	server := harness.Start(t, harness.Subject(), fmt.Sprint("--memory-budget=", budget))
	client := server.Client()

	// It takes more than a hundred thousand puts: on a machine that has other
	// work, longer than a test's calls may take together.
	filling, filled := context.WithTimeout(t.Context(), 12*time.Minute)
	defer filled()
	var refused atomic.Pointer[error]
	var number atomic.Int64
	var writers sync.WaitGroup
	for range 8 {
		writers.Add(1)
		go func() {
			defer writers.Done()
			for refused.Load() == nil {
				batch := number.Add(1)
				var puts []clientv3.Op
				for put := range 100 {
					puts = append(puts, clientv3.OpPut(fmt.Sprintf("many/%s/%09d/%03d", strings.Repeat("k", 300), batch, put), ""))
				}
				if _, err := client.Txn(filling).Then(puts...).Commit(); err != nil {
					refused.CompareAndSwap(nil, &err)
				}
				if batch > 30_000 {
					err := errors.New("3,000,000 keys were taken")
					refused.CompareAndSwap(nil, &err)
				}
			}
		}()
	}
	writers.Wait()
	ctx := harness.Context(t)
	if err := *refused.Load(); !errors.Is(err, rpctypes.ErrNoSpace) {
		t.Fatal(err)
	}
	server.AwaitLog(t, "the memory budget is used up: raising the NOSPACE alarm")
	// The writers go on for a second before it counts, and until the alarm is known.
	if used := gauge(t, server, "cairn_memory_used_bytes"); used < budget*9/10 || used > budget+(256<<20) {
		t.Errorf("%.0f bytes are used", used)
	}
	if alarms, err := client.AlarmList(ctx); err != nil || len(alarms.Alarms) != 1 {
		t.Errorf("alarms %v, %v", alarms, err)
	}
	status, err := client.Status(ctx, server.Endpoint())
	if err != nil || !strings.Contains(strings.Join(status.Errors, "\n"), "the memory budget of this member is used up") {
		t.Errorf("status %v, %v", status, err)
	}

	// A restart finds no more room than there was.
	server.Stop()
	server.Run()
	client = server.Client()
	if _, err := client.Put(ctx, "one", "more"); !errors.Is(err, rpctypes.ErrNoSpace) {
		t.Errorf("after a restart: %v", err)
	}
	// What is there can be read, and deleted.
	if counted, err := client.Get(ctx, "many/", clientv3.WithPrefix(), clientv3.WithCountOnly()); err != nil || counted.Count < 100_000 {
		t.Fatalf("%v, %v", counted, err)
	}
	// In two requests: a compaction keeps the tombstones of its own revision.
	first, err := client.Get(ctx, "many/", clientv3.WithFirstKey()...)
	if err != nil || len(first.Kvs) != 1 {
		t.Fatalf("%v, %v", first, err)
	}
	rest := clientv3.WithRange(clientv3.GetPrefixRangeEnd("many/"))
	// A machine that has other work may need longer for so many than a request may take; they are deleted all the same.
	if _, err := client.Delete(ctx, string(first.Kvs[0].Key)+"\x00", rest); err != nil && !errors.Is(err, rpctypes.ErrTimeout) {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(100 * time.Millisecond) {
		left, err := client.Get(ctx, "many/", clientv3.WithPrefix(), clientv3.WithCountOnly())
		if err == nil && left.Count == 1 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("%v, %v", left, err)
		}
	}
	deleted, err := client.Delete(ctx, string(first.Kvs[0].Key))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.Compact(ctx, deleted.Header.Revision, clientv3.WithCompactPhysical()); err != nil {
		t.Fatal(err)
	}
	// Memory is given back every 5 to 80 seconds.
	for deadline := time.Now().Add(2 * time.Minute); gauge(t, server, "cairn_memory_used_bytes") > budget*31/32; time.Sleep(100 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%.0f bytes stay used", gauge(t, server, "cairn_memory_used_bytes"))
		}
	}
	if _, err := client.AlarmDisarm(ctx, &clientv3.AlarmMember{}); err != nil {
		t.Fatal(err)
	}
	if _, err := client.Put(ctx, "one", "more"); err != nil {
		t.Error(err)
	}
}

// Without the flag the machine decides, or the container.
func TestMemoryBudgetOfTheMachine(t *testing.T) {
	t.Parallel()
	server := harness.Start(t, harness.Subject())
	if budget := gauge(t, server, "cairn_memory_budget_bytes"); budget < 64<<20 || budget > 1<<50 {
		t.Errorf("a budget of %.0f bytes", budget)
	}
	// A thread looks ten times a second, for the first time once it has had its turn.
	await(t, "a look at the memory", func() bool { return gauge(t, server, "cairn_memory_used_bytes") > 0 })
}

func gauge(t *testing.T, server *harness.Server, name string) float64 {
	t.Helper()
	family := families(t, server)[name]
	if family == nil {
		t.Fatalf("there is no %s", name)
	}
	return value(family)
}
