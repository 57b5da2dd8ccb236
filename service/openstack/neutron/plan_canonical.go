// SPDX-License-Identifier: Apache-2.0

package neutron

import (
	"net/netip"
	"slices"
	"strings"

	"github.com/kuryr/raven/service/plan"
)

// canonical returns a text that is the same for all forms in which Neutron may write one value of an attribute.
func canonical(name string, value any) string {
	return plan.Form(canonicalText).Canonical(name, value, false)
}

// sameValue says whether an attribute is set and the same in two resources.
func sameValue(name string, want, have map[string]any) bool {
	text := canonical(name, want[name])
	return text != "" && text == canonical(name, have[name])
}

// canonicalText is the canonical form of the texts that Neutron has: addresses and ranges in any notation, protocols by
// number.
func canonicalText(name, text string) string {
	switch name {
	case "remote_ip_prefix":
		if text = plan.Address(text); text == "0.0.0.0/0" || text == "::/0" {
			return ""
		}
		return text
	case "cidr", "prefixes", "gateway_ip", "ip_address", "fixed_ip_address", "floating_ip_address", "start", "end",
		"destination", "nexthop", "dns_nameservers":
		return plan.Address(text)
	case "mac_address":
		return hardwareAddress(text)
	case "protocol":
		return protocol(text)
	case "direction", "ethertype":
		return strings.ToLower(text)
	}
	return text
}

func hardwareAddress(text string) string {
	digits := strings.NewReplacer(":", "", "-", "", ".", "").Replace(strings.ToLower(text))
	if len(digits) != 12 {
		return strings.ToLower(text)
	}
	parts := make([]string, 0, 6)
	for i := 0; i < 12; i += 2 {
		parts = append(parts, digits[i:i+2])
	}
	return strings.Join(parts, ":")
}

// protocol returns one name for an IP protocol. Neutron writes ICMP of IPv6 in three ways; the ethertype tells it from
// the other one, so that all are the same here.
func protocol(text string) string {
	text = strings.ToLower(text)
	switch text {
	case "any", "-1":
		return ""
	case "1", "58", "icmpv6", "ipv6-icmp":
		return "icmp"
	case "6":
		return "tcp"
	case "17":
		return "udp"
	case "132":
		return "sctp"
	}
	return text
}

// matchPrefixes compares the prefixes of a subnet pool as Neutron joins them.
func matchPrefixes(_ *plan.Desired, _ *plan.Observed, want, have any) (any, bool) {
	return want, joined(want) == joined(have)
}

func joined(prefixes any) string {
	list, _ := prefixes.([]any)
	return plan.Lines(aggregate(plan.Form(canonicalText).Texts("prefixes", list, false)), true)
}

// aggregate joins ranges as Neutron does with the prefixes of a subnet pool: contained ones go, neighbours become one.
func aggregate(texts []string) []string {
	var (
		out  []string
		nets []netip.Prefix
	)
	for _, text := range texts {
		if prefix, err := netip.ParsePrefix(text); err == nil {
			nets = append(nets, prefix)
		} else if addr, err := netip.ParseAddr(text); err == nil {
			nets = append(nets, netip.PrefixFrom(addr, addr.BitLen()))
		} else {
			out = append(out, text)
		}
	}
	for joined := true; joined; {
		joined = false
		slices.SortFunc(nets, func(a, b netip.Prefix) int {
			if c := a.Addr().Compare(b.Addr()); c != 0 {
				return c
			}
			return a.Bits() - b.Bits()
		})
		for i := 0; i+1 < len(nets); i++ {
			a, b := nets[i], nets[i+1]
			parent, err := a.Addr().Prefix(a.Bits() - 1)
			if err == nil && a.Bits() == b.Bits() && a != b && parent.Contains(b.Addr()) {
				nets[i], joined = parent, true
			} else if !a.Overlaps(b) {
				continue
			}
			nets = slices.Delete(nets, i+1, i+2)
			i--
		}
	}
	for _, prefix := range nets {
		out = append(out, plan.Address(prefix.String()))
	}
	return out
}
