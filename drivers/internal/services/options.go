package services

import "github.com/kuryr/raven/drivers"

// The groups and names of the options that Services have in common, whoever serves them: an operator who changes the driver changes
// nothing else.
const (
	OctaviaGroup  = "octavia_defaults"
	DefaultsGroup = "neutron_defaults"
	SubnetGroup   = "namespace_subnet"

	OptMemberRules    = "member_sg_rules"
	OptInternal       = "internal_cidrs"
	OptClasses        = "classes"
	OptFamilies       = "ip_families"
	OptExternalNet    = "external_svc_net"
	OptIngress        = "ingress_cidrs"
	optEnforceRules   = "enforce_sg_rules"
	optOwnClass       = "load_balancer_class"
	optLiteral        = "literal_external_ips"
	optPool           = "cluster_subnet_pool"
	optPool6          = "cluster_subnet_pool_v6"
	optExistingPool   = "pod_subnet_pool"
	optExistingPool6  = "pod_subnet_pool_v6"
	optSecurityGroups = "pod_security_groups"
	optExternalSubnet = "external_svc_subnet"
)

// The IP versions that the cluster's networks may have.
const (
	ipv4Only  = "ipv4"
	ipv6Only  = "ipv6"
	dualStack = "dual"
)

// Options are those that Services have in common.
func Options() []drivers.Option { return append(accessOptions(), SharedOptions()...) }

func accessOptions() []drivers.Option {
	return []drivers.Option{
		{
			Group: OctaviaGroup, Name: optEnforceRules, Type: drivers.BooleanOption, Default: "true", HasDefault: true,
			Help: "Whether security group rules are made for Services, where they are needed: see member_sg_rules.",
		},
		{
			Group: OctaviaGroup, Name: OptMemberRules, Type: drivers.BooleanOption, Default: "false", HasDefault: true,
			Help: "Whether the namespaces' security groups do not let everything in, so that they need a rule for every port of a member: see " +
				"ingress_cidrs. Where OVN balances, which has no allowed_cidrs, these rules are what enforces spec.loadBalancerSourceRanges, " +
				"as far as ingress_cidrs lets nobody else in. Without effect where enforce_sg_rules is off or pod_security_groups is set.",
		},
		{
			Group: OctaviaGroup, Name: OptInternal, Type: drivers.ListOption, Item: drivers.CIDROption,
			Help: "Ranges from which the clusterIP of a Service stays reachable that limits its clients by spec.loadBalancerSourceRanges: " +
				"pods, nodes. Not set: cluster_subnet_pool and cluster_subnet_pool_v6, as far as no existing pools are used.",
		},
		{
			Group: OctaviaGroup, Name: optOwnClass, Type: drivers.StringOption, Default: "kuryr.org/raven", HasDefault: true,
			Help: "The spec.loadBalancerClass of Services of type LoadBalancer that are Raven's, beside those that name none. Those of other " +
				"classes get no address outside; their clusterIP is served.",
		},
		{
			Group: OctaviaGroup, Name: OptClasses, Type: drivers.DictOption,
			Help: "What annotation " + AnnotationPrefix + "class may name: for each class further annotations without their prefix, " +
				"which apply where a Service does not have them itself, such as gold:flavor-id=UUID;lb-method=LEAST_CONNECTIONS.",
		},
		{
			Group: OctaviaGroup, Name: optLiteral, Type: drivers.BooleanOption, Default: "false", HasDefault: true,
			Help: "Whether driver kubeproxy serves spec.externalIPs as they are, as kube-proxy does, and asks for no floating IPs: for addresses that " +
				"no network of the cloud has and that are routed to the router. Who may write Services then says which addresses pods take for " +
				"them. IPv6 ones, and all without external_svc_net, are served so in any case. Without effect with lbaas.",
		},
		{
			Group: DefaultsGroup, Name: optExternalSubnet, Type: drivers.StringOption,
			Help: "UUID or name of the subnet of external_svc_net that the floating IPs of Services come from. Not set: any.",
		},
	}
}

// SharedOptions are those that other drivers declare too, alike.
func SharedOptions() []drivers.Option {
	return []drivers.Option{
		{
			Group: SubnetGroup, Name: OptFamilies, Type: drivers.StringOption, Default: ipv4Only, HasDefault: true,
			Choices: []string{ipv4Only, ipv6Only, dualStack},
			Help:    "IP versions of the pods' networks and of the service network. As the cluster has them.",
		},
		{
			Group: SubnetGroup, Name: optExistingPool, Type: drivers.StringOption,
			Help: "UUID or name of an existing IPv4 subnet pool for the namespaces' subnets, in place of cluster_subnet_pool.",
		},
		{
			Group: SubnetGroup, Name: optExistingPool6, Type: drivers.StringOption,
			Help: "UUID or name of an existing IPv6 subnet pool for the namespaces' subnets, in place of cluster_subnet_pool_v6.",
		},
		{
			Group: SubnetGroup, Name: optPool, Type: drivers.ListOption, Item: drivers.CIDROption, IPVersion: 4, Default: "192.168.0.0/16", HasDefault: true,
			Deprecated: [][2]string{{"k8s", optPool}}, Env: []string{"SUBNET_POOL"},
			Help: "IPv4 ranges that the namespaces' subnets are taken from. Ranges can be added later, not taken away. They " +
				"must not overlap service_subnet, service_cidr and cluster_external_subnet.",
		},
		{
			Group: SubnetGroup, Name: optPool6, Type: drivers.ListOption, Item: drivers.CIDROption, IPVersion: 6, Default: "fd72:6176:656e::/48", HasDefault: true,
			Help: "IPv6 ranges that the namespaces' subnets are taken from.",
		},
		{
			Group: SubnetGroup, Name: OptIngress, Type: drivers.ListOption, Item: drivers.CIDROption,
			Help: "Ranges that the namespaces' security groups let in, at every port: pods, nodes. Not set: everything. With ranges set, " +
				"member_sg_rules lets others in to the ports of Services. With a namespace driver of another kind: what its groups let in.",
		},
		{
			Group: DefaultsGroup, Name: optSecurityGroups, Type: drivers.ListOption,
			Help: "UUIDs or names of existing security groups that the ports of pods have, in place of their namespace's group. " +
				"UUIDs save looking names up.",
		},
		{
			Group: DefaultsGroup, Name: OptExternalNet, Type: drivers.StringOption,
			Help: "UUID or name of the external network. Raven's own routers get their external gateway there, Services their " +
				"floating IPs. Not set: the gateway is left as it is, and Services name a network themselves.",
		},
	}
}
