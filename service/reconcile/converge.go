// SPDX-License-Identifier: Apache-2.0

package reconcile

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/kuryr/raven/service/backend"
	"github.com/kuryr/raven/service/plan"
	"github.com/kuryr/raven/service/state"
	"github.com/kuryr/raven/service/watch"
)

// maxPlans bounds how often one reconcile plans anew. Every plan but the last makes progress, so that only a bug in
// Raven reaches it.
const maxPlans = 100

// maxReplans is how often another plan is believed to help against the refusal of one step.
const maxReplans = 2

// attempt is one reconcile: what was tried in it is not tried twice.
type attempt struct {
	failed    map[stepKey]error
	tagged    map[string]bool // a cloud that keeps no tags would be asked for ever
	replanned map[stepKey]int // refusals that another plan was to answer
	last      error
}

// note takes down what became of a step.
func (t *attempt) note(key stepKey, err error) {
	var f *backend.Failure
	switch {
	case err == nil:
	case errors.As(err, &f) && f.Replan:
		t.last = f
		if t.replanned[key]++; t.replanned[key] > maxReplans {
			t.failed[key] = f
		}
	default:
		t.failed[key] = err
	}
}

// stepKey names a step across the plans of one reconcile.
type stepKey struct {
	op   plan.Op
	kind string
	name string
	id   string
	part plan.Part
}

func keyOf(step plan.Step) stepKey {
	key := stepKey{op: step.Op, kind: string(step.Kind), name: step.Identity.Name, id: step.ID}
	if step.Part != nil {
		key.part = *step.Part
	}
	return key
}

func tagKey(step plan.Step) string { return fmt.Sprint(step.ID, step.Attrs) }

// converge plans and applies for one object until nothing is left to do now. What is fixed stays as it is.
func (e *Engine) converge(
	ctx context.Context, w *watcher, o *state.Object, meta watch.Meta, fixed map[string]string,
) result {
	try := &attempt{failed: map[stepKey]error{}, tagged: map[string]bool{}, replanned: map[stepKey]int{}}
	defer e.doing(o, nil)
	for range maxPlans {
		if e.stopping(ctx) {
			return result{}
		}
		unknown := e.lookup(ctx, o.Set) // one may have turned out to be gone
		end := traceOf(ctx).add(inPlan)
		p, out := e.plan(o, fixed)
		end()
		e.notice(o, p.Notices)
		if e.resolveUnknown(ctx, p, try) {
			continue
		}
		if ready := e.ready(o, p, try); len(ready) > 0 {
			e.doing(o, ready)
			e.applyAll(ctx, o, ready, try)
			continue
		}
		if errs := slices.AppendSeq(append(unknown, out.failures...), maps.Values(try.failed)); len(errs) > 0 {
			if err := e.writeWhatIs(ctx, w, o, meta, out); err != nil {
				errs = append(errs, err)
			}
			if p.Kept > 0 {
				errs = append(errs, e.keptFailure(p.Kept))
			}
			return e.settleErrors(ctx, o, errs)
		}
		if len(out.outputs.Unread) > 0 {
			if err := e.readForDocuments(ctx, out.outputs.Unread); err != nil {
				return e.settleErrors(ctx, o, []error{err})
			}
			continue
		}
		return e.settle(ctx, w, o, meta, out)
	}
	return e.settleErrors(ctx, o, []error{fmt.Errorf(
		"the plan for %s did not come to rest in %d tries, the last refusal was: %w; please report this", o.Target,
		maxPlans, try.last)})
}

// keptFailure says that deletions wait for lookups.
func (e *Engine) keptFailure(n int) error {
	return &backend.Failure{
		Phase: state.Waiting, RequeueAfter: e.config.SlowRetry, Quiet: true,
		Err: fmt.Errorf("%d deletions wait: what was named in place of it is not known", n),
	}
}

// outcome is what a plan leaves open, gathered while the state was locked.
type outcome struct {
	blocked   []state.Key
	messages  []string
	conflicts []string
	failures  []error
	withheld  []string // why there is only a part of a plan
	outputs   state.Outputs
}

