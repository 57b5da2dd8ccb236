// SPDX-License-Identifier: Apache-2.0

package openstack

func networkMissing(id string) *apiError {
	return notFound("NetworkNotFound", "Network %s could not be found.", id)
}

// maxMTU is what OVN leaves of 1500 bytes under Geneve.
const maxMTU = 1442

func networkKind() *kind {
	provider := none | secret | adminPost | adminPut | rw
	return &kind{
		name: "network", plural: "networks", path: "networks", missing: networkMissing,
		fields: fieldsOf(
			field{"admin_state_up", rw, asBool, true},
			field{"shared", rw | adminPost | adminPut, asBool, false},
			field{"router:external", rw | adminPost | adminPut, asBool, false},
			field{"is_default", rw | adminPost | adminPut | none, asBool, nil},
			field{"mtu", rw, asInt(0, maxInt), int64(0)},
			field{"port_security_enabled", rw, asBool, true},
			field{"dns_domain", rw, orEmpty(asString(255)), ""},
			field{"qos_policy_id", rw, orNil(asUUID), nil},
			field{"availability_zone_hints", post, listOf(asString(255), true), []any{}},
			field{"provider:network_type", provider, asString(0), nil},
			field{"provider:physical_network", provider, orNil(asString(0)), nil},
			field{"provider:segmentation_id", provider, orNil(asInt(1, maxInt)), nil},
			field{"status", none, nil, nil}, field{"subnets", none | noFilter, nil, nil},
			field{"availability_zones", none | noFilter, nil, nil}, field{"ipv4_address_scope", none, nil, nil},
			field{"ipv6_address_scope", none, nil, nil}, field{"l2_adjacency", none | noFilter, nil, nil},
			field{"vlan_transparent", none | noFilter, nil, nil},
		),
		create: createNetwork, update: updateNetwork, remove: removeNetwork,
	}
}

func checkMTU(doc map[string]any) error {
	mtu, ok := doc["mtu"].(int64)
	if ok && mtu > maxMTU {
		return invalidInput("Requested MTU is too big, maximum is %d", maxMTU)
	}
	if ok && mtu == 0 {
		doc["mtu"] = int64(maxMTU)
	}
	return nil
}

func createNetwork(t *tx, in map[string]any) (*object, error) {
	if err := checkMTU(in); err != nil {
		return nil, err
	}
	t.defaultGroup(str(in, "project_id"))
	in["status"], in["subnets"] = "ACTIVE", []any{}
	in["availability_zones"], in["l2_adjacency"] = []any{}, true
	in["ipv4_address_scope"], in["ipv6_address_scope"] = nil, nil
	if _, ok := in["provider:network_type"]; !ok {
		in["provider:network_type"] = "geneve"
	}
	if _, ok := in["provider:segmentation_id"]; !ok && in["provider:network_type"] == "geneve" {
		in["provider:segmentation_id"] = t.c.lastSeq + 1
	}
	if _, ok := in["provider:physical_network"]; !ok {
		in["provider:physical_network"] = nil
	}
	net := t.insert(t.c.kinds["networks"], in)
	return net, t.addMetadataPort(net)
}

func updateNetwork(t *tx, o *object, in map[string]any) error {
	if err := checkMTU(in); err != nil {
		return err
	}
	t.update(o, in)
	return nil
}

// removeNetwork takes the subnets and the cloud's own port with it, unless another port is left.
func removeNetwork(t *tx, o *object) error {
	own := t.metadataPort(o.id)
	for p := range t.c.by("port", "network_id", o.id) {
		if p != own {
			return conflict("NetworkInUse",
				"Unable to complete operation on network %s. There are one or more ports still in use on the network.", o.id)
		}
	}
	if own != nil {
		t.erasePort(own)
	}
	for _, s := range t.c.subnetsOf(o.id) {
		t.erase(s)
	}
	t.erase(o)
	return nil
}

// addExternal makes the external network "public" of the administrator.
func (c *Cloud) addExternal() {
	t := &tx{c: c, who: scope{project: c.accounts.projects[ProjectAdmin], admin: true}, now: c.clock.Now()}
	make1 := func(path string, attrs map[string]any) *object {
		k := c.kinds[path]
		doc, err := k.forCreate(t.who, attrs, false)
		if err == nil {
			var o *object
			if o, err = k.create(t, doc); err == nil {
				return o
			}
		}
		panic("making the external network: " + err.Error())
	}
	n := make1("networks", map[string]any{
		"name": "public", "router:external": true, "provider:network_type": "flat", "provider:physical_network": "external",
	})
	make1("subnets", map[string]any{
		"name": "public-subnet", "network_id": n.id, "ip_version": int64(4), "cidr": "172.24.4.0/24", "enable_dhcp": false,
	})
}
