// SPDX-License-Identifier: Apache-2.0

// Package pod is the translation driver that gives every Kubernetes pod its Neutron port. It must never do I/O or
// keep state between translations, and never depend on which driver made the namespace's network: it finds network,
// subnet and security group by role.
package pod

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kuryr/raven/drivers"
	"github.com/kuryr/raven/drivers/contract"
	"github.com/kuryr/raven/drivers/internal/chassis"
	"github.com/kuryr/raven/drivers/internal/conf"
	"github.com/kuryr/raven/drivers/internal/policy"
)

// SecurityGroupLabel on a Pod is the UUID of the security group that its port has in place of all others.
const SecurityGroupLabel = "kuryr.org/neutron-security-group"

// The names of the watches.
const (
	pods  = "pods"
	nodes = "nodes"
)

type driver struct {
	*conf.Of[config]
	policies atomic.Bool // NetworkPolicies are kept
}

type config struct {
	subnets        []string // the roles of the subnets that a port needs
	securityGroups []string // UUIDs or names; empty: the namespace's
	selection      conf.Selection
}

// New returns the driver.
func New() drivers.Driver { return &driver{Of: conf.New("pod", parse)} }

// Core implements drivers.CoreAware. Where NetworkPolicies are kept, a port has the groups that they make of its
// namespace's.
func (d *driver) Core(capabilities []string) { d.policies.Store(policy.Enabled(capabilities)) }

// Configure implements drivers.Driver.
func (d *driver) Configure(ctx context.Context, values drivers.Values) error {
	if groups := values.List(conf.DefaultsGroup, conf.OptSecurityGroups); d.policies.Load() && len(groups) > 0 {
		return conf.Refusal(conf.DefaultsGroup, conf.OptSecurityGroups, "with the driver %s the groups of pods are those "+
			"of their policies: leave it unset, or leave the driver out", policy.Driver)
	}
	return d.Of.Configure(ctx, values)
}

// Info implements drivers.Driver.
func (d *driver) Info() drivers.Info {
	return drivers.Info{
		Name:        "pod",
		Version:     "1",
		Description: "Gives every pod that is not on its host's network a port in its namespace's network.",
		Options:     append([]drivers.Option{conf.Families(), conf.SecurityGroups()}, conf.Namespaces()...),
		Kinds:       []drivers.Kind{drivers.KindLookup, drivers.KindPort},
		Annotations: []string{
			contract.Port, contract.Subnet, contract.Subnets, contract.Network, contract.VersionKey,
		},
	}
}

// Watches implements drivers.Driver. Of Nodes only annotations of their daemons are read, so that what kubelets write
// on them wakes no pod.
func (d *driver) Watches() []drivers.Watch {
	ofNodes := []string{chassis.Field}
	if d.policies.Load() {
		ofNodes = append(ofNodes, chassis.TranslatedField)
	}
	watches := []drivers.Watch{
		{
			Name:   pods,
			GVR:    schema.GroupVersionResource{Version: "v1", Resource: "pods"},
			Kind:   "Pod",
			Fields: []string{"metadata.labels", "spec.hostNetwork", "spec.nodeName", "status.phase"},
			Source: true,
		},
		{
			Name:   nodes,
			GVR:    schema.GroupVersionResource{Version: "v1", Resource: "nodes"},
			Kind:   "Node",
			Fields: ofNodes,
		},
	}
	if c, err := d.Config(); err == nil {
		watches = append(watches, c.selection.Watches()...)
	}
	if d.policies.Load() {
		watches = append(watches, policyWatches()...)
	}
	return watches
}

