// SPDX-License-Identifier: Apache-2.0

package neutron

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kuryr/raven/drivers"
	"github.com/kuryr/raven/service/plan"
)

func compute(in plan.Input) plan.Plan { return plan.NewKinds(Kinds()...).Compute(in) }

func list(values ...any) []any { return append([]any{}, values...) }
func fixed(subnet, ip any) map[string]any {
	return map[string]any{"subnet_id": subnet, "ip_address": ip}
}

// What the cloud writes in other forms is no difference; what differs is written as Neutron takes it.
func TestCompare(t *testing.T) {
	type doc = map[string]any
	pair := func(ip string, mac ...string) doc {
		if len(mac) > 0 {
			return doc{"ip_address": ip, "mac_address": mac[0]}
		}
		return doc{"ip_address": ip}
	}
	const mac = "02:aa:bb:cc:dd:ee"
	for _, tc := range []struct {
		name, reason string
		kind         drivers.Kind
		want, have   doc
		update       doc // nil: no step
	}{
		{
			"unmanaged", "what is not in desired is never compared", drivers.KindNetwork,
			doc{},
			doc{"name": "theirs", "mtu": 1442},
			nil,
		},
		{"null and empty", "Neutron writes either", drivers.KindPort, doc{"device_id": ""}, doc{"device_id": nil}, nil},
		{"null list", "Neutron writes either", drivers.KindSubnet, doc{"host_routes": list()}, doc{"host_routes": nil}, nil},
		{
			"emptied", "an explicitly empty field is enforced", drivers.KindSubnet,
			doc{"dns_nameservers": list()},
			doc{"dns_nameservers": list("10.0.0.1")},
			doc{"dns_nameservers": list()},
		},
		{
			"number as float", "JSON has one number", drivers.KindNetwork,
			doc{"mtu": int64(1400)},
			doc{"mtu": float64(1400)},
			nil,
		},
		{
			"number as text", "subnet pools have it so", drivers.KindSubnetPool,
			doc{"default_prefixlen": int64(24)},
			doc{"default_prefixlen": "24"},
			nil,
		},
		{
			"number", "it differs", drivers.KindNetwork,
			doc{"mtu": int64(1400)},
			doc{"mtu": int64(1500)},
			doc{"mtu": int64(1400)},
		},
		{
			"false", "it differs", drivers.KindNetwork,
			doc{"admin_state_up": false},
			doc{"admin_state_up": true},
			doc{"admin_state_up": false},
		},
		{"hidden host", "a plain member does not see it", drivers.KindPort, doc{"binding:host_id": "a"}, doc{}, nil},
		{
			"shown host", "an administrator does", drivers.KindPort,
			doc{"binding:host_id": "a"},
			doc{"binding:host_id": ""},
			doc{"binding:host_id": "a"},
		},
		{
			"prefix length", "Neutron never shows it", drivers.KindSubnet,
			doc{"prefixlen": int64(24)},
			doc{"cidr": "10.0.0.0/26"},
			nil,
		},
		{"range", "host bits do not count", drivers.KindSubnet, doc{"cidr": "10.0.0.7/24"}, doc{"cidr": "10.0.0.0/24"}, nil},
		{
			"IPv6 range", "one address has many forms", drivers.KindSubnet,
			doc{"cidr": "FD00:0:0::/64"},
			doc{"cidr": "fd00::/64"},
			nil,
		},
		{"no gateway", "null is what Neutron shows", drivers.KindSubnet, doc{"gateway_ip": ""}, doc{"gateway_ip": nil}, nil},
		{
			"gateway removed", "null is what Neutron takes", drivers.KindSubnet,
			doc{"gateway_ip": ""},
			doc{"gateway_ip": "10.0.0.1"},
			doc{"gateway_ip": nil},
		},
		{
			"nameservers", "a resolver asks in their order", drivers.KindSubnet,
			doc{"dns_nameservers": list("10.0.0.1", "10.0.0.2")},
			doc{"dns_nameservers": list("10.0.0.2", "10.0.0.1")},
			doc{"dns_nameservers": list("10.0.0.1", "10.0.0.2")},
		},
		{
			"nameservers of IPv6", "one address has many forms", drivers.KindSubnet,
			doc{"dns_nameservers": list("FD00::0:1")},
			doc{"dns_nameservers": list("fd00::1")},
			nil,
		},
		{
			"host routes", "their order means nothing", drivers.KindSubnet,
			doc{
				"host_routes": list(doc{"destination": "10.0.0.0/8", "nexthop": "10.0.0.1"},
					doc{"destination": "11.0.0.0/8", "nexthop": "10.0.0.1"}),
			},
			doc{
				"host_routes": list(doc{"destination": "11.0.0.0/8", "nexthop": "10.0.0.1"},
					doc{"nexthop": "10.0.0.1", "destination": "10.0.0.0/8"}),
			},
			nil,
		},
		{
			"groups", "their order means nothing", drivers.KindPort,
			doc{"security_groups": list("a", "b")},
			doc{"security_groups": list("b", "a")},
			nil,
		},
		{
			"group added", "it differs", drivers.KindPort,
			doc{"security_groups": list("a", "b")},
			doc{"security_groups": list("b")},
			doc{"security_groups": list("a", "b")},
		},
		{
			"pairs", "Neutron fills in the port's MAC", drivers.KindPort,
			doc{"allowed_address_pairs": list(pair("10.0.0.9"), pair("10.1.0.0/16"))},
			doc{"mac_address": mac, "allowed_address_pairs": list(pair("10.1.0.0/16", mac), pair("10.0.0.9/32", mac))},
			nil,
		},
		{
			"pair of another MAC", "it differs", drivers.KindPort,
			doc{"allowed_address_pairs": list(pair("10.0.0.9"))},
			doc{"mac_address": mac, "allowed_address_pairs": list(pair("10.0.0.9", "02:00:00:00:00:01"))},
			doc{"allowed_address_pairs": list(pair("10.0.0.9"))},
		},
		{
			"MAC", "one address has many forms", drivers.KindPort,
			doc{"mac_address": "02-AA-BB-CC-DD-EE"},
			doc{"mac_address": mac},
			nil,
		},
		{
			"any address", "only the given parts count", drivers.KindPort,
			doc{"fixed_ips": list(doc{"subnet_id": "a"})},
			doc{"fixed_ips": list(fixed("a", "10.0.0.5"))},
			nil,
		},
		{
			"any of two subnets", "their order means nothing", drivers.KindPort,
			doc{"fixed_ips": list(doc{"subnet_id": "a"}, doc{"subnet_id": "b"})},
			doc{"fixed_ips": list(fixed("b", "fd00::5"), fixed("a", "10.0.0.5"))},
			nil,
		},
		{
			"any and one", "the particular one is not taken by the wish for any", drivers.KindPort,
			doc{"fixed_ips": list(doc{"subnet_id": "a"}, fixed("a", "10.0.0.5"))},
			doc{"fixed_ips": list(fixed("a", "10.0.0.5"), fixed("a", "10.0.0.6"))},
			nil,
		},
		{
			"address missing", "the others are kept by name", drivers.KindPort,
			doc{"fixed_ips": list(doc{"subnet_id": "a"}, doc{"subnet_id": "b"})},
			doc{"fixed_ips": list(fixed("a", "10.0.0.5"))},
			doc{"fixed_ips": list(fixed("a", "10.0.0.5"), doc{"subnet_id": "b"})},
		},
		{
			"address too many", "a set field is enforced", drivers.KindPort,
			doc{"fixed_ips": list(doc{"subnet_id": "a"})},
			doc{"fixed_ips": list(fixed("a", "10.0.0.5"), fixed("b", "10.1.0.5"))},
			doc{"fixed_ips": list(fixed("a", "10.0.0.5"))},
		},
		{
			"autoconfigured", "Neutron adds it by itself", drivers.KindPort,
			doc{"fixed_ips": list(doc{"subnet_id": "a"})},
			doc{"mac_address": mac, "fixed_ips": list(fixed("a", "10.0.0.5"), fixed("b", "fd00::aa:bbff:fecc:ddee"))},
			nil,
		},
		{
			"gateway", "only network and SNAT count", drivers.KindRouter,
			doc{"external_gateway_info": doc{"network_id": "x", "enable_snat": true}},
			doc{
				"external_gateway_info": doc{
					"network_id": "x", "enable_snat": true, "external_fixed_ips": list(fixed("s", "1.2.3.4")),
				},
			},
			nil,
		},
		{
			"gateway unmanaged SNAT", "an unset part is unmanaged", drivers.KindRouter,
			doc{"external_gateway_info": doc{"network_id": "x"}},
			doc{"external_gateway_info": doc{"network_id": "x", "enable_snat": false}},
			nil,
		},
		{
			"no gateway wanted", "without a network there is none", drivers.KindRouter,
			doc{"external_gateway_info": doc{"enable_snat": true}},
			doc{"external_gateway_info": nil},
			nil,
		},
		{
			"gateway away", "an empty one is what Neutron takes", drivers.KindRouter,
			doc{"external_gateway_info": doc{}},
			doc{"external_gateway_info": doc{"network_id": "x"}},
			doc{"external_gateway_info": doc{}},
		},
		{
			"SNAT", "Neutron wants the network with it", drivers.KindRouter,
			doc{"external_gateway_info": doc{"network_id": "x", "enable_snat": false}},
			doc{"external_gateway_info": doc{"network_id": "x", "enable_snat": true}},
			doc{"external_gateway_info": doc{"network_id": "x", "enable_snat": false}},
		},
		{
			"routes", "contributions are compared", drivers.KindRouter,
			doc{"routes": list(doc{"destination": "10.0.0.0/8", "nexthop": "1.1.1.1"})},
			doc{"routes": list()},
			doc{"routes": list(doc{"destination": "10.0.0.0/8", "nexthop": "1.1.1.1"})},
		},
		{
			"prefixes", "Neutron joins neighbours", drivers.KindSubnetPool,
			doc{"prefixes": list("10.128.0.0/9", "10.0.0.0/9", "10.3.0.0/16")},
			doc{"prefixes": list("10.0.0.0/8")},
			nil,
		},
		{
			"any source", "Neutron writes either", drivers.KindSecurityGroupRule,
			doc{"remote_ip_prefix": "0.0.0.0/0"},
			doc{"remote_ip_prefix": nil},
			nil,
		},
		{
			"one source", "Neutron writes a range", drivers.KindSecurityGroupRule,
			doc{"remote_ip_prefix": "10.0.0.1"},
			doc{"remote_ip_prefix": "10.0.0.1/32"},
			nil,
		},
		{
			"protocol by number", "Neutron writes either", drivers.KindSecurityGroupRule,
			doc{"protocol": "6"},
			doc{"protocol": "tcp"},
			nil,
		},
		{
			"ICMP of IPv6", "it has three names", drivers.KindSecurityGroupRule,
			doc{"protocol": "icmpv6"},
			doc{"protocol": "ipv6-icmp"},
			nil,
		},
		{"floating subnet", "Neutron never shows it", drivers.KindFloatingIP, doc{"subnet_id": "s"}, doc{}, nil},
		{
			"floating target", "Neutron wants the port with it", drivers.KindFloatingIP,
			doc{"fixed_ip_address": "10.0.0.5", "port_id": "p"},
			doc{"fixed_ip_address": "10.0.0.6", "port_id": "p"},
			doc{"fixed_ip_address": "10.0.0.5", "port_id": "p"},
		},
		{
			"long name", "Neutron has it cut", drivers.KindNetwork,
			doc{"name": string(make([]byte, 300))},
			doc{"name": string(make([]byte, 255))},
			nil,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			id := plan.Identity{Cluster: "c", Owner: plan.Owner{Driver: "pod", UID: "u"}, Name: "x", Policy: drivers.Delete}
			o := plan.Observed{
				Kind: tc.kind, ID: "1", Identity: id, Managed: true, Attrs: tc.have, Revision: 3, Tags: id.Tags(),
				Description: id.Description(),
			}
			p := compute(plan.Input{
				Desired: []plan.Desired{{Kind: tc.kind, Identity: id, Attrs: tc.want}}, Observed: []plan.Observed{o}, Prune: true,
			})
			var got doc
			for _, s := range p.Steps {
				if s.Op != plan.Update || s.Revision != 3 || !s.Ready() || s.Reason == "" {
					t.Errorf("%s: %+v", tc.reason, s)
				}
				got = s.Attrs
			}
			if diff := cmp.Diff(tc.update, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}
