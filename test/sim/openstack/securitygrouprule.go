// SPDX-License-Identifier: Apache-2.0

package openstack

import (
	"net/http"
	"net/netip"
	"strconv"
	"strings"
)

func ruleMissing(id string) *apiError {
	return notFound("SecurityGroupRuleNotFound", "Security group rule %s does not exist", id)
}

func protocols() []string {
	return []string{
		"ah", "dccp", "egp", "esp", "gre", "hopopt", "icmp", "igmp", "ip", "ipip", "ipv6-encap", "ipv6-frag", "ipv6-icmp",
		"icmpv6",
		"ipv6-nonxt", "ipv6-opts", "ipv6-route", "ospf", "pgm", "rsvp", "sctp", "tcp", "udp", "udplite", "vrrp", "any",
	}
}

func asProtocol(v any) (any, error) {
	s, _ := v.(string)
	if n, err := asInt(0, 255)(v); err == nil {
		return strconv.FormatInt(n.(int64), 10), nil
	}
	s = strings.ToLower(s)
	for _, p := range protocols() {
		if s == p {
			return s, nil
		}
	}
	return nil, neutron(http.StatusBadRequest, "SecurityGroupRuleInvalidProtocol",
		"Security group rule protocol %v not supported. Only protocol values %s and integer representations [0 to 255] "+
			"are supported.", v, pyList(protocols()))
}

func asEtherType(v any) (any, error) {
	s, _ := v.(string)
	switch strings.ToLower(s) {
	case "ipv4":
		return "IPv4", nil
	case "ipv6":
		return "IPv6", nil
	}
	return oneOf("IPv4", "IPv6")(v)
}

func securityGroupRuleKind() *kind {
	k := &kind{
		name: "security_group_rule", plural: "security_group_rules", path: "security-group-rules", missing: ruleMissing,
		index: []string{"security_group_id", "remote_group_id"},
		fields: fieldsOf(
			field{"security_group_id", post | required, asUUID, nil},
			field{"direction", post | required, oneOf("ingress", "egress"), nil},
			field{"ethertype", post, asEtherType, "IPv4"},
			field{"protocol", post, orNil(asProtocol), nil},
			field{"port_range_min", post, orNil(asInt(0, 65535)), nil},
			field{"port_range_max", post, orNil(asInt(0, 65535)), nil},
			field{"remote_ip_prefix", post, orNil(asCIDR), nil},
			field{"remote_group_id", post, orNil(asUUID), nil},
			field{"remote_address_group_id", post, orNil(asUUID), nil},
			field{"normalized_cidr", none, nil, nil}, field{"belongs_to_default_sg", none, nil, nil},
		),
		create: createRule, update: updateRule, remove: func(t *tx, o *object) error { t.eraseRule(o); return nil },
	}
	delete(k.fields, "name")
	return k
}

// oneGroup refuses a bulk create of rules of several groups.
func oneGroup(k *kind, docs []map[string]any) error {
	for _, doc := range docs {
		if k.name == "security_group_rule" && doc["security_group_id"] != docs[0]["security_group_id"] {
			return neutron(http.StatusBadRequest, "SecurityGroupNotSingleGroupRules",
				"Only allowed to update rules for one security profile at a time")
		}
	}
	return nil
}

func createRule(t *tx, in map[string]any) (*object, error) {
	group, ok := t.get("security_group", str(in, "security_group_id"))
	if !ok {
		return nil, securityGroupMissing(str(in, "security_group_id"))
	}
	if err := t.checkRule(in); err != nil {
		return nil, err
	}
	for r := range t.c.by("security_group_rule", "security_group_id", group.id) {
		if sameRule(r.doc, in) {
			return nil, conflict("SecurityGroupRuleExists", "Security group rule already exists. Rule id is %s.", r.id)
		}
	}
	in["normalized_cidr"] = nil
	if p, err := netip.ParsePrefix(str(in, "remote_ip_prefix")); err == nil {
		in["normalized_cidr"] = p.Masked().String()
	}
	in["belongs_to_default_sg"] = group.doc["name"] == "default"
	o := t.insert(t.c.kinds["security-group-rules"], in)
	t.bump(group)
	return o, nil
}

