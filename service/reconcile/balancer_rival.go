package reconcile

import (
	"context"
	"fmt"
	"net/netip"
	"slices"

	"github.com/kuryr/raven/drivers"
	"github.com/kuryr/raven/service/openstack"
	"github.com/kuryr/raven/service/openstack/octavia"
	"github.com/kuryr/raven/service/plan"
)

// location is an address of a load balancer, on a subnet, or on a network where no subnet is named.
type location struct{ network, subnet, address string }

// locations lists the addresses in what a load balancer is made of; some are left to the cloud.
func locations(attrs map[string]any) []location {
	list := []location{{textOf(attrs["vip_network_id"]), textOf(attrs["vip_subnet_id"]), textOf(attrs["vip_address"])}}
	for _, element := range listOf(attrs["additional_vips"]) {
		vip, _ := element.(map[string]any)
		list = append(list, location{"", textOf(vip["subnet_id"]), textOf(vip["ip_address"])})
	}
	return list
}

// has says whether a load balancer that is made so has an address.
func has(attrs map[string]any, l location) bool {
	return slices.ContainsFunc(locations(attrs), func(other location) bool {
		a, errA := netip.ParseAddr(l.address)
		b, errB := netip.ParseAddr(other.address)
		return errA == nil && errB == nil && a == b && (l.subnet == "" || other.subnet == "" || l.subnet == other.subnet)
	})
}

// occupied looks for who has the addresses of a load balancer that is to be made.
func (e *Engine) occupied(ctx context.Context, lb plan.Observed, wanted map[string]any, seen map[string]bool) (problem, error) {
	for _, l := range locations(wanted) {
		if l.address == "" || l.network+l.subnet == "" || has(lb.Attrs, l) {
			continue
		}
		if l.subnet != "" {
			subnet, err := e.cloud.Get(ctx, drivers.KindSubnet, l.subnet)
			switch {
			case openstack.Classify(err) == openstack.ClassNotFound:
				return problem{value: l.subnet, text: fmt.Sprintf("the cloud has no subnet %q", l.subnet)}, nil
			case err != nil:
				return problem{}, fmt.Errorf("looking whether the cloud has subnet %s: %w", l.subnet, err)
			case !holds(subnet, l.address):
				return problem{value: l.address, text: fmt.Sprintf("%s is no address of subnet %q", l.address, l.subnet)}, nil
			}
		}
		ports, err := e.cloud.PortsAt(ctx, l.network, l.subnet, l.address)
		if err != nil {
			return problem{}, fmt.Errorf("looking for who has the address %s: %w", l.address, err)
		}
		for _, port := range ports {
			if port.ID == textOf(wanted["vip_port_id"]) {
				continue // it is made of that one
			}
			if found, err := e.holder(ctx, port, l, seen); err != nil || found.text != "" {
				return found, err
			}
		}
	}
	return problem{}, nil
}

// holder says what stands against an address that a port has: nothing if the port goes with a load balancer of ours, for which the
// create waits then.
func (e *Engine) holder(ctx context.Context, port plan.Observed, l location, seen map[string]bool) (problem, error) {
	var other plan.Observed
	var found bool
	e.store.do(func() {
		for _, lb := range e.store.cloud.ofKind(drivers.KindLoadBalancer) {
			if textOf(lb.Attrs["vip_port_id"]) == port.ID {
				other, found = lb, true
			}
		}
	})
	if !found {
		return problem{value: l.address, text: fmt.Sprintf("port %s (%q) has the address %s", port.ID, textOf(port.Attrs["name"]), l.address)}, nil
	}
	leaves, err := e.vacates(ctx, other, l, seen)
	if leaves || err != nil {
		return problem{}, err
	}
	p := problem{value: l.address, rival: &rival{id: other.ID}}
	e.store.do(func() {
		_, p.rival.wish = e.store.wishFor(other.Identity)
		p.text = e.store.keeps(other, l)
	})
	return p, nil
}

// keeps says, for people, that a load balancer stays where it is. The store is locked.
func (s *store) keeps(lb plan.Observed, l location) string {
	return fmt.Sprintf("load balancer %s has the address %s, and keeps it", s.describe(lb.Identity), l.address)
}

