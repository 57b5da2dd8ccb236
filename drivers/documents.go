// SPDX-License-Identifier: Apache-2.0

package drivers

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
)

// Document returns what an annotation shows of a resource's Neutron document: the fields that stay as they are until
// a user changes the resource. Status, timestamps, revisions, tags, descriptions and counters are not among them,
// and lists whose order Neutron does not keep are sorted (a port's addresses with IPv4 first), so that equal
// resources give equal documents. It shares nothing with attrs that a caller may change, and leaves out what attrs
// does not have.
//
// A router interface has the document of a port. Of a lookup, pass the kind that is looked up.
func Document(kind Kind, attrs map[string]any) map[string]any {
	document := make(map[string]any, len(attrs))
	for _, name := range shown(kind) {
		if value, ok := attrs[name]; ok {
			document[name] = copied(name, value)
		}
	}
	return document
}

// Shown lists the fields of a kind's document.
func Shown(kind Kind) []string { return shown(kind) }

// shown lists the fields of a kind's document.
func shown(kind Kind) []string {
	common := []string{"id", "name", "project_id", "tenant_id"}
	switch kind {
	case KindNetwork:
		return append(common, "admin_state_up", "mtu", "port_security_enabled", "dns_domain", "shared", "router:external",
			"provider:network_type", "provider:physical_network", "provider:segmentation_id", "vlan_transparent")
	case KindSubnet:
		return append(common, "network_id", "ip_version", "cidr", "subnetpool_id", "gateway_ip", "enable_dhcp",
			"dns_nameservers",
			"allocation_pools", "host_routes", "ipv6_address_mode", "ipv6_ra_mode", "segment_id", "service_types")
	case KindSubnetPool:
		return append(common, "prefixes", "ip_version", "default_prefixlen", "min_prefixlen", "max_prefixlen",
			"address_scope_id",
			"default_quota", "is_default", "shared")
	case KindRouter:
		return append(common, "admin_state_up", "external_gateway_info", "routes", "distributed", "ha")
	case KindPort, KindRouterInterface:
		return append(common, "network_id", "mac_address", "admin_state_up", "device_owner", "device_id", "fixed_ips",
			"security_groups", "allowed_address_pairs", "port_security_enabled", "binding:host_id", "binding:vnic_type",
			"binding:vif_type", "binding:vif_details", "binding:profile", "dns_name", "dns_domain", "dns_assignment",
			"extra_dhcp_opts", "qos_policy_id")
	case KindLoadBalancer:
		return append(common, "admin_state_up", "provider", "vip_address", "vip_port_id", "vip_subnet_id", "vip_network_id",
			"vip_qos_policy_id", "additional_vips", "flavor_id", "availability_zone")
	case KindFloatingIP:
		return append(common, "floating_network_id", "floating_ip_address", "router_id", "port_id", "fixed_ip_address",
			"dns_name", "dns_domain", "qos_policy_id")
	case KindSecurityGroup:
		return append(common, "stateful", "shared")
	case KindSecurityGroupRule:
		return append(common, "security_group_id", "direction", "ethertype", "protocol", "port_range_min", "port_range_max",
			"remote_ip_prefix", "remote_group_id", "remote_address_group_id")
	case KindOVNLoadBalancerGroup:
		return []string{"id", "name", "networks", "routers"}
	case KindOVNLoadBalancer:
		return []string{"id", "name", "group_id", "vips"}
	case KindPortPool:
		return []string{"id", "network_id", "security_groups"}
	case KindLookup:
		return common
	}
	return nil
}

func copied(name string, value any) any {
	switch v := value.(type) {
	case map[string]any:
		out := maps.Clone(v)
		for key, part := range out {
			out[key] = copied(key, part)
		}
		return out
	case []any:
		out := slices.Clone(v)
		for i, element := range out {
			out[i] = copied("", element)
		}
		if sorted(name) {
			slices.SortStableFunc(out, func(a, b any) int { return strings.Compare(order(a), order(b)) })
		}
		return out
	case []string:
		return slices.Clone(v)
	}
	return value
}

func sorted(name string) bool {
	switch name {
	case "fixed_ips", "security_groups", "allowed_address_pairs", "host_routes", "allocation_pools", "prefixes", "routes",
		"external_fixed_ips", "dns_assignment", "additional_vips":
		return true
	}
	return false
}

// order is the text by which elements of lists are sorted: IPv4 addresses first.
func order(element any) string {
	if text, ok := element.(string); ok {
		return text
	}
	family := "4"
	if m, ok := element.(map[string]any); ok {
		if address, _ := m["ip_address"].(string); strings.Contains(address, ":") {
			family = "6"
		}
	}
	text, err := json.Marshal(element)
	if err != nil {
		return family
	}
	return family + string(text)
}
