// SPDX-License-Identifier: Apache-2.0

package reconcile

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/kuryr/raven/drivers"
	"github.com/kuryr/raven/service/backend"
	"github.com/kuryr/raven/service/plan"
	"github.com/kuryr/raven/service/state"
	"github.com/kuryr/raven/service/watch"
	"github.com/kuryr/raven/service/writeback"
)

const (
	// terminalTry is how long an object rests that was refused for good, in case the cloud changes its mind.
	terminalTry = 10 * time.Minute
	// isolatedTry is how often an object that is kept from its driver is shown to the host again, which knows how long
	// that lasts.
	isolatedTry = time.Minute
)

// settle ends a reconcile in which nothing failed: outputs are written, and the object is done or waits.
func (e *Engine) settle(ctx context.Context, w *watcher, o *state.Object, meta watch.Meta, out outcome) result {
	e.watchUnknown(o)
	out.conflicts = state.Sorted(append(out.conflicts, out.outputs.Contested...))
	if o.Gone {
		return e.settleGone(o, out)
	}
	if err := e.writeWhatIs(ctx, w, o, meta, out); err != nil {
		if errors.Is(err, writeback.ErrGone) {
			return result{} // its deletion, or its successor, is on the way
		}
		if errors.Is(err, writeback.ErrChanged) {
			return result{requeueAfter: e.config.SlowRetry} // the change is on the way
		}
		return e.settleErrors(ctx, o, []error{err})
	}
	messages := state.Sorted(slices.Concat(out.messages, out.outputs.Missing))
	var (
		next    result
		reasons []string
		ready   []plan.Notice
	)
	e.state.Update(func(tx *state.LoopTx) {
		next.requeueAfter = e.due(tx, o)
		switch {
		case len(out.conflicts) > 0:
			reasons = e.withRemarks(tx, o, out.conflicts)
			setPhase(tx, o, state.Waiting, reasons, 0)
		case len(messages) > 0:
			if o.Held > 0 {
				next.requeueAfter = e.config.SlowRetry
			}
			setPhase(tx, o, state.Waiting, e.withRemarks(tx, o, messages), next.requeueAfter)
		default:
			setPhase(tx, o, state.Done, nil, 0)
			ready = e.readyOf(tx, o)
		}
	})
	for _, n := range ready {
		e.eventOf(o, drivers.Note, n.Reason, n.Message)
	}
	e.log.DebugContext(ctx, "reconciled", "object", o.Target.String(), "driver", o.Request.Driver,
		"waiting for", messages, "conflicts", out.conflicts)
	if len(reasons) > 0 {
		e.event(o, "Conflict", strings.Join(reasons, "; "))
	}
	return next
}

// readyOf returns what the people who look at an object have waited for, once for what was made since it was last done:
// a start, which finds everything as it was, tells nothing.
func (e *Engine) readyOf(tx *state.LoopTx, o *state.Object) (list []plan.Notice) {
	if !o.Made {
		return nil
	}
	o.Made = false
	byReason := map[string][]string{}
	for _, r := range tx.Cache.Owned(o.ID) {
		if b := e.byKind[r.Kind]; b != nil && b.Ready != nil {
			if reason, message := b.Ready(r); reason != "" {
				byReason[reason] = append(byReason[reason], message)
			}
		}
	}
	for _, reason := range slices.Sorted(maps.Keys(byReason)) {
		list = append(list, plan.Notice{Reason: reason, Message: strings.Join(state.Sorted(byReason[reason]), "; ")})
	}
	return list
}

// due is in what time something may be done about an object's resources though nothing wakes it; 0: nothing is.
func (e *Engine) due(tx *state.LoopTx, o *state.Object) time.Duration {
	next := sooner(result{requeueAfter: tx.SoftWaitLeft(o)}, result{requeueAfter: e.keepsOld(tx, o)})
	for _, b := range e.backends {
		if b.Due != nil {
			next = sooner(next, result{requeueAfter: b.Due(tx.Tx, o.ID)})
		}
	}
	return next.requeueAfter
}

// withRemarks adds to why an object is not done what its backends have to say of it.
func (e *Engine) withRemarks(tx *state.LoopTx, o *state.Object, reasons []string) []string {
	reasons = slices.Clip(reasons)
	for _, b := range e.backends {
		if b.Remarks != nil {
			reasons = append(reasons, b.Remarks(tx.Tx, o)...)
		}
	}
	return reasons
}

