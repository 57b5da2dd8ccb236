// SPDX-License-Identifier: Apache-2.0

package openstack

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

func portMissing(id string) *apiError {
	return notFound("PortNotFound", "Port %s could not be found.", id)
}

// asFixedIPs takes a subnet twice, and an address once.
func asFixedIPs(v any) (any, error) {
	out, err := listOf(dictOf(map[string]convert{"subnet_id": orNil(asUUID), "ip_address": orNil(asIP)}), false)(v)
	if err != nil {
		return nil, err
	}
	seen := map[string]bool{}
	fixed, _ := out.([]any)
	for _, f := range fixed {
		m, _ := f.(map[string]any)
		a := str(m, "ip_address")
		if a != "" && seen[a] {
			return nil, fmt.Errorf("Duplicate IP address '%s'", a) //nolint:staticcheck // Neutron's words
		}
		seen[a] = true
	}
	return out, nil
}

func portKind() *kind {
	admin := rw | adminPost | adminPut
	return &kind{
		name: "port", plural: "ports", path: "ports", missing: portMissing,
		index: []string{
			"network_id", "mac_address", "device_id", "device_owner", "security_groups", "fixed_ips.subnet_id",
			"fixed_ips.ip_address",
		},
		fields: fieldsOf(
			field{"network_id", post | required, asUUID, nil},
			field{"admin_state_up", rw, asBool, true},
			field{"mac_address", rw | none | adminPut, asMAC, nil},
			field{"fixed_ips", rw | none, asFixedIPs, nil},
			field{"device_id", rw, orEmpty(asString(255)), ""},
			field{"device_owner", rw, orEmpty(asString(255)), ""},
			field{"security_groups", rw | none, listOf(asUUID, true), nil},
			field{
				"allowed_address_pairs", rw | noFilter,
				listOf(dictOf(map[string]convert{"ip_address": asCIDR, "mac_address": asMAC}, "ip_address"), true),
				[]any{},
			},
			field{"port_security_enabled", rw | none, asBool, nil},
			field{"extra_dhcp_opts", rw | noFilter, listOf(asDict, false), []any{}},
			field{"dns_name", rw, orEmpty(asString(255)), ""},
			field{"qos_policy_id", rw, orNil(asUUID), nil},
			field{
				"binding:vnic_type", rw,
				oneOf("normal", "macvtap", "direct", "baremetal", "direct-physical", "virtio-forwarder", "smart-nic", "vdpa",
					"remote-managed"), "normal",
			},
			field{"binding:host_id", admin | none | secret, orEmpty(asString(255)), nil},
			field{"binding:profile", admin | none | secret | noFilter, asDict, nil},
			field{"binding:vif_type", none | secret, nil, nil},
			field{"binding:vif_details", none | secret | noFilter, nil, nil},
			field{"status", none, nil, nil}, field{"ip_allocation", none, nil, nil},
			field{"dns_assignment", none | noFilter, nil, nil}, field{"resource_request", none | secret | noFilter, nil, nil},
			field{"qos_network_policy_id", none, nil, nil},
		),
		create: createPort, update: updatePort, remove: removePort,
	}
}

func isRouterPort(o *object) bool {
	return strings.HasPrefix(str(o.doc, "device_owner"), "network:router_interface")
}

func hasAddress(o *object, addr string) bool {
	return slices.ContainsFunc(list(o.doc, "fixed_ips"), func(f any) bool {
		m, _ := f.(map[string]any)
		return str(m, "ip_address") == addr
	})
}

// networkDevice refuses a device owner of the cloud's own to a plain member.
func (t *tx) networkDevice(action string, in map[string]any) error {
	if strings.HasPrefix(str(in, "device_owner"), "network:") && !t.who.admin {
		return forbidden(policyRule(action+"_port", []string{"device_owner"}))
	}
	return nil
}

func createPort(t *tx, in map[string]any) (*object, error) {
	if err := t.networkDevice("create", in); err != nil {
		return nil, err
	}
	net, ok := t.get("network", str(in, "network_id"))
	if !ok {
		return nil, networkMissing(str(in, "network_id"))
	}
	if net.project != t.who.project && !t.who.admin {
		if !truth(net.doc, "shared") { // external only
			return nil, forbidden("rule:create_port")
		}
		if _, given := in["mac_address"]; given {
			return nil, forbidden(policyRule("create_port", []string{"mac_address"}))
		}
		for _, f := range list(in, "fixed_ips") {
			if m, ok := f.(map[string]any); ok && str(m, "ip_address") != "" {
				return nil, forbidden(policyRule("create_port", []string{"fixed_ips"}))
			}
		}
	}
	return t.makePort(net, in)
}

