// SPDX-License-Identifier: Apache-2.0

package reconcile

import (
	"cmp"
	"context"
	"maps"
	"slices"

	"github.com/kuryr/raven/drivers"
	"github.com/kuryr/raven/service/plan"
	"github.com/kuryr/raven/service/state"
	"github.com/kuryr/raven/service/watch"
)

// collectLoop searches for orphans at intervals.
func (e *Engine) collectLoop(ctx context.Context) {
	wait := e.config.CollectInterval
	for {
		timer := e.clock.NewTimer(wait)
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-timer.C():
		case <-e.collectNow:
			timer.Stop()
		}
		wait = e.config.CollectInterval
		held, orphans, leftovers := e.reviewGuards(), e.collectOrphans(), e.collectDisabled(ctx)
		if held || orphans || leftovers {
			wait = min(wait, e.config.ConfirmAfter)
		}
	}
}

func (e *Engine) requestCollection() {
	select {
	case e.collectNow <- struct{}{}:
	default:
	}
}

// collectOrphans ends what owners left behind whose source objects are gone: those that carry our identity and a
// driver's name, are not in that driver's synced caches, and were not in the run before either. It says whether
// another run soon is worthwhile.
func (e *Engine) collectOrphans() bool {
	soon := false
	for _, w := range e.all() {
		orphans, fresh := e.orphansOf(w)
		soon = soon || fresh
		for i, id := range orphans {
			if i >= e.config.CollectLimit {
				soon = true
				break
			}
			e.collectOrphan(w, id)
		}
	}
	return soon
}

// orphansOf lists the owners of a driver that were orphans in the last run and still are. It says whether there are
// new ones.
func (e *Engine) orphansOf(w *watcher) (orphans []plan.Owner, fresh bool) {
	for name := range w.sources {
		if _, synced := w.source.Keys(name); !synced {
			return nil, false
		}
	}
	e.state.Update(func(tx *state.LoopTx) {
		d := tx.Driver(w.name)
		if d == nil || !d.Complete() || tx.Unlisted(w.name) != "" {
			return
		}
		short := tx.OwnerOf(w.name, "").Driver
		now := map[plan.Owner]int{}
		for id := range tx.Cache.Owners() {
			if id.Driver != short || tx.Object(id) != nil || allRetained(tx, id) {
				continue
			}
			now[id] = tx.Orphans[id] + 1
			if now[id] >= 2 {
				orphans = append(orphans, id)
			} else {
				fresh = true
			}
		}
		maps.DeleteFunc(tx.Orphans, func(id plan.Owner, _ int) bool { return id.Driver == short })
		maps.Copy(tx.Orphans, now)
	})
	slices.SortFunc(orphans, func(a, b plan.Owner) int { return cmp.Compare(a.UID, b.UID) })
	return orphans, fresh
}

func allRetained(tx *state.LoopTx, id plan.Owner) bool {
	return !slices.ContainsFunc(tx.Cache.Owned(id), func(o plan.Observed) bool { return !state.Retained(o) })
}

// collectOrphan makes an owner for an orphan, and ends it by the ordinary way.
func (e *Engine) collectOrphan(w *watcher, id plan.Owner) {
	e.log.Info("deleting the resources of an object that is gone", "driver", w.name, "uid", id.UID)
	var source drivers.Watch
	for _, name := range slices.Sorted(maps.Keys(w.sources)) {
		source = w.sources[name]
		break
	}
	key := watch.Key{Watch: source.Name, Name: orphanPrefix + id.UID}
	e.state.Update(func(tx *state.LoopTx) { tx.EnsureGone(id, state.Request{Driver: w.name, Key: key}, source) })
	w.queue.add(key)
}

// orphanPrefix marks the keys of objects that are gone and of which only the UID is known. No Kubernetes name has a
// colon.
const orphanPrefix = "uid:"