// plan compares what the object should have with what it has, and notes at once what it depends on, so that no
// arrival in between is missed.
func (e *Engine) plan(o *state.Object, fixed map[string]string) (p plan.Plan, out outcome) {
	trips := false
	held, allowed := 0, 0
	e.state.Update(func(tx *state.LoopTx) {
		w := tx.Desire(o.ID, o.Set)
		observed := tx.Undisputed(tx.Decided(o.ID, o.Set), fixed)
		prune := tx.MayPrune(o)
		p = tx.Plan(w, observed, prune)
		if !prune {
			var may bool
			if may, trips = tx.Admit(o, p); may && p.Held > 0 {
				p = tx.Plan(w, observed, true)
			}
			if d := tx.Driver(o.Request.Driver); d != nil {
				held, allowed = d.Held, d.Allowed
			}
		}
		p.Steps = append(p.Steps, w.Marks...)
		p.Notices = append(p.Notices, tx.NoteUnresolved(o, w, p)...)
		out = e.outcomeOf(tx, o, w, &p)
		out.conflicts = state.Sorted(slices.Concat(out.conflicts, slices.Collect(maps.Values(fixed))))
		tx.Defer(o, w.Deferred || p.Held > 0)
		waits := slices.Concat(slices.Collect(maps.Keys(w.Depends)), out.blocked)
		tx.Wait(o, waits, out.blocked)
	})
	if trips {
		e.reportGuard(o.Request.Driver, held, allowed)
	}
	return p, out
}

// outcomeOf has the backends review a plan, and gathers what it leaves open.
func (e *Engine) outcomeOf(tx *state.LoopTx, o *state.Object, w *state.Want, p *plan.Plan) outcome {
	out := outcome{conflicts: append(w.Conflicts, tx.Conflicts(o)...)}
	for _, b := range e.backends {
		if b.Review != nil {
			review := b.Review(tx.Tx, o, p)
			for _, f := range review.Failures {
				out.failures = append(out.failures, f)
			}
			if review.Withheld != "" {
				out.withheld = append(out.withheld, review.Withheld)
			}
			out.blocked = append(out.blocked, review.Wait...)
		}
		e.withholdUnavailable(tx, o, b, p, &out)
	}
	messages, blocked := waitsOf(tx.Tx, w, *p)
	out.blocked = append(out.blocked, blocked...)
	out.messages = slices.Concat(messages, tx.Unmet(w), w.Unresolved)
	out.outputs = tx.Outputs(w, o)
	if len(blocked) > 0 || len(p.Pending) > 0 {
		out.outputs.Missing = nil // they wait for what waits
		out.outputs.Partial = true
	}
	if o.Held = p.Held; p.Held > 0 {
		out.messages = append(out.messages, tx.HeldText(o))
	}
	return out
}

// withholdUnavailable takes out of a plan what concerns a backend while it is not known what there is of its resources,
// and says so.
func (e *Engine) withholdUnavailable(
	tx *state.LoopTx, o *state.Object, b *registered, p *plan.Plan, out *outcome,
) {
	var err error
	concerned := false
	for _, kind := range b.kinds {
		err = cmp.Or(err, tx.Unavailable(kind))
		concerned = concerned || o.MayHave(kind)
	}
	if err == nil || b.Required || b.Follows {
		return
	}
	p.Steps = slices.DeleteFunc(p.Steps, func(step plan.Step) bool {
		withheld := e.byKind[step.Kind] == b
		concerned = concerned || withheld
		return withheld
	})
	if !concerned {
		return
	}
	text := fmt.Sprintf("waiting for %s: %v", b.Name, err)
	p.Pending = append(p.Pending, plan.Wait{Message: text})
	if errors.Is(err, backend.ErrAbsent) { // which does not pass by itself
		p.Notices = append(p.Notices, plan.Notice{Reason: b.Reason, Message: text})
	}
	out.withheld = append(out.withheld, text)
	out.blocked = append(out.blocked, state.ByBackend(b.Name))
}

// waitsOf returns what the steps of a plan wait for. For people, only roots are named: what waits for another step of
// the same plan is left out.
func waitsOf(tx *state.Tx, w *state.Want, p plan.Plan) (messages []string, keys []state.Key) {
	var inner []string
	for _, wt := range p.Pending {
		if key, _ := waitKeyOf(w, wt); key != (state.Key{}) {
			keys = append(keys, key)
		}
		messages = append(messages, wt.Message)
	}
	for i, step := range p.Steps {
		for j, wt := range step.Waits {
			if wt.Resource != nil {
				for _, id := range []plan.Identity{wt.Resource.Identity, step.Identity} {
					wt.Message = strings.ReplaceAll(wt.Message, id.String(), tx.Describe(id))
				}
				p.Steps[i].Waits[j].Message = wt.Message
			}
			key, root := waitKeyOf(w, wt)
			if key != (state.Key{}) {
				keys = append(keys, key)
			}
			if root {
				messages = append(messages, wt.Message)
			} else {
				inner = append(inner, wt.Message)
			}
		}
	}
	if len(messages) == 0 {
		messages = inner
	}
	return messages, keys
}

