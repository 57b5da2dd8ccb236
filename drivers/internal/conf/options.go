// SPDX-License-Identifier: Apache-2.0

package conf

import "github.com/kuryr/raven/drivers"

// The groups and names of the options that several drivers declare.
const (
	SubnetGroup   = "namespace_subnet"
	DefaultsGroup = "neutron_defaults"

	OptTopology        = "topology"
	OptFamilies        = "ip_families"
	OptExistingPool    = "pod_subnet_pool"
	OptExistingPool6   = "pod_subnet_pool_v6"
	OptPool            = "cluster_subnet_pool"
	OptPool6           = "cluster_subnet_pool_v6"
	OptIngress         = "ingress_cidrs"
	OptSecurityGroups  = "pod_security_groups"
	OptExternalNetwork = "external_svc_net"
)

// The values of the options that are choices.
const (
	SharedTopology    = "shared"
	DedicatedTopology = "dedicated"

	IPv4Only  = "ipv4"
	IPv6Only  = "ipv6"
	DualStack = "dual"
)

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
			Help: "IPv4 ranges that the namespaces' subnets are taken from. Ranges can be added later, not taken away. They " +
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
