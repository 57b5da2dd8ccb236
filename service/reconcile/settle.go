package reconcile

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/kuryr/raven/drivers"
	"github.com/kuryr/raven/service/watch"
	"github.com/kuryr/raven/service/writeback"
)

// settle ends a pass in which nothing failed: outputs are written, and the owner is done or waits.
func (e *Engine) settle(ctx context.Context, w *watcher, o *owner, meta watch.Meta, out outcome) result {
	e.watchDoubts(o)
	out.conflicts = sorted(append(out.conflicts, out.outputs.contested...))
	if o.gone {
		return e.settleGone(o, out)
	}
	if err := e.writeWhatIs(ctx, w, o, meta, out); err != nil {
		if errors.Is(err, writeback.ErrGone) {
			return result{} // its deletion, or its successor, is on the way
		}
		return e.settleErrors(ctx, o, []error{err})
	}
	e.log.DebugContext(ctx, "looked at", "object", o.target.String(), "driver", o.item.driver,
		"waits", out.messages, "conflicts", out.conflicts)
	if len(out.conflicts) > 0 {
		out.conflicts = e.tellStale(o, out.conflicts)
		e.setPhase(o, Waiting, out.conflicts, 0)
		e.event(o, "Conflict", strings.Join(out.conflicts, "; "))
		return result{again: e.mendAgain(o)}
	}
	if messages := sorted(slices.Concat(out.messages, out.outputs.missing)); len(messages) > 0 {
		again := result{again: e.mendAgain(o)}
		if o.held > 0 {
			again.again = e.config.SlowRetry
		}
		e.setPhase(o, Waiting, e.tellStale(o, messages), again.again)
		return again
	}
	e.setPhase(o, Done, nil, 0)
	return result{again: e.mendAgain(o)}
}

// writeWhatIs writes the outputs if all that they speak of is there, but for what nobody knows, whatever else failed.
func (e *Engine) writeWhatIs(ctx context.Context, w *watcher, o *owner, meta watch.Meta, out outcome) error {
	if w == nil || o.gone || out.outputs.partial {
		return nil
	}
	if err := e.writeOutputs(ctx, w, o, meta, out.outputs); err != nil {
		return fmt.Errorf("writing what came of %s on it: %w", o.target, err)
	}
	return nil
}

// watchDoubts asks for a drift check for creates that were cut and are not wanted any more: nobody else looks for them.
func (e *Engine) watchDoubts(o *owner) {
	now := e.clock.Now()
	var left time.Duration
	e.store.do(func() {
		for key, d := range e.store.doubts {
			if key.key.Driver == o.id.Driver && key.key.UID == o.id.UID {
				left = max(left, d.until.Sub(now), 1)
				delete(e.store.doubts, key)
			}
		}
	})
	if left > 0 {
		e.driftAfter(left)
	}
}

// settleGone ends a pass for an owner whose source object is gone: it is forgotten once it has nothing left. What still comes of
// its creates that were cut is found by the drift check and swept.
func (e *Engine) settleGone(o *owner, out outcome) result {
	left := 0
	var woken []item
	e.store.do(func() {
		for key := range e.store.cloud.byOwner[o.id] {
			if !retained(e.store.cloud.entries[key].Observed) {
				left++
			}
		}
		if e.store.away != nil && o.balanced {
			left++ // it may still have some: out says so
		}
		if left == 0 {
			e.store.forget(o)
			woken = e.store.released()
		}
	})
	if left == 0 {
		e.wakeAll(woken)
		return result{}
	}
	again := e.config.SlowRetry
	if mend := e.mendAgain(o); mend > 0 {
		again = min(again, mend)
	}
	e.setPhase(o, Waiting, sorted(out.messages), again)
	return result{again: again}
}

