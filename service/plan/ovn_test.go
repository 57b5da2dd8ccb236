// SPDX-License-Identifier: Apache-2.0

package plan_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kuryr/raven/drivers"
	"github.com/kuryr/raven/service/plan"
)

func ovnIdentity(name string) plan.Identity {
	return plan.Identity{Cluster: "c", Owner: plan.Owner{Driver: "proxy", UID: "u"}, Name: name, Policy: drivers.Delete}
}

func ovnVIP(address any) any {
	return map[string]any{
		"protocol": "TCP", "address": address, "port": int64(80),
		"backends": []any{map[string]any{"address": "10.1.0.1", "port": int64(8080)}},
	}
}

func observedAs(kind drivers.Kind, id string, identity plan.Identity, attrs map[string]any) plan.Observed {
	return plan.Observed{
		Kind: kind, ID: id, Identity: identity, Managed: true, Attrs: attrs, Status: "ACTIVE", Tags: identity.Tags(),
		Description: identity.Description(),
	}
}

// TestHandover: of the two kinds of load balancers of one Service the old one goes before the new one comes, in both
// directions.
func TestHandover(t *testing.T) {
	octavia := plan.Desired{
		Kind: drivers.KindLoadBalancer, Identity: ovnIdentity("lb"), Attrs: map[string]any{"name": "web/shop"},
	}
	own := plan.Desired{
		Kind: drivers.KindOVNLoadBalancer, Identity: ovnIdentity("ovn"),
		Attrs: map[string]any{"name": "web/shop", "group_id": "g", "vips": []any{ovnVIP("10.0.0.1")}},
	}
	there := map[drivers.Kind]plan.Observed{
		drivers.KindLoadBalancer:    observedAs(drivers.KindLoadBalancer, "octavia", octavia.Identity, octavia.Attrs),
		drivers.KindOVNLoadBalancer: observedAs(drivers.KindOVNLoadBalancer, "own", own.Identity, own.Attrs),
	}
	for _, d := range []plan.Desired{octavia, own} {
		old := there[drivers.KindLoadBalancer]
		if d.Kind == old.Kind {
			old = there[drivers.KindOVNLoadBalancer]
		}
		for _, prune := range []bool{true, false} {
			p := kinds.Compute(plan.Input{Desired: []plan.Desired{d}, Observed: []plan.Observed{old}, Prune: prune})
			for _, step := range p.Steps {
				switch {
				case step.Op == plan.Delete && !prune:
					t.Errorf("%s: %s is deleted though deletions are held", d.Kind, step.Kind)
				case step.Op == plan.Create &&
					(len(step.Waits) != 1 || step.Waits[0].Resource == nil || step.Waits[0].Resource.ID != old.ID):
					t.Errorf("%s: its create waits for %v, want %s to be gone", d.Kind, step.Waits, old.ID)
				case step.Op == plan.Delete && !step.Ready():
					t.Errorf("%s: the old one waits for %v", d.Kind, step.Waits)
				}
			}
			if n := len(p.Steps); prune && n != 2 || !prune && (n != 1 || p.Held != 1) {
				t.Errorf("%s: steps %v, held %d", d.Kind, p.Steps, p.Held)
			}
		}
		p := kinds.Compute(plan.Input{Desired: []plan.Desired{d}, Prune: true})
		if len(p.Steps) != 1 || !p.Steps[0].Ready() {
			t.Errorf("%s: with the old one gone: %v, want a create that is ready", d.Kind, p.Steps)
		}
	}
}

