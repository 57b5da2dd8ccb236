// SPDX-License-Identifier: Apache-2.0

package plan_test

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kuryr/raven/drivers"
	"github.com/kuryr/raven/service/openstack/neutron"
	"github.com/kuryr/raven/service/openstack/octavia"
	"github.com/kuryr/raven/service/ovn"
	"github.com/kuryr/raven/service/plan"
	"github.com/kuryr/raven/service/portpool"
)

// kinds are the kinds of all backends.
var kinds = plan.NewKinds(slices.Concat(neutron.Kinds(), portpool.Kinds(), octavia.Kinds(), ovn.Kinds())...)

func port() plan.Identity {
	return plan.Identity{
		Cluster: testCluster, Owner: plan.Owner{Driver: "pod", UID: testUID}, Name: "port", Policy: drivers.Delete,
	}
}

// made returns a resource as Neutron shows it after it was made for id.
func made(kind drivers.Kind, id plan.Identity, cloudID string, attrs map[string]any) plan.Observed {
	return plan.Observed{
		Kind: kind, ID: cloudID, Identity: id, Managed: true, Attrs: attrs, Revision: 3, Tags: id.Tags(),
		Description: id.Description(),
		CreatedAt:   "2026-01-01T00:00:01Z",
	}
}

func named(name string) plan.Identity {
	id := port()
	id.Name = name
	return id
}

func retained(id plan.Identity) plan.Identity { id.Policy = drivers.Retain; return id }

func with(o plan.Observed, change func(*plan.Observed)) plan.Observed { change(&o); return o }

// flat shows steps as lines of op, kind, name, id, and what they wait for.
func flat(p plan.Plan) []string {
	var lines []string
	for _, s := range p.Steps {
		line := string(s.Op) + " " + string(s.Kind) + " " + s.Identity.Name
		if s.ID != "" {
			line += " " + s.ID
		}
		for _, w := range s.Waits {
			switch {
			case w.Ref != nil:
				line += " after(" + w.Ref.String() + ")"
			case w.Resource != nil:
				line += " gone(" + w.Resource.ID + ")"
			default:
				line += " ..."
			}
		}
		lines = append(lines, line)
	}
	return lines
}

func uses(users map[string][]plan.Observed) func(drivers.Kind, string) []plan.Observed {
	return func(_ drivers.Kind, id string) []plan.Observed { return users[id] }
}

func refs(values map[string]any) func(drivers.Ref) (any, bool) {
	return func(r drivers.Ref) (any, bool) {
		value, ok := values[strings.TrimSuffix(r.Name+"."+r.Attribute, ".")]
		return value, ok
	}
}