// makePort makes a port of anybody's, as the L3 service does too.
func (t *tx) makePort(net *object, in map[string]any) (*object, error) {
	auto := map[string]bool{}
	mac := str(in, "mac_address")
	if mac == "" {
		mac = t.drawMAC()
		auto[mac] = true
	} else if t.macInUse(net.id, mac, nil) {
		return nil, macInUse(net.id, mac)
	}
	in["mac_address"] = mac
	ips, err := t.portAddresses(net, in, mac, auto)
	if err != nil {
		return nil, err
	}
	in["fixed_ips"] = ips
	if _, given := in["port_security_enabled"]; !given {
		in["port_security_enabled"] = net.doc["port_security_enabled"]
	}
	if err := t.portGroups(in, str(in, "project_id")); err != nil {
		return nil, err
	}
	fillPairs(in, mac)
	in["ip_allocation"], in["dns_assignment"] = "immediate", []any{}
	in["resource_request"], in["qos_network_policy_id"] = nil, nil
	bind(in, in)
	o := t.insert(t.c.kinds["ports"], in)
	o.auto = auto
	return o, nil
}

// portAddresses gives the addresses of a new port: those that are asked for, or one of every IP version.
func (t *tx) portAddresses(net *object, in map[string]any, mac string, auto map[string]bool) ([]any, error) {
	router := strings.HasPrefix(str(in, "device_owner"), "network:router_interface")
	var ips []any
	if asked, given := in["fixed_ips"].([]any); given {
		requests, err := t.resolve(net.id, asked, "create")
		if err != nil {
			return nil, err
		}
		if ips, err = t.allocate(net.id, mac, router, requests, auto); err != nil {
			return nil, err
		}
	}
	_, given := in["fixed_ips"].([]any)
	groups := map[string][]*object{}
	for _, s := range t.c.subnetsOf(net.id) {
		switch {
		case s.ipam.eui64:
			groups["auto"] = append(groups["auto"], s)
		case s.ipam.prefix.Addr().Is4():
			groups["v4"] = append(groups["v4"], s)
		default:
			groups["v6"] = append(groups["v6"], s)
		}
	}
	give := func(subnets []*object) error {
		a, err := t.allocateFrom(net.id, mac, subnets, auto)
		if err != nil {
			return err
		}
		i := slices.IndexFunc(subnets, func(s *object) bool { return s.ipam.prefix.Contains(a) })
		ips = append(ips, map[string]any{"subnet_id": subnets[i].id, "ip_address": a.String()})
		return nil
	}
	for _, version := range []string{"v4", "v6"} {
		if len(groups[version]) == 0 || given {
			continue
		}
		if err := give(groups[version]); err != nil {
			return nil, err
		}
	}
	for _, s := range groups["auto"] {
		has := slices.ContainsFunc(ips, func(f any) bool { return f.(map[string]any)["subnet_id"] == s.id })
		if has || router {
			continue
		}
		if err := give([]*object{s}); err != nil {
			return nil, err
		}
	}
	if ips == nil {
		ips = []any{}
	}
	return ips, nil
}

func macInUse(network, mac string) *apiError {
	return conflict("MacAddressInUse", "Unable to complete operation for network %s. The mac address %s is in use.",
		network, mac)
}

func (t *tx) macInUse(network, mac string, but *object) bool {
	for p := range t.c.by("port", "mac_address", mac) {
		if p != but && str(p.doc, "network_id") == network {
			return true
		}
	}
	return false
}

// drawMAC makes an address under Neutron's default base_mac.
func (t *tx) drawMAC() string {
	for {
		n := t.c.rand.Uint32()
		mac := fmt.Sprintf("fa:16:3e:%02x:%02x:%02x", byte(n), byte(n>>8), byte(n>>16))
		if len(t.c.by("port", "mac_address", mac)) == 0 {
			return mac
		}
	}
}

// portGroups checks the security groups of a port, or sets its project's default one.
func (t *tx) portGroups(in map[string]any, project string) error {
	_, given := in["security_groups"]
	secure := truth(in, "port_security_enabled")
	if !given {
		in["security_groups"] = []any{}
		if secure && project != "" && !strings.HasPrefix(str(in, "device_owner"), "network:") {
			in["security_groups"] = []any{t.defaultGroup(project).id}
		}
	}
	groups := list(in, "security_groups")
	if len(groups) > 0 && !secure {
		return neutron(400, "PortSecurityAndIPRequiredForSecurityGroups",
			"Port security must be enabled and port must have an IP address in order to use security groups.")
	}
	if len(list(in, "allowed_address_pairs")) > 0 && !secure {
		return conflict("AddressPairAndPortSecurityRequired",
			"Port Security must be enabled in order to have allowed address pairs on a port.")
	}
	for _, g := range groups {
		id, _ := g.(string)
		if _, ok := t.get("security_group", id); !ok {
			return securityGroupMissing(id)
		}
	}
	return nil
}

