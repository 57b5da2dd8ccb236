package reconcile

import (
	"cmp"
	"context"
	"errors"
	"runtime/debug"
	"slices"
	"time"

	"github.com/kuryr/raven/drivers"
	"github.com/kuryr/raven/service/plan"
	"github.com/kuryr/raven/service/watch"
)

// reconcileKey makes one pass over a key: the owners of earlier objects of that name are ended, the present one is made so.
func (e *Engine) reconcileKey(ctx context.Context, w *watcher, key watch.Key) (r result) {
	if e.stopping(ctx) {
		return result{}
	}
	started := e.clock.Now()
	it := item{w.name, key}
	defer func() {
		e.metrics.pass(w.name, e.clock.Since(started))
		if v := recover(); v != nil {
			r = e.panicked(ctx, it, v)
		}
	}()
	if key.Name == "" {
		return e.resumeReplay(w, key)
	}
	if e.StandingBy() {
		return e.preview(ctx, w, key)
	}
	object, meta, state := w.source.Get(key)
	if state == watch.Unknown {
		return result{again: time.Second}
	}
	var total result
	for _, o := range e.predecessors(it, meta.UID, state) {
		total = sooner(total, e.end(ctx, o))
	}
	if state == watch.Absent {
		w.source.Remember(key, nil)
		e.answered(ctx, w, key, nil, nil)
		return total
	}
	var o *owner
	e.store.do(func() {
		o = e.store.ensureOwner(it, target{w.sources[key.Watch], key.Namespace, key.Name, meta.UID}, e.clock.Now())
	})
	err := e.translate(ctx, w, o, object)
	e.answered(ctx, w, key, o, err)
	if err != nil {
		return sooner(total, e.settleErrors(ctx, o, []error{err}))
	}
	return sooner(total, e.converge(ctx, w, o, meta, nil))
}

// panicked ends a pass that a fault of ours broke off: the owners are failing, the daemon goes on.
func (e *Engine) panicked(ctx context.Context, it item, value any) result {
	stack := debug.Stack()
	var owners []*owner
	e.store.do(func() {
		for id := range e.store.byItem[it] {
			owners = append(owners, e.store.owners[id])
		}
		if it.driver == sharedDriver {
			owners = append(owners, e.store.sharedOwner(e.clock.Now()))
		}
	})
	for _, o := range owners {
		e.setPhase(o, Failing, []string{panicError{value, nil}.Error()}, 0)
	}
	e.log.ErrorContext(ctx, "a fault in Raven", "driver", it.driver, "key", it.key.String(), "error", panicError{value, nil}, "stack", string(stack))
	return result{backoff: true}
}

// predecessors lists the owners of a key whose object is gone, or has been followed by another of the same name.
func (e *Engine) predecessors(it item, uid string, state watch.State) []*owner {
	e.store.mu.Lock()
	defer e.store.mu.Unlock()
	present := e.store.ownerOf(it.driver, uid)
	var list []*owner
	for id := range e.store.byItem[it] {
		if state == watch.Absent || id != present {
			o := e.store.owners[id]
			o.gone = true
			list = append(list, o)
		}
	}
	slices.SortFunc(list, func(a, b *owner) int { return cmp.Compare(a.id.UID, b.id.UID) })
	return list
}

// end takes away all that an owner has, because its source object is gone.
func (e *Engine) end(ctx context.Context, o *owner) result {
	var woken []item
	e.store.do(func() {
		woken = e.store.adopt(o, drivers.Set{})
		o.hasSet, o.needs, o.input = false, nil, 0 // should it come back, it is asked for anew
	})
	e.store.do(func() { woken = append(woken, e.store.released()...) })
	e.wakeAll(woken)
	return e.converge(ctx, nil, o, watch.Meta{}, nil)
}

// maxUnheard is how often a key may be left open in one replay by what passes, before the replay goes on without it.
const maxUnheard = 5

// answered notes that a key of a replay has been answered, and ends the epoch with the last one. A driver that is not there
// has answered nothing; nor has one that was too slow or could not be told what it needs, for a few tries. After that, and for
// an object that its driver cannot translate, the replay goes on: without a Set nothing of it is ended, and what comes late is
// counted then; see compareLate.
func (e *Engine) answered(ctx context.Context, w *watcher, key watch.Key, o *owner, err error) {
	if errors.Is(err, drivers.ErrUnavailable) || ctx.Err() != nil {
		return
	}
	open := false
	e.store.do(func() {
		d := e.store.drivers[w.name]
		if o != nil && passes(err) && d.open[key] {
			if o.unheard++; o.unheard <= maxUnheard {
				return
			}
		}
		open = d.open[key]
		delete(d.open, key)
	})
	if open {
		e.finishEpoch(w.name)
	}
}

// passes says whether an error leaves it open what the driver says of an object, and will be tried again by itself.
func passes(err error) bool {
	var terminal terminalError
	return err != nil && !errors.As(err, &terminal)
}

// resumeReplay adds to a replay the objects of a watch that could not tell all of them before.
func (e *Engine) resumeReplay(w *watcher, marker watch.Key) result {
	keys, complete := w.source.Keys(marker.Watch)
	if !complete {
		return result{again: time.Second}
	}
	e.store.do(func() {
		d := e.store.drivers[w.name]
		for _, key := range keys {
			if id, ok := e.store.only(item{w.name, key}); !ok || e.store.owners[id].good != d.epoch {
				d.open[key] = true
			}
		}
		delete(d.open, marker)
	})
	for _, key := range keys {
		w.queue.add(key)
	}
	e.finishEpoch(w.name)
	return result{}
}

// only returns the one owner of a key, if there is exactly one.
func (s *store) only(it item) (plan.Owner, bool) {
	if len(s.byItem[it]) == 1 {
		for id := range s.byItem[it] {
			return id, true
		}
	}
	return plan.Owner{}, false
}
