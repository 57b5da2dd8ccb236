package lbaas

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/kuryr/raven/drivers"
	"github.com/kuryr/raven/drivers/internal/services"
)

// ours says whether the Service is of type LoadBalancer and is Raven's to give an address outside.
func (b *builder) ours() bool {
	class := b.service.Spec.LoadBalancerClass
	return b.service.Spec.Type == services.TypeLoadBalancer && (class == nil || *class == b.ownClass)
}

// limited says whether the Service limits its clients.
func (b *builder) limited() bool { return b.ours() && len(b.wants.outside.ranges) > 0 }

// allowed returns the ranges that a load balancer's listeners let in, an empty list for everybody, and nil where that is not the
// listeners' concern or stays as it is. The pods are always among them: the clusterIP is served by the same listeners. They are of
// the IP versions of its VIPs; if none is left, nobody is let in.
func (b *builder) allowed(f frame) []string {
	switch {
	case b.wants.provider.lacksCIDRs || b.wants.outside.rangesUnreadable:
		return nil
	case !b.limited():
		return []string{}
	}
	ranges := b.clients(f.ip4, f.ip6)
	if len(ranges) == 0 {
		nobody := netip.IPv4Unspecified()
		if !f.ip4 {
			nobody = netip.IPv6Unspecified()
		}
		ranges = []netip.Prefix{netip.PrefixFrom(nobody, nobody.BitLen())}
	}
	return texts(ranges)
}

// clients returns the ranges of the clients that a limited Service has.
func (b *builder) clients(ip4, ip6 bool) []netip.Prefix {
	var all []netip.Prefix
	for _, r := range append(slices.Clone(b.wants.outside.ranges), b.internal...) {
		if (r.Addr().Is4() && ip4 || r.Addr().Is6() && ip6) && !slices.Contains(all, r) {
			all = append(all, r)
		}
	}
	return all
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
	switch {
	case !b.ours():
	case b.wants.outside.keep:
		b.stay()
	case b.limited() && b.wants.provider.lacksCIDRs && !b.config.memberRules:
		b.say(drivers.Error, "SourceRangesNotEnforced", "spec.loadBalancerSourceRanges cannot be enforced by %s, so the Service gets no "+
			"address outside: name another provider in annotation %s, or see [%s] %s", &b.wants.provider, ProviderAnnotation, octaviaGroup, optMemberRules)
	case b.wants.outside.vipNet != "" || b.wants.outside.vipSub != "":
		b.ownVIP()
	case b.wants.outside.internal:
		b.onClusterIP()
	default:
		b.ingressOf(b.floating(b.service.Spec.LoadBalancerIP, b.vipOf4()))
	}
	for _, text := range b.service.Spec.ExternalIPs {
		addr, err := netip.ParseAddr(text)
		if err != nil {
			b.say(drivers.Error, "BadExternalIP", "spec.externalIPs: %q is no IP address", text)
			continue
		}
		if b.wants.outside.unread || b.ours() && b.wants.outside.keep {
			b.leave(addr.Unmap())
			continue
		}
		b.floating(addr.Unmap().String(), b.vipOf4())
	}
	if b.limited() && b.internalGap != "" {
		b.say(drivers.Warning, "InternalRangesUnknown", "spec.loadBalancerSourceRanges shut pods out of the clusterIP too, as far as they "+
			"are not in them: their ranges come from [%s] %s; name them in [%s] %s", subnetGroup, b.internalGap, octaviaGroup, optInternal)
	}
}

// stay leaves the address that a Service of type LoadBalancer has outside as it is. The load balancers are followed as far as it is known
// which of them there are.
func (b *builder) stay() {
	name := b.floatingName()
	b.made[name] = true
	b.set.Undecided, b.floatings = append(b.set.Undecided, name), append(b.floatings, name)
	out := &b.wants.outside
	switch own := out.vipNet != "" || out.vipSub != ""; {
	case own && !out.unaimed:
		b.external()
	default:
		b.set.Undecided = append(b.set.Undecided, externalBalancer)
		b.led[balancer4] = !out.unaimed && !out.internal
	}
	// Neither of the two resolves unless it exists, and then only one does: what is written stays written.
	b.ingress("4", drivers.From(name, "floating_ip_address"))
	b.ingress("external", drivers.From(externalBalancer, "vip_address"))
}

