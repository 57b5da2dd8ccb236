package reconcile

import (
	"context"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/kuryr/raven/drivers"
	"github.com/kuryr/raven/service/openstack"
)

// firstTries is how often the first observation is tried, ever later, where another try may help.
const firstTries = 5

// Observe reads from the cloud what is ours. It must succeed once before Run. What may pass is tried again a few times; the
// error is then the last one.
func (e *Engine) Observe(ctx context.Context) error {
	wait := e.config.BackoffBase
	for try := 1; ; try++ {
		err := e.observe(ctx)
		class := openstack.Classify(err)
		if err == nil || try == firstTries || class != openstack.ClassRetry && class != openstack.ClassThrottled {
			return err
		}
		wait = max(2*wait, min(openstack.RetryAfter(err), e.config.BackoffMax))
		e.log.WarnContext(ctx, "the first look at the cloud failed, trying again", "after", wait, "error", err)
		timer := e.clock.NewTimer(wait)
		select {
		case <-ctx.Done():
			timer.Stop()
			return err
		case <-timer.C():
		}
	}
}

// observe lists what is ours and brings the mirror up to date. A failed list changes nothing.
func (e *Engine) observe(ctx context.Context) (err error) {
	e.observing.do(func() { err = e.observeAll(ctx) })
	return err
}

func (e *Engine) observeAll(ctx context.Context) error {
	var begun uint64
	e.store.do(func() { begun = e.store.cloud.tick })
	listed, err := e.cloud.Observe(ctx, e.config.Cluster)
	if err != nil {
		return fmt.Errorf("listing what is ours in the cloud: %w", err)
	}
	balancers, lberr := e.cloud.ObserveKind(ctx, drivers.KindLoadBalancer, e.config.Cluster)
	rows, nberr := listNorthbound(e.config.Northbound)
	var (
		woken   []item
		drifted int
		first   bool
		told    bool
	)
	e.store.do(func() {
		s := e.store
		s.northbound.balancers = s.northbound.balancers || lberr == nil
		if lberr != nil { // the load balancing service is away: what is known of it stays as it is, and waits
			balancers = s.cloud.ofKind(drivers.KindLoadBalancer)
		}
		rows = s.northboundListed(rows, nberr)
		changed, different, gone := s.cloud.replace(slices.Concat(listed, balancers, rows), begun)
		woken = s.recount(e.clock.Now(), lberr)
		first = s.synced.IsZero()
		s.synced = e.clock.Now()
		for _, o := range different {
			woken = append(woken, s.announce(o, true)...)
		}
		for _, o := range gone {
			woken = append(woken, s.announce(o, false)...)
			woken = append(woken, s.ownerItem(o.Identity.Owner)...)
		}
		for _, o := range changed {
			woken = append(woken, s.ownerItem(o.Identity.Owner)...)
		}
		clear(s.foreign)
		drifted = len(different) + len(gone)
		told, s.northbound.told = s.northbound.told, false
	})
	if !first && drifted > 0 {
		e.log.InfoContext(ctx, "the cloud has drifted", "resources", drifted)
	}
	e.metrics.drift(drifted)
	e.wakeAll(woken)
	if told { // while the list was made
		e.takeNorthbound()
	}
	e.afterObservedBalancers(ctx, lberr)
	e.checkLookups(ctx)
	return nil
}

// checkLookups looks again at what operators named: it may have been replaced. Who depends on it looks again then. One that
// cannot be read is no reason to leave the others out.
func (e *Engine) checkLookups(ctx context.Context) {
	for _, l := range e.usedLookups() {
		found, err := e.cloud.Lookup(ctx, l.Of, l.ID)
		missing := openstack.Classify(err) == openstack.ClassNotFound
		if err != nil && !missing {
			e.log.DebugContext(ctx, "looking again at what was configured", "kind", l.Of, "id", l.ID, "error", err)
			continue
		}
		var woken []item
		e.store.do(func() {
			old, known := e.store.lookups[l]
			if missing {
				delete(e.store.lookups, l)
			} else {
				found.Attrs = keep(l.Of, found.Attrs)
				e.store.lookups[l] = found
			}
			if known && (missing || !reflect.DeepEqual(old.Attrs, found.Attrs)) {
				woken = e.store.lookupChanged(l)
			}
		})
		e.wakeAll(woken)
	}
}

// usedLookups lists the lookups that are still in some Set, and forgets the others.
func (e *Engine) usedLookups() []drivers.Lookup {
	var list []drivers.Lookup
	e.store.do(func() {
		used := map[drivers.Lookup]bool{}
		for _, o := range e.store.owners {
			for _, r := range o.set.Resources {
				if l, ok := r.Spec.(drivers.Lookup); ok {
					used[l] = true
				}
			}
		}
		for l := range e.store.lookups {
			if used[l] {
				list = append(list, l)
			} else {
				delete(e.store.lookups, l)
			}
		}
	})
	return list
}

// lookupChanged returns who names a lookup, or refers by role to what it leads to.
func (s *store) lookupChanged(l drivers.Lookup) []item {
	var woken []item
	for _, o := range s.owners {
		for _, r := range o.set.Resources {
			if lookup, ok := r.Spec.(drivers.Lookup); !ok || lookup != l {
				continue
			}
			woken = append(woken, o.item)
			for _, role := range rolesOf(o.target, r) {
				woken = append(woken, s.wake(waitRole(role))...)
			}
		}
	}
	return woken
}

// driftLoop observes at intervals, with jitter, and once more when a create that was cut before this process started can no
// longer commit.
func (e *Engine) driftLoop(ctx context.Context) {
	e.driftAfter(e.config.AmbiguousWait)
	defer e.stopTimers()
	for {
		wait := e.config.DriftInterval*9/10 + rand.N(e.config.DriftInterval/5+1) //nolint:gosec // jitter
		timer := e.clock.NewTimer(wait)
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-timer.C():
		case <-e.driftNow:
			timer.Stop()
		}
		if err := e.observe(ctx); err != nil && ctx.Err() == nil {
			e.log.Warn("the drift check failed; nothing is concluded from it", "error", err)
			e.driftAfter(e.config.SlowRetry)
		}
		e.requestSweep()
	}
}

func (e *Engine) requestDrift() {
	select {
	case e.driftNow <- struct{}{}:
	default:
	}
}

// timers are drift checks that are due at a set time.
type timers struct {
	mu      sync.Mutex
	pending map[int64]func() bool // by the slot of time in which they are due
	stopped bool
}

// driftAfter asks for a drift check after a time, or a little later: those that are due about the same time are one.
func (e *Engine) driftAfter(d time.Duration) {
	e.timers.mu.Lock()
	defer e.timers.mu.Unlock()
	if e.timers.stopped {
		return
	}
	if e.timers.pending == nil {
		e.timers.pending = map[int64]func() bool{}
	}
	width := max(e.config.AmbiguousWait/4, time.Millisecond)
	now := e.clock.Now()
	slot := now.Add(d).UnixNano()/int64(width) + 1
	if e.timers.pending[slot] != nil {
		return
	}
	timer := e.clock.AfterFunc(time.Unix(0, slot*int64(width)).Sub(now), func() {
		e.timers.mu.Lock()
		delete(e.timers.pending, slot)
		e.timers.mu.Unlock()
		e.requestDrift()
	})
	e.timers.pending[slot] = timer.Stop
}

func (e *Engine) stopTimers() {
	e.timers.mu.Lock()
	defer e.timers.mu.Unlock()
	e.timers.stopped = true
	for _, stop := range e.timers.pending {
		stop()
	}
}
