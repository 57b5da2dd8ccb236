package reconcile

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/kuryr/raven/drivers"
	"github.com/kuryr/raven/service/openstack"
	"github.com/kuryr/raven/service/plan"
)

// create makes a resource. A port that names no addresses is placed: see place. Where its subnet is full and another one may
// have room, that is tried at once. The step has the attributes of the last try afterwards.
func (e *Engine) create(ctx context.Context, step *plan.Step) (plan.Observed, error) {
	attrs := step.Attrs
	for range plan.MaxExpand {
		var (
			placed  []plan.Observed
			pending plan.Observed
		)
		e.store.do(func() {
			placed = e.store.place(step.Kind, attrs)
			step.Attrs = withAddresses(attrs, placed)
			pending = e.store.cloud.begin(*step)
		})
		before := e.tick(*step)
		made, err := e.request(ctx, step)
		if err == nil {
			e.arrive(made) // before it ceases to be pending: what it uses must not look unused in between
		}
		e.ended(pending)
		elsewhere := false
		if openstack.Classify(err) == openstack.ClassSubnetFull && e.tick(*step) == before {
			e.store.do(func() { elsewhere = e.store.crowd(attrs, placed) })
		}
		if !elsewhere {
			return made, err
		}
	}
	return plan.Observed{}, fmt.Errorf("none of the %d subnets that were tried has room", plan.MaxExpand)
}

// request asks the cloud for a resource.
func (e *Engine) request(ctx context.Context, step *plan.Step) (plan.Observed, error) {
	if step.Kind == drivers.KindLoadBalancer {
		return e.replaceBalancer(ctx, step)
	}
	if step.Kind.Northbound() {
		return e.createNorthbound(ctx, *step)
	}
	return e.cloud.Create(ctx, step.Kind, step.Identity, step.Attrs)
}

// ended wakes who waited for a create to end.
func (e *Engine) ended(pending plan.Observed) {
	var woken []item
	e.store.do(func() {
		e.store.cloud.end(pending)
		woken = e.store.wake(waitGone(pending.ID))
	})
	e.wakeAll(woken)
}

// place chooses the subnets of which a new port takes its addresses, one of every IP version, where it names none itself and
// its network is ours. Neutron would choose among all subnets of the network, also of one that a create which was cut made
// late beside the one that is kept: such a twin could never be removed any more. Of an expandable subnet and those that were
// added to it, the first with room is chosen. The store is locked.
func (s *store) place(kind drivers.Kind, attrs map[string]any) []plan.Observed {
	network, _ := attrs["network_id"].(string)
	_, ours := s.cloud.entries[resourceKey{drivers.KindNetwork, network}]
	if _, named := attrs["fixed_ips"]; named || !ours || kind != drivers.KindPort {
		return nil
	}
	var chosen []plan.Observed
	for _, subnets := range s.choices(network) {
		chosen = append(chosen, slices.MinFunc(subnets, s.byRoom))
	}
	return chosen
}

// choices lists the subnets of a network that are wanted, IPv4 first, and of twins the one that is kept; the first of an
// expandable one before the others.
func (s *store) choices(network string) [][]plan.Observed {
	byVersion := map[int64][]plan.Observed{}
	for _, subnet := range s.cloud.subnetsOf(network) {
		version, _ := subnet.Attrs["ip_version"].(int64)
		if kept, ok := s.cloud.find(subnet.Identity, drivers.KindSubnet); ok && kept.ID == subnet.ID && s.wanted(subnet) {
			byVersion[version] = append(byVersion[version], subnet)
		}
	}
	var choices [][]plan.Observed
	for _, version := range slices.Sorted(maps.Keys(byVersion)) {
		subnets := byVersion[version]
		slices.SortFunc(subnets, func(a, b plan.Observed) int {
			return cmp.Or(cmp.Compare(s.expansion(a), s.expansion(b)), compareObserved(a, b))
		})
		choices = append(choices, subnets)
	}
	return choices
}

// wanted says whether a subnet's owner wants it to be there.
func (s *store) wanted(subnet plan.Observed) bool { return s.expansion(subnet) > 0 }

// expansion is the number of a subnet among those that stand for an expandable one, 1 for any other, and 0 for one that its
// owner does not want.
func (s *store) expansion(subnet plan.Observed) int {
	o := s.owners[subnet.Identity.Owner]
	if o == nil {
		return 0
	}
	for _, r := range o.set.Resources {
		if r.Spec.Kind() != drivers.KindSubnet {
			continue
		}
		if n := plan.ExpansionOf(subnet.Identity.Name, r.Name); n > 0 {
			return n
		}
	}
	for _, name := range o.set.Undecided {
		if isNamed(subnet, name) {
			return 1
		}
	}
	return 0
}

// byRoom orders the subnets of one choice: those with room as they come, then by what seems to be free, and those of which the
// cloud said that they are full last.
func (s *store) byRoom(a, b plan.Observed) int {
	crowded := func(o plan.Observed) int {
		if s.isCrowded(o.ID) {
			return 1
		}
		return 0
	}
	lacks := func(o plan.Observed) int { return max(0, 1-s.free(o)) }
	return cmp.Or(crowded(a)-crowded(b), lacks(a)-lacks(b))
}

// free is how many addresses of a subnet are free, as far as is known: the cloud takes one for itself, and others may have
// ports there.
func (s *store) free(subnet plan.Observed) int {
	return roomIn(subnet) - len(s.cloud.usedBy[subnet.ID]) - len(s.cloud.pending[subnet.ID]) - 1
}

// crowd notes that one of the subnets that a port was placed on is full: the one with the least room. It says whether the port
// may find room on another.
func (s *store) crowd(attrs map[string]any, placed []plan.Observed) bool {
	if len(placed) == 0 {
		return false
	}
	full := slices.MinFunc(placed, func(a, b plan.Observed) int { return s.free(a) - s.free(b) })
	s.crowded[full.ID] = len(s.cloud.usedBy[full.ID])
	for _, next := range s.place(drivers.KindPort, attrs) {
		if s.isCrowded(next.ID) {
			return false
		}
	}
	return true
}

// isCrowded says whether a subnet was full when the cloud was last asked, and nothing has left it since.
func (s *store) isCrowded(id string) bool {
	uses, known := s.crowded[id]
	if !known {
		return false
	}
	if len(s.cloud.usedBy[id]) < uses || s.cloud.entries[resourceKey{drivers.KindSubnet, id}] == nil {
		delete(s.crowded, id)
		return false
	}
	return true
}

// withAddresses returns the attributes of a port that takes an address of each subnet.
func withAddresses(attrs map[string]any, subnets []plan.Observed) map[string]any {
	if len(subnets) == 0 {
		return attrs
	}
	fixed := make([]any, 0, len(subnets))
	for _, subnet := range subnets {
		fixed = append(fixed, map[string]any{"subnet_id": subnet.ID})
	}
	placed := maps.Clone(attrs)
	placed["fixed_ips"] = fixed
	return placed
}
