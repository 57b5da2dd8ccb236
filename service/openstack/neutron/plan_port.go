// SPDX-License-Identifier: Apache-2.0

package neutron

import (
	"crypto/sha256"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/kuryr/raven/drivers"
	"github.com/kuryr/raven/service/plan"
)

// matchAddressPairs compares pairs as Neutron shows them: it fills in the port's own MAC address.
func matchAddressPairs(_ *plan.Desired, o *plan.Observed, want, have any) (any, bool) {
	return want, withMAC(want, o.Attrs["mac_address"]) == withMAC(have, o.Attrs["mac_address"])
}

func withMAC(pairs, mac any) string {
	list, _ := pairs.([]any)
	texts := make([]any, 0, len(list))
	for _, element := range list {
		pair, ok := element.(map[string]any)
		if ok && canonical("mac_address", pair["mac_address"]) == "" {
			pair = maps.Clone(pair)
			pair["mac_address"] = mac
		}
		texts = append(texts, pair)
	}
	return plan.Form(canonicalText).Canonical("allowed_address_pairs", texts, true)
}

// matchFixedIPs compares only the parts that are given. Each wanted address takes the observed one that fits it; what
// is left over differs, but for the addresses that Neutron itself adds on subnets with address autoconfiguration. What
// it returns to write names the observed addresses in full, so that an update of one does not exchange the others.
func matchFixedIPs(_ *plan.Desired, o *plan.Observed, want, have any) (any, bool) {
	wanted, _ := want.([]any)
	observed, _ := have.([]any)
	taken := make([]bool, len(observed))
	out := make([]any, len(wanted))
	same := true
	// The most specific first, so that a wish for any address of a subnet does not take one that is wished for by name.
	order := make([]int, len(wanted))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return specific(wanted[b]) - specific(wanted[a]) })
	for _, i := range order {
		out[i] = wanted[i]
		found := false
		for j, element := range observed {
			if !taken[j] && covers(wanted[i], element) {
				taken[j], found = true, true
				out[i] = map[string]any{
					"subnet_id": plan.Field(element, "subnet_id"), "ip_address": plan.Field(element, "ip_address"),
				}
				break
			}
		}
		same = same && found
	}
	for j, element := range observed {
		if !taken[j] && !autoconfigured(element, o.Attrs["mac_address"]) {
			same = false
		}
	}
	return out, same
}

func specific(want any) int {
	n := 0
	if plan.Field(want, "ip_address") != nil {
		n += 2
	}
	if plan.Field(want, "subnet_id") != nil {
		n++
	}
	return n
}

// covers says whether an observed address is the wanted one, or any of the wanted subnet.
func covers(want, have any) bool {
	return plan.Form(canonicalText).Covers(want, have, "subnet_id", "ip_address")
}

// autoconfigured says whether an address is the one that follows from the port's MAC address (RFC 4291, appendix A).
func autoconfigured(element, mac any) bool {
	text, _ := plan.Field(element, "ip_address").(string)
	addr, err := netip.ParseAddr(text)
	if err != nil || !addr.Is6() {
		return false
	}
	digits := strings.ReplaceAll(canonical("mac_address", mac), ":", "")
	b := addr.As16()
	return len(digits) == 12 && digits[:6]+"fffe"+digits[6:] == fmt.Sprintf("%02x%x", b[8]^2, b[9:])
}

// matchGateway compares the parts that are managed. A wanted gateway with no network means none.
func matchGateway(_ *plan.Desired, _ *plan.Observed, want, have any) (any, bool) {
	if canonical("network_id", plan.Field(want, "network_id")) == "" {
		return map[string]any{}, canonical("network_id", plan.Field(have, "network_id")) == ""
	}
	for _, name := range [...]string{"network_id", "enable_snat"} {
		value := plan.Field(want, name)
		if value != nil && canonical(name, value) != canonical(name, plan.Field(have, name)) {
			return want, false
		}
	}
	return want, true
}

