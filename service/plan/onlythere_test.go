// SPDX-License-Identifier: Apache-2.0

package plan_test

import (
	"testing"

	"github.com/kuryr/raven/drivers"
	"github.com/kuryr/raven/service/plan"
)

// What is to come after something that is not there is not made, but changed where it exists: so drivers close an
// address of which they do not know the name.
func TestAfterHoldsUpOnlyTheCreate(t *testing.T) {
	id := plan.Identity{Cluster: "c", Owner: plan.Owner{Driver: "services", UID: "web"}, Policy: drivers.Delete}
	there, other := id, id
	there.Name, other.Name = kinds.LogicalName(drivers.KindFloatingIP,
		"floatingip-4"), kinds.LogicalName(drivers.KindFloatingIP, "floatingip-203.0.113.8")
	var desired []plan.Desired
	for _, identity := range []plan.Identity{there, other} {
		desired = append(desired, plan.Desired{
			Kind: drivers.KindFloatingIP, Identity: identity, After: []drivers.Ref{{Name: "nothing"}},
			Attrs: map[string]any{"floating_network_id": "public", "port_id": ""},
		})
	}
	p := kinds.Compute(plan.Input{
		Desired: desired, Prune: true, Resolve: func(drivers.Ref) (any, bool) { return nil, false },
		Observed: []plan.Observed{{
			Kind: drivers.KindFloatingIP, ID: "f-1", Managed: true, Identity: there, Tags: there.Tags(),
			Description: there.Describe(""),
			Attrs:       map[string]any{"floating_network_id": "public", "floating_ip_address": "203.0.113.8", "port_id": "vip"},
		}},
	})
	if len(p.Steps) != 2 {
		t.Fatalf("%d steps: %+v", len(p.Steps), p.Steps)
	}
	for _, step := range p.Steps {
		switch {
		case step.Op == plan.Update && step.ID == "f-1" && step.Ready() &&
			(step.Attrs["port_id"] == nil || step.Attrs["port_id"] == ""):
		case step.Op == plan.Create && step.Identity.Name == other.Name && !step.Ready():
		default:
			t.Errorf("%+v", step)
		}
	}
}