func TestCompute(t *testing.T) {
	networkSpec := drivers.Attributes(drivers.Network{Name: text("web")})
	subnetSpec := drivers.Attributes(drivers.Subnet{
		NetworkID: drivers.From("network"), IPVersion: number(4), SubnetPoolID: drivers.Text("pool"), Name: text("web"),
	})
	rifSpec := drivers.Attributes(drivers.RouterInterface{
		RouterID: drivers.From("router"), SubnetID: drivers.From("subnet"), NetworkID: drivers.From("network"),
		IPAddress: drivers.From("subnet", "gateway_ip"),
	})
	ruleSpec := drivers.Attributes(drivers.SecurityGroupRule{
		SecurityGroupID: drivers.Text("g1"), Direction: text("ingress"), EtherType: text("IPv4"),
	})
	network := made(drivers.KindNetwork, named("network"), "n1", map[string]any{"name": "web"})
	subnet := made(drivers.KindSubnet, named("subnet"), "s1", map[string]any{
		"network_id": "n1", "ip_version": float64(4), "subnetpool_id": "pool", "name": "web", "cidr": "10.0.0.0/24",
		"gateway_ip": "10.0.0.1",
	})
	second := with(subnet, func(o *plan.Observed) {
		o.ID, o.Identity, o.Attrs = "s2", named("subnet.2"), maps.Clone(o.Attrs)
		o.Tags, o.Attrs["name"] = o.Identity.Tags(), "web.2"
	})
	rif := made(drivers.KindPort, named("rif.if"), "p1", map[string]any{
		"network_id": "n1", "device_id": "r1", "device_owner": "network:router_interface_distributed",
		"fixed_ips": []any{map[string]any{"subnet_id": "s1", "ip_address": "10.0.0.1"}},
	})
	loose := with(rif, func(o *plan.Observed) {
		o.Attrs = maps.Clone(o.Attrs)
		o.Attrs["device_id"], o.Attrs["device_owner"] = "", ""
	})
	group := made(drivers.KindSecurityGroup, named("group"), "g1", map[string]any{"name": "web"})
	rule := made(drivers.KindSecurityGroupRule, named("rule"), "u1", map[string]any{
		"security_group_id": "g1", "direction": "ingress", "ethertype": "IPv4", "protocol": nil,
	})
	podPort := made(drivers.KindPort,
		plan.Identity{Cluster: testCluster, Owner: plan.Owner{"pod", "other"}, Name: "port"}, "pp", nil)
	wantNetwork := plan.Desired{Kind: drivers.KindNetwork, Identity: named("network"), Attrs: networkSpec}
	wantSubnet := plan.Desired{Kind: drivers.KindSubnet, Identity: named("subnet"), Attrs: subnetSpec, Expand: 3}
	wantRif := plan.Desired{Kind: drivers.KindRouterInterface, Identity: named("rif.if"), Attrs: rifSpec}
	wantNewPool := plan.Desired{Kind: drivers.KindSubnet, Identity: named("subnet"), Attrs: maps.Clone(subnetSpec)}
	wantNewPool.Attrs["subnetpool_id"] = "other"
	wantRule := plan.Desired{Kind: drivers.KindSecurityGroupRule, Identity: named("rule"), Attrs: ruleSpec}
	there := map[string]any{"network": "n1", "router": "r1", "subnet": "s1", "subnet.gateway_ip": "10.0.0.1"}
	younger := with(network, func(o *plan.Observed) { o.ID, o.CreatedAt = "n0", "2026-01-02T00:00:00Z" })

	for _, tc := range []struct {
		name, reason string
		in           plan.Input
		want         []string
		held         int
	}{
		{
			"missing", "what is wanted and not there is made",
			plan.Input{Desired: []plan.Desired{wantNetwork}},
			[]string{"create network network"},
			0,
		},
		{
			"missing refs", "a create shows all that it waits for",
			plan.Input{Desired: []plan.Desired{wantNetwork, wantSubnet}},
			[]string{"create network network", `create subnet subnet after(id of "network")`},
			0,
		},
		{"after", "order is kept where no attribute says it", plan.Input{Desired: []plan.Desired{{
			Kind: drivers.KindNetwork, Identity: named("network"), Attrs: networkSpec,
			After: []drivers.Ref{{Role: &drivers.Role{Role: "x"}}},
		}}}, []string{"create network network after(id of the x of the cluster)"}, 0},
		{"steady", "a second look finds nothing", plan.Input{
			Desired:  []plan.Desired{wantNetwork, wantSubnet, wantRif, wantRule},
			Observed: []plan.Observed{network, subnet, rif, rule},
			Resolve:  refs(there), Prune: true,
		}, nil, 0},
		{
			"lookup", "what an operator named is never changed",
			plan.Input{Desired: []plan.Desired{{Kind: drivers.KindLookup, Identity: named("x")}}},
			nil, 0,
		},
		{
			"unwanted", "what no object desires is deleted",
			plan.Input{Observed: []plan.Observed{network}, Prune: true},
			[]string{"delete network network n1"},
			0,
		},
		{"held", "not all opinions are in", plan.Input{Observed: []plan.Observed{network}}, nil, 1},
		{"retained", "retain is never deleted", plan.Input{
			Observed: []plan.Observed{with(network, func(o *plan.Observed) { o.Identity.Policy = drivers.Retain })}, Prune: true,
		}, nil, 0},
		{"foreign", "what has no identity of Raven's is never touched", plan.Input{
			Observed: []plan.Observed{with(network, func(o *plan.Observed) { o.Managed = false })}, Prune: true,
		}, nil, 0},
		{"other cluster", "a caller's mistake deletes nothing of another cluster", plan.Input{
			Desired:  []plan.Desired{wantNetwork},
			Observed: []plan.Observed{network, with(younger, func(o *plan.Observed) { o.Identity.Cluster = "other" })},
			Prune:    true,
		}, nil, 0},
		{"unwanted in order", "nothing is deleted under its users", plan.Input{
			Observed: []plan.Observed{network, subnet, rif}, Prune: true,
			Dependants: uses(map[string][]plan.Observed{"n1": {subnet, rif, podPort}, "s1": {rif, podPort}}),
		}, []string{
			"detach router_interface rif.if p1", "delete subnet subnet s1 gone(p1) gone(pp)",
			"delete network network n1 gone(p1) gone(pp) gone(s1)",
		}, 0},
		{
			"unwanted interface, loose", "a port at no router is deleted as a port",
			plan.Input{Observed: []plan.Observed{loose}, Prune: true},
			[]string{"delete router_interface rif.if p1"},
			0,
		},
		{"unwanted group", "rules go with their group", plan.Input{
			Observed: []plan.Observed{group, rule}, Prune: true,
			Dependants: uses(map[string][]plan.Observed{"g1": {rule, podPort}}),
		}, []string{"delete security_group group g1 gone(pp)"}, 0},
		{"retained rule", "what is retained is not deleted by way of its group", plan.Input{
			Observed: []plan.Observed{group, with(rule, func(o *plan.Observed) { o.Identity.Policy = drivers.Retain })},
			Prune:    true,
			Dependants: uses(map[string][]plan.Observed{
				"g1": {with(rule, func(o *plan.Observed) { o.Identity.Policy = drivers.Retain })},
			}),
		}, []string{"delete security_group group g1 gone(u1)"}, 0},
		{
			"twins", "the oldest is kept",
			plan.Input{Desired: []plan.Desired{wantNetwork}, Observed: []plan.Observed{younger, network}, Prune: true},
			[]string{"delete network network n0"},
			0,
		},
		{"twins, one used", "the one in use is kept", plan.Input{
			Desired: []plan.Desired{wantNetwork}, Observed: []plan.Observed{younger, network}, Prune: true,
			Dependants: uses(map[string][]plan.Observed{"n0": {subnet}}),
		}, []string{"delete network network n1"}, 0},
		{"twins, both used", "what is in use is not deleted", plan.Input{
			Desired: []plan.Desired{wantNetwork}, Observed: []plan.Observed{younger, network}, Prune: true,
			Dependants: uses(map[string][]plan.Observed{"n0": {subnet}, "n1": {subnet}}),
		}, []string{"delete network network n0 gone(s1)"}, 0},
		{
			"twins, held", "not all opinions are in",
			plan.Input{Desired: []plan.Desired{wantNetwork}, Observed: []plan.Observed{younger, network}},
			nil, 1,
		},
		{"ref to the wrong twin", "refs follow to the one that is kept", plan.Input{
			Desired: []plan.Desired{wantNetwork, wantSubnet}, Observed: []plan.Observed{younger, network, subnet}, Prune: true,
			Resolve: refs(map[string]any{"network": "n0"}), Dependants: uses(map[string][]plan.Observed{"n1": {subnet}}),
		}, []string{"delete network network n0"}, 0},
		{"untagged", "the other proof is added", plan.Input{
			Desired:  []plan.Desired{wantNetwork},
			Observed: []plan.Observed{with(network, func(o *plan.Observed) { o.Tags = []string{"theirs"} })},
		}, []string{"tag network network n1"}, 0},
		{"edited description", "an operator's words stay", plan.Input{
			Desired:  []plan.Desired{wantNetwork},
			Observed: []plan.Observed{with(network, func(o *plan.Observed) { o.Description = "theirs" })},
		}, nil, 0},
		{"rule without tags", "rules have no tags", plan.Input{
			Desired: []plan.Desired{wantRule}, Observed: []plan.Observed{with(rule, func(o *plan.Observed) { o.Tags = nil })},
		}, nil, 0},
		{"immutable", "the old one goes first", plan.Input{
			Desired: []plan.Desired{wantSubnet}, Observed: []plan.Observed{subnet}, Prune: true,
			Resolve: refs(map[string]any{"network": "n2"}),
		}, []string{"create subnet subnet gone(s1)", "delete subnet subnet s1"}, 0},
		{"immutable, used", "what hangs on it goes and comes with it", plan.Input{
			Desired: []plan.Desired{wantSubnet, wantRif}, Observed: []plan.Observed{subnet, rif}, Prune: true,
			Resolve:    refs(map[string]any{"network": "n2", "router": "r1", "subnet": "s1", "subnet.gateway_ip": "10.0.0.1"}),
			Dependants: uses(map[string][]plan.Observed{"s1": {rif}}),
		}, []string{
			"create subnet subnet gone(s1)", `create router_interface rif.if gone(p1) after(id of "subnet")`,
			"attach router_interface rif.if ...", "detach router_interface rif.if p1", "delete subnet subnet s1 gone(p1)",
		}, 0},
		{"immutable, used by others", "pods keep their gateway for as long as they keep the subnet", plan.Input{
			Desired: []plan.Desired{wantNewPool, wantRif}, Observed: []plan.Observed{subnet, rif}, Prune: true,
			Resolve:    refs(there),
			Dependants: uses(map[string][]plan.Observed{"s1": {rif, podPort}}),
		}, []string{
			"create subnet subnet gone(s1)", `create router_interface rif.if gone(p1) after(id of "subnet")`,
			"attach router_interface rif.if ...", "detach router_interface rif.if p1 gone(pp)",
			"delete subnet subnet s1 gone(p1) gone(pp)",
		}, 0},
		{"immutable, used by others no more", "then all of it goes", plan.Input{
			Desired: []plan.Desired{wantNewPool, wantRif}, Observed: []plan.Observed{subnet, rif}, Prune: true,
			Resolve:    refs(there),
			Dependants: uses(map[string][]plan.Observed{"s1": {rif}}),
		}, []string{
			"create subnet subnet gone(s1)", `create router_interface rif.if gone(p1) after(id of "subnet")`,
			"attach router_interface rif.if ...", "detach router_interface rif.if p1", "delete subnet subnet s1 gone(p1)",
		}, 0},
		{"immutable by two ways, used by others", "it could not come back before the subnet does", plan.Input{
			Desired: []plan.Desired{wantSubnet, wantRif}, Observed: []plan.Observed{subnet, rif}, Prune: true,
			Resolve:    refs(map[string]any{"network": "n2", "router": "r1", "subnet": "s1", "subnet.gateway_ip": "10.0.0.1"}),
			Dependants: uses(map[string][]plan.Observed{"s1": {rif, podPort}}),
		}, []string{
			"create subnet subnet gone(s1)", `create router_interface rif.if gone(p1) after(id of "subnet")`,
			"attach router_interface rif.if ...", "detach router_interface rif.if p1 gone(pp)",
			"delete subnet subnet s1 gone(p1) gone(pp)",
		}, 0},
		{"gone network, clinging subnet", "the subnet and its gateway wait for the pods on the network", plan.Input{
			Desired: []plan.Desired{wantSubnet, wantRif}, Observed: []plan.Observed{network, subnet, rif}, Prune: true,
			Resolve:    refs(map[string]any{"router": "r1", "subnet": "s1", "subnet.gateway_ip": "10.0.0.1"}),
			Dependants: uses(map[string][]plan.Observed{"n1": {subnet, podPort}, "s1": {rif}}),
		}, []string{
			`create subnet subnet gone(s1) after(id of "network")`,
			`create router_interface rif.if gone(p1) after(id of "network") after(id of "subnet")`,
			"attach router_interface rif.if ...", "detach router_interface rif.if p1 gone(pp)",
			"delete subnet subnet s1 gone(p1) gone(pp)",
			"delete network network n1 gone(pp) gone(s1)",
		}, 0},
		{"gone subnet, clinging", "there is nothing to move to yet", plan.Input{
			Desired: []plan.Desired{wantRif}, Observed: []plan.Observed{subnet, rif}, Prune: true,
			Resolve:    refs(map[string]any{"network": "n1", "router": "r1"}),
			Dependants: uses(map[string][]plan.Observed{"s1": {rif, podPort}}),
		}, []string{
			`create router_interface rif.if gone(p1) after(gateway_ip of "subnet") after(id of "subnet")`,
			"attach router_interface rif.if ...", "detach router_interface rif.if p1 gone(pp)",
			"delete subnet subnet s1 gone(p1) gone(pp)",
		}, 0},
		{"immutable, held", "not all opinions are in", plan.Input{
			Desired: []plan.Desired{wantSubnet}, Observed: []plan.Observed{subnet},
			Resolve: refs(map[string]any{"network": "n2"}),
		}, []string{"create subnet subnet gone(s1)"}, 1},
		{"immutable, retained", "retain is never deleted, not even to be replaced", plan.Input{
			Desired: []plan.Desired{{Kind: drivers.KindSubnet, Identity: retained(named("subnet")), Attrs: subnetSpec}},
			Observed: []plan.Observed{
				with(subnet, func(o *plan.Observed) { o.Identity = retained(o.Identity); o.Tags = o.Identity.Tags() }),
			}, Prune: true,
			Resolve: refs(map[string]any{"network": "n2"}),
		}, []string{"create subnet subnet gone(s1)"}, 0},
		{"unknown ref of what exists", "it is not known to differ, so it stays", plan.Input{
			Desired: []plan.Desired{wantSubnet}, Observed: []plan.Observed{subnet}, Prune: true,
		}, []string{`update subnet subnet s1 after(id of "network")`}, 0},
		{"renamed range", "the new one cannot be made beside the old one", plan.Input{
			Desired: []plan.Desired{
				{
					Kind: drivers.KindSubnet, Identity: named("new"), Attrs: map[string]any{"network_id": "n1", "cidr": "10.0.0.0/16"},
				},
			},
			Observed: []plan.Observed{subnet}, Prune: true,
		}, []string{"create subnet new gone(s1)", "delete subnet subnet s1"}, 0},
		{"rules that change places", "Neutron refuses a rule that is there already", plan.Input{
			Desired:  []plan.Desired{{Kind: drivers.KindSecurityGroupRule, Identity: named("new"), Attrs: ruleSpec}},
			Observed: []plan.Observed{rule}, Prune: true,
		}, []string{"create security_group_rule new gone(u1)", "delete security_group_rule rule u1"}, 0},
		{
			"interface", "a port, then attached",
			plan.Input{Desired: []plan.Desired{wantRif}, Resolve: refs(there)},
			[]string{"create router_interface rif.if", "attach router_interface rif.if ..."},
			0,
		},
		{
			"interface, made", "a crash between the two is repaired",
			plan.Input{Desired: []plan.Desired{wantRif}, Observed: []plan.Observed{loose}, Resolve: refs(there)},
			[]string{"attach router_interface rif.if p1"},
			0,
		},
		{"interface, other router", "it moves", plan.Input{
			Desired: []plan.Desired{wantRif}, Observed: []plan.Observed{rif}, Prune: true,
			Resolve: refs(map[string]any{"network": "n1", "router": "r2", "subnet": "s1", "subnet.gateway_ip": "10.0.0.1"}),
		}, []string{
			"create router_interface rif.if gone(p1)", "attach router_interface rif.if ...", "detach router_interface rif.if p1",
		}, 0},
		{"full", "one more is made", plan.Input{
			Desired: []plan.Desired{
				{
					Kind: drivers.KindSubnet, Identity: named("subnet"), Attrs: subnetSpec, Expand: 3,
					Hints: neutron.SubnetHints{Full: true},
				},
			},
			Observed: []plan.Observed{subnet, second}, Resolve: refs(there), Prune: true,
		}, []string{"create subnet subnet.3"}, 0},
		{"full at the bound", "no more than expand", plan.Input{
			Desired: []plan.Desired{
				{
					Kind: drivers.KindSubnet, Identity: named("subnet"), Attrs: subnetSpec, Expand: 2,
					Hints: neutron.SubnetHints{Full: true},
				},
			},
			Observed: []plan.Observed{subnet, second}, Resolve: refs(there), Prune: true,
		}, nil, 0},
		{"bound lowered", "there may be pods in it", plan.Input{
			Desired:  []plan.Desired{{Kind: drivers.KindSubnet, Identity: named("subnet"), Attrs: subnetSpec}},
			Observed: []plan.Observed{subnet, second}, Resolve: refs(there), Prune: true,
		}, nil, 0},
		{
			"base gone", "the further ones go with it",
			plan.Input{Observed: []plan.Observed{second}, Prune: true},
			[]string{"delete subnet subnet.2 s2"},
			0,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p := kinds.Compute(tc.in)
			if diff := cmp.Diff(tc.want, flat(p)); diff != "" || p.Held != tc.held {
				t.Errorf("%s; held %d, want %d (-want +got):\n%s", tc.reason, p.Held, tc.held, diff)
			}
		})
	}
}

