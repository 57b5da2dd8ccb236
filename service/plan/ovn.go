package plan

import (
	"fmt"
	"maps"
	"slices"

	"github.com/kuryr/raven/drivers"
)

// Two kinds of load balancers can serve a Service: Octavia's, and OVN's own. Both of one Service have one owner, and never serve it at the
// same time: the VIP would be there twice. What of the other kind goes by this plan goes first, and the one that is wanted instead waits for
// that.

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
