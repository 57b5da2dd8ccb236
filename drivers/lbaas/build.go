// SPDX-License-Identifier: Apache-2.0

package lbaas

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/kuryr/raven/drivers"
	"github.com/kuryr/raven/drivers/internal/services"
)

// The logical names of the resources. One load balancer serves the clusterIP, or one for each IP version.
const (
	balancer4        = services.OctaviaBalancer
	balancer6        = balancer4 + "-v6"
	externalBalancer = balancer4 + "-external"
	vipSecurityGroup = "vip-security-group"
)

// builder gathers the Set of one Service.
type builder struct {
	*config
	services.Builder
	wants settings
	// routed are the pods that are known; nil where all members are routed anyway.
	routed map[services.PodName]services.Pod
	vips   []vip
	led    map[string]bool // the load balancers that a floating IP leads to
	// closed says that source ranges would not be enforced, so that no address outside may be open.
	closed bool
}

// vip is a clusterIP and the load balancer that serves it.
type vip struct {
	addr     netip.Addr
	balancer string
}

// build returns the Set of a Service.
//
//	logical name           Octavia or Neutron name        when
//	loadbalancer[-v6]      <ns>/<svc>                     for the clusterIP; -v6 if the first or only address is IPv6
//	loadbalancer-external  <ns>/<svc>:external            type LoadBalancer with a VIP of its own on another network
//	loadbalancer-<address> <ns>/<svc>:<address>           for every floating IP but the first
//	floatingip-4           -                              type LoadBalancer
//	floatingip-<address>   -                              an address that was asked for, an externalIP
//	members-<ns>-…         -                              a claim: a rule in the namespace's group, where it needs one
//	external-*, vip-*      -                              lookups
func (b *builder) build() (drivers.Set, error) {
	b.led = map[string]bool{}
	addrs, err := b.Addresses()
	if err != nil || len(addrs) == 0 {
		return b.Set, err
	}
	b.Serve()
	b.clusterIPs(addrs)
	b.access()
	b.MemberRules(b.wants.provider.keepsClient)
	b.outputs()
	b.remarks()
	return b.Set, nil
}

// clusterIPs adds the load balancers of the clusterIPs.
func (b *builder) clusterIPs(addrs []netip.Addr) {
	if len(addrs) == 2 && b.together() {
		name := logicalOf(addrs[0])
		b.vips = []vip{{addrs[0], name}, {addrs[1], name}}
		lb := b.balancer(addrs[0], frame{ip4: true, ip6: true, backends: b.once(addrs[0].Is4())})
		lb.AdditionalVIPs = []drivers.AdditionalVIP{{SubnetID: b.serviceSubnet(addrs[1]), IPAddress: addrs[1].String()}}
		b.Add(drivers.Resource{Name: name, Spec: lb, Exports: []string{drivers.ServiceLoadBalancer}})
		return
	}
	for i, addr := range addrs {
		b.vips = append(b.vips, vip{addr, logicalOf(addr)})
		r := drivers.Resource{
			Name: logicalOf(addr), Spec: b.balancer(addr, frame{ip4: addr.Is4(), ip6: addr.Is6(), backends: of(addr.Is4())}),
		}
		if i == 0 {
			r.Exports = []string{drivers.ServiceLoadBalancer}
		}
		b.Add(r)
	}
}

// together says whether one load balancer serves both IP versions. UDP and SCTP are not passed from one version to
// the other.
func (b *builder) together() bool {
	if b.dual == dualSeparate || b.dual == dualAuto && !b.wants.provider.additionalVIPs {
		return false
	}
	if b.wants.provider.ignoresVIPs {
		b.Say(drivers.Warning, "AdditionalVIPsNotServed",
			"%s takes additional VIPs and makes none of them: the Service has a load balancer for each address, whatever "+
				"[%s] %s says", &b.wants.provider, services.OctaviaGroup, optDualStack)
		return false
	}
	return !slices.ContainsFunc(b.Ports, func(p services.Port) bool { return p.Protocol != "TCP" })
}