// A port of a replaced network keeps its floating IP until that is wanted no more: Neutron takes it off by itself.
func TestFloatingIPBeforePort(t *testing.T) {
	p := made(drivers.KindPort, named("port"), "p1", nil)
	fip := made(drivers.KindFloatingIP, named("fip"), "f1", map[string]any{"port_id": "p1", "floating_network_id": "x"})
	in := plan.Input{
		Observed: []plan.Observed{p, fip}, Prune: true, Dependants: uses(map[string][]plan.Observed{"p1": {fip}}),
	}
	if diff := cmp.Diff([]string{"delete floatingip fip f1", "delete port port p1 gone(f1)"},
		flat(kinds.Compute(in))); diff != "" {
		t.Error(diff)
	}
	in.Desired = []plan.Desired{
		{Kind: drivers.KindFloatingIP, Identity: named("fip"), Attrs: map[string]any{"floating_network_id": "x"}},
	}
	if diff := cmp.Diff([]string{"delete port port p1"}, flat(kinds.Compute(in))); diff != "" {
		t.Error(diff)
	}
}

// A policy changes in steps that each leave a proof, and after the last there is nothing to do.
func TestPolicyChange(t *testing.T) {
	for _, policy := range []drivers.Policy{drivers.Retain, drivers.Delete} {
		for _, removes := range []bool{true, false} {
			old := named("network")
			if policy == drivers.Delete {
				old.Policy = drivers.Retain
			}
			o := made(drivers.KindNetwork, old, "n1", map[string]any{"name": "x"})
			o.Description += " ticket 7"
			c := &cloud{resources: map[string]*plan.Observed{"n1": &o}}
			want := old
			want.Policy = policy
			var ops []plan.Op
			for range 5 {
				p := kinds.Compute(plan.Input{
					Desired: []plan.Desired{{Kind: drivers.KindNetwork, Identity: want}}, Observed: c.owned(old.Owner), Prune: true,
				})
				for _, s := range p.Steps {
					if !removes {
						delete(s.Attrs, "remove")
					}
					ops = append(ops, s.Op)
					if err := c.apply(s); err != nil {
						t.Fatal(err)
					}
				}
			}
			if diff := cmp.Diff([]plan.Op{plan.Update, plan.Tag}, ops); diff != "" || o.Identity.Policy != policy {
				t.Errorf("to %s: policy %s (-want +got):\n%s", policy, o.Identity.Policy, diff)
			}
			if !strings.HasSuffix(o.Description, " ticket 7") {
				t.Errorf("the operator's words are gone: %q", o.Description)
			}
		}
	}
}

