// SPDX-License-Identifier: Apache-2.0

package neutron

import (
	"fmt"
	"slices"

	"github.com/kuryr/raven/drivers"
	"github.com/kuryr/raven/service/plan"
)

// A floating IP that is given up is lost: others may be given its address. So none goes before the one that is wanted
// instead is there:
//
//	another network, another address        made beside the old one, which goes when the new one is there
//	the address of one that goes            that one is it, by another name
//	the port of one that goes               made without a port, which it gets when the other one is gone

// chooseFitting picks, of twins, one that fits what is desired: floating IPs are twins while one takes the place of
// another.
func chooseFitting(c *plan.Computation, d *plan.Desired, twins []*plan.Observed) *plan.Observed {
	fits := func(o *plan.Observed) bool {
		return !slices.ContainsFunc(c.Compare(d, o), func(d plan.Difference) bool {
			return d.Immutable && len(d.Waits) == 0
		})
	}
	slices.SortStableFunc(twins, func(a, b *plan.Observed) int {
		switch fitting := fits(a); {
		case fitting == fits(b):
			return 0
		case fitting:
			return -1
		}
		return 1
	})
	if n := slices.IndexFunc(twins, func(o *plan.Observed) bool { return !fits(o) }); n > 0 {
		kept := c.Keep(twins[:n])
		for _, o := range twins[n:] {
			c.GiveWay(o, kept, fmt.Sprintf("%s has taken its place", kept.ID))
		}
		return kept
	}
	return c.Keep(twins)
}

// adoptAddress gives a wanted floating IP the one that goes and has its address.
func adoptAddress(c *plan.Computation, m *plan.Match) {
	address := canonical("floating_ip_address", m.Desired.Attrs["floating_ip_address"])
	if address == "" {
		return
	}
	for _, o := range c.Departing() {
		if c.KindOf(o) != m.Kind || canonical("floating_ip_address", o.Attrs["floating_ip_address"]) != address ||
			!onNetwork(c, m, o) {
			continue
		}
		c.Stay(o.ID)
		m.Observed = o
		m.Desired.Identity.Policy = o.Identity.Policy // one thing after the other
		return
	}
}

// onNetwork says whether a floating IP is on the network that another one should be on.
func onNetwork(c *plan.Computation, m *plan.Match, o *plan.Observed) bool {
	network, waits := c.Value(m.Desired.Attrs["floating_network_id"])
	return len(waits) == 0 && canonical("id", network) == canonical("id", o.Attrs["floating_network_id"])
}

// targetPort returns the port that a floating IP should lead to; "" if that is not there.
func targetPort(c *plan.Computation, m *plan.Match) string {
	value := m.Desired.Attrs["port_id"]
	if ref, ok := value.(drivers.Ref); ok && c.Resolve != nil {
		value, _ = c.Resolve(ref)
	}
	return canonical("port_id", value)
}

// leading returns another floating IP that leads to the port which one should lead to: Neutron lets one of a network do
// so.
func leading(c *plan.Computation, m *plan.Match, among func(*plan.Observed) bool) *plan.Observed {
	port := targetPort(c, m)
	if port == "" {
		return nil
	}
	for i := range c.Observed {
		o := &c.Observed[i]
		if c.KindOf(o) == m.Kind && canonical("port_id", o.Attrs["port_id"]) == port && onNetwork(c, m, o) && among(o) {
			return o
		}
	}
	return nil
}

// floatingIPBody takes the port out of what a floating IP is created with, as long as another one leads there.
func floatingIPBody(c *plan.Computation, m *plan.Match, attrs map[string]any) (map[string]any, []plan.Wait) {
	if leading(c, m, func(*plan.Observed) bool { return true }) != nil {
		delete(attrs, "port_id")
		delete(attrs, "fixed_ip_address")
	}
	return attrs, nil
}

// refineFloatingIP completes what changes of a floating IP, and has it wait for its port.
func refineFloatingIP(c *plan.Computation, m *plan.Match) {
	m.Differences = withPort(m.Observed, m.Differences)
	follow(c, m)
	leadUntil(c, m)
}

// withPort adds the port to a change of the address at it: Neutron wants to see both.
func withPort(o *plan.Observed, diffs []plan.Difference) []plan.Difference {
	address := slices.ContainsFunc(diffs, func(d plan.Difference) bool { return d.Name == "fixed_ip_address" })
	port := slices.ContainsFunc(diffs, func(d plan.Difference) bool { return d.Name == "port_id" })
	if address && !port && canonical("port_id", o.Attrs["port_id"]) != "" {
		diffs = append(diffs, plan.Difference{Name: "port_id", Old: o.Attrs["port_id"], New: o.Attrs["port_id"]})
	}
	return diffs
}

// follow has a floating IP wait for its port until the one that goes has left it.
func follow(c *plan.Computation, m *plan.Match) {
	if o := leading(c, m, func(o *plan.Observed) bool { return c.Departs(o.ID) && o.ID != m.Observed.ID }); o != nil {
		awaitPort(m, o, fmt.Sprintf("waiting for floating IP %s to leave the port", o.Identity))
	}
}

// leadUntil has a floating IP lead to a load balancer that goes for one of its alternative kind until it has gone.
func leadUntil(c *plan.Computation, m *plan.Match) {
	port := canonical("port_id", m.Observed.Attrs["port_id"])
	if port == "" {
		return
	}
	for _, o := range c.Departing() {
		if canonical("vip_port_id", o.Attrs["vip_port_id"]) == port && c.Alternates(o) {
			awaitPort(m, o, fmt.Sprintf("waiting for load balancer %s to go, which serves until then", o.Identity))
		}
	}
}

// awaitPort has a floating IP lead where it does until a resource is gone.
func awaitPort(m *plan.Match, o *plan.Observed, message string) {
	for i := range m.Differences {
		if d := &m.Differences[i]; d.Name == "port_id" || d.Name == "fixed_ip_address" {
			at := &plan.Resource{Kind: o.Kind, ID: o.ID, Identity: o.Identity}
			d.Waits = append(d.Waits, plan.Wait{Resource: at, Message: message})
		}
	}
}

// leadNowhere takes a floating IP that is retained off its port.
func leadNowhere(c *plan.Computation, o *plan.Observed, reason string) {
	if canonical("port_id", o.Attrs["port_id"]) == "" {
		return
	}
	c.Add(plan.Step{
		Op: plan.Update, Kind: c.KindOf(o), Identity: o.Identity, ID: o.ID, Revision: o.Revision,
		Attrs: map[string]any{"port_id": nil}, Old: map[string]any{"port_id": o.Attrs["port_id"]},
		Reason: reason + ", and it is retained: it leads nowhere from now on", Waits: successors(c, o),
	})
}

// awaitSuccessors has the deletion of a floating IP wait for those that take its place.
func awaitSuccessors(c *plan.Computation, o *plan.Observed, s *plan.Step) {
	s.Waits = append(s.Waits, successors(c, o)...)
}

// successors returns a wait for each floating IP that should lead where one does that goes, and is not there yet.
func successors(c *plan.Computation, o *plan.Observed) []plan.Wait {
	port := canonical("port_id", o.Attrs["port_id"])
	if port == "" {
		return nil
	}
	var waits []plan.Wait
	for _, m := range c.Matches {
		if m.Kind == drivers.KindFloatingIP && m.Observed == nil && targetPort(c, m) == port {
			waits = append(waits, plan.Wait{
				Message: fmt.Sprintf("waiting for floating IP %q, which takes its place", m.Desired.Identity.Name),
			})
		}
	}
	return waits
}
