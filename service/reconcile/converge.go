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

	"github.com/kuryr/raven/drivers"
	"github.com/kuryr/raven/service/plan"
	"github.com/kuryr/raven/service/watch"
)

// maxPasses bounds how often one pass over a key plans anew. Every plan but the last makes progress, so that only a fault of
// ours reaches it.
const maxPasses = 100

// attempt is one pass over a key: what was tried in it is not tried twice.
type attempt struct {
	failed map[stepKey]error
	tagged map[string]bool // a cloud that keeps no tags would be asked for ever
	mended map[stepKey]int // refusals that another plan was to answer
	last   error
}

// note takes down what became of a step.
func (t *attempt) note(key stepKey, err error) {
	var mended mendedError
	switch {
	case err == nil:
	case errors.As(err, &mended):
		t.last = mended.stepError
		if t.mended[key]++; t.mended[key] > maxMended {
			t.failed[key] = mended.stepError
		}
	default:
		t.failed[key] = err
	}
}

// stepKey names a step across the plans of one pass.
type stepKey struct {
	op   plan.Op
	kind drivers.Kind
	name string
	id   string
	part plan.Part
}

func keyOf(step plan.Step) stepKey {
	key := stepKey{op: step.Op, kind: step.Kind, name: step.Identity.Name, id: step.ID}
	if step.Part != nil {
		key.part = *step.Part
	}
	return key
}

func tagKey(step plan.Step) string { return fmt.Sprint(step.ID, step.Attrs) }

// converge plans and applies for one owner until nothing is left to do now. What is frozen stays as it is.
func (e *Engine) converge(ctx context.Context, w *watcher, o *owner, meta watch.Meta, frozen map[string]string) result {
	try := &attempt{failed: map[stepKey]error{}, tagged: map[string]bool{}, mended: map[stepKey]int{}}
	defer e.doing(o, nil)
	for range maxPasses {
		if e.stopping(ctx) {
			return result{}
		}
		unknown := e.lookup(ctx, o.set) // one may have turned out to be gone
		p, out := e.plan(o, frozen)
		e.noteHandover(o)
		stopped := e.vetoed(o) // those that the plan has left standing
		e.notice(o, out.notices)
		if e.resolveDoubts(ctx, p, try) {
			continue
		}
		if ready := e.ready(p, try); len(ready) > 0 {
			e.doing(o, ready)
			e.applyAll(ctx, o, ready, try)
			continue
		}
		if errs := slices.AppendSeq(append(unknown, stopped...), maps.Values(try.failed)); len(errs) > 0 {
			if err := e.writeWhatIs(ctx, w, o, meta, out); err != nil {
				errs = append(errs, err)
			}
			if p.Kept > 0 {
				errs = append(errs, keptError(p.Kept))
			}
			return e.settleErrors(ctx, o, errs)
		}
		if len(out.outputs.unknown) > 0 {
			if err := e.readForeign(ctx, out.outputs.unknown); err != nil {
				return e.settleErrors(ctx, o, []error{err})
			}
			continue
		}
		return e.settle(ctx, w, o, meta, out)
	}
	return e.settleErrors(ctx, o, []error{fmt.Errorf(
		"the plan for %s did not come to rest in %d passes, the last refusal was: %w; please report this", o.target, maxPasses, try.last)})
}

// outcome is what a plan leaves open, gathered while the store was locked.
type outcome struct {
	blocked   []waitKey
	messages  []string
	conflicts []string
	notices   []string
	withheld  string // why there is only a part of a plan
	outputs   outputs
}

// plan compares what the owner should have with what it has, and notes at once what it depends on, so that no arrival in
// between is missed.
func (e *Engine) plan(o *owner, frozen map[string]string) (plan.Plan, outcome) {
	s := e.store
	s.mu.Lock()
	defer s.mu.Unlock()
	s.noteStale(o)
	w := s.desire(o.id, o.set)
	observed := s.decided(o.id, o.set)
	if len(frozen) > 0 {
		observed = slices.DeleteFunc(observed, func(r plan.Observed) bool { return isFrozen(r, frozen) })
	}
	in := plan.Input{
		Desired: w.desired, Observed: observed, Resolve: s.resolve(w), Dependants: s.cloud.dependants, Prune: s.mayPrune(o),
		Unsure: s.unsure(w), Blocked: s.resting(o.id, s.clock.Now()),
	}
	p := kinds.Compute(in)
	if !in.Prune {
		may, trips := s.compareLate(o, p, e.config)
		if in.Prune = may && p.Held > 0; in.Prune {
			p = kinds.Compute(in)
		}
		if d := s.drivers[o.item.driver]; trips {
			e.reportGuard(d.name, d.held, d.allowed)
		}
	}
	p.Steps = append(p.Steps, w.marks...)
	out := outcome{conflicts: append(w.conflicts, slices.Collect(maps.Values(frozen))...), withheld: s.withhold(o, &p)}
	out.withheld = cmp.Or(out.withheld, s.withholdUnseen(o, &p))
	out.notices = s.troubles(o.id, p)
	out.conflicts = append(out.conflicts, s.conflictsOf(o)...)
	out.messages, out.blocked = s.waitsOf(w, p)
	out.messages = append(out.messages, s.unheard(w)...)
	out.outputs = s.outputsOf(w, o)
	if len(out.blocked) > 0 {
		out.outputs.missing = nil // they wait for what waits
		out.outputs.partial = true
	}
	o.held = p.Held
	if p.Held > 0 {
		out.messages = append(out.messages, s.heldText(o))
	}
	delete(s.keepers, o)
	if w.keeps || p.Held > 0 {
		s.keepers[o] = true
	}
	out.conflicts = sorted(out.conflicts)
	waits := slices.Concat(slices.Collect(maps.Keys(w.looked)), out.blocked)
	if out.withheld != "" {
		waits = append(waits, waitBalancing())
	}
	s.wait(o, waits)
	o.blocked = out.blocked
	return p, out
}