// writeWhatIs writes the outputs if all that they speak of is there, but for what is not known, whatever else failed.
func (e *Engine) writeWhatIs(ctx context.Context, w *watcher, o *state.Object, meta watch.Meta, out outcome) error {
	if w == nil || o.Gone || out.outputs.Partial {
		return nil
	}
	defer traceOf(ctx).add(inWriteBack)()
	if err := e.writeOutputs(ctx, w, o, meta, out.outputs); err != nil {
		return fmt.Errorf("writing what came of %s on it: %w", o.Target, err)
	}
	return nil
}

// writeOutputs writes outputs where they differ from what the source object carries.
func (e *Engine) writeOutputs(
	ctx context.Context, w *watcher, o *state.Object, meta watch.Meta, out state.Outputs,
) error {
	kept := out.Keep(meta, w.manager)
	metadata := writeback.Differs(meta, w.manager, out.Annotations, out.Labels)
	addresses := out.Addresses()
	status := !kept && slices.Contains(w.info.Load().Status, drivers.StatusLoadBalancer) &&
		writeback.IngressDiffers(meta, w.manager, addresses)
	if !metadata && !status {
		return nil
	}
	written := state.Written{Hash: out.Hash(), Version: meta.ResourceVersion}
	same := false
	e.state.View(func(*state.LoopTx) { same = o.Written == written })
	if same {
		return nil // the cache has not caught up with our own write yet
	}
	traceOf(ctx).act()
	if metadata {
		if err := e.writeback.Apply(ctx, target(o), w.manager, out.Annotations, out.Labels); err != nil {
			return err
		}
		e.metrics.written(w.name)
		e.state.View(func(*state.LoopTx) { e.metrics.firstWrite(o, e.clock.Now()) })
	}
	if status {
		t := target(o)
		t.Version = meta.ResourceVersion
		if err := e.writeback.ApplyIngress(ctx, t, w.manager, addresses); err != nil {
			return err
		}
		e.metrics.written(w.name)
	}
	e.state.Update(func(*state.LoopTx) { o.Written = written })
	return nil
}

func target(o *state.Object) writeback.Target {
	t := o.Target
	return writeback.Target{GVR: t.Watch.GVR, Kind: t.Watch.Kind, Namespace: t.Namespace, Name: t.Name, UID: t.UID}
}

// repeatable returns the create with unknown outcome that keeps a step from being asked for: a second one would make
// two. Some kinds cannot be there twice.
func (e *Engine) repeatable(tx *state.Tx, step plan.Step) *state.UnknownCreate {
	u, ok := tx.UnknownCreate(step.Kind, step.Identity)
	if !ok || tx.Kinds().Of(step.Kind).Idempotent || !tx.Now().Before(u.Until) {
		return nil
	}
	return &u
}

// resolveUnknown finds the outcome of creates that were cut off. It says whether it found one.
func (e *Engine) resolveUnknown(ctx context.Context, p plan.Plan, try *attempt) bool {
	found := false
	for _, step := range p.Steps {
		if step.Op != plan.Create || len(step.Waits) > 0 || try.failed[keyOf(step)] != nil {
			continue
		}
		known := false
		e.state.View(func(tx *state.LoopTx) { _, known = tx.UnknownCreate(step.Kind, step.Identity) })
		if !known {
			continue
		}
		now := e.clock.Now() // before the list: what commits after it counts as not seen
		adopted, err := loop{e}.Adopt(ctx, step)
		switch {
		case err != nil:
			try.failed[keyOf(step)] = err
		case adopted:
			found = true
		default:
			if f := e.stillUnknown(step, now); f != nil {
				try.failed[keyOf(step)] = f
			}
		}
	}
	return found
}

// stillUnknown returns why a step is not asked for, and forgets what is over: what came of it would have been found.
func (e *Engine) stillUnknown(step plan.Step, now time.Time) (f *backend.Failure) {
	e.state.Update(func(tx *state.LoopTx) {
		u, known := tx.UnknownCreate(step.Kind, step.Identity)
		switch {
		case !known:
		case !now.Before(u.Until):
			tx.ForgetUnknown(step.Kind, step.Identity)
		case !tx.Kinds().Of(step.Kind).Idempotent:
			// Soon at first, since most come soon if at all.
			again := max(min(now.Sub(u.Since)/2+e.config.BackoffBase, u.Until.Sub(now)), time.Millisecond)
			f = &backend.Failure{Phase: state.Waiting, RequeueAfter: again, Quiet: true, Err: fmt.Errorf(
				"%s: the answer to the last request was: %s; it may have been carried out all the same: looking for it until %s "+
					"before trying again", backend.Doing(step), u.Answer, u.Until.Format(time.TimeOnly))}
		}
	})
	return f
}

