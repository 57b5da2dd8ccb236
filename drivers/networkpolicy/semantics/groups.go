// SPDX-License-Identifier: Apache-2.0

package semantics

import (
	"net/netip"
	"slices"
	"strings"

	networkingv1 "k8s.io/api/networking/v1"
)

// Port is a Neutron port, as far as it decides what passes.
type Port struct {
	ID     string
	Groups []string // ids of its security groups
	// Unprotected says that its port security is off: everything passes.
	Unprotected bool
}

// Group is a Neutron security group.
type Group struct {
	ID, Name string
	// Driver is whose it is; empty: not this cluster's.
	Driver string
	Rules  []Rule
}

// Rule is a rule of a security group.
type Rule struct {
	ID        string
	Direction string // ingress or egress
	EtherType string // IPv4 or IPv6
	Protocol  string // a name in small letters, or a number; empty: every one
	// Min and Max are the first and the last port; 0: every one.
	Min, Max int32
	// RemoteGroup is the id of the group whose members are allowed, Range the range that is. Neither: everybody.
	RemoteGroup string
	Range       netip.Prefix
	// Itself says that it is for what a pod sends itself through its Service.
	Itself bool
	// Unknown says that it names its peers in a way that is not known here, and is taken to allow nobody.
	Unknown bool
}

// Passing is a rule that lets a connection pass.
type Passing struct {
	Group string `json:"group"` // its name
	ID    string `json:"groupId"`
	Rule  string `json:"ruleId"`

	driver string
	itself bool
}

// Pass returns the rules by which a port lets a connection pass in one direction. The other end has a port where it is
// a pod. A port of which port security is off lets everything pass without a rule.
func Pass(
	own Port, other *Port, groups map[string]Group, c Connection, direction networkingv1.PolicyType,
) (passing []Passing) {
	_, peer := c.ends(direction)
	for _, id := range own.Groups {
		group := groups[id]
		for i := range group.Rules {
			r := &group.Rules[i]
			if r.Direction == strings.ToLower(string(direction)) && r.lets(&c, peer, other) {
				passing = append(passing, Passing{
					Group: group.Name, ID: group.ID, Rule: r.ID, driver: group.Driver, itself: r.Itself,
				})
			}
		}
	}
	return passing
}

func (r *Rule) lets(c *Connection, peer End, other *Port) bool {
	etherType := "IPv4"
	if peer.Range.Addr().Is6() {
		etherType = "IPv6"
	}
	switch {
	case r.Unknown, r.EtherType != etherType:
		return false
	case r.Protocol != "" && protocolName(r.Protocol) != strings.ToLower(string(c.Protocol)):
		return false
	case r.Max > 0 && (c.Port < r.Min || c.Port > r.Max):
		return false
	case r.RemoteGroup != "":
		return other != nil && slices.Contains(other.Groups, r.RemoteGroup)
	}
	return !r.Range.IsValid() || Contains(r.Range, peer.Range)
}

// protocolName returns a protocol's name as Neutron has it in rules that Raven makes.
func protocolName(text string) string {
	switch text {
	case "6":
		return "tcp"
	case "17":
		return "udp"
	case "132":
		return "sctp"
	}
	return text
}
