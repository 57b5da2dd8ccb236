// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kuryr/raven/drivers"
	"github.com/kuryr/raven/drivers/internal/policy"
)

// namespaces is the name of the watch whose labels the peers of policies are compared with.
const namespaces = "namespaces-of-pods"

// policyWatches are what isolate asks.
func policyWatches() []drivers.Watch {
	return []drivers.Watch{policy.Watch(), {
		Name: namespaces, Kind: "Namespace", GVR: schema.GroupVersionResource{Version: "v1", Resource: "namespaces"},
		Fields: []string{"metadata.labels"},
	}}
}

// isolation is what NetworkPolicies say of a pod.
type isolation struct {
	ingress, egress bool
	// policies are the names of those that select the pod, joined those of them whose groups it joins, peers the roles of
	// the groups of peers that it is one of; all sorted.
	policies []string
	joined   []string
	peers    []drivers.Role
	node     string // the pod's, where its own programs are let in; empty: they are not
}

// isolate asks for the policies of a pod's namespace, and for those that have it as a peer. One of its namespace of
// which it cannot be read whom it is for is an error: the pod keeps what it has, or gets no port. One of another
// namespace must not keep it from starting. When the needs are open afterwards, the answer does not count.
func isolate(pod *source, needs *drivers.Needs) (out isolation, err error) {
	own, _ := needs.Get(drivers.Need{Watch: policy.WatchName, Namespace: pod.Metadata.Namespace})
	for _, object := range own {
		p, err := policy.Read(object)
		if err != nil {
			return out, err
		}
		if p.Pods.Matches(labels.Set(pod.Metadata.Labels)) {
			out.ingress, out.egress = out.ingress || p.Ingress, out.egress || p.Egress
			out.policies = append(out.policies, p.Name)
			if !p.Whole() {
				out.joined = append(out.joined, p.Name)
			}
		}
	}
	namespace, answered := needs.Get(drivers.Need{Watch: namespaces, Name: pod.Metadata.Namespace})
	if !answered || pod.Spec.HostNetwork {
		return out, nil
	}
	var ofNamespace map[string]string
	if len(namespace) > 0 { // one that is just deleted has no labels any more
		meta, err := namespace[0].Meta()
		if err != nil {
			return out, err
		}
		ofNamespace = meta.Labels
	}
	need := drivers.Selecting(policy.WatchName, pod.Metadata.Namespace, ofNamespace, pod.Metadata.Labels)
	selecting, _ := needs.Get(need)
	subject, err := need.Selects.Parse()
	if err != nil {
		return out, err
	}
	out.join(selecting, subject)
	return out, nil
}

// join adds the groups of peers that a pod is one of.
func (i *isolation) join(selecting []drivers.Object, subject drivers.ParsedSubject) {
	for _, object := range selecting {
		p, err := policy.Read(object)
		if err != nil {
			continue // its groups do not come into being
		}
		for _, pair := range p.Pairs() {
			role := policy.PeersRole(pair)
			if role.Kind == "" && subject.IsSelected(pair) && !slices.Contains(i.peers, role) {
				i.peers = append(i.peers, role)
			}
		}
	}
	slices.SortFunc(i.peers, func(a, b drivers.Role) int { return strings.Compare(a.Role, b.Role) })
}

// groups returns the groups of a pod's port. Groups only add to what is allowed, so that a port is closed where one is
// missing: it waits for the namespace's, and does without those of policies.
func (i isolation) groups(namespace string) []drivers.Value {
	of := func(role string) drivers.Value {
		return drivers.FromRole(drivers.Role{Kind: "Namespace", Name: namespace, Role: role})
	}
	groups := []drivers.Value{of(drivers.NamespaceMembers)}
	if !i.ingress {
		groups = append(groups, of(drivers.NamespaceOpenIngress))
	}
	if !i.egress {
		groups = append(groups, of(drivers.NamespaceOpenEgress))
	}
	if i.ingress && i.node != "" {
		programs := drivers.Role{Kind: "Node", Name: i.node, Role: drivers.NodePrograms}
		groups = append(groups, drivers.Soft(programs))
	}
	for _, name := range i.joined {
		groups = append(groups, drivers.Soft(policy.GroupRole(namespace, name)))
	}
	for _, role := range i.peers {
		groups = append(groups, drivers.Soft(role))
	}
	return groups
}

// notEnforced says that policies select a pod and do not count.
func (i isolation) notEnforced(why string) []drivers.Diagnostic {
	if len(i.policies) == 0 {
		return nil
	}
	return []drivers.Diagnostic{{
		Severity: drivers.Warning, Reason: "NetworkPolicyNotEnforced",
		Message: fmt.Sprintf("NetworkPolicy %s does not count for this pod: %s", strings.Join(i.policies, ", "), why),
	}}
}
