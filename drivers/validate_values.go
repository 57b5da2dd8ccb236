// SPDX-License-Identifier: Apache-2.0

package drivers

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
)

func sortedKeys(m map[string]any) []string { return slices.Sorted(maps.Keys(m)) }

// malformed says what is wrong with a text, and "" if nothing is.
func malformed(kind Kind, name, text string) string {
	switch name {
	case "name", "dns_domain", "device_id", "device_owner", "binding:host_id":
		if len([]rune(text)) > 255 && name != "name" { // names are cut by the core
			return "is longer than 255 characters"
		}
	case "cidr", "prefixes", "destination":
		return badPrefix(text)
	case "gateway_ip", "fixed_ip_address", "floating_ip_address", "dns_nameservers", "start", "end", "nexthop",
		"vip_address",
		"monitor_address":
		return badAddress(text)
	case "ip_address":
		if _, err := netip.ParsePrefix(text); kind == KindPort && err == nil {
			return "" // as an address pair may have it; see rules for a fixed IP
		}
		return badAddress(text)
	case "remote_ip_prefix":
		if _, err := netip.ParsePrefix(text); err == nil {
			return ""
		}
		return badAddress(text)
	case "mac_address":
		return badMAC(text)
	case "direction":
		return oneOf(text, "ingress", "egress")
	case "ethertype":
		return oneOf(text, "IPv4", "IPv6")
	case "ipv6_address_mode", "ipv6_ra_mode":
		return oneOf(text, "", "slaac", "dhcpv6-stateful", "dhcpv6-stateless")
	}
	return ""
}

func badPrefix(text string) string {
	prefix, err := netip.ParsePrefix(text)
	switch {
	case text == "":
		return ""
	case err != nil:
		return "is no range like 10.0.0.0/24"
	case prefix != prefix.Masked():
		return fmt.Sprintf("has bits set behind its prefix: %s is meant?", prefix.Masked())
	}
	return ""
}

func badAddress(text string) string {
	if _, err := netip.ParseAddr(text); text != "" && err != nil {
		return "is no IP address"
	}
	return ""
}

func badMAC(text string) string {
	parts := strings.Split(text, ":")
	for _, part := range parts {
		if len(part) != 2 || strings.Trim(part, "0123456789abcdefABCDEF") != "" {
			parts = nil
		}
	}
	if text != "" && len(parts) != 6 {
		return "is no MAC address like 02:00:00:00:00:01"
	}
	return ""
}

func oneOf(text string, choices ...string) string {
	if slices.Contains(choices, text) {
		return ""
	}
	return "is none of " + strings.Trim(strings.Join(choices, ", "), ", ")
}

// rules checks what concerns several fields of one spec.
func (v *validator) rules(at string, spec Spec) {
	switch s := spec.(type) {
	case Subnet:
		v.subnet(at, s)
	case LoadBalancer:
		v.balancer(at, s)
	case OVNLoadBalancer:
		v.ovnBalancer(at, s)
	case FloatingIP:
		if s.FixedIPAddress != nil && *s.FixedIPAddress != "" && s.PortID.IsZero() {
			v.say("%s: fixed_ip_address needs port_id", at)
		}
	case SecurityGroup:
		if s.DefaultRules != nil && *s.DefaultRules {
			v.say("%s: default_rules: only false can be asked for; leave it unset to keep the rules of a new group", at)
		}
	case SecurityGroupRule:
		if (s.PortRangeMin != nil || s.PortRangeMax != nil) && s.Protocol == nil {
			v.say("%s: port_range_min and port_range_max need protocol", at)
		}
		if s.RemoteIPPrefix != nil && *s.RemoteIPPrefix != "" && !s.RemoteGroupID.IsZero() {
			v.say("%s: remote_ip_prefix and remote_group_id exclude each other", at)
		}
	case Port:
		for i, ip := range s.FixedIPs {
			if ip.SubnetID.IsZero() && ip.IPAddress == "" {
				v.say("%s: fixed_ips[%d] needs subnet_id or ip_address", at, i)
			} else if problem := badAddress(ip.IPAddress); problem != "" {
				v.say("%s: fixed_ips[%d]: ip_address: %q %s", at, i, ip.IPAddress, problem)
			}
		}
		for i, pair := range s.AllowedAddressPairs {
			if pair.IPAddress == "" {
				v.say("%s: allowed_address_pairs[%d]: ip_address must be set", at, i)
			}
		}
	case PortPool:
		v.portPool(at, s)
	case Lookup:
		if s.Of == KindLookup || s.Of != "" && Schema(s.Of) == nil {
			v.say("%s: of: %q cannot be looked up", at, s.Of)
		}
	}
}

func (v *validator) subnet(at string, s Subnet) {
	if s.IPVersion != nil && *s.IPVersion != 4 && *s.IPVersion != 6 {
		v.say("%s: ip_version: %d is neither 4 nor 6", at, *s.IPVersion)
	}
	if s.CIDR == nil && s.SubnetPoolID.IsZero() {
		v.say("%s: needs cidr or subnetpool_id", at)
	}
	if s.PrefixLength != nil && s.SubnetPoolID.IsZero() {
		v.say("%s: prefixlen needs subnetpool_id", at)
	}
	if s.CIDR == nil || s.IPVersion == nil {
		return
	}
	if prefix, err := netip.ParsePrefix(*s.CIDR); err == nil && prefix.Addr().Is4() != (*s.IPVersion == 4) {
		v.say("%s: cidr: %s is no IPv%d range", at, *s.CIDR, *s.IPVersion)
	} else if err == nil && s.GatewayIP != nil && *s.GatewayIP != "" {
		if gateway, err := netip.ParseAddr(*s.GatewayIP); err == nil && gateway.Is4() != prefix.Addr().Is4() {
			v.say("%s: gateway_ip: %s is not of the IP version of %s", at, gateway, prefix)
		}
	}
}

