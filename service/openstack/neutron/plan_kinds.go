// SPDX-License-Identifier: Apache-2.0

package neutron

import (
	"github.com/kuryr/raven/drivers"
	"github.com/kuryr/raven/service/plan"
)

// InterfacePrefix begins the Name in the Identity of a router interface. It is a port in the cloud, so its name is set
// apart from those of ports.
const InterfacePrefix = "rif."

// SubnetHints are the plan.Desired.Hints of a subnet.
type SubnetHints struct {
	// Full says that Neutron found a subnet and all its expansions full: one more is wanted. Whoever sets it clears it
	// when the step that creates one has been applied, otherwise every plan asks for another, up to Desired.Expand.
	Full bool
}

// Kinds describes the kinds of resources that Neutron keeps.
func Kinds() []plan.Descriptor {
	list := []plan.Descriptor{
		{Kind: drivers.KindLookup, Rank: 0, ReadOnly: true},
		{Kind: drivers.KindSecurityGroup, Rank: 10, Usable: isUsableGroup, Stable: toldForeignRules},
		securityGroupRule(),
		{Kind: drivers.KindNetwork, Rank: 30},
		{Kind: drivers.KindSubnetPool, Rank: 40, Matchers: map[string]plan.Matcher{"prefixes": matchPrefixes}},
		subnet(),
		router(),
		routerInterface(),
		port(),
		floatingIP(),
	}
	for i := range list {
		list[i].Form = canonicalText
	}
	return list
}

func securityGroupRule() plan.Descriptor {
	return plan.Descriptor{
		Kind: drivers.KindSecurityGroupRule, Rank: 20, Fixed: true, Idempotent: true, CreateFirst: true,
		References: plan.IDs("security_group_id", "remote_group_id"),
		Container:  plan.Container{Kind: drivers.KindSecurityGroup, Attribute: "security_group_id"},
		Nullable:   func(string) bool { return true },
		Body:       withoutAnyAddress,
		Clash:      sameRule,
	}
}

func subnet() plan.Descriptor {
	return plan.Descriptor{
		Kind: drivers.KindSubnet, Rank: 50,
		References: plan.IDs("network_id", "subnetpool_id"),
		Uncompared: []string{"prefixlen"}, // Neutron takes it and never shows it
		Nullable: func(name string) bool {
			return name == "gateway_ip" || name == "ipv6_address_mode" || name == "ipv6_ra_mode" || name == "cidr"
		},
		Full: func(d *plan.Desired) bool {
			hints, _ := d.Hints.(SubnetHints)
			return hints.Full
		},
		Clash: overlappingSubnet,
	}
}

func router() plan.Descriptor {
	return plan.Descriptor{
		Kind: drivers.KindRouter, Rank: 60, Contributions: plan.Marked,
		Attributes: []drivers.Attribute{{Name: "routes", Unordered: true}},
		Matchers:   map[string]plan.Matcher{"external_gateway_info": matchGateway},
		Body:       withoutEmptyGateway,
	}
}

func routerInterface() plan.Descriptor {
	return plan.Descriptor{
		Kind: drivers.KindRouterInterface, Rank: 70, Idempotent: true,
		StoredAs: drivers.KindPort, NamePrefix: InterfacePrefix,
		References: plan.IDs("network_id", "router_id", "subnet_id", "fixed_ips[].subnet_id", "security_groups[]"),
		InUse:      func(_ *plan.Computation, o *plan.Observed) bool { return atRouter(o) },
		Compare:    compareInterface,
		Body:       interfacePort,
		Clash:      samePort,
		Extend:     attachInterface,
		Depart:     detachPort,
	}
}

func port() plan.Descriptor {
	return plan.Descriptor{
		Kind: drivers.KindPort, Rank: 80, Idempotent: true, Contributions: plan.Marked,
		References: plan.IDs("network_id", "fixed_ips[].subnet_id", "security_groups[]"),
		Releases:   []drivers.Kind{drivers.KindFloatingIP},
		Matchers:   map[string]plan.Matcher{"fixed_ips": matchFixedIPs, "allowed_address_pairs": matchAddressPairs},
		Body:       portBody,
		Clash:      samePort,
		Depart:     detachPort,
	}
}

func floatingIP() plan.Descriptor {
	return plan.Descriptor{
		Kind: drivers.KindFloatingIP, Rank: 100, Beside: true,
		References: plan.IDs("floating_network_id", "port_id", "router_id", "subnet_id"),
		Uncompared: []string{"subnet_id"}, // Neutron takes it and never shows it
		Nullable: func(name string) bool {
			return name == "fixed_ip_address" || name == "floating_ip_address" || name == "port_id"
		},
		InUse: func(_ *plan.Computation, o *plan.Observed) bool {
			return canonical("port_id", o.Attrs["port_id"]) != ""
		},
		Choose:   chooseFitting,
		Adopt:    adoptAddress,
		Refine:   refineFloatingIP,
		Body:     floatingIPBody,
		Clash:    func(want, have map[string]any) bool { return sameValue("floating_ip_address", want, have) },
		Retained: leadNowhere,
		Depart:   awaitSuccessors,
	}
}
