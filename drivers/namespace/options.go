package namespace

import "github.com/kuryr/raven/drivers"

// The groups and names of the options.
const (
	subnetGroup   = "namespace_subnet"
	defaultsGroup = "neutron_defaults"

	optTopology         = "topology"
	optFamilies         = "ip_families"
	optRouter           = "pod_router"
	optExistingPool     = "pod_subnet_pool"
	optExistingPool6    = "pod_subnet_pool_v6"
	optPool             = "cluster_subnet_pool"
	optPool6            = "cluster_subnet_pool_v6"
	optPrefixLength     = "subnet_prefix_length"
	optPrefixLength6    = "subnet_prefix_length_v6"
	optMaxSubnets       = "max_subnets"
	optDHCP             = "enable_dhcp"
	optDNS              = "dns_nameservers"
	optIngress          = "ingress_cidrs"
	optServiceCIDR      = "service_cidr"
	optExternalSubnet   = "cluster_external_subnet"
	optServiceSubnet    = "service_subnet"
	optExternalNetwork  = "external_svc_net"
	optNetworkDeviceMTU = "network_device_mtu"
)

// The values of the options that are choices.
const (
	sharedTopology    = "shared"
	dedicatedTopology = "dedicated"
	ipv4Only          = "ipv4"
	ipv6Only          = "ipv6"
	dualStack         = "dual"
)

func options() []drivers.Option {
	return append(topologyOptions(), append(addressOptions(), serviceOptions()...)...)
}

func topologyOptions() []drivers.Option {
	return []drivers.Option{
		{
			Group: subnetGroup, Name: optTopology, Type: drivers.StringOption, Default: sharedTopology, HasDefault: true,
			Choices: []string{sharedTopology, dedicatedTopology},
			Help: "How namespaces are joined. shared: one router and one service network for the cluster. dedicated: a router " +
				"and a service network per namespace, so that namespaces do not reach each other.",
		},
		{
			Group: subnetGroup, Name: optFamilies, Type: drivers.StringOption, Default: ipv4Only, HasDefault: true,
			Choices: []string{ipv4Only, ipv6Only, dualStack},
			Help:    "IP versions of the pods' networks and of the service network. As the cluster has them.",
		},
		{
			Group: subnetGroup, Name: optRouter, Type: drivers.StringOption,
			Help: "UUID or name of an existing router to attach the namespaces' subnets to, in place of a router of Raven's " +
				"own. It is never changed otherwise: its external gateway is the operator's. Only with topology = shared.",
		},
		{
			Group: defaultsGroup, Name: optExternalNetwork, Type: drivers.StringOption,
			Help: "UUID or name of the external network. Raven's own routers get their external gateway there, Services their " +
				"floating IPs. Not set: the gateway is left as it is, and Services name a network themselves.",
		},
		{
			Group: defaultsGroup, Name: optNetworkDeviceMTU, Type: drivers.IntegerOption, Default: "0", HasDefault: true,
			Min: new(0.0), Max: new(65535.0),
			Help: "MTU of the networks in bytes. 0 leaves it to Neutron.",
		},
	}
}

