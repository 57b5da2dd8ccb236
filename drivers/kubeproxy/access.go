// SPDX-License-Identifier: Apache-2.0

package kubeproxy

import (
	"net/netip"
	"slices"
	"strings"

	"github.com/kuryr/raven/drivers"
	"github.com/kuryr/raven/drivers/internal/services"
)

// access adds what leads to the Service from outside.
func (b *builder) access() {
	b.labelled()
	switch out := &b.Outside; {
	case !b.Ours():
	case out.Keep:
		b.stay()
	case b.unlimitable() || b.shut:
		b.reserve(b.FloatingName())
	case out.Internal && (out.VIPNet != "" || out.VIPSub != ""):
		b.Say(drivers.Error, "AddressNotServed",
			"the Service gets no address: annotation %s or %s asks for one on a network of its own, which only Octavia "+
				"gives (driver lbaas); without it the clusterIP is used", services.VIPSubnet, services.VIPNetwork)
	case out.Internal:
		b.onClusterIP()
	default:
		b.assign()
	}
	var also []string // beside the address of the type LoadBalancer
	b.ExternalIPs(func(addr netip.Addr) {
		before := len(b.served)
		if b.externalIP(addr); len(b.served) > before {
			also = append(also, addr.String())
		}
	})
	b.others()
	b.remarkOnNetworks()
	if b.config.MemberRules {
		b.SayInternalGap()
		b.sayUnguarded()
		b.sayLimited(also)
	}
}

// externalIP serves one of spec.externalIPs. Source ranges are about the address of the type LoadBalancer, as for
// kube-proxy: none are read.
func (b *builder) externalIP(addr netip.Addr) {
	name := drivers.FloatingIPName(addr.String())
	switch {
	case b.literally(addr) && !b.shut:
		b.literal("spec.externalIPs:", addr, everyone)
	case b.shut:
		b.reserve(name)
	case !b.Outside.Unread && !(b.Ours() && b.Outside.Keep):
		b.floating(addr.String(), everyone)
	case b.StayFloating(name):
		b.external(name, everyone)
	}
}

// sayLimited says that the rules for the Service's own address limit who reaches it at others: endpoints have one
// group for all.
func (b *builder) sayLimited(also []string) {
	if _, open := b.GroupOpen(); open || !b.Limited() || len(also) == 0 {
		return // no rule limits anybody
	}
	b.Say(drivers.Warning, "ExternalIPsLimited",
		"spec.externalIPs %s: clients beyond spec.loadBalancerSourceRanges are not let in there either, for rules of the "+
			"pods' security group keep the ranges, at whatever address a client comes in by; a Service of its own for the "+
			"externalIPs, with other target ports, lets in everybody", strings.Join(also, ", "))
}

// reserve keeps a floating IP that there is, and opens nothing at its address. What is written of it stays written:
// only that says which one it is, where that cannot be read.
func (b *builder) reserve(name string) {
	if !b.StayFloating(name) || b.Outside.There.Text != "" {
		return
	}
	b.Floatings = b.Floatings[:len(b.Floatings)-1] // no other resource waits for what was never made
}

// closed says whether the Service gets no address outside, whatever leads to it.
func (b *builder) closed() bool {
	label := b.Service.Metadata.Labels[services.SecurityGroupLabel]
	switch _, open := b.GroupOpen(); {
	case label != "" && (b.Ours() || len(b.Service.Spec.ExternalIPs) > 0):
		return true
	case !b.Limited():
		return false
	default:
		return open || !b.config.MemberRules
	}
}

// labelled says what becomes of a security group that the Service names for its VIP.
func (b *builder) labelled() {
	label := b.Service.Metadata.Labels[services.SecurityGroupLabel]
	switch {
	case label == "":
	case b.Ours() || len(b.Service.Spec.ExternalIPs) > 0:
		b.shut = true
		b.Say(drivers.Error, "SecurityGroupNotEnforced",
			"the Service gets no address outside: label %s = %q is for the port of its VIP, and there is none; "+
				"remove it, or limit clients by rules of the pods' security groups", services.SecurityGroupLabel, label)
	default:
		b.Say(drivers.Warning, "SecurityGroupNotEnforced",
			"label %s = %q has no effect: it is for the port of the Service's VIP, and there is none; limit clients by "+
				"rules of the pods' security groups", services.SecurityGroupLabel, label)
	}
}

