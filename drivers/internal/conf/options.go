// SPDX-License-Identifier: Apache-2.0

package conf

import (
	"fmt"

	"github.com/kuryr/raven/drivers"
)

// The groups and names of the options that several drivers declare.
const (
	SubnetGroup   = "namespace_subnet"
	DefaultsGroup = "neutron_defaults"

	OptTopology         = "topology"
	OptFamilies         = "ip_families"
	OptRouter           = "pod_router"
	OptExistingPool     = "pod_subnet_pool"
	OptExistingPool6    = "pod_subnet_pool_v6"
	OptPool             = "cluster_subnet_pool"
	OptPool6            = "cluster_subnet_pool_v6"
	OptIngress          = "ingress_cidrs"
	OptServiceCIDR      = "service_cidr"
	OptExternalSubnet   = "cluster_external_subnet"
	OptSecurityGroups   = "pod_security_groups"
	OptExternalNetwork  = "external_svc_net"
	OptServiceSubnet    = "service_subnet"
	OptNetworkDeviceMTU = "network_device_mtu"
)

// The values of the options that are choices.
const (
	SharedTopology    = "shared"
	DedicatedTopology = "dedicated"

	IPv4Only  = "ipv4"
	IPv6Only  = "ipv6"
	DualStack = "dual"
)

// Name is how people write an option.
func Name(group, option string) string { return "[" + group + "] " + option }

// Refusal says what is wrong with an option's value.
func Refusal(group, option, format string, args ...any) error {
	return &drivers.OptionError{Group: group, Name: option, Message: fmt.Sprintf(format, args...)}
}

// Topology says how namespaces are joined.
func Topology() drivers.Option {
	return drivers.Option{
		Group: SubnetGroup, Name: OptTopology, Type: drivers.StringOption, Default: SharedTopology, HasDefault: true,
		Choices: []string{SharedTopology, DedicatedTopology},
		Help: "How namespaces are joined. shared: one router and one service network for the cluster. dedicated: a router " +
			"and a service network per namespace, so that namespaces do not reach each other.",
	}
}

// Families says which IP versions the cluster's networks have.
func Families() drivers.Option {
	return drivers.Option{
		Group: SubnetGroup, Name: OptFamilies, Type: drivers.StringOption, Default: IPv4Only, HasDefault: true,
		Choices: []string{IPv4Only, IPv6Only, DualStack},
		Help:    "IP versions of the pods' networks and of the service network. As the cluster has them.",
	}
}

// ExistingRouter says which router joins the namespaces' networks, if it is not one of Raven's own.
func ExistingRouter() drivers.Option {
	return drivers.Option{
		Group: SubnetGroup, Name: OptRouter, Type: drivers.StringOption,
		Help: "UUID or name of an existing router to attach the namespaces' subnets to, in place of a router of Raven's " +
			"own. It is never changed otherwise: its external gateway is the operator's. Only with topology = shared.",
	}
}

// NetworkDeviceMTU is the MTU of networks.
func NetworkDeviceMTU() drivers.Option {
	return drivers.Option{
		Group: DefaultsGroup, Name: OptNetworkDeviceMTU, Type: drivers.IntegerOption, Default: "0", HasDefault: true,
		Min: new(0.0), Max: new(65535.0),
		Help: "MTU of the networks in bytes. 0 leaves it to Neutron.",
	}
}

