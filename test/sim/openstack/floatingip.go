// SPDX-License-Identifier: Apache-2.0

package openstack

import (
	"net/http"
	"net/netip"
)

func floatingIPMissing(id string) *apiError {
	return notFound("FloatingIPNotFound", "Floating IP %s could not be found", id)
}

func floatingIPKind() *kind {
	k := &kind{
		name: "floatingip", plural: "floatingips", path: "floatingips", missing: floatingIPMissing,
		index: []string{"port_id", "floating_ip_address", "floating_network_id", "router_id"},
		fields: fieldsOf(
			field{"floating_network_id", post | required, asUUID, nil},
			field{"subnet_id", post | none | noFilter, orNil(asUUID), nil},
			field{"floating_ip_address", post | none | adminPost, orNil(asIP), nil},
			field{"port_id", rw, orNil(asUUID), nil},
			field{"fixed_ip_address", rw, orNil(asIP), nil},
			field{"dns_name", post, orEmpty(asString(255)), ""},
			field{"dns_domain", post, orEmpty(asString(255)), ""},
			field{"qos_policy_id", rw | none, orNil(asUUID), nil},
			field{"router_id", none, nil, nil}, field{"status", none, nil, nil},
		),
		create: createFloatingIP, update: updateFloatingIP, remove: removeFloatingIP, settle: settleFloatingIP,
	}
	delete(k.fields, "name")
	return k
}

func createFloatingIP(t *tx, in map[string]any) (*object, error) {
	net, ok := t.get("network", str(in, "floating_network_id"))
	if !ok {
		return nil, networkMissing(str(in, "floating_network_id"))
	}
	if !truth(net.doc, "router:external") {
		return nil, badResource("floatingip", "Network %s is not a valid external network", net.id)
	}
	want := map[string]any{}
	if s := str(in, "subnet_id"); s != "" {
		want["subnet_id"] = s
	}
	if a := str(in, "floating_ip_address"); a != "" {
		want["ip_address"] = a
	}
	doc := map[string]any{
		"name": "", "description": "", "project_id": "", "network_id": net.id, "device_id": "PENDING", "admin_state_up": true,
		"device_owner": "network:floatingip", "binding:vnic_type": "normal", "port_security_enabled": false,
	}
	if len(want) > 0 {
		doc["fixed_ips"] = []any{want}
	}
	port, err := t.makePort(net, doc)
	if err != nil {
		return nil, err
	}
	var address string
	for _, f := range list(port.doc, "fixed_ips") {
		m, _ := f.(map[string]any)
		if a, err := netip.ParseAddr(str(m, "ip_address")); err == nil && a.Is4() {
			address = a.String()
		}
	}
	if address == "" {
		return nil,
			neutron(http.StatusBadRequest, "ExternalIpAddressExhausted",
				"Unable to find any IP address on external network %s.", net.id)
	}
	delete(in, "subnet_id")
	in["floating_ip_address"], in["status"], in["router_id"] = address, "DOWN", nil
	link, err := t.associate(in, nil)
	if err != nil {
		return nil, err
	}
	o := t.insert(t.c.kinds["floatingips"], cloneWith(in, link))
	if port.auto[address] {
		t.markAuto(o, address)
	}
	t.change(port, map[string]any{"device_id": o.id})
	return o, nil
}