func parse(values drivers.Values) (config, error) {
	selection, err := conf.ReadSelection(values)
	if err != nil {
		return config{}, err
	}
	c := config{selection: selection}
	switch families := values.String(conf.SubnetGroup, conf.OptFamilies); families {
	case conf.IPv4Only:
		c.subnets = []string{drivers.PodSubnet}
	case conf.IPv6Only:
		c.subnets = []string{drivers.PodSubnet6}
	case conf.DualStack:
		c.subnets = []string{drivers.PodSubnet, drivers.PodSubnet6}
	default:
		return config{}, &drivers.OptionError{
			Group: conf.SubnetGroup, Name: conf.OptFamilies,
			Message: fmt.Sprintf("%q is none of %s, %s, %s", families, conf.IPv4Only, conf.IPv6Only, conf.DualStack),
		}
	}
	seen := map[string]bool{}
	for _, group := range values.List(conf.DefaultsGroup, conf.OptSecurityGroups) {
		if !seen[group] {
			seen[group] = true
			c.securityGroups = append(c.securityGroups, group)
		}
	}
	return c, nil
}

// source is what is read of a Pod. Only that is decoded: objects of old API servers have fields of shapes that
// today's types refuse.
type source struct {
	Metadata struct {
		Name      string            `json:"name"`
		Namespace string            `json:"namespace"`
		UID       string            `json:"uid"`
		Labels    map[string]string `json:"labels"`
	} `json:"metadata"`
	Spec struct {
		HostNetwork bool   `json:"hostNetwork"`
		NodeName    string `json:"nodeName"`
	} `json:"spec"`
	Status struct {
		Phase string `json:"phase"`
	} `json:"status"`
}

// Translate implements drivers.Driver. A pod that is being deleted keeps its port until it is gone or has completed:
// its containers may still be talking.
func (d *driver) Translate(_ context.Context, object drivers.Object, needs *drivers.Needs) (drivers.Set, error) {
	c, err := d.Config()
	if err != nil {
		return drivers.Set{}, err
	}
	var pod source
	if err := object.Into(&pod); err != nil {
		return drivers.Set{}, err
	}
	if pod.Metadata.Name == "" || pod.Metadata.Namespace == "" {
		return drivers.Set{}, fmt.Errorf("object of watch %q has no metadata.name or no metadata.namespace", object.Watch)
	}
	if pod.Status.Phase == "Succeeded" || pod.Status.Phase == "Failed" || pod.Spec.HostNetwork && !d.policies.Load() {
		return drivers.Set{}, nil
	}
	var isolation isolation
	if d.policies.Load() {
		if isolation, err = isolate(&pod, needs); err != nil {
			return drivers.Set{}, err
		}
	}
	if pod.Spec.HostNetwork {
		return drivers.Set{Diagnostics: isolation.notEnforced("it is on its host's network")}, nil
	}
	// All is asked for at once: there are few rounds.
	left, err := c.selection.Left(needs, pod.Metadata.Namespace, "the pod gets no port")
	if err != nil || len(left) > 0 {
		return drivers.Set{Diagnostics: left}, err
	}
	node, host, err := nodeOf(&pod, needs)
	if err != nil || needs.Open() {
		return drivers.Set{}, err
	}
	isolation.node = node
	return c.build(&pod, host, d.policies.Load(), isolation)
}

// nodeOf returns the pod's node, if it has a group for its own programs, and the binding:host_id of the pod's port; ""
// before the pod is scheduled. When the needs are open afterwards, the answer does not count.
func nodeOf(pod *source, needs *drivers.Needs) (name, host string, err error) {
	if pod.Spec.NodeName == "" {
		return "", "", nil
	}
	node, answered := needs.Get(drivers.Need{Watch: nodes, Name: pod.Spec.NodeName})
	if !answered {
		return "", "", nil
	}
	for _, object := range node {
		meta, err := object.Meta()
		if err != nil {
			return "", "", err
		}
		if meta.Annotations[contract.TranslatedAddresses] != "" {
			name = pod.Spec.NodeName
		}
	}
	host, err = chassis.HostID(pod.Spec.NodeName, node)
	return name, host, err
}