// watchUnknown asks for a drift check for creates with unknown outcome that are not wanted any more: nothing else
// searches for them.
func (e *Engine) watchUnknown(o *state.Object) {
	var until time.Time
	e.state.Update(func(tx *state.LoopTx) { until = tx.TakeUnknown(o.ID) })
	if !until.IsZero() {
		e.driftAfter(max(until.Sub(e.clock.Now()), 1))
	}
}

// settleGone ends a reconcile for an object that is gone: it is forgotten once it has nothing left. What still comes
// of its creates with unknown outcome is found by the drift check and collected.
func (e *Engine) settleGone(o *state.Object, out outcome) result {
	var next result
	e.state.Update(func(tx *state.LoopTx) {
		left := len(out.withheld) // it may still have some: out says so
		for _, r := range tx.Cache.Owned(o.ID) {
			if !state.Retained(r) {
				left++
			}
		}
		if left == 0 {
			tx.Forget(o)
			tx.Release()
			return
		}
		next = sooner(result{requeueAfter: e.config.SlowRetry}, result{requeueAfter: e.due(tx, o)})
		setPhase(tx, o, state.Waiting, state.Sorted(out.messages), next.requeueAfter)
	})
	return next
}

// classify says what an error means for its object.
//
//	a backend's failure            as the backend says
//	an object kept from its driver permanent, but shown to the host again
//	everything else                failing: tried again, ever later
//
// That an account may not write is a transient error: an API server that was just started refuses everything until it
// has read the roles, and a corrected role requeues no key.
func (e *Engine) classify(err error) backend.Failure {
	var (
		f       *backend.Failure
		unknown unknownNeedError
	)
	switch {
	case errors.As(err, &unknown):
		return backend.Failure{Phase: state.Waiting, RequeueAfter: e.config.SlowRetry}
	case errors.As(err, &f):
		return *f
	case errors.Is(err, drivers.ErrIsolated):
		return backend.Failure{Phase: state.Terminal, RequeueAfter: isolatedTry}
	}
	return backend.Failure{Phase: state.Failing, Backoff: true, Quiet: passing(err)}
}

// passing says whether an error concerns a driver that is unavailable or slow, not the object.
func passing(err error) bool {
	return errors.Is(err, drivers.ErrUnavailable) || errors.Is(err, context.DeadlineExceeded)
}

// settleErrors ends a reconcile in which something failed: one switch decides what happens next.
func (e *Engine) settleErrors(ctx context.Context, o *state.Object, errs []error) result {
	if ctx.Err() != nil {
		return result{} // it was broken off: that says nothing about the object
	}
	failures := make([]backend.Failure, 0, len(errs))
	messages := make([]string, 0, len(errs))
	for _, err := range errs {
		messages = append(messages, err.Error())
		failures = append(failures, e.classify(err))
		var p panicError
		if errors.As(err, &p) {
			e.log.ErrorContext(ctx, "a fault in Raven", "object", o.Target.String(), "error", err, "stack", string(p.stack))
		}
	}
	messages = state.Sorted(messages)
	var (
		phase          state.Phase
		next           result
		quiet, changed bool
		reasons        []string
		tries          int
	)
	e.state.Update(func(tx *state.LoopTx) {
		var waits []state.Key
		phase, next, waits, quiet = together(failures, e.lasts(o))
		if len(waits) > 0 {
			tx.WaitToo(o, waits)
		}
		next = sooner(next, result{requeueAfter: e.due(tx, o)}) // what is broken besides has its own time
		reasons = e.withRemarks(tx, o, messages)
		changed, tries = setPhase(tx, o, phase, reasons, next.requeueAfter)
	})
	level := slog.LevelDebug
	if changed && (phase != state.Waiting || !quiet && e.news(o, waitingWarned, "it is")) {
		level = slog.LevelWarn
	}
	attrs := []any{"object", o.Target.String(), "driver", o.Request.Driver, "phase", phase, "reasons", messages}
	if next.requeueAfter > 0 {
		attrs = append(attrs, "after", next.requeueAfter)
	}
	e.log.Log(ctx, level, said(phase), attrs...) //nolint:sloglint // one of three constants
	if !quiet && (phase != state.Failing || tries > 2) {
		e.event(o, "RavenCannotApply", strings.Join(reasons, "; "))
	}
	return next
}