func (t *tx) checkRule(in map[string]any) error {
	low, hasLow := in["port_range_min"].(int64)
	high, hasHigh := in["port_range_max"].(int64)
	protocol, remote := str(in, "protocol"), str(in, "remote_group_id")
	icmp := protocol == "icmp" || protocol == "icmpv6" || protocol == "ipv6-icmp" || protocol == "1" || protocol == "58"
	switch {
	case remote != "" && str(in, "remote_ip_prefix") != "":
		return neutron(http.StatusBadRequest, "SecurityGroupMultipleRemoteEntites",
			"Only one of remote_ip_prefix, remote_group_id or remote_address_group_id may be provided.")
	case (hasLow || hasHigh) && (protocol == "" || protocol == "any"):
		return neutron(http.StatusBadRequest, "SecurityGroupProtocolRequiredWithPorts",
			"Must also specify protocol if port range is given.")
	case icmp && hasLow && low > 255:
		return neutron(http.StatusBadRequest, "SecurityGroupInvalidIcmpValue",
			"Invalid value for ICMP type (port-range-min) %d. It must be 0 to 255.", low)
	case icmp && hasHigh && !hasLow:
		return neutron(http.StatusBadRequest, "SecurityGroupMissingIcmpType",
			"ICMP code (port-range-max) %d is provided but ICMP type (port-range-min) is missing.", high)
	case !icmp && hasLow != hasHigh, !icmp && hasLow && low > high:
		return neutron(http.StatusBadRequest, "SecurityGroupInvalidPortRange",
			"For TCP/UDP protocols, port_range_min must be <= port_range_max")
	}
	if remote != "" {
		if _, ok := t.get("security_group", remote); !ok {
			return securityGroupMissing(remote)
		}
	}
	return checkEtherType(in, protocol)
}

func checkEtherType(in map[string]any, protocol string) error {
	ethertype, cidr := str(in, "ethertype"), str(in, "remote_ip_prefix")
	if v6 := strings.Contains(cidr, ":"); cidr != "" && v6 != (ethertype == "IPv6") {
		return neutron(http.StatusBadRequest, "SecurityGroupRuleParameterConflict",
			"Conflicting value ethertype %s for CIDR %s", ethertype, cidr)
	}
	if strings.HasPrefix(protocol, "ipv6-") && ethertype == "IPv4" {
		return neutron(http.StatusBadRequest, "SecurityGroupEthertypeConflictWithProtocol",
			"Invalid ethertype %s for protocol %s.", ethertype, protocol)
	}
	if cidr != "" && !strings.Contains(cidr, "/") {
		if strings.Contains(cidr, ":") {
			in["remote_ip_prefix"] = cidr + "/128"
		} else {
			in["remote_ip_prefix"] = cidr + "/32"
		}
	}
	return nil
}

// sameRule: everything but the description says the same. A range of all addresses is as good as none.
func sameRule(a, b map[string]any) bool {
	for _, name := range []string{
		"direction", "ethertype", "protocol", "port_range_min", "port_range_max", "remote_ip_prefix", "remote_group_id",
		"remote_address_group_id",
	} {
		if unlessAny(a[name]) != unlessAny(b[name]) {
			return false
		}
	}
	return true
}

// unlessAny returns a value, nil for a range of all addresses.
func unlessAny(value any) any {
	if value == "0.0.0.0/0" || value == "::/0" {
		return nil
	}
	return value
}

// updateRule: a rule can change its description only, which the schema sees to.
func updateRule(t *tx, o *object, in map[string]any) error {
	t.update(o, in)
	if group, ok := t.any("security_group", str(o.doc, "security_group_id")); ok {
		t.bump(group)
	}
	return nil
}

func (t *tx) eraseRule(o *object) {
	t.erase(o)
	if group, ok := t.any("security_group", str(o.doc, "security_group_id")); ok {
		t.bump(group)
	}
}
