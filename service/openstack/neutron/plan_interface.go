// SPDX-License-Identifier: Apache-2.0

package neutron

import (
	"fmt"

	"github.com/kuryr/raven/drivers"
	"github.com/kuryr/raven/service/plan"
)

// A router interface is a port that is made with its identity and then attached to the router.

// compareInterface compares a router interface with the port that it is. Another router counts only once the port is
// attached.
func compareInterface(c *plan.Computation, d *plan.Desired, o *plan.Observed) []plan.Difference {
	addresses, _ := o.Attrs["fixed_ips"].([]any)
	var first any
	if len(addresses) > 0 {
		first = addresses[0]
	}
	have := map[string]any{
		"router_id": o.Attrs["device_id"], "network_id": o.Attrs["network_id"],
		"subnet_id": plan.Field(first, "subnet_id"), "ip_address": plan.Field(first, "ip_address"),
	}
	var diffs []plan.Difference
	for _, a := range drivers.Schema(d.Kind) {
		want, managed := d.Attrs[a.Name]
		if !managed || a.Name == "router_id" && !atRouter(o) {
			continue
		}
		value, waits := c.Value(want)
		if len(waits) > 0 {
			diffs = append(diffs, plan.Difference{
				Name: a.Name, Old: have[a.Name], New: value, Immutable: true, Waits: waits,
			})
			continue
		}
		text := canonical(a.Name, value)
		if text == "" || text == canonical(a.Name, have[a.Name]) {
			continue
		}
		diffs = append(diffs, plan.Difference{Name: a.Name, Old: have[a.Name], New: value, Immutable: true})
	}
	return diffs
}

// atRouter says whether a router interface's port is at its router.
func atRouter(o *plan.Observed) bool { return canonical("device_id", o.Attrs["device_id"]) != "" }

// interfacePort returns the body of the port that becomes a router interface.
func interfacePort(c *plan.Computation, m *plan.Match, attrs map[string]any) (map[string]any, []plan.Wait) {
	address := map[string]any{"subnet_id": attrs["subnet_id"]}
	if _, ref := attrs["ip_address"].(drivers.Ref); ref || canonical("ip_address", attrs["ip_address"]) != "" {
		address["ip_address"] = attrs["ip_address"]
	}
	return portBody(c, m, map[string]any{"network_id": attrs["network_id"], "fixed_ips": []any{address}})
}

// attachInterface plans to attach a router interface's port, made or not.
func attachInterface(c *plan.Computation, m *plan.Match) {
	if m.Stays() && atRouter(m.Observed) {
		return
	}
	name := m.Desired.Identity.Name
	router, waits := c.Value(m.Desired.Attrs["router_id"])
	s := plan.Step{
		Op: plan.Attach, Kind: m.Kind, Identity: m.Desired.Identity, Attrs: map[string]any{"router_id": router},
		Reason: fmt.Sprintf("the port of router interface %q is at no router yet", name), Waits: waits,
	}
	if m.Stays() {
		s.ID, s.Revision = m.Observed.ID, m.Observed.Revision
	} else {
		s.Waits = append(s.Waits, plan.Wait{Message: fmt.Sprintf("waiting for the port of router interface %q", name)})
	}
	c.Add(s)
}
