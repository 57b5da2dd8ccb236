// SPDX-License-Identifier: Apache-2.0

package reconcile

import (
	"context"
	"time"

	"github.com/kuryr/raven/drivers"
	"github.com/kuryr/raven/service/state"
	"github.com/kuryr/raven/service/watch"
)

// An engine that stands by asks the drivers about every object and remembers the answers, so that it can take over at
// once. What it lacks is the cloud: it knows nothing of that, and does nothing, until Lead.

// StandingBy says whether the engine does nothing yet: see Config.Standby and Lead.
func (e *Engine) StandingBy() (standby bool) {
	e.state.View(func(tx *state.LoopTx) { standby = tx.Standby })
	return standby
}

// whenLeading calls a loop once the engine leads.
func (e *Engine) whenLeading(ctx context.Context, loop func(context.Context)) {
	select {
	case <-ctx.Done():
	case <-e.leads:
		loop(ctx)
	}
}

// preview asks the driver about a key and remembers what it says. An object that is gone leaves nothing behind:
// whoever leads ends what it had.
func (e *Engine) preview(ctx context.Context, w *watcher, key watch.Key) result {
	object, meta, known := w.source.Get(key)
	request := state.Request{Driver: w.name, Key: key}
	switch known {
	case watch.Unknown:
		return result{requeueAfter: time.Second}
	case watch.Absent:
		w.source.Remember(key, nil)
		e.dropPreviews(request, "")
		e.answered(ctx, w, key, nil, nil)
		return result{}
	case watch.Present:
	}
	e.dropPreviews(request, meta.UID)
	o := e.ensure(w, key, meta)
	err := e.translate(ctx, w, o, object)
	e.answered(ctx, w, key, o, err)
	return result{backoff: transient(err) && ctx.Err() == nil}
}

// dropPreviews forgets the objects of a key but for the present one. Nothing is forgotten once the engine leads.
func (e *Engine) dropPreviews(request state.Request, uid string) {
	e.state.Update(func(tx *state.LoopTx) {
		present := tx.OwnerOf(request.Driver, uid)
		if !tx.Standby {
			return
		}
		for _, o := range tx.Requested(request) {
			if o.ID != present {
				tx.Forget(o)
			}
		}
	})
}

// Lead ends standing by: what this cluster has in the cloud is listed by identity, and from then on the engine does
// what the drivers say. After Config.AmbiguousWait it lists once more, for what another leader may have left under
// way. An error means that the cloud could not be listed, and that the engine still stands by. Run must be running.
func (e *Engine) Lead(ctx context.Context) error {
	if !e.StandingBy() {
		return nil
	}
	if err := e.Observe(ctx); err != nil {
		return err
	}
	said := map[*state.Object][]drivers.Diagnostic{}
	requests := []state.Request{{Driver: state.Shared}}
	e.state.Update(func(tx *state.LoopTx) {
		tx.Standby = false
		for _, d := range tx.Drivers() {
			delete(d.Open, state.StandbyKey())
		}
		for _, o := range tx.Objects() {
			said[o] = o.Set.Diagnostics
			requests = append(requests, o.Request)
		}
	})
	close(e.leads)
	for o, diagnostics := range said {
		e.say(o, diagnostics)
	}
	for _, w := range e.all() {
		for name := range w.sources {
			keys, _ := w.source.Keys(name)
			for _, key := range keys {
				requests = append(requests, state.Request{Driver: w.name, Key: key})
			}
		}
		e.finishEpoch(w.name)
	}
	e.deliver(requests)
	return nil
}

// Abort breaks off what Run has under way, instead of letting it end. The context of Run must have ended, or end.
func (e *Engine) Abort() { e.abort.Do(func() { close(e.aborted) }) }