func addressOptions() []drivers.Option {
	return []drivers.Option{
		{
			Group: subnetGroup, Name: optExistingPool, Type: drivers.StringOption,
			Help: "UUID or name of an existing IPv4 subnet pool for the namespaces' subnets, in place of cluster_subnet_pool.",
		},
		{
			Group: subnetGroup, Name: optExistingPool6, Type: drivers.StringOption,
			Help: "UUID or name of an existing IPv6 subnet pool for the namespaces' subnets, in place of cluster_subnet_pool_v6.",
		},
		{
			Group: subnetGroup, Name: optPool, Type: drivers.ListOption, Item: drivers.CIDROption, IPVersion: 4, Default: "192.168.0.0/16", HasDefault: true,
			Deprecated: [][2]string{{"k8s", optPool}}, Env: []string{"SUBNET_POOL"},
			Help: "IPv4 ranges that the namespaces' subnets are taken from. Ranges can be added later, not taken away. They " +
				"must not overlap service_subnet, service_cidr and cluster_external_subnet.",
		},
		{
			Group: subnetGroup, Name: optPool6, Type: drivers.ListOption, Item: drivers.CIDROption, IPVersion: 6, Default: "fd72:6176:656e::/48", HasDefault: true,
			Help: "IPv6 ranges that the namespaces' subnets are taken from.",
		},
		{
			Group: subnetGroup, Name: optPrefixLength, Type: drivers.IntegerOption, Default: "24", HasDefault: true,
			Min: new(8.0), Max: new(29.0),
			Help: "Prefix length of a namespace's IPv4 subnet, in bits.",
		},
		{
			Group: subnetGroup, Name: optPrefixLength6, Type: drivers.IntegerOption, Default: "64", HasDefault: true,
			Min: new(64.0), Max: new(125.0),
			Help: "Prefix length of a namespace's IPv6 subnet, in bits.",
		},
		{
			Group: subnetGroup, Name: optMaxSubnets, Type: drivers.IntegerOption, Default: "8", HasDefault: true,
			Min: new(1.0), Max: new(64.0),
			Help: "How many IPv4 subnets a namespace may have: when one is full, another is taken from the pool.",
		},
		{
			Group: subnetGroup, Name: optDHCP, Type: drivers.BooleanOption, Default: "false", HasDefault: true,
			Help: "Whether Neutron serves DHCP in the namespaces' subnets. Pods do not need it, their addresses are set by the " +
				"CNI plugin. Changing it with IPv6 means other subnets, which waits for every port of the namespace to go.",
		},
		{
			Group: subnetGroup, Name: optDNS, Type: drivers.ListOption, Item: drivers.IPOption, Default: "", HasDefault: true,
			Help: "DNS servers of the namespaces' subnets, IPv4 and IPv6 ones together.",
		},
		{
			// Declared alike in drivers/internal/services.
			Group: subnetGroup, Name: optIngress, Type: drivers.ListOption, Item: drivers.CIDROption,
			Help: "Ranges that the namespaces' security groups let in, at every port: pods, nodes. Not set: everything. With ranges set, " +
				"member_sg_rules lets others in to the ports of Services. With a namespace driver of another kind: what its groups let in.",
		},
	}
}

func serviceOptions() []drivers.Option {
	return []drivers.Option{
		{
			Group: subnetGroup, Name: optServiceCIDR, Type: drivers.ListOption, Item: drivers.CIDROption,
			Deprecated: [][2]string{{"k8s", "cluster_service_subnet"}}, Env: []string{"SERVICE_CLUSTER_IP_RANGE"},
			Help: "Ranges that Kubernetes takes the clusterIPs of Services from, as kube-apiserver has them in " +
				"--service-cluster-ip-range. Not set: read from the cluster's ServiceCIDR objects; a cluster without any gets " +
				"no service network.",
		},
		{
			Group: defaultsGroup, Name: optServiceSubnet, Type: drivers.ListOption,
			Help: "The service subnet in Neutron: a range to make it with, or the UUID or name of an existing one, one per IP " +
				"version, IPv4 first. A range must contain service_cidr and be larger: the gateway and the addresses that " +
				"Neutron gives by itself lie in the difference. An existing one is attached to Raven's router; with pod_router " +
				"the two are taken as joined already. Not set: the next larger range that contains service_cidr.",
		},
		{
			Group: subnetGroup, Name: optExternalSubnet, Type: drivers.ListOption, Item: drivers.CIDROption,
			Deprecated: [][2]string{{"k8s", optExternalSubnet}}, Env: []string{"FLANNEL_NET"},
			Help: "Ranges of the external network, from which floating IPs come. Only checked: neither pods nor services may " +
				"lie in them.",
		},
	}
}