// waitKeyOf returns what ends a wait, and whether that is outside of the object's own plan.
func waitKeyOf(w *state.Want, wt plan.Wait) (key state.Key, root bool) {
	switch {
	case wt.Ref != nil && wt.Ref.Role != nil:
		return state.ByRole(*wt.Ref.Role), true
	case wt.Ref != nil && w.Claimed(wt.Ref.Name) != "":
		return state.ByClaim(w.Claimed(wt.Ref.Name)), true
	case wt.Ref != nil:
		return state.Key{}, w.IsLookup(wt.Ref.Name)
	case wt.Busy != nil:
		return state.ByBusy(wt.Busy.ID), true
	case wt.Resource != nil:
		return state.ByGone(wt.Resource.ID), wt.Resource.Identity.Owner != w.Owner
	default:
		return state.Key{}, false
	}
}

// ready returns the steps of a plan that can be applied now.
func (e *Engine) ready(o *state.Object, p plan.Plan, try *attempt) []plan.Step {
	var ready []plan.Step
	e.state.Update(func(tx *state.LoopTx) {
		busy := map[string]bool{}
		for _, step := range p.Steps {
			serial := step.ID != "" && tx.Kinds().Of(step.Kind).Serial
			switch {
			case serial && busy[step.ID]:
				continue
			case len(step.Waits) > 0 || try.failed[keyOf(step)] != nil:
				continue
			case step.Op == plan.Create && e.repeatable(tx.Tx, step) != nil:
				continue
			case step.Op == plan.Tag && try.tagged[tagKey(step)]:
				continue
			}
			if b := e.byKind[step.Kind]; b != nil && b.Refused != nil {
				if f := b.Refused(tx.Tx, step); f != nil {
					try.failed[keyOf(step)] = f
					continue
				}
			}
			ready = append(ready, step)
			busy[step.ID] = busy[step.ID] || serial
		}
		ready = e.createFirst(tx, o, p, ready, try)
	})
	return ready
}

// applyAll applies ready steps side by side. What one step did is in the cache before it returns; what failed is noted.
func (e *Engine) applyAll(ctx context.Context, o *state.Object, steps []plan.Step, try *attempt) {
	traceOf(ctx).steps(len(steps))
	defer traceOf(ctx).add(inApply)()
	errs := make([]error, len(steps))
	done := make(chan struct{}, len(steps))
	for i, step := range steps {
		if step.Op == plan.Tag {
			try.tagged[tagKey(step)] = true
		}
		if len(steps) == 1 {
			errs[i] = e.apply(ctx, o, step)
			done <- struct{}{}
			continue
		}
		go func() {
			defer func() {
				if v := recover(); v != nil {
					errs[i] = panicError{v, debug.Stack()}
				}
				done <- struct{}{}
			}()
			errs[i] = e.apply(ctx, o, step)
		}()
	}
	for range steps {
		<-done
	}
	for i, err := range errs {
		try.note(keyOf(steps[i]), err)
	}
}

// apply has the backend apply one step.
func (e *Engine) apply(ctx context.Context, o *state.Object, step plan.Step) error {
	b := e.byKind[step.Kind]
	if b == nil {
		return noBackend(step.Kind)
	}
	if step.ID != "" {
		key := state.ResourceKey{Kind: step.Kind, ID: step.ID}
		e.state.Update(func(tx *state.LoopTx) { tx.Cache.BeginWrite(key) })
		defer e.state.Update(func(tx *state.LoopTx) { tx.Cache.EndWrite(key) })
	}
	err := b.Apply(ctx, o.ID, &step)
	e.metrics.step(step, err)
	if err != nil {
		return err
	}
	var known plan.Observed
	e.state.Update(func(tx *state.LoopTx) {
		known, _ = tx.Cache.Get(step.Kind, step.ID)
		e.metrics.firstCreate(o, step, e.clock.Now())
		o.Made = o.Made || step.Op == plan.Create && b.Ready != nil
	})
	name, _ := known.Attrs["name"].(string)
	attrs := []any{
		"op", step.Op, "kind", step.Kind, "name", cmp.Or(name, step.Identity.Name), "id", step.ID,
		"object", o.Target.String(), "driver", o.Request.Driver,
	}
	if step.Op != plan.Create {
		attrs = append(attrs, "reason", step.Reason)
	}
	e.log.InfoContext(ctx, "applied", attrs...)
	return nil
}

// doing shows in the status what is being applied, which may take seconds.
func (e *Engine) doing(o *state.Object, steps []plan.Step) {
	text := ""
	if len(steps) > 0 {
		text = backend.Doing(steps[0])
		if len(steps) > 1 {
			text += fmt.Sprintf(" and %d more", len(steps)-1)
		}
	}
	e.state.Update(func(*state.LoopTx) { o.Doing, o.DoingSince = text, e.clock.Now() })
}
