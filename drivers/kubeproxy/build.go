package kubeproxy

import (
	"net/netip"
	"strings"

	"github.com/kuryr/raven/drivers"
	"github.com/kuryr/raven/drivers/internal/services"
)

// The logical names of the resources.
const (
	serviceGroup = "service-group"
	balancer     = services.OVNBalancer
)

// builder gathers the Set of one Service.
type builder struct {
	*config
	services.Builder
	// hosts are the pods of a Service that limits its clients, and whether they are on their host's network.
	hosts map[services.PodName]bool
	addrs []netip.Addr // the clusterIPs that are served
	// shut says that no address outside may be opened.
	shut bool
}

// build returns the Set of a Service.
//
//	logical name                what                                when
//	ovn-loadbalancer            the clusterIPs, of both IP versions always
//	ovn-loadbalancer-<address>  the address of a floating IP        for each; -4 for one that the cloud chooses
//	floatingip-4                leads to no port                    type LoadBalancer
//	floatingip-<address>        leads to no port                    an address that was asked for, an externalIP
//	members-<ns>-…              a rule in the namespace's group     a claim, where the group needs one
//	external-*                  lookups
//
// What serves a floating IP is apart, so that a floating IP that cannot be had holds up nothing else.
func (b *builder) build() (drivers.Set, error) {
	var err error
	if b.addrs, err = b.Addresses(); err != nil || len(b.addrs) == 0 {
		return b.Set, err
	}
	b.Serve()
	lb := drivers.OVNLoadBalancer{Name: new(b.Service.Name()), GroupID: b.group(), VIPs: []drivers.OVNVIP{}}
	for _, addr := range b.addrs {
		lb.VIPs = append(lb.VIPs, b.vips(drivers.Text(addr.String()), addr.Is4(), everyone)...)
	}
	b.Add(drivers.Resource{Name: balancer, Spec: lb, Exports: []string{drivers.ServiceLoadBalancer}})
	b.access()
	b.MemberRules(true, b.addrs...) // a pod that reaches itself is seen with the clusterIP as its address
	b.FloatingOutputs()
	b.Remarks()
	b.affinity()
	return b.Set, nil
}

func (b *builder) group() drivers.Value {
	return drivers.FromRole(b.Role(drivers.ServiceLoadBalancerGroup))
}

// vips describes what an address serves: every port, with the backends of its IP version that may be used.
func (b *builder) vips(address drivers.Value, ip4 bool, use func(services.Backend) bool) []drivers.OVNVIP {
	_, seconds := b.Service.Affinity()
	vips := make([]drivers.OVNVIP, 0, len(b.Ports))
	for i := range b.Ports {
		p := &b.Ports[i]
		vip := drivers.OVNVIP{
			Protocol: p.Protocol, Address: address, Port: p.Port, Backends: []drivers.OVNBackend{},
			AffinityTimeout: min(seconds, drivers.MaxAffinityTimeout),
		}
		for _, backend := range p.Of(ip4) {
			if use(backend) {
				vip.Backends = append(vip.Backends, drivers.OVNBackend{Address: backend.Addr.String(), Port: backend.Port})
			}
		}
		vips = append(vips, vip)
	}
	return vips
}

func everyone(services.Backend) bool { return true }

// guarded says whether the rules in the namespace's security group decide who reaches a backend: those of a pod on the namespace's network.
func (b *builder) guarded(backend services.Backend) bool {
	host, known := b.hosts[backend.Pod]
	return known && !host && backend.Pod.Namespace == b.Service.Metadata.Namespace
}

// external adds what serves the address of a floating IP that exists or is in the Set.
func (b *builder) external(suffix, floatingIP string, use func(services.Backend) bool) {
	b.Add(drivers.Resource{Name: balancer + "-" + suffix, Spec: drivers.OVNLoadBalancer{
		Name: new(b.Service.Name() + ":" + suffix), GroupID: b.group(),
		VIPs: b.vips(drivers.From(floatingIP, "floating_ip_address"), true, use),
	}})
}

// affinity says where the time that a client keeps its backend for is more than OVN can remember.
func (b *builder) affinity() {
	if _, seconds := b.Service.Affinity(); seconds > drivers.MaxAffinityTimeout {
		b.Say(drivers.Warning, "AffinityTimeoutShortened", "clients keep their endpoint for %d s after the last connection, and not for "+
			"timeoutSeconds %d: OVN has no longer time", drivers.MaxAffinityTimeout, seconds)
	}
}

// unused says which annotations of the Service only Octavia knows.
func (b *builder) unused(r *services.Reader) {
	var keys []string
	for _, key := range services.Balancing() {
		if _, given := r.Get(key); given {
			keys = append(keys, key)
		}
	}
	if len(keys) > 0 {
		b.Say(drivers.Warning, "AnnotationsWithoutEffect", "annotation %s has no effect: it is about Octavia, and driver kubeproxy serves the "+
			"Service without it", strings.Join(keys, ", "))
	}
}
