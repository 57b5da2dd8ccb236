// SPDX-License-Identifier: Apache-2.0

// Package node is the translation driver that gives every Kubernetes node a Neutron port on a network of the nodes,
// by which the node reaches pods. It must never do I/O or keep state between translations, and never depend on which
// driver made the cluster's router: it finds the router by role, or by the operator's option.
//
// # Claims
//
// The network, its subnets, the way to the router and the security group are claims of all Nodes: they are made for
// the first Node and deleted with the last one.
package node

import (
	"context"
	"fmt"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kuryr/raven/drivers"
	"github.com/kuryr/raven/drivers/contract"
	"github.com/kuryr/raven/drivers/internal/chassis"
	"github.com/kuryr/raven/drivers/internal/conf"
	"github.com/kuryr/raven/drivers/internal/policy"
	"github.com/kuryr/raven/drivers/internal/ranges"
)

// nodes is the name of the watch of the source objects.
const nodes = "nodes"

type driver struct {
	*conf.Of[config]
	policies atomic.Bool // NetworkPolicies are kept
}

// New returns the driver.
func New() drivers.Driver { return &driver{Of: conf.New("node", parse)} }

// Core implements drivers.CoreAware. Where NetworkPolicies are kept, a node has a group that lets its own programs
// reach its pods.
func (d *driver) Core(capabilities []string) { d.policies.Store(policy.Enabled(capabilities)) }

// Info implements drivers.Driver.
func (d *driver) Info() drivers.Info {
	return drivers.Info{
		Name:        "node",
		Version:     "1",
		Description: "Gives every node a port behind the cluster's router, by which it reaches pods.",
		Options:     options(),
		Kinds: []drivers.Kind{
			drivers.KindLookup, drivers.KindNetwork, drivers.KindSubnet, drivers.KindRouterInterface,
			drivers.KindSecurityGroup, drivers.KindSecurityGroupRule, drivers.KindPort,
		},
		Annotations: []string{
			contract.Port, contract.Subnet, contract.Subnets, contract.Network, contract.PodCIDRs, contract.VersionKey,
		},
	}
}

// Watches implements drivers.Driver. Kubernetes' ServiceCIDR objects are only watched where no option says what they
// would.
func (d *driver) Watches() []drivers.Watch {
	watches := []drivers.Watch{{
		Name:   nodes,
		GVR:    schema.GroupVersionResource{Version: "v1", Resource: "nodes"},
		Kind:   "Node",
		Fields: []string{"metadata.labels", chassis.Field},
		Source: true,
	}}
	if d.policies.Load() {
		watches[0].Fields = append(watches[0].Fields, chassis.TranslatedField, portField)
	}
	if c, err := d.Config(); err == nil && c.asksServiceCIDRs() {
		watches = append(watches, ranges.ServiceCIDRs())
	}
	return watches
}

// Translate implements drivers.Driver. A node that is being deleted keeps its port until it is gone.
func (d *driver) Translate(_ context.Context, object drivers.Object, needs *drivers.Needs) (drivers.Set, error) {
	c, err := d.Config()
	if err != nil {
		return drivers.Set{}, err
	}
	var source struct {
		Metadata struct {
			Name        string            `json:"name"`
			UID         string            `json:"uid"`
			Labels      map[string]string `json:"labels"`
			Annotations map[string]string `json:"annotations"`
		} `json:"metadata"`
	}
	if err := object.Into(&source); err != nil {
		return drivers.Set{}, err
	}
	name, uid := source.Metadata.Name, source.Metadata.UID
	if name == "" {
		return drivers.Set{}, fmt.Errorf("object of watch %q has no metadata.name", object.Watch)
	}
	if !c.selector.Matches(labels.Set(source.Metadata.Labels)) {
		return drivers.Set{}, nil
	}
	if err := c.checkServiceCIDRs(needs); err != nil || needs.Open() {
		return drivers.Set{}, err
	}
	host, err := chassis.HostID(name, []drivers.Object{object})
	if err != nil {
		return drivers.Set{}, err
	}
	b := &builder{config: c, name: name, uid: uid}
	if d.policies.Load() {
		b.own, err = ownAddresses(uid, source.Metadata.Annotations)
		if err != nil {
			return drivers.Set{}, err
		}
		b.policies = true
	}
	return b.build(host)
}
