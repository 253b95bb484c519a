package takeover

import (
	"fmt"
	"maps"
	"math/rand"
	"slices"
	"strings"
	"sync"
	"time"

	"cairn.dev/conformance/harness"
	"cairn.dev/conformance/network"
)

// faultMax is how long a fault lasts at most.
const faultMax = 3 * time.Second

// trouble breaks one thing after the other in a cluster of both kinds, and mends
// it.
type trouble struct {
	stage  *stage
	random *rand.Rand
	done   chan struct{}
	ended  sync.WaitGroup
	// counts are how often what was broken.
	counts map[string]int
}

// fault breaks something of a member, and returns what mends it.
type fault struct {
	name   string
	inject func(tr *trouble, name string, server *harness.Server) (mend func())
}

var faults = []fault{
	{"killed", (*trouble).kill},
	{"killed", (*trouble).kill},
	{"stopped", func(_ *trouble, _ string, server *harness.Server) func() {
		server.Pause()
		return server.Resume
	}},
	{"packets lost", func(tr *trouble, _ string, _ *harness.Server) func() {
		tr.stage.links.All(network.Link{Loss: 0.05 + 0.25*tr.random.Float64()})
		return func() { tr.stage.links.All(network.Link{}) }
	}},
	{"cut off", func(tr *trouble, _ string, server *harness.Server) func() {
		place := tr.stage.place(server)
		tr.stage.links.Between(place, network.Link{Cut: true})
		return func() { tr.stage.links.Between(place, network.Link{}) }
	}},
	{"deaf to one", func(tr *trouble, _ string, server *harness.Server) func() {
		to := tr.stage.place(server)
		from := (to + 1 + tr.random.Intn(2)) % 3
		tr.stage.links.Set(from, to, network.Link{Cut: true})
		return func() { tr.stage.links.Set(from, to, network.Link{}) }
	}},
}

// kill ends a member, unless a hook has just stopped it; it is started again
// unless a hook does so.
func (tr *trouble) kill(name string, server *harness.Server) func() {
	s := tr.stage
	server.Kill()
	return func() {
		s.mutex.Lock()
		defer s.mutex.Unlock()
		if s.running[name] == server && !s.halted[server] && !server.Running() {
			server.Launch()
		}
	}
}

// disturb begins.
func (s *stage) disturb(random *rand.Rand) *trouble {
	tr := &trouble{stage: s, random: random, done: make(chan struct{}), counts: map[string]int{}}
	between := func(low, high time.Duration) time.Duration {
		return low + time.Duration(random.Int63n(int64(high-low)))
	}
	tr.ended.Go(func() {
		for tr.pause(between(300*time.Millisecond, 2*time.Second)) {
			next := faults[random.Intn(len(faults))]
			s.mutex.Lock()
			names := slices.Sorted(maps.Keys(s.running))
			name := names[random.Intn(len(names))]
			server := s.running[name]
			if !server.Running() || s.halted[server] {
				s.mutex.Unlock()
				continue
			}
			mend := next.inject(tr, name, server)
			s.mutex.Unlock()
			tr.counts[next.name]++
			tr.pause(between(200*time.Millisecond, faultMax))
			mend()
		}
	})
	return tr
}

// pause says whether there is to be more.
func (tr *trouble) pause(length time.Duration) bool {
	select {
	case <-tr.done:
		return false
	case <-time.After(length):
		return true
	}
}

// end mends what is broken, and says what was.
func (tr *trouble) end() string {
	close(tr.done)
	tr.ended.Wait()
	var told []string
	for _, name := range slices.Sorted(maps.Keys(tr.counts)) {
		told = append(told, fmt.Sprintf("%s %d times", name, tr.counts[name]))
	}
	return strings.Join(told, ", ")
}