// once returns what picks the backends of a load balancer with addresses of both versions: each pod once, by its
// address of the first version if it has one.
func (b *builder) once(ip4 bool) func(*services.Port) []services.Backend {
	return func(p *services.Port) []services.Backend {
		first := p.Of(ip4)
		seen := map[services.PodName]bool{}
		for _, backend := range first {
			seen[backend.Pod] = backend.Pod.Name != ""
		}
		for _, backend := range p.Of(!ip4) {
			if !seen[backend.Pod] {
				first = append(first, backend)
			}
		}
		return first
	}
}

func (b *builder) serviceSubnet(addr netip.Addr) drivers.Value {
	if addr.Is4() {
		return drivers.FromRole(b.Role(drivers.ServiceSubnet))
	}
	return drivers.FromRole(b.Role(drivers.ServiceSubnet6))
}

// of returns what picks the backends of one IP version.
func of(ip4 bool) func(*services.Port) []services.Backend {
	return func(p *services.Port) []services.Backend { return p.Of(ip4) }
}

// frame is what load balancers of one Service differ in.
type frame struct {
	name     string
	subnet   drivers.Value // of the VIP, where it is known
	ip4, ip6 bool          // the IP versions of the VIPs
	backends func(*services.Port) []services.Backend
}

// balancer describes a load balancer with its VIP on the service subnet.
func (b *builder) balancer(addr netip.Addr, f frame) drivers.LoadBalancer {
	f.name, f.subnet = b.Service.Name(), b.serviceSubnet(addr)
	lb := b.parts(f)
	lb.VIPSubnetID, lb.VIPAddress = f.subnet, new(addr.String())
	lb.AdditionalVIPs = []drivers.AdditionalVIP{} // one that it had before is released
	return lb
}

// parts describes a load balancer with no VIP yet: a listener and a pool for each port.
func (b *builder) parts(f frame) drivers.LoadBalancer {
	lb := drivers.LoadBalancer{
		Name: cut(f.name, ""), FlavorID: b.wants.flavor, AvailabilityZone: b.wants.zone,
		Listeners: []drivers.Listener{}, Pools: []drivers.Pool{},
	}
	if b.wants.provider.name != "" {
		lb.Provider = new(b.wants.provider.name)
	}
	b.guard(&lb)
	for i := range b.Ports {
		p := &b.Ports[i]
		part := fmt.Sprintf("%s:%s:%d", b.Service.Name(), p.Protocol, p.Port)
		lb.Listeners = append(lb.Listeners, drivers.Listener{
			Name: part, Protocol: new(p.Protocol), ProtocolPort: new(p.Port), DefaultPool: part,
			ConnectionLimit: b.wants.connectionLimit, AllowedCIDRs: b.allowed(f),
			TimeoutClientData: b.wants.timeoutClient, TimeoutMemberConnect: b.wants.timeoutConnect,
			TimeoutMemberData: b.wants.timeoutMember,
		})
		lb.Pools = append(lb.Pools, b.pool(part, p, f))
	}
	return lb
}

// guard gives the VIP the security group that the Service's label names. An empty label removes the groups.
func (b *builder) guard(lb *drivers.LoadBalancer) {
	label, ok := b.Service.Metadata.Labels[SecurityGroupLabel]
	switch {
	case !ok || b.wants.provider.ignoresGroups:
	case label == "":
		lb.VIPSecurityGroups = []drivers.Value{}
	case !drivers.IsUUID(label):
		b.Say(drivers.Error, "BadLabel", "label %s = %q is not the UUID of a security group; %s", SecurityGroupLabel, label,
			services.Kept)
	default:
		lb.VIPSecurityGroups = []drivers.Value{drivers.From(vipSecurityGroup)}
		if !b.Made[vipSecurityGroup] {
			b.Made[vipSecurityGroup] = true
			b.Add(drivers.Resource{
				Name: vipSecurityGroup, Spec: drivers.Lookup{Of: drivers.KindSecurityGroup, ID: strings.ToLower(label)},
			})
		}
	}
}

