package plan

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/kuryr/raven/drivers"
)

// canonical returns a text that is the same for all forms in which the cloud may write one value of an attribute: null and
// empty, numbers as texts, addresses and ranges in any notation, protocols by number, lists where order does not count.
func canonical(name string, value any, unordered bool) string {
	switch v := value.(type) {
	case nil:
		return ""
	case string:
		return canonicalText(name, v)
	case bool:
		return strconv.FormatBool(v)
	case int64:
		return canonicalText(name, strconv.FormatInt(v, 10))
	case int:
		return canonicalText(name, strconv.Itoa(v))
	case float64:
		return canonicalText(name, strconv.FormatFloat(v, 'f', -1, 64))
	case json.Number:
		return canonicalText(name, v.String())
	case []any:
		return canonicalList(name, v, unordered)
	case []string:
		list := make([]any, len(v))
		for i, s := range v {
			list[i] = s
		}
		return canonicalList(name, list, unordered)
	case map[string]any:
		parts := make([]string, 0, len(v))
		for key, part := range v {
			if text := canonical(key, part, unordered); text != "" {
				parts = append(parts, key+"="+text)
			}
		}
		slices.Sort(parts)
		return strings.Join(parts, " ")
	default:
		return fmt.Sprint(v)
	}
}

func canonicalList(name string, list []any, unordered bool) string {
	texts := make([]string, len(list))
	for i, element := range list {
		texts[i] = canonical(name, element, unordered)
	}
	if name == "prefixes" {
		texts = aggregate(texts)
	}
	if unordered {
		slices.Sort(texts)
		texts = slices.Compact(texts)
	}
	return strings.Join(texts, "\n")
}

func canonicalText(name, text string) string {
	if text == "" {
		return ""
	}
	switch name {
	case "name":
		return cut(text, maxText)
	case "remote_ip_prefix":
		if text = address(text); text == "0.0.0.0/0" || text == "::/0" {
			return ""
		}
		return text
	case "cidr", "prefixes", "gateway_ip", "ip_address", "fixed_ip_address", "floating_ip_address", "start", "end", "destination",
		"nexthop", "dns_nameservers", "vip_address", "address", "monitor_address", "allowed_cidrs":
		return address(text)
	case "mac_address":
		return hardwareAddress(text)
	case "provider":
		if text == "octavia" { // the old name
			return "amphora"
		}
	case "protocol":
		return protocol(text)
	case "direction", "ethertype":
		return strings.ToLower(text)
	}
	return text
}

// address returns the usual form of an address, or of a range with its host bits cleared; a range of one address is that
// address. What is neither stays as it is.
func address(text string) string {
	if addr, err := netip.ParseAddr(text); err == nil {
		return addr.String()
	}
	prefix, err := netip.ParsePrefix(text)
	if err != nil {
		return text
	}
	if prefix.IsSingleIP() {
		return prefix.Addr().String()
	}
	return prefix.Masked().String()
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

// protocol returns one name for an IP protocol. Neutron writes ICMP of IPv6 in three ways; the ethertype tells it from the
// other one, so that all are the same here.
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
			if parent, err := a.Addr().Prefix(a.Bits() - 1); err == nil && a.Bits() == b.Bits() && a != b && parent.Contains(b.Addr()) {
				nets[i], joined = parent, true
			} else if !a.Overlaps(b) {
				continue
			}
			nets = slices.Delete(nets, i+1, i+2)
			i--
		}
	}
	for _, prefix := range nets {
		out = append(out, address(prefix.String()))
	}
	return out
}

// writable returns a value as Neutron takes it: a name that is not too long, null where an empty text would be refused.
func writable(kind drivers.Kind, name string, value any) any {
	text, isText := value.(string)
	switch {
	case !isText:
		return value
	case name == "name":
		return cut(strings.ToValidUTF8(text, "\uFFFD"), maxText)
	case text != "":
		return value
	case name == "gateway_ip", name == "fixed_ip_address", name == "floating_ip_address", kind == drivers.KindFloatingIP && name == "port_id":
		return nil
	case kind == drivers.KindSubnet && (name == "ipv6_address_mode" || name == "ipv6_ra_mode" || name == "cidr"):
		return nil
	case kind == drivers.KindSecurityGroupRule:
		return nil
	}
	return value
}
