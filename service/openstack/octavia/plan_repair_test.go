// SPDX-License-Identifier: Apache-2.0

package octavia

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kuryr/raven/drivers"
	"github.com/kuryr/raven/service/plan"
)

// TestRepair: only what is done for the sake of an ERROR says so, and what rests is left alone.
func TestRepair(t *testing.T) {
	broken := func(parts ...string) func(*plan.Observed) {
		return func(o *plan.Observed) {
			for _, list := range parts {
				doc := structures(o.Attrs[list])
				if list == "members" {
					doc = structures(structures(o.Attrs["pools"])[0]["members"])
				}
				doc[0]["provisioning_status"] = "ERROR"
			}
		}
	}
	more := func(lb *drivers.LoadBalancer) {
		lb.Pools[0].Members = append(lb.Pools[0].Members, drivers.Member{Address: "10.1.0.3", ProtocolPort: new(int64(80))})
	}
	listener, pool, members := plan.Part{Kind: Listener, Name: "a"}, plan.Part{Kind: Pool, Name: "a"}, plan.Part{
		Kind: Members, Name: "a",
	}
	for name, c := range map[string]struct {
		observed func(*plan.Observed)
		wish     func(*drivers.LoadBalancer)
		repair   Repair
		resting  []plan.Part
		want     []string // with a "!" where it repairs
	}{
		"all of it": {
			func(o *plan.Observed) { o.Status = "ERROR" }, nil, RepairReplace, nil,
			[]string{"create loadbalancer …", "delete loadbalancer !"},
		},
		"failed over": {
			func(o *plan.Observed) { o.Status = "ERROR" }, nil, RepairFailover, nil, []string{"failover loadbalancer !"},
		},
		"a listener": {
			broken("listeners"), nil, RepairReplace, nil, []string{`delete listener "a" !`, `create listener "a"`},
		},
		"a listener at rest": {broken("listeners"), nil, RepairReplace, []plan.Part{listener}, []string{}},
		"another one at rest": {
			broken("listeners"), nil, RepairReplace,
			[]plan.Part{pool, members},
			[]string{`delete listener "a" !`, `create listener "a"`},
		},
		"a member":         {broken("members"), nil, RepairReplace, nil, []string{`update the members of pool "a" !`}},
		"a member at rest": {broken("members"), nil, RepairReplace, []plan.Part{members}, []string{}},
		"a change beside it": {
			broken("members"), more, RepairReplace, []plan.Part{members}, []string{`update the members of pool "a"`},
		},
		"a change of what rests": {
			broken("pools"), more, RepairReplace, []plan.Part{pool}, []string{`update the members of pool "a" …`},
		},
		"a change, and no repair": {broken("listeners"), more, RepairNone, nil, []string{`update the members of pool "a"`}},
		"it goes anyway": {
			nil, func(lb *drivers.LoadBalancer) { lb.Provider = new("ovn") }, RepairNone, nil,
			[]string{"create loadbalancer …", "delete loadbalancer"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			desired := lbWish(c.wish)
			desired[0].Hints = Hints{Repair: c.repair, Resting: c.resting}
			p := compute(plan.Input{Desired: desired, Observed: lbDoc(c.observed), Prune: true})
			got := stepTexts(p)
			for i, s := range p.Steps {
				if s.Repairs {
					got[i] += " !"
				}
			}
			for i := range got { // a listener that is made waits for the old one
				if got[i] == `create listener "a" …` {
					got[i] = `create listener "a"`
				}
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestTwinPools: the one that a listener leads to stays, wherever it is in the list; one that a listener still leads to
// goes last.
func TestTwinPools(t *testing.T) {
	twin := map[string]any{"id": "p-0", "name": "a", "protocol": "TCP", "description": lbIdentity().Description()}
	for name, c := range map[string]struct {
		observed func(*plan.Observed)
		goes     string
		want     []string
	}{
		"the first is not used": {func(o *plan.Observed) {
			o.Attrs["pools"] = slices.Insert(o.Attrs["pools"].([]any), 0, any(twin))
		}, "p-0", []string{`delete pool "a"`}},
		"both are used": {func(o *plan.Observed) {
			o.Attrs["pools"] = append(o.Attrs["pools"].([]any), twin)
			other := map[string]any{}
			for key, value := range structures(o.Attrs["listeners"])[0] {
				other[key] = value
			}
			other["id"], other["name"], other["protocol_port"], other["default_pool_id"] = "l-2", "b", int64(81), "p-0"
			o.Attrs["listeners"] = append(o.Attrs["listeners"].([]any), other)
		}, "p-0", []string{`update listener "b"`, `delete pool "a"`}},
	} {
		t.Run(name, func(t *testing.T) {
			wish := lbWish(func(lb *drivers.LoadBalancer) {
				if name == "both are used" {
					b := lb.Listeners[0]
					b.Name, b.ProtocolPort = "b", new(int64(81))
					lb.Listeners = append(lb.Listeners, b)
				}
			})
			p := compute(plan.Input{Desired: wish, Observed: lbDoc(c.observed), Prune: true})
			if diff := cmp.Diff(c.want, stepTexts(p)); diff != "" {
				t.Fatal(diff)
			}
			if last := p.Steps[len(p.Steps)-1]; last.Part.ID != c.goes {
				t.Errorf("%s goes", last.Part.ID)
			}
		})
	}
}

// TestTwinBalancers: the one that a floating IP leads to is kept, though it is younger.
func TestTwinBalancers(t *testing.T) {
	older, younger := lbDoc(nil)[0], lbDoc(nil)[0]
	older.ID, older.CreatedAt = "older", "2026-01-01T00:00:00"
	younger.ID, younger.CreatedAt = "younger", "2026-01-02T00:00:00"
	older.Attrs["vip_port_id"], younger.Attrs["vip_port_id"] = "port-1", "port-2"
	uses := func(port string) func(drivers.Kind, string) []plan.Observed {
		return func(_ drivers.Kind, id string) []plan.Observed {
			if id != port {
				return nil
			}
			return []plan.Observed{{Kind: drivers.KindFloatingIP, ID: "fip", Attrs: map[string]any{"port_id": port}}}
		}
	}
	for port, goes := range map[string]string{"port-1": "younger", "port-2": "older", "": "younger"} {
		p := compute(plan.Input{
			Desired: lbWish(nil), Observed: []plan.Observed{older, younger}, Dependants: uses(port), Prune: true,
		})
		if len(p.Steps) != 1 || p.Steps[0].Op != plan.Delete || p.Steps[0].ID != goes {
			t.Errorf("used is %q: %+v", port, p.Steps)
		}
	}
}
