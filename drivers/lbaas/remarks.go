package lbaas

import (
	"fmt"
	"slices"
	"strings"

	"github.com/kuryr/raven/drivers"
	"github.com/kuryr/raven/drivers/internal/services"
)

// outputs says on the Service what serves it.
func (b *builder) outputs() {
	first := b.vips[0].balancer
	document := func(key, name, attribute string) {
		b.set.Outputs = append(b.set.Outputs, drivers.Output{
			Kind: drivers.Annotation, Key: key, Document: &drivers.Ref{Name: name, Attribute: attribute},
		})
	}
	document(VIPAnnotation, first, "")
	if len(b.ports) > 0 {
		document(PoolAnnotation, first, "pool")
	}
	if len(b.ports) > 1 {
		document(PoolsAnnotation, first, "pools")
	}
	if b.made[vipSecurityGroup] {
		document(VIPSecurityGroupAnnotation, vipSecurityGroup, "")
	}
	if len(b.floatings) > 0 {
		document(FloatingIPAnnotation, b.floatings[0], "")
	}
	at := slices.IndexFunc(b.set.Outputs, func(o drivers.Output) bool { return o.Kind == drivers.Ingress })
	if at >= 0 {
		b.set.Outputs = append(b.set.Outputs, drivers.Output{
			Kind: drivers.Annotation, Key: AddressAnnotation, Text: b.set.Outputs[at].Text,
		})
	}
}

// remarks says what of the Service no load balancer can do.
func (b *builder) remarks() {
	spec := &b.service.Spec
	var nodePorts []string
	for _, p := range spec.Ports {
		if p.NodePort != 0 {
			nodePorts = append(nodePorts, fmt.Sprint(p.NodePort))
		}
	}
	if spec.Type == services.TypeNodePort && len(nodePorts) > 0 {
		b.say(drivers.Warning, "NodePortsNotServed", "node ports %s are not served: nodes have no port in a logical network; kube-proxy on the "+
			"nodes serves them, or type LoadBalancer", strings.Join(nodePorts, ", "))
	}
	if spec.ExternalTrafficPolicy == "Local" && spec.Type != services.TypeClusterIP {
		text := ""
		if spec.HealthCheckNodePort != 0 {
			text = fmt.Sprintf(", and nobody answers on healthCheckNodePort %d", spec.HealthCheckNodePort)
		}
		b.say(drivers.Warning, "TrafficPolicyNotServed", "externalTrafficPolicy Local is served as Cluster: a load balancer leads to members, not "+
			"to nodes%s", text)
	}
	if spec.InternalTrafficPolicy == "Local" {
		b.say(drivers.Warning, "TrafficPolicyNotServed", "internalTrafficPolicy Local is served as Cluster: a load balancer does not know the "+
			"client's node")
	}
	if class := spec.LoadBalancerClass; class != nil && spec.Type == services.TypeLoadBalancer && !b.ours() {
		b.say(drivers.Note, "OtherLoadBalancerClass", "loadBalancerClass %q is not Raven's, which is %q: the clusterIP is served, an address "+
			"outside is the other's to give", *class, b.ownClass)
	}
	b.affinity()
	b.unchecked()
}

// affinity says where the time that a client keeps its member for cannot be set.
func (b *builder) affinity() {
	clientIP, seconds := b.service.Affinity()
	if !clientIP || seconds == services.DefaultAffinitySeconds {
		return
	}
	if ports := b.numbers(func(p *services.Port) bool { return p.Protocol == "TCP" }); ports != "" {
		b.say(drivers.Warning, "AffinityTimeoutIgnored", "clients of TCP port %s keep their member, but not for timeoutSeconds %d: Octavia has "+
			"a time for UDP and SCTP only", ports, seconds)
	}
}

// unchecked says which ports have no health monitor though one is wanted.
func (b *builder) unchecked() {
	if b.wants.monitor == nil {
		return
	}
	ports := b.numbers(func(p *services.Port) bool { return !slices.Contains(b.wants.provider.monitors, p.Protocol) })
	if ports != "" {
		b.say(drivers.Warning, "NoHealthMonitor", "port %s has no health monitor: %s has none for its protocol", ports, &b.wants.provider)
	}
}

// numbers lists the ports that some rule concerns.
func (b *builder) numbers(concerns func(*services.Port) bool) string {
	var numbers []string
	for i := range b.ports {
		if concerns(&b.ports[i]) {
			numbers = append(numbers, fmt.Sprint(b.ports[i].Port))
		}
	}
	return strings.Join(numbers, ", ")
}
