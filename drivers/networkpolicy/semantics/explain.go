// SPDX-License-Identifier: Apache-2.0

package semantics

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
)

const maxPort = 65535

// World is what there is: policies in the cluster, groups in the cloud.
type World struct {
	// Policies are at least those of the namespaces of the pods that are asked for.
	Policies []networkingv1.NetworkPolicy
	// Groups are at least those of these pods' ports, by id. Names of groups that rules refer to may be among them.
	Groups map[string]Group
}

// Party is one end of what is asked for: a pod with its port, or addresses.
type Party struct {
	Name            string // namespace/name of a pod, else the addresses
	Pod             *corev1.Pod
	NamespaceLabels map[string]string
	Port            *Port // nil: a pod that has none, or no pod
	// Addresses are those of a pod, or the one range.
	Addresses []netip.Prefix
}

// PortRange is what may be asked for in place of all ports.
type PortRange struct {
	Protocol    corev1.Protocol
	First, Last int32
}

// Case is what holds for some ports and addresses alike.
type Case struct {
	Ports     []string `json:"ports"`
	Addresses []string `json:"addresses"`
	Allowed   bool     `json:"allowed"`      // by the policies
	Cloud     bool     `json:"cloudAllowed"` // by the security groups
	Differ    bool     `json:"differ"`       // at one of the sides
	Sides     []Side   `json:"sides"`
}

// Side is what one pod's policies and groups say: egress where the connection begins, ingress where it ends.
type Side struct {
	Pod        string    `json:"pod"`
	Direction  string    `json:"direction"`
	Allowed    bool      `json:"allowed"`
	IsolatedBy []string  `json:"isolatedBy"`
	Rules      []string  `json:"rules"` // of policies
	Cloud      bool      `json:"cloudAllowed"`
	Port       string    `json:"portId,omitempty"`
	Passing    []Passing `json:"groupRules"`
	// Programs says that those of the pod's own node are let in, which policies do not speak of.
	Programs bool `json:"nodePrograms,omitempty"`
	// Itself says that what the pod sends itself through its Service is let in, which policies do not speak of either.
	Itself bool   `json:"itself,omitempty"`
	Advice string `json:"advice,omitempty"` // where the two differ
}

// Explain says what holds for connections between two parties, to the ports of a range or to all.
func Explain(w World, from, to Party, ports *PortRange) []Case {
	return w.explain(from, to, ports, Egress, Ingress)
}

// ExplainSide is Explain for the policies of one pod only: of that to which connections go, or from which they come.
func ExplainSide(w World, from, to Party, ports *PortRange, direction networkingv1.PolicyType) []Case {
	return w.explain(from, to, ports, direction)
}

func (w World) explain(from, to Party, ports *PortRange, directions ...networkingv1.PolicyType) []Case {
	var all []Case
	keys := map[string]int{} // by what holds and the ports
	for _, piece := range w.pieces(from, to) {
		var of []Case
		var order []string
		at := map[string]int{}
		for _, r := range w.intervals(to.Pod, ports) {
			c := Connection{
				From: End{from.Pod, from.NamespaceLabels, piece.from}, To: End{to.Pod, to.NamespaceLabels, piece.to},
				Protocol: r.Protocol, Port: r.First,
			}
			one := w.decide(c, from, to, directions)
			key := one.key()
			if _, ok := at[key]; !ok {
				at[key], order = len(of), append(order, key)
				one.Addresses = []string{piece.String()}
				of = append(of, one)
			}
			of[at[key]].addPorts(r)
		}
		for i, key := range order {
			key += strings.Join(of[i].Ports, " ")
			if before, ok := keys[key]; ok {
				all[before].Addresses = append(all[before].Addresses, of[i].Addresses...)
				continue
			}
			keys[key] = len(all)
			all = append(all, of[i])
		}
	}
	for i := range all {
		all[i].Ports = shortened(all[i].Ports)
	}
	return all
}

// piece is a pair of addresses.
type piece struct{ from, to netip.Prefix }

