package openstack

import "slices"

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

// addMetadataAddress gives the network's own port an address of a new IPv4 subnet that has DHCP. A subnet without room goes
// without.
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
