// SPDX-License-Identifier: Apache-2.0

package namespace

import (
	"slices"

	"github.com/kuryr/raven/drivers"
	"github.com/kuryr/raven/drivers/internal/conf"
)

// The names of the options.
const (
	optPrefixLength  = "subnet_prefix_length"
	optPrefixLength6 = "subnet_prefix_length_v6"
	optMaxSubnets    = "max_subnets"
	optDHCP          = "enable_dhcp"
	optDNS           = "dns_nameservers"
)

func options() []drivers.Option {
	return slices.Concat(
		[]drivers.Option{
			conf.Topology(), conf.Families(), conf.ExistingRouter(), conf.ExternalNetwork(), conf.NetworkDeviceMTU(),
		},
		conf.Namespaces(),
		addressOptions(), conf.Services(), []drivers.Option{conf.ExternalSubnet(), conf.SecurityGroups()}, poolOptions(),
	)
}

func addressOptions() []drivers.Option {
	return append(conf.Pools(), []drivers.Option{
		{
			Group: conf.SubnetGroup, Name: optPrefixLength, Type: drivers.IntegerOption, Default: "24", HasDefault: true,
			Min: new(8.0), Max: new(29.0),
			Help: "Prefix length of a namespace's IPv4 subnet, in bits.",
		},
		{
			Group: conf.SubnetGroup, Name: optPrefixLength6, Type: drivers.IntegerOption, Default: "64", HasDefault: true,
			Min: new(64.0), Max: new(125.0),
			Help: "Prefix length of a namespace's IPv6 subnet, in bits.",
		},
		{
			Group: conf.SubnetGroup, Name: optMaxSubnets, Type: drivers.IntegerOption, Default: "8", HasDefault: true,
			Min: new(1.0), Max: new(64.0),
			Help: "How many IPv4 subnets a namespace may have: when one is full, another is taken from the pool.",
		},
		{
			Group: conf.SubnetGroup, Name: optDHCP, Type: drivers.BooleanOption, Default: "false", HasDefault: true,
			Help: "Whether Neutron serves DHCP in the namespaces' subnets. Pods do not need it, their addresses are set by " +
				"the CNI plugin. Changing it with IPv6 means other subnets, which waits for every port of the namespace to go.",
		},
		{
			Group: conf.SubnetGroup, Name: optDNS, Type: drivers.ListOption, Item: drivers.IPOption, Default: "",
			HasDefault: true,
			Help:       "DNS servers of the namespaces' subnets, IPv4 and IPv6 ones together.",
		},
		conf.Ingress(),
	}...)
}
