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
	balancer4        = "loadbalancer"
	balancer6        = "loadbalancer-v6"
	externalBalancer = "loadbalancer-external"
	externalNetwork  = "external-network"
	externalSubnet   = "external-subnet"
	vipSecurityGroup = "vip-security-group"
)

// builder gathers the Set of one Service.
type builder struct {
	*config
	wants   settings
	service *services.Service
	ports   []services.Port
	// routed are the pods that are known, and whether they are on their host's network; nil where all members are routed anyway.
	routed map[services.PodName]bool
	set    drivers.Set
	vips   []vip
	made   map[string]bool // the logical names of floating IPs and lookups
	led    map[string]bool // the load balancers that a floating IP leads to
	// floatings are the logical names of floating IPs, also of those that stay as they are.
	floatings []string
}

// vip is a clusterIP and the load balancer that serves it.
type vip struct {
	addr     netip.Addr
	balancer string
}

// build returns the Set of a Service.
//
//	logical name           Octavia or Neutron name        when
//	loadbalancer[-v6]      <ns>/<svc>                     for the clusterIP; -v6 if the first or only address is an IPv6 one
//	loadbalancer-external  <ns>/<svc>:external            type LoadBalancer with a VIP of its own on another network
//	loadbalancer-<address> <ns>/<svc>:<address>           for every floating IP but the first
//	floatingip-4           -                              type LoadBalancer
//	floatingip-<address>   -                              an address that was asked for, an externalIP
//	members-<ns>-…         -                              a claim: a rule in the namespace's group, where it needs one
//	external-*, vip-*      -                              lookups
func (b *builder) build() (drivers.Set, error) {
	b.made, b.led = map[string]bool{}, map[string]bool{}
	for _, problem := range b.wants.problems {
		b.say(drivers.Error, "BadAnnotation", "%s", problem)
	}
	addrs, err := b.addresses()
	if err != nil || len(addrs) == 0 {
		return b.set, err
	}
	b.serve()
	b.clusterIPs(addrs)
	b.access()
	b.memberRules()
	b.outputs()
	b.remarks()
	return b.set, nil
}

func (b *builder) add(r drivers.Resource) { b.set.Resources = append(b.set.Resources, r) }

func (b *builder) say(severity drivers.Severity, reason, format string, args ...any) {
	b.set.Diagnostics = append(b.set.Diagnostics, drivers.Diagnostic{
		Severity: severity, Reason: reason, Message: fmt.Sprintf(format, args...),
	})
}

// role refers to a resource of the Service's namespace.
func (b *builder) role(name string) drivers.Role {
	return drivers.Role{Kind: "Namespace", Name: b.service.Metadata.Namespace, Role: name}
}

// lookup returns the id of something that the operator or the Service names.
func (b *builder) lookup(logical string, of drivers.Kind, id string) drivers.Value {
	if isUUID(id) {
		return drivers.Text(strings.ToLower(id))
	}
	if !b.made[logical] {
		b.made[logical] = true
		b.add(drivers.Resource{Name: logical, Spec: drivers.Lookup{Of: of, ID: id}})
	}
	return drivers.From(logical)
}

// addresses returns the clusterIPs of the IP versions that the cluster's networks have.
func (b *builder) addresses() ([]netip.Addr, error) {
	all, err := b.service.ClusterIPs()
	if err != nil {
		return nil, err
	}
	var addrs []netip.Addr
	for _, addr := range all {
		if addr.Is4() && b.ip4 || addr.Is6() && b.ip6 {
			addrs = append(addrs, addr)
			continue
		}
		b.say(drivers.Warning, "AddressNotServed", "the clusterIP %s is not served: [%s] %s leaves IPv%d out",
			addr, subnetGroup, optFamilies, version(addr))
	}
	return addrs, nil
}

// serve leaves out the ports that no load balancer has.
func (b *builder) serve() {
	var ports []services.Port
	for i := range b.ports {
		if p := &b.ports[i]; p.Protocol != "TCP" && p.Protocol != "UDP" && p.Protocol != "SCTP" {
			b.say(drivers.Error, "ProtocolNotServed", "port %d is not served: protocol %q is none of TCP, UDP, SCTP", p.Port, p.Protocol)
			continue
		}
		ports = append(ports, b.ports[i])
	}
	b.ports = ports
}

// clusterIPs adds the load balancers of the clusterIPs.
func (b *builder) clusterIPs(addrs []netip.Addr) {
	if len(addrs) == 2 && b.together() {
		name := logicalOf(addrs[0])
		b.vips = []vip{{addrs[0], name}, {addrs[1], name}}
		lb := b.balancer(addrs[0], frame{ip4: true, ip6: true, backends: b.once(addrs[0].Is4())})
		lb.AdditionalVIPs = []drivers.AdditionalVIP{{SubnetID: b.serviceSubnet(addrs[1]), IPAddress: addrs[1].String()}}
		b.add(drivers.Resource{Name: name, Spec: lb, Exports: []string{drivers.ServiceLoadBalancer}})
		return
	}
	for i, addr := range addrs {
		b.vips = append(b.vips, vip{addr, logicalOf(addr)})
		r := drivers.Resource{Name: logicalOf(addr), Spec: b.balancer(addr, frame{ip4: addr.Is4(), ip6: addr.Is6(), backends: of(addr.Is4())})}
		if i == 0 {
			r.Exports = []string{drivers.ServiceLoadBalancer}
		}
		b.add(r)
	}
}

