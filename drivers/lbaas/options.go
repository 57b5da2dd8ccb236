package lbaas

import "github.com/kuryr/raven/drivers"

// The groups and names of the options.
const (
	octaviaGroup  = "octavia_defaults"
	defaultsGroup = "neutron_defaults"
	subnetGroup   = "namespace_subnet"

	optProvider       = "provider"
	optMemberMode     = "member_mode"
	optEnforceRules   = "enforce_sg_rules"
	optMemberRules    = "member_sg_rules"
	optAlgorithm      = "lb_algorithm"
	optTimeoutClient  = "timeout_client_data"
	optTimeoutMember  = "timeout_member_data"
	optDualStack      = "dual_stack"
	optHealthMonitor  = "enable_health_monitor"
	optClasses        = "classes"
	optOwnClass       = "load_balancer_class"
	optInternal       = "internal_cidrs"
	optFamilies       = "ip_families"
	optPool           = "cluster_subnet_pool"
	optPool6          = "cluster_subnet_pool_v6"
	optExistingPool   = "pod_subnet_pool"
	optExistingPool6  = "pod_subnet_pool_v6"
	optSecurityGroups = "pod_security_groups"
	optExternalNet    = "external_svc_net"
	optExternalSubnet = "external_svc_subnet"
)

// The values of the options that are choices.
const (
	memberL2 = "L2"
	memberL3 = "L3"

	dualAuto       = "auto"
	dualAdditional = "additional-vips"
	dualSeparate   = "separate"

	ipv4Only  = "ipv4"
	ipv6Only  = "ipv6"
	dualStack = "dual"
)

// The algorithms that pools may have.
const (
	roundRobin       = "ROUND_ROBIN"
	leastConnections = "LEAST_CONNECTIONS"
	sourceIP         = "SOURCE_IP"
	sourceIPPort     = "SOURCE_IP_PORT"
)

func algorithms() []string { return []string{roundRobin, leastConnections, sourceIP, sourceIPPort} }

func options() []drivers.Option {
	return append(balancerOptions(), append(accessOptions(), sharedOptions()...)...)
}

func balancerOptions() []drivers.Option {
	return []drivers.Option{
		{
			Group: octaviaGroup, Name: optProvider, Type: drivers.StringOption, Default: "", HasDefault: true,
			Deprecated: [][2]string{{"kubernetes", "endpoints_driver_octavia_provider"}},
			Help: "Octavia's provider for the load balancers: amphora, ovn or another by its name. Empty: the cloud's default; name it " +
				"nevertheless if that is ovn, whose limits are then known beforehand. A Service may name its own in annotation " +
				ProviderAnnotation + ".",
		},
		{
			Group: octaviaGroup, Name: optMemberMode, Type: drivers.StringOption, Default: memberL3, HasDefault: true,
			Choices: []string{memberL2, memberL3},
			Help: "How load balancers reach pods. L3: routed, from the service subnet. L2: on the pods' own subnet, to which Octavia then " +
				"attaches the load balancer; pods on their host's network are routed all the same. With provider ovn always L2: OVN " +
				"balances in the switches of the members.",
		},
		{
			Group: octaviaGroup, Name: optAlgorithm, Type: drivers.StringOption, Default: roundRobin, HasDefault: true,
			Choices: algorithms(), Deprecated: [][2]string{{"raven", "lb_method"}},
			Help: "How a load balancer chooses a member. With provider ovn always SOURCE_IP_PORT, the only one that it has.",
		},
		{
			Group: octaviaGroup, Name: optTimeoutClient, Type: drivers.IntegerOption, Default: "0", HasDefault: true,
			Min: new(0.0), Max: new(float64(maxTimeout)),
			Help: "How long a client may be silent until its connection is closed, in milliseconds; 0 leaves it to Octavia.",
		},
		{
			Group: octaviaGroup, Name: optTimeoutMember, Type: drivers.IntegerOption, Default: "0", HasDefault: true,
			Min: new(0.0), Max: new(float64(maxTimeout)),
			Help: "How long a member may be silent until its connection is closed, in milliseconds; 0 leaves it to Octavia.",
		},
		{
			Group: octaviaGroup, Name: optDualStack, Type: drivers.StringOption, Default: dualAuto, HasDefault: true,
			Choices: []string{dualAuto, dualAdditional, dualSeparate},
			Help: "How a Service with addresses of both IP versions is served. additional-vips: one load balancer with both, which needs " +
				"Octavia's API 2.26 and a provider that has it; Services with UDP or SCTP ports have two nevertheless. separate: a load " +
				"balancer for each. auto: additional-vips where the provider is named and is amphora, else separate.",
		},
		{
			Group: octaviaGroup, Name: optHealthMonitor, Type: drivers.BooleanOption, Default: "false", HasDefault: true,
			Help: "Whether Octavia checks the members itself, unless a Service says otherwise in annotation " + annotationPrefix +
				"enable-health-monitor. Kubernetes' readiness decides in any case who is a member.",
		},
	}
}

