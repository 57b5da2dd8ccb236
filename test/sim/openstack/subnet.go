// SPDX-License-Identifier: Apache-2.0

package openstack

import (
	"net/http"
	"net/netip"
	"slices"
)

func subnetMissing(id string) *apiError {
	return notFound("SubnetNotFound", "Subnet %s could not be found.", id)
}

func asPools(v any) (any, error) {
	return listOf(dictOf(map[string]convert{"start": asIP, "end": asIP}, "start", "end"), false)(v)
}

func asRoutes(v any) (any, error) {
	return listOf(dictOf(map[string]convert{"destination": asSubnet, "nexthop": asIP}, "destination", "nexthop"), true)(v)
}

func subnetKind() *kind {
	mode := orNil(oneOf("slaac", "dhcpv6-stateful", "dhcpv6-stateless"))
	return &kind{
		name: "subnet", plural: "subnets", path: "subnets", missing: subnetMissing,
		index: []string{"network_id", "subnetpool_id", "cidr"},
		fields: fieldsOf(
			field{"network_id", post | required, asUUID, nil},
			field{"ip_version", post | required, asInt(4, 6), nil},
			field{"cidr", post | none, orNil(asSubnet), nil},
			field{"prefixlen", post | none | noFilter, asInt(0, 128), nil},
			field{"subnetpool_id", post, orNil(asUUID), nil},
			field{"use_default_subnetpool", post | none | noFilter, asBool, nil},
			field{"gateway_ip", rw | none, orNil(asIP), nil},
			field{"allocation_pools", rw | none | noFilter, asPools, nil},
			field{"dns_nameservers", rw | noFilter, listOf(asIP, true), []any{}},
			field{"host_routes", rw | noFilter, asRoutes, []any{}},
			field{"enable_dhcp", rw, asBool, true},
			field{"ipv6_ra_mode", post, mode, nil},
			field{"ipv6_address_mode", post, mode, nil},
			field{"service_types", rw | noFilter, listOf(asString(255), true), []any{}},
			field{"dns_publish_fixed_ip", rw, asBool, false},
			field{"segment_id", post | adminPost, orNil(asUUID), nil},
		),
		create: createSubnet, update: updateSubnet, remove: removeSubnet,
	}
}

func createSubnet(t *tx, in map[string]any) (*object, error) {
	net, ok := t.get("network", str(in, "network_id"))
	if !ok {
		return nil, networkMissing(str(in, "network_id"))
	}
	if net.project != t.who.project && !t.who.admin {
		return nil, forbidden("rule:create_subnet")
	}
	version := integer(in, "ip_version")
	if version == 5 {
		return nil, badRequest("Invalid input for ip_version. Reason: '5' is not in [4, 6].")
	}
	chosen, err := t.subnetRange(net, in, version)
	if err != nil {
		return nil, err
	}
	prefix := netip.MustParsePrefix(str(in, "cidr")) // checked by the schema
	if prefix.Addr().Is4() != (version == 4) {
		return nil, invalidInput("cidr '%s' does not match the ip_version '%d'", prefix, version)
	}
	if err := checkModes(in, prefix, version); err != nil {
		return nil, err
	}
	for _, s := range t.c.subnetsOf(net.id) {
		if s.ipam.prefix.Overlaps(prefix) {
			return nil,
				invalidInput("Requested subnet with cidr: %s for network: %s overlaps with another subnet", prefix, net.id)
		}
	}
	gateway, err := gatewayOf(in, prefix)
	if err != nil {
		return nil, err
	}
	pools, err := poolsOf(in, prefix, gateway)
	if err != nil {
		return nil, err
	}
	mode := str(in, "ipv6_address_mode")
	delete(in, "prefixlen")
	delete(in, "use_default_subnetpool")
	o := t.insert(t.c.kinds["subnets"], in)
	o.ipam = newIPAM(prefix, mode == "slaac" || mode == "dhcpv6-stateless")
	o.ipam.setPools(pools)
	if chosen {
		t.markAuto(o, prefix.String())
	}
	t.change(net, map[string]any{"subnets": append(slices.Clone(list(net.doc, "subnets")), o.id)})
	t.addMetadataAddress(o)
	return o, nil
}

// subnetRange sees to it that the cidr is set, from the pool if one is named. It returns true if the cloud chose it.
func (t *tx) subnetRange(net *object, in map[string]any, version int64) (bool, error) {
	pool := str(in, "subnetpool_id")
	if pool == "" {
		if truth(in, "use_default_subnetpool") {
			for _, p := range t.c.tables["subnetpool"].byID {
				if truth(p.doc, "is_default") && integer(p.doc, "ip_version") == version {
					in["subnetpool_id"] = p.id
					return t.fromPool(p, net, in)
				}
			}
			return false, badResource("subnets", "No default subnetpool defined")
		}
		if str(in, "cidr") == "" {
			return false, badResource("subnets", "a subnetpool must be specified in the absence of a cidr")
		}
		if in["prefixlen"] != nil {
			return false, badResource("subnets", "a subnetpool must be specified in the absence of a cidr")
		}
		return false, nil
	}
	p, ok := t.get("subnetpool", pool)
	if !ok {
		return false, subnetPoolMissing(pool)
	}
	if integer(p.doc, "ip_version") != version {
		return false, badResource("subnets", "Cannot allocate requested subnet from the available set of prefixes")
	}
	return t.fromPool(p, net, in)
}