func (v *validator) portPool(at string, s PortPool) {
	for _, field := range []struct {
		name  string
		value *int64
	}{{"min", s.Min}, {"max", s.Max}, {"batch", s.Batch}, {"interval", s.Interval}} {
		if field.value != nil && *field.value < 0 {
			v.say("%s: %s: %d is negative", at, field.name, *field.value)
		}
	}
	if s.Min != nil && s.Max != nil && *s.Max > 0 && *s.Min > *s.Max {
		v.say("%s: min: %d is more than max, which is %d", at, *s.Min, *s.Max)
	}
}

func (v *validator) contributions(s Set) {
	seen := map[string]bool{}
	for _, c := range s.Contributions {
		at := fmt.Sprintf("contribution %q", c.Name)
		if c.Name == "" {
			v.say("%s: name is empty", at)
		} else if seen[c.Name] {
			v.say("%s: its name is there twice", at)
		}
		seen[c.Name] = true
		v.role(at+": target", c.Target)
		if c.Mode != "" && c.Mode != Add && c.Mode != Replace {
			v.say("%s: mode: %q is neither add nor replace", at, c.Mode)
		}
		given := 0
		for _, set := range [...]bool{!c.SecurityGroup.IsZero(), c.AddressPair != nil, c.Route != nil, !c.Resource.IsZero()} {
			if set {
				given++
			}
		}
		fits := map[string]bool{
			"security_groups": !c.SecurityGroup.IsZero(), "allowed_address_pairs": c.AddressPair != nil,
			"routes":   c.Route != nil,
			"networks": !c.Resource.IsZero(), "routers": !c.Resource.IsZero(),
		}
		if fit, ok := fits[c.Attribute]; !ok {
			v.say("%s: attribute: nothing can be contributed to %q", at, c.Attribute)
		} else if !fit || given != 1 {
			v.say("%s: needs exactly one element, one for %s", at, c.Attribute)
		}
		element := Element(c)
		if given == 1 {
			v.element(at, c.Attribute, element)
		}
	}
}

func (v *validator) element(at, attribute string, element any) {
	switch x := element.(type) {
	case Ref:
		v.ref(at+": "+attribute, nil, x)
		v.hard(at+": "+attribute, x)
	case string:
		if x == "" {
			v.say("%s: %s: is empty", at, attribute)
		}
	case map[string]any:
		for _, name := range sortedKeys(x) {
			text, _ := x[name].(string)
			if problem := malformed(KindPort, name, text); problem != "" {
				v.say("%s: %s: %q %s", at, name, text, problem)
			} else if text == "" && name != "mac_address" {
				v.say("%s: %s must be set", at, name)
			}
		}
	}
}

func (v *validator) outputs(s Set) {
	type target struct {
		kind OutputKind
		key  string
	}
	seen := map[target]bool{}
	for _, o := range s.Outputs {
		at := fmt.Sprintf("output %s %q", o.Kind, o.Key)
		switch o.Kind {
		case Annotation:
			v.declared(at, v.info.Annotations, o.Key)
		case Label:
			v.declared(at, v.info.Labels, o.Key)
		case Ingress:
			v.ingress(at, o)
		default:
			v.say("%s: its kind is neither annotation nor label nor ingress", at)
			continue
		}
		if seen[target{o.Kind, o.Key}] {
			v.say("%s: is there twice", at)
		}
		seen[target{o.Kind, o.Key}] = true
		switch {
		case o.Document != nil && !o.Text.IsZero():
			v.say("%s: text and document exclude each other", at)
		case o.Document != nil:
			v.document(at, *o.Document)
		case o.Text.Ref != nil:
			v.ref(at+": text", nil, *o.Text.Ref)
			v.hard(at+": text", *o.Text.Ref)
		}
	}
}

func (v *validator) declared(at string, keys []string, key string) {
	if !slices.Contains(keys, key) {
		v.say("%s: the key is not among those that the driver declares", at)
	}
}

// ingress checks an address for status.loadBalancer.
func (v *validator) ingress(at string, o Output) {
	v.declared(at, v.info.Status, StatusLoadBalancer)
	if problem := badAddress(o.Text.Literal); problem != "" {
		v.say("%s: text: %q %s", at, o.Text.Literal, problem)
	}
	if o.Document != nil || o.Text.IsZero() || o.Text.Empty {
		v.say("%s: needs text, an address", at)
	}
}

// document checks what a document is of. Some kinds have documents beside their own, by the name of an attribute.
func (v *validator) document(at string, ref Ref) {
	beside := map[string]Kind{
		"subnet": KindPort, "subnets": KindPort, "pool": KindLoadBalancer, "pools": KindLoadBalancer,
		"listeners": KindLoadBalancer,
	}
	if of, ok := beside[ref.Attribute]; ok {
		if r, ok := v.resources[ref.Name]; ok && r.Spec != nil && r.Spec.Kind() != of {
			v.say("%s: document: only a %s has %q", at, of, ref.Attribute)
		}
		ref.Attribute = ""
	}
	v.ref(at+": document", nil, ref)
	v.hard(at+": document", ref)
}
