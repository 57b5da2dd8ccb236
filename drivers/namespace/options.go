// SPDX-License-Identifier: Apache-2.0

package namespace

import (
	"github.com/kuryr/raven/drivers"
	"github.com/kuryr/raven/drivers/internal/conf"
)

// The groups and names of the options.
const (
	optRouter           = "pod_router"
	optPrefixLength     = "subnet_prefix_length"
	optPrefixLength6    = "subnet_prefix_length_v6"
	optMaxSubnets       = "max_subnets"
	optDHCP             = "enable_dhcp"
	optDNS              = "dns_nameservers"
	optServiceCIDR      = "service_cidr"
	optExternalSubnet   = "cluster_external_subnet"
	optServiceSubnet    = "service_subnet"
	optNetworkDeviceMTU = "network_device_mtu"
)

func options() []drivers.Option {
	return append(topologyOptions(), append(addressOptions(), serviceOptions()...)...)
}

func topologyOptions() []drivers.Option {
	return []drivers.Option{
		conf.Topology(), conf.Families(),
		{
			Group: conf.SubnetGroup, Name: optRouter, Type: drivers.StringOption,
			Help: "UUID or name of an existing router to attach the namespaces' subnets to, in place of a router of Raven's " +
				"own. It is never changed otherwise: its external gateway is the operator's. Only with topology = shared.",
		},
		conf.ExternalNetwork(),
		{
			Group: conf.DefaultsGroup, Name: optNetworkDeviceMTU, Type: drivers.IntegerOption, Default: "0", HasDefault: true,
			Min: new(0.0), Max: new(65535.0),
			Help: "MTU of the networks in bytes. 0 leaves it to Neutron.",
		},
	}
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

func serviceOptions() []drivers.Option {
	return []drivers.Option{
		{
			Group: conf.SubnetGroup, Name: optServiceCIDR, Type: drivers.ListOption, Item: drivers.CIDROption,
			Deprecated: [][2]string{{"k8s", "cluster_service_subnet"}}, Env: []string{"SERVICE_CLUSTER_IP_RANGE"},
			Help: "Ranges that Kubernetes takes the clusterIPs of Services from, as kube-apiserver has them in " +
				"--service-cluster-ip-range. Not set: read from the cluster's ServiceCIDR objects; a cluster without any gets " +
				"no service network.",
		},
		{
			Group: conf.DefaultsGroup, Name: optServiceSubnet, Type: drivers.ListOption,
			Help: "The service subnet in Neutron: a range to make it with, or the UUID or name of an existing one, one per IP " +
				"version, IPv4 first. A range must contain service_cidr and be larger: the gateway and the addresses that " +
				"Neutron gives by itself lie in the difference. An existing one is attached to Raven's router; with pod_router " +
				"the two are taken as joined already. Not set: the next larger range that contains service_cidr.",
		},
		{
			Group: conf.SubnetGroup, Name: optExternalSubnet, Type: drivers.ListOption, Item: drivers.CIDROption,
			Deprecated: [][2]string{{"k8s", optExternalSubnet}}, Env: []string{"FLANNEL_NET"},
			Help: "Ranges of the external network, from which floating IPs come. Only checked: neither pods nor services may " +
				"lie in them.",
		},
	}
}