// settleErrors ends a pass in which something failed: one switch decides what happens next.
func (e *Engine) settleErrors(ctx context.Context, o *owner, errs []error) result {
	if ctx.Err() != nil {
		return result{} // it was broken off: that says nothing about the object
	}
	phase, next, quiet := Terminal, result{}, true
	lasts := e.lasts(o)
	var waits []waitKey
	messages := make([]string, 0, len(errs))
	for _, err := range errs {
		messages = append(messages, err.Error())
		v := e.verdict(err)
		waits = append(waits, v.waits...)
		next, quiet = sooner(next, v.next), quiet && (v.quiet || v.patient && !lasts)
		if rank(v.phase) < rank(phase) {
			phase = v.phase
		}
		var p panicError
		if errors.As(err, &p) {
			e.log.ErrorContext(ctx, "a fault in Raven", "object", o.target.String(), "error", err, "stack", string(p.stack))
		}
	}
	if len(waits) > 0 {
		e.store.do(func() {
			blocked := o.blocked
			e.store.wait(o, slices.Concat(o.waits, waits))
			o.blocked = blocked
		})
	}
	if again := e.mendAgain(o); again > 0 {
		next = sooner(next, result{again: again}) // what is broken besides has its own time
	}
	messages = e.tellStale(o, sorted(messages))
	changed, tries := e.setPhase(o, phase, messages, next.again)
	level := slog.LevelDebug
	if changed && phase != Waiting {
		level = slog.LevelWarn
	}
	e.log.Log(ctx, level, "not settled", "object", o.target.String(), "driver", o.item.driver, "phase", phase, "reasons", messages)
	if !quiet && (phase != Failing || tries > 2) {
		e.event(o, "RavenCannotApply", strings.Join(messages, "; "))
	}
	return next
}

// lasts says whether an owner waits for longer than most of what passes by itself.
func (e *Engine) lasts(o *owner) bool {
	e.store.mu.Lock()
	defer e.store.mu.Unlock()
	return o.phase == Waiting && e.clock.Since(o.since) >= e.config.SlowRetry
}

// setPhase notes where an owner stands. It says whether that is news, and how often the owner has failed in a row.
func (e *Engine) setPhase(o *owner, phase Phase, reasons []string, again time.Duration) (changed bool, tries int) {
	e.store.mu.Lock()
	defer e.store.mu.Unlock()
	now := e.clock.Now()
	changed = o.phase != phase || !slices.Equal(o.reasons, reasons)
	if o.phase != phase {
		o.since = now
		o.tries = 0
	}
	if phase == Failing {
		o.tries++
	}
	if phase == Done {
		o.lastSaid = "" // if it happens again it is said again
	}
	o.phase, o.reasons, o.nextTry = phase, reasons, time.Time{}
	if again > 0 {
		o.nextTry = now.Add(again)
	}
	return changed, o.tries
}

// say passes a driver's diagnostics to the people who look at the object, when they are news.
func (e *Engine) say(o *owner, diagnostics []drivers.Diagnostic) {
	if e.StandingBy() {
		return // the leader says it
	}
	text := fmt.Sprint(diagnostics)
	said := false
	e.store.do(func() {
		said = o.notices == text
		o.notices = text
	})
	if said {
		return
	}
	for _, d := range diagnostics {
		reason := d.Reason
		if reason == "" {
			reason = "DriverSays"
		}
		e.eventOf(o, d.Severity, reason, d.Message)
	}
}

func (e *Engine) event(o *owner, reason, message string) {
	said := false
	e.store.do(func() {
		said = o.lastSaid == message
		o.lastSaid = message
	})
	if !said {
		e.eventOf(o, drivers.Warning, reason, message)
	}
}

// notice tells the people who look at the object what cannot be as it should, when that is news.
func (e *Engine) notice(o *owner, notices []string) {
	text := strings.Join(notices, "; ")
	said := false
	e.store.do(func() {
		said = o.noticed == text
		o.noticed = text
	})
	if !said && text != "" {
		e.eventOf(o, drivers.Warning, "LoadBalancer", text)
	}
}

func (e *Engine) eventOf(o *owner, severity drivers.Severity, reason, message string) {
	if o.gone || o.id.Driver == sharedDriver || e.dry.Load() {
		return
	}
	e.writeback.Event(writeback.Target{
		GVR: o.target.watch.GVR, Kind: o.target.watch.Kind, Namespace: o.target.namespace, Name: o.target.name, UID: o.target.uid,
	}, severity, reason, message)
}