// pool describes the pool of a port.
func (b *builder) pool(name string, p *services.Port, f frame) drivers.Pool {
	pool := drivers.Pool{
		Name: name, Protocol: new(p.Protocol), LBAlgorithm: new(b.wants.algorithm),
		SessionPersistence: &drivers.SessionPersistence{}, HealthMonitor: b.check(p), Members: []drivers.Member{},
	}
	if p.Protocol == "TCP" && b.wants.proxy != "" {
		pool.Protocol = new(b.wants.proxy)
	}
	if clientIP, seconds := b.Service.Affinity(); clientIP {
		pool.SessionPersistence.Type = "SOURCE_IP"
		if p.Protocol != "TCP" {
			pool.SessionPersistence.PersistenceTimeout = &seconds
		}
	}
	for _, backend := range f.backends(p) {
		if b.unheard(backend) {
			continue
		}
		pool.Members = append(pool.Members, b.member(backend, f.subnet))
	}
	return pool
}

// unheard says whether a backend's pod is not known yet, so that its address is not known: it is a member as soon
// as that is known.
func (b *builder) unheard(backend services.Backend) bool {
	_, known := b.routed[backend.Pod]
	return b.routed != nil && backend.Pod.Name != "" && !known
}

// member describes a backend. What is on a subnet of the pods is named with it where that is asked for; anything else
// is reached by the router of the VIP.
func (b *builder) member(backend services.Backend, vipSubnet drivers.Value) drivers.Member {
	suffix := fmt.Sprintf(":%d", backend.Port)
	m := drivers.Member{Address: backend.Addr.String(), ProtocolPort: new(backend.Port)}
	m.Name = *cut(backend.Pod.Namespace+"/"+backend.Pod.Name, suffix)
	if backend.Pod.Name == "" {
		m.Name = b.Service.Metadata.Namespace + "/" + netip.AddrPortFrom(backend.Addr, uint16(backend.Port)).String()
	}
	if !b.onSubnet(b.wants.provider) {
		return m
	}
	switch {
	case backend.Pod.Name != "" && b.routed != nil && !b.routed[backend.Pod].HostNetwork:
		subnet := drivers.PodSubnet
		if backend.Addr.Is6() {
			subnet = drivers.PodSubnet6
		}
		m.SubnetID = drivers.FromRole(drivers.Role{Kind: "Namespace", Name: backend.Pod.Namespace, Role: subnet})
	case b.wants.provider.onSubnet: // it wants a subnet in any case
		m.SubnetID = vipSubnet
	}
	return m
}

// check describes the health monitor of a port's members; an empty one means none, nil that it stays as it is.
func (b *builder) check(p *services.Port) *drivers.HealthMonitor {
	switch {
	case b.wants.keepMonitor:
		return nil
	case b.wants.monitor == nil || !slices.Contains(b.wants.provider.monitors, p.Protocol):
		return &drivers.HealthMonitor{}
	}
	kind := p.Protocol
	if kind == "UDP" {
		kind = "UDP-CONNECT"
	}
	return &drivers.HealthMonitor{
		Type: kind, Delay: new(b.wants.monitor.delay), Timeout: new(b.wants.monitor.timeout),
		MaxRetries: new(b.wants.monitor.maxRetries),
	}
}

func logicalOf(addr netip.Addr) string {
	if addr.Is4() {
		return balancer4
	}
	return balancer6
}

// cut returns a Neutron name, which has at most 255 characters; the suffix stays.
func cut(of, suffix string) *string {
	const most = 255
	for utf8.RuneCountInString(of)+utf8.RuneCountInString(suffix) > most {
		_, size := utf8.DecodeLastRuneInString(of)
		of = of[:len(of)-size]
	}
	return new(of + suffix)
}
