// SPDX-License-Identifier: Apache-2.0

package openstack

import (
	"errors"
	"net/netip"
	"slices"
)

const distributed = "network:distributed"

// addMetadataPort gives a new network the port that Neutron's OVN driver keeps in it for the metadata service.
func (t *tx) addMetadataPort(net *object) error {
	if !t.c.opts.MetadataPorts || truth(net.doc, "router:external") {
		return nil
	}
	doc, err := t.c.kinds["ports"].forCreate(scope{project: net.project, admin: true}, map[string]any{
		"network_id": net.id, "device_owner": distributed, "device_id": "ovnmeta-" + net.id, "fixed_ips": []any{},
		"security_groups": []any{}, "port_security_enabled": false,
	}, false)
	if err != nil {
		return err
	}
	_, err = t.makePort(net, doc)
	return err
}

func (t *tx) metadataPort(network string) *object {
	for p := range t.c.by("port", "network_id", network) {
		if str(p.doc, "device_owner") == distributed {
			return p
		}
	}
	return nil
}

// addMetadataAddress gives the network's own port an address of a new IPv4 subnet that has DHCP. A subnet without
// room goes without.
func (t *tx) addMetadataAddress(sub *object) {
	port := t.metadataPort(str(sub.doc, "network_id"))
	if port == nil || !sub.ipam.prefix.Addr().Is4() || !truth(sub.doc, "enable_dhcp") {
		return
	}
	a, err := t.allocateFrom(str(sub.doc, "network_id"), str(port.doc, "mac_address"), []*object{sub}, port.auto)
	if err != nil {
		return
	}
	ips := append(slices.Clone(list(port.doc, "fixed_ips")), map[string]any{"subnet_id": sub.id, "ip_address": a.String()})
	t.change(port, map[string]any{"fixed_ips": ips})
}

// leak makes the addresses of the ports that are about to be undone stay taken, if the error is that there are no more.
func (t *tx) leak(ports []*object, err error) {
	if own := new(apiError); !errors.As(err, &own) || own.kind != "IpAddressGenerationFailure" {
		return
	}
	lost := make(map[*object][]netip.Addr)
	for _, p := range ports {
		for _, f := range list(p.doc, "fixed_ips") {
			m, _ := f.(map[string]any)
			a, err := netip.ParseAddr(str(m, "ip_address"))
			if s, ok := t.any("subnet", str(m, "subnet_id")); ok && err == nil {
				lost[s] = append(lost[s], a)
			}
		}
	}
	// What is to be undone first of all is done last of all.
	t.undo = append([]func(){func() {
		for s, addresses := range lost {
			for _, a := range addresses {
				s.ipam.take(a)
			}
		}
	}}, t.undo...)
}
