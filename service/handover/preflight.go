// SPDX-License-Identifier: Apache-2.0

package handover

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/kuryr/raven/drivers"
	"github.com/kuryr/raven/service/backend"
	"github.com/kuryr/raven/service/openstack/outcome"
	"github.com/kuryr/raven/service/plan"
	"github.com/kuryr/raven/service/state"
)

// successor is a load balancer that is to serve instead of one of the other kind, and is not there yet.
type successor struct {
	step        plan.Step
	target      state.Target   // the Service
	wanted      map[string]any // of Octavia's, what it would be made of
	group       string         // of OVN's, the group that it would be in
	attachments []attachment   // of OVN's, what its group has to be attached to
}

// successors returns the load balancers that an owner is to have instead of those of a kind.
func (h *Handover) successors(tx *state.Tx, owner plan.Owner, gone drivers.Kind) []successor {
	o := tx.Object(owner)
	if o == nil || o.Gone || !wantsInstead(o.Set, gone) {
		return nil
	}
	w := tx.Desire(o.ID, o.Set)
	var list []successor
	for i := range w.Desired {
		d := &w.Desired[i]
		if _, there := tx.Cache.Find(d.Identity, d.Kind); there || d.Kind == gone {
			continue
		}
		s := successor{target: o.Target, step: plan.Step{
			Op: plan.Create, Kind: d.Kind, Identity: d.Identity, Attrs: map[string]any{"name": d.Attrs["name"]},
		}}
		switch d.Kind { // the others serve no client
		case drivers.KindLoadBalancer:
			s.wanted = h.octavia.Desired(tx, w, d)
		case drivers.KindOVNLoadBalancer:
			s.group, _ = tx.Known(w, d.Attrs["group_id"]).(string)
			s.attachments = attachments(tx, w, o.Target.Namespace, d.Attrs)
		default:
			continue
		}
		list = append(list, s)
	}
	return list
}

// preflightSuccessors checks, before a load balancer is deleted for one of the other kind, that that one can come, as
// far as can be read: the database answers and has its group, which the namespace's network has joined, and its
// router if there are addresses outside; Octavia answers, has what it would be made of, and room for it in the quota.
// Otherwise the old one serves on.
func (h *Handover) preflightSuccessors(ctx context.Context, owner plan.Owner, gone drivers.Kind) *backend.Failure {
	var list []successor
	h.env.State.Update(func(tx *state.Tx) { list = h.successors(tx, owner, gone) })
	for _, s := range list {
		preflight := h.preflightOVN
		if s.step.Kind == drivers.KindLoadBalancer {
			preflight = h.preflightOctavia
		}
		if f := preflight(ctx, s); f != nil {
			return f
		}
	}
	if gone == drivers.KindOVNLoadBalancer && len(list) > 0 {
		return h.reserve(ctx, owner, list)
	}
	return nil
}

func (h *Handover) preflightOctavia(ctx context.Context, s successor) *backend.Failure {
	if err := h.octavia.Reachable(ctx); err != nil {
		return h.refusedByOctavia(s, fmt.Errorf("checking whether there is a load balancing service: %w", err))
	}
	unmet, err := h.octavia.Unmet(ctx, s.step.Identity.Owner, s.wanted)
	switch {
	case err != nil:
		return h.refusedByOctavia(s, err)
	case unmet != "":
		return &backend.Failure{
			Phase: state.Terminal, RequeueAfter: h.env.Timing.Refusal,
			Err: fmt.Errorf("OVN's load balancer of %s stays: %s", s.target, unmet),
		}
	}
	return nil
}

func (h *Handover) refusedByOctavia(s successor, err error) *backend.Failure {
	return h.outcome.Failure(outcome.Refusal{Step: s.step, Err: err})
}

// preflightOVN checks whether a load balancer in OVN would serve all that it is for.
func (h *Handover) preflightOVN(ctx context.Context, s successor) *backend.Failure {
	group, err := h.ovn.Get(ctx, drivers.KindOVNLoadBalancerGroup, s.group)
	if errors.Is(err, backend.ErrNotFound) {
		err = fmt.Errorf("its group %s is not in OVN's northbound database", s.group)
	}
	if err != nil {
		return failed(s.step, err)
	}
	for _, a := range s.attachments {
		if f := a.unmet(s, group); f != nil {
			return failed(s.step, f)
		}
	}
	return nil
}

// failed is the failure of a step that concerns OVN: one in the error's chain keeps its meaning, everything else is
// tried again, ever later.
func failed(step plan.Step, err error) *backend.Failure {
	f := backend.Failure{Phase: state.Failing, Backoff: true}
	var known *backend.Failure
	if errors.As(err, &known) {
		f = *known
	}
	f.Err = &backend.StepError{Step: step, Err: err}
	return &f
}

// reservedFor is how long room in the quota is kept for a load balancer that is to be created.
const reservedFor = 5 * time.Minute

// roomError says that the quota has no room for a load balancer.
type roomError struct{ left, reserved int }

func (r roomError) Error() string {
	return fmt.Sprintf("the quota has room for %d more load balancers, and %d others are just being made",
		max(r.left, 0), r.reserved)
}

// reserve sees to it that there is room in the quota for an owner's load balancers beside those for which room was
// reserved a moment ago.
func (h *Handover) reserve(ctx context.Context, owner plan.Owner, list []successor) *backend.Failure {
	others := map[plan.Owner]bool{}
	// Those that are created while the quota is read count twice rather than not at all.
	h.env.State.Update(func(tx *state.Tx) { h.reservations(tx, owner, others) })
	room, bounded, err := h.octavia.Room(ctx)
	if err != nil {
		return h.refusedByOctavia(list[0], fmt.Errorf("checking the quota: %w", err))
	}
	full := false
	h.env.State.Update(func(tx *state.Tx) {
		h.reservations(tx, owner, others)
		if full = bounded && room < len(others)+len(list); !full {
			h.reserved[owner] = tx.Now()
		}
	})
	if !full {
		return nil
	}
	f := h.outcome.Capacity(state.ByQuota(drivers.KindLoadBalancer), false)
	f.Err = &backend.StepError{Step: list[0].step, Err: roomError{room, len(others)}}
	return f
}

// reservations adds the other owners for which room in the quota is reserved, and drops the reservations that have come
// to their end.
func (h *Handover) reservations(tx *state.Tx, owner plan.Owner, others map[plan.Owner]bool) {
	for id, at := range h.reserved {
		switch {
		case len(tx.Cache.OwnedOf(id, drivers.KindLoadBalancer)) > 0 || tx.Now().Sub(at) > reservedFor:
			delete(h.reserved, id)
		case id != owner:
			others[id] = true
		}
	}
}
