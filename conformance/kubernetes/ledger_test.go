package kubernetes

import (
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// content is what an object holds; absent objects hold nothing.
type content struct {
	present bool
	value   string
	// version is the resource version of the write, zero if nobody was told.
	version uint64
}

// acknowledged is a write whose answer arrived.
type acknowledged struct {
	key     string
	version uint64
}

// ledger is what the writers were told. Each object has one writer, which
// leaves it alone once a write had no answer: either content is right then.
type ledger struct {
	mutex   sync.Mutex
	objects map[string][]content
	writes  []acknowledged
	// leaving are objects whose deletion was asked for.
	leaving  map[string]bool
	highest  uint64
	failures int
}

func newLedger() *ledger {
	return &ledger{objects: map[string][]content{}, leaving: map[string]bool{}}
}

// leave notes that an object may be gone from now on, before any answer.
func (l *ledger) leave(key string) {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	l.leaving[key] = true
}

// acknowledge notes an answered write.
func (l *ledger) acknowledge(key string, now content) {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	l.objects[key] = []content{now}
	if now.version != 0 {
		l.writes = append(l.writes, acknowledged{key, now.version})
		l.highest = max(l.highest, now.version)
	}
}

// unanswered notes a write that may or may not have happened.
func (l *ledger) unanswered(key string, maybe content) {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	before := l.objects[key]
	if before == nil {
		before = []content{{}}
	}
	l.objects[key] = append(before, maybe)
	l.failures++
}

// known is the highest version that any writer was told.
func (l *ledger) known() uint64 {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	return l.highest
}

// certain are the objects of a resource that exist beyond doubt.
func (l *ledger) certain(prefix string) map[string]bool {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	names := map[string]bool{}
	for key, possible := range l.objects {
		if len(possible) == 1 && possible[0].present && !l.leaving[key] && strings.HasPrefix(key, prefix) {
			names[key] = true
		}
	}
	return names
}

// audit holds the ledger against what a list at the end shows.
func (l *ledger) audit(t testing.TB, found map[string]content) {
	t.Helper()
	l.mutex.Lock()
	defer l.mutex.Unlock()
	lost := 0
	for key, possible := range l.objects {
		if !matches(found[key], possible) {
			lost++
			t.Errorf("`%s` is %+v at the end, the writer knows %+v", key, found[key], possible)
		}
	}
	for key := range found {
		if _, known := l.objects[key]; !known {
			t.Errorf("`%s` is there and nobody wrote it", key)
		}
	}
	t.Logf("ledger: %d objects, %d answered writes, %d without an answer, %d objects lost", len(l.objects), len(l.writes), l.failures, lost)
	if len(l.writes) == 0 {
		t.Error("no write was answered")
	}
}

func matches(found content, possible []content) bool {
	for _, one := range possible {
		if found.present == one.present && found.value == one.value && (!one.present || one.version == 0 || one.version == found.version) {
			return true
		}
	}
	return false
}

func versionOf(text string) uint64 {
	version, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		panic(fmt.Sprintf("resource version `%s`: %v", text, err))
	}
	return version
}

// last is the version of the last answered write of an object.
func (l *ledger) last(key string) uint64 {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	possible := l.objects[key]
	if len(possible) == 0 {
		return 0
	}
	return possible[0].version
}
