// SPDX-License-Identifier: Apache-2.0

// Package handover hands a Service from the load balancers of one backend to those of another, so that it is never
// served by two and as short as possible by none: it wraps both backends. It must never let a load balancer be deleted
// for one that cannot come, as far as the preflight tells, nor one be created beside another that may still serve.
//
//	before the old one is deleted   the other backend is asked whether the new one can come; otherwise the old one serves
//	in between                      not served: from the request that deletes the old one until the new one is there,
//	                                which is OVN's when the transaction is committed, and Octavia's when it is ready;
//	                                that gap is measured
//	a backend that was never seen   the load balancers that it may have count as serving
package handover

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kuryr/raven/drivers"
	"github.com/kuryr/raven/service/backend"
	"github.com/kuryr/raven/service/openstack/octavia"
	"github.com/kuryr/raven/service/openstack/outcome"
	"github.com/kuryr/raven/service/plan"
	"github.com/kuryr/raven/service/state"
)

// Octavia is what is asked of Octavia's backend before one of OVN's load balancers is deleted for one of Octavia's.
type Octavia interface {
	// Desired returns the attributes of a load balancer that cannot be changed in place. What is not known is nil.
	Desired(tx *state.Tx, w *state.Want, d *plan.Desired) map[string]any
	// Unmet says, for people, which requirement of a load balancer with those attributes is unmet; "": none is known to
	// be.
	Unmet(ctx context.Context, owner plan.Owner, wanted map[string]any) (text string, err error)
	// Room says for how many more load balancers there is room in the quota, where that is bounded.
	Room(ctx context.Context) (room int, bounded bool, err error)
	// Reachable says why the service cannot be asked now.
	Reachable(ctx context.Context) error
}

// OVN is what is asked of OVN's backend before one of Octavia's load balancers is deleted for one of OVN's. An error
// that is a backend.Failure keeps its meaning.
type OVN interface {
	Get(ctx context.Context, kind drivers.Kind, id string) (plan.Observed, error)
}

// Networking is what is asked of Neutron's while Octavia cannot be asked.
type Networking interface {
	// PortsAt lists the ports with an address on a subnet, or on a network where no subnet is named, or anywhere.
	PortsAt(ctx context.Context, networkID, subnetID, address string) ([]plan.Observed, error)
}

// Handover hands Services over between two backends. What it remembers is guarded by the state's lock; nothing of it is
// needed after a restart.
type Handover struct {
	env        backend.Env
	octavia    Octavia
	ovn        OVN
	networking Networking
	outcome    outcome.Handler
	gaps       *prometheus.HistogramVec
	// octaviaName and ovnName name the backends for people.
	octaviaName, ovnName string

	// unserved are when those lost their load balancer that are to get one of the other kind.
	unserved map[plan.Owner]time.Time
	// reserved are those for whose load balancer of Octavia's room in the quota was seen, and when.
	reserved map[plan.Owner]time.Time
	// stale are those that are served by a load balancer whose endpoints are not followed, and since when that is
	// known.
	stale map[plan.Owner]time.Time
	// withheld are those whose load balancer in OVN waits for Octavia to be seen.
	withheld map[plan.Owner]bool
}

// New returns a handover under which nothing is: see Wrap.
func New(env backend.Env, balancing Octavia, rows OVN, networking Networking) *Handover {
	return &Handover{
		env: env, octavia: balancing, ovn: rows, networking: networking, outcome: outcome.Handler{Env: env},
		gaps:     newGaps(),
		unserved: map[plan.Owner]time.Time{}, reserved: map[plan.Owner]time.Time{}, stale: map[plan.Owner]time.Time{},
		withheld: map[plan.Owner]bool{},
	}
}

// Wrap returns the registrations of the two backends under this handover. That of Octavia must be registered before
// that of OVN. It must be called once.
func (h *Handover) Wrap(balancers, rows *backend.Registration) (wrappedBalancers, wrappedRows *backend.Registration) {
	h.octaviaName, h.ovnName = balancers.Name, rows.Name
	first, second := *balancers, *rows
	first.Backend, second.Backend = &handed{balancers.Backend, h}, &handed{rows.Backend, h}
	first.Review = func(tx *state.Tx, o *state.Object, p *plan.Plan) backend.Review {
		h.noteStale(tx, o)
		h.noteReady(tx, o)
		r := reviewOf(balancers, tx, o, p)
		h.keepServing(tx, p)
		return r
	}
	second.Review = func(tx *state.Tx, o *state.Object, p *plan.Plan) backend.Review {
		r := reviewOf(rows, tx, o, p)
		h.withholdUnseen(tx, o, p, &r)
		return r
	}
	first.Remarks = func(tx *state.Tx, o *state.Object) []string {
		var texts []string
		if balancers.Remarks != nil {
			texts = balancers.Remarks(tx, o)
		}
		return append(texts, h.remarks(tx, o)...)
	}
	first.Listed = func(tx *state.Tx, err error) {
		if balancers.Listed != nil {
			balancers.Listed(tx, err)
		}
		if err == nil {
			clear(h.withheld)
		}
	}
	first.Hooks.Forgotten = func(tx *state.Tx, id plan.Owner) {
		if balancers.Hooks.Forgotten != nil {
			balancers.Hooks.Forgotten(tx, id)
		}
		h.forget(id)
	}
	first.Collectors = append(first.Collectors[:len(first.Collectors):len(first.Collectors)], h.gaps, h.waiting())
	return &first, &second
}

