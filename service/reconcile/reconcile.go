// SPDX-License-Identifier: Apache-2.0

package reconcile

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"time"

	"github.com/kuryr/raven/drivers"
	"github.com/kuryr/raven/service/backend"
	"github.com/kuryr/raven/service/state"
	"github.com/kuryr/raven/service/watch"
)

// reconcileKey reconciles a key: the owners of earlier objects of that name are ended, the present one is made so.
func (e *Engine) reconcileKey(ctx context.Context, w *watcher, key watch.Key) (r result) {
	if e.stopping(ctx) {
		return result{}
	}
	started := e.clock.Now()
	request := state.Request{Driver: w.name, Key: key}
	defer func() {
		e.metrics.reconciled(w.name, e.clock.Since(started))
		if v := recover(); v != nil {
			r = e.panicked(ctx, request, v)
		}
	}()
	if key.Name == "" {
		return e.resumeReplay(w, key)
	}
	if e.StandingBy() {
		return e.preview(ctx, w, key)
	}
	object, meta, known := w.source.Get(key)
	if known == watch.Unknown {
		return result{requeueAfter: time.Second}
	}
	var total result
	for _, o := range e.predecessors(request, meta.UID, known) {
		total = sooner(total, e.end(ctx, o))
	}
	if known == watch.Absent {
		w.source.Remember(key, nil)
		e.answered(ctx, w, key, nil, nil)
		return total
	}
	o := e.ensure(w, key, meta)
	return sooner(total, e.traced(ctx, o, func(ctx context.Context) result {
		err := e.translate(ctx, w, o, object)
		e.answered(ctx, w, key, o, err)
		if err != nil {
			return e.settleErrors(ctx, o, []error{err})
		}
		return e.converge(ctx, w, o, meta, nil)
	}))
}

// ensure returns what is known of the object of a key.
func (e *Engine) ensure(w *watcher, key watch.Key, meta watch.Meta) (o *state.Object) {
	target := state.Target{Watch: w.sources[key.Watch], Namespace: key.Namespace, Name: key.Name, UID: meta.UID}
	e.state.Update(func(tx *state.LoopTx) {
		o = tx.Ensure(state.Request{Driver: w.name, Key: key}, target)
		o.NewSince = time.Time{}
		writes := len(w.accepted.Annotations)+len(w.accepted.Labels) > 0
		if writes && o.Written == (state.Written{}) && unwritten(meta, w.manager) {
			o.NewSince = meta.Created
		}
	})
	return o
}

// unwritten says that a field manager owns nothing on an object.
func unwritten(meta watch.Meta, manager string) bool {
	owned := meta.Owned[manager]
	return len(owned.Annotations)+len(owned.Labels)+len(owned.Status) == 0
}

// reconcileShared reconciles the claimed resources.
func (e *Engine) reconcileShared(ctx context.Context) (r result) {
	if e.stopping(ctx) || e.StandingBy() {
		return result{}
	}
	defer func() {
		if v := recover(); v != nil {
			r = e.panicked(ctx, state.Request{Driver: state.Shared}, v)
		}
	}()
	var (
		o     *state.Object
		fixed map[string]string
	)
	e.state.Update(func(tx *state.LoopTx) { o, fixed = tx.TakeShares() })
	return e.converge(ctx, nil, o, watch.Meta{}, fixed)
}

// panicError is a bug in Raven while one object was reconciled. It must not end the daemon.
type panicError struct {
	value any
	stack []byte
}

func (p panicError) Error() string {
	return fmt.Sprintf("a fault in Raven: %v; please report it with the stack in the log", p.value)
}

// panicked ends a reconcile that a bug in Raven broke off: the objects are failing, the daemon goes on.
func (e *Engine) panicked(ctx context.Context, request state.Request, value any) result {
	stack := debug.Stack()
	e.state.Update(func(tx *state.LoopTx) {
		objects := tx.Requested(request)
		if request.Driver == state.Shared {
			objects = append(objects, tx.SharedObject())
		}
		for _, o := range objects {
			setPhase(tx, o, state.Failing, []string{panicError{value, nil}.Error()}, 0)
		}
	})
	e.log.ErrorContext(ctx, "a fault in Raven", "driver", request.Driver, "key", request.Key.String(), "error",
		panicError{value, nil},
		"stack", string(stack))
	return result{backoff: true}
}

