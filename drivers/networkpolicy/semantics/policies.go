// SPDX-License-Identifier: Apache-2.0

// Package semantics says what NetworkPolicies allow by the words of the Kubernetes API, and what security groups allow
// by those of Neutron, so that the two can be compared. It must never read policies as the drivers do: it is what these
// are judged by.
package semantics

import (
	"fmt"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// The directions of a connection, as a pod has it.
const (
	Ingress = networkingv1.PolicyTypeIngress
	Egress  = networkingv1.PolicyTypeEgress
)

// End is one end of a connection: a pod, or addresses that are no pod's.
type End struct {
	Pod             *corev1.Pod       // nil: it is none
	NamespaceLabels map[string]string // those of the pod's namespace
	// Range is its address, or a range that no CIDR in the policies and rules cuts in two. The zero Prefix is an
	// unknown address.
	Range netip.Prefix
}

// Connection is what is asked for.
type Connection struct {
	From, To End
	Protocol corev1.Protocol
	Port     int32 // of To
}

// ends returns the end whose policies are asked, and the other one.
func (c *Connection) ends(direction networkingv1.PolicyType) (own, other End) {
	if direction == Ingress {
		return c.To, c.From
	}
	return c.From, c.To
}

// Verdict is what the policies of one pod say of a connection in one direction.
type Verdict struct {
	Allowed bool
	// IsolatedBy are the policies that isolate the pod in the direction, Rules the rules that allow the connection. A pod
	// that none isolates allows everything.
	IsolatedBy, Rules []string
}

// Judge says whether the policies allow a connection in one direction: ingress asks those of the pod that it goes to,
// egress those of the pod that it comes from.
func Judge(policies []networkingv1.NetworkPolicy, c Connection, direction networkingv1.PolicyType) (v Verdict) {
	own, other := c.ends(direction)
	for i := range policies {
		p := &policies[i]
		if own.Pod == nil || !Isolates(p, own.Pod, direction) {
			continue
		}
		name := p.Namespace + "/" + p.Name
		v.IsolatedBy = append(v.IsolatedBy, name)
		if direction == Ingress {
			for n, r := range p.Spec.Ingress {
				if AnyPeer(p.Namespace, r.From, other) && anyPort(r.Ports, c) {
					v.Rules = append(v.Rules, fmt.Sprintf("%s ingress[%d]", name, n))
				}
			}
			continue
		}
		for n, r := range p.Spec.Egress {
			if AnyPeer(p.Namespace, r.To, other) && anyPort(r.Ports, c) {
				v.Rules = append(v.Rules, fmt.Sprintf("%s egress[%d]", name, n))
			}
		}
	}
	v.Allowed = len(v.IsolatedBy) == 0 || len(v.Rules) > 0
	return v
}

// Isolates says whether a policy isolates a pod in a direction.
func Isolates(p *networkingv1.NetworkPolicy, pod *corev1.Pod, direction networkingv1.PolicyType) bool {
	types := p.Spec.PolicyTypes
	if len(types) == 0 {
		types = []networkingv1.PolicyType{Ingress}
		if len(p.Spec.Egress) > 0 {
			types = append(types, Egress)
		}
	}
	return p.Namespace == pod.Namespace && matches(p.Spec.PodSelector, pod.Labels) && slices.Contains(types, direction)
}

// matches says whether a selector selects labels. One that cannot be read, which no API server takes, selects none.
func matches(selector metav1.LabelSelector, set map[string]string) bool {
	parsed, err := metav1.LabelSelectorAsSelector(&selector)
	return err == nil && parsed.Matches(labels.Set(set))
}

// AnyPeer says whether one of the peers in a rule of a policy is the end; no peers are everybody.
func AnyPeer(namespace string, peers []networkingv1.NetworkPolicyPeer, end End) bool {
	return len(peers) == 0 || slices.ContainsFunc(peers, func(peer networkingv1.NetworkPolicyPeer) bool {
		if peer.IPBlock != nil {
			return inBlock(peer.IPBlock, end.Range)
		}
		if end.Pod == nil || end.Pod.Spec.HostNetwork {
			return false
		}
		inNamespace := end.Pod.Namespace == namespace
		if peer.NamespaceSelector != nil {
			inNamespace = matches(*peer.NamespaceSelector, end.NamespaceLabels)
		}
		return inNamespace && (peer.PodSelector == nil || matches(*peer.PodSelector, end.Pod.Labels))
	})
}

func inBlock(block *networkingv1.IPBlock, of netip.Prefix) bool {
	contains := func(cidr string) bool {
		p, err := netip.ParsePrefix(cidr)
		return err == nil && Contains(p, of)
	}
	return contains(block.CIDR) && !slices.ContainsFunc(block.Except, contains)
}

// Contains says whether all of a range is in another one.
func Contains(whole, part netip.Prefix) bool {
	return part.IsValid() && whole.Bits() <= part.Bits() && whole.Contains(part.Addr())
}

func anyPort(ports []networkingv1.NetworkPolicyPort, c Connection) bool {
	return len(ports) == 0 || slices.ContainsFunc(ports, func(port networkingv1.NetworkPolicyPort) bool {
		first, last, ok := numbers(port, c.Protocol, c.To.Pod)
		return ok && first <= c.Port && c.Port <= last
	})
}

// numbers returns the ports of a protocol that a port of a policy means at a pod.
func numbers(
	port networkingv1.NetworkPolicyPort, protocol corev1.Protocol, pod *corev1.Pod,
) (first, last int32, ok bool) {
	of := corev1.ProtocolTCP
	if port.Protocol != nil {
		of = *port.Protocol
	}
	switch {
	case of != protocol:
		return 0, 0, false
	case port.Port == nil:
		return 0, maxPort, true
	case port.Port.StrVal != "":
		number, ok := named(pod, port.Port.StrVal, protocol)
		return number, number, ok
	case port.EndPort != nil:
		return port.Port.IntVal, *port.EndPort, true
	}
	return port.Port.IntVal, port.Port.IntVal, true
}

// named returns the number that a pod gives to a port.
func named(pod *corev1.Pod, name string, protocol corev1.Protocol) (int32, bool) {
	if pod == nil {
		return 0, false
	}
	containers := slices.Clone(pod.Spec.Containers)
	for i := range pod.Spec.InitContainers {
		restarts := pod.Spec.InitContainers[i].RestartPolicy
		if restarts != nil && *restarts == corev1.ContainerRestartPolicyAlways { // a sidecar
			containers = append(containers, pod.Spec.InitContainers[i])
		}
	}
	for i := range containers {
		for _, port := range containers[i].Ports {
			of := port.Protocol
			if of == "" {
				of = corev1.ProtocolTCP
			}
			if port.Name == name && of == protocol {
				return port.ContainerPort, true
			}
		}
	}
	return 0, false
}
