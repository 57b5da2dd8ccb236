// SPDX-License-Identifier: Apache-2.0

package reconcile

import (
	"slices"
	"time"

	"github.com/kuryr/raven/drivers"
	"github.com/kuryr/raven/service/plan"
	"github.com/kuryr/raven/service/state"
)

// createFirst takes deletions out of the ready steps whose kind is created first, as long as a create of that kind
//
//	is ready                                        kept, the create is asked for now
//	waits for what its references lead to           kept for SlowRetry
//	waits for what was refused for good             deleted
//	failed, with a failure that may pass            kept for SlowRetry
//	was refused for good, or for want of quota      deleted
//	waits for a deletion, or anything else          deleted: it may be this deletion
//
// The bound is there because an old resource may allow what the new ones do not.
func (e *Engine) createFirst(
	tx *state.LoopTx, o *state.Object, p plan.Plan, ready []plan.Step, try *attempt,
) []plan.Step {
	now, later := map[drivers.Kind]bool{}, map[drivers.Kind]bool{}
	for _, step := range ready {
		now[step.Kind] = now[step.Kind] || step.Op == plan.Create && tx.Kinds().Of(step.Kind).CreateFirst
	}
	for _, step := range p.Steps {
		if step.Op == plan.Create && tx.Kinds().Of(step.Kind).CreateFirst {
			later[step.Kind] = later[step.Kind] || e.mayBeMade(tx, step, try)
		}
	}
	deletes := func(of map[drivers.Kind]bool) func(plan.Step) bool {
		return func(step plan.Step) bool { return step.Op == plan.Delete && of[step.Kind] }
	}
	asked := len(ready)
	ready = slices.DeleteFunc(ready, deletes(now))
	switch {
	case len(ready) < asked:
		return ready
	case !slices.ContainsFunc(ready, deletes(later)):
		o.OldSince = time.Time{}
		return ready
	case o.OldSince.IsZero():
		o.OldSince = tx.Now()
	}
	if e.keepsOld(tx, o) > 0 {
		ready = slices.DeleteFunc(ready, deletes(later))
	}
	return ready
}

// keepsOld is for how long old resources of an object still wait for the new ones; 0: they do not.
func (e *Engine) keepsOld(tx *state.LoopTx, o *state.Object) time.Duration {
	if o.OldSince.IsZero() {
		return 0
	}
	return max(e.config.SlowRetry-tx.Now().Sub(o.OldSince), 0)
}

// mayBeMade says whether a create that is not ready may succeed without a deletion.
func (e *Engine) mayBeMade(tx *state.LoopTx, step plan.Step, try *attempt) bool {
	if err := try.failed[keyOf(step)]; err != nil {
		return !e.refusedForGood(err)
	}
	for _, wait := range step.Waits {
		if wait.Ref == nil {
			return false
		}
		for key, err := range try.failed {
			own := wait.Ref.Role == nil && key.name == tx.Kinds().LogicalName(drivers.Kind(key.kind), wait.Ref.Name)
			if own && e.refusedForGood(err) {
				return false
			}
		}
	}
	return len(step.Waits) > 0
}

// refusedForGood says whether the same request would be refused again as long as nothing else changes.
func (e *Engine) refusedForGood(err error) bool {
	f := e.classify(err)
	return f.Phase == state.Terminal || len(f.Wait) > 0
}