// Services say which addresses are those of Services.
func Services() []drivers.Option {
	return []drivers.Option{
		{
			Group: SubnetGroup, Name: OptServiceCIDR, Type: drivers.ListOption, Item: drivers.CIDROption,
			Deprecated: [][2]string{{"k8s", "cluster_service_subnet"}}, Env: []string{"SERVICE_CLUSTER_IP_RANGE"},
			Help: "Ranges that Kubernetes takes the clusterIPs of Services from, as kube-apiserver has them in " +
				"--service-cluster-ip-range. Not set: read from the cluster's ServiceCIDR objects; a cluster without any gets " +
				"no service network.",
		},
		{
			Group: DefaultsGroup, Name: OptServiceSubnet, Type: drivers.ListOption,
			Help: "The service subnet in Neutron: a range to make it with, or the UUID or name of an existing one, one per IP " +
				"version, IPv4 first. A range must contain service_cidr and be larger: the gateway and the addresses that " +
				"Neutron gives by itself lie in the difference. An existing one is attached to Raven's router; with pod_router " +
				"the two are taken as joined already. Not set: the next larger range that contains service_cidr.",
		},
	}
}

// ExternalSubnet says which addresses are outside.
func ExternalSubnet() drivers.Option {
	return drivers.Option{
		Group: SubnetGroup, Name: OptExternalSubnet, Type: drivers.ListOption, Item: drivers.CIDROption,
		Deprecated: [][2]string{{"k8s", OptExternalSubnet}}, Env: []string{"FLANNEL_NET"},
		Help: "Ranges of the external network, from which floating IPs come. Only checked: neither pods nor services may " +
			"lie in them.",
	}
}

// Pools say where the subnets of namespaces come from: existing pools, or ranges.
func Pools() []drivers.Option {
	return []drivers.Option{
		{
			Group: SubnetGroup, Name: OptExistingPool, Type: drivers.StringOption,
			Help: "UUID or name of an existing IPv4 subnet pool for the namespaces' subnets, in place of " +
				"cluster_subnet_pool.",
		},
		{
			Group: SubnetGroup, Name: OptExistingPool6, Type: drivers.StringOption,
			Help: "UUID or name of an existing IPv6 subnet pool for the namespaces' subnets, in place of " +
				"cluster_subnet_pool_v6.",
		},
		{
			Group: SubnetGroup, Name: OptPool, Type: drivers.ListOption, Item: drivers.CIDROption, IPVersion: 4,
			Default: "192.168.0.0/16", HasDefault: true,
			Deprecated: [][2]string{{"k8s", OptPool}}, Env: []string{"SUBNET_POOL"},
			Help: "IPv4 ranges that the namespaces' subnets are taken from. Ranges can be added later, not removed. They " +
				"must not overlap service_subnet, service_cidr and cluster_external_subnet.",
		},
		{
			Group: SubnetGroup, Name: OptPool6, Type: drivers.ListOption, Item: drivers.CIDROption, IPVersion: 6,
			Default: "fd72:6176:656e::/48", HasDefault: true,
			Help: "IPv6 ranges that the namespaces' subnets are taken from.",
		},
	}
}

// Ingress says what the namespaces' security groups let in.
func Ingress() drivers.Option {
	return drivers.Option{
		Group: SubnetGroup, Name: OptIngress, Type: drivers.ListOption, Item: drivers.CIDROption,
		Help: "Ranges that the namespaces' security groups let in, at every port: pods, nodes. Not set: everything. With " +
			"ranges set, member_sg_rules lets others in to the ports of Services. With a namespace driver of another kind: " +
			"what its groups let in.",
	}
}

// SecurityGroups says which security groups the ports of pods have.
func SecurityGroups() drivers.Option {
	return drivers.Option{
		Group: DefaultsGroup, Name: OptSecurityGroups, Type: drivers.ListOption,
		Help: "UUIDs or names of existing security groups that the ports of pods have, in place of their namespace's " +
			"group. UUIDs save looking names up.",
	}
}

// ExternalNetwork says which network is outside.
func ExternalNetwork() drivers.Option {
	return drivers.Option{
		Group: DefaultsGroup, Name: OptExternalNetwork, Type: drivers.StringOption,
		Help: "UUID or name of the external network. Raven's own routers get their external gateway there, Services their " +
			"floating IPs. Not set: the gateway is left as it is, and Services name a network themselves.",
	}
}
