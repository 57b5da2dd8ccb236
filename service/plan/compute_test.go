package plan

import (
	"maps"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kuryr/raven/drivers"
)

// made returns a resource as Neutron shows it after it was made for id.
func made(kind drivers.Kind, id Identity, cloudID string, attrs map[string]any) Observed {
	return Observed{
		Kind: kind, ID: cloudID, Identity: id, Managed: true, Attrs: attrs, Revision: 3, Tags: id.Tags(), Description: id.Description(),
		CreatedAt: "2026-01-01T00:00:01Z",
	}
}

func named(name string) Identity {
	id := port()
	id.Name = name
	return id
}

func retained(id Identity) Identity { id.Policy = drivers.Retain; return id }

func with(o Observed, change func(*Observed)) Observed { change(&o); return o }

// flat shows steps as lines of op, kind, name, id, and what they wait for.
func flat(p Plan) []string {
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

func uses(users map[string][]Observed) func(drivers.Kind, string) []Observed {
	return func(_ drivers.Kind, id string) []Observed { return users[id] }
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
		"network_id": "n1", "ip_version": float64(4), "subnetpool_id": "pool", "name": "web", "cidr": "10.0.0.0/24", "gateway_ip": "10.0.0.1",
	})
	second := with(subnet, func(o *Observed) {
		o.ID, o.Identity, o.Attrs = "s2", named("subnet.2"), maps.Clone(o.Attrs)
		o.Tags, o.Attrs["name"] = o.Identity.Tags(), "web.2"
	})
	rif := made(drivers.KindPort, named("rif.if"), "p1", map[string]any{
		"network_id": "n1", "device_id": "r1", "device_owner": "network:router_interface_distributed",
		"fixed_ips": []any{map[string]any{"subnet_id": "s1", "ip_address": "10.0.0.1"}},
	})
	loose := with(rif, func(o *Observed) {
		o.Attrs = maps.Clone(o.Attrs)
		o.Attrs["device_id"], o.Attrs["device_owner"] = "", ""
	})
	group := made(drivers.KindSecurityGroup, named("group"), "g1", map[string]any{"name": "web"})
	rule := made(drivers.KindSecurityGroupRule, named("rule"), "u1", map[string]any{
		"security_group_id": "g1", "direction": "ingress", "ethertype": "IPv4", "protocol": nil,
	})
	podPort := made(drivers.KindPort, Identity{Cluster: testCluster, Owner: Owner{"pod", "other"}, Name: "port"}, "pp", nil)
	wantNetwork := Desired{Kind: drivers.KindNetwork, Identity: named("network"), Attrs: networkSpec}
	wantSubnet := Desired{Kind: drivers.KindSubnet, Identity: named("subnet"), Attrs: subnetSpec, Expand: 3}
	wantRif := Desired{Kind: drivers.KindRouterInterface, Identity: named("rif.if"), Attrs: rifSpec}
	wantNewPool := Desired{Kind: drivers.KindSubnet, Identity: named("subnet"), Attrs: maps.Clone(subnetSpec)}
	wantNewPool.Attrs["subnetpool_id"] = "other"
	wantRule := Desired{Kind: drivers.KindSecurityGroupRule, Identity: named("rule"), Attrs: ruleSpec}
	there := map[string]any{"network": "n1", "router": "r1", "subnet": "s1", "subnet.gateway_ip": "10.0.0.1"}
	younger := with(network, func(o *Observed) { o.ID, o.CreatedAt = "n0", "2026-01-02T00:00:00Z" })

	for _, tc := range []struct {
		name, reason string
		in           Input
		want         []string
		held         int
	}{
		{"missing", "what is wanted and not there is made", Input{Desired: []Desired{wantNetwork}}, []string{"create network network"}, 0},
		{
			"missing refs", "a create shows all that it waits for",
			Input{Desired: []Desired{wantNetwork, wantSubnet}},
			[]string{"create network network", `create subnet subnet after(id of "network")`},
			0,
		},
		{"after", "order is kept where no attribute says it", Input{Desired: []Desired{{
			Kind: drivers.KindNetwork, Identity: named("network"), Attrs: networkSpec, After: []drivers.Ref{{Role: &drivers.Role{Role: "x"}}},
		}}}, []string{"create network network after(id of the x of the cluster)"}, 0},
		{"steady", "a second look finds nothing", Input{
			Desired: []Desired{wantNetwork, wantSubnet, wantRif, wantRule}, Observed: []Observed{network, subnet, rif, rule},
			Resolve: refs(there), Prune: true,
		}, nil, 0},
		{"lookup", "what an operator named is never changed", Input{Desired: []Desired{{Kind: drivers.KindLookup, Identity: named("x")}}}, nil, 0},
		{"unwanted", "what nobody wants goes", Input{Observed: []Observed{network}, Prune: true}, []string{"delete network network n1"}, 0},
		{"held", "not all opinions are in", Input{Observed: []Observed{network}}, nil, 1},
		{"retained", "retain is never deleted", Input{
			Observed: []Observed{with(network, func(o *Observed) { o.Identity.Policy = drivers.Retain })}, Prune: true,
		}, nil, 0},
		{"foreign", "what has no identity of ours is never touched", Input{
			Observed: []Observed{with(network, func(o *Observed) { o.Managed = false })}, Prune: true,
		}, nil, 0},
		{"other cluster", "a caller's mistake deletes nothing of another cluster", Input{
			Desired:  []Desired{wantNetwork},
			Observed: []Observed{network, with(younger, func(o *Observed) { o.Identity.Cluster = "other" })}, Prune: true,
		}, nil, 0},
		{"unwanted in order", "nothing is deleted under its users", Input{
			Observed: []Observed{network, subnet, rif}, Prune: true,
			Dependants: uses(map[string][]Observed{"n1": {subnet, rif, podPort}, "s1": {rif, podPort}}),
		}, []string{
			"detach router_interface rif.if p1", "delete subnet subnet s1 gone(p1) gone(pp)", "delete network network n1 gone(p1) gone(pp) gone(s1)",
		}, 0},
		{
			"unwanted interface, loose", "a port at no router is deleted as a port",
			Input{Observed: []Observed{loose}, Prune: true},
			[]string{"delete router_interface rif.if p1"},
			0,
		},
		{"unwanted group", "rules go with their group", Input{
			Observed: []Observed{group, rule}, Prune: true, Dependants: uses(map[string][]Observed{"g1": {rule, podPort}}),
		}, []string{"delete security_group group g1 gone(pp)"}, 0},
		{"retained rule", "what is retained is not deleted by way of its group", Input{
			Observed: []Observed{group, with(rule, func(o *Observed) { o.Identity.Policy = drivers.Retain })}, Prune: true,
			Dependants: uses(map[string][]Observed{"g1": {with(rule, func(o *Observed) { o.Identity.Policy = drivers.Retain })}}),
		}, []string{"delete security_group group g1 gone(u1)"}, 0},
		{
			"twins", "the oldest is kept",
			Input{Desired: []Desired{wantNetwork}, Observed: []Observed{younger, network}, Prune: true},
			[]string{"delete network network n0"},
			0,
		},
		{"twins, one used", "the one in use is kept", Input{
			Desired: []Desired{wantNetwork}, Observed: []Observed{younger, network}, Prune: true,
			Dependants: uses(map[string][]Observed{"n0": {subnet}}),
		}, []string{"delete network network n1"}, 0},
		{"twins, both used", "what is in use is not deleted", Input{
			Desired: []Desired{wantNetwork}, Observed: []Observed{younger, network}, Prune: true,
			Dependants: uses(map[string][]Observed{"n0": {subnet}, "n1": {subnet}}),
		}, []string{"delete network network n0 gone(s1)"}, 0},
		{"twins, held", "not all opinions are in", Input{Desired: []Desired{wantNetwork}, Observed: []Observed{younger, network}}, nil, 1},
		{"ref to the wrong twin", "refs follow to the one that is kept", Input{
			Desired: []Desired{wantNetwork, wantSubnet}, Observed: []Observed{younger, network, subnet}, Prune: true,
			Resolve: refs(map[string]any{"network": "n0"}), Dependants: uses(map[string][]Observed{"n1": {subnet}}),
		}, []string{"delete network network n0"}, 0},
		{"untagged", "the other proof is added", Input{
			Desired: []Desired{wantNetwork}, Observed: []Observed{with(network, func(o *Observed) { o.Tags = []string{"theirs"} })},
		}, []string{"tag network network n1"}, 0},
		{"edited description", "an operator's words stay", Input{
			Desired: []Desired{wantNetwork}, Observed: []Observed{with(network, func(o *Observed) { o.Description = "theirs" })},
		}, nil, 0},
		{"rule without tags", "rules have no tags", Input{
			Desired: []Desired{wantRule}, Observed: []Observed{with(rule, func(o *Observed) { o.Tags = nil })},
		}, nil, 0},
		{"immutable", "the old one goes first", Input{
			Desired: []Desired{wantSubnet}, Observed: []Observed{subnet}, Prune: true, Resolve: refs(map[string]any{"network": "n2"}),
		}, []string{"create subnet subnet gone(s1)", "delete subnet subnet s1"}, 0},
		{"immutable, used", "what hangs on it goes and comes with it", Input{
			Desired: []Desired{wantSubnet, wantRif}, Observed: []Observed{subnet, rif}, Prune: true,
			Resolve:    refs(map[string]any{"network": "n2", "router": "r1", "subnet": "s1", "subnet.gateway_ip": "10.0.0.1"}),
			Dependants: uses(map[string][]Observed{"s1": {rif}}),
		}, []string{
			"create subnet subnet gone(s1)", `create router_interface rif.if gone(p1) after(id of "subnet")`,
			"attach router_interface rif.if ...", "detach router_interface rif.if p1", "delete subnet subnet s1 gone(p1)",
		}, 0},
		{"immutable, used by others", "pods keep their gateway for as long as they keep the subnet", Input{
			Desired: []Desired{wantNewPool, wantRif}, Observed: []Observed{subnet, rif}, Prune: true, Resolve: refs(there),
			Dependants: uses(map[string][]Observed{"s1": {rif, podPort}}),
		}, []string{
			"create subnet subnet gone(s1)", `create router_interface rif.if gone(p1) after(id of "subnet")`,
			"attach router_interface rif.if ...", "detach router_interface rif.if p1 gone(pp)", "delete subnet subnet s1 gone(p1) gone(pp)",
		}, 0},
		{"immutable, used by others no more", "then all of it goes", Input{
			Desired: []Desired{wantNewPool, wantRif}, Observed: []Observed{subnet, rif}, Prune: true, Resolve: refs(there),
			Dependants: uses(map[string][]Observed{"s1": {rif}}),
		}, []string{
			"create subnet subnet gone(s1)", `create router_interface rif.if gone(p1) after(id of "subnet")`,
			"attach router_interface rif.if ...", "detach router_interface rif.if p1", "delete subnet subnet s1 gone(p1)",
		}, 0},
		{"immutable by two ways, used by others", "it could not come back before the subnet does", Input{
			Desired: []Desired{wantSubnet, wantRif}, Observed: []Observed{subnet, rif}, Prune: true,
			Resolve:    refs(map[string]any{"network": "n2", "router": "r1", "subnet": "s1", "subnet.gateway_ip": "10.0.0.1"}),
			Dependants: uses(map[string][]Observed{"s1": {rif, podPort}}),
		}, []string{
			"create subnet subnet gone(s1)", `create router_interface rif.if gone(p1) after(id of "subnet")`,
			"attach router_interface rif.if ...", "detach router_interface rif.if p1 gone(pp)", "delete subnet subnet s1 gone(p1) gone(pp)",
		}, 0},
		{"gone network, clinging subnet", "the subnet and its gateway wait for the pods on the network", Input{
			Desired: []Desired{wantSubnet, wantRif}, Observed: []Observed{network, subnet, rif}, Prune: true,
			Resolve:    refs(map[string]any{"router": "r1", "subnet": "s1", "subnet.gateway_ip": "10.0.0.1"}),
			Dependants: uses(map[string][]Observed{"n1": {subnet, podPort}, "s1": {rif}}),
		}, []string{
			`create subnet subnet gone(s1) after(id of "network")`,
			`create router_interface rif.if gone(p1) after(id of "network") after(id of "subnet")`,
			"attach router_interface rif.if ...", "detach router_interface rif.if p1 gone(pp)", "delete subnet subnet s1 gone(p1) gone(pp)",
			"delete network network n1 gone(pp) gone(s1)",
		}, 0},
		{"gone subnet, clinging", "there is nothing to move to yet", Input{
			Desired: []Desired{wantRif}, Observed: []Observed{subnet, rif}, Prune: true,
			Resolve:    refs(map[string]any{"network": "n1", "router": "r1"}),
			Dependants: uses(map[string][]Observed{"s1": {rif, podPort}}),
		}, []string{
			`create router_interface rif.if gone(p1) after(gateway_ip of "subnet") after(id of "subnet")`,
			"attach router_interface rif.if ...", "detach router_interface rif.if p1 gone(pp)", "delete subnet subnet s1 gone(p1) gone(pp)",
		}, 0},
		{"immutable, held", "not all opinions are in", Input{
			Desired: []Desired{wantSubnet}, Observed: []Observed{subnet}, Resolve: refs(map[string]any{"network": "n2"}),
		}, []string{"create subnet subnet gone(s1)"}, 1},
		{"immutable, retained", "retain is never deleted, not even to be replaced", Input{
			Desired:  []Desired{{Kind: drivers.KindSubnet, Identity: retained(named("subnet")), Attrs: subnetSpec}},
			Observed: []Observed{with(subnet, func(o *Observed) { o.Identity = retained(o.Identity); o.Tags = o.Identity.Tags() })}, Prune: true,
			Resolve: refs(map[string]any{"network": "n2"}),
		}, []string{"create subnet subnet gone(s1)"}, 0},
		{"unknown ref of what exists", "it is not known to differ, so it stays", Input{
			Desired: []Desired{wantSubnet}, Observed: []Observed{subnet}, Prune: true,
		}, []string{`update subnet subnet s1 after(id of "network")`}, 0},
		{"renamed range", "the new one cannot be made beside the old one", Input{
			Desired:  []Desired{{Kind: drivers.KindSubnet, Identity: named("new"), Attrs: map[string]any{"network_id": "n1", "cidr": "10.0.0.0/16"}}},
			Observed: []Observed{subnet}, Prune: true,
		}, []string{"create subnet new gone(s1)", "delete subnet subnet s1"}, 0},
		{"rules that change places", "Neutron refuses a rule that is there already", Input{
			Desired:  []Desired{{Kind: drivers.KindSecurityGroupRule, Identity: named("new"), Attrs: ruleSpec}},
			Observed: []Observed{rule}, Prune: true,
		}, []string{"create security_group_rule new gone(u1)", "delete security_group_rule rule u1"}, 0},
		{
			"interface", "a port, then attached",
			Input{Desired: []Desired{wantRif}, Resolve: refs(there)},
			[]string{"create router_interface rif.if", "attach router_interface rif.if ..."},
			0,
		},
		{
			"interface, made", "a crash between the two is mended",
			Input{Desired: []Desired{wantRif}, Observed: []Observed{loose}, Resolve: refs(there)},
			[]string{"attach router_interface rif.if p1"},
			0,
		},
		{"interface, other router", "it moves", Input{
			Desired: []Desired{wantRif}, Observed: []Observed{rif}, Prune: true,
			Resolve: refs(map[string]any{"network": "n1", "router": "r2", "subnet": "s1", "subnet.gateway_ip": "10.0.0.1"}),
		}, []string{
			"create router_interface rif.if gone(p1)", "attach router_interface rif.if ...", "detach router_interface rif.if p1",
		}, 0},
		{"full", "one more is made", Input{
			Desired:  []Desired{{Kind: drivers.KindSubnet, Identity: named("subnet"), Attrs: subnetSpec, Expand: 3, Full: true}},
			Observed: []Observed{subnet, second}, Resolve: refs(there), Prune: true,
		}, []string{"create subnet subnet.3"}, 0},
		{"full at the bound", "no more than expand", Input{
			Desired:  []Desired{{Kind: drivers.KindSubnet, Identity: named("subnet"), Attrs: subnetSpec, Expand: 2, Full: true}},
			Observed: []Observed{subnet, second}, Resolve: refs(there), Prune: true,
		}, nil, 0},
		{"bound lowered", "there may be pods in it", Input{
			Desired:  []Desired{{Kind: drivers.KindSubnet, Identity: named("subnet"), Attrs: subnetSpec}},
			Observed: []Observed{subnet, second}, Resolve: refs(there), Prune: true,
		}, nil, 0},
		{"base gone", "the further ones go with it", Input{Observed: []Observed{second}, Prune: true}, []string{"delete subnet subnet.2 s2"}, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p := Compute(tc.in)
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
	in := Input{Observed: []Observed{p, fip}, Prune: true, Dependants: uses(map[string][]Observed{"p1": {fip}})}
	if diff := cmp.Diff([]string{"delete floatingip fip f1", "delete port port p1 gone(f1)"}, flat(Compute(in))); diff != "" {
		t.Error(diff)
	}
	in.Desired = []Desired{{Kind: drivers.KindFloatingIP, Identity: named("fip"), Attrs: map[string]any{"floating_network_id": "x"}}}
	if diff := cmp.Diff([]string{"delete port port p1"}, flat(Compute(in))); diff != "" {
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
			c := &cloud{resources: map[string]*Observed{"n1": &o}}
			want := old
			want.Policy = policy
			var ops []Op
			for range 5 {
				p := Compute(Input{Desired: []Desired{{Kind: drivers.KindNetwork, Identity: want}}, Observed: c.owned(old.Owner), Prune: true})
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
			if diff := cmp.Diff([]Op{Update, Tag}, ops); diff != "" || o.Identity.Policy != policy {
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
			map[string]any{"network_id": "n", "mac_address": MAC(named("x"))},
		},
		{
			"port with MAC", "the driver's own counts",
			drivers.Port{NetworkID: drivers.Text("n"), MACAddress: text("02:00:00:00:00:01")},
			map[string]any{"network_id": "n", "mac_address": "02:00:00:00:00:01"},
		},
		{"no gateway", "Neutron refuses an empty address", drivers.Subnet{GatewayIP: text("")}, map[string]any{"gateway_ip": nil}},
		{"router without gateway", "that is how a router begins", drivers.Router{ExternalGateway: &drivers.ExternalGateway{}}, map[string]any{}},
		{
			"long name", "Neutron's bound, in characters",
			drivers.Network{Name: text(strings.Repeat("ü", 300))},
			map[string]any{"name": strings.Repeat("ü", 255)},
		},
		{"interface", "it is a port", drivers.RouterInterface{
			RouterID: drivers.Text("r"), NetworkID: drivers.Text("n"), SubnetID: drivers.Text("s"), IPAddress: drivers.Text("10.0.0.1"),
		}, map[string]any{
			"network_id": "n", "fixed_ips": []any{map[string]any{"subnet_id": "s", "ip_address": "10.0.0.1"}}, "mac_address": MAC(named("rif.x")),
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p := Compute(Input{Desired: []Desired{{Kind: tc.spec.Kind(), Identity: named("x"), Attrs: drivers.Attributes(tc.spec)}}})
			if diff := cmp.Diff(tc.want, p.Steps[0].Attrs); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

func BenchmarkCompute(b *testing.B) {
	spec := drivers.Port{
		Name: text("pod"), NetworkID: drivers.From("network"), DeviceOwner: text("compute:kuryr"), HostID: text("node-1"), DeviceID: text(testUID),
		AdminStateUp: func() *bool { t := true; return &t }(), SecurityGroups: []drivers.Value{drivers.From("group")},
		FixedIPs: []drivers.FixedIP{{SubnetID: drivers.From("subnet")}},
	}
	o := made(drivers.KindPort, port(), "p1", map[string]any{
		"name": "pod", "network_id": "n1", "device_owner": "compute:kuryr", "binding:host_id": "node-1", "device_id": testUID,
		"admin_state_up": true, "security_groups": []any{"g1"}, "mac_address": "02:00:00:00:00:01",
		"fixed_ips": []any{map[string]any{"subnet_id": "s1", "ip_address": "10.0.0.7"}},
	})
	in := Input{Observed: []Observed{o}, Prune: true, Resolve: refs(map[string]any{"network": "n1", "subnet": "s1", "group": "g1"})}
	b.Run("steady", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			in.Desired = []Desired{{Kind: drivers.KindPort, Identity: port(), Attrs: drivers.Attributes(spec)}}
			if p := Compute(in); len(p.Steps) != 0 {
				b.Fatal(p)
			}
		}
	})
	b.Run("create", func(b *testing.B) {
		in.Observed = nil
		b.ReportAllocs()
		for b.Loop() {
			in.Desired = []Desired{{Kind: drivers.KindPort, Identity: port(), Attrs: drivers.Attributes(spec)}}
			if p := Compute(in); len(p.Steps) != 1 {
				b.Fatal(p)
			}
		}
	})
}