func accessOptions() []drivers.Option {
	return []drivers.Option{
		{
			Group: octaviaGroup, Name: optEnforceRules, Type: drivers.BooleanOption, Default: "true", HasDefault: true,
			Help: "Whether security group rules are made for Services, where they are needed: see member_sg_rules.",
		},
		{
			Group: octaviaGroup, Name: optMemberRules, Type: drivers.BooleanOption, Default: "false", HasDefault: true,
			Help: "Whether the namespaces' security groups do not let everything in, so that they need a rule for every port of a member. " +
				"Those of the namespace driver let everything in. Where the provider has no allowed_cidrs, these rules are what " +
				"enforces spec.loadBalancerSourceRanges. Without effect where enforce_sg_rules is off or pod_security_groups is set.",
		},
		{
			Group: octaviaGroup, Name: optInternal, Type: drivers.ListOption, Item: drivers.CIDROption,
			Help: "Ranges from which the clusterIP of a Service stays reachable that limits its clients by spec.loadBalancerSourceRanges: " +
				"pods, nodes. Not set: cluster_subnet_pool and cluster_subnet_pool_v6, as far as no existing pools are used.",
		},
		{
			Group: octaviaGroup, Name: optOwnClass, Type: drivers.StringOption, Default: "kuryr.org/raven", HasDefault: true,
			Help: "The spec.loadBalancerClass of Services of type LoadBalancer that are Raven's, beside those that name none. Those of other " +
				"classes get no address outside; their clusterIP is served.",
		},
		{
			Group: octaviaGroup, Name: optClasses, Type: drivers.DictOption,
			Help: "What annotation " + annotationPrefix + "class may name: for each class further annotations without their prefix, " +
				"which apply where a Service does not have them itself, such as gold:flavor-id=UUID;lb-method=LEAST_CONNECTIONS.",
		},
		{
			Group: defaultsGroup, Name: optExternalSubnet, Type: drivers.StringOption,
			Help: "UUID or name of the subnet of external_svc_net that the floating IPs of Services come from. Not set: any.",
		},
	}
}

// sharedOptions are those that other drivers declare too, alike.
func sharedOptions() []drivers.Option {
	return []drivers.Option{
		{
			Group: subnetGroup, Name: optFamilies, Type: drivers.StringOption, Default: ipv4Only, HasDefault: true,
			Choices: []string{ipv4Only, ipv6Only, dualStack},
			Help:    "IP versions of the pods' networks and of the service network. As the cluster has them.",
		},
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
			Group: defaultsGroup, Name: optSecurityGroups, Type: drivers.ListOption,
			Help: "UUIDs or names of existing security groups that the ports of pods have, in place of their namespace's group. " +
				"UUIDs save looking names up.",
		},
		{
			Group: defaultsGroup, Name: optExternalNet, Type: drivers.StringOption,
			Help: "UUID or name of the external network. Raven's own routers get their external gateway there, Services their " +
				"floating IPs. Not set: the gateway is left as it is, and Services name a network themselves.",
		},
	}
}
