// SPDX-License-Identifier: Apache-2.0

package networkpolicy

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"unicode/utf8"

	"github.com/kuryr/raven/drivers"
	"github.com/kuryr/raven/drivers/internal/policy"
)

// builder gathers the Set of one policy.
//
//	logical name                  resource
//	group                         <namespace>-<name>, with the rules, unless the policy is for the whole namespace
//	network-policy-peers-<hash>   claim: a group of the pods that a pair of selectors selects, without rules
//	in-<hash>, out-<hash>         a rule; the hash is that of what it says, so that the order of rules does not count
//
// The group of a policy for the whole namespace stays empty: by it Raven knows of the driver once it is not enabled.
type builder struct {
	*config
	policy policy.Policy
	needs  *drivers.Needs
	rules  map[string]drivers.SecurityGroupRule
	egress []allowance
	chosen map[string][]source // pods by the pair that selects them
	set    drivers.Set
	err    error
}

func (b *builder) build() {
	p := b.policy
	b.add(drivers.Resource{
		Name: "group", Exports: []string{drivers.NetworkPolicyGroup},
		Spec: drivers.SecurityGroup{Name: named(p.Namespace + "-" + p.Name), DefaultRules: new(false)},
	})
	for _, pair := range p.Pairs() {
		role := policy.PeersRole(pair)
		if role.Kind != "" {
			continue // the namespace makes it
		}
		b.add(drivers.Resource{
			Name: role.Role, Claim: role.Role, Exports: []string{role.Role},
			Spec: drivers.SecurityGroup{Name: new(role.Role), DefaultRules: new(false)},
		})
	}
	for _, what := range p.Closed {
		b.set.Diagnostics = append(b.set.Diagnostics, drivers.Diagnostic{
			Severity: drivers.Warning, Reason: "PolicyPartClosed",
			Message: what + ": what it would allow stays closed",
		})
	}
	b.direction("ingress", p.In)
	b.direction("egress", p.Out)
	b.toServices()
	for _, name := range slices.Sorted(maps.Keys(b.rules)) {
		b.add(drivers.Resource{Name: name, Spec: b.rules[name]})
	}
}

func (b *builder) add(r drivers.Resource) { b.set.Resources = append(b.set.Resources, r) }

func (b *builder) direction(direction string, rules []policy.Rule) {
	for _, r := range rules {
		peers, ports := r.Peers, r.Ports
		if r.Anybody {
			peers = []policy.Peer{{Ranges: []netip.Prefix{everyIPv4, everyIPv6}}}
		}
		if r.AnyPort {
			ports = []policy.Port{{}}
		}
		for _, peer := range peers {
			for _, port := range ports {
				if port.Name != "" {
					number, ok := b.numbered(direction, peer, r.Anybody, port)
					if !ok {
						continue
					}
					port = policy.Port{Protocol: port.Protocol, Min: number, Max: number}
				}
				b.allow(direction, peer, port)
				if direction == "egress" {
					b.egress = append(b.egress, allowance{peer, port})
				}
			}
		}
	}
}

// allow adds the rules for one peer and one range of ports: one per IP version.
func (b *builder) allow(direction string, peer policy.Peer, port policy.Port) {
	rule := drivers.SecurityGroupRule{SecurityGroupID: b.ruled(), Direction: new(direction)}
	if port.Protocol != "" {
		rule.Protocol = new(port.Protocol)
	}
	if port.Min > 0 {
		rule.PortRangeMin, rule.PortRangeMax = new(port.Min), new(port.Max)
	}
	if peer.Pods != nil {
		role := policy.PeersRole(*peer.Pods)
		rule.RemoteGroupID = drivers.From(role.Role)
		if role.Kind != "" {
			rule.RemoteGroupID = drivers.FromRole(role)
		}
		for _, etherType := range b.etherTypes {
			b.rule(rule, etherType, fmt.Sprint(role))
		}
		return
	}
	for _, prefix := range peer.Ranges {
		etherType := "IPv6"
		if prefix.Addr().Is4() {
			etherType = "IPv4"
		}
		if !slices.Contains(b.etherTypes, etherType) {
			continue
		}
		one := rule
		if prefix.Bits() > 0 {
			one.RemoteIPPrefix = new(prefix.String())
		}
		b.rule(one, etherType, prefix.String())
	}
}

// ruled is the group that has the policy's rules.
func (b *builder) ruled() drivers.Value {
	if b.policy.Whole() {
		return drivers.FromRole(policy.MembersRole(b.policy.Namespace))
	}
	return drivers.From("group")
}

// rule adds a rule, once however often the policy says it.
func (b *builder) rule(rule drivers.SecurityGroupRule, etherType, remote string) {
	rule.EtherType = new(etherType)
	protocol, ports := "any", ""
	if rule.Protocol != nil {
		protocol = *rule.Protocol
	}
	if rule.PortRangeMin != nil {
		ports = fmt.Sprintf("%d-%d", *rule.PortRangeMin, *rule.PortRangeMax)
	}
	prefix := map[string]string{"ingress": "in-", "egress": "out-"}[*rule.Direction]
	b.rules[prefix+policy.Hash(fmt.Sprint(etherType, " ", protocol, " ", ports, " ", remote))] = rule
}

// named returns a Neutron name, which has at most 255 characters.
func named(text string) *string {
	const most = 255
	for utf8.RuneCountInString(text) > most {
		_, size := utf8.DecodeLastRuneInString(text)
		text = text[:len(text)-size]
	}
	return new(text)
}
