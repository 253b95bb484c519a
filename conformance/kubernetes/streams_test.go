package kubernetes

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
)

// event is one change as a watcher saw it.
type event struct {
	name    string
	version uint64
	deleted bool
}

// gap is what a watcher was told that it cannot have: versions above `from`
// and up to `to`.
type gap struct{ from, to uint64 }

// stream is everything that a watcher saw, in its order.
type stream struct {
	what  string
	mutex sync.Mutex
	// since is the version at which it began.
	since  uint64
	events []event
	gaps   []gap
	wrong  []string
	// each is also given every object, and nil for a gap.
	each func(object *unstructured.Unstructured)
}

// see notes an event, which must be newer than all before it.
func (s *stream) see(event event) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if length := len(s.events); length > 0 && event.version <= s.events[length-1].version {
		s.wrong = append(s.wrong, "version "+text(event.version)+" of `"+event.name+"` after "+text(s.events[length-1].version))
	}
	s.events = append(s.events, event)
}

// lost notes that events after a version were not to be had.
func (s *stream) lost(from, to uint64) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.gaps = append(s.gaps, gap{from, to})
}

// has says whether a stream has seen a version, or cannot have.
func (s *stream) has(version uint64) bool {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if s.missed(version) {
		return true
	}
	for index := len(s.events) - 1; index >= 0 && s.events[index].version >= version; index-- {
		if s.events[index].version == version {
			return true
		}
	}
	return false
}

// missed says whether a version is older than the stream or in a gap.
func (s *stream) missed(version uint64) bool {
	if version <= s.since {
		return true
	}
	for _, gap := range s.gaps {
		if version > gap.from && version <= gap.to {
			return true
		}
	}
	return false
}

// follow watches a resource through the API server and goes on at the last
// version whenever the watch ends.
func follow(b *band, t testing.TB, client dynamic.Interface, resource schema.GroupVersionResource, namespace string, each func(*unstructured.Unstructured)) *stream {
	t.Helper()
	objects := client.Resource(resource).Namespace(namespace)
	s := &stream{what: "the API server's " + resource.Resource, each: each}
	list := func() (version uint64) {
		b.try(func(ctx context.Context) error {
			found, err := objects.List(ctx, v1.ListOptions{Limit: 1})
			if err == nil {
				version = versionOf(found.GetResourceVersion())
			}
			return err
		})
		return version
	}
	s.since = list()
	last := s.since
	b.loop(func() {
		watcher, err := objects.Watch(b.ended, v1.ListOptions{ResourceVersion: text(last), AllowWatchBookmarks: true})
		if err == nil {
			last, err = s.read(watcher, last)
			watcher.Stop()
		}
		if isExpired(err) {
			now := list()
			s.lost(last, now)
			if each != nil {
				each(nil)
			}
			last = now
			return
		}
		select {
		case <-b.ended.Done():
		case <-time.After(50 * time.Millisecond):
		}
	})
	return s
}

func isExpired(err error) bool {
	return err != nil && (apierrors.IsResourceExpired(err) || apierrors.IsGone(err))
}

// read takes events until the watch ends, and returns the version to go on
// from.
func (s *stream) read(watcher watch.Interface, last uint64) (uint64, error) {
	for next := range watcher.ResultChan() {
		if next.Type == watch.Error {
			err := apierrors.FromObject(next.Object)
			var status apierrors.APIStatus
			if errors.As(err, &status) && status.Status().Code == http.StatusGone {
				return last, err
			}
			return last, nil
		}
		object := next.Object.(*unstructured.Unstructured)
		last = versionOf(object.GetResourceVersion())
		if next.Type != watch.Bookmark {
			s.see(event{object.GetName(), last, next.Type == watch.Deleted})
			if s.each != nil {
				s.each(object)
			}
		}
	}
	return last, nil
}

// followStore watches the keys below a prefix in the store itself.
func followStore(b *band, t testing.TB, client *clientv3.Client, prefix string) *stream {
	t.Helper()
	s := &stream{what: "the store's " + prefix}
	now := func() (revision uint64) {
		b.try(func(ctx context.Context) error {
			response, err := client.Get(ctx, prefix)
			if err == nil {
				revision = uint64(response.Header.Revision)
			}
			return err
		})
		return revision
	}
	s.since = now()
	last := s.since
	b.loop(func() {
		ctx, cancel := context.WithCancel(clientv3.WithRequireLeader(b.ended))
		defer cancel()
		for response := range client.Watch(ctx, prefix, clientv3.WithPrefix(), clientv3.WithRev(int64(last+1))) {
			if errors.Is(response.Err(), rpctypes.ErrCompacted) {
				current := now()
				s.lost(last, current)
				last = current
				return
			}
			for _, one := range response.Events {
				last = uint64(one.Kv.ModRevision)
				s.see(event{strings.TrimPrefix(string(one.Kv.Key), prefix), last, one.Type == clientv3.EventTypeDelete})
			}
		}
	})
	return s
}

// auditStreams holds what the API server's watchers saw against what the
// store's saw: the same events in the same order, but for gaps that either was
// told of.
func auditStreams(t testing.TB, api, store *stream) {
	t.Helper()
	for _, s := range []*stream{api, store} {
		for _, wrong := range s.wrong {
			t.Errorf("%s: %s", s.what, wrong)
		}
	}
	since := max(api.since, store.since)
	comparable := func(of, other *stream) (kept []event) {
		for _, event := range of.events {
			if event.version > since && !other.missed(event.version) && !of.missed(event.version) {
				kept = append(kept, event)
			}
		}
		return kept
	}
	seen, there := comparable(api, store), comparable(store, api)
	t.Logf("%s: %d events, %d gaps; in the store %d events, %d gaps", api.what, len(api.events), len(api.gaps), len(store.events), len(store.gaps))
	for index := range min(len(seen), len(there)) {
		if seen[index] != there[index] {
			t.Errorf("%s: event %d is %+v, the store has %+v", api.what, index, seen[index], there[index])
			return
		}
	}
	if len(seen) != len(there) {
		t.Errorf("%s: %d events, the store has %d", api.what, len(seen), len(there))
	}
	if len(seen) == 0 {
		t.Errorf("%s: no event to compare", api.what)
	}
}

// auditWrites checks that a stream has every answered write of its kind.
func auditWrites(t testing.TB, ledger *ledger, kind kind, s *stream) {
	t.Helper()
	prefix := kind.key("")
	missing := 0
	for _, write := range ledger.writes {
		if strings.HasPrefix(write.key, prefix) && !s.has(write.version) {
			if missing++; missing <= 10 {
				t.Errorf("%s: the answered write %d of `%s` is missing", s.what, write.version, write.key)
			}
		}
	}
}
