// SPDX-License-Identifier: Apache-2.0

package node

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/kuryr/raven/drivers"
	"github.com/kuryr/raven/drivers/contract"
)

// builder gathers the Set of one node.
type builder struct {
	*config
	name, uid string
	policies  bool         // NetworkPolicies are kept
	own       []netip.Addr // of the node's own programs, where they are told apart
	set       drivers.Set
}

// build returns the Set of a node that OVN knows as a host.
//
//	logical name                 what
//	router                       lookup of an existing router, if there is one
//	node-network                 claim
//	node-subnet[-v6]             claim
//	node-router-interface[-v6]   claim: the subnet at the router, at its gateway address
//	node-security-group,
//	node-ingress-<range>         claims, with port security
//	port                         of this node
//
// A claim's name is its logical name.
func (b *builder) build(host string) (drivers.Set, error) {
	b.network()
	if b.portSecurity {
		b.securityGroup()
	}
	b.port(host)
	if b.policies {
		b.programs()
	}
	err := b.outputs()
	return b.set, err
}

// claim adds a resource of all nodes.
func (b *builder) claim(name string, spec drivers.Spec) {
	b.set.Resources = append(b.set.Resources, drivers.Resource{Name: name, Claim: name, Spec: spec})
}

func (b *builder) network() {
	router := drivers.FromRole(drivers.Role{Role: drivers.ClusterRouter})
	if b.router != "" {
		b.set.Resources = append(b.set.Resources, drivers.Resource{
			Name: "router", Spec: drivers.Lookup{Of: drivers.KindRouter, ID: b.router},
		})
		router = drivers.From("router")
	}
	network := drivers.Network{Name: new(b.networkName)}
	if b.mtu != 0 {
		network.MTU = new(b.mtu)
	}
	b.claim("node-network", network)
	for i := range b.families {
		f := &b.families[i]
		subnet := "node-subnet" + f.suffix
		b.claim(subnet, drivers.Subnet{
			Name: new(b.networkName + "-subnet" + f.suffix), NetworkID: drivers.From("node-network"),
			IPVersion: new(f.version), CIDR: new(f.cidr.Prefix.String()),
			GatewayIP: new(f.cidr.Addr().Next().String()), EnableDHCP: new(false),
		})
		b.claim("node-router-interface"+f.suffix, drivers.RouterInterface{
			RouterID: router, SubnetID: drivers.From(subnet), NetworkID: drivers.From("node-network"),
			IPAddress: drivers.From(subnet, "gateway_ip"),
		})
	}
}

// securityGroup lets pods and other nodes in; Neutron gives a new group the rules that let everything out, and replies
// come in by themselves.
func (b *builder) securityGroup() {
	b.claim("node-security-group", drivers.SecurityGroup{Name: new(b.networkName + "-sg")})
	from := slices.Clone(b.pods)
	for i := range b.families {
		from = append(from, b.families[i].cidr.Prefix)
	}
	for _, r := range from {
		b.ingress(r)
	}
}

func (b *builder) ingress(from netip.Prefix) {
	etherType := "IPv6"
	if from.Addr().Is4() {
		etherType = "IPv4"
	}
	name := "node-ingress-" + strings.NewReplacer("/", "-", ":", "-").Replace(from.String())
	if slices.ContainsFunc(b.set.Resources, func(r drivers.Resource) bool { return r.Name == name }) {
		return // a range that is given twice
	}
	b.claim(name, drivers.SecurityGroupRule{
		SecurityGroupID: drivers.From("node-security-group"), Direction: new("ingress"), EtherType: new(etherType),
		RemoteIPPrefix: new(from.String()),
	})
}

// port adds the port. It waits for the subnets of every IP version, since Neutron gives addresses only of those that
// exist when the port is made.
func (b *builder) port(host string) {
	port := drivers.Port{
		Name:        new(cut(b.name)),
		NetworkID:   drivers.From("node-network"),
		DeviceOwner: new(contract.DeviceOwner),
		HostID:      new(host),
		// Said in both cases, so that a change of the option changes the ports that there are.
		PortSecurityEnabled: new(b.portSecurity),
		SecurityGroups:      []drivers.Value{},
	}
	if b.portSecurity {
		port.SecurityGroups = append(port.SecurityGroups, drivers.From("node-security-group"))
	}
	if b.uid != "" {
		port.DeviceID = new(b.uid)
	}
	var after []drivers.Ref
	for i := range b.families {
		subnet := "node-subnet" + b.families[i].suffix
		after = append(after, drivers.Ref{Name: subnet})
		if b.policies { // one for its own programs, one for what it passes on
			one := drivers.FixedIP{SubnetID: drivers.From(subnet)}
			port.FixedIPs = append(port.FixedIPs, one, one)
		}
	}
	b.set.Resources = append(b.set.Resources, drivers.Resource{Name: "port", Spec: port, After: after})
}

func (b *builder) outputs() error {
	texts := make([]string, 0, len(b.pods))
	for _, r := range b.pods {
		texts = append(texts, r.String())
	}
	list, err := json.Marshal(texts)
	if err != nil {
		return fmt.Errorf("encoding the ranges of pods: %w", err)
	}
	document := func(key, name, attribute string) {
		b.set.Outputs = append(b.set.Outputs, drivers.Output{
			Kind: drivers.Annotation, Key: key, Document: &drivers.Ref{Name: name, Attribute: attribute},
		})
	}
	text := func(key, value string) {
		b.set.Outputs = append(b.set.Outputs, drivers.Output{
			Kind: drivers.Annotation, Key: key, Text: drivers.Text(value),
		})
	}
	document(contract.Port, "port", "")
	document(contract.Subnet, "port", "subnet")
	if len(b.families) > 1 {
		document(contract.Subnets, "port", "subnets")
	}
	document(contract.Network, "node-network", "")
	text(contract.PodCIDRs, string(list))
	text(contract.VersionKey, contract.Version)
	return nil
}

// cut returns a Neutron name, which has at most 255 characters.
func cut(name string) string {
	const most = 255
	for utf8.RuneCountInString(name) > most {
		_, size := utf8.DecodeLastRuneInString(name)
		name = name[:len(name)-size]
	}
	return name
}