// leave leaves the floating IP of an externalIP as it is, and follows the load balancer that it leads to.
func (b *builder) leave(addr netip.Addr) {
	name, to := drivers.FloatingIPName(addr.String()), b.vipOf4()
	if b.made[name] {
		return
	}
	b.made[name] = true
	b.set.Undecided, b.floatings = append(b.set.Undecided, name), append(b.floatings, name)
	switch {
	case to == nil || addr.Is6():
	case b.led[to.balancer]:
		b.further(addr.String())
	case b.ours() && b.wants.outside.unaimed: // the first leads to the clusterIP, or to one of its own
		b.set.Undecided = append(b.set.Undecided, furtherName(addr.String()))
		fallthrough
	default:
		b.led[to.balancer] = true
	}
}

// ownVIP adds a load balancer with a VIP on the network that the Service names, and a floating IP to it unless it is internal.
func (b *builder) ownVIP() {
	b.external()
	if b.wants.outside.internal {
		b.ingress("external", drivers.From(externalBalancer, "vip_address"))
		return
	}
	b.ingressOf(b.floating(b.service.Spec.LoadBalancerIP, &vip{balancer: externalBalancer}))
}

// external adds a load balancer with a VIP on the network that the Service names, of the first IP version that the cluster has.
func (b *builder) external() {
	subnet := drivers.Text(b.wants.outside.vipSub) // unset without one
	lb := b.parts(frame{name: b.service.Name() + ":external", subnet: subnet, ip4: b.ip4, ip6: !b.ip4, backends: of(b.ip4)})
	if lb.VIPSubnetID = subnet; subnet.IsZero() {
		lb.VIPNetworkID = drivers.Text(b.wants.outside.vipNet)
	}
	if asked := b.service.Spec.LoadBalancerIP; b.wants.outside.internal && asked != "" {
		lb.VIPAddress = &asked
	}
	b.add(drivers.Resource{Name: externalBalancer, Spec: lb})
}

