// SPDX-License-Identifier: Apache-2.0

// Package namespace is the translation driver that gives every Kubernetes namespace its network: pods' network and
// subnets, a security group, and the way to the services' network through a router. It must never do I/O or keep
// state between translations, and never name a resource that another owner may have made without asking for it by
// role or by option.
//
// # Roles
//
// Every Set exports the same roles in both topologies, so that who wants the router of the namespace "web" asks for
// Role{Kind: "Namespace", Name: "web", Role: drivers.ClusterRouter} and need not know whether it is shared. In the
// shared topology those resources are claims, and therefore also found as resources of the whole cluster (a Role
// without kind and name). A resource that the operator named himself is a lookup, and exported all the same. One
// thing is missing then: the network of an existing service subnet is not known by name; it is the attribute
// "network_id" of the role service-subnet.
package namespace

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kuryr/raven/drivers"
	"github.com/kuryr/raven/drivers/internal/conf"
	"github.com/kuryr/raven/drivers/internal/policy"
	"github.com/kuryr/raven/drivers/internal/ranges"
)

// The annotations that the driver writes on a Namespace: JSON documents of the Neutron resources.
const (
	NetworkAnnotation       = "kuryr.org/neutron-network"
	SubnetAnnotation        = "kuryr.org/neutron-subnet"
	SecurityGroupAnnotation = "kuryr.org/neutron-sg"
)

// namespaces is the name of the watch of the source objects.
const namespaces = "namespaces"

type driver struct {
	*conf.Of[config]
	policies atomic.Bool // NetworkPolicies are kept
	pools    atomic.Bool // the core can keep pools of ports
}

// New returns the driver.
func New() drivers.Driver { return &driver{Of: conf.New("namespace", parse)} }

// Core implements drivers.CoreAware. Where NetworkPolicies are kept, a namespace has groups for pods that no policy
// isolates, and one of all its pods.
func (d *driver) Core(capabilities []string) {
	d.policies.Store(policy.Enabled(capabilities))
	d.pools.Store(slices.Contains(capabilities, drivers.KindCapability(drivers.KindPortPool)))
}

// Info implements drivers.Driver.
func (d *driver) Info() drivers.Info {
	kinds := []drivers.Kind{
		drivers.KindLookup, drivers.KindSecurityGroup, drivers.KindSecurityGroupRule, drivers.KindNetwork,
		drivers.KindSubnetPool, drivers.KindSubnet, drivers.KindRouter, drivers.KindRouterInterface,
	}
	if d.pools.Load() {
		kinds = append(kinds, drivers.KindPortPool)
	}
	return drivers.Info{
		Name:        "namespace",
		Version:     "1",
		Description: "Gives every namespace a network, subnets, a security group and a router to the services.",
		Options:     options(),
		Kinds:       kinds,
		Annotations: []string{NetworkAnnotation, SubnetAnnotation, SecurityGroupAnnotation},
	}
}

// Watches implements drivers.Driver. Kubernetes' ServiceCIDR objects are only watched where no option says what they
// would.
func (d *driver) Watches() []drivers.Watch {
	watches := []drivers.Watch{{
		Name:   namespaces,
		GVR:    schema.GroupVersionResource{Version: "v1", Resource: "namespaces"},
		Kind:   "Namespace",
		Fields: []string{"metadata.name"},
		Source: true,
	}}
	if d.pools.Load() {
		watches[0].Fields = append(watches[0].Fields, portPoolMinField, portPoolMaxField)
	}
	if c, err := d.Config(); err == nil {
		watches = append(watches, c.selection.Watches()...)
		if c.asksServiceCIDRs() {
			watches = append(watches, ranges.ServiceCIDRs())
		}
	}
	if d.policies.Load() {
		own := policy.Watch()
		own.Selectors = nil
		watches = append(watches, own)
	}
	return watches
}

// Translate implements drivers.Driver. A namespace that is being deleted keeps its Set until it is gone: its pods
// still have their ports.
func (d *driver) Translate(_ context.Context, object drivers.Object, needs *drivers.Needs) (drivers.Set, error) {
	c, err := d.Config()
	if err != nil {
		return drivers.Set{}, err
	}
	// Only what is read is decoded: objects of old API servers have fields of shapes that today's types refuse.
	var source struct {
		Metadata struct {
			Name        string            `json:"name"`
			Annotations map[string]string `json:"annotations"`
		} `json:"metadata"`
	}
	if err := object.Into(&source); err != nil {
		return drivers.Set{}, err
	}
	if source.Metadata.Name == "" {
		return drivers.Set{}, fmt.Errorf("object of watch %q has no metadata.name", object.Watch)
	}
	left, err := c.selection.Left(needs, source.Metadata.Name, "the namespace gets no network")
	if err != nil || needs.Open() || len(left) > 0 {
		return drivers.Set{Diagnostics: left}, err
	}
	services, diagnostics, err := c.services(needs)
	if err != nil || needs.Open() {
		return drivers.Set{}, err
	}
	var isolated *isolation
	if d.policies.Load() {
		isolated = isolate(source.Metadata.Name, needs)
		if needs.Open() {
			return drivers.Set{}, nil
		}
	}
	var pool portPool
	if d.pools.Load() {
		var wrong []drivers.Diagnostic
		pool, wrong = c.portPool.of(source.Metadata.Annotations)
		diagnostics = append(diagnostics, wrong...)
	}
	set := c.build(source.Metadata.Name, services, isolated, pool)
	set.Diagnostics = diagnostics
	return set, nil
}

// isolation is in which directions NetworkPolicies isolate all pods of a namespace.
type isolation struct{ ingress, egress bool }

// isolate asks for the policies of a namespace. One of which it cannot be read whom it is for is left to its pods, of
// which none gets a port or another group.
func isolate(namespace string, needs *drivers.Needs) *isolation {
	out := &isolation{}
	objects, _ := needs.Get(drivers.Need{Watch: policy.WatchName, Namespace: namespace})
	for _, object := range objects {
		if p, err := policy.Read(object); err == nil && p.Whole() {
			out.ingress, out.egress = out.ingress || p.Ingress, out.egress || p.Egress
		}
	}
	return out
}
