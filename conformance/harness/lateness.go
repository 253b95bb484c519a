package harness

import (
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"
)

// handOversMax is how many threads and disks, one after the other, a request
// waits for.
const handOversMax = 3

// Lateness finds out how late the machine itself is: how long after its time a
// sleeper wakes up, and how long the disk takes to sync a page.
type Lateness struct {
	mutex   sync.Mutex
	longest time.Duration
	// began is when the round began that is not over yet.
	began time.Time
}

// The rest of a round is lateness.
const lateSleep = 10 * time.Millisecond

// WatchLateness measures until the test ends.
func WatchLateness(t testing.TB) *Lateness {
	t.Helper()
	file, err := os.Create(filepath.Join(t.TempDir(), "synced"))
	if err != nil {
		t.Fatal(err)
	}
	late := &Lateness{began: time.Now()}
	stop := make(chan struct{})
	var ended sync.WaitGroup
	ended.Go(func() {
		defer file.Close()
		page := make([]byte, 4096)
		for {
			select {
			case <-stop:
				return
			case <-time.After(lateSleep):
			}
			file.WriteAt(page, 0)
			file.Sync()
			late.round()
		}
	})
	t.Cleanup(func() {
		close(stop)
		ended.Wait()
	})
	return late
}

func (l *Lateness) round() {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	l.longest = max(l.longest, time.Since(l.began)-lateSleep)
	l.began = time.Now()
}

// Take is how much longer something may have taken than on an idle machine
// since the last Take.
func (l *Lateness) Take() time.Duration {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	longest := max(l.longest, time.Since(l.began)-lateSleep)
	l.longest = 0
	return handOversMax * longest
}