func sorted(texts []string) []string {
	slices.Sort(texts)
	return slices.Compact(texts)
}

// conflictsOf lists what an owner has with others: roles that they export too, claims on which they disagree.
func (s *store) conflictsOf(o *owner) []string {
	var texts []string
	for role := range exportsOf(o.target, o.set) {
		if conflict := s.roleConflict(role); conflict != "" {
			texts = append(texts, conflict)
		}
	}
	for name := range o.claims {
		if text := s.disputed[name]; text != "" {
			texts = append(texts, text)
		}
	}
	return texts
}

// waitsOf returns what the steps of a plan wait for. For people, only roots are named: what waits for another step of the
// same plan is left out.
func (s *store) waitsOf(w *want, p plan.Plan) (messages []string, keys []waitKey) {
	var inner []string
	for _, wt := range p.Pending {
		key, _ := waitKeyOf(w, wt)
		keys, messages = append(keys, key), append(messages, wt.Message)
	}
	for i, step := range p.Steps {
		for j, wt := range step.Waits {
			if wt.Resource != nil {
				for _, id := range []plan.Identity{wt.Resource.Identity, step.Identity} {
					wt.Message = strings.ReplaceAll(wt.Message, id.String(), s.describe(id))
				}
				p.Steps[i].Waits[j].Message = wt.Message
			}
			key, root := waitKeyOf(w, wt)
			if key != (waitKey{}) {
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

// describe names a resource by the object that it is for.
func (s *store) describe(id plan.Identity) string {
	if o := s.owners[id.Owner]; o != nil {
		return fmt.Sprintf("%q of %s", id.Name, o.target)
	}
	return id.String()
}

// waitKeyOf returns what ends a wait, and whether that is outside of the owner's own plan.
func waitKeyOf(w *want, wt plan.Wait) (key waitKey, root bool) {
	switch {
	case wt.Ref != nil && wt.Ref.Role != nil:
		return waitRole(*wt.Ref.Role), true
	case wt.Ref != nil && w.claimed[wt.Ref.Name] != "":
		return waitClaim(w.claimed[wt.Ref.Name]), true
	case wt.Ref != nil:
		_, lookup := w.lookups[wt.Ref.Name]
		return waitKey{}, lookup
	case wt.Busy != nil:
		return waitBusy(wt.Busy.ID), true
	case wt.Resource != nil:
		return waitGone(wt.Resource.ID), wt.Resource.Identity.Owner != w.owner
	default:
		return waitKey{}, false
	}
}

// mayPrune says whether the owner's wish may end resources: its object is gone, or the replay guard has counted what its
// driver's answer would end and does not hold it: what changes later is not the replay's doing. The shared owner's may when
// every driver has answered for every object, and nothing is there of a driver that is not enabled.
func (s *store) mayPrune(o *owner) bool {
	if o.id.Driver == sharedDriver {
		return s.complete() && s.disabled() == ""
	}
	d := s.drivers[o.item.driver]
	return o.gone || (d != nil && d.over() && d.answered() && o.compared == d.epoch && !o.guarded && !s.silent(o))
}

// heldText says why deletions are held.
func (s *store) heldText(o *owner) string {
	switch {
	case o.id.Driver == sharedDriver && s.disabled() != "":
		return fmt.Sprintf("%d deletions are held: driver %s is not enabled but has resources, and may share these",
			o.held, s.disabled())
	case o.guarded:
		return fmt.Sprintf("%d deletions are held by the replay guard: see `raven plan`", o.held)
	}
	return fmt.Sprintf("%d deletions are held until every object has been answered; still open: %s", o.held, s.unanswered())
}

func (e *Engine) ready(p plan.Plan, try *attempt) []plan.Step {
	e.store.mu.Lock()
	defer e.store.mu.Unlock()
	var ready []plan.Step
	busy := map[string]bool{}
	for _, step := range p.Steps {
		switch {
		case oneByOne(step) && busy[step.ID]:
			continue
		case len(step.Waits) > 0 || try.failed[keyOf(step)] != nil:
			continue
		case step.Op == plan.Create && e.store.doubtful(step, e.clock.Now()):
			continue
		case step.Op == plan.Tag && try.tagged[tagKey(step)]:
			continue
		}
		if err := e.store.refusalOf(step, e.clock.Now()); err != nil {
			try.failed[keyOf(step)] = err
			continue
		}
		ready = append(ready, step)
		busy[step.ID] = busy[step.ID] || oneByOne(step)
	}
	return ready
}

// oneByOne says whether a step is one of those that are taken one at a time: on a load balancer, which takes no more, and on its VIP's
// port, since what becomes of the load balancer is known of one step only.
func oneByOne(step plan.Step) bool { return step.Kind == drivers.KindLoadBalancer && step.ID != "" }

// applyAll applies ready steps side by side. What one step did is in the mirror before it returns; what failed is noted.
func (e *Engine) applyAll(ctx context.Context, o *owner, steps []plan.Step, try *attempt) {
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

// doing shows in the status what is being applied, which may take seconds.
func (e *Engine) doing(o *owner, steps []plan.Step) {
	text := ""
	if len(steps) > 0 {
		text = doing(steps[0])
		if len(steps) > 1 {
			text += fmt.Sprintf(" and %d more", len(steps)-1)
		}
	}
	e.store.mu.Lock()
	defer e.store.mu.Unlock()
	o.doing = text
}
