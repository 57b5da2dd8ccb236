// SPDX-License-Identifier: Apache-2.0

// Package lbaas is the translation driver that gives every Kubernetes Service an Octavia load balancer, so that a
// cluster can do without kube-proxy where pods are on Neutron networks. It must never do I/O or keep state between
// translations, and never depend on which drivers made the namespace's networks: it finds subnets and the security
// group by role.
package lbaas

import (
	"context"
	"net/netip"
	"sync/atomic"

	"github.com/kuryr/raven/drivers"
	"github.com/kuryr/raven/drivers/internal/conf"
	"github.com/kuryr/raven/drivers/internal/policy"
	"github.com/kuryr/raven/drivers/internal/services"
)

// The annotations that are written on a Service for the CNI side; their values are JSON documents.
const (
	// VIPAnnotation is the load balancer, with its vip_address and vip_port_id.
	VIPAnnotation = "kuryr.org/neutron-vip"
	// PoolAnnotation is the pool of the first port by name, without members.
	PoolAnnotation = "kuryr.org/neutron-pool"
	// PoolsAnnotation is the list of all pools; only where there are several ports.
	PoolsAnnotation = "kuryr.org/neutron-pools"
	// VIPSecurityGroupAnnotation is the security group that the label of the same purpose gives to the VIP.
	VIPSecurityGroupAnnotation = "kuryr.org/neutron-vip-sg"
	// FloatingIPAnnotation is the floating IP that leads to the Service, the first of several.
	FloatingIPAnnotation = services.FloatingIPAnnotation
	// SourceRangesAnnotation is spec.loadBalancerSourceRanges as they were read last.
	SourceRangesAnnotation = services.SourceRangesAnnotation
	// AddressAnnotation is the address that a Service of type LoadBalancer has outside; its value is the address itself.
	AddressAnnotation = services.AddressAnnotation
)

// SecurityGroupLabel on a Service is the UUID of the security group that its VIP has, as on a Pod of its port.
const SecurityGroupLabel = services.SecurityGroupLabel

type driver struct {
	*conf.Of[config]
	policies atomic.Bool // NetworkPolicies are kept
}

// New returns the driver.
func New() drivers.Driver { return &driver{Of: conf.New("lbaas", parse)} }

// Core implements drivers.CoreAware.
func (d *driver) Core(capabilities []string) { d.policies.Store(policy.Enabled(capabilities)) }

// Info implements drivers.Driver.
func (d *driver) Info() drivers.Info {
	return drivers.Info{
		Name:        "lbaas",
		Version:     "1",
		Description: "Gives every Service an Octavia load balancer, and floating IPs where it is to be reached from outside.",
		Role:        drivers.ServiceProxy,
		Options:     options(),
		Kinds: []drivers.Kind{
			drivers.KindLookup, drivers.KindLoadBalancer, drivers.KindFloatingIP, drivers.KindSecurityGroupRule,
		},
		Annotations: []string{
			VIPAnnotation, PoolAnnotation, PoolsAnnotation, VIPSecurityGroupAnnotation, FloatingIPAnnotation,
			SourceRangesAnnotation,
			AddressAnnotation,
		},
		Status: []string{drivers.StatusLoadBalancer},
	}
}

// Watches implements drivers.Driver.
func (d *driver) Watches() []drivers.Watch {
	source := services.Watch(services.Annotations()...)
	source.Fields = append(source.Fields, "metadata.labels['"+SecurityGroupLabel+"']")
	written := services.WrittenWatch(VIPAnnotation, PoolAnnotation, PoolsAnnotation, FloatingIPAnnotation,
		SourceRangesAnnotation)
	watches := append([]drivers.Watch{source, services.PodsWatch(), written}, services.EndpointWatches()...)
	if c, err := d.Config(); err == nil {
		watches = append(watches, c.Selection.Watches()...)
	}
	return watches
}

// Translate implements drivers.Driver. A Service that is being deleted is served until it is gone.
func (d *driver) Translate(_ context.Context, object drivers.Object, needs *drivers.Needs) (drivers.Set, error) {
	c, err := d.Config()
	if err != nil {
		return drivers.Set{}, err
	}
	s, err := services.Decode(object)
	if err != nil {
		return drivers.Set{}, err
	}
	if !s.Proxied() || len(s.Spec.Ports) == 0 {
		return drivers.Set{}, nil
	}
	// All is asked for at once, whatever is not known yet: there are few rounds.
	left, err := c.Selection.Left(needs, s.Metadata.Namespace, services.LeftOut)
	if err != nil || len(left) > 0 {
		return drivers.Set{Diagnostics: left}, err
	}
	wanted, read, err := c.read(s, needs)
	if err != nil {
		return drivers.Set{}, err
	}
	ports, known, err := services.Ask(needs, s)
	if err != nil {
		return drivers.Set{}, err
	}
	b := &builder{config: c, Builder: services.NewBuilder(&c.Config, s, wanted.outside, ports), wants: wanted}
	if d.policies.Load() {
		b.InOpenGroup()
	}
	pods, answered, err := b.ask(needs, !read)
	if err != nil || !read || !known || !answered {
		return drivers.Set{}, err
	}
	b.routed = pods
	set, err := b.build()
	if err != nil || services.Offered(needs, s) {
		return set, err
	}
	return services.Undecided(set), nil
}

// ask returns the Service's pods, nil where all members are routed anyway, and asks for its guard where only security
// groups limit its clients, or may, where what the Service wants is not known yet. It says whether all that is known
// yet.
func (b *builder) ask(needs *drivers.Needs, whatever bool) (map[services.PodName]services.Pod, bool, error) {
	var pods map[services.PodName]services.Pod
	known, guarded := true, true
	var err error
	if (whatever || b.onSubnet(b.wants.provider)) && len(b.Service.Spec.Selector) > 0 {
		pods, known, err = services.Pods(needs, b.Service)
	}
	if clients, limited := b.Limits(b.Service, b.Outside); err == nil && limited &&
		(whatever || b.wants.provider.lacksCIDRs) && b.config.MemberRules {
		b.Guard, guarded, err = b.config.Guard(needs, b.Service, clients, b.letsIn)
	}
	return pods, known && guarded, err
}

// letsIn returns the ranges that the rules for a Service's members let in; false: everybody, as where members do not
// see who the client is.
func (c *config) letsIn(s *services.Service) ([]netip.Prefix, bool) {
	r := reader{Reader: c.Reader(s, nil)}
	if p := r.provider(c); !p.keepsClient { // nor does one that cannot be read, as far as is known
		return nil, false
	}
	return c.LetsIn(s)
}