func (p piece) String() string {
	if !p.from.IsValid() && !p.to.IsValid() {
		return "no address yet"
	}
	return text(p.from) + " to " + text(p.to)
}

func text(p netip.Prefix) string {
	switch {
	case !p.IsValid():
		return "?"
	case p.IsSingleIP():
		return p.Addr().String()
	}
	return p.String()
}

// pieces pairs addresses of one IP version, and cuts a range where a policy or a rule does.
func (w World) pieces(from, to Party) (pieces []piece) {
	for _, a := range from.Addresses {
		for _, b := range to.Addresses {
			if a.Addr().Is4() != b.Addr().Is4() {
				continue
			}
			for _, one := range partition(a, w.cuts()) {
				for _, other := range partition(b, w.cuts()) {
					pieces = append(pieces, piece{one, other})
				}
			}
		}
	}
	if len(pieces) == 0 && (from.Pod != nil && len(from.Addresses) == 0 || to.Pod != nil && len(to.Addresses) == 0) {
		pieces = []piece{{}} // a pod has none yet; policies that name no addresses say something all the same
	}
	return pieces
}

// cuts are all ranges that policies and rules name.
func (w World) cuts() (cuts []netip.Prefix) {
	block := func(peers []networkingv1.NetworkPolicyPeer) {
		for _, peer := range peers {
			if peer.IPBlock == nil {
				continue
			}
			for _, cidr := range append([]string{peer.IPBlock.CIDR}, peer.IPBlock.Except...) {
				if p, err := netip.ParsePrefix(cidr); err == nil {
					cuts = append(cuts, p.Masked())
				}
			}
		}
	}
	for i := range w.Policies {
		for _, r := range w.Policies[i].Spec.Ingress {
			block(r.From)
		}
		for _, r := range w.Policies[i].Spec.Egress {
			block(r.To)
		}
	}
	for _, g := range w.Groups {
		for i := range g.Rules {
			if g.Rules[i].Range.IsValid() {
				cuts = append(cuts, g.Rules[i].Range)
			}
		}
	}
	return cuts
}

// partition cuts a range so that every cut has all of a part, or nothing.
func partition(whole netip.Prefix, cuts []netip.Prefix) []netip.Prefix {
	inside := slices.DeleteFunc(slices.Clone(cuts), func(cut netip.Prefix) bool {
		return cut.Bits() <= whole.Bits() || !whole.Contains(cut.Addr())
	})
	if len(inside) == 0 {
		return []netip.Prefix{whole}
	}
	bits := whole.Bits()
	bytes := whole.Addr().AsSlice()
	bytes[bits/8] |= 0x80 >> (bits % 8)
	upper, _ := netip.AddrFromSlice(bytes)
	return append(partition(netip.PrefixFrom(whole.Addr(), bits+1), inside),
		partition(netip.PrefixFrom(upper, bits+1), inside)...)
}

// intervals cuts the ports that are asked for where a policy or a rule does.
func (w World) intervals(pod *corev1.Pod, ports *PortRange) (list []PortRange) {
	asked := []PortRange{
		{corev1.ProtocolTCP, 1, maxPort}, {corev1.ProtocolUDP, 1, maxPort}, {corev1.ProtocolSCTP, 1, maxPort},
	}
	if ports != nil {
		asked = []PortRange{*ports}
	}
	for _, of := range asked {
		starts := append(w.starts(pod, of.Protocol), of.First, of.Last+1)
		starts = slices.DeleteFunc(starts, func(n int32) bool { return n < of.First || n > of.Last+1 })
		slices.Sort(starts)
		starts = slices.Compact(starts)
		for i := range len(starts) - 1 {
			list = append(list, PortRange{of.Protocol, starts[i], starts[i+1] - 1})
		}
	}
	return list
}

