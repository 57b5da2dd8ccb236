// SPDX-License-Identifier: Apache-2.0

package drivers

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestValidate(t *testing.T) {
	info := Info{Annotations: []string{"kuryr.org/neutron-port"}, Status: []string{StatusLoadBalancer}}
	info.Kinds = slices.DeleteFunc(Kinds(), func(k Kind) bool { return k == KindFloatingIP })
	network := Resource{Name: "network", Spec: Network{}}
	subnet := Resource{
		Name: "subnet", Spec: Subnet{NetworkID: From("network"), IPVersion: ptr(int64(4)), SubnetPoolID: Text("p")},
		Expand: 3,
	}
	full := func() LoadBalancer {
		return LoadBalancer{
			VIPSubnetID: From("subnet"), VIPAddress: ptr("10.0.0.9"),
			AdditionalVIPs: []AdditionalVIP{{SubnetID: From("subnet")}},
			Listeners: []Listener{
				{Name: "a:TCP:80", Protocol: ptr("TCP"), ProtocolPort: ptr(int64(80)), DefaultPool: "a:TCP:80"},
			},
			Pools: []Pool{{
				Name: "a:TCP:80", Protocol: ptr("TCP"), LBAlgorithm: ptr("ROUND_ROBIN"), HealthMonitor: &HealthMonitor{},
				Members: []Member{{Address: "10.0.1.4", ProtocolPort: ptr(int64(8080)), SubnetID: From("subnet")}},
			}},
		}
	}
	broken := func(breaking func(*LoadBalancer)) Set {
		balancer := full()
		breaking(&balancer)
		return Set{Resources: []Resource{network, subnet, {Name: "x", Spec: balancer}}}
	}
	one := func(r Resource) Set { return Set{Resources: []Resource{network, subnet, r}} }
	spec := func(s Spec) Set { return one(Resource{Name: "x", Spec: s}) }
	role := Role{Kind: "Namespace", Name: "web", Role: PodNetwork}
	ovn := func(vips ...OVNVIP) Set {
		return spec(OVNLoadBalancer{
			GroupID: FromRole(Role{Kind: "Namespace", Name: "web", Role: ServiceLoadBalancerGroup}), VIPs: vips,
		})
	}
	vip := func(breaking func(*OVNVIP)) OVNVIP {
		v := OVNVIP{
			Protocol: "TCP", Address: Text("10.0.0.9"), Port: 80, Backends: []OVNBackend{{Address: "10.0.1.4", Port: 8080}},
		}
		breaking(&v)
		return v
	}
	for _, tc := range []struct {
		name, reason string
		set          Set
		want         []string // what the problems name; nil: none
	}{
		{"nothing", "the zero Set is a wish too", Set{}, nil},
		{
			"fine", "nothing is wrong",
			one(Resource{Name: "port", Spec: Port{NetworkID: FromRole(role)}, Exports: []string{"a"}, OnDelete: Retain}), nil,
		},
		{
			"all at once", "an author fixes all of them at once",
			Set{Resources: []Resource{{Name: "", Spec: Port{}}, {Name: "y"}}},
			[]string{"name is empty", "network_id must be set", `resource "y": spec is not set`},
		},
		{"name twice", "identity rests on it", one(network), []string{`resource "network": its name is there twice`}},
		{"rif name", "it is kept", one(Resource{Name: "rif.x", Spec: Network{}}), []string{`"rif."`}},
		{"tilde", "it is kept", one(Resource{Name: "a~b", Spec: Network{}}), []string{"'~'"}},
		{
			"name of an expansion", "it is kept", one(Resource{Name: "subnet.2", Spec: Network{}}),
			[]string{`further subnet of "subnet"`},
		},
		{"dotted name", "only expansions are kept", one(Resource{Name: "network.2", Spec: Network{}}), nil},
		{
			"kind not declared", "a driver's authority is what it declares", spec(FloatingIP{FloatingNetworkID: Text("x")}),
			[]string{"floatingip"},
		},
		{
			"dangling ref", "it would wait for ever", spec(Port{NetworkID: From("nowhere")}),
			[]string{`network_id: refers to "nowhere"`},
		},
		{
			"deep dangling ref", "it would wait for ever",
			spec(Port{NetworkID: From("network"), FixedIPs: []FixedIP{{SubnetID: From("nowhere")}}}),
			[]string{`fixed_ips: subnet_id: refers to "nowhere"`},
		},
		{
			"dangling after", "it would wait for ever",
			one(Resource{Name: "x", Spec: Network{}, After: []Ref{{Name: "nowhere"}}}),
			[]string{"after"},
		},
		{
			"no such attribute", "it would wait for ever", spec(Port{NetworkID: From("subnet", "netwrok_id")}),
			[]string{`no attribute "netwrok_id"`},
		},
		{
			"ref of both", "it is not clear which counts",
			spec(Port{NetworkID: Value{Ref: &Ref{Name: "network", Role: &role}}}),
			[]string{"either"},
		},
		{
			"half a role", "it names nobody", spec(Port{NetworkID: FromRole(Role{Kind: "Pod", Role: "r"})}),
			[]string{"source object"},
		},
		{"cycle", "each would wait for the other", Set{Resources: []Resource{
			{Name: "a", Spec: Network{}, After: []Ref{{Name: "b"}}},
			{Name: "b", Spec: Subnet{NetworkID: From("a"), IPVersion: ptr(int64(4)), CIDR: ptr("10.0.0.0/8")}},
		}}, []string{"a → b → a"}},
		{"export twice", "a role names one resource", Set{Resources: []Resource{
			{Name: "a", Spec: Network{}, Exports: []string{"r"}}, {Name: "b", Spec: Network{}, Exports: []string{"r"}},
		}}, []string{`role "r"`}},
		{
			"claim of a private one", "other claimants do not have it",
			one(Resource{Name: "x", Claim: "x", Spec: Port{NetworkID: From("network")}}),
			[]string{"claimed resource"},
		},
		{"policy", "there are two", one(Resource{Name: "x", Spec: Network{}, OnDelete: "keep"}), []string{"on_delete"}},
		{
			"expand a network", "only subnets fill up", one(Resource{Name: "x", Spec: Network{}, Expand: 2}), []string{"expand"},
		},
		{"expand a fixed range", "a second one would overlap", one(Resource{
			Name: "x", Expand: 2,
			Spec: Subnet{NetworkID: From("network"), IPVersion: ptr(int64(4)), CIDR: ptr("10.0.0.0/8")},
		}), []string{"expand"}},
		{
			"no range", "Neutron would refuse it", spec(Subnet{NetworkID: From("network"), IPVersion: ptr(int64(5))}),
			[]string{"ip_version", "cidr or"},
		},
		{
			"range of the other version", "Neutron would refuse it",
			spec(Subnet{NetworkID: From("network"), IPVersion: ptr(int64(6)), CIDR: ptr("10.0.0.0/8")}),
			[]string{"no IPv6 range"},
		},
		{
			"bad texts", "Neutron would refuse them", spec(Port{
				NetworkID: From("network"), MACAddress: ptr("x"), FixedIPs: []FixedIP{{IPAddress: "10.0.0.0/8"}},
				AllowedAddressPairs: []AddressPair{{IPAddress: "10.0.0.1/8"}}, SecurityGroups: []Value{{}},
			}),
			[]string{"mac_address", "security_groups[0]", "fixed_ips[0]"},
		},
		{
			"output not declared", "a driver's authority is what it declares",
			Set{
				Outputs: []Output{
					{Kind: Annotation, Key: "other", Text: Text("x")}, {Kind: Label, Key: "kuryr.org/neutron-port", Text: Text("x")},
				},
			},
			[]string{`"other"`, "output label"},
		},
		{
			"output of nowhere", "it would wait for ever",
			Set{Outputs: []Output{{Kind: Annotation, Key: "kuryr.org/neutron-port", Document: &Ref{Name: "p"}}}},
			[]string{"document"},
		},
		{"subnets of a port", "only ports have them", Set{Resources: []Resource{network}, Outputs: []Output{
			{Kind: Annotation, Key: "kuryr.org/neutron-port", Document: &Ref{Name: "network", Attribute: "subnets"}},
		}}, []string{"only a port"}},
		{"contribution", "it adds one fitting element", Set{Contributions: []Contribution{
			{Name: "c", Target: role, Attribute: "routes", AddressPair: &AddressPair{IPAddress: "10.0.0.1"}},
			{Name: "c", Target: role, Attribute: "name"},
		}}, []string{"one for routes", "there twice", `contributed to "name"`}},
		{
			"group with default rules", "it is what an unset field gives",
			Set{Resources: []Resource{
				{Name: "network", Spec: SecurityGroup{DefaultRules: new(true)}},
				{Name: "bare", Spec: SecurityGroup{DefaultRules: new(false)}},
			}},
			[]string{"only false"},
		},
		{
			"soft refs", "only an element of a list can be left out",
			Set{
				Resources: []Resource{
					{
						Name: "network", Spec: Port{NetworkID: Soft(role), SecurityGroups: []Value{Soft(role)}},
						After: []Ref{{Role: &role, Soft: true}},
					},
					{
						Name: "named",
						Spec: Port{NetworkID: FromRole(role), SecurityGroups: []Value{{Ref: &Ref{Name: "network", Soft: true}}}},
					},
				},
				Contributions: []Contribution{
					{Name: "c", Target: role, Attribute: "security_groups", SecurityGroup: Soft(role)},
				},
			},
			[]string{
				`"network": network_id: a soft ref`, `"network": after: a soft ref`, `"named": security_groups: a soft ref`,
				`contribution "c": security_groups: a soft ref`,
			},
		},
		{"load balancer", "nothing is wrong", broken(func(*LoadBalancer) {}), nil},
		{
			"no VIP", "Octavia would refuse it", broken(func(b *LoadBalancer) { b.VIPSubnetID = Value{} }),
			[]string{"vip_subnet_id"},
		},
		{
			"listener to nowhere", "Octavia would refuse it", broken(func(b *LoadBalancer) { b.Pools = nil }),
			[]string{"not among the pools"},
		},
		{
			"two on one port", "Octavia would refuse it", broken(func(b *LoadBalancer) {
				b.Listeners = append(b.Listeners, Listener{Name: "b", Protocol: ptr("HTTP"), ProtocolPort: ptr(int64(80))},
					Listener{Name: "c", Protocol: ptr("UDP"), ProtocolPort: ptr(int64(80))})
			}), []string{"TCP 80"},
		},
		{
			"names of parts", "they are what parts are known by", broken(func(b *LoadBalancer) {
				b.Listeners = append(b.Listeners, Listener{Protocol: ptr("UDP"), ProtocolPort: ptr(int64(1))})
				b.Pools = append(b.Pools, b.Pools[0])
			}), []string{"its name is there twice", "name must be set"},
		},
		{
			"parts", "Octavia would refuse them", broken(func(b *LoadBalancer) {
				b.Listeners[0].Protocol, b.Listeners[0].ProtocolPort = ptr("ICMP"), ptr(int64(0))
				b.Listeners[0].AllowedCIDRs = []string{"10.0.0.1/8"}
				b.Pools[0].LBAlgorithm = nil
				b.Pools[0].SessionPersistence = &SessionPersistence{Type: "MAGIC"}
				b.Pools[0].HealthMonitor = &HealthMonitor{Type: "TCP"}
				b.Pools[0].Members = []Member{{Address: "web", ProtocolPort: ptr(int64(1)), Weight: ptr(int64(300))}}
			}),
			[]string{
				"lb_algorithm", "session_persistence", "delay, timeout", "no IP address", "weight", "protocol", "protocol_port",
				"bits set",
			},
		},
		{
			"member of nowhere", "it would wait for ever",
			broken(func(b *LoadBalancer) { b.Pools[0].Members[0].SubnetID = From("nowhere") }),
			[]string{`refers to "nowhere"`},
		},
		{"members twice", "they are known by address and port", broken(func(b *LoadBalancer) {
			b.Pools[0].Members = append(b.Pools[0].Members, b.Pools[0].Members[0])
		}), []string{"are there twice"}},
		{"status", "an address is a text", Set{Outputs: []Output{
			{Kind: Ingress, Key: "4", Text: Text("10.0.0.9")},
			{Kind: Ingress, Key: "6", Text: Text("web")},
			{Kind: Ingress, Key: "x"},
		}}, []string{"no IP address", "needs text"}},
		{"pools of a port", "only load balancers have them", Set{Resources: []Resource{network}, Outputs: []Output{
			{Kind: Annotation, Key: "kuryr.org/neutron-port", Document: &Ref{Name: "network", Attribute: "pools"}},
		}}, []string{"only a loadbalancer"}},
		{
			"OVN load balancer", "nothing is wrong",
			ovn(vip(func(*OVNVIP) {}), vip(func(v *OVNVIP) { v.Protocol, v.Backends = "UDP", []OVNBackend{} }),
				vip(func(v *OVNVIP) { v.Address, v.AffinityTimeout = FromRole(role, "floating_ip_address"), 60 })), nil,
		},
		{
			"OVN load balancer of no group", "it would serve nowhere", spec(OVNLoadBalancer{}), []string{"group_id must be set"},
		},
		{
			"OVN VIP twice", "it is what they are known by",
			ovn(vip(func(*OVNVIP) {}), vip(func(v *OVNVIP) { v.Backends = nil })),
			[]string{"are there twice"},
		},
		{
			"parts of an OVN VIP", "OVN would refuse them, or do something else", ovn(vip(func(v *OVNVIP) {
				v.Protocol, v.Port, v.AffinityTimeout = "ICMP", 0, MaxAffinityTimeout+1
				v.Backends = []OVNBackend{
					{Address: "web", Port: 70000},
					{Address: "fd00::1", Port: 1},
					{Address: "10.0.1.4", Port: 1},
					{Address: "10.0.1.4", Port: 1},
				}
			}), vip(func(v *OVNVIP) { v.Address = Text("fe80::1%eth0") })),
			[]string{
				"protocol", "vips[0]: port", "affinity_timeout", "backends[0]: port", "backends[0]: address",
				"IP version of 10.0.0.9", "are there twice",
				"vips[1]: address",
			},
		},
		{
			"OVN VIP of nowhere", "it would wait for ever",
			ovn(vip(func(v *OVNVIP) { v.Address = From("nowhere", "floating_ip_address") })),
			[]string{`refers to "nowhere"`},
		},
		{"contribution to a group", "it is one resource", Set{Contributions: []Contribution{
			{Name: "network", Target: role, Attribute: "networks", Resource: FromRole(role)},
			{Name: "router", Target: role, Attribute: "routers", Resource: Text("x"), SecurityGroup: Text("y")},
			{Name: "nowhere", Target: role, Attribute: "routers", Resource: From("nowhere")},
			{Name: "empty", Target: role, Attribute: "networks", Resource: Empty()},
		}}, []string{"one for routers", `routers: refers to "nowhere"`, "networks: is empty"}},
		{
			"diagnostic", "Events know two",
			Set{Diagnostics: []Diagnostic{{Severity: "fatal", Reason: "X"}}},
			[]string{"severity"},
		},
		{"undecided", "refs lead to what exists", Set{
			Resources: []Resource{
				network, {Name: "x", Spec: Subnet{NetworkID: From("old"), IPVersion: ptr(int64(4)), SubnetPoolID: Text("p")}},
			},
			Undecided: []string{"old", "other"},
		}, nil},
		{"undecided and decided", "it is one or the other", Set{
			Resources: []Resource{network, {Name: "x", Claim: "shared", Spec: Network{}}},
			Undecided: []string{"network", "shared"},
		}, []string{`undecided "network": resource "network"`, `undecided "shared": resource "x"`}},
		{
			"undecided names", "they name resources",
			Set{Undecided: []string{"", "x", "x", "rif.x"}},
			[]string{"name is empty", `undecided "x": its name is there twice`, `"rif."`},
		},
		{"lookup of a lookup", "it names nothing", spec(Lookup{Of: KindLookup, ID: "x"}), []string{"looked up"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			err := tc.set.Validate(info)
			if tc.want == nil {
				if err != nil {
					t.Errorf("%s: %v", tc.reason, err)
				}
				return
			}
			var invalid *InvalidError
			if !errors.As(err, &invalid) {
				t.Fatalf("%s: got %v", tc.reason, err)
			}
			if len(invalid.Problems) != len(tc.want) {
				t.Fatalf("%s: (-want +got):\n%s", tc.reason, cmp.Diff(tc.want, invalid.Problems))
			}
			for i, problem := range invalid.Problems {
				if !strings.Contains(problem, tc.want[i]) {
					t.Errorf("%s: problem %q does not name %q", tc.reason, problem, tc.want[i])
				}
			}
		})
	}
}
