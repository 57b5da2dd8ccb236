// SPDX-License-Identifier: Apache-2.0

package lbaas

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/kuryr/raven/drivers"
	"github.com/kuryr/raven/drivers/internal/services"
)

// allowed returns the ranges that a load balancer's listeners let in, an empty list for everybody, and nil where that
// is not the listeners' concern. The pods are always among them: the clusterIP is served by the same listeners. They
// are of the IP versions of its VIPs; if none is left, no client is let in.
func (b *builder) allowed(f frame) []string {
	switch {
	case b.wants.provider.lacksCIDRs:
		return nil
	case !b.Limited():
		return []string{}
	}
	ranges := b.Clients(f.ip4, f.ip6)
	if len(ranges) == 0 {
		unspecified := netip.IPv4Unspecified()
		if !f.ip4 {
			unspecified = netip.IPv6Unspecified()
		}
		ranges = []netip.Prefix{netip.PrefixFrom(unspecified, unspecified.BitLen())}
	}
	return texts(ranges)
}

func texts(ranges []netip.Prefix) []string {
	out := make([]string, 0, len(ranges))
	for _, r := range ranges {
		out = append(out, r.String())
	}
	slices.Sort(out)
	return out
}

// access adds what leads to the Service from outside.
func (b *builder) access() {
	shut := b.shut()
	b.closed = b.unlimitable()
	switch {
	case !b.Ours():
	case shut || b.closed && !b.Outside.Unread:
		b.idle(b.Service.Spec.LoadBalancerIP)
	case b.closed:
		b.close()
	case b.Outside.Keep:
		b.stay()
	case b.Outside.VIPNet != "" || b.Outside.VIPSub != "":
		b.ownVIP()
	case b.Outside.Internal:
		b.onClusterIP()
	default:
		b.IngressOf(b.floating(b.Service.Spec.LoadBalancerIP, b.vipOf4()))
	}
	b.ExternalIPs(func(addr netip.Addr) {
		switch {
		case shut:
			b.idle(addr.String())
		case b.Outside.Unread || b.Ours() && b.Outside.Keep:
			b.leave(addr)
		default:
			b.floating(addr.String(), b.vipOf4())
		}
	})
	b.SayInternalGap()
}

// shut says, with an Event, whether the Service gets no address outside because the security group that its label
// names would keep no client out. What leads to a Service by annotations that cannot be read stays all the same.
func (b *builder) shut() bool {
	label := b.Service.Metadata.Labels[SecurityGroupLabel]
	if label == "" || !b.wants.provider.ignoresGroups {
		return false
	}
	const advice = "remove it, name another provider in annotation %s, or limit clients by rules of the pods' " +
		"security groups"
	switch outside := b.Ours() || len(b.Service.Spec.ExternalIPs) > 0; {
	case outside && b.Outside.Unread:
		b.Say(drivers.Error, "SecurityGroupNotEnforced",
			"label %s = %q has no effect: traffic does not come by the port of a VIP of %s; an address outside that the "+
				"Service has stays open until what cannot be read is put right; "+advice, SecurityGroupLabel, label,
			&b.wants.provider,
			services.ProviderAnnotation)
		return false
	case outside:
		b.Say(drivers.Error, "SecurityGroupNotEnforced",
			"the Service gets no address outside: label %s = %q is for the port of its VIP, and traffic does not come by "+
				"that with %s; "+advice, SecurityGroupLabel, label, &b.wants.provider, services.ProviderAnnotation)
		return true
	}
	b.Say(drivers.Warning, "SecurityGroupNotEnforced",
		"label %s = %q has no effect: it is for the port of the Service's VIP, and traffic does not come by that with %s; "+
			advice, SecurityGroupLabel, label, &b.wants.provider, services.ProviderAnnotation)
	return false
}

// unlimitable says, with an Event, that the Service limits its clients and nothing would enforce that for all of its
// members.
func (b *builder) unlimitable() bool {
	switch {
	case !b.Limited() || !b.wants.provider.lacksCIDRs:
		return false
	case b.config.MemberRules:
		return b.unguarded()
	}
	b.Say(drivers.Error, "SourceRangesNotEnforced",
		"spec.loadBalancerSourceRanges cannot be enforced by %s, so the Service gets no address outside: name another "+
			"provider in annotation %s, or see [%s] %s", &b.wants.provider, services.ProviderAnnotation, services.OctaviaGroup,
		services.OptMemberRules)
	return true
}

