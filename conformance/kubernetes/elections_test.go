package kubernetes

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

const (
	candidates  = 3
	leaderLease = "leader"
	leaseTime   = 6 * time.Second
	// termMax is how long a candidate leads before it gives up by itself.
	termMax = 4 * time.Second
)

// elections counts the terms of the candidates.
type elections struct {
	mutex sync.Mutex
	terms int
}

// elect has candidates that lead for a moment, one after the other.
func (c *crowd) elect() {
	for number := range candidates {
		c.users.loop(func() {
			ctx, cancel := context.WithCancel(c.users.ended)
			defer cancel()
			elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
				Lock: &resourcelock.LeaseLock{
					LeaseMeta:  v1.ObjectMeta{Name: leaderLease, Namespace: home},
					Client:     c.client.CoordinationV1(),
					LockConfig: resourcelock.ResourceLockConfig{Identity: fmt.Sprintf("candidate-%d", number)},
				},
				LeaseDuration: leaseTime, RenewDeadline: 4 * time.Second, RetryPeriod: 500 * time.Millisecond,
				// After a term of the first candidate the lease has to run out.
				ReleaseOnCancel: number > 0,
				Callbacks: leaderelection.LeaderCallbacks{
					OnStartedLeading: func(leading context.Context) {
						c.leaders.mutex.Lock()
						c.leaders.terms++
						c.leaders.mutex.Unlock()
						select {
						case <-leading.Done():
						case <-time.After(termMax):
							cancel()
						}
					},
					OnStoppedLeading: func() {},
				},
			})
			if err != nil {
				c.t.Error(err)
				c.users.end()
				return
			}
			elector.Run(ctx)
			// The next one to lead is another one, also where the lease has to run
			// out before.
			select {
			case <-c.users.ended.Done():
			case <-time.After(leaseTime + termMax):
			}
		})
	}
}

// reign is what the lease of the candidates said after one write.
type reign struct {
	version     uint64
	holder      string
	transitions int32
	acquired    time.Time
	renewed     time.Time
	duration    time.Duration
}

func reignOf(lease *coordinationv1.Lease) reign {
	r := reign{version: versionOf(lease.ResourceVersion)}
	if lease.Spec.HolderIdentity != nil {
		r.holder = *lease.Spec.HolderIdentity
	}
	if lease.Spec.LeaseTransitions != nil {
		r.transitions = *lease.Spec.LeaseTransitions
	}
	if lease.Spec.AcquireTime != nil {
		r.acquired = lease.Spec.AcquireTime.Time
	}
	if lease.Spec.RenewTime != nil {
		r.renewed = lease.Spec.RenewTime.Time
	}
	if lease.Spec.LeaseDurationSeconds != nil {
		r.duration = time.Duration(*lease.Spec.LeaseDurationSeconds) * time.Second
	}
	return r
}

// reigns is the history of the candidates' lease; a gap begins it anew.
type reigns struct {
	mutex   sync.Mutex
	history []reign
	// broken are the indexes that follow a gap.
	broken map[int]bool
}

// see takes what a watcher of leases saw, nil for a gap.
func (r *reigns) see(object *unstructured.Unstructured) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	if object == nil {
		r.broken[len(r.history)] = true
		return
	}
	if object.GetName() != leaderLease {
		return
	}
	var lease coordinationv1.Lease
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &lease); err != nil {
		panic(err)
	}
	r.history = append(r.history, reignOf(&lease))
}

// coarseness is how much too early a candidate may be: client-go compares what
// it reads with what it knows to the second, so it overlooks a renewal in the
// second of the one before.
const coarseness = time.Second

// audit checks in the history of the lease, all of whose writers have
// the same clock, that nobody took it from a candidate that still held it.
func (r *reigns) audit(t testing.TB) {
	t.Helper()
	r.mutex.Lock()
	defer r.mutex.Unlock()
	history, changes := r.history, 0
	for index := 1; index < len(history); index++ {
		before, now := history[index-1], history[index]
		if now.holder == before.holder || r.broken[index] {
			continue
		}
		changes++
		if before.holder != "" && now.holder != "" && now.acquired.Before(before.renewed.Add(before.duration-coarseness)) {
			t.Errorf("`%s` took the lease at %v from `%s`, which had renewed it at %v for %v (version %d)",
				now.holder, now.acquired, before.holder, before.renewed, before.duration, now.version)
		}
	}
	t.Logf("elections: %d writes of the lease, %d changes of the holder", len(history), changes)
	if changes == 0 {
		t.Error("the leader never changed")
	}
}