func reviewOf(r *backend.Registration, tx *state.Tx, o *state.Object, p *plan.Plan) backend.Review {
	if r.Review == nil {
		return backend.Review{}
	}
	return r.Review(tx, o, p)
}

// handed is a backend whose load balancers may be handed over.
type handed struct {
	backend.Backend
	h *Handover
}

// Apply implements backend.Backend: a preflight comes before the step, and the account after it.
func (b *handed) Apply(ctx context.Context, owner plan.Owner, step *plan.Step) error {
	if f := b.h.preflight(ctx, owner, *step); f != nil {
		f.NotTried = true
		return f
	}
	if err := b.Backend.Apply(ctx, owner, step); err != nil {
		return err
	}
	b.h.applied(*step)
	return nil
}

// preflight says why a step on a load balancer must not be carried out now; nil: it may.
func (h *Handover) preflight(ctx context.Context, owner plan.Owner, step plan.Step) *backend.Failure {
	switch {
	case step.Op == plan.Delete && step.Part == nil && balances(step.Kind):
		return h.preflightSuccessors(ctx, owner, step.Kind)
	case step.Op == plan.Create && step.Kind == drivers.KindOVNLoadBalancer:
		return h.preflightUnseen(ctx, owner, step)
	}
	return nil
}

// balances says whether resources of a kind serve Services.
func balances(kind drivers.Kind) bool {
	return kind == drivers.KindLoadBalancer || kind == drivers.KindOVNLoadBalancer
}

// wantsInstead says whether a Set has a load balancer of the kind that takes the place of another.
func wantsInstead(set drivers.Set, gone drivers.Kind) bool {
	for _, r := range set.Resources {
		if kind := r.Spec.Kind(); kind != gone && balances(kind) {
			return true
		}
	}
	return false
}

// applied keeps the account of gaps: one begins when a load balancer was asked to go for one of the other kind, and
// ends when OVN has the other one. When Octavia's is ready, see noteReady. One that is not replaced is no
// handover.
func (h *Handover) applied(step plan.Step) {
	id := step.Identity.Owner
	switch {
	case step.Op == plan.Delete && step.Part == nil && balances(step.Kind):
		h.env.State.Update(func(tx *state.Tx) {
			if o := tx.Object(id); o == nil || o.Gone || !wantsInstead(o.Set, step.Kind) {
				return
			}
			if _, begun := h.unserved[id]; !begun {
				h.unserved[id] = tx.Now()
			}
		})
	case step.Op == plan.Create && step.Kind == drivers.KindOVNLoadBalancer:
		h.env.State.Update(func(tx *state.Tx) {
			if o := tx.Object(id); o != nil {
				h.served(tx, o, step.Kind)
			}
		})
	}
}

// noteReady ends the gap of an object whose load balancer of Octavia's has become ready.
func (h *Handover) noteReady(tx *state.Tx, o *state.Object) {
	if _, gap := h.unserved[o.ID]; !gap {
		return
	}
	for _, lb := range tx.Cache.OwnedOf(o.ID, drivers.KindLoadBalancer) {
		if condition, _ := octavia.ConditionOf(&lb); condition == octavia.Ready {
			h.served(tx, o, lb.Kind)
		}
	}
}

// served ends the gap of an object, if there is one.
func (h *Handover) served(tx *state.Tx, o *state.Object, by drivers.Kind) {
	began, gap := h.unserved[o.ID]
	if !gap {
		return
	}
	delete(h.unserved, o.ID)
	o.Gap = tx.Now().Sub(began)
	h.gaps.WithLabelValues(string(by)).Observe(o.Gap.Seconds())
	object, lasted := o.Target.String(), o.Gap
	tx.After(func() { h.env.Log.Info("handed over", "object", object, "to", by, "gap", lasted) })
}

// forget drops what was noted of an owner.
func (h *Handover) forget(id plan.Owner) {
	delete(h.unserved, id)
	delete(h.reserved, id)
	delete(h.stale, id)
	delete(h.withheld, id)
}