// fillPairs gives address pairs without a MAC the port's own.
func fillPairs(in map[string]any, mac string) {
	pairs := list(in, "allowed_address_pairs")
	out := make([]any, 0, len(pairs))
	for _, p := range pairs {
		m, _ := p.(map[string]any)
		pair := map[string]any{"ip_address": m["ip_address"], "mac_address": mac}
		if own := str(m, "mac_address"); own != "" {
			pair["mac_address"] = own
		}
		out = append(out, pair)
	}
	in["allowed_address_pairs"] = out
}

// bind sets in out what follows from a port's host and device: the binding and the status.
func bind(doc, out map[string]any) {
	host := str(doc, "binding:host_id")
	out["binding:host_id"] = host
	if doc["binding:profile"] == nil {
		out["binding:profile"] = map[string]any{}
	}
	out["binding:vif_type"], out["binding:vif_details"], out["status"] = "unbound", map[string]any{}, "DOWN"
	owner := str(doc, "device_owner")
	if host != "" {
		out["binding:vif_type"] = "ovs"
		out["binding:vif_details"] = map[string]any{"port_filter": true, "connectivity": "l2"}
		out["status"] = "ACTIVE"
	}
	switch {
	case owner == "network:floatingip":
		out["status"] = "N/A"
	case strings.HasPrefix(owner, "network:router_"):
		out["status"] = "ACTIVE"
	}
}

func updatePort(t *tx, o *object, in map[string]any) error {
	if err := t.networkDevice("update", in); err != nil && in["device_owner"] != o.doc["device_owner"] {
		return err
	}
	network := str(o.doc, "network_id")
	mac := str(o.doc, "mac_address")
	if m, given := in["mac_address"].(string); given && m != mac {
		if t.macInUse(network, m, o) {
			return macInUse(network, m)
		}
		mac = m
	}
	next := cloneWith(o.doc, in)
	if asked, given := in["fixed_ips"].([]any); given {
		ips, err := t.moveAddresses(o, asked, mac)
		if err != nil {
			return err
		}
		in["fixed_ips"] = ips
	}
	_, groups := in["security_groups"]
	_, pairs := in["allowed_address_pairs"]
	_, security := in["port_security_enabled"]
	if groups || pairs || security {
		if err := t.portGroups(next, o.project); err != nil {
			return err
		}
	}
	if _, given := in["allowed_address_pairs"]; given {
		fillPairs(in, mac)
	}
	bind(next, in)
	t.update(o, in)
	return nil
}

// moveAddresses changes a port's addresses: what it has and is asked for again, stays.
func (t *tx) moveAddresses(o *object, asked []any, mac string) ([]any, error) {
	requests, err := t.resolve(str(o.doc, "network_id"), asked, "update")
	if err != nil {
		return nil, err
	}
	have := slices.Clone(list(o.doc, "fixed_ips"))
	kept := []any{}
	keep := func(match func(sub, ip string) bool) bool {
		i := slices.IndexFunc(have, func(f any) bool {
			m, _ := f.(map[string]any)
			return match(str(m, "subnet_id"), str(m, "ip_address"))
		})
		if i >= 0 {
			kept = append(kept, have[i])
			have = slices.Delete(have, i, i+1)
		}
		return i >= 0
	}
	requests = slices.DeleteFunc(requests, func(r request) bool {
		return r.addr.IsValid() && keep(func(_, ip string) bool { return ip == r.addr.String() })
	})
	requests = slices.DeleteFunc(requests, func(r request) bool {
		return !r.addr.IsValid() && keep(func(sub, _ string) bool { return sub == r.subnet.id })
	})
	for _, f := range have {
		t.releaseAddress(f)
	}
	auto := o.auto
	added, err := t.allocate(str(o.doc, "network_id"), mac, isRouterPort(o), requests, auto)
	if err != nil {
		return nil, err
	}
	return append(kept, added...), nil
}

func (t *tx) releaseAddress(fixed any) {
	m, _ := fixed.(map[string]any)
	a, err := netip.ParseAddr(str(m, "ip_address"))
	if s, ok := t.any("subnet", str(m, "subnet_id")); ok && err == nil {
		t.unclaim(s, a)
	}
}

func removePort(t *tx, o *object) error {
	if owner := str(o.doc, "device_owner"); isRouterPort(o) || owner == "network:router_gateway" ||
		owner == "network:floatingip" {
		return conflict("ServicePortInUse", "Port %s cannot be deleted directly via the port API: has device owner %s.",
			o.id, owner)
	}
	t.erasePort(o)
	return nil
}

// erasePort removes a port, its addresses, and what floating IPs say of it.
func (t *tx) erasePort(o *object) {
	for f := range t.c.by("floatingip", "port_id", o.id) {
		t.change(f, leadsNowhere())
		settleFloatingIP(t, f)
	}
	for _, f := range list(o.doc, "fixed_ips") {
		t.releaseAddress(f)
	}
	t.erase(o)
}
