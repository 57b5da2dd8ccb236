// SPDX-License-Identifier: Apache-2.0

package openstack

import (
	"net/http"
	"net/netip"
	"strings"
)

// vipRequest checks what a create says of the VIP, and fills in what follows from it.
func (t *tx) vipRequest(in map[string]any) error {
	port, network, subnet := str(in, "vip_port_id"), str(in, "vip_network_id"), str(in, "vip_subnet_id")
	var err error
	switch {
	case port != "":
		err = t.vipOnPort(in, port)
	case network != "":
		err = t.vipOnNetwork(in, network)
	case subnet != "":
		s, ok := t.get("subnet", subnet)
		if !ok {
			return noSubresource("Subnet", subnet)
		}
		in["vip_network_id"] = str(s.doc, "network_id")
	default:
		return octavia(http.StatusBadRequest, "VIPValidationException",
			"Validation failure: VIP must contain one of: vip_port_id, vip_network_id, vip_subnet_id.")
	}
	if err != nil {
		return err
	}
	if q := str(in, "vip_qos_policy_id"); q != "" {
		return noSubresource("qos_policy", q)
	}
	return t.additionalSubnets(in)
}

func (t *tx) vipOnPort(in map[string]any, id string) error {
	p, ok := t.get("port", id)
	if !ok {
		return noSubresource("Port", id)
	}
	if d := str(p.doc, "device_id"); d != "" {
		return validation("Port %s is already used by device %s ", id, d)
	}
	in["vip_network_id"] = str(p.doc, "network_id")
	wantSubnet, wantAddress := str(in, "vip_subnet_id"), str(in, "vip_address")
	fixed := list(p.doc, "fixed_ips")
	for _, f := range fixed {
		m, _ := f.(map[string]any)
		bySubnet := wantSubnet != "" && str(m, "subnet_id") == wantSubnet
		byAddress := wantSubnet == "" && wantAddress != "" && sameAddress(str(m, "ip_address"), wantAddress)
		if bySubnet || byAddress || (wantSubnet == "" && wantAddress == "" && len(fixed) == 1) {
			in["vip_subnet_id"], in["vip_address"] = m["subnet_id"], m["ip_address"]
			return nil
		}
	}
	switch {
	case wantSubnet != "":
		return validation("No VIP address found on the specified VIP port within the specified subnet.")
	case wantAddress != "":
		return validation("Specified VIP address not found on the specified VIP port.")
	}
	return validation("VIP port's subnet could not be determined. Please specify either a VIP subnet or address.")
}

func sameAddress(a, b string) bool {
	x, errX := netip.ParseAddr(a)
	y, errY := netip.ParseAddr(b)
	return errX == nil && errY == nil && x == y
}

func (t *tx) vipOnNetwork(in map[string]any, id string) error {
	if _, ok := t.get("network", id); !ok {
		return noSubresource("Network", id)
	}
	subnets := t.c.subnetsOf(id)
	if want := str(in, "vip_subnet_id"); want != "" {
		for _, s := range subnets {
			if s.id == want {
				return nil
			}
		}
		return noSubresource("Subnet", want)
	}
	address, err := netip.ParseAddr(str(in, "vip_address"))
	if err == nil {
		for _, s := range subnets {
			if s.ipam.prefix.Contains(address) {
				in["vip_subnet_id"] = s.id
				return nil
			}
		}
		return validation("Supplied network does not contain a subnet for VIP address specified.")
	}
	if len(subnets) == 0 {
		return validation("Supplied network does not contain a subnet.")
	}
	in["vip_subnet_id"] = subnets[0].id
	for _, s := range subnets {
		if s.ipam.prefix.Addr().Is4() {
			in["vip_subnet_id"] = s.id
			break
		}
	}
	return nil
}

// additionalSubnets: one address per subnet, all on one network.
func (t *tx) additionalSubnets(in map[string]any) error {
	seen := map[string]bool{str(in, "vip_subnet_id"): true}
	for _, v := range list(in, "additional_vips") {
		m, _ := v.(map[string]any)
		id := str(m, "subnet_id")
		if seen[id] {
			return validation("Duplicate VIP subnet(s) specified. Only one IP can be bound per subnet.")
		}
		seen[id] = true
		s, ok := t.get("subnet", id)
		if !ok {
			return octavia(http.StatusInternalServerError, "SubnetNotFound", "subnet not found (subnet id: %s).", id)
		}
		if s.doc["network_id"] != in["vip_network_id"] {
			return validation("All VIP subnets must belong to the same network.")
		}
	}
	return nil
}

// makeVIP makes the VIP port, or takes the given one.
func (t *tx) makeVIP(p *Provider, lb *object) error {
	if str(lb.doc, "vip_port_id") != "" {
		if p.ForeignVIP {
			return nil
		}
		return octavia(http.StatusInternalServerError, "ProviderDriverError",
			"Provider '%s' reports error: IP address %s already allocated in subnet %s",
			p.Name, str(lb.doc, "vip_address"), str(lb.doc, "vip_subnet_id"))
	}
	port, err := t.vipPort(p, lb)
	if err != nil {
		return octavia(http.StatusInternalServerError, "AllocateVIPException", "%s", neutronText(p, err))
	}
	lb.own.port = port.id
	ips := list(port.doc, "fixed_ips")
	first, _ := ips[0].(map[string]any)
	extra := append([]any{}, ips[1:]...)
	auto := str(lb.doc, "vip_address") == ""
	t.lbSet(lb, map[string]any{"vip_port_id": port.id, "vip_address": first["ip_address"]})
	if !p.IgnoresAdditionalVIPs && !t.c.opts.NoAdditionalVIPs {
		t.lbSet(lb, map[string]any{"additional_vips": extra})
	}
	lb.doc["updated_at"] = nil
	if auto {
		t.markAuto(lb, str(first, "ip_address"))
	}
	return nil
}

