// SPDX-License-Identifier: Apache-2.0

package services

import (
	"slices"

	"github.com/kuryr/raven/drivers"
	"github.com/kuryr/raven/drivers/internal/conf"
)

// The groups and names of the options that Services have in common, whoever serves them: an operator who changes the
// driver changes nothing else.
const (
	OctaviaGroup = "octavia_defaults"

	OptMemberRules    = "member_sg_rules"
	OptInternal       = "internal_cidrs"
	OptClasses        = "classes"
	optEnforceRules   = "enforce_sg_rules"
	optOwnClass       = "load_balancer_class"
	optLiteral        = "literal_external_ips"
	optExternalSubnet = "external_svc_subnet"
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
			Help: "Whether the namespaces' security groups do not let everything in, so that they need a rule for every " +
				"port of a member: see ingress_cidrs. Where OVN balances, which has no allowed_cidrs, these rules are what " +
				"enforces spec.loadBalancerSourceRanges, unless ingress_cidrs lets in other clients. Without effect where " +
				"enforce_sg_rules is off or pod_security_groups is set.",
		},
		{
			Group: OctaviaGroup, Name: OptInternal, Type: drivers.ListOption, Item: drivers.CIDROption,
			Help: "Ranges from which the clusterIP of a Service stays reachable that limits its clients by " +
				"spec.loadBalancerSourceRanges: pods, nodes. Not set: cluster_subnet_pool and cluster_subnet_pool_v6, as far " +
				"as no existing pools are used.",
		},
		{
			Group: OctaviaGroup, Name: optOwnClass, Type: drivers.StringOption, Default: "kuryr.org/raven", HasDefault: true,
			Help: "The spec.loadBalancerClass of Services of type LoadBalancer that are Raven's, beside those that name " +
				"none. Those of other classes get no address outside; their clusterIP is served.",
		},
		{
			Group: OctaviaGroup, Name: OptClasses, Type: drivers.DictOption,
			Help: "What annotation " + AnnotationPrefix +
				"class may name: for each class further annotations without their prefix, which apply where a Service does not " +
				"have them itself, such as gold:flavor-id=UUID;lb-method=LEAST_CONNECTIONS.",
		},
		{
			Group: OctaviaGroup, Name: optLiteral, Type: drivers.BooleanOption, Default: "false", HasDefault: true,
			Help: "Whether driver kubeproxy serves spec.externalIPs as they are, as kube-proxy does, and asks for no " +
				"floating IPs: for addresses that no network of the cloud has and that are routed to the router. Who may write " +
				"Services then says which addresses pods take for them. IPv6 ones, and all without external_svc_net, are " +
				"served so in any case. Without effect with lbaas.",
		},
		{
			Group: conf.DefaultsGroup, Name: optExternalSubnet, Type: drivers.StringOption,
			Help: "UUID or name of the subnet of external_svc_net that the floating IPs of Services come from. Not set: any.",
		},
	}
}

// SharedOptions are those that other drivers declare too.
func SharedOptions() []drivers.Option {
	return slices.Concat([]drivers.Option{conf.Families()}, conf.Pools(), []drivers.Option{
		conf.Ingress(), conf.SecurityGroups(), conf.ExternalNetwork(),
	}, conf.Namespaces())
}