// build returns the Set of a pod that has a port. The port takes an address of every IP version that the namespace
// has: it waits for all those subnets, since Neutron gives addresses only of the ones that exist when the port is
// made.
func (c *config) build(pod *source, host string, policies bool, isolation isolation) (drivers.Set, error) {
	role := func(name string) drivers.Role {
		return drivers.Role{Kind: "Namespace", Name: pod.Metadata.Namespace, Role: name}
	}
	set, groups, err := c.securityGroupsOf(pod, role(drivers.NamespaceSecurityGroup))
	if err != nil {
		return drivers.Set{}, err
	}
	switch _, labelled := pod.Metadata.Labels[SecurityGroupLabel]; {
	case policies && labelled:
		set.Diagnostics = isolation.notEnforced("it has the label " + SecurityGroupLabel)
	case policies:
		groups = isolation.groups(pod.Metadata.Namespace)
	}
	port := drivers.Port{
		Name:           name(pod.Metadata.Name),
		NetworkID:      drivers.FromRole(role(drivers.PodNetwork)),
		DeviceOwner:    new(contract.DeviceOwner),
		SecurityGroups: groups,
	}
	if pod.Metadata.UID != "" {
		port.DeviceID = new(pod.Metadata.UID)
	}
	if host != "" {
		port.HostID = new(host)
	}
	var after []drivers.Ref
	for _, subnet := range c.subnets {
		after = append(after, drivers.Ref{Role: new(role(subnet))})
	}
	set.Resources = append(set.Resources, drivers.Resource{Name: "port", Spec: port, After: after})
	set.Outputs = []drivers.Output{
		{Kind: drivers.Annotation, Key: contract.Port, Document: &drivers.Ref{Name: "port"}},
		{Kind: drivers.Annotation, Key: contract.Subnet, Document: &drivers.Ref{Name: "port", Attribute: "subnet"}},
		{
			Kind: drivers.Annotation, Key: contract.Network,
			Document: &drivers.Ref{Role: new(role(drivers.PodNetwork))},
		},
		{Kind: drivers.Annotation, Key: contract.VersionKey, Text: drivers.Text(contract.Version)},
	}
	if len(c.subnets) > 1 {
		set.Outputs = append(set.Outputs, drivers.Output{
			Kind: drivers.Annotation, Key: contract.Subnets, Document: &drivers.Ref{Name: "port", Attribute: "subnets"},
		})
	}
	return set, nil
}

// securityGroupsOf returns the security groups of a pod's port: the one of its label, else the configured ones, else
// its namespace's. The Set holds the lookups of those that are given by name.
//
// A label that is no UUID is an error, so that the pod keeps what it has: falling back to another group could open
// what the label was to close.
func (c *config) securityGroupsOf(pod *source, namespace drivers.Role) (drivers.Set, []drivers.Value, error) {
	var set drivers.Set
	if label, ok := pod.Metadata.Labels[SecurityGroupLabel]; ok {
		if !drivers.IsUUID(label) {
			return set, nil,
				fmt.Errorf("label %s = %q is not the UUID of a security group: the pod keeps the port that it has, or gets "+
					"none, until the label is corrected or removed", SecurityGroupLabel, label)
		}
		return set, []drivers.Value{drivers.Text(strings.ToLower(label))}, nil
	}
	if len(c.securityGroups) == 0 {
		return set, []drivers.Value{drivers.FromRole(namespace)}, nil
	}
	var groups []drivers.Value
	for i, group := range c.securityGroups {
		if drivers.IsUUID(group) {
			groups = append(groups, drivers.Text(strings.ToLower(group)))
			continue
		}
		logical := fmt.Sprintf("security-group-%d", i+1)
		set.Resources = append(set.Resources, drivers.Resource{
			Name: logical, Spec: drivers.Lookup{Of: drivers.KindSecurityGroup, ID: group},
		})
		groups = append(groups, drivers.From(logical))
	}
	return set, groups, nil
}

// name returns a Neutron name, which has at most 255 characters.
func name(of string) *string {
	const most = 255
	for utf8.RuneCountInString(of) > most {
		_, size := utf8.DecodeLastRuneInString(of)
		of = of[:len(of)-size]
	}
	return new(of)
}