// together says whether one load balancer serves both IP versions. UDP and SCTP are not passed from one version to the other.
func (b *builder) together() bool {
	if b.dual == dualSeparate || b.dual == dualAuto && !b.wants.provider.additionalVIPs {
		return false
	}
	if b.wants.provider.ignoresVIPs {
		b.say(drivers.Warning, "AdditionalVIPsNotServed", "%s takes additional VIPs and makes none of them: the Service has a load balancer for each "+
			"address, whatever [%s] %s says", &b.wants.provider, octaviaGroup, optDualStack)
		return false
	}
	return !slices.ContainsFunc(b.ports, func(p services.Port) bool { return p.Protocol != "TCP" })
}

// once returns what picks the backends of a load balancer with addresses of both versions: each pod once, by its address of the
// first version if it has one.
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
		return drivers.FromRole(b.role(drivers.ServiceSubnet))
	}
	return drivers.FromRole(b.role(drivers.ServiceSubnet6))
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
	f.name, f.subnet = b.service.Name(), b.serviceSubnet(addr)
	lb := b.parts(f)
	lb.VIPSubnetID, lb.VIPAddress = f.subnet, new(addr.String())
	lb.AdditionalVIPs = []drivers.AdditionalVIP{} // one that it had before is another's now, or nobody's
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
	for i := range b.ports {
		p := &b.ports[i]
		part := fmt.Sprintf("%s:%s:%d", b.service.Name(), p.Protocol, p.Port)
		lb.Listeners = append(lb.Listeners, drivers.Listener{
			Name: part, Protocol: new(p.Protocol), ProtocolPort: new(p.Port), DefaultPool: part,
			ConnectionLimit: b.wants.connectionLimit, AllowedCIDRs: b.allowed(f),
			TimeoutClientData: b.wants.timeoutClient, TimeoutMemberConnect: b.wants.timeoutConnect, TimeoutMemberData: b.wants.timeoutMember,
		})
		lb.Pools = append(lb.Pools, b.pool(part, p, f))
	}
	return lb
}

// guard gives the VIP the security group that the Service's label names. An empty label takes groups away.
func (b *builder) guard(lb *drivers.LoadBalancer) {
	label, ok := b.service.Metadata.Labels[SecurityGroupLabel]
	switch {
	case !ok:
	case label == "":
		lb.VIPSecurityGroups = []drivers.Value{}
	case !isUUID(label):
		b.say(drivers.Error, "BadLabel", "label %s = %q is not the UUID of a security group; %s", SecurityGroupLabel, label, kept)
	default:
		lb.VIPSecurityGroups = []drivers.Value{drivers.From(vipSecurityGroup)}
		if !b.made[vipSecurityGroup] {
			b.made[vipSecurityGroup] = true
			b.add(drivers.Resource{Name: vipSecurityGroup, Spec: drivers.Lookup{Of: drivers.KindSecurityGroup, ID: strings.ToLower(label)}})
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
	if clientIP, seconds := b.service.Affinity(); clientIP {
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

// unheard says whether a backend's pod is not known yet, so that nobody can say where it is: it is a member as soon as that is known.
func (b *builder) unheard(backend services.Backend) bool {
	_, known := b.routed[backend.Pod]
	return b.routed != nil && backend.Pod.Name != "" && !known
}

// member describes a backend. What is on a subnet of the pods is named with it where that is asked for; anything else is reached
// by the router of the VIP.
func (b *builder) member(backend services.Backend, vipSubnet drivers.Value) drivers.Member {
	suffix := fmt.Sprintf(":%d", backend.Port)
	m := drivers.Member{Address: backend.Addr.String(), ProtocolPort: new(backend.Port)}
	m.Name = *cut(backend.Pod.Namespace+"/"+backend.Pod.Name, suffix)
	if backend.Pod.Name == "" {
		m.Name = b.service.Metadata.Namespace + "/" + netip.AddrPortFrom(backend.Addr, uint16(backend.Port)).String()
	}
	if !b.onSubnet(b.wants.provider) {
		return m
	}
	switch {
	case backend.Pod.Name != "" && b.routed != nil && !b.routed[backend.Pod]:
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
		Type: kind, Delay: new(b.wants.monitor.delay), Timeout: new(b.wants.monitor.timeout), MaxRetries: new(b.wants.monitor.maxRetries),
	}
}

func logicalOf(addr netip.Addr) string {
	if addr.Is4() {
		return balancer4
	}
	return balancer6
}

func version(addr netip.Addr) int {
	if addr.Is4() {
		return 4
	}
	return 6
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