// unguarded says, with an Event, that the security groups would not keep others than the Service's clients from all
// of its members. They serve the clusterIP by the same listeners.
func (b *builder) unguarded() bool {
	if b.SayGroupOpen() {
		return true
	}
	endpoints, ports := b.Unguarded(b.vipOf4() != nil, b.unheard)
	if len(endpoints) > 0 {
		b.Say(drivers.Error, "EndpointsNotGuarded",
			"the Service gets no address outside: spec.loadBalancerSourceRanges are enforced by rules of the namespace's "+
				"security group, which endpoint %s does not have", strings.Join(endpoints, ", "))
	}
	if len(ports) > 0 {
		b.Say(drivers.Error, "PortsNotGuarded",
			"the Service gets no address outside: rules of the namespace's security group open ports of its endpoints to "+
				"clients beyond spec.loadBalancerSourceRanges: %s; give the Services different target ports, or the same ranges",
			strings.Join(ports, ", "))
	}
	return len(endpoints)+len(ports) > 0
}

// idle keeps the floating IP of a Service that must not be reached by it. It leads nowhere.
func (b *builder) idle(address string) {
	if b.Outside.Internal && address == b.Service.Spec.LoadBalancerIP || b.vipOf4() == nil {
		return
	}
	b.Floating(address, services.Way{
		IPv4: true, Lead: func(_ string, fip *drivers.FloatingIP) { fip.PortID = drivers.Empty() },
		Instead: "an IPv6 address is that of a VIP of its own",
	})
}

// close does for a Service what idle does where it cannot be read which floating IP is wanted: the one that there is
// stays, and leads nowhere. Where its address cannot be read it has one of two names; nothing is made by the other.
func (b *builder) close() {
	there := b.Outside.There
	for _, name := range b.FloatingNames() {
		if there.Network == "" {
			b.StayFloating(name) // none is written yet; as soon as there is one it is closed
			continue
		}
		r := drivers.Resource{
			Name: name, After: []drivers.Ref{{Name: readable}},
			Spec: drivers.FloatingIP{FloatingNetworkID: drivers.Text(there.Network), PortID: drivers.Empty()},
		}
		if b.Outside.KeepOnDelete {
			r.OnDelete = drivers.Retain
		}
		b.Made[name] = true
		b.Add(r)
	}
	if there.Network != "" {
		b.Set.Undecided = append(b.Set.Undecided, readable)
		b.AsWritten = true
	}
}

// readable is the name of nothing: what waits for it is not made before the Service can be read.
const readable = "readable-service"

// stay leaves the address that a Service of type LoadBalancer has outside as it is. The load balancers are followed
// as far as it is known which of them there are.
func (b *builder) stay() {
	names := b.FloatingNames()
	for _, name := range names {
		b.StayFloating(name)
	}
	out := &b.Outside
	switch own := out.VIPNet != "" || out.VIPSub != ""; {
	case own && !out.Unaimed && !b.aimless():
		b.external()
	default:
		b.Set.Undecided = append(b.Set.Undecided, externalBalancer)
		b.led[balancer4] = !out.Unaimed && !out.Internal
	}
	// None of these resolves unless it exists, and then only one does: what is written stays written.
	for _, name := range names {
		b.IngressOf(name)
	}
	b.Ingress("external", drivers.From(externalBalancer, "vip_address"))
}

// leave leaves the floating IP of an externalIP as it is, and follows the load balancer that it leads to.
func (b *builder) leave(addr netip.Addr) {
	name, to := drivers.FloatingIPName(addr.String()), b.vipOf4()
	if !b.StayFloating(name) {
		return
	}
	switch {
	case to == nil || addr.Is6():
	case b.led[to.balancer]:
		b.further(addr.String())
	case b.closed, b.Ours() && b.Outside.Unaimed: // the first leads to the clusterIP, or to one of its own
		b.Set.Undecided = append(b.Set.Undecided, furtherName(addr.String()))
		fallthrough
	default:
		b.led[to.balancer] = true
	}
}

// ownVIP adds a load balancer with a VIP on the network that the Service names, and a floating IP to it unless it is
// internal. No floating IP leads to an IPv6 VIP: it is what the Service is reached by.
func (b *builder) ownVIP() {
	if b.aimless() {
		b.Say(drivers.Error, "AddressNotServed",
			"the Service gets no address outside: of the network that annotation %s names Octavia may take an IPv4 subnet "+
				"for the VIP, and the Service is IPv6; name a subnet of it in annotation %s, or an IPv6 address in "+
				"spec.loadBalancerIP",
			services.VIPNetwork, services.VIPSubnet)
		return
	}
	b.external()
	if ip4 := b.vipOf4() != nil; ip4 && !b.Outside.Internal {
		b.IngressOf(b.floating(b.Service.Spec.LoadBalancerIP, &vip{balancer: externalBalancer}))
		return
	}
	b.Ingress("external", drivers.From(externalBalancer, "vip_address"))
}

