// SPDX-License-Identifier: Apache-2.0

package lbaas

import (
	"github.com/kuryr/raven/drivers"
	"github.com/kuryr/raven/drivers/internal/services"
)

// The names of the options.
const (
	optProvider      = "provider"
	optMemberMode    = "member_mode"
	optAlgorithm     = "lb_algorithm"
	optTimeoutClient = "timeout_client_data"
	optTimeoutMember = "timeout_member_data"
	optDualStack     = "dual_stack"
	optHealthMonitor = "enable_health_monitor"
)

// The values of the options that are choices.
const (
	memberL2 = "L2"
	memberL3 = "L3"

	dualAuto       = "auto"
	dualAdditional = "additional-vips"
	dualSeparate   = "separate"
)

// The algorithms that pools may have.
const (
	roundRobin       = "ROUND_ROBIN"
	leastConnections = "LEAST_CONNECTIONS"
	sourceIP         = "SOURCE_IP"
	sourceIPPort     = "SOURCE_IP_PORT"
)

// The protocols of pools that tell members the client's address.
const (
	proxyV1 = "PROXY"
	proxyV2 = "PROXYV2"
)

func algorithms() []string { return []string{roundRobin, leastConnections, sourceIP, sourceIPPort} }

func options() []drivers.Option {
	return append(balancerOptions(), services.Options()...)
}

func balancerOptions() []drivers.Option {
	return []drivers.Option{
		{
			Group: services.OctaviaGroup, Name: optProvider, Type: drivers.StringOption, Default: "", HasDefault: true,
			Deprecated: [][2]string{{"kubernetes", "endpoints_driver_octavia_provider"}},
			Help: "Octavia's provider for the load balancers: amphora, ovn or another by its name. Empty: the cloud's " +
				"default; name it nevertheless if that is ovn, whose limits are then known beforehand. A Service may name its " +
				"own in annotation " +
				services.ProviderAnnotation + ".",
		},
		{
			Group: services.OctaviaGroup, Name: optMemberMode, Type: drivers.StringOption, Default: memberL3, HasDefault: true,
			Choices: []string{memberL2, memberL3},
			Help: "How load balancers reach pods. L3: routed, from the service subnet. L2: on the pods' own subnet, to " +
				"which Octavia then attaches the load balancer; pods on their host's network are routed all the same. With " +
				"provider ovn always L2: OVN balances in the switches of the members.",
		},
		{
			Group: services.OctaviaGroup, Name: optAlgorithm, Type: drivers.StringOption, Default: roundRobin, HasDefault: true,
			Choices: algorithms(), Deprecated: [][2]string{{"raven", "lb_method"}},
			Help: "How a load balancer chooses a member. With provider ovn always SOURCE_IP_PORT, the only one that it has.",
		},
		{
			Group: services.OctaviaGroup, Name: optTimeoutClient, Type: drivers.IntegerOption, Default: "0", HasDefault: true,
			Min: new(0.0), Max: new(float64(maxTimeout)),
			Help: "How long a client may send nothing until its connection is closed, in milliseconds; 0 leaves it to Octavia.",
		},
		{
			Group: services.OctaviaGroup, Name: optTimeoutMember, Type: drivers.IntegerOption, Default: "0", HasDefault: true,
			Min: new(0.0), Max: new(float64(maxTimeout)),
			Help: "How long a member may send nothing until its connection is closed, in milliseconds; 0 leaves it to Octavia.",
		},
		{
			Group: services.OctaviaGroup, Name: optDualStack, Type: drivers.StringOption, Default: dualAuto, HasDefault: true,
			Choices: []string{dualAuto, dualAdditional, dualSeparate},
			Help: "How a Service with addresses of both IP versions is served. additional-vips: one load balancer with " +
				"both, which needs Octavia's API 2.26 and a provider that has it; Services with UDP or SCTP ports have two " +
				"nevertheless. separate: a load balancer for each. auto: additional-vips where the provider is named and is " +
				"amphora, else separate.",
		},
		{
			Group: services.OctaviaGroup, Name: optHealthMonitor, Type: drivers.BooleanOption, Default: "false",
			HasDefault: true,
			Help: "Whether Octavia checks the members itself, unless a Service says otherwise in annotation " +
				services.AnnotationPrefix +
				"enable-health-monitor. Kubernetes' readiness decides in any case who is a member.",
		},
	}
}