// together is what becomes of an object with failures: the phase of the one that asks most of the loop, and the first
// time at which one of them may have passed. Quiet says that none is worth an Event; lasts, that the object waits for
// longer than most of what passes by itself.
func together(failures []backend.Failure, lasts bool) (
	phase state.Phase, next result, waits []state.Key, quiet bool,
) {
	phase, quiet = state.Terminal, true
	for _, f := range failures {
		waits = append(waits, f.Wait...)
		next = sooner(next, result{requeueAfter: f.RequeueAfter, backoff: f.Backoff})
		quiet = quiet && (f.Quiet || f.Patient && !lasts)
		if rank(f.Phase) < rank(phase) {
			phase = f.Phase
		}
	}
	return phase, next, waits, quiet
}

// said is the log message for an object that is not done.
func said(phase state.Phase) string {
	switch phase {
	case state.Terminal:
		return "permanent error"
	case state.Waiting:
		return "waiting for"
	case state.Failing, state.Pending, state.Done:
	}
	return "requeued"
}

// lasts says whether an object waits for longer than most of what passes by itself; the state is locked.
func (e *Engine) lasts(o *state.Object) bool {
	return o.Phase == state.Waiting && e.clock.Since(o.Since) >= e.config.SlowRetry
}

// rank orders phases by what they ask of the loop.
func rank(p state.Phase) int {
	return slices.Index([]state.Phase{state.Failing, state.Waiting, state.Terminal}, p)
}

// setPhase notes where an object stands. It says whether that is news, and how often the object has failed in a row.
func setPhase(
	tx *state.LoopTx, o *state.Object, phase state.Phase, reasons []string, again time.Duration,
) (changed bool, tries int) {
	changed = o.Phase != phase || !slices.Equal(o.Reasons, reasons)
	if o.Phase != phase {
		o.Since, o.Tries = tx.Now(), 0
		delete(o.Said, waitingWarned)
	}
	if phase == state.Failing {
		o.Tries++
	}
	if phase == state.Done {
		delete(o.Said, trouble) // if it happens again it is said again
	}
	if changed && phase != state.Waiting {
		tx.WakeAwaiting(o)
	}
	o.Phase, o.Reasons, o.NextTry = phase, reasons, time.Time{}
	if again > 0 {
		o.NextTry = tx.Now().Add(again)
	}
	return changed, o.Tries
}

// The kinds of Events: each is written when it is news. waitingWarned is the warning in the log that an object waits:
// once as long as it does, whatever for.
const (
	trouble       = "trouble"
	diagnostics   = "diagnostics"
	notices       = "notices"
	waitingWarned = "waiting"
)

// news says whether a text is another one than the last of its kind for an object, and notes it.
func (e *Engine) news(o *state.Object, kind, text string) (news bool) {
	e.state.Update(func(*state.LoopTx) {
		if news = o.Said[kind] != text; news {
			if o.Said == nil {
				o.Said = map[string]string{}
			}
			o.Said[kind] = text
		}
	})
	return news
}

// say passes a driver's diagnostics to the people who look at the object.
func (e *Engine) say(o *state.Object, list []drivers.Diagnostic) {
	if e.StandingBy() {
		return // the leader says it
	}
	text := ""
	if len(list) > 0 {
		text = fmt.Sprint(list)
	}
	if !e.news(o, diagnostics, text) {
		return
	}
	for _, d := range list {
		reason := d.Reason
		if reason == "" {
			reason = "DriverSays"
		}
		e.eventOf(o, d.Severity, reason, d.Message)
	}
}

func (e *Engine) event(o *state.Object, reason, message string) {
	if e.news(o, trouble, message) {
		e.eventOf(o, drivers.Warning, reason, message)
	}
}

// notice tells the people who look at the object what cannot be as it should.
func (e *Engine) notice(o *state.Object, list []plan.Notice) {
	text := ""
	if len(list) > 0 {
		text = fmt.Sprint(list)
	}
	if !e.news(o, notices, text) {
		return
	}
	byReason := map[string][]string{}
	var reasons []string
	for _, n := range list {
		if byReason[n.Reason] == nil {
			reasons = append(reasons, n.Reason)
		}
		byReason[n.Reason] = append(byReason[n.Reason], n.Message)
	}
	for _, reason := range reasons {
		e.eventOf(o, drivers.Warning, reason, strings.Join(state.Sorted(byReason[reason]), "; "))
	}
}

func (e *Engine) eventOf(o *state.Object, severity drivers.Severity, reason, message string) {
	if o.Gone || o.ID.Driver == state.Shared || e.dry.Load() {
		return
	}
	e.writeback.Event(target(o), severity, reason, message)
	e.history.tell(o.ID, Told{Time: e.clock.Now(), Type: eventType(severity), Reason: reason, Message: message})
}
