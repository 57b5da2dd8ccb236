package plan

import (
	"fmt"
	"maps"
	"slices"

	"github.com/kuryr/raven/drivers"
)

// Two kinds of load balancers can serve a Service: Octavia's, and OVN's own. Both of one Service have one owner, and never serve it at the
// same time: the VIP would be there twice. What of the other kind goes by this plan goes first, and the one that is wanted instead waits for
// that. But nothing goes before that one could come at once: as long as it waits for something else, the old one serves, and what leads to it
// leads there.

// servesInstead returns the kind of load balancers that takes the place of another kind; "" for other kinds.
func servesInstead(kind drivers.Kind) drivers.Kind {
	switch kind { //nolint:exhaustive // the others serve nobody
	case drivers.KindLoadBalancer:
		return drivers.KindOVNLoadBalancer
	case drivers.KindOVNLoadBalancer:
		return drivers.KindLoadBalancer
	}
	return ""
}

// handovers returns a wait for each load balancer of the other kind that goes.
func (c *computer) handovers(m *match) []Wait {
	other := servesInstead(m.id.kind)
	if other == "" {
		return nil
	}
	var waits []Wait
	for _, key := range slices.Sorted(maps.Keys(c.going)) {
		o := c.going[key].observed
		if kindOf(o) != other {
			continue
		}
		wait := Wait{
			Resource: &Resource{Kind: other, ID: o.ID, Identity: o.Identity},
			Message:  fmt.Sprintf("waiting for %s %s to go, which serves until then", other, o.Identity),
		}
		if o.Identity.Policy == drivers.Retain {
			wait.Message = fmt.Sprintf("%s %s must be deleted by hand: its policy is retain, and two cannot serve at once", other, o.ID)
		}
		waits = append(waits, wait)
	}
	return waits
}

// unready returns what a load balancer waits for that is wanted instead of one that goes, but for what goes by this plan.
func (c *computer) unready(o *Observed) []Wait {
	other := servesInstead(kindOf(o))
	var waits []Wait
	for _, step := range c.plan.Steps {
		if step.Op != Create || step.Kind != other {
			continue
		}
		for _, wait := range step.Waits {
			if wait.Resource == nil || !c.leaves(wait.Resource.ID) {
				waits = append(waits, wait)
			}
		}
	}
	return waits
}

// replaces says whether a load balancer goes for one of the other kind.
func (c *computer) replaces(o *Observed) bool {
	other := servesInstead(kindOf(o))
	return other != "" && slices.ContainsFunc(c.matches, func(m *match) bool { return m.id.kind == other })
}

// leadUntil has a floating IP lead to a load balancer that goes for one of the other kind until it has gone.
func (c *computer) leadUntil(m *match) {
	port := canonical("port_id", m.observed.Attrs["port_id"], false)
	if m.id.kind != drivers.KindFloatingIP || port == "" {
		return
	}
	for _, key := range slices.Sorted(maps.Keys(c.going)) {
		o := c.going[key].observed
		if kindOf(o) != drivers.KindLoadBalancer || canonical("vip_port_id", o.Attrs["vip_port_id"], false) != port || !c.replaces(o) {
			continue
		}
		for i := range m.diffs {
			if name := m.diffs[i].name; name == "port_id" || name == "fixed_ip_address" {
				m.diffs[i].waits = append(m.diffs[i].waits, Wait{
					Resource: &Resource{Kind: o.Kind, ID: o.ID, Identity: o.Identity},
					Message:  fmt.Sprintf("waiting for load balancer %s to go, which serves until then", o.Identity),
				})
			}
		}
	}
}

// reachable returns the VIPs of an OVN load balancer whose addresses are known. The others wait by themselves: they hold up nobody.
func (c *computer) reachable(wanted any) any {
	list, ok := wanted.([]any)
	if !ok {
		return wanted
	}
	known := make([]any, 0, len(list))
	for _, vip := range list {
		value, waits := c.resolve(vip)
		if len(waits) == 0 {
			known = append(known, value)
		}
		for _, wait := range waits {
			if !slices.ContainsFunc(c.plan.Pending, func(p Wait) bool { return p.Message == wait.Message }) {
				c.plan.Pending = append(c.plan.Pending, wait)
			}
		}
	}
	return known
}