// TestNothingGoesForWhatCannotCome: as long as the load balancer that is wanted waits for something else, the one of
// the other kind serves, and the floating IP leads to it.
func TestNothingGoesForWhatCannotCome(t *testing.T) {
	missing := drivers.Ref{Name: "missing"}
	octavia := plan.Desired{
		Kind: drivers.KindLoadBalancer, Identity: ovnIdentity("lb"),
		Attrs: map[string]any{"name": "web/shop", "vip_subnet_id": missing},
	}
	own := plan.Desired{
		Kind: drivers.KindOVNLoadBalancer, Identity: ovnIdentity("ovn"),
		Attrs: map[string]any{"name": "web/shop", "group_id": missing, "vips": []any{ovnVIP("10.0.0.1")}},
	}
	floating := plan.Desired{
		Kind: drivers.KindFloatingIP, Identity: ovnIdentity("fip"),
		Attrs: map[string]any{"floating_network_id": "n", "port_id": ""},
	}
	there := map[drivers.Kind]plan.Observed{
		drivers.KindOVNLoadBalancer: observedAs(drivers.KindLoadBalancer, "octavia", octavia.Identity,
			map[string]any{"name": "web/shop", "vip_port_id": "p"}),
		drivers.KindLoadBalancer: observedAs(drivers.KindOVNLoadBalancer, "own", own.Identity,
			map[string]any{"name": "web/shop", "group_id": "g"}),
	}
	leads := observedAs(drivers.KindFloatingIP, "f", floating.Identity,
		map[string]any{"floating_network_id": "n", "port_id": "p"})
	for _, d := range []plan.Desired{octavia, own} {
		in := plan.Input{Desired: []plan.Desired{d}, Observed: []plan.Observed{there[d.Kind]}, Prune: true}
		if d.Kind == own.Kind {
			in.Desired, in.Observed = append(in.Desired, floating), append(in.Observed, leads)
		}
		for _, step := range kinds.Compute(in).Steps {
			if step.Ready() {
				t.Errorf("%s cannot come yet: %s of %s is ready", d.Kind, step.Op, step.Kind)
			}
			if step.Op == plan.Delete &&
				!slices.ContainsFunc(step.Waits, func(w plan.Wait) bool { return w.Ref != nil && *w.Ref == missing }) {
				t.Errorf("%s: the old one waits for %v, want what the new one waits for", d.Kind, step.Waits)
			}
		}
		in.Resolve = func(drivers.Ref) (any, bool) { return "found", true }
		for _, step := range kinds.Compute(in).Steps {
			if step.Ready() != (step.Op == plan.Delete) {
				t.Errorf("%s can come: %s of %s waits for %v", d.Kind, step.Op, step.Kind, step.Waits)
			}
		}
		in.Observed = in.Observed[1:] // it has gone
		for _, step := range kinds.Compute(in).Steps {
			if !step.Ready() {
				t.Errorf("with the old one gone: %s of %s waits for %v", step.Op, step.Kind, step.Waits)
			}
		}
	}
}

// TestVIPOfAnUnknownAddress: a VIP whose address is not known yet holds up no other, neither when the load balancer is
// made nor later.
func TestVIPOfAnUnknownAddress(t *testing.T) {
	floating := drivers.Ref{Name: "fip", Attribute: "floating_ip_address"}
	d := plan.Desired{Kind: drivers.KindOVNLoadBalancer, Identity: ovnIdentity("ovn"), Attrs: map[string]any{
		"name": "web/shop", "group_id": "g", "vips": []any{ovnVIP("10.0.0.1"), ovnVIP(floating)},
	}}
	known := func(drivers.Ref) (any, bool) { return "192.0.2.7", true }
	waits := func(p plan.Plan) bool {
		return slices.ContainsFunc(p.Pending, func(w plan.Wait) bool {
			return w.Ref != nil && strings.Contains(w.Message, "floating_ip_address")
		})
	}
	p := kinds.Compute(plan.Input{Desired: []plan.Desired{d}})
	if len(p.Steps) != 1 || !p.Steps[0].Ready() || !waits(p) {
		t.Fatalf("steps %v, pending %v, want a create that is ready and a wait", p.Steps, p.Pending)
	}
	if diff := cmp.Diff([]any{ovnVIP("10.0.0.1")}, p.Steps[0].Attrs["vips"]); diff != "" {
		t.Error(diff)
	}
	old := map[string]any{"name": "web/shop", "group_id": "g", "vips": []any{ovnVIP("10.0.0.2")}}
	there := []plan.Observed{observedAs(d.Kind, "own", d.Identity, old)}
	p = kinds.Compute(plan.Input{Desired: []plan.Desired{d}, Observed: there})
	if len(p.Steps) != 1 || p.Steps[0].Op != plan.Update || !p.Steps[0].Ready() || !waits(p) {
		t.Fatalf("steps %v, pending %v, want an update that is ready and a wait", p.Steps, p.Pending)
	}
	p = kinds.Compute(plan.Input{Desired: []plan.Desired{d}, Observed: there, Resolve: known})
	if len(p.Steps) != 1 || len(p.Pending) > 0 {
		t.Fatalf("steps %v, pending %v, want an update", p.Steps, p.Pending)
	}
	if diff := cmp.Diff([]any{ovnVIP("10.0.0.1"), ovnVIP("192.0.2.7")}, p.Steps[0].Attrs["vips"]); diff != "" {
		t.Error(diff)
	}
	// The same VIPs in another order and form are no difference.
	there[0].Attrs = map[string]any{
		"name": "web/shop", "group_id": "g", "vips": []any{ovnVIP("192.0.2.7"), ovnVIP("10.0.0.1")},
	}
	if p = kinds.Compute(plan.Input{Desired: []plan.Desired{d}, Observed: there, Resolve: known}); len(p.Steps) > 0 {
		t.Errorf("steps %v for what is as it should be", p.Steps)
	}
}