func checkModes(in map[string]any, prefix netip.Prefix, version int64) error {
	ra, addr := str(in, "ipv6_ra_mode"), str(in, "ipv6_address_mode")
	switch {
	case ra == "" && addr == "":
		return nil
	case version == 4:
		return invalidInput("ipv6_ra_mode or ipv6_address_mode cannot be set when ip_version is set to 4")
	case !truth(in, "enable_dhcp"):
		return invalidInput("ipv6_ra_mode or ipv6_address_mode cannot be set when enable_dhcp is set to False")
	case ra != "" && addr != "" && ra != addr:
		return invalidInput("ipv6_ra_mode set to '%s' with ipv6_address_mode set to '%s' is not valid. If both "+
			"attributes are set, they must be the same value", ra, addr)
	case prefix.Bits() != 64 && (addr == "slaac" || addr == "dhcpv6-stateless"):
		return invalidInput("Invalid CIDR %s for IPv6 address mode. OpenStack uses the EUI-64 address format, which "+
			"requires the prefix to be /64", prefix)
	}
	return nil
}

// gatewayOf sets the gateway where it is not given: the first address. An explicit null means none.
func gatewayOf(in map[string]any, prefix netip.Prefix) (netip.Addr, error) {
	v, given := in["gateway_ip"]
	if !given {
		gw := prefix.Masked().Addr()
		if prefix.Bits() < gw.BitLen()-1 {
			gw = gw.Next()
		}
		in["gateway_ip"] = gw.String()
		return gw, nil
	}
	if v == nil {
		return netip.Addr{}, nil
	}
	gw := netip.MustParseAddr(str(in, "gateway_ip")) // checked by the schema
	if gw.Is4() && !usable(prefix, gw) {
		return gw, invalidInput("Gateway is not valid on subnet")
	}
	return gw, nil
}

// poolsOf checks the allocation pools, or sets the default ones.
func poolsOf(in map[string]any, prefix netip.Prefix, gateway netip.Addr) ([]span, error) {
	given, ok := in["allocation_pools"].([]any)
	if !ok {
		pools := defaultPools(prefix, gateway)
		in["allocation_pools"] = poolDocs(pools)
		return pools, nil
	}
	pools := make([]span, 0, len(given))
	for _, g := range given {
		m, _ := g.(map[string]any)
		s := span{netip.MustParseAddr(str(m, "start")), netip.MustParseAddr(str(m, "end"))}
		if s.from.Is4() != s.to.Is4() || s.to.Less(s.from) {
			return nil, neutron(http.StatusBadRequest, "InvalidAllocationPool", "The allocation pool %s is not valid.", s)
		}
		if !usable(prefix, s.from) || !usable(prefix, s.to) {
			return nil,
				neutron(http.StatusBadRequest, "OutOfBoundsAllocationPool",
					"The allocation pool %s spans beyond the subnet cidr %s.", s, prefix)
		}
		if gateway.IsValid() && s.holds(gateway) {
			return nil,
				conflict("GatewayConflictWithAllocationPools", "Gateway ip %s conflicts with allocation pool %s.", gateway, s)
		}
		for _, other := range pools {
			if s.holds(other.from) || other.holds(s.from) {
				return nil,
					conflict("OverlappingAllocationPools", "Found overlapping allocation pools: %s %s for subnet %s.", other, s,
						prefix)
			}
		}
		pools = append(pools, s)
	}
	in["allocation_pools"] = poolDocs(pools)
	return pools, nil
}

func poolDocs(pools []span) []any {
	out := make([]any, 0, len(pools))
	for _, p := range pools {
		out = append(out, p.doc())
	}
	return out
}

func updateSubnet(t *tx, o *object, in map[string]any) error {
	prefix := o.ipam.prefix
	gateway, _ := netip.ParseAddr(str(o.doc, "gateway_ip"))
	if _, given := in["gateway_ip"]; given {
		next, err := gatewayOf(in, prefix)
		if err != nil {
			return err
		}
		if gateway.IsValid() && next != gateway {
			for p := range t.c.by("port", "fixed_ips.subnet_id", o.id) {
				if isRouterPort(p) && hasAddress(p, gateway.String()) {
					return conflict("GatewayIpInUse", "Current gateway ip %s already in use by port %s. Unable to update.", gateway,
						p.id)
				}
			}
		}
		gateway = next
	}
	pools := o.ipam.pools
	if _, given := in["allocation_pools"]; given {
		var err error
		if pools, err = poolsOf(in, prefix, gateway); err != nil {
			return err
		}
	} else if gateway.IsValid() {
		for _, s := range pools {
			if s.holds(gateway) {
				return conflict("GatewayConflictWithAllocationPools", "Gateway ip %s conflicts with allocation pool %s.", gateway,
					s)
			}
		}
	}
	old := o.ipam.pools
	o.ipam.setPools(pools)
	t.onUndo(func() { o.ipam.setPools(old) })
	t.update(o, in)
	return nil
}

// removeSubnet is refused while a port has an address of it, but for addresses that follow from the MAC and the
// cloud's own.
func removeSubnet(t *tx, o *object) error {
	for p := range t.c.by("port", "fixed_ips.subnet_id", o.id) {
		if !o.ipam.eui64 && str(p.doc, "device_owner") != distributed || isRouterPort(p) {
			return conflict("SubnetInUse",
				"Unable to complete operation on subnet %s: One or more ports have an IP allocation from this subnet.", o.id)
		}
	}
	for p := range t.c.by("port", "fixed_ips.subnet_id", o.id) {
		kept := slices.DeleteFunc(slices.Clone(list(p.doc, "fixed_ips")), func(f any) bool {
			m, _ := f.(map[string]any)
			return str(m, "subnet_id") == o.id
		})
		t.change(p, map[string]any{"fixed_ips": kept})
	}
	t.erase(o)
	if net, ok := t.any("network", str(o.doc, "network_id")); ok {
		left := slices.DeleteFunc(slices.Clone(list(net.doc, "subnets")), func(x any) bool { return x == o.id })
		t.change(net, map[string]any{"subnets": left})
	}
	return nil
}
