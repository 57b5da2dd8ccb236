package reconcile

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/kuryr/raven/drivers"
	"github.com/kuryr/raven/service/openstack"
	"github.com/kuryr/raven/service/plan"
	"github.com/kuryr/raven/service/watch"
)

// observe lists what is ours and brings the mirror up to date. A failed list changes nothing.
func (e *Engine) observe(ctx context.Context) error {
	e.store.mu.Lock()
	begun := e.store.cloud.tick
	lookups := make([]drivers.Lookup, 0, len(e.store.lookups))
	for l := range e.store.lookups {
		lookups = append(lookups, l)
	}
	e.store.mu.Unlock()

	listed, err := e.cloud.Observe(ctx, e.config.Cluster)
	if err != nil {
		return fmt.Errorf("listing what is ours in the cloud: %w", err)
	}
	e.store.mu.Lock()
	changed, gone := e.store.cloud.replace(listed, begun)
	first := e.store.synced.IsZero()
	e.store.synced = e.clock.Now()
	var woken []item
	for _, o := range changed {
		woken = append(woken, e.store.arrived(o)...)
		woken = append(woken, e.store.ownerItem(o.Identity.Owner)...)
	}
	for _, o := range gone {
		woken = append(woken, e.store.departed(o.Kind, o.ID)...)
		woken = append(woken, e.store.ownerItem(o.Identity.Owner)...)
	}
	clear(e.store.foreign)
	e.store.mu.Unlock()
	if !first && len(changed)+len(gone) > 0 {
		e.log.Info("the cloud has drifted", "changed", len(changed), "gone", len(gone))
	}
	e.metrics.drift(len(changed) + len(gone))
	e.wakeAll(woken)
	return e.checkLookups(ctx, lookups)
}

func (s *store) ownerItem(id plan.Owner) []item {
	if id.Driver == sharedDriver {
		return []item{{driver: sharedDriver}}
	}
	if o := s.owners[id]; o != nil {
		return []item{o.item}
	}
	return nil
}

// checkLookups looks again at what operators named: it may have been replaced.
func (e *Engine) checkLookups(ctx context.Context, lookups []drivers.Lookup) error {
	for _, l := range lookups {
		found, err := e.cloud.Lookup(ctx, l.Of, l.ID)
		if openstack.Classify(err) == openstack.ClassNotFound {
			e.store.mu.Lock()
			delete(e.store.lookups, l)
			e.store.mu.Unlock()
			continue
		}
		if err != nil {
			return fmt.Errorf("looking up the configured %s %q: %w", l.Of, l.ID, err)
		}
		e.store.mu.Lock()
		e.store.lookups[l] = found
		e.store.mu.Unlock()
	}
	return nil
}

// driftLoop observes at intervals, with jitter, and once more when a create that was cut before this process started can no
// longer commit.
func (e *Engine) driftLoop(ctx context.Context) {
	e.driftAfter(e.config.AmbiguousWait)
	defer e.stopTimers()
	for {
		wait := e.config.DriftInterval*9/10 + time.Duration(rand.Int64N(int64(e.config.DriftInterval)/5+1)) //nolint:gosec // jitter
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
	pending map[int]func() bool
	next    int
	stopped bool
}

// driftAfter asks for a drift check after a time.
func (e *Engine) driftAfter(d time.Duration) {
	e.timers.mu.Lock()
	defer e.timers.mu.Unlock()
	if e.timers.stopped {
		return
	}
	if e.timers.pending == nil {
		e.timers.pending = map[int]func() bool{}
	}
	id := e.timers.next
	e.timers.next++
	timer := e.clock.AfterFunc(d, func() {
		e.timers.mu.Lock()
		delete(e.timers.pending, id)
		e.timers.mu.Unlock()
		e.requestDrift()
	})
	e.timers.pending[id] = timer.Stop
}

func (e *Engine) stopTimers() {
	e.timers.mu.Lock()
	defer e.timers.mu.Unlock()
	e.timers.stopped = true
	for _, stop := range e.timers.pending {
		stop()
	}
	e.timers.pending = nil
}

// sweepLoop looks for orphans at intervals.
func (e *Engine) sweepLoop(ctx context.Context) {
	wait := e.config.SweepInterval
	for {
		timer := e.clock.NewTimer(wait)
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-timer.C():
		case <-e.sweepNow:
			timer.Stop()
		}
		wait = e.config.SweepInterval
		if e.sweep(ctx) {
			wait = min(wait, e.config.ConfirmAfter)
		}
	}
}