// withoutEmptyGateway drops the empty gateway from what a router is created with: no gateway is how a router begins.
func withoutEmptyGateway(_ *plan.Computation, _ *plan.Match, attrs map[string]any) (map[string]any, []plan.Wait) {
	gateway, ok := attrs["external_gateway_info"]
	if ok && canonical("network_id", plan.Field(gateway, "network_id")) == "" {
		delete(attrs, "external_gateway_info")
	}
	return attrs, nil
}

// portBody adds the MAC address to what a port is created with.
func portBody(_ *plan.Computation, m *plan.Match, attrs map[string]any) (map[string]any, []plan.Wait) {
	if canonical("mac_address", attrs["mac_address"]) == "" {
		attrs["mac_address"] = MAC(m.Desired.Identity)
	}
	return attrs, nil
}

// MAC returns the MAC address that a port of this identity gets when nothing else is wanted: locally administered, 46
// bits of a hash. Neutron refuses an address twice on one network, so a create that is sent twice cannot make two
// ports.
func MAC(i plan.Identity) string {
	k := i.Key()
	sum := sha256.Sum256([]byte(k.Cluster + "\x00" + k.Driver + "\x00" + k.UID + "\x00" + k.Name))
	sum[0] = sum[0]&0xfc | 0x02
	return fmt.Sprintf("%02x:%02x:%02x:%02x:%02x:%02x", sum[0], sum[1], sum[2], sum[3], sum[4], sum[5])
}

// detachPort detaches a port from its router instead of deleting it, which deletes it as well: Neutron refuses to
// delete it as a port.
func detachPort(c *plan.Computation, o *plan.Observed, s *plan.Step) {
	device, _ := o.Attrs["device_owner"].(string)
	isInterface := c.KindOf(o) == drivers.KindRouterInterface || strings.HasPrefix(device, "network:router_interface")
	if isInterface && atRouter(o) {
		s.Op, s.Attrs = plan.Detach, map[string]any{"router_id": o.Attrs["device_id"]}
	}
}

// samePort says whether two ports would have one address of a network.
func samePort(want, have map[string]any) bool {
	return sameValue("network_id", want, have) &&
		(sameValue("mac_address", want, have) || sharesAddress(want["fixed_ips"], have["fixed_ips"]))
}

func sharesAddress(want, have any) bool {
	wanted, _ := want.([]any)
	observed, _ := have.([]any)
	for _, w := range wanted {
		same := func(o any) bool { return covers(w, o) }
		if plan.Field(w, "ip_address") != nil && slices.ContainsFunc(observed, same) {
			return true
		}
	}
	return false
}

// overlappingSubnet says whether two subnets of one network have a common address.
func overlappingSubnet(want, have map[string]any) bool {
	a, errA := netip.ParsePrefix(canonical("cidr", want["cidr"]))
	b, errB := netip.ParsePrefix(canonical("cidr", have["cidr"]))
	return errA == nil && errB == nil && sameValue("network_id", want, have) && a.Overlaps(b)
}

// sameRule says whether two security group rules are alike.
func sameRule(want, have map[string]any) bool {
	return !slices.ContainsFunc(drivers.Schema(drivers.KindSecurityGroupRule), func(a drivers.Attribute) bool {
		return canonical(a.Name, want[a.Name]) != canonical(a.Name, have[a.Name])
	})
}

// withoutAnyAddress leaves a range that is all addresses out of what a rule is created with: Neutron takes the two for
// the same rule, and Raven compares them as the same. A range of the other IP version stays, for Neutron to refuse:
// left out, it would open what nothing asked for.
func withoutAnyAddress(_ *plan.Computation, _ *plan.Match, attrs map[string]any) (map[string]any, []plan.Wait) {
	text, _ := attrs["remote_ip_prefix"].(string)
	prefix, err := netip.ParsePrefix(text)
	version := map[bool]string{true: "ipv4", false: "ipv6"}[prefix.Addr().Is4()]
	if err == nil && prefix.Bits() == 0 && canonical("ethertype", attrs["ethertype"]) == version {
		delete(attrs, "remote_ip_prefix")
	}
	return attrs, nil
}
