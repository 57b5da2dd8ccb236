package plan

import (
	"maps"
	"net/netip"
	"slices"

	"github.com/kuryr/raven/drivers"
)

// clashes returns what goes by this plan and holds what a new resource needs, so that the cloud would refuse the new one: the
// same rule, an overlapping range, the same address.
func (c *computer) clashes(m *match, attrs map[string]any) []*Observed {
	var found []*Observed
	for _, key := range slices.Sorted(maps.Keys(c.going)) {
		o := c.going[key].observed
		if m.observed == nil || m.observed.ID != o.ID {
			if kindOf(o) == m.id.kind && c.leaves(o.ID) && c.clash(m.id.kind, attrs, o.Attrs) {
				found = append(found, o)
			}
		}
	}
	return found
}

func (c *computer) clash(kind drivers.Kind, want, have map[string]any) bool {
	same := func(name string) bool {
		text := canonical(name, want[name], false)
		return text != "" && text == canonical(name, have[name], false)
	}
	switch kind { //nolint:exhaustive // of the others there may be two alike
	case drivers.KindSecurityGroupRule:
		return !slices.ContainsFunc(c.schema(kind), func(a drivers.Attribute) bool {
			return canonical(a.Name, want[a.Name], false) != canonical(a.Name, have[a.Name], false)
		})
	case drivers.KindSubnet:
		a, errA := netip.ParsePrefix(canonical("cidr", want["cidr"], false))
		b, errB := netip.ParsePrefix(canonical("cidr", have["cidr"], false))
		return errA == nil && errB == nil && same("network_id") && a.Overlaps(b)
	case drivers.KindPort, drivers.KindRouterInterface:
		return same("network_id") && (same("mac_address") || sharesAddress(want["fixed_ips"], have["fixed_ips"]))
	case drivers.KindLoadBalancer:
		return sameVIP(want, have) != ""
	case drivers.KindFloatingIP:
		return same("floating_ip_address")
	}
	return false
}

func sharesAddress(want, have any) bool {
	wanted, _ := want.([]any)
	observed, _ := have.([]any)
	for _, w := range wanted {
		if part(w, "ip_address") != nil && slices.ContainsFunc(observed, func(o any) bool { return covers(w, o) }) {
			return true
		}
	}
	return false
}

// keepUnsure takes back the departures of what something that is not known yet may stand for, and of what uses it.
func (c *computer) keepUnsure() {
	if len(c.Unsure) == 0 {
		return
	}
	var queue []*Observed
	for _, gone := range c.going {
		if c.Unsure[kindOf(gone.observed)] && c.instead[gone.observed.ID] == "" {
			queue = append(queue, gone.observed)
		}
	}
	for len(queue) > 0 {
		o := queue[0]
		queue = queue[1:]
		if _, goes := c.going[o.ID]; !goes {
			continue
		}
		delete(c.going, o.ID)
		c.plan.Kept++
		for _, user := range c.dependants(o) {
			if gone, goes := c.going[user.ID]; goes && c.instead[user.ID] == "" {
				queue = append(queue, gone.observed)
			}
		}
	}
}
