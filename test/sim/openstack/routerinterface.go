// SPDX-License-Identifier: Apache-2.0

package openstack

import (
	"net/http"
	"net/netip"
)

const routerInterface = "network:router_interface"

// routerAction is PUT /routers/<id>/<action>.
func (t *tx) routerAction(r *http.Request, where target, in map[string]any) (response, error) {
	o, ok := t.get("router", where.id)
	if !ok {
		return response{}, routerMissing(where.id)
	}
	if err := t.mayWrite(o, r.Method); err != nil {
		return response{}, err
	}
	if err := ifMatch(r, o); err != nil {
		return response{}, err
	}
	var port *object
	var sub string
	var err error
	switch where.sub {
	case "add_router_interface":
		port, sub, err = t.addInterface(o, in)
	case "remove_router_interface":
		port, sub, err = t.removeInterface(o, in)
	case "add_extraroutes":
		return t.changeRoutes(o, in, true)
	case "remove_extraroutes":
		return t.changeRoutes(o, in, false)
	default:
		return response{}, noSuchResource()
	}
	if err != nil {
		return response{}, err
	}
	t.bump(o)
	return jsonResponse(http.StatusOK, map[string]any{
		"id": o.id, "tenant_id": o.project, "project_id": o.project, "port_id": port.id, "network_id": port.doc["network_id"],
		"subnet_id": sub, "subnet_ids": []string{sub},
	}), nil
}

func (t *tx) addInterface(o *object, in map[string]any) (*object, string, error) {
	portID, subnetID := str(in, "port_id"), str(in, "subnet_id")
	switch {
	case portID != "" && subnetID != "":
		return nil, "", badResource("router", "Cannot specify both subnet-id and port-id")
	case portID != "":
		return t.addByPort(o, portID)
	case subnetID != "":
		return t.addBySubnet(o, subnetID)
	}
	return nil, "", badResource("router", "Either subnet_id or port_id must be specified")
}

func (t *tx) addByPort(o *object, id string) (*object, string, error) {
	p, ok := t.get("port", id)
	if !ok {
		return nil, "", portMissing(id)
	}
	if device := str(p.doc, "device_id"); device != "" {
		return nil, "",
			conflict("PortInUse",
				"Unable to complete operation on port %s for network %s. Port already has an attached device %s.", id,
				str(p.doc, "network_id"), device)
	}
	fixed := list(p.doc, "fixed_ips")
	if len(fixed) == 0 {
		return nil, "", badResource("router", "Router port must have at least one fixed IP")
	}
	v4 := 0
	for _, f := range fixed {
		m, _ := f.(map[string]any)
		s, ok := t.any("subnet", str(m, "subnet_id"))
		if !ok {
			return nil, "", subnetMissing(str(m, "subnet_id"))
		}
		if s.ipam.prefix.Addr().Is4() {
			v4++
		}
		if err := t.checkAttach(o, s); err != nil {
			return nil, "", err
		}
	}
	if v4 > 1 {
		return nil, "", badResource("router", "Cannot have multiple IPv4 subnets on router port")
	}
	t.change(p,
		map[string]any{
			"device_id": o.id, "device_owner": routerInterface, "status": "ACTIVE", "security_groups": []any{},
			"port_security_enabled": false,
		})
	first, _ := fixed[0].(map[string]any)
	return p, str(first, "subnet_id"), nil
}

func (t *tx) addBySubnet(o *object, id string) (*object, string, error) {
	s, ok := t.get("subnet", id)
	if !ok {
		return nil, "", subnetMissing(id)
	}
	gateway := str(s.doc, "gateway_ip")
	if gateway == "" {
		return nil, "", badResource("router", "Subnet for router interface must have a gateway IP")
	}
	if err := t.checkAttach(o, s); err != nil {
		return nil, "", err
	}
	net, ok := t.get("network", str(s.doc, "network_id"))
	if !ok {
		return nil, "", networkMissing(str(s.doc, "network_id"))
	}
	if net.project != t.who.project && !t.who.admin {
		return nil, "", forbidden("rule:add_router_interface")
	}
	p, err := t.makePort(net, map[string]any{
		"name": "", "description": "", "project_id": o.project, "network_id": net.id, "device_id": o.id,
		"device_owner":   routerInterface,
		"admin_state_up": true, "binding:vnic_type": "normal", "port_security_enabled": false, "dns_name": "",
		"qos_policy_id":   nil,
		"extra_dhcp_opts": []any{}, "fixed_ips": []any{map[string]any{"subnet_id": id, "ip_address": gateway}},
	})
	return p, id, err
}

