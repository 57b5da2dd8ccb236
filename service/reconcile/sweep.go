package reconcile

import (
	"cmp"
	"context"
	"maps"
	"slices"

	"github.com/kuryr/raven/drivers"
	"github.com/kuryr/raven/service/plan"
	"github.com/kuryr/raven/service/watch"
)

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
		held, orphans, frozen := e.reviewGuards(), e.sweep(), e.sweepFrozen(ctx)
		if held || orphans || frozen {
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
func (e *Engine) sweep() bool {
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
			e.sweepOne(w, id)
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
	short := s.ownerOf(w.name, "").Driver
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
func (e *Engine) sweepOne(w *watcher, id plan.Owner) {
	e.log.Info("ending what is left of an object that is gone", "driver", w.name, "uid", id.UID)
	var source drivers.Watch
	for _, name := range slices.Sorted(maps.Keys(w.sources)) {
		source = w.sources[name]
		break
	}
	key := watch.Key{Watch: source.Name, Name: orphanPrefix + id.UID}
	e.store.do(func() {
		if e.store.owners[id] != nil {
			return
		}
		o := &owner{
			id: id, item: item{w.name, key}, gone: true, phase: Pending, since: e.clock.Now(),
			target: target{watch: source, name: "with UID " + id.UID, uid: id.UID},
		}
		e.store.owners[id] = o
		add(e.store.byItem, o.item, id)
	})
	w.queue.add(key)
}

// orphanPrefix marks the keys of objects that are gone and of which only the UID is known. No Kubernetes name has a colon.
const orphanPrefix = "uid:"