func (e *Engine) requestSweep() {
	select {
	case e.sweepNow <- struct{}{}:
	default:
	}
}

// sweep ends what owners left behind whose source objects are gone: those that carry our identity and a driver's name, are
// not in that driver's synced caches, and were not in the pass before either. It says whether another pass is worth while soon.
func (e *Engine) sweep(ctx context.Context) bool {
	e.runMu.Lock()
	watchers := make([]*watcher, 0, len(e.watchers))
	for _, w := range e.watchers {
		watchers = append(watchers, w)
	}
	e.runMu.Unlock()
	soon := false
	for _, w := range watchers {
		orphans, fresh := e.orphansOf(w)
		soon = soon || fresh
		for i, id := range orphans {
			if i >= e.config.SweepLimit {
				soon = true
				break
			}
			e.sweepOne(ctx, w, id)
		}
	}
	return soon
}

// orphansOf lists the owners of a driver that were orphans in the last pass and still are. It says whether there are new ones.
func (e *Engine) orphansOf(w *watcher) (orphans []plan.Owner, fresh bool) {
	for name := range w.sources {
		if _, synced := w.source.Keys(name); !synced {
			return nil, false
		}
	}
	s := e.store
	s.mu.Lock()
	defer s.mu.Unlock()
	d := s.drivers[w.name]
	if d == nil || !d.answered() {
		return nil, false
	}
	short := ownerOf(w.name, "").Driver
	now := map[plan.Owner]int{}
	for id, keys := range s.cloud.byOwner {
		if id.Driver != short || s.owners[id] != nil || s.allRetained(keys) {
			continue
		}
		now[id] = s.orphans[id] + 1
		if now[id] >= 2 {
			orphans = append(orphans, id)
		} else {
			fresh = true
		}
	}
	for id := range s.orphans {
		if id.Driver == short {
			delete(s.orphans, id)
		}
	}
	for id, n := range now {
		s.orphans[id] = n
	}
	slices.SortFunc(orphans, func(a, b plan.Owner) int { return cmp.Compare(a.UID, b.UID) })
	return orphans, fresh
}

func (s *store) allRetained(keys map[resourceKey]bool) bool {
	for key := range keys {
		if !retained(s.cloud.entries[key].Observed) {
			return false
		}
	}
	return true
}

// sweepOne makes an owner for an orphan, and ends it by the ordinary way.
func (e *Engine) sweepOne(ctx context.Context, w *watcher, id plan.Owner) {
	e.log.Info("ending what is left of an object that is gone", "driver", w.name, "uid", id.UID)
	var source drivers.Watch
	for _, wt := range w.sources {
		source = wt
	}
	key := watch.Key{Watch: source.Name, Name: orphanPrefix + id.UID}
	e.store.mu.Lock()
	if e.store.owners[id] == nil {
		o := &owner{
			id: id, item: item{w.name, key}, gone: true, phase: Pending, since: e.clock.Now(),
			target: target{watch: source, name: "with UID " + id.UID, uid: id.UID},
		}
		e.store.owners[id] = o
		add(e.store.byItem, o.item, id)
	}
	e.store.mu.Unlock()
	w.queue.add(key)
	_ = ctx
}

// orphanPrefix marks the keys of objects that are gone and of which only the UID is known. No Kubernetes name has a colon.
const orphanPrefix = "uid:"