// predecessors lists the objects of a key that are gone, or have been followed by another of the same name.
func (e *Engine) predecessors(request state.Request, uid string, known watch.State) (list []*state.Object) {
	e.state.Update(func(tx *state.LoopTx) {
		present := tx.OwnerOf(request.Driver, uid)
		for _, o := range tx.Requested(request) {
			if known == watch.Absent || o.ID != present {
				o.Gone = true
				list = append(list, o)
			}
		}
	})
	slices.SortFunc(list, func(a, b *state.Object) int { return cmp.Compare(a.ID.UID, b.ID.UID) })
	return list
}

// end deletes all that an object has, because it is gone.
func (e *Engine) end(ctx context.Context, o *state.Object) result {
	e.state.Update(func(tx *state.LoopTx) {
		tx.SetDesired(o, drivers.Set{})
		o.HasSet, o.Needs, o.Input = false, nil, 0 // should it come back, it is asked for anew
		tx.Release()
	})
	return e.traced(ctx, o, func(ctx context.Context) result { return e.converge(ctx, nil, o, watch.Meta{}, nil) })
}

// maxUnanswered is how often a key may be left open in one replay by what passes, before the replay goes on without it.
const maxUnanswered = 5

// answered notes that a key of a replay has been answered, and ends the epoch with the last one. A driver that is not
// there has answered nothing; nor has one that was too slow or could not be told what it needs, for a few tries.
// After that, and for an object that its driver cannot translate, the replay goes on: without a Set nothing of it is
// ended, and what comes late is counted then; see LoopTx.Admit.
func (e *Engine) answered(ctx context.Context, w *watcher, key watch.Key, o *state.Object, err error) {
	if errors.Is(err, drivers.ErrUnavailable) || ctx.Err() != nil {
		return
	}
	open := false
	e.state.Update(func(tx *state.LoopTx) {
		d := tx.Driver(w.name)
		if o != nil && transient(err) && d.Open[key] {
			if o.Unanswered++; o.Unanswered <= maxUnanswered {
				return
			}
		}
		open = d.Open[key]
		delete(d.Open, key)
	})
	if open {
		e.finishEpoch(w.name)
	}
}

// transient says whether an error leaves it open what the driver says of an object, and will be tried again by itself.
func transient(err error) bool {
	var f *backend.Failure
	return err != nil && (!errors.As(err, &f) || f.Phase != state.Terminal)
}

// resumeReplay adds to a replay the objects of a watch that could not tell all of them before.
func (e *Engine) resumeReplay(w *watcher, marker watch.Key) result {
	keys, complete := w.source.Keys(marker.Watch)
	if !complete {
		return result{requeueAfter: time.Second}
	}
	e.state.Update(func(tx *state.LoopTx) {
		d := tx.Driver(w.name)
		for _, key := range keys {
			objects := tx.Requested(state.Request{Driver: w.name, Key: key})
			if len(objects) != 1 || objects[0].Answered != d.Epoch {
				d.Open[key] = true
			}
		}
		delete(d.Open, marker)
	})
	for _, key := range keys {
		w.queue.add(key)
	}
	e.finishEpoch(w.name)
	return result{}
}

// finishEpoch ends a driver's replay if it is over: see LoopTx.FinishEpoch.
func (e *Engine) finishEpoch(name string) {
	var (
		over, trips   bool
		held, allowed int
	)
	e.state.Update(func(tx *state.LoopTx) {
		if over, trips = tx.FinishEpoch(name); over || trips {
			held, allowed = tx.Driver(name).Held, tx.Driver(name).Allowed
		}
	})
	switch {
	case trips:
		e.reportGuard(name, held, allowed)
	case over:
		e.log.Info("replay reconciled", "driver", name, "deletions", held)
		e.requestCollection()
	}
}

func (e *Engine) reportGuard(name string, held, allowed int) {
	e.log.Error("replay held back: it would delete more than the mass-deletion guard allows; `raven plan` shows what, "+
		"and a higher [raven] max_replay_deletes or max_replay_delete_share lets it pass",
		"driver", name, "deletions", held, "allowed", allowed)
}