// starts are the ports of a protocol at which something else may hold than at the one before.
func (w World) starts(pod *corev1.Pod, protocol corev1.Protocol) (starts []int32) {
	add := func(ports []networkingv1.NetworkPolicyPort) {
		for _, port := range ports {
			if first, last, ok := numbers(port, protocol, pod); ok {
				starts = append(starts, first, last+1)
			}
		}
	}
	for i := range w.Policies {
		for _, r := range w.Policies[i].Spec.Ingress {
			add(r.Ports)
		}
		for _, r := range w.Policies[i].Spec.Egress {
			add(r.Ports)
		}
	}
	for _, g := range w.Groups {
		for i := range g.Rules {
			if r := &g.Rules[i]; r.Max > 0 {
				starts = append(starts, r.Min, r.Max+1)
			}
		}
	}
	return starts
}

// decide judges one connection at the sides that are pods.
func (w World) decide(c Connection, from, to Party, directions []networkingv1.PolicyType) Case {
	out := Case{Allowed: true, Cloud: true, Sides: []Side{}}
	for _, direction := range directions {
		own, other := from, to
		if direction == Ingress {
			own, other = to, from
		}
		if own.Pod == nil {
			continue
		}
		s := w.side(c, own, other, direction)
		out.Sides = append(out.Sides, s)
		out.Allowed, out.Cloud = out.Allowed && s.Allowed, out.Cloud && s.Cloud
		out.Differ = out.Differ || s.Allowed != s.Cloud
	}
	return out
}

func (w World) side(c Connection, own, other Party, direction networkingv1.PolicyType) Side {
	v := Judge(w.Policies, c, direction)
	s := Side{
		Pod: own.Name, Direction: strings.ToLower(string(direction)), Allowed: v.Allowed,
		IsolatedBy: append([]string{}, v.IsolatedBy...), Rules: append([]string{}, v.Rules...), Passing: []Passing{},
	}
	if own.Port != nil {
		s.Port = own.Port.ID
		s.Passing = append(s.Passing, Pass(*own.Port, other.Port, w.Groups, c, direction)...)
		s.Cloud = own.Port.Unprotected || len(s.Passing) > 0
	}
	only := func(of func(Passing) bool) bool {
		return !s.Allowed && other.Pod == nil && len(s.Passing) > 0 &&
			!slices.ContainsFunc(s.Passing, func(p Passing) bool { return !of(p) })
	}
	s.Programs = only(func(p Passing) bool { return p.driver == DriverNode })
	s.Itself = only(func(p Passing) bool { return p.itself })
	s.Allowed = s.Allowed || s.Programs || s.Itself
	if s.Allowed != s.Cloud {
		s.Advice = w.advice(c, s, own, other, direction)
	}
	return s
}

// key is equal for what is told in the same words.
func (c *Case) key() string {
	var b strings.Builder
	for _, s := range c.Sides {
		fmt.Fprint(&b, s.Pod, s.Direction, s.Allowed, s.Cloud, s.IsolatedBy, s.Rules, s.Programs, s.Itself, s.Advice)
		var groups []string
		for _, p := range s.Passing {
			groups = append(groups, p.ID)
		}
		slices.Sort(groups)
		fmt.Fprint(&b, slices.Compact(groups), ";")
	}
	return b.String()
}

// addPorts adds a range to those for which a case holds; ranges come in order.
func (c *Case) addPorts(r PortRange) {
	protocol := "/" + strings.ToLower(string(r.Protocol))
	first := r.First
	if n := len(c.Ports) - 1; n >= 0 {
		var a, b int32
		before, of, _ := strings.Cut(c.Ports[n], "/")
		if count, _ := fmt.Sscanf(before, "%d-%d", &a, &b); count == 1 {
			b = a
		}
		if "/"+of == protocol && b+1 == r.First {
			c.Ports, first = c.Ports[:n], a
		}
	}
	if first == r.Last {
		c.Ports = append(c.Ports, fmt.Sprint(first, protocol))
	} else {
		c.Ports = append(c.Ports, fmt.Sprintf("%d-%d%s", first, r.Last, protocol))
	}
}

// shortened says "tcp" for all ports of TCP.
func shortened(ports []string) []string {
	whole := 0
	for i, port := range ports {
		if protocol, ok := strings.CutPrefix(port, "1-65535/"); ok {
			ports[i] = protocol
			whole++
		}
	}
	if whole == 3 {
		return []string{"every port"}
	}
	return ports
}
