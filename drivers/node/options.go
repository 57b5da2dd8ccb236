// SPDX-License-Identifier: Apache-2.0

package node

import (
	"slices"

	"github.com/kuryr/raven/drivers"
	"github.com/kuryr/raven/drivers/internal/conf"
)

// group is the group of the driver's own options.
const group = "node_network"

// The names of its options.
const (
	optCIDR         = "cidr"
	optCIDR6        = "cidr_v6"
	optNetworkName  = "network_name"
	optPodCIDRs     = "pod_cidrs"
	optNodeSelector = "node_selector"
	optPortSecurity = "port_security"
)

func options() []drivers.Option {
	return slices.Concat(
		networkOptions(),
		[]drivers.Option{conf.Topology(), conf.Families(), conf.ExistingRouter(), conf.NetworkDeviceMTU()},
		conf.Pools(), conf.Services(), []drivers.Option{conf.ExternalSubnet(), conf.Ingress()},
	)
}

func networkOptions() []drivers.Option {
	return []drivers.Option{
		{
			Group: group, Name: optCIDR, Type: drivers.CIDROption, IPVersion: 4, Default: "10.77.0.0/16", HasDefault: true,
			Help: "IPv4 range of the nodes' network, with an address for each node and one for the router. It must not " +
				"overlap the ranges of pods, of Services and of the external network, nor the network that joins the machines.",
		},
		{
			Group: group, Name: optCIDR6, Type: drivers.CIDROption, IPVersion: 6, Default: "fd72:6176:656f::/64",
			HasDefault: true,
			Help:       "IPv6 range of the nodes' network, as cidr.",
		},
		{
			Group: group, Name: optNetworkName, Type: drivers.StringOption, Default: "raven-default-nodes", HasDefault: true,
			MaxLength: 200,
			Help:      "Name of the nodes' network in Neutron; its subnets and its security group are named after it.",
		},
		{
			Group: group, Name: optPodCIDRs, Type: drivers.ListOption, Item: drivers.CIDROption,
			Help: "Ranges of pods, which nodes reach through this network. Required with pod_subnet_pool and " +
				"pod_subnet_pool_v6, whose prefixes must all lie in them. Not set: cluster_subnet_pool and " +
				"cluster_subnet_pool_v6.",
		},
		{
			Group: group, Name: optNodeSelector, Type: drivers.StringOption, Default: "", HasDefault: true,
			Help: "Label selector of the nodes that get a port, such as kubernetes.io/os=linux,type!=kwok. Empty: all nodes.",
		},
		{
			Group: group, Name: optPortSecurity, Type: drivers.BooleanOption, Default: "true", HasDefault: true,
			Help: "Whether nodes may only use the addresses of their own ports there, and are reached there only by pods and " +
				"nodes. Set it to false where the external network does not translate the addresses of pods (SNAT): the " +
				"replies of nodes to pods then have the addresses of other interfaces of the node.",
		},
	}
}