// The body of a create is what Neutron takes.
func TestCreateBody(t *testing.T) {
	for _, tc := range []struct {
		name, reason string
		spec         drivers.Spec
		want         map[string]any
	}{
		{
			"port", "a second create of it is refused",
			drivers.Port{NetworkID: drivers.Text("n")},
			map[string]any{"network_id": "n", "mac_address": neutron.MAC(named("x"))},
		},
		{
			"port with MAC", "the driver's own counts",
			drivers.Port{NetworkID: drivers.Text("n"), MACAddress: text("02:00:00:00:00:01")},
			map[string]any{"network_id": "n", "mac_address": "02:00:00:00:00:01"},
		},
		{
			"no gateway", "Neutron refuses an empty address",
			drivers.Subnet{GatewayIP: text("")},
			map[string]any{"gateway_ip": nil},
		},
		{
			"router without gateway", "that is how a router begins",
			drivers.Router{ExternalGateway: &drivers.ExternalGateway{}},
			map[string]any{},
		},
		{
			"long name", "Neutron's bound, in characters",
			drivers.Network{Name: text(strings.Repeat("ü", 300))},
			map[string]any{"name": strings.Repeat("ü", 255)},
		},
		{"interface", "it is a port", drivers.RouterInterface{
			RouterID: drivers.Text("r"), NetworkID: drivers.Text("n"), SubnetID: drivers.Text("s"),
			IPAddress: drivers.Text("10.0.0.1"),
		}, map[string]any{
			"network_id": "n", "fixed_ips": []any{map[string]any{"subnet_id": "s", "ip_address": "10.0.0.1"}},
			"mac_address": neutron.MAC(named("rif.x")),
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p := kinds.Compute(plan.Input{
				Desired: []plan.Desired{{Kind: tc.spec.Kind(), Identity: named("x"), Attrs: drivers.Attributes(tc.spec)}},
			})
			if diff := cmp.Diff(tc.want, p.Steps[0].Attrs); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

func BenchmarkCompute(b *testing.B) {
	spec := drivers.Port{
		Name: text("pod"), NetworkID: drivers.From("network"), DeviceOwner: text("compute:kuryr"), HostID: text("node-1"),
		DeviceID:     text(testUID),
		AdminStateUp: func() *bool { t := true; return &t }(), SecurityGroups: []drivers.Value{drivers.From("group")},
		FixedIPs: []drivers.FixedIP{{SubnetID: drivers.From("subnet")}},
	}
	o := made(drivers.KindPort, port(), "p1", map[string]any{
		"name": "pod", "network_id": "n1", "device_owner": "compute:kuryr", "binding:host_id": "node-1", "device_id": testUID,
		"admin_state_up": true, "security_groups": []any{"g1"}, "mac_address": "02:00:00:00:00:01",
		"fixed_ips": []any{map[string]any{"subnet_id": "s1", "ip_address": "10.0.0.7"}},
	})
	in := plan.Input{
		Observed: []plan.Observed{o}, Prune: true,
		Resolve: refs(map[string]any{"network": "n1", "subnet": "s1", "group": "g1"}),
	}
	b.Run("steady", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			in.Desired = []plan.Desired{{Kind: drivers.KindPort, Identity: port(), Attrs: drivers.Attributes(spec)}}
			if p := kinds.Compute(in); len(p.Steps) != 0 {
				b.Fatal(p)
			}
		}
	})
	b.Run("create", func(b *testing.B) {
		in.Observed = nil
		b.ReportAllocs()
		for b.Loop() {
			in.Desired = []plan.Desired{{Kind: drivers.KindPort, Identity: port(), Attrs: drivers.Attributes(spec)}}
			if p := kinds.Compute(in); len(p.Steps) != 1 {
				b.Fatal(p)
			}
		}
	})
}
