// SPDX-License-Identifier: Apache-2.0

// Package kubeproxy is the translation driver that does for pods on Neutron networks what kube-proxy does on nodes:
// every Service becomes OVN load balancers in the logical switches and routers that Neutron made, without Octavia. It
// must never do I/O or keep state between translations, and never depend on which drivers made the networks and the
// router: it finds them by role.
package kubeproxy

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kuryr/raven/drivers"
	"github.com/kuryr/raven/drivers/internal/chassis"
	"github.com/kuryr/raven/drivers/internal/conf"
	"github.com/kuryr/raven/drivers/internal/policy"
	"github.com/kuryr/raven/drivers/internal/services"
)

const (
	namespacesWatch = "namespaces"
	nodesWatch      = "nodes"
	zoneLabel       = "topology.kubernetes.io/zone"
)

type driver struct {
	*conf.Of[config]
	byChassis atomic.Bool // the core can give clients on each chassis backends of their own
	policies  atomic.Bool // NetworkPolicies are kept
}

// New returns the driver.
func New() drivers.Driver { return &driver{Of: conf.New("kubeproxy", parse)} }

// Core implements drivers.CoreAware.
func (d *driver) Core(capabilities []string) {
	d.byChassis.Store(slices.Contains(capabilities, drivers.ChassisBackends))
	d.policies.Store(policy.Enabled(capabilities))
}

// Info implements drivers.Driver.
func (d *driver) Info() drivers.Info {
	return drivers.Info{
		Name:    "kubeproxy",
		Version: "1",
		Description: "Serves every Service by OVN itself, as kube-proxy does on nodes, and gives floating IPs to those " +
			"that are to be reached from outside.",
		Role:    drivers.ServiceProxy,
		Options: options(),
		Kinds: []drivers.Kind{
			drivers.KindLookup, drivers.KindOVNLoadBalancerGroup, drivers.KindOVNLoadBalancer, drivers.KindFloatingIP,
			drivers.KindSecurityGroupRule,
		},
		Annotations: services.Written(),
		Status:      []string{drivers.StatusLoadBalancer},
	}
}

// Watches implements drivers.Driver.
func (d *driver) Watches() []drivers.Watch {
	source := services.Watch(services.Annotations()...)
	source.Fields = append(source.Fields, "metadata.labels['"+services.SecurityGroupLabel+"']",
		"status.loadBalancer.ingress")
	watches := append([]drivers.Watch{source, {
		Name: namespacesWatch, GVR: schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}, Kind: "Namespace",
		Fields: []string{"metadata.name"}, Source: true,
	}, {
		Name: nodesWatch, GVR: schema.GroupVersionResource{Version: "v1", Resource: "nodes"}, Kind: "Node",
		Fields: []string{"metadata.name", "metadata.labels['" + zoneLabel + "']", chassis.IDField},
	}, services.PodsWatch(), services.WrittenWatch(services.Written()...)}, services.EndpointWatches()...)
	if c, err := d.Config(); err == nil {
		watches = append(watches, c.Selection.Watches()...)
	}
	return watches
}

// Translate implements drivers.Driver. What is being deleted keeps its Set until it is gone.
func (d *driver) Translate(_ context.Context, object drivers.Object, needs *drivers.Needs) (drivers.Set, error) {
	c, err := d.Config()
	switch {
	case err != nil:
		return drivers.Set{}, err
	case object.Watch == namespacesWatch:
		return c.namespace(object, needs)
	default:
		return c.service(object, needs, d.byChassis.Load(), d.policies.Load())
	}
}

// namespace returns the Set of a namespace: the group of the load balancers that serve it, which all namespaces share
// in the shared topology, with the namespace's network and router in it.
func (c *config) namespace(object drivers.Object, needs *drivers.Needs) (drivers.Set, error) {
	meta, err := object.Meta()
	if err != nil {
		return drivers.Set{}, err
	}
	name := meta.Name
	if name == "" {
		return drivers.Set{}, fmt.Errorf("object of watch %q has no metadata.name", object.Watch)
	}
	left, err := c.Selection.Left(needs, name, "")
	if err != nil || len(left) > 0 {
		return drivers.Set{}, err // driver namespace says why
	}
	// The lists are empty, and not unset: what is not contributed any more is removed.
	group := drivers.OVNLoadBalancerGroup{
		Name: new(name + "-services"), Networks: []drivers.Value{}, Routers: []drivers.Value{},
	}
	r := drivers.Resource{Name: serviceGroup, Exports: []string{drivers.ServiceLoadBalancerGroup}}
	if !c.dedicated {
		group.Name, r.Claim = new("raven-default-services"), serviceGroup
	}
	r.Spec = group
	element := func(what, attribute, role string) drivers.Contribution {
		return drivers.Contribution{
			Name: what, Target: services.NamespaceRole(name, drivers.ServiceLoadBalancerGroup), Attribute: attribute,
			Resource: drivers.FromRole(services.NamespaceRole(name, role)),
		}
	}
	return drivers.Set{Resources: []drivers.Resource{r}, Contributions: []drivers.Contribution{
		element("network", "networks", drivers.PodNetwork), element("router", "routers", drivers.ClusterRouter),
	}}, nil
}

// service returns the Set of a Service.
func (c *config) service(object drivers.Object, needs *drivers.Needs, byChassis, policies bool) (drivers.Set, error) {
	s, err := services.Decode(object)
	if err != nil {
		return drivers.Set{}, err
	}
	if !s.Proxied() || len(s.Spec.Ports) == 0 {
		return drivers.Set{}, nil
	}
	r := c.Reader(s, needs)
	outside := r.Outside()
	r.Spec(s, &outside)
	// All is asked for at once, whatever is not known yet: there are few rounds.
	left, err := c.Selection.Left(needs, s.Metadata.Namespace, services.LeftOut)
	if err != nil || len(left) > 0 {
		return drivers.Set{Diagnostics: left}, err
	}
	ports, known, err := services.Ask(needs, s)
	if err != nil {
		return drivers.Set{}, err
	}
	b := &builder{config: c, Builder: services.NewBuilder(&c.Config, s, outside, ports)}
	if byChassis && (b.onlyLocal() || slices.ContainsFunc(ports, func(p services.Port) bool { return p.Hinted() })) {
		if known, err = b.askChassis(needs); err != nil || !known {
			return drivers.Set{}, err
		}
	}
	if policies {
		b.InOpenGroup()
	}
	if b.closed() {
		b.Outside.There = r.There()
	}
	answered := true
	if clients, limited := c.Limits(s, outside); limited && c.MemberRules {
		b.Guard, answered, err = c.Guard(needs, s, clients, c.LetsIn)
	}
	if err != nil || !known || !answered || r.Waiting {
		return drivers.Set{}, err
	}
	b.unused(&r)
	set, err := b.build()
	if err != nil || services.Offered(needs, s) {
		return set, err
	}
	return services.Undecided(set), nil
}
