// SPDX-License-Identifier: Apache-2.0

package reconcile

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/kuryr/raven/drivers"
	"github.com/kuryr/raven/service/backend"
	"github.com/kuryr/raven/service/plan"
	"github.com/kuryr/raven/service/state"
	"github.com/kuryr/raven/service/watch"
)

// What an operator named, a lookup, is read before it is referred to. One that is not known is a reference that does
// not resolve:
//
//	nothing has that id or name, or several have   what refers to it waits until it is there
//	it cannot be read now                          what refers to it waits, tried again ever later
//	either                                         the reason is told; what it may stand for is not deleted

// lookup reads what a Set names and is not known yet, and returns why some of it stays unknown. Many ask for the same
// one at the same time.
func (e *Engine) lookup(ctx context.Context, set drivers.Set) []error {
	var unknown []drivers.Lookup
	e.state.View(func(tx *state.LoopTx) {
		if tx.Standby {
			return // the leader reads it
		}
		for _, r := range set.Resources {
			if l, ok := r.Spec.(drivers.Lookup); ok {
				if _, known := tx.Lookups()[l]; !known {
					unknown = append(unknown, l)
				}
			}
		}
	})
	var failed []error
	for _, l := range unknown {
		if err := e.once(state.LookupName(l), func() error { return e.readLookup(ctx, l) }); err != nil {
			failed = append(failed, e.lookupFailure(l, err))
		}
	}
	return failed
}

// find asks the backend of a lookup's kind for it.
func (e *Engine) find(ctx context.Context, l drivers.Lookup) (plan.Observed, error) {
	b := e.byKind[l.Of]
	if b == nil || b.Lookup == nil {
		return plan.Observed{}, &backend.LookupError{Missing: true, Err: fmt.Errorf("no backend finds a %s by name", l.Of)}
	}
	return b.Lookup(ctx, l.Of, l.ID)
}

func (e *Engine) readLookup(ctx context.Context, l drivers.Lookup) error {
	found, err := e.find(ctx, l)
	if err == nil {
		e.state.Update(func(tx *state.LoopTx) { tx.SetLookup(l, found) })
	}
	return err
}

// lookupFailure says what a lookup that is not known means for who names it. Of one that leads to nothing, or to
// several, tells the reason; one that cannot be read now is tried again ever later.
func (e *Engine) lookupFailure(l drivers.Lookup, err error) error {
	f := &backend.Failure{Phase: state.Failing, Backoff: true, Quiet: passing(err)}
	var missing *backend.LookupError
	if errors.As(err, &missing) && missing.Missing {
		f = &backend.Failure{Phase: state.Waiting, RequeueAfter: e.config.SlowRetry}
	}
	f.Err = fmt.Errorf("looking up the configured %s %q: %w", l.Of, l.ID, err)
	return f
}

// checkLookups reads again what operators named: it may have been replaced. Who depends on it is reconciled then.
// One that cannot be read is no reason to leave the others out.
func (e *Engine) checkLookups(ctx context.Context) {
	var used []drivers.Lookup
	e.state.Update(func(tx *state.LoopTx) { used = tx.UsedLookups() })
	for _, l := range used {
		found, err := e.find(ctx, l)
		missing := errors.Is(err, backend.ErrNotFound)
		if err != nil && !missing {
			e.log.DebugContext(ctx, "reading again what was configured", "kind", l.Of, "id", l.ID, "error", err)
			continue
		}
		e.state.Update(func(tx *state.LoopTx) {
			if missing {
				tx.DropLookup(l)
			} else {
				tx.SetLookup(l, found)
			}
		})
	}
}

// readForDocuments reads resources that are not the cluster's but that documents of its resources show.
func (e *Engine) readForDocuments(ctx context.Context, keys []state.ResourceKey) error {
	for _, key := range keys {
		err := e.once(string(key.Kind)+" "+key.ID, func() error {
			o, err := e.get(ctx, key.Kind, key.ID)
			if err == nil {
				e.state.Update(func(tx *state.LoopTx) { tx.SetRead(key, o) })
			}
			return err
		})
		if err != nil {
			return fmt.Errorf("reading %s %s: %w", key.Kind, key.ID, err)
		}
	}
	return nil
}