// onClusterIP says that an internal Service is reached by its clusterIPs, which Neutron's routers know.
func (b *builder) onClusterIP() {
	asked := b.service.Spec.LoadBalancerIP
	if asked != "" && !slices.ContainsFunc(b.vips, func(v vip) bool { return v.addr.String() == asked }) {
		b.say(drivers.Warning, "AddressNotServed", "spec.loadBalancerIP %s needs a subnet that it is on: name it in annotation %s; the "+
			"clusterIP is used", asked, vipSubnet)
	}
	for _, v := range b.vips {
		b.ingress(fmt.Sprint(version(v.addr)), drivers.Text(v.addr.String()))
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

// floatingName is the logical name of the floating IP of a Service of type LoadBalancer.
func (b *builder) floatingName() string {
	if asked, err := netip.ParseAddr(b.service.Spec.LoadBalancerIP); err == nil {
		return drivers.FloatingIPName(asked.String())
	}
	return drivers.FloatingIPName("4")
}

// floating adds a floating IP that leads to a VIP, once, and returns its logical name; empty if that is not possible. address is the
// one that is asked for, empty for any.
func (b *builder) floating(address string, to *vip) string {
	asked, _ := netip.ParseAddr(address) // empty, or read before
	network := b.wants.outside.network
	if network == "" {
		network = b.externalNet
	}
	switch {
	case to == nil || asked.Is6():
		b.say(drivers.Error, "NoFloatingIP", "%s floating IPs are IPv4: an IPv6 Service is reached from outside by a VIP of its own, on the subnet "+
			"or network that annotation %s or %s names", asking(asked), vipSubnet, vipNetwork)
		return ""
	case network == "":
		b.say(drivers.Error, "NoFloatingIP", "%s no external network is known: set [%s] %s, or annotation %s on the Service",
			asking(asked), defaultsGroup, optExternalNet, floatingNetwork)
		return ""
	}
	version := "4"
	if asked.IsValid() {
		version = asked.String()
	}
	name := drivers.FloatingIPName(version)
	if b.made[name] {
		return name
	}
	b.made[name] = true
	if b.led[to.balancer] {
		to = b.further(version)
	}
	b.led[to.balancer] = true
	fip := drivers.FloatingIP{
		FloatingNetworkID: b.lookup(externalNetwork, drivers.KindNetwork, network), PortID: drivers.From(to.balancer, "vip_port_id"),
	}
	switch {
	case b.wants.outside.subnet != "":
		fip.SubnetID = drivers.Text(b.wants.outside.subnet)
	case b.externalSubnet != "" && b.wants.outside.network == "":
		fip.SubnetID = b.lookup(externalSubnet, drivers.KindSubnet, b.externalSubnet)
	}
	if asked.IsValid() {
		fip.FloatingIPAddress = new(asked.String())
	}
	if len(b.vips) == 2 && b.vips[0].balancer == b.vips[1].balancer && to.balancer == b.vips[0].balancer {
		fip.FixedIPAddress = new(to.addr.String()) // the VIP's port has two
	}
	r := drivers.Resource{Name: name, Spec: fip}
	if b.wants.outside.keepOnDelete {
		r.OnDelete = drivers.Retain
	}
	b.add(r)
	b.floatings = append(b.floatings, name)
	return name
}

// further adds a load balancer for a floating IP, with a VIP that Neutron chooses: it lets no second floating IP of one network lead
// to one address.
func (b *builder) further(address string) *vip {
	name := furtherName(address)
	subnet := drivers.FromRole(b.role(drivers.ServiceSubnet))
	lb := b.parts(frame{name: b.service.Name() + ":" + address, subnet: subnet, ip4: true, backends: of(true)})
	lb.VIPSubnetID = subnet
	b.add(drivers.Resource{Name: name, Spec: lb})
	return &vip{balancer: name}
}

func furtherName(address string) string { return balancer4 + "-" + address }

func asking(addr netip.Addr) string {
	if addr.IsValid() {
		return addr.String() + " leads nowhere:"
	}
	return "the Service gets no address outside:"
}

// ingressOf writes the address of a floating IP in the Service's status.
func (b *builder) ingressOf(floatingIP string) {
	if floatingIP != "" {
		b.ingress("4", drivers.From(floatingIP, "floating_ip_address"))
	}
}

func (b *builder) ingress(key string, address drivers.Value) {
	b.set.Outputs = append(b.set.Outputs, drivers.Output{Kind: drivers.Ingress, Key: key, Text: address})
}

// memberRules adds rules that let traffic in to members, where the namespace's group does not do that by itself. Equal rules of
// several Services are one: Neutron refuses the second.
func (b *builder) memberRules() {
	if !b.config.memberRules {
		return
	}
	type door struct {
		protocol string
		port     int64
		ip4      bool
	}
	seen := map[door]bool{}
	for i := range b.ports {
		for _, backend := range b.ports[i].Backends {
			d := door{strings.ToLower(b.ports[i].Protocol), backend.Port, backend.Addr.Is4()}
			if backend.Pod.Namespace != b.service.Metadata.Namespace || seen[d] {
				continue
			}
			seen[d] = true
			b.rules(d.protocol, d.port, d.ip4)
		}
	}
}

func (b *builder) rules(protocol string, port int64, ip4 bool) {
	etherType, suffix := "IPv4", "v4"
	if !ip4 {
		etherType, suffix = "IPv6", "v6"
	}
	sources := []string{""}
	if b.limited() && b.wants.provider.keepsClient {
		sources = nil
		for _, r := range b.clients(ip4, !ip4) {
			sources = append(sources, r.String())
		}
	}
	for _, source := range sources {
		name := fmt.Sprintf("members-%s-%s-%d-%s", b.service.Metadata.Namespace, protocol, port, suffix)
		rule := drivers.SecurityGroupRule{
			SecurityGroupID: drivers.FromRole(b.role(drivers.NamespaceSecurityGroup)), Direction: new("ingress"), EtherType: new(etherType),
			Protocol: new(protocol), PortRangeMin: new(port), PortRangeMax: new(port),
		}
		if source != "" {
			rule.RemoteIPPrefix = new(source)
			name += "-" + strings.NewReplacer("/", "-", ":", "-").Replace(source)
		}
		b.add(drivers.Resource{Name: name, Claim: name, Spec: rule})
	}
}
