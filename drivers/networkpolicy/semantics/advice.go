// SPDX-License-Identifier: Apache-2.0

package semantics

import (
	"fmt"
	"slices"
	"strings"

	networkingv1 "k8s.io/api/networking/v1"
)

// The drivers whose groups are told apart, as they stand in Group.Driver.
const (
	DriverNode          = "node"
	DriverNetworkPolicy = "networkpolicy"
)

// maxName is how long the name of a group may be.
const maxName = 255

// advice says, where policies and groups differ, why, and what to do.
func (w World) advice(c Connection, s Side, own, other Party, direction networkingv1.PolicyType) string {
	if s.Cloud {
		return w.adviceOpen(s, own)
	}
	ask := describe("pod", own.Name)
	switch {
	case own.Port == nil:
		return "the pod has no port in the cloud; " + ask + " says what it waits for"
	case len(s.IsolatedBy) == 0:
		return fmt.Sprintf("no policy isolates the pod, but none of the security groups of its port (%s) lets this pass: "+
			"look at [namespace_subnet] ingress_cidrs, at groups that the pod itself names, and whether the driver "+
			"networkpolicy was left out of [raven] drivers; %s says what it waits for", w.names(own.Port.Groups), ask)
	}
	policies := policiesOf(s.Rules)
	joined := slices.ContainsFunc(policies, func(policy string) bool { return w.hasPolicy(own, policy) })
	if !joined {
		return fmt.Sprintf("the port is not in the security group of policy %s; %s says what it waits for",
			strings.Join(policies, ", "), ask)
	}
	if other.Pod != nil {
		if other.Port == nil {
			return fmt.Sprintf("pod %s has no port in the cloud; %s says what it waits for", other.Name,
				describe("pod", other.Name))
		}
		if missing := w.lacking(c, own, direction); len(missing) > 0 {
			return fmt.Sprintf("the port of pod %s is not in the security group of the policy's peers (%s); %s says what it "+
				"waits for", other.Name, w.names(missing), describe("pod", other.Name))
		}
	}
	return fmt.Sprintf("the security group of the policy has no rule for it: %s shows what it waits for, and in its "+
		"Events what cannot be expressed, such as named ports that differ among pods", describe("networkpolicy", policies[0]))
}

// adviceOpen is for what passes although the policies do not allow it.
func (w World) adviceOpen(s Side, own Party) string {
	if len(s.Passing) == 0 {
		return "port security is off at this port, and security groups do not count: switch it on, " +
			"openstack port set --enable-port-security " + own.Port.ID
	}
	p := s.Passing[0]
	ask := describe("pod", own.Name)
	by := p.driver
	if namespace, _, _ := strings.Cut(own.Name, "/"); p.Group == members(namespace) {
		by = DriverNetworkPolicy // whose rules are in it
	}
	switch by {
	case "":
		return fmt.Sprintf("security group %q is not of this cluster: take the port out of it, "+
			"openstack port unset --security-group %s %s", p.Group, p.ID, own.Port.ID)
	case DriverNetworkPolicy:
		return fmt.Sprintf("security group %q does not follow the policies yet, or not any more: raven plan shows what is "+
			"to be changed, raven status --driver networkpolicy what it waits for", p.Group)
	}
	return fmt.Sprintf("the port is still in security group %q, in which no isolated pod is: enable the driver "+
		"networkpolicy in [raven] drivers if it is not; else %s says what it waits for, and raven plan what is to be changed",
		p.Group, ask)
}

func describe(kind, name string) string {
	namespace, name, _ := strings.Cut(name, "/")
	return fmt.Sprintf("raven describe %s/%s -n %s", kind, name, namespace)
}

// policiesOf returns the policies of rules, each once.
func policiesOf(rules []string) (policies []string) {
	for _, rule := range rules {
		policy, _, _ := strings.Cut(rule, " ")
		policies = append(policies, policy)
	}
	return slices.Compact(policies)
}

// members is the name of the group of all pods of a namespace, which has the rules of policies for all of them.
func members(namespace string) string { return namespace + "-members" }

// hasPolicy says whether a party's port is in the group that has the rules of a policy.
func (w World) hasPolicy(own Party, policy string) bool {
	name := strings.Replace(policy, "/", "-", 1)
	for i := range w.Policies {
		p := &w.Policies[i]
		selector := p.Spec.PodSelector
		if p.Namespace+"/"+p.Name == policy && len(selector.MatchLabels)+len(selector.MatchExpressions) == 0 {
			return slices.ContainsFunc(own.Port.Groups, func(id string) bool {
				return w.Groups[id].Name == members(p.Namespace)
			})
		}
	}
	return slices.ContainsFunc(own.Port.Groups, func(id string) bool {
		g := w.Groups[id]
		cut := len(g.Name) >= maxName && strings.HasPrefix(name, g.Name)
		return g.Driver == DriverNetworkPolicy && (g.Name == name || cut)
	})
}

// lacking returns the groups of which one would let a connection pass, were the other end's port in it.
func (w World) lacking(c Connection, own Party, direction networkingv1.PolicyType) (missing []string) {
	for _, id := range own.Port.Groups {
		for i := range w.Groups[id].Rules {
			remote := w.Groups[id].Rules[i].RemoteGroup
			if remote == "" || slices.Contains(missing, remote) {
				continue
			}
			if len(Pass(Port{Groups: []string{id}}, &Port{Groups: []string{remote}}, w.Groups, c, direction)) > 0 {
				missing = append(missing, remote)
			}
		}
	}
	return missing
}

// names are those of groups, or their ids.
func (w World) names(ids []string) string {
	if len(ids) == 0 {
		return "none"
	}
	var names []string
	for _, id := range ids {
		if name := w.Groups[id].Name; name != "" {
			id = name
		}
		names = append(names, id)
	}
	return strings.Join(names, ", ")
}