func (e *Engine) get(ctx context.Context, kind drivers.Kind, id string) (plan.Observed, error) {
	b := e.byKind[kind]
	if b == nil {
		return plan.Observed{}, noBackend(kind)
	}
	return b.Get(ctx, kind, id)
}

func noBackend(kind drivers.Kind) error {
	return backend.Permanentf("no backend keeps resources of kind %s", kind)
}

// loop is what backends may ask of the engine.
type loop struct{ e *Engine }

// RequestList implements backend.Loop.
func (l loop) RequestList(after time.Duration) {
	if after <= 0 {
		l.e.requestDrift()
		return
	}
	l.e.driftAfter(after)
}

// Source implements backend.Loop.
func (l loop) Source(id plan.Owner) (drivers.Object, string) {
	var request state.Request
	l.e.state.View(func(tx *state.LoopTx) {
		if o := tx.Object(id); o != nil {
			request = o.Request
		}
	})
	l.e.runMu.Lock()
	w := l.e.watchers[request.Driver]
	l.e.runMu.Unlock()
	if w == nil {
		return drivers.Object{}, ""
	}
	object, _, _ := w.source.Get(request.Key)
	return object, w.name
}

// Annotations implements backend.Loop.
func (l loop) Annotations(visit func(uid string, annotations map[string]string)) (all bool) {
	watchers := l.e.all()
	all = len(watchers) >= len(l.e.config.Drivers)
	for _, w := range watchers {
		for name := range w.sources {
			keys, complete := w.source.Keys(name)
			all = all && complete
			for _, key := range keys {
				if _, meta, known := w.source.Get(key); known == watch.Present && len(meta.Annotations) > 0 {
					visit(meta.UID, meta.Annotations)
				}
			}
		}
	}
	return all
}

// Drifted implements backend.Loop.
func (l loop) Drifted(changes []state.Drift) { l.e.drifted(changes) }

// rereads is how often a resource is read again that was written to while it was read.
const rereads = 3

// Reread implements backend.Loop. Many may ask for the same resource: it is read once for all of them.
func (l loop) Reread(ctx context.Context, kind drivers.Kind, id string) (bool, error) {
	gone, err, _ := l.e.single.Do("reread "+string(kind)+" "+id, func() (any, error) {
		return l.e.reread(ctx, state.ResourceKey{Kind: kind, ID: id})
	})
	return gone == true, err
}

func (e *Engine) reread(ctx context.Context, key state.ResourceKey) (gone bool, err error) {
	for try := 1; ; try++ {
		var begun uint64
		e.state.View(func(tx *state.LoopTx) { begun = tx.Cache.Sequence() })
		now, err := e.get(ctx, key.Kind, key.ID)
		if errors.Is(err, backend.ErrNotFound) {
			e.state.Update(func(tx *state.LoopTx) { tx.Depart(key.Kind, key.ID) })
			return true, nil
		}
		if err != nil {
			return false, err
		}
		taken := false
		e.state.Update(func(tx *state.LoopTx) {
			if taken = try == rereads || !tx.Cache.Newer(key, begun); taken {
				tx.Arrive(now)
			}
		})
		if taken {
			return false, nil
		}
	}
}

// Adopt implements backend.Loop.
func (l loop) Adopt(ctx context.Context, step plan.Step) (bool, error) {
	b := l.e.byKind[step.Kind]
	if b == nil || b.Find == nil {
		return false, nil
	}
	list, err := b.Find(ctx, step.Kind, step.Identity)
	if err != nil {
		return false, fmt.Errorf("searching for the %s %q that may have been created: %w", step.Kind, step.Identity.Name, err)
	}
	l.e.state.Update(func(tx *state.LoopTx) {
		for _, r := range list {
			tx.Arrive(r)
		}
	})
	return len(list) > 0, nil
}
