package reconcile

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/kuryr/raven/drivers"
	"github.com/kuryr/raven/service/openstack"
	"github.com/kuryr/raven/service/openstack/octavia"
	"github.com/kuryr/raven/service/plan"
)

// A Service that changes from one kind of load balancers to the other is served by none for a moment: from the request that takes the old one
// away to the new one being there, which for OVN's is the committed transaction, and for Octavia's its being ready. That gap is measured.

// heir is a load balancer that is to serve instead of one of the other kind, and is not there yet.
type heir struct {
	step   plan.Step
	wanted map[string]any // of Octavia's, what it would be made of
	group  string         // of OVN's, the group that it would be in
	berths []berth        // of OVN's, where it has to be
}

// heirs returns the load balancers that an owner is to have instead of those of a kind. The store is locked.
func (s *store) heirs(o *owner, gone drivers.Kind) []heir {
	if o.gone || !wantsInstead(o.set, gone) {
		return nil
	}
	w := s.desire(o.id, o.set)
	var list []heir
	for i := range w.desired {
		d := &w.desired[i]
		if _, there := s.cloud.find(d.Identity, d.Kind); there || d.Kind == gone {
			continue
		}
		h := heir{step: plan.Step{Op: plan.Create, Kind: d.Kind, Identity: d.Identity, Attrs: map[string]any{"name": d.Attrs["name"]}}}
		switch d.Kind { // the others serve nobody
		case drivers.KindLoadBalancer:
			h.wanted, _ = s.given(w, d)
		case drivers.KindOVNLoadBalancer:
			h.group = textOf(s.known(w, d.Attrs["group_id"]))
			h.berths = s.berths(w, o.target.namespace, d.Attrs)
		default:
			continue
		}
		list = append(list, h)
	}
	return list
}

// vetHandover looks, before a load balancer goes for one of the other kind, whether that one can come, as far as looking tells: the database
// answers and has its group, which the namespace's network has joined, and its router if there are addresses outside; Octavia answers, has what it would be made of, and a place for it in the quota. Otherwise the old one serves on.
func (e *Engine) vetHandover(ctx context.Context, o *owner, gone drivers.Kind) error {
	if gone != drivers.KindLoadBalancer && gone != drivers.KindOVNLoadBalancer {
		return nil
	}
	var list []heir
	e.store.do(func() { list = e.store.heirs(o, gone) })
	for _, h := range list {
		look := e.vetHeirInOVN
		if h.step.Kind == drivers.KindLoadBalancer {
			look = e.vetHeirInOctavia
		}
		if err := look(ctx, o, h); err != nil {
			return err
		}
	}
	if gone == drivers.KindOVNLoadBalancer && len(list) > 0 {
		return e.promise(ctx, o, list)
	}
	return nil
}

func (e *Engine) vetHeirInOctavia(ctx context.Context, o *owner, h heir) error {
	if _, err := e.cloud.LoadBalancerProviders(ctx); err != nil && openstack.Classify(err) != openstack.ClassForbidden {
		return stepError{step: h.step, err: fmt.Errorf("looking whether there is a load balancing service: %w", err)}
	}
	problem, err := e.lacking(ctx, plan.Observed{}, h.wanted, map[string]bool{})
	switch {
	case err != nil:
		return stepError{step: h.step, err: err}
	case problem.text != "":
		return vetoError{fmt.Errorf("OVN's load balancer of %s stays: %s%s", o.target, e.origin(o, problem.value), problem.text), terminalTry}
	}
	return nil
}

// unseenError says that one of Octavia's load balancers, of which it cannot be asked, may still serve.
type unseenError struct {
	port    plan.Observed
	address string
	away    error
}

func (u unseenError) Error() string {
	return fmt.Sprintf("port %s (%q) has the address %s, so that a load balancer of Octavia's may still serve it, with the endpoints that it had; it cannot be asked: %v",
		u.port.ID, textOf(u.port.Attrs["name"]), u.address, u.away)
}

// waitBalancing is the load balancing service, for those who found it away.
func waitBalancing() waitKey { return waitKey{what: "balancing"} }