// checkAttach: a router has one port on a subnet, and no two subnets that overlap.
func (t *tx) checkAttach(o, s *object) error {
	ports := t.interfaces(o.id)
	if gw := t.gatewayPort(o.id); gw != nil {
		ports = append(ports, gw)
	}
	for _, p := range ports {
		for _, f := range list(p.doc, "fixed_ips") {
			m, _ := f.(map[string]any)
			other := str(m, "subnet_id")
			if other == s.id {
				return badResource("router", "Router already has a port on subnet %s", s.id)
			}
			if x, ok := t.any("subnet", other); ok && x.ipam.prefix.Overlaps(s.ipam.prefix) {
				return badResource("router", "Cidr %s of subnet %s overlaps with cidr %s of subnet %s", s.ipam.prefix, s.id,
					x.ipam.prefix, other)
			}
		}
	}
	return nil
}

// removeInterface removes an interface, and deletes its port.
func (t *tx) removeInterface(o *object, in map[string]any) (*object, string, error) {
	portID, subnetID := str(in, "port_id"), str(in, "subnet_id")
	if portID == "" && subnetID == "" {
		return nil, "", badResource("router", "Either subnet_id or port_id must be specified")
	}
	for _, p := range t.interfaces(o.id) {
		var subnets []string
		for _, f := range list(p.doc, "fixed_ips") {
			m, _ := f.(map[string]any)
			subnets = append(subnets, str(m, "subnet_id"))
		}
		if portID != "" && p.id != portID {
			continue
		}
		if subnetID != "" && (len(subnets) == 0 || subnets[0] != subnetID) {
			if portID != "" {
				return nil, "",
					neutron(http.StatusBadRequest, "SubnetMismatchForPort",
						"Subnet on port %s does not match the requested subnet %s.", portID, subnetID)
			}
			continue
		}
		for _, id := range subnets {
			if err := t.interfaceInUse(o, id); err != nil {
				return nil, "", err
			}
		}
		t.erasePort(p)
		sub := ""
		if len(subnets) > 0 {
			sub = subnets[0]
		}
		return p, sub, nil
	}
	if portID != "" {
		return nil, "", notFound("RouterInterfaceNotFound", "Router %s does not have an interface with id %s", o.id, portID)
	}
	if _, ok := t.get("subnet", subnetID); !ok {
		return nil, "", subnetMissing(subnetID)
	}
	return nil, "", notFound("RouterInterfaceNotFoundForSubnet", "Router %s has no interface on subnet %s", o.id, subnetID)
}

// interfaceInUse: routes and floating IPs hold an interface.
func (t *tx) interfaceInUse(o *object, subnetID string) error {
	s, ok := t.any("subnet", subnetID)
	if !ok {
		return nil
	}
	for _, r := range list(o.doc, "routes") {
		m, _ := r.(map[string]any)
		if hop, err := netip.ParseAddr(str(m, "nexthop")); err == nil && s.ipam.prefix.Contains(hop) {
			return conflict("RouterInterfaceInUseByRoute",
				"Router interface for subnet %s on router %s cannot be deleted, as it is required by one or more routes.",
				subnetID, o.id)
		}
	}
	for p := range t.c.by("port", "fixed_ips.subnet_id", subnetID) {
		for f := range t.c.by("floatingip", "port_id", p.id) {
			if f.doc["router_id"] == o.id {
				return conflict("RouterInterfaceInUseByFloatingIP",
					"Router interface for subnet %s on router %s cannot be deleted, as it is required by one or more floating IPs.",
					subnetID, o.id)
			}
		}
	}
	return nil
}