// overtaken vetoes the wish for a load balancer that has gone if another one that was to leave an address for it stays after all. The
// store is locked.
func (s *store) overtaken(w *want, d *plan.Desired) bool {
	key := identityKey(d.Kind, d.Identity)
	gone, ok := s.swaps[key]
	if !ok {
		return false
	}
	wanted, wish := s.given(w, d)
	for _, l := range locations(wanted) {
		for _, lb := range s.cloud.ofKind(d.Kind) {
			if l.address == "" || has(gone.old, l) || !has(lb.Attrs, l) || !s.settledAt(lb, l) {
				continue
			}
			v := veto{wish: wish, old: gone.old, parts: gone.parts, until: s.balancerState.clock.Now().Add(terminalTry), rival: &rival{id: lb.ID}}
			_, v.rival.wish = s.wishFor(lb.Identity)
			v.err = fmt.Errorf("load balancer %s is made anew as it was: %s", s.describe(d.Identity), s.keeps(lb, l))
			s.vetoes[key] = v
			return true
		}
	}
	return false
}

// settledAt says whether a load balancer is wished where it is, or must not go elsewhere. The store is locked.
func (s *store) settledAt(lb plan.Observed, l location) bool {
	condition, _ := octavia.ConditionOf(&lb)
	wanted, wish := s.wishFor(lb.Identity)
	v, vetoed := s.vetoes[identityKey(lb.Kind, lb.Identity)]
	return condition != octavia.Leaving && wish != "" && (has(wanted, l) || vetoed && v.wish == wish)
}

// vacates says whether a load balancer of ours gives up an address: it is going, nobody wishes it any more, or it goes for another one
// elsewhere, and nothing stands against that one either. Two that change places wait for each other: those that are seen go.
func (e *Engine) vacates(ctx context.Context, lb plan.Observed, l location, seen map[string]bool) (bool, error) {
	if seen[lb.ID] {
		return true, nil
	}
	var wanted map[string]any
	var goes, decided bool
	e.store.do(func() { wanted, goes, decided = e.store.departing(lb) })
	if decided || has(wanted, l) {
		return decided && goes, nil
	}
	seen[lb.ID] = true
	defer delete(seen, lb.ID)
	problem, err := e.lacking(ctx, lb, wanted, seen)
	return err == nil && problem.text == "", err
}

// departing says whether a load balancer goes for good. Where that is not decided it goes if another one can be made, as it is wanted.
// The store is locked.
func (s *store) departing(lb plan.Observed) (wanted map[string]any, goes, decided bool) {
	condition, _ := octavia.ConditionOf(&lb)
	o := s.owners[lb.Identity.Owner]
	switch {
	case condition == octavia.Leaving:
		return nil, true, true
	case retained(lb):
		return nil, false, true
	case o == nil:
		return nil, s.unheardOf(lb.Identity.Owner) == "", true
	case o.gone:
		return nil, true, true
	case !o.hasSet || !s.mayPrune(o):
		return nil, false, true
	}
	w := s.desire(o.id, o.set)
	p := kinds.Compute(plan.Input{Desired: w.desired, Observed: s.decided(o.id, o.set), Resolve: s.resolve(w), Prune: true, Unsure: s.unsure(w)})
	if !slices.ContainsFunc(p.Steps, func(step plan.Step) bool {
		return step.Op == plan.Delete && step.Kind == lb.Kind && step.ID == lb.ID && step.Part == nil
	}) {
		return nil, false, true
	}
	for i := range w.desired {
		d := &w.desired[i]
		if d.Kind != lb.Kind || d.Identity.Key() != lb.Identity.Key() {
			continue
		}
		if kept, ok := s.cloud.find(d.Identity, d.Kind); ok && kept.ID == lb.ID {
			if octavia.HintsOf(d).Bound { // it is broken, and made again as it is
				return nil, false, true
			}
			wanted, _ = s.given(w, d)
			return wanted, false, false
		}
	}
	return nil, true, true
}
