// SPDX-License-Identifier: Apache-2.0

package kubeproxy

import (
	"net/netip"
	"slices"
	"strings"

	"github.com/kuryr/raven/drivers"
	"github.com/kuryr/raven/drivers/contract"
	"github.com/kuryr/raven/drivers/internal/chassis"
	"github.com/kuryr/raven/drivers/internal/services"
)

// serviceGroup is the logical name of a namespace's group, and that of the claim behind it.
const serviceGroup = "service-group"

// builder gathers the Set of one Service.
type builder struct {
	*config
	services.Builder
	addrs []netip.Addr // the clusterIPs that are served
	// nodes are those whose clients may have endpoints of their own, in the order of their names.
	nodes []node
	// shut says that no address outside may be opened.
	shut   bool
	served []drivers.OVNVIP
}

// build returns the Set of a Service.
//
//	logical name          what                                               when
//	ovn-loadbalancer      the clusterIPs and the addresses of floating IPs   always
//	floatingip-4          leads to no port                                   type LoadBalancer
//	floatingip-<address>  leads to no port                                   an address that was asked for, an externalIP
//	members-<ns>-…        a rule in the namespace's group                    a claim, where the group needs one
//	external-*            lookups
func (b *builder) build() (drivers.Set, error) {
	var err error
	if b.addrs, err = b.Addresses(); err != nil || len(b.addrs) == 0 {
		return b.Set, err
	}
	b.Serve()
	for _, addr := range b.addrs {
		before := len(b.served)
		b.at(drivers.Text(addr.String()), addr.Is4(), everyone)
		b.byNode(b.served[before:], addr.Is4())
	}
	b.access()
	b.Add(drivers.Resource{
		Name: services.OVNBalancer, Exports: []string{drivers.ServiceLoadBalancer},
		Spec: drivers.OVNLoadBalancer{
			Name: new(b.Service.Name()), GroupID: drivers.FromRole(b.Role(drivers.ServiceLoadBalancerGroup)), VIPs: b.served,
		},
	})
	b.MemberRules(true, b.virtual()...)
	b.FloatingOutputs()
	b.Remarks()
	b.affinity()
	return b.Set, nil
}

// virtual returns the addresses that a pod that reaches itself is seen with: those of the Service, as far as they are
// known beforehand.
func (b *builder) virtual() []netip.Addr {
	asked, ok := b.asked()
	if !ok || b.Outside.Internal || slices.Contains(b.addrs, asked) {
		return b.addrs
	}
	return append(slices.Clone(b.addrs), asked)
}

// pick says whether a backend of a port is used at an address.
type pick func(*services.Port, services.Backend) bool

// at serves every port at an address, with the backends of its IP version that may be used.
func (b *builder) at(address drivers.Value, ip4 bool, use pick) {
	_, seconds := b.Service.Affinity()
	for i := range b.Ports {
		p := &b.Ports[i]
		vip := drivers.OVNVIP{
			Protocol: p.Protocol, Address: address, Port: p.Port, Backends: []drivers.OVNBackend{},
			AffinityTimeout: min(seconds, drivers.MaxAffinityTimeout),
		}
		for _, backend := range p.Of(ip4) {
			if use(p, backend) {
				vip.Backends = append(vip.Backends, drivers.OVNBackend{Address: backend.Addr.String(), Port: backend.Port})
			}
		}
		b.served = append(b.served, vip)
	}
}

// node is a node that says which chassis it is.
type node struct{ name, chassis, zone string }

// onlyLocal says whether clients are served by the endpoints of their own node only.
func (b *builder) onlyLocal() bool { return b.Service.Spec.InternalTrafficPolicy == "Local" }

// askChassis asks which chassis the nodes are, and returns whether that is known yet. Where no Node says it, the
// Service is served by the endpoints of all nodes; so it is where some do not, and endpoints are only preferred.
func (b *builder) askChassis(needs *drivers.Needs) (known bool, err error) {
	objects, answered := needs.Get(drivers.Need{Watch: nodesWatch})
	if !answered {
		return false, nil
	}
	ids, without, err := chassis.IDs(objects)
	if err != nil || len(ids) == 0 || !b.onlyLocal() && len(without) > 0 {
		return true, err
	}
	for _, object := range objects {
		meta, err := object.Meta()
		if err != nil {
			return true, err
		}
		if id := ids[meta.Name]; id != "" {
			b.nodes = append(b.nodes, node{meta.Name, id, meta.Labels[zoneLabel]})
		}
	}
	slices.SortFunc(b.nodes, func(a, b node) int { return strings.Compare(a.name, b.name) })
	b.LocalServed = true
	if len(without) > 0 {
		b.Say(drivers.Warning, "TrafficPolicyNotServed",
			"internalTrafficPolicy Local: clients on nodes %s are not served: these Nodes have no annotation %s; does `raven "+
				"node` run there?", strings.Join(without, ", "), contract.ChassisID)
	}
	return true, nil
}

// byNode gives the clients on each node the endpoints that are for them: those of their own node, chosen as if there
// were no other nodes, with internalTrafficPolicy Local; else by the endpoints' hints, where these make a difference.
func (b *builder) byNode(vips []drivers.OVNVIP, ip4 bool) {
	if len(b.nodes) == 0 {
		return
	}
	for i := range vips {
		port, all := &b.Ports[i], backendsOf(b.Ports[i].Of(ip4))
		differ := b.onlyLocal()
		var chassis []drivers.OVNChassis
		for _, n := range b.nodes {
			some := port.For(n.name, n.zone, ip4)
			if b.onlyLocal() {
				some = port.On(n.name, ip4)
			}
			chassis = append(chassis, drivers.OVNChassis{ID: n.chassis, Backends: backendsOf(some)})
			differ = differ || len(some) != len(all)
		}
		if differ {
			vips[i].Backends, vips[i].Chassis = []drivers.OVNBackend{}, chassis
		}
	}
}

func backendsOf(list []services.Backend) []drivers.OVNBackend {
	out := make([]drivers.OVNBackend, 0, len(list))
	for _, backend := range list {
		out = append(out, drivers.OVNBackend{Address: backend.Addr.String(), Port: backend.Port})
	}
	return out
}

func everyone(*services.Port, services.Backend) bool { return true }

// external serves the address of a floating IP that exists or is in the Set. Until it is known the rest is served
// without it.
//
// The router answers for it in every subnet of the external network, for Neutron gave it; for no address that a
// Service names by itself.
func (b *builder) external(floatingIP string, use pick) {
	before := len(b.served)
	b.at(drivers.From(floatingIP, "floating_ip_address"), true, use)
	for i := range b.served[before:] {
		b.served[before+i].External = true
	}
}

// affinity adds a diagnostic where the Service sets the time for which a client keeps its backend.
func (b *builder) affinity() {
	if _, seconds := b.Service.Affinity(); seconds > 0 && seconds != services.DefaultAffinitySeconds {
		b.Say(drivers.Note, "AffinityTimeoutNotServed",
			"clients keep their endpoint as long as the endpoints are the same, and not for timeoutSeconds %d: OVN loses "+
				"connections where it is to forget clients", seconds)
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
		b.Say(drivers.Warning, "AnnotationsWithoutEffect",
			"annotation %s has no effect: it is about Octavia, and driver kubeproxy serves the Service without it",
			strings.Join(keys, ", "))
	}
}
