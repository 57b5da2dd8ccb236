package plan

import (
	"testing"

	"github.com/kuryr/raven/drivers"
)

// What is to come after something that is not there is not made, but changed where it exists: so drivers close an address of which they do
// not know the name.
func TestAfterHoldsUpOnlyTheCreate(t *testing.T) {
	id := Identity{Cluster: "c", Owner: Owner{Driver: "services", UID: "web"}, Policy: drivers.Delete}
	there, other := id, id
	there.Name, other.Name = LogicalName(drivers.KindFloatingIP, "floatingip-4"), LogicalName(drivers.KindFloatingIP, "floatingip-203.0.113.8")
	var desired []Desired
	for _, identity := range []Identity{there, other} {
		desired = append(desired, Desired{
			Kind: drivers.KindFloatingIP, Identity: identity, After: []drivers.Ref{{Name: "nothing"}},
			Attrs: map[string]any{"floating_network_id": "public", "port_id": ""},
		})
	}
	p := Compute(Input{
		Desired: desired, Prune: true, Resolve: func(drivers.Ref) (any, bool) { return nil, false },
		Observed: []Observed{{
			Kind: drivers.KindFloatingIP, ID: "f-1", Managed: true, Identity: there, Tags: there.Tags(), Description: there.Describe(""),
			Attrs: map[string]any{"floating_network_id": "public", "floating_ip_address": "203.0.113.8", "port_id": "vip"},
		}},
	})
	if len(p.Steps) != 2 {
		t.Fatalf("%d steps: %+v", len(p.Steps), p.Steps)
	}
	for _, step := range p.Steps {
		switch {
		case step.Op == Update && step.ID == "f-1" && step.Ready() && canonical("port_id", step.Attrs["port_id"], false) == "":
		case step.Op == Create && step.Identity.Name == other.Name && !step.Ready():
		default:
			t.Errorf("%+v", step)
		}
	}
}
