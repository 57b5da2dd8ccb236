// SPDX-License-Identifier: Apache-2.0

package services

import (
	"fmt"
	"strings"

	"github.com/kuryr/raven/drivers"
)

// Remarks says what of the Service nothing in a logical network can do.
func (b *Builder) Remarks() {
	spec := &b.Service.Spec
	var nodePorts []string
	for _, p := range spec.Ports {
		if p.NodePort != 0 {
			nodePorts = append(nodePorts, fmt.Sprint(p.NodePort))
		}
	}
	if spec.Type == TypeNodePort && len(nodePorts) > 0 {
		b.Say(drivers.Warning, "NodePortsNotServed",
			"node ports %s are not served: nodes have no port in a logical network; kube-proxy on the nodes serves them, or "+
				"type LoadBalancer", strings.Join(nodePorts, ", "))
	}
	if spec.ExternalTrafficPolicy == "Local" && spec.Type != TypeClusterIP {
		text := ""
		if spec.HealthCheckNodePort != 0 {
			text = fmt.Sprintf(", and healthCheckNodePort %d is not served", spec.HealthCheckNodePort)
		}
		b.Say(drivers.Warning, "TrafficPolicyNotServed",
			"externalTrafficPolicy Local is served as Cluster: a load balancer leads to members, not to nodes%s", text)
	}
	if spec.InternalTrafficPolicy == "Local" && !b.LocalServed {
		b.Say(drivers.Warning, "TrafficPolicyNotServed",
			"internalTrafficPolicy Local is served as Cluster: a load balancer does not know the client's node")
	}
	if class := spec.LoadBalancerClass; class != nil && spec.Type == TypeLoadBalancer && !b.Ours() {
		b.Say(drivers.Note, "OtherLoadBalancerClass",
			"loadBalancerClass %q is not Raven's, which is %q: the clusterIP is served, an address outside is the other's "+
				"to give", *class, b.config.OwnClass)
	}
}

// Numbers lists the ports that some rule concerns.
func (b *Builder) Numbers(concerns func(*Port) bool) string {
	var numbers []string
	for i := range b.Ports {
		if concerns(&b.Ports[i]) {
			numbers = append(numbers, fmt.Sprint(b.Ports[i].Port))
		}
	}
	return strings.Join(numbers, ", ")
}
