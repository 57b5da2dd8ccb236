// SPDX-License-Identifier: Apache-2.0

// Package policy reads NetworkPolicies for the drivers that keep them: networkpolicy, which makes groups and rules of
// them, and pod, which puts ports into the groups. It must never take what it cannot read for "everything".
package policy

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kuryr/raven/drivers"
)

// Driver is the name of the driver that makes groups of NetworkPolicies.
const Driver = "networkpolicy"

// WatchName is the name of the watch of NetworkPolicies.
const WatchName = "networkpolicies"

// Watch returns the watch of NetworkPolicies.
func Watch() drivers.Watch {
	return drivers.Watch{
		Name: WatchName, Kind: "NetworkPolicy",
		GVR:       schema.GroupVersionResource{Group: "networking.k8s.io", Version: "v1", Resource: "networkpolicies"},
		Fields:    []string{"spec"},
		Selectors: []drivers.SelectorPath{peersAt("spec.ingress[].from[]"), peersAt("spec.egress[].to[]")},
	}
}

func peersAt(path string) drivers.SelectorPath {
	return drivers.SelectorPath{Path: path, Namespaces: "namespaceSelector", Objects: "podSelector"}
}

// Enabled says whether a core has the driver for NetworkPolicies enabled.
func Enabled(capabilities []string) bool {
	return slices.Contains(capabilities, drivers.DriverCapability(Driver))
}

// Policy is a NetworkPolicy. In and Out are empty where it does not isolate in that direction.
type Policy struct {
	Namespace, Name string
	// Pods selects the pods of the namespace that the policy is for.
	Pods labels.Selector
	// Ingress and Egress say in which directions these are isolated.
	Ingress, Egress bool
	In, Out         []Rule
	// Closed says, for people, what of the rules cannot be read, and allows nothing therefore.
	Closed []string
}

// Whole says whether the policy is for all pods of its namespace. The rules of such a policy are in the group of the
// namespace's members, and the namespace's open groups have no rules for its directions: few requests isolate all pods,
// however many there are.
func (p Policy) Whole() bool { return p.Pods.Empty() }

// Rule allows what goes between the pods and any of the peers, at any of the ports.
type Rule struct {
	Anybody bool // Peers does not count
	Peers   []Peer
	AnyPort bool // of every protocol; Ports does not count
	Ports   []Port
}

// Peer is who is allowed: pods, or ranges.
type Peer struct {
	Pods   *drivers.SelectorPair // nil: Ranges
	Ranges []netip.Prefix
}

// Port is a range of ports of a protocol, in Neutron's words ("tcp"), or a port by its name in pods.
type Port struct {
	Protocol string
	Min, Max int64 // 0: every port of the protocol
	Name     string
}

// source is what is read of a NetworkPolicy.
type source struct {
	Metadata struct {
		Name      string `json:"name"`
		Namespace string `json:"namespace"`
	} `json:"metadata"`
	Spec struct {
		PodSelector metav1.LabelSelector `json:"podSelector"`
		PolicyTypes []string             `json:"policyTypes"`
		Ingress     []struct {
			From  []map[string]any  `json:"from"`
			Ports []json.RawMessage `json:"ports"`
		} `json:"ingress"`
		Egress []struct {
			To    []map[string]any  `json:"to"`
			Ports []json.RawMessage `json:"ports"`
		} `json:"egress"`
	} `json:"spec"`
}

type port struct {
	Protocol *string         `json:"protocol"`
	Port     json.RawMessage `json:"port"`
	EndPort  *int64          `json:"endPort"`
}

// Read reads a NetworkPolicy. It is an error when it cannot be read whom it is for: no opinion. Peers and ports that
// cannot be read, as those of an API of the future, allow nothing.
func Read(object drivers.Object) (Policy, error) {
	var s source
	if err := object.Into(&s); err != nil {
		return Policy{}, err
	}
	p := Policy{Namespace: s.Metadata.Namespace, Name: s.Metadata.Name}
	if p.Name == "" || p.Namespace == "" {
		return p, fmt.Errorf("object of watch %q has no metadata.name or no metadata.namespace", object.Watch)
	}
	var err error
	if p.Pods, err = metav1.LabelSelectorAsSelector(&s.Spec.PodSelector); err != nil {
		return p, fmt.Errorf("NetworkPolicy %s/%s: podSelector: %w", p.Namespace, p.Name, err)
	}
	types := s.Spec.PolicyTypes
	p.Ingress = len(types) == 0 || slices.Contains(types, "Ingress")
	p.Egress = len(types) == 0 && len(s.Spec.Egress) > 0 || slices.Contains(types, "Egress")
	for i, r := range s.Spec.Ingress {
		if p.Ingress {
			p.In = append(p.In, p.rule(fmt.Sprintf("ingress[%d]", i), "from", r.From, r.Ports))
		}
	}
	for i, r := range s.Spec.Egress {
		if p.Egress {
			p.Out = append(p.Out, p.rule(fmt.Sprintf("egress[%d]", i), "to", r.To, r.Ports))
		}
	}
	return p, nil
}

func (p *Policy) rule(at, list string, peers []map[string]any, ports []json.RawMessage) Rule {
	r := Rule{Anybody: len(peers) == 0, AnyPort: len(ports) == 0}
	for i, element := range peers {
		peer, err := peerOf(p.Namespace, element)
		if err != nil {
			p.Closed = append(p.Closed, fmt.Sprintf("%s.%s[%d]: %v", at, list, i, err))
			continue
		}
		r.Peers = append(r.Peers, peer)
	}
	for i, raw := range ports {
		read, err := readPort(raw)
		if err != nil {
			p.Closed = append(p.Closed, fmt.Sprintf("%s.ports[%d]: %v", at, i, err))
			continue
		}
		r.Ports = append(r.Ports, read)
	}
	return r
}

