package reconcile

import (
	"time"

	"github.com/kuryr/raven/drivers"
	"github.com/kuryr/raven/service/plan"
)

// A Service that changes from one kind of load balancers to the other is served by none for a moment: from the request that takes the old one
// away to the new one being there, which for OVN's is the committed transaction, and for Octavia's its being ready. That gap is measured.

// leaves notes that a load balancer was taken away. One that nobody takes the place of is forgotten with its owner.
func (e *Engine) leaves(step plan.Step) {
	if step.Kind != drivers.KindLoadBalancer && step.Kind != drivers.KindOVNLoadBalancer {
		return
	}
	e.store.do(func() {
		o := e.store.owners[step.Identity.Owner]
		if o == nil || o.gone || !wantsInstead(o.set, step.Kind) {
			return
		}
		if _, gap := e.store.handovers[o.id]; !gap {
			e.store.handovers[o.id] = e.clock.Now()
		}
	})
}

// wantsInstead says whether a Set has a load balancer of the kind that takes the place of another.
func wantsInstead(set drivers.Set, gone drivers.Kind) bool {
	for _, r := range set.Resources {
		kind := r.Spec.Kind()
		if kind != gone && (kind == drivers.KindLoadBalancer || kind == drivers.KindOVNLoadBalancer) {
			return true
		}
	}
	return false
}

// handedOver ends the gap of a Service with a load balancer that serves now.
func (e *Engine) handedOver(now plan.Observed) {
	var (
		gap  time.Duration
		text string
	)
	e.store.do(func() { gap, text = e.store.handedOver(now, e.clock.Now()) })
	if text != "" {
		e.metrics.handover(now.Kind, gap)
		e.log.Info("handed over", "object", text, "to", now.Kind, "gap", gap)
	}
}

// handedOver returns the gap, and the object, if there was one. The store is locked.
func (s *store) handedOver(lb plan.Observed, now time.Time) (time.Duration, string) {
	if lb.Kind != drivers.KindLoadBalancer && lb.Kind != drivers.KindOVNLoadBalancer {
		return 0, ""
	}
	began, ok := s.handovers[lb.Identity.Owner]
	o := s.owners[lb.Identity.Owner]
	if !ok || o == nil {
		return 0, ""
	}
	if lb.Kind == drivers.KindLoadBalancer {
		if condition, _ := plan.ConditionOf(&lb); condition != plan.Ready {
			return 0, ""
		}
	}
	delete(s.handovers, lb.Identity.Owner)
	o.gap = now.Sub(began)
	return o.gap, o.target.String()
}

// noteHandover ends the gap of an owner whose load balancer has become ready.
func (e *Engine) noteHandover(o *owner) {
	var ready []plan.Observed
	e.store.do(func() {
		if _, gap := e.store.handovers[o.id]; !gap {
			return
		}
		for key := range e.store.cloud.byOwner[o.id] {
			if key.kind == drivers.KindLoadBalancer {
				ready = append(ready, e.store.cloud.entries[key].Observed)
			}
		}
	})
	for _, lb := range ready {
		e.handedOver(lb)
	}
}