func neutronText(p *Provider, err error) string {
	_, text, _ := strings.Cut(err.Error(), ": ")
	if p.Amphorae {
		return text
	}
	return "Provider '" + p.Name + "' reports error: " + text
}

// vipPort makes the VIP port as the provider does.
func (t *tx) vipPort(p *Provider, lb *object) (*object, error) {
	net, ok := t.any("network", str(lb.doc, "vip_network_id"))
	if !ok {
		return nil, networkMissing(str(lb.doc, "vip_network_id"))
	}
	ips := []any{vipAsked(map[string]any{"subnet_id": lb.doc["vip_subnet_id"], "ip_address": lb.doc["vip_address"]})}
	for _, v := range list(lb.doc, "additional_vips") {
		if m, _ := v.(map[string]any); !p.IgnoresAdditionalVIPs {
			ips = append(ips, vipAsked(m))
		}
	}
	in := map[string]any{"network_id": net.id, "project_id": lb.project, "fixed_ips": ips, "name": "ovn-lb-vip-" + lb.id}
	if p.Amphorae {
		in["name"], in["device_id"], in["device_owner"], in["admin_state_up"] = "octavia-lb-"+lb.id, "lb-"+
			lb.id, "Octavia", false
	}
	return t.servicePort(net, in)
}

// leakVIP leaves the VIP port of a create that is refused after it was made, as Octavia 11 does: it keeps the
// address, and nothing of Octavia's knows it.
func (t *tx) leakVIP(lb *object) {
	port, ok := t.any("port", lb.own.port)
	if !ok {
		return
	}
	in := map[string]any{}
	for _, name := range []string{
		"network_id", "project_id", "name", "device_id", "device_owner", "admin_state_up", "fixed_ips",
	} {
		in[name] = port.doc[name]
	}
	// What is to be undone first of all is done last of all.
	t.undo = append([]func(){func() {
		own := &tx{c: t.c, who: t.who, now: t.now}
		net, there := own.any("network", str(in, "network_id"))
		if _, err := own.servicePort(net, in); !there || err != nil {
			own.rollback()
		}
	}}, t.undo...)
}

func vipAsked(m map[string]any) map[string]any {
	out := map[string]any{"subnet_id": m["subnet_id"]}
	if a := str(m, "ip_address"); a != "" {
		out["ip_address"] = a
	}
	return out
}

// servicePort makes a port with a service's authority.
func (t *tx) servicePort(net *object, in map[string]any) (*object, error) {
	who := t.who
	defer func() { t.who = who }()
	t.who = scope{project: t.c.accounts.projects[ProjectAdmin], admin: true}
	doc, err := t.c.kinds["ports"].forCreate(t.who, in, false)
	if err != nil {
		return nil, err
	}
	if !t.c.room(str(doc, "project_id"), "port", 1) {
		return nil, overQuota("port")
	}
	return t.makePort(net, doc)
}

// plug makes what amphorae need beside the VIP port: a port of their own on its subnet, and a security group for it.
func (t *tx) plug(p *Provider, lb *object) error {
	if !p.Amphorae {
		return nil
	}
	vip, ok := t.any("port", str(lb.doc, "vip_port_id"))
	net, found := t.any("network", str(lb.doc, "vip_network_id"))
	if !ok || !found {
		return portMissing(str(lb.doc, "vip_port_id"))
	}
	doc, err := t.c.kinds["security-groups"].forCreate(t.who, map[string]any{"name": "lb-" + lb.id}, false)
	if err != nil {
		return err
	}
	group, err := t.c.kinds["security-groups"].create(t, doc)
	if err != nil {
		return err
	}
	lb.own.group = group.id
	own, err := t.servicePort(net, map[string]any{
		"network_id": net.id, "name": "octavia-lb-vrrp-" + lb.id, "device_owner": "Octavia", "device_id": "amphora-" + lb.id,
		"fixed_ips": []any{map[string]any{"subnet_id": lb.doc["vip_subnet_id"]}}, "security_groups": []any{group.id},
	})
	if err != nil {
		return err
	}
	lb.own.extra = append(lb.own.extra, own.id)
	groups := []any{group.id}
	if lb.own.port == "" {
		groups = append(list(vip.doc, "security_groups"), groups...)
	}
	t.change(vip, map[string]any{"security_groups": groups, "device_id": "lb-" + lb.id, "device_owner": "Octavia"})
	return nil
}

// unplug removes what the load balancer made in Neutron. A VIP port of the client's stays.
func (t *tx) unplug(lb *object) {
	for _, id := range append(lb.own.extra, lb.own.port) {
		if p, ok := t.any("port", id); ok {
			t.erasePort(p)
		}
	}
	if vip, ok := t.any("port", str(lb.doc, "vip_port_id")); ok && lb.own.port == "" {
		groups := []any{}
		for _, g := range list(vip.doc, "security_groups") {
			if g != lb.own.group {
				groups = append(groups, g)
			}
		}
		t.change(vip, map[string]any{"security_groups": groups, "device_id": "", "device_owner": ""})
	}
	if g, ok := t.any("security_group", lb.own.group); ok {
		for _, r := range t.c.rulesOf(g.id) {
			t.erase(r)
		}
		t.erase(g)
	}
}