func peerOf(namespace string, element map[string]any) (Peer, error) {
	if block, ok := element["ipBlock"].(map[string]any); ok {
		ranges, err := rangesOf(block)
		return Peer{Ranges: ranges}, err
	}
	pair, ok := peersAt("").Pair(namespace, element)
	if !ok {
		return Peer{}, fmt.Errorf("it has neither ipBlock nor podSelector nor namespaceSelector")
	}
	if !pair.Readable() {
		return Peer{}, fmt.Errorf("its selectors cannot be read")
	}
	return Peer{Pods: &pair}, nil
}

func rangesOf(block map[string]any) ([]netip.Prefix, error) {
	cidr, _ := block["cidr"].(string)
	whole, err := netip.ParsePrefix(cidr)
	if err != nil {
		return nil, fmt.Errorf("ipBlock: cidr: %w", err)
	}
	left := []netip.Prefix{whole.Masked()}
	list, _ := block["except"].([]any)
	for _, element := range list {
		text, _ := element.(string)
		except, err := netip.ParsePrefix(text)
		if err != nil {
			return nil, fmt.Errorf("ipBlock: except: %w", err)
		}
		var rest []netip.Prefix
		for _, one := range left {
			rest = append(rest, without(one, except.Masked())...)
		}
		left = rest
	}
	return left, nil
}

// without returns the ranges that are what one range has beside another one.
func without(whole, except netip.Prefix) []netip.Prefix {
	switch {
	case !whole.Overlaps(except):
		return []netip.Prefix{whole}
	case except.Bits() <= whole.Bits():
		return nil
	}
	low, high := halves(whole)
	return append(without(low, except), without(high, except)...)
}

// halves cuts a range that has more than one address in two.
func halves(whole netip.Prefix) (low, high netip.Prefix) {
	bits := whole.Bits()
	bytes := whole.Addr().AsSlice()
	bytes[bits/8] |= 0x80 >> (bits % 8)
	upper, _ := netip.AddrFromSlice(bytes)
	return netip.PrefixFrom(whole.Addr(), bits+1), netip.PrefixFrom(upper, bits+1)
}

func readPort(raw json.RawMessage) (Port, error) {
	var p port
	out := Port{Protocol: "tcp"}
	if err := json.Unmarshal(raw, &p); err != nil {
		return out, err
	}
	if p.Protocol != nil {
		out.Protocol = strings.ToLower(*p.Protocol)
	}
	if !slices.Contains([]string{"tcp", "udp", "sctp"}, out.Protocol) {
		return out, fmt.Errorf("protocol %q is none of TCP, UDP, SCTP", out.Protocol)
	}
	if len(p.Port) == 0 || string(p.Port) == "null" {
		if p.EndPort != nil {
			return out, fmt.Errorf("endPort without port")
		}
		return out, nil
	}
	if json.Unmarshal(p.Port, &out.Name) == nil {
		if out.Name == "" || p.EndPort != nil {
			return out, fmt.Errorf("port %q with endPort, or without a name", out.Name)
		}
		return out, nil
	}
	if err := json.Unmarshal(p.Port, &out.Min); err != nil {
		return out, fmt.Errorf("port: %w", err)
	}
	if out.Max = out.Min; p.EndPort != nil {
		out.Max = *p.EndPort
	}
	if out.Min < 1 || out.Max > 65535 || out.Max < out.Min {
		return out, fmt.Errorf("ports %d to %d are no range of ports", out.Min, out.Max)
	}
	return out, nil
}

// Pairs returns the pairs of selectors of all peers, each once, in the order of their texts.
func (p Policy) Pairs() []drivers.SelectorPair {
	byText := map[string]drivers.SelectorPair{}
	for _, r := range slices.Concat(p.In, p.Out) {
		for _, peer := range r.Peers {
			if peer.Pods != nil {
				byText[peer.Pods.String()] = *peer.Pods
			}
		}
	}
	var pairs []drivers.SelectorPair
	for _, pair := range byText {
		pairs = append(pairs, pair)
	}
	slices.SortFunc(pairs, func(a, b drivers.SelectorPair) int { return strings.Compare(a.String(), b.String()) })
	return pairs
}

// PeersRole is the role of the group whose members are the pods that a pair selects: of the cluster, or, where the pair
// selects all pods of one namespace, of that namespace.
func PeersRole(pair drivers.SelectorPair) drivers.Role {
	if pair.Namespace != "" && pair.Objects.Empty() {
		return MembersRole(pair.Namespace)
	}
	return drivers.Role{Role: "network-policy-peers-" + Hash(pair.String())}
}

// MembersRole is the role of the group of all pods of a namespace.
func MembersRole(namespace string) drivers.Role {
	return drivers.Role{Kind: "Namespace", Name: namespace, Role: drivers.NamespaceMembers}
}

// GroupRole is the role of the group of a policy.
func GroupRole(namespace, name string) drivers.Role {
	return drivers.Role{Kind: "NetworkPolicy", Namespace: namespace, Name: name, Role: drivers.NetworkPolicyGroup}
}

// Hash is a short name for a text.
func Hash(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:10])
}