// vetUnseen looks, before a load balancer is made in OVN, whether one of Octavia's still serves its addresses that nobody has seen since this
// process began, for Octavia could not be read: that one has a port there, which Neutron shows. Where there is none, Octavia is not waited for.
func (e *Engine) vetUnseen(ctx context.Context, o *owner, step plan.Step) error {
	var away error
	e.store.do(func() { away = e.store.octaviaUnseen() })
	var found, err error
	if away != nil {
		found, err = e.unseen(ctx, step, away)
	}
	e.store.do(func() {
		if delete(e.store.northbound.withheld, o.id); found != nil {
			e.store.northbound.withheld[o.id] = true
		}
	})
	switch {
	case err != nil:
		return stepError{step: step, err: err}
	case found != nil:
		return stepError{step: step, err: found}
	}
	return nil
}

// unseen returns an unseenError if one of Octavia's load balancers may serve an address of a new one.
func (e *Engine) unseen(ctx context.Context, step plan.Step, away error) (found, err error) {
	seen := map[string]bool{}
	for _, element := range listOf(step.Attrs["vips"]) {
		vip, _ := element.(map[string]any)
		address := textOf(vip["address"])
		if address == "" || seen[address] {
			continue
		}
		seen[address] = true
		ports, err := e.cloud.PortsAt(ctx, "", "", address)
		if err != nil {
			return nil, fmt.Errorf("looking whether Octavia serves %s: %w", address, err)
		}
		for _, port := range ports {
			if e.mayBeVIP(port) {
				return unseenError{port, address, away}, nil
			}
		}
	}
	return nil, nil
}

// mayBeVIP says whether a port may be that of a load balancer of this cluster's: it is on a network of ours, or one that an operator named, and not
// Neutron's own, as that of a floating IP.
func (e *Engine) mayBeVIP(port plan.Observed) bool {
	network := textOf(port.Attrs["network_id"])
	if strings.HasPrefix(textOf(port.Attrs["device_owner"]), "network:") {
		return false
	}
	e.store.mu.Lock()
	defer e.store.mu.Unlock()
	if _, ours := e.store.cloud.get(drivers.KindNetwork, network); ours {
		return true
	}
	for _, named := range e.store.lookups {
		if named.ID == network || textOf(named.Attrs["network_id"]) == network {
			return true
		}
	}
	return false
}

// Withheld says, for people, that Services are not served by OVN for Octavia may still serve them, which cannot be asked; "" if there are none.
func (e *Engine) Withheld() string {
	e.store.mu.Lock()
	defer e.store.mu.Unlock()
	if n := len(e.store.northbound.withheld); n > 0 {
		return fmt.Sprintf("%d Services wait for the load balancing service, whose load balancers may still serve them, with the endpoints that they had: %v", n, e.store.balancerState.away)
	}
	return ""
}

// roomError says that the quota has no room for a load balancer.
type roomError struct{ left, promised int }

func (r roomError) Error() string {
	return fmt.Sprintf("the quota has room for %d more load balancers, and %d others are just being made", max(r.left, 0), r.promised)
}

// promise sees to it that there is room in the quota for an owner's load balancers beside those that others were promised a moment ago.
func (e *Engine) promise(ctx context.Context, o *owner, list []heir) error {
	others := map[plan.Owner]bool{}
	count := func() {
		now := e.clock.Now()
		for id, at := range e.store.promised {
			made := false
			for key := range e.store.cloud.byOwner[id] {
				made = made || key.kind == drivers.KindLoadBalancer
			}
			switch {
			case made || now.Sub(at) > placeFor:
				delete(e.store.promised, id)
			case id != o.id:
				others[id] = true
			}
		}
	}
	e.store.do(count) // those that are made while the quota is read count twice rather than not at all
	room, bounded, err := e.cloud.BalancerRoom(ctx)
	if err != nil {
		return stepError{step: list[0].step, err: fmt.Errorf("looking for room in the quota: %w", err)}
	}
	full := false
	e.store.do(func() {
		count()
		if full = bounded && room < len(others)+len(list); !full {
			e.store.promised[o.id] = e.clock.Now()
		}
	})
	if full {
		return stepError{step: list[0].step, err: roomError{room, len(others)}}
	}
	return nil
}

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
		if condition, _ := octavia.ConditionOf(&lb); condition != octavia.Ready {
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
