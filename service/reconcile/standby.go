package reconcile

import (
	"context"
	"time"

	"github.com/kuryr/raven/drivers"
	"github.com/kuryr/raven/service/watch"
)

// An engine that stands by asks the drivers about every object and remembers the answers, so that it can take over at once. What
// it lacks is the cloud: it knows nothing of that, and does nothing, until Lead.

// standbyKey keeps a replay open while the engine stands by: what the answers would end is counted when the cloud is known.
func standbyKey() watch.Key { return watch.Key{Watch: "leadership"} }

// StandingBy says whether the engine does nothing yet: see Config.Standby and Lead.
func (e *Engine) StandingBy() bool {
	e.store.mu.Lock()
	defer e.store.mu.Unlock()
	return e.store.standby
}

// heard says whether every source object of a driver has been answered, leadership apart. The store is locked.
func (s *store) heard(d *driverState) bool {
	return d.answered() || s.standby && d.epoch > 0 && len(d.open) == 1 && d.open[standbyKey()]
}

// whenLeading calls a loop once the engine leads.
func (e *Engine) whenLeading(ctx context.Context, loop func(context.Context)) {
	select {
	case <-ctx.Done():
	case <-e.leads:
		loop(ctx)
	}
}

// preview asks the driver about a key and remembers what it says. An object that is gone leaves nothing behind: whoever leads ends
// what it had.
func (e *Engine) preview(ctx context.Context, w *watcher, key watch.Key) result {
	object, meta, state := w.source.Get(key)
	it := item{w.name, key}
	switch state {
	case watch.Unknown:
		return result{again: time.Second}
	case watch.Absent:
		w.source.Remember(key, nil)
		e.dropPreviews(it, "")
		e.answered(ctx, w, key, nil, nil)
		return result{}
	case watch.Present:
	}
	e.dropPreviews(it, meta.UID)
	var o *owner
	e.store.do(func() {
		o = e.store.ensureOwner(it, target{w.sources[key.Watch], key.Namespace, key.Name, meta.UID}, e.clock.Now())
	})
	err := e.translate(ctx, w, o, object)
	e.answered(ctx, w, key, o, err)
	return result{backoff: passes(err) && ctx.Err() == nil}
}

// dropPreviews forgets the owners of a key but for the present object's. Nothing is forgotten once the engine leads.
func (e *Engine) dropPreviews(it item, uid string) {
	present := ownerOf(it.driver, uid)
	e.store.do(func() {
		if !e.store.standby {
			return
		}
		for id := range e.store.byItem[it] {
			if id != present {
				e.store.forget(e.store.owners[id])
			}
		}
	})
}

// Lead ends standing by: what is ours in the cloud is listed by identity, and from then on the engine does what the drivers say.
// After Config.AmbiguousWait it lists once more, for what another leader may have left under way. An error means that the cloud
// could not be listed, and that the engine still stands by. Run must be running.
func (e *Engine) Lead(ctx context.Context) error {
	if !e.StandingBy() {
		return nil
	}
	if err := e.Observe(ctx); err != nil {
		return err
	}
	said := map[*owner][]drivers.Diagnostic{}
	items := []item{{driver: sharedDriver}}
	e.store.do(func() {
		e.store.standby = false
		for _, d := range e.store.drivers {
			delete(d.open, standbyKey())
		}
		for _, o := range e.store.owners {
			said[o] = o.set.Diagnostics
			items = append(items, o.item)
		}
	})
	close(e.leads)
	for o, diagnostics := range said {
		e.say(o, diagnostics)
	}
	e.runMu.Lock()
	watchers := make([]*watcher, 0, len(e.watchers))
	for _, w := range e.watchers {
		watchers = append(watchers, w)
	}
	e.runMu.Unlock()
	for _, w := range watchers {
		for name := range w.sources {
			keys, _ := w.source.Keys(name)
			for _, key := range keys {
				items = append(items, item{w.name, key})
			}
		}
		e.finishEpoch(w.name)
	}
	e.wakeAll(items)
	return nil
}

// Abort breaks off what Run has under way, instead of letting it end. The context of Run must have ended, or end.
func (e *Engine) Abort() { e.abort.Do(func() { close(e.aborted) }) }