// associate works out what a floating IP's port makes of it.
func (t *tx) associate(doc map[string]any, self *object) (map[string]any, error) {
	portID := str(doc, "port_id")
	if portID == "" {
		if str(doc, "fixed_ip_address") != "" {
			return nil, badResource("floatingip", "fixed_ip_address cannot be specified without a port_id")
		}
		return leadsNowhere(), nil
	}
	p, ok := t.get("port", portID)
	if !ok {
		return nil, portMissing(portID)
	}
	if p.project != str(doc, "project_id") && !t.who.admin {
		return nil,
			badResource("floatingip",
				"Cannot process floating IP association with Port %s, since that port is owned by a different tenant", portID)
	}
	fixed, subnet, err := pickFixed(p, str(doc, "fixed_ip_address"), t)
	if err != nil {
		return nil, err
	}
	external := str(doc, "floating_network_id")
	for f := range t.c.by("floatingip", "port_id", portID) {
		if f != self && f.doc["fixed_ip_address"] == fixed && f.doc["floating_network_id"] == external {
			return nil, conflict("FloatingIPPortAlreadyAssociated",
				"Cannot associate floating IP %s (%s) with port %s using fixed IP %s, as that fixed IP already has a floating "+
					"IP on external network %s.",
				str(doc, "floating_ip_address"), str(doc, "id"), portID, fixed, external)
		}
	}
	router := t.routerBetween(subnet, external)
	if router == "" {
		return nil, notFound("ExternalGatewayForFloatingIPNotFound",
			"External network %s is not reachable from subnet %s.  Therefore, cannot associate Port %s with a Floating IP.",
			external, subnet, portID)
	}
	return map[string]any{"port_id": portID, "fixed_ip_address": fixed, "router_id": router}, nil
}

func leadsNowhere() map[string]any {
	return map[string]any{"port_id": nil, "fixed_ip_address": nil, "router_id": nil}
}

// pickFixed returns the port's address that the floating IP stands for, and its subnet.
func pickFixed(p *object, want string, t *tx) (address, subnet string, err error) {
	for _, f := range list(p.doc, "fixed_ips") {
		m, _ := f.(map[string]any)
		a, perr := netip.ParseAddr(str(m, "ip_address"))
		if perr != nil || !a.Is4() || (want != "" && a.String() != want) {
			continue
		}
		if address != "" {
			return "", "",
				badResource("floatingip",
					"Port %s has multiple fixed IPv4 addresses.  Must provide a specific IPv4 address when assigning a floating IP",
					p.id)
		}
		address, subnet = a.String(), str(m, "subnet_id")
	}
	switch {
	case address != "":
		return address, subnet, nil
	case want != "":
		return "", "", badResource("floatingip", "Port %s does not have fixed ip %s", p.id, want)
	}
	return "", "", badResource("floatingip", "Cannot add floating IP to port %s that has no fixed IPv4 addresses", p.id)
}

// routerBetween finds the router that joins a subnet with an external network.
func (t *tx) routerBetween(subnet, external string) string {
	for p := range t.c.by("port", "fixed_ips.subnet_id", subnet) {
		if !isRouterPort(p) {
			continue
		}
		if gw := t.gatewayPort(str(p.doc, "device_id")); gw != nil && gw.doc["network_id"] == external {
			return str(p.doc, "device_id")
		}
	}
	return ""
}

// updateFloatingIP works out anew where one leads, whatever is changed of it: of a port with several addresses the
// address has to be named.
func updateFloatingIP(t *tx, o *object, in map[string]any) error {
	if _, given := in["port_id"]; !given && str(in, "fixed_ip_address") != "" {
		return badResource("floatingip", "fixed_ip_address cannot be specified without a port_id")
	}
	doc := cloneWith(o.doc, in)
	doc["fixed_ip_address"] = in["fixed_ip_address"]
	link, err := t.associate(doc, o)
	if err != nil {
		return err
	}
	t.update(o, cloneWith(in, link))
	return nil
}

// settleFloatingIP sets the state once the answer is written, which OVN's driver does: who names the answer's
// revision afterwards is refused.
func settleFloatingIP(t *tx, o *object) {
	status := "DOWN"
	if o.doc["router_id"] != nil {
		status = "ACTIVE"
	}
	t.update(o, map[string]any{"status": status})
}

func removeFloatingIP(t *tx, o *object) error {
	for p := range t.c.by("port", "device_id", o.id) {
		t.erasePort(p)
	}
	t.erase(o)
	return nil
}
