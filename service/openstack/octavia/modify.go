// SPDX-License-Identifier: Apache-2.0

package octavia

import (
	"context"
	"fmt"
	"maps"

	"github.com/kuryr/raven/drivers"
	"github.com/kuryr/raven/service/backend"
	"github.com/kuryr/raven/service/openstack/outcome"
	"github.com/kuryr/raven/service/plan"
	"github.com/kuryr/raven/service/state"
)

// change applies a step on a load balancer that exists. What it changes is written into what is known when the answer
// comes, not into what was known when it was asked for: whoever has read the load balancer meanwhile may know more
// of it.
func (b *Backend) change(ctx context.Context, step plan.Step) error {
	var (
		lb plan.Observed
		ok bool
	)
	b.env.State.View(func(tx *state.Tx) { lb, ok = tx.Cache.Get(step.Kind, step.ID) })
	if !ok {
		return fmt.Errorf("load balancer %s is not there any more", step.ID)
	}
	change, err := b.ask(ctx, lb, step)
	if err != nil {
		return err
	}
	if step.Op == plan.Delete && step.Part == nil && step.Repairs {
		b.env.Log.WarnContext(ctx,
			"a load balancer in ERROR was asked to go; if it is so again that is tried less and less often",
			"id", step.ID, "reason", step.Reason)
	}
	b.amend(lb, change, step)
	return nil
}

// ask asks for a step, and returns what it changes.
func (b *Backend) ask(ctx context.Context, lb plan.Observed, step plan.Step) (Change, error) {
	switch {
	case step.Part != nil:
		return b.client.ChangePart(ctx, lb, step)
	case step.Op == plan.Failover:
		return becomes(statusUpdating), b.client.FailOver(ctx, step.ID)
	case step.Op == plan.Delete:
		return becomes("PENDING_DELETE"), b.client.Delete(ctx, step.ID)
	case step.Op == plan.Tag:
		return func(lb plan.Observed) plan.Observed {
			return becomes(statusUpdating)(plan.Retagged(lb, step))
		}, b.tag(ctx, step)
	}
	updated, err := b.client.Update(ctx, step.ID, step.Attrs)
	return func(lb plan.Observed) plan.Observed {
		now := updated
		now.Attrs = maps.Clone(now.Attrs)
		for _, name := range []string{"listeners", "pools", "vip_sg_ids"} {
			now.Attrs[name] = lb.Attrs[name]
		}
		return now
	}, err
}

func (b *Backend) tag(ctx context.Context, step plan.Step) error {
	if remove, _ := step.Attrs["remove"].([]string); len(remove) > 0 {
		if err := b.client.RemoveTags(ctx, step.ID, remove); err != nil {
			return err
		}
	}
	missing, _ := step.Attrs["tags"].([]string)
	return b.client.AddTags(ctx, step.ID, missing)
}

// becomes is the change of a load balancer's status alone.
func becomes(status string) Change {
	return func(lb plan.Observed) plan.Observed {
		lb.Status = status
		return lb
	}
}

// amend writes a change into what is known of a load balancer. One that has gone meanwhile stays gone.
func (b *Backend) amend(lb plan.Observed, change Change, step plan.Step) {
	b.env.State.Update(func(tx *state.Tx) {
		b.repaired(tx, step) // also of one that a poll has seen gone since: it counts as a try
		known, ok := tx.Cache.Get(lb.Kind, lb.ID)
		if !ok {
			return
		}
		tx.Arrive(change(known))
		if period := b.busy[lb.ID]; period != nil && step.Part != nil && step.Op == plan.Create {
			period.check = true
		}
	})
}

// unlockListeners has a provider finish with the listeners of a pool, by a change of the pool that changes nothing:
// OVN's leaves them PENDING_UPDATE after a change of the pool's health monitor.
func (b *Backend) unlockListeners(
	ctx context.Context, r outcome.Refusal, lb plan.Observed, pool plan.Part,
) *backend.Failure {
	change, err := b.client.ChangePart(ctx, lb, plan.Step{
		Op: plan.Update, Kind: lb.Kind, Identity: lb.Identity, ID: lb.ID, Part: &pool,
		Attrs: map[string]any{"name": pool.Name},
	})
	if err != nil {
		return b.outcome.Failure(outcome.Refusal{Step: r.Step, Err: err})
	}
	b.amend(lb, change, plan.Step{})
	return b.outcome.Replan(r)
}

// lockedPool returns a pool of a listener that is left PENDING_UPDATE though the load balancer is done.
func lockedPool(lb plan.Observed) (plan.Part, bool) {
	for _, listener := range structures(lb.Attrs["listeners"]) {
		if id := asText(listener["default_pool_id"]); id != "" && asText(listener["provisioning_status"]) == statusUpdating {
			return plan.Part{Kind: Pool, Name: asText(listener["default_pool"]), ID: id}, true
		}
	}
	return plan.Part{}, false
}

// take takes over load balancers as they were seen since a sequence. What was written since then counts, not what was
// seen beside it.
func (b *Backend) take(tx *state.Tx, seen []plan.Observed, begun uint64, taken func(plan.Observed)) {
	for _, lb := range seen {
		_, known := tx.Cache.Get(lb.Kind, lb.ID)
		if !known || tx.Cache.Newer(state.ResourceKey{Kind: drivers.KindLoadBalancer, ID: lb.ID}, begun) {
			continue
		}
		tx.Arrive(lb)
		if taken != nil {
			taken(lb)
		}
	}
}
