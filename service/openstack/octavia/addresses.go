// SPDX-License-Identifier: Apache-2.0

package octavia

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"github.com/kuryr/raven/drivers"
	"github.com/kuryr/raven/service/openstack"
	"github.com/kuryr/raven/service/plan"
	"github.com/kuryr/raven/service/state"
)

// location is an address of a load balancer, on a subnet, or on a network where no subnet is named.
type location struct{ network, subnet, address string }

// locations lists the addresses in what a load balancer is made of; some are left to the cloud.
func locations(attrs map[string]any) []location {
	list := []location{{asText(attrs["vip_network_id"]), asText(attrs["vip_subnet_id"]), asText(attrs["vip_address"])}}
	for _, element := range asList(attrs["additional_vips"]) {
		additional := structure(element)
		list = append(list, location{"", asText(additional["subnet_id"]), asText(additional["ip_address"])})
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

// holds says whether an address is one of a subnet.
func holds(subnet plan.Observed, address any) bool {
	prefix, errPrefix := netip.ParsePrefix(asText(subnet.Attrs["cidr"]))
	addr, errAddr := netip.ParseAddr(asText(address))
	return errPrefix == nil && errAddr == nil && prefix.Contains(addr)
}

// placeMembers gives members whose subnet is one of several that stand for an expandable one the subnet that holds
// their address.
func placeMembers(tx *state.Tx, w *state.Want, d *plan.Desired) {
	pools := slices.Clone(asList(d.Attrs["pools"]))
	for i, element := range pools {
		pool := structure(element)
		members := asList(pool["members"])
		if len(members) == 0 {
			continue
		}
		placed := make([]any, len(members))
		for j, member := range members {
			placed[j] = placeMember(tx, w, member)
		}
		pool = maps.Clone(pool)
		pool["members"] = placed
		pools[i] = pool
	}
	if pools != nil {
		d.Attrs["pools"] = pools
	}
}

func placeMember(tx *state.Tx, w *state.Want, element any) any {
	member := structure(element)
	ref, ok := member["subnet_id"].(drivers.Ref)
	if !ok {
		return element
	}
	subnet, ok := tx.Referred(w, ref)
	if !ok || subnet.Kind != drivers.KindSubnet || holds(subnet, member["address"]) {
		return element
	}
	network, _ := subnet.Attrs["network_id"].(string)
	for _, other := range tx.Cache.Users(network, drivers.KindSubnet) {
		if other.Identity.Owner == subnet.Identity.Owner && holds(other, member["address"]) {
			member = maps.Clone(member)
			member["subnet_id"] = other.ID
			return member
		}
	}
	return element
}

// addressConflict finds the holder of the addresses of a load balancer that is to be made.
func (b *Backend) addressConflict(
	ctx context.Context, lb plan.Observed, wanted map[string]any, seen map[string]bool,
) (requirement, error) {
	for _, l := range locations(wanted) {
		if l.address == "" || l.network+l.subnet == "" || has(lb.Attrs, l) {
			continue
		}
		if l.subnet != "" {
			subnet, err := b.networking.Get(ctx, drivers.KindSubnet, l.subnet)
			switch {
			case openstack.Classify(err) == openstack.ClassNotFound:
				return requirement{value: l.subnet, text: fmt.Sprintf("the cloud has no subnet %q", l.subnet)}, nil
			case err != nil:
				return requirement{}, fmt.Errorf("checking whether the cloud has subnet %s: %w", l.subnet, err)
			case !holds(subnet, l.address):
				return requirement{value: l.address, text: fmt.Sprintf("%s is no address of subnet %q", l.address, l.subnet)}, nil
			}
		}
		ports, err := b.networking.PortsAt(ctx, l.network, l.subnet, l.address)
		if err != nil {
			return requirement{}, fmt.Errorf("finding the holder of address %s: %w", l.address, err)
		}
		for _, port := range ports {
			if port.ID == asText(wanted["vip_port_id"]) {
				continue // it is made of that one
			}
			if found, err := b.holderOf(ctx, port, l, seen); err != nil || found.text != "" {
				return found, err
			}
		}
	}
	return requirement{}, nil
}

// holderOf says what stands against an address that a port has: nothing if the port goes with a load balancer of this
// cluster, for which the create waits then.
func (b *Backend) holderOf(
	ctx context.Context, port plan.Observed, l location, seen map[string]bool,
) (requirement, error) {
	var other plan.Observed
	var found bool
	b.env.State.View(func(tx *state.Tx) {
		for _, lb := range tx.Cache.OfKind(drivers.KindLoadBalancer) {
			if asText(lb.Attrs["vip_port_id"]) == port.ID {
				other, found = lb, true
			}
		}
	})
	if !found {
		text := fmt.Sprintf("port %s (%q) has the address %s", port.ID, asText(port.Attrs["name"]), l.address)
		return requirement{value: l.address, text: text}, nil
	}
	leaves, err := b.vacates(ctx, other, l, seen)
	if leaves || err != nil {
		return requirement{}, err
	}
	r := requirement{value: l.address, holder: &holder{id: other.ID}}
	b.env.State.Update(func(tx *state.Tx) {
		_, r.holder.desired = desiredOf(tx, other.Identity)
		r.text = keeps(tx, other, l)
	})
	return r, nil
}

// keeps says, for people, that a load balancer stays where it is.
func keeps(tx *state.Tx, lb plan.Observed, l location) string {
	return fmt.Sprintf("load balancer %s has the address %s, and keeps it", tx.Describe(lb.Identity), l.address)
}

// overtaken blocks the replacement of a load balancer that has gone if another one that was to leave an address for it
// stays after all.
func (b *Backend) overtaken(tx *state.Tx, w *state.Want, d *plan.Desired) bool {
	key := state.KeyOf(d.Kind, d.Identity)
	old, ok := b.replacements[key]
	if !ok {
		return false
	}
	wanted, desired := desiredFields(tx, w, d)
	for _, l := range locations(wanted) {
		for _, lb := range tx.Cache.OfKind(d.Kind) {
			if l.address == "" || has(old.current, l) || !has(lb.Attrs, l) || !b.settledAt(tx, lb, l) {
				continue
			}
			blocking := block{
				desired: desired, current: old.current, parts: old.parts,
				until: tx.Now().Add(b.env.Timing.Refusal), holder: &holder{id: lb.ID},
				err: fmt.Errorf("load balancer %s is made anew as it was: %s", tx.Describe(d.Identity), keeps(tx, lb, l)),
			}
			_, blocking.holder.desired = desiredOf(tx, lb.Identity)
			b.blocks[key] = blocking
			return true
		}
	}
	return false
}

// settledAt says whether a load balancer is desired where it is, or must not go elsewhere.
func (b *Backend) settledAt(tx *state.Tx, lb plan.Observed, l location) bool {
	condition, _ := ConditionOf(&lb)
	wanted, desired := desiredOf(tx, lb.Identity)
	blocking, blocked := b.blocks[state.KeyOf(lb.Kind, lb.Identity)]
	return condition != Leaving && desired != "" && (has(wanted, l) || blocked && blocking.desired == desired)
}

// vacates says whether a load balancer of this cluster gives up an address: it is going, it is not desired any more, or
// it goes for another one elsewhere, and nothing stands against that one either. Two that change places wait for each
// other: those that are seen go.
func (b *Backend) vacates(ctx context.Context, lb plan.Observed, l location, seen map[string]bool) (bool, error) {
	if seen[lb.ID] {
		return true, nil
	}
	var wanted map[string]any
	var goes, decided bool
	b.env.State.Update(func(tx *state.Tx) { wanted, goes, decided = departing(tx, lb) })
	if decided || has(wanted, l) {
		return decided && goes, nil
	}
	seen[lb.ID] = true
	defer delete(seen, lb.ID)
	unmet, err := b.unmet(ctx, lb, wanted, seen)
	return err == nil && unmet.text == "", err
}

// departing says whether a load balancer goes for good. Where that is not decided it goes if another one can be made,
// as it is wanted.
func departing(tx *state.Tx, lb plan.Observed) (wanted map[string]any, goes, decided bool) {
	condition, _ := ConditionOf(&lb)
	o := tx.Object(lb.Identity.Owner)
	switch {
	case condition == Leaving:
		return nil, true, true
	case state.Retained(lb):
		return nil, false, true
	case o == nil:
		return nil, tx.UnknownOwner(lb.Identity.Owner) == "", true
	case o.Gone:
		return nil, true, true
	case !o.HasSet || !tx.MayPrune(o):
		return nil, false, true
	}
	w := tx.Desire(o.ID, o.Set)
	p := tx.Plan(w, tx.Decided(o.ID, o.Set), true)
	if !slices.ContainsFunc(p.Steps, func(step plan.Step) bool {
		return step.Op == plan.Delete && step.Kind == lb.Kind && step.ID == lb.ID && step.Part == nil
	}) {
		return nil, false, true
	}
	for i := range w.Desired {
		d := &w.Desired[i]
		if d.Kind != lb.Kind || d.Identity.Key() != lb.Identity.Key() {
			continue
		}
		if kept, ok := tx.Cache.Find(d.Identity, d.Kind); ok && kept.ID == lb.ID {
			if HintsOf(d).Pinned { // it is broken, and made again as it is
				return nil, false, true
			}
			wanted, _ = desiredFields(tx, w, d)
			return wanted, false, false
		}
	}
	return nil, true, true
}
