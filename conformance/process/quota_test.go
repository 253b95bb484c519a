package process

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"cairn.dev/conformance/harness"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// A store that reaches its quota refuses writes and says so, deletes and
// compaction still work, and it goes on once the alarm is disarmed.
func TestQuota(t *testing.T) {
	const (
		quotaBytes = 16 << 20
		valueBytes = 200_000
	)
	server := harness.Start(t, harness.Subject(), fmt.Sprintf("--quota-backend-bytes=%d", quotaBytes))
	client := server.Client()
	put := func(i int) error {
		_, err := client.Put(harness.Context(t), fmt.Sprintf("key%04d", i), strings.Repeat("v", valueBytes))
		return err
	}
	stored := 0
	var err error
	for err == nil && stored*valueBytes < 2*quotaBytes {
		if err = put(stored); err == nil {
			stored++
		}
	}
	if !errors.Is(err, rpctypes.ErrNoSpace) {
		t.Fatalf("after %d values of %d bytes: %v", stored, valueBytes, err)
	}
	if stored*valueBytes < quotaBytes/2 {
		t.Errorf("full after %d values of %d bytes", stored, valueBytes)
	}
	if alarms := server.MustCtl("alarm", "list"); !strings.Contains(alarms, "alarm:NOSPACE") {
		t.Errorf("alarms: %q", alarms)
	}
	if page := ask(t, server, "GET", "/health"); page.status != 503 {
		t.Errorf("/health: %+v", page)
	}
	if _, err := client.Put(harness.Context(t), "small", ""); !errors.Is(err, rpctypes.ErrNoSpace) {
		t.Errorf("a small put: %v", err)
	}
	if _, err := client.Grant(harness.Context(t), 100); !errors.Is(err, rpctypes.ErrNoSpace) {
		t.Errorf("a lease: %v", err)
	}
	if response, err := client.Get(harness.Context(t), "key", clientv3.WithPrefix(), clientv3.WithCountOnly()); err != nil || response.Count != int64(stored) {
		t.Errorf("a range: %v, %v", response, err)
	}
	deleted, err := client.Delete(harness.Context(t), "key", clientv3.WithPrefix())
	if err != nil || deleted.Deleted != int64(stored) {
		t.Fatalf("a delete: %v, %v", deleted, err)
	}
	if _, err := client.Compact(harness.Context(t), deleted.Header.Revision, clientv3.WithCompactPhysical()); err != nil {
		t.Fatal(err)
	}
	server.MustCtl("defrag")
	if err := put(0); !errors.Is(err, rpctypes.ErrNoSpace) {
		t.Errorf("a put before the alarm is disarmed: %v", err)
	}
	// The alarm outlives the process.
	server.Kill()
	server.Run()
	if err := put(0); !errors.Is(err, rpctypes.ErrNoSpace) {
		t.Errorf("a put after a restart: %v", err)
	}
	server.MustCtl("alarm", "disarm")
	for i := range stored / 2 {
		if err := put(i); err != nil {
			t.Fatalf("put %d after the alarm was disarmed: %v", i, err)
		}
	}
}