// aimless says whether nothing makes sure that the own VIP of an IPv6 Service is an IPv6 one: on a network alone
// Octavia prefers IPv4.
func (b *builder) aimless() bool {
	asked, err := netip.ParseAddr(b.Service.Spec.LoadBalancerIP)
	return b.vipOf4() == nil && b.Outside.VIPSub == "" && (err != nil || asked.Is4())
}

// external adds a load balancer with a VIP on the network that the Service names. It is an IPv4 one if the Service
// has an IPv4 clusterIP.
func (b *builder) external() {
	subnet := drivers.Text(b.Outside.VIPSub) // unset without one
	ip4 := b.vipOf4() != nil
	lb := b.parts(frame{name: b.Service.Name() + ":external", subnet: subnet, ip4: ip4, ip6: !ip4, backends: of(ip4)})
	if lb.VIPSubnetID = subnet; subnet.IsZero() {
		lb.VIPNetworkID = drivers.Text(b.Outside.VIPNet)
	}
	if asked, err := netip.ParseAddr(b.Service.Spec.LoadBalancerIP); err == nil && (b.Outside.Internal || !ip4) {
		if asked.Is4() == ip4 {
			lb.VIPAddress = new(asked.String())
		} else {
			b.Say(drivers.Warning, "AddressNotServed",
				"spec.loadBalancerIP %s is not of the IP version of the Service's own VIP, which is that of its clusterIP, "+
					"IPv4 before IPv6: the subnet gives another", asked)
		}
	}
	b.Add(drivers.Resource{Name: externalBalancer, Spec: lb})
}

// onClusterIP says that an internal Service is reached by its clusterIPs, which Neutron's routers know.
func (b *builder) onClusterIP() {
	asked := b.Service.Spec.LoadBalancerIP
	if asked != "" && !slices.ContainsFunc(b.vips, func(v vip) bool { return v.addr.String() == asked }) {
		b.Say(drivers.Warning, "AddressNotServed",
			"spec.loadBalancerIP %s needs a subnet that it is on: name it in annotation %s; the clusterIP is used", asked,
			services.VIPSubnet)
	}
	for _, v := range b.vips {
		b.Ingress(fmt.Sprint(services.Version(v.addr)), drivers.Text(v.addr.String()))
	}
}

// vipOf4 returns the IPv4 VIP; nil if there is none.
func (b *builder) vipOf4() *vip {
	for i := range b.vips {
		if b.vips[i].addr.Is4() {
			return &b.vips[i]
		}
	}
	return nil
}

// floating adds a floating IP that leads to a VIP, once, and returns its logical name; empty if that is not possible.
// address is the one that is asked for, empty for any.
func (b *builder) floating(address string, to *vip) string {
	return b.Floating(address, services.Way{
		IPv4: to != nil,
		Instead: fmt.Sprintf("an IPv6 Service is reached from outside by a VIP of its own, on the subnet or network that "+
			"annotation %s or %s names",
			services.VIPSubnet, services.VIPNetwork),
		Lead: func(suffix string, fip *drivers.FloatingIP) {
			if b.led[to.balancer] {
				to = b.further(suffix)
			}
			b.led[to.balancer] = true
			fip.PortID = drivers.From(to.balancer, "vip_port_id")
			if len(b.vips) == 2 && b.vips[0].balancer == b.vips[1].balancer && to.balancer == b.vips[0].balancer {
				fip.FixedIPAddress = new(to.addr.String()) // the VIP's port has two
			}
		},
	})
}

// further adds a load balancer for a floating IP, with a VIP that Neutron chooses: it lets no second floating IP of
// one network lead to one address.
func (b *builder) further(address string) *vip {
	name := furtherName(address)
	subnet := drivers.FromRole(b.Role(drivers.ServiceSubnet))
	lb := b.parts(frame{name: b.Service.Name() + ":" + address, subnet: subnet, ip4: true, backends: of(true)})
	lb.VIPSubnetID = subnet
	b.Add(drivers.Resource{Name: name, Spec: lb})
	return &vip{balancer: name}
}

func furtherName(address string) string { return balancer4 + "-" + address }
