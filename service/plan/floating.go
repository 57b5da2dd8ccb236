package plan

import (
	"fmt"
	"slices"

	"github.com/kuryr/raven/drivers"
)

// A floating IP that is given up is lost: others may be given its address. So none goes before the one that is wanted instead is there:
//
//	another network, another address        made beside the old one, which goes when the new one is there
//	the address of one that goes            that one is it, by another name
//	the port of one that goes               made without a port, which it gets when the other one is gone

// choose picks, of twins, one that fits what is desired: floating IPs are twins while one takes the place of another.
func (c *computer) choose(d *Desired, twins []*Observed) *Observed {
	if d.Kind != drivers.KindFloatingIP || len(twins) < 2 {
		return c.keep(twins)
	}
	fits := func(o *Observed) bool {
		return !slices.ContainsFunc(c.compare(d, o), func(d difference) bool { return d.immutable && len(d.waits) == 0 })
	}
	slices.SortStableFunc(twins, func(a, b *Observed) int {
		switch fitting := fits(a); {
		case fitting == fits(b):
			return 0
		case fitting:
			return -1
		}
		return 1
	})
	if n := slices.IndexFunc(twins, func(o *Observed) bool { return !fits(o) }); n > 0 {
		kept := c.keep(twins[:n])
		for _, o := range twins[n:] {
			c.instead[o.ID] = kept.ID
			c.going[o.ID] = departure{observed: o, reason: fmt.Sprintf("%s has taken its place", kept.ID)}
		}
		return kept
	}
	return c.keep(twins)
}

// rename gives a wanted floating IP the one that goes and has its address.
func (c *computer) rename(m *match) {
	address := canonical("floating_ip_address", m.desired.Attrs["floating_ip_address"], false)
	if m.id.kind != drivers.KindFloatingIP || m.observed != nil || address == "" {
		return
	}
	for id, gone := range c.going {
		o := gone.observed
		if kindOf(o) != m.id.kind || canonical("floating_ip_address", o.Attrs["floating_ip_address"], false) != address ||
			!c.onNetwork(m, o) {
			continue
		}
		delete(c.going, id)
		m.observed = o
		m.desired.Identity.Policy = effective(o.Identity.Policy) // one thing after the other
		return
	}
}

// onNetwork says whether a floating IP is on the network that another one should be on.
func (c *computer) onNetwork(m *match, o *Observed) bool {
	network, waits := c.resolve(m.desired.Attrs["floating_network_id"])
	return len(waits) == 0 && canonical("id", network, false) == canonical("id", o.Attrs["floating_network_id"], false)
}

// port returns the port that a floating IP should lead to; "" if that is not there.
func (c *computer) port(m *match) string {
	value := m.desired.Attrs["port_id"]
	if ref, ok := value.(drivers.Ref); ok && c.Resolve != nil {
		value, _ = c.Resolve(ref)
	}
	return canonical("port_id", value, false)
}

// leading returns another floating IP that leads to the port which one should lead to: Neutron lets one of a network do so.
func (c *computer) leading(m *match, among func(*Observed) bool) *Observed {
	port := c.port(m)
	if m.id.kind != drivers.KindFloatingIP || port == "" {
		return nil
	}
	for i := range c.Observed {
		o := &c.Observed[i]
		if kindOf(o) == m.id.kind && canonical("port_id", o.Attrs["port_id"], false) == port && c.onNetwork(m, o) && among(o) {
			return o
		}
	}
	return nil
}

// unlead takes the port out of what a floating IP is created with, as long as another one leads there.
func (c *computer) unlead(m *match, attrs map[string]any) {
	if c.leading(m, func(*Observed) bool { return true }) != nil {
		delete(attrs, "port_id")
		delete(attrs, "fixed_ip_address")
	}
}

// follow has a floating IP wait for its port until the one that goes has left it.
func (c *computer) follow(m *match) {
	o := c.leading(m, func(o *Observed) bool { _, goes := c.going[o.ID]; return goes && o.ID != m.observed.ID })
	if o == nil {
		return
	}
	for i := range m.diffs {
		if name := m.diffs[i].name; name == "port_id" || name == "fixed_ip_address" {
			m.diffs[i].waits = append(m.diffs[i].waits, Wait{
				Resource: &Resource{Kind: o.Kind, ID: o.ID, Identity: o.Identity},
				Message:  fmt.Sprintf("waiting for floating IP %s to leave the port", o.Identity),
			})
		}
	}
}

// successors returns a wait for each floating IP that should lead where one does that goes, and is not there yet.
func (c *computer) successors(o *Observed) []Wait {
	port := canonical("port_id", o.Attrs["port_id"], false)
	if kindOf(o) != drivers.KindFloatingIP || port == "" {
		return nil
	}
	var waits []Wait
	for _, m := range c.matches {
		if m.id.kind == drivers.KindFloatingIP && m.observed == nil && c.port(m) == port {
			waits = append(waits, Wait{Message: fmt.Sprintf("waiting for floating IP %q, which takes its place", m.desired.Identity.Name)})
		}
	}
	return waits
}
