// SPDX-License-Identifier: Apache-2.0

package kubeproxy

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"

	"github.com/kuryr/raven/drivers"
	"github.com/kuryr/raven/drivers/internal/services"
)

// literal serves an address as it is, once, as kube-proxy does: no floating IP stands for it, and whoever is to reach
// it from outside needs a route to the router. It says whether the address is served.
func (b *builder) literal(what string, addr netip.Addr, use pick) bool {
	name := "literal " + addr.String()
	switch {
	case !addr.IsGlobalUnicast():
		b.Say(drivers.Error, "AddressNotServed", "%s %s is not served: it is no address of one host that can be routed to",
			what, addr)
		return false
	case b.Made[name] || b.Made[drivers.FloatingIPName(addr.String())] || slices.Contains(b.addrs, addr):
		return true
	case !b.has(addr):
		b.Say(drivers.Error, "AddressNotServed", "%s %s is not served: the Service has no clusterIP of IPv%d", what, addr,
			services.Version(addr))
		return false
	}
	b.Made[name] = true
	b.at(drivers.Text(addr.String()), addr.Is4(), use)
	return true
}

// has says whether the Service has a clusterIP of the IP version of an address.
func (b *builder) has(addr netip.Addr) bool {
	return slices.ContainsFunc(b.addrs, func(a netip.Addr) bool { return a.Is4() == addr.Is4() })
}

// asked returns the address that a Service of type LoadBalancer asks for; the one that it has where that cannot be
// read.
func (b *builder) asked() (netip.Addr, bool) {
	addr, err := netip.ParseAddr(cmp.Or(b.Service.Spec.LoadBalancerIP, b.Outside.Had))
	return addr.Unmap(), err == nil
}

// asked6 returns that address if it is an IPv6 one. There are no IPv6 floating IPs.
func (b *builder) asked6() (netip.Addr, bool) {
	addr, ok := b.asked()
	return addr, ok && addr.Is6()
}

// assign serves the address that a Service of type LoadBalancer has outside, and says it in the status.
func (b *builder) assign() {
	asked, six := b.asked6()
	switch {
	case !six:
		b.IngressOf(b.floating(b.Service.Spec.LoadBalancerIP, b.reached()))
	case b.literal("spec.loadBalancerIP", asked, b.reached()):
		b.Ingress("6", drivers.Text(asked.String()))
	}
}

// literally says whether an externalIP is served as it is: there is no floating IP for it, or none is wanted.
func (b *builder) literally(addr netip.Addr) bool {
	return addr.Is6() || b.LiteralExternals || b.ExternalNet == "" && b.Outside.Network == "" && !b.Outside.Unread
}

// others serves the addresses that another class gave the Service: pods then need no way by its load balancer.
func (b *builder) others() {
	spec := &b.Service.Spec
	if spec.Type != services.TypeLoadBalancer || b.Ours() {
		return
	}
	var away []string
	for _, ingress := range b.Service.Status.LoadBalancer.Ingress {
		addr, err := netip.ParseAddr(ingress.IP)
		addr = addr.Unmap()
		if err != nil || addr.Zone() != "" || !b.has(addr) || ingress.IPMode == "Proxy" ||
			slices.Contains(spec.ExternalIPs, ingress.IP) {
			continue
		}
		if len(spec.LoadBalancerSourceRanges) > 0 {
			away = append(away, addr.String())
			continue
		}
		b.literal("status.loadBalancer.ingress", addr, everyone)
	}
	if len(away) > 0 {
		b.Say(drivers.Note, "IngressNotServed",
			"pods reach %s by way of the load balancer that gave it: OVN's would not enforce spec.loadBalancerSourceRanges",
			strings.Join(away, ", "))
	}
}
