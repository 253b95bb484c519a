package ctl

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"cairn.dev/conformance/harness"
)

// usageReport is what `keys usage -w json` prints.
type usageReport struct {
	Exact, MovedOn  bool
	Revision        int64
	CompactRevision *int64
	Total           usageLevel
	LevelCount      int
	Levels          []usageLevel
	Largest         []struct {
		Key   string
		Bytes int
	}
	MostWritten []struct {
		Key      string
		Versions int
	}
	Oldest []struct {
		Key         string
		ModRevision int64
	}
}

type usageLevel struct {
	Level                             string
	Keys, KeyBytes, LiveBytes         int
	LiveBytesAreExact                 bool
	ValuesRead, HistoryVersionsAtMost int
	HistoryBytesEstimatedAtMost       int
	OldestModRevision                 int64
}

// What fills the database is found: of Cairn's members and of etcd's, exactly
// if every value is read, and nearly so if not.
func TestKeysUsage(t *testing.T) {
	if harness.Subject() == harness.Etcd {
		t.Skip("about our tool only")
	}
	for _, kind := range []harness.Kind{harness.Etcd, harness.Cairn} {
		t.Run(string(kind), func(t *testing.T) {
			server := harness.Start(t, kind)
			client := server.Client()
			put := func(key string, bytes int) {
				t.Helper()
				if _, err := client.Put(harness.Context(t), key, strings.Repeat("v", bytes)); err != nil {
					t.Fatal(err)
				}
			}
			for i := range 700 {
				put(fmt.Sprintf("/r/pods/%04d", i), 100)
			}
			for i := range 3 {
				put(fmt.Sprintf("/r/secrets/%d", i), 5000)
			}
			for range 50 {
				put("/r/leases/often", 10)
			}
			put("/else", 1)
			report := func(args ...string) (found usageReport) {
				t.Helper()
				args = append([]string{"--endpoints=" + server.Endpoint(), "keys", "usage", "/r/", "-w", "json", "--pause=0s"}, args...)
				result := harness.Command{Path: ours(t), Args: args}.Run(t)
				if err := json.Unmarshal([]byte(result.Stdout), &found); err != nil || result.Code != 0 {
					t.Fatalf("%v: exit %d, %v\n%s%s", args, result.Code, err, result.Stdout, result.Stderr)
				}
				return found
			}
			exact, near := report("--exact"), report()
			live := 700*(12+100) + 3*(12+5000) + 15 + 10
			if !exact.Exact || exact.Total.Keys != 704 || exact.Total.LiveBytes != live || !exact.Total.LiveBytesAreExact || exact.LevelCount != 3 {
				t.Errorf("exactly: %+v", exact.Total)
			}
			if near.Exact || near.Total.Keys != 704 || near.Total.KeyBytes != exact.Total.KeyBytes || near.Total.ValuesRead >= 100 {
				t.Errorf("nearly: %+v", near.Total)
			}
			for _, found := range []usageReport{exact, near} {
				if len(found.Levels) != 3 || found.Levels[0].Level != "/r/pods/" || found.Levels[0].LiveBytes != 700*112 || found.Levels[1].LiveBytes != 3*5012 {
					t.Errorf("levels: %+v", found.Levels)
				}
				if often := found.Levels[2]; often.HistoryVersionsAtMost != 49 || often.HistoryBytesEstimatedAtMost != 49*25 {
					t.Errorf("written often: %+v", often)
				}
				if found.MostWritten[0].Key != "/r/leases/often" || found.MostWritten[0].Versions != 50 || found.Oldest[0].Key != "/r/pods/0000" || found.Oldest[0].ModRevision != 2 {
					t.Errorf("outstanding: %+v, %+v", found.MostWritten, found.Oldest)
				}
				if found.Largest[0].Bytes != 5012 || !strings.HasPrefix(found.Largest[0].Key, "/r/secrets/") {
					t.Errorf("largest: %+v", found.Largest)
				}
			}
			// What is compacted is no history any more.
			server.MustCtl("compact", fmt.Sprint(exact.Revision))
			if after := report(); after.CompactRevision == nil || *after.CompactRevision != exact.Revision || after.Total.HistoryVersionsAtMost != 0 {
				t.Errorf("after a compaction: %+v", after)
			}
			// It goes on where history is compacted beneath it.
			ended, stopped := make(chan struct{}), make(chan struct{})
			go func() {
				defer close(stopped)
				for {
					select {
					case <-ended:
						return
					default:
					}
					if response, err := client.Put(t.Context(), "/else", "x"); err == nil {
						client.Compact(t.Context(), response.Header.Revision)
					}
				}
			}()
			moved := report("--pause=300ms")
			// On a busy machine nothing may have been compacted meanwhile.
			for end := time.Now().Add(time.Minute); !moved.MovedOn && time.Now().Before(end); {
				moved = report("--pause=1s")
			}
			close(ended)
			<-stopped
			if !moved.MovedOn || moved.Total.Keys != 704 || moved.Revision <= exact.Revision {
				t.Errorf("compacted on the way: %+v", moved)
			}
			text := harness.Command{Path: ours(t), Args: []string{"--endpoints=" + server.Endpoint(), "keys", "usage", "--depth=2", "--top=2"}}.Run(t)
			for _, part := range []string{`705 keys under ""`, `"/r/pods/"`, "(all others)", "(together)", "Written most often", "--exact reads them all"} {
				if !strings.Contains(text.Stdout, part) {
					t.Errorf("no %q in\n%s%s", part, text.Stdout, text.Stderr)
				}
			}
		})
	}
}
