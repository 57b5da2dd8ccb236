// SPDX-License-Identifier: Apache-2.0

package octavia

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/kuryr/raven/drivers"
	"github.com/kuryr/raven/service/backend"
	"github.com/kuryr/raven/service/openstack"
	"github.com/kuryr/raven/service/openstack/outcome"
	"github.com/kuryr/raven/service/plan"
	"github.com/kuryr/raven/service/state"
)

// refused brings what is known up to date with a refused step, and says what becomes of the object.
func (b *Backend) refused(ctx context.Context, r outcome.Refusal) *backend.Failure {
	r = b.explained(r)
	step := r.Step
	switch class := openstack.Classify(r.Err); class { //nolint:exhaustive // the others are as for every resource
	case openstack.ClassBusy:
		return b.whileBusy(ctx, r)
	case openstack.ClassQuota:
		b.env.State.Update(func(tx *state.Tx) { b.quotaExhausted = tx.Now() })
	case openstack.ClassForbidden, openstack.ClassUnsupported, openstack.ClassTerminal:
		if class != openstack.ClassForbidden {
			b.refusePart(r)
		}
		// Which of the three it is depends on the release.
		if step.Op == plan.Failover {
			b.env.State.Update(func(tx *state.Tx) {
				if lb, known := tx.Cache.Get(step.Kind, step.ID); known {
					b.capabilitiesOf(provider(lb)).noFailover = true
				}
			})
			return b.outcome.Replan(r)
		}
	case openstack.ClassRetry, openstack.ClassAmbiguous, openstack.ClassStale, openstack.ClassNotFound:
		// It may have been done, or be not what was known.
		if step.ID == "" {
			if class == openstack.ClassAmbiguous {
				text := b.outcome.Failure(r).Error()
				b.env.State.Update(func(*state.Tx) { b.noteUnknown(step, text) })
			}
			break
		}
		if _, err := b.env.Loop.Reread(ctx, step.Kind, step.ID); err != nil {
			return b.outcome.Failure(outcome.Refusal{Step: step, Err: err})
		}
		if class == openstack.ClassStale || class == openstack.ClassNotFound {
			return b.outcome.Replan(r)
		}
		return b.outcome.Failure(r)
	}
	if b.namedByPeople(r) {
		r.Refuse = b.env.Timing.Refusal
	}
	return b.outcome.Handle(ctx, r)
}

// explained adds to a refusal what is peculiar to load balancers: what there is to know besides, and when to try again.
func (b *Backend) explained(r outcome.Refusal) outcome.Refusal {
	var (
		left     leftError
		restored restoreError
		notes    []string
	)
	if r.Note != "" {
		notes = append(notes, r.Note)
	}
	if errors.As(r.Err, &left) {
		notes = append(notes, left.note())
		r.Err = &backend.Failure{Phase: state.Waiting, RequeueAfter: left.wait, Err: r.Err}
	}
	if errors.As(r.Err, &restored) {
		notes = append(notes, restored.refused.Error())
	}
	if reserved := (reservedError{}); errors.As(r.Err, &reserved) {
		f := b.outcome.Capacity(state.ByQuota(r.Step.Kind), r.Missed)
		f.Quiet, f.Err = true, r.Err
		r.Err = f
	}
	r.Note = strings.Join(notes, "; ")
	return r
}

// namedByPeople says whether what a refused create refers to, and is not there, is named by a user or operator.
// What is this cluster's, and is there, is only not there for Octavia yet.
func (b *Backend) namedByPeople(r outcome.Refusal) bool {
	if r.Step.Kind != drivers.KindLoadBalancer || r.Step.Part != nil {
		return false
	}
	text, named := r.Err.Error(), true
	b.env.State.View(func(tx *state.Tx) {
		ids := tx.Cache.References(plan.Observed{Kind: r.Step.Kind, Attrs: r.Step.Attrs})
		ids = slices.DeleteFunc(ids, func(id string) bool { return !strings.Contains(text, id) })
		named = len(tx.Cache.Known(ids)) == 0
	})
	return named
}

// whileBusy learns what keeps a load balancer from taking changes.
func (b *Backend) whileBusy(ctx context.Context, r outcome.Refusal) *backend.Failure {
	var (
		lb    plan.Observed
		ok    bool
		begun uint64
	)
	b.env.State.View(func(tx *state.Tx) {
		begun = tx.Cache.Sequence()
		lb, ok = tx.Cache.Get(r.Step.Kind, r.Step.ID)
	})
	if !ok {
		return b.outcome.Replan(r)
	}
	list, err := b.client.Inspect(ctx, []plan.Observed{lb})
	if err != nil {
		return b.outcome.Failure(outcome.Refusal{Step: r.Step, Err: err})
	}
	b.env.State.Update(func(tx *state.Tx) { b.take(tx, list, begun, nil) })
	b.requestPoll()
	for _, lb := range list {
		if condition, _ := ConditionOf(&lb); condition != Ready && condition != Partial {
			continue
		}
		if pool, locked := lockedPool(lb); locked && r.Step.Part != nil && r.Step.Part.Kind == Listener {
			return b.unlockListeners(ctx, r, lb, pool)
		}
		return b.outcome.Failure(r) // it was busy for a moment: again, a little later
	}
	return b.outcome.Replan(r)
}

// partKey is a part of a load balancer, by the load balancer's id, as it was to be made.
type partKey struct {
	lb      string
	part    plan.Part
	desired string
}

// partRefusal is why a part of a load balancer cannot be made, and until when it is not asked for again.
type partRefusal struct {
	failure backend.Failure
	until   time.Time
}

// partKeyOf returns the key of a step that makes a part of a load balancer.
func partKeyOf(step plan.Step) (partKey, bool) {
	if step.Part == nil || step.Op != plan.Create {
		return partKey{}, false
	}
	return partKey{step.ID, *step.Part, fmt.Sprint(step.Attrs)}, true
}

// refusePart remembers that a part of a load balancer is refused for good.
func (b *Backend) refusePart(r outcome.Refusal) {
	if key, ok := partKeyOf(r.Step); ok {
		f := b.outcome.Failure(r)
		b.env.State.Update(func(tx *state.Tx) {
			b.refusedParts[key] = partRefusal{*f, tx.Now().Add(b.env.Timing.Refusal)}
		})
	}
}

// refusedBefore returns why a step is not to be asked for now, since it was refused before.
func (b *Backend) refusedBefore(tx *state.Tx, step plan.Step) *backend.Failure {
	key, ok := partKeyOf(step)
	if !ok {
		return nil
	}
	if r, ok := b.refusedParts[key]; ok && tx.Now().Before(r.until) {
		f := r.failure
		return &f
	}
	return nil
}