// unlimitable says, with an Event, that the Service limits its clients and nothing would enforce that.
func (b *builder) unlimitable() bool {
	switch {
	case !b.Limited():
		return false
	case b.config.MemberRules:
		return b.SayGroupOpen()
	}
	b.Say(drivers.Error, "SourceRangesNotEnforced",
		"spec.loadBalancerSourceRanges cannot be enforced by OVN's load balancers, so the Service gets no address "+
			"outside: see [%s] %s", services.OctaviaGroup, services.OptMemberRules)
	return true
}

// sayUnguarded says which backends are left out from outside, because no rule would keep other clients from them.
func (b *builder) sayUnguarded() {
	if _, open := b.GroupOpen(); open || !b.Limited() {
		return // everything is closed, or nothing
	}
	_, six := b.asked6()
	endpoints, ports := b.Unguarded(!six, func(services.Backend) bool { return false })
	if len(endpoints) > 0 {
		b.Say(drivers.Warning, "EndpointsNotGuarded",
			"endpoint %s is not reached from outside: spec.loadBalancerSourceRanges are enforced by rules of the "+
				"namespace's security group, which it does not have", strings.Join(endpoints, ", "))
	}
	if len(ports) > 0 {
		b.Say(drivers.Warning, "PortsNotGuarded",
			"from outside no endpoint is reached whose port a rule of the namespace's security group opens to clients "+
				"beyond spec.loadBalancerSourceRanges: %s; give the Services different target ports, or the same ranges",
			strings.Join(ports, ", "))
	}
}

// reached returns what picks the backends that clients outside reach.
func (b *builder) reached() pick {
	if b.Limited() {
		return b.Guarded
	}
	return everyone
}

// stay leaves the address that a Service of type LoadBalancer has outside as it is, and follows its endpoints there,
// but for one that limits its clients where nothing enforces that, whatever its ranges were.
func (b *builder) stay() {
	names := b.FloatingNames()
	if b.shut || b.unlimitable() {
		for _, name := range names {
			b.reserve(name)
		}
		return
	}
	if _, six := b.asked6(); six {
		b.assign()
		return
	}
	for _, name := range names { // what does not exist is not waited for
		b.StayFloating(name)
		b.external(name, b.reached())
		b.IngressOf(name)
	}
}

// onClusterIP says that an internal Service is reached by its clusterIPs, which OVN's routers know.
func (b *builder) onClusterIP() {
	if asked := b.Service.Spec.LoadBalancerIP; asked != "" && !b.hasAddr(asked) {
		b.Say(drivers.Warning, "AddressNotServed",
			"spec.loadBalancerIP %s cannot be given to an internal Service: the clusterIP is used", asked)
	}
	for _, addr := range b.addrs {
		key := "4"
		if addr.Is6() {
			key = "6"
		}
		b.Ingress(key, drivers.Text(addr.String()))
	}
}

func (b *builder) hasAddr(text string) bool {
	for _, addr := range b.addrs {
		if addr.String() == text {
			return true
		}
	}
	return false
}

// remarkOnNetworks says what of the networks that the Service names is not as Octavia has it, or not known.
func (b *builder) remarkOnNetworks() {
	out := &b.Outside
	if b.Ours() && !out.Internal && (out.VIPNet != "" || out.VIPSub != "") {
		b.Say(drivers.Warning, "AnnotationsWithoutEffect",
			"annotation %s or %s has no effect: the floating IP leads to the Service by itself, without a VIP of its own",
			services.VIPSubnet, services.VIPNetwork)
	}
	open := slices.ContainsFunc(b.served, func(vip drivers.OVNVIP) bool { return vip.External })
	if open && out.Network != "" && out.Network != strings.ToLower(b.ExternalNet) {
		b.Say(drivers.Warning, "FloatingNetworkNotChecked",
			"the floating IP is not served unless the router has its external gateway on network %s, which annotation "+
				"%s names", out.Network, services.FloatingNetwork)
	}
}

// floating adds a floating IP that leads to no port, and what serves its address on the router.
func (b *builder) floating(address string, use pick) string {
	made := len(b.Floatings)
	name := b.Floating(address, services.Way{
		IPv4:    b.addrs[0].Is4() || b.addrs[len(b.addrs)-1].Is4(),
		Instead: "an IPv6 Service is reached at the address that spec.loadBalancerIP or spec.externalIPs names",
		Lead:    func(_ string, fip *drivers.FloatingIP) { fip.PortID = drivers.Empty() },
	})
	if len(b.Floatings) > made {
		b.external(name, use)
	}
	return name
}
