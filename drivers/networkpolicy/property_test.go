// SPDX-License-Identifier: Apache-2.0

package networkpolicy_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/kuryr/raven/drivers"
	"github.com/kuryr/raven/drivers/internal/conf"
	"github.com/kuryr/raven/drivers/internal/policy"
	"github.com/kuryr/raven/drivers/namespace"
	"github.com/kuryr/raven/drivers/networkpolicy"
	"github.com/kuryr/raven/drivers/networkpolicy/semantics"
	"github.com/kuryr/raven/drivers/pod"
)

// cluster is what a test draws: namespaces, pods with addresses, policies.
type cluster struct {
	random     *rand.Rand
	namespaces []corev1.Namespace
	pods       []corev1.Pod
	policies   []networkingv1.NetworkPolicy
	addresses  map[string]map[bool]netip.Addr // by namespace/name, and whether it is IPv4
	services   []corev1.Service               // with a virtual address of each IP version, the same in addresses
	backends   map[string][]*corev1.Pod       // by namespace/name of a Service
}

func drawn(seed uint64) *cluster {
	c := &cluster{
		random: rand.New(rand.NewPCG(seed, 7)), addresses: map[string]map[bool]netip.Addr{},
		backends: map[string][]*corev1.Pod{},
	}
	for i := range 3 {
		ns := corev1.Namespace{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Namespace"}}
		ns.Name, ns.Labels = fmt.Sprintf("ns%d", i), c.labels()
		c.namespaces = append(c.namespaces, ns)
	}
	for i := range 9 {
		p := corev1.Pod{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}}
		p.Namespace, p.Name, p.Labels = fmt.Sprintf("ns%d", i%3), fmt.Sprintf("p%d", i), c.labels()
		for n, protocol := range []corev1.Protocol{corev1.ProtocolTCP, corev1.ProtocolUDP} {
			number := int32(80 + n)
			if c.random.IntN(6) == 0 {
				number += 100
			}
			port := corev1.ContainerPort{Name: fmt.Sprintf("web-%d", n), ContainerPort: number, Protocol: protocol}
			p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Ports: []corev1.ContainerPort{port}})
		}
		c.pods = append(c.pods, p)
		c.addresses[p.Namespace+"/"+p.Name] = map[bool]netip.Addr{
			true:  netip.AddrFrom4([4]byte{10, 0, byte(i % 3), byte(10 + i*20)}),
			false: netip.MustParseAddr(fmt.Sprintf("fd00:%d::%x", i%3, 16+i)),
		}
	}
	for i := range c.random.IntN(5) {
		c.policies = append(c.policies, c.policy(i))
	}
	for i := range 4 {
		c.service(i)
	}
	return c
}

// targetPort is the port of pods that Services lead to.
const targetPort = 80

// service draws a Service whose one port, TCP and UDP, leads to port 80 of some of the pods of its namespace.
func (c *cluster) service(i int) {
	s := corev1.Service{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Service"}}
	s.Namespace, s.Name = fmt.Sprintf("ns%d", i%3), fmt.Sprintf("s%d", i)
	four, six := fmt.Sprintf("172.30.0.%d", 10+i), fmt.Sprintf("fd99::%d", 10+i)
	s.Spec.ClusterIP, s.Spec.ClusterIPs = four, []string{four, six}
	for _, protocol := range []corev1.Protocol{corev1.ProtocolTCP, corev1.ProtocolUDP} {
		s.Spec.Ports = append(s.Spec.Ports, corev1.ServicePort{
			Name: strings.ToLower(string(protocol)), Protocol: protocol, Port: []int32{80, 9000}[c.random.IntN(2)],
		})
	}
	key := s.Namespace + "/" + s.Name
	selector := c.selector()
	for j := range c.pods {
		if c.pods[j].Namespace == s.Namespace && matches(selector, c.pods[j].Labels) {
			c.backends[key] = append(c.backends[key], &c.pods[j])
		}
	}
	c.addresses[key] = map[bool]netip.Addr{true: netip.MustParseAddr(four), false: netip.MustParseAddr(six)}
	c.services = append(c.services, s)
}

// slice is the EndpointSlice of a Service for one IP version.
func (c *cluster) slice(s *corev1.Service, ip4 bool) map[string]any {
	var endpoints, ports []any
	for _, p := range c.backends[s.Namespace+"/"+s.Name] {
		endpoints = append(endpoints, map[string]any{
			"addresses": []any{c.addresses[p.Namespace+"/"+p.Name][ip4].String()},
			"targetRef": map[string]any{"kind": "Pod", "namespace": p.Namespace, "name": p.Name},
		})
	}
	for _, port := range s.Spec.Ports {
		ports = append(ports, map[string]any{
			"name": port.Name, "protocol": string(port.Protocol), "port": float64(targetPort),
		})
	}
	version := map[bool]string{true: "IPv4", false: "IPv6"}[ip4]
	return map[string]any{
		"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": version,
		"metadata": map[string]any{
			"namespace": s.Namespace, "name": s.Name + "-" + strings.ToLower(version),
			"labels": map[string]any{"kubernetes.io/service-name": s.Name},
		},
		"endpoints": endpoints, "ports": ports,
	}
}

func (c *cluster) labels() map[string]string {
	set := map[string]string{}
	for i := range 2 {
		if c.random.IntN(3) > 0 {
			set[fmt.Sprintf("k%d", i)] = fmt.Sprintf("v%d", c.random.IntN(2))
		}
	}
	return set
}

func (c *cluster) selector() metav1.LabelSelector {
	key, value := fmt.Sprintf("k%d", c.random.IntN(2)), fmt.Sprintf("v%d", c.random.IntN(2))
	switch c.random.IntN(4) {
	case 0:
		return metav1.LabelSelector{}
	case 1:
		operator := []metav1.LabelSelectorOperator{
			metav1.LabelSelectorOpIn, metav1.LabelSelectorOpNotIn, metav1.LabelSelectorOpExists,
			metav1.LabelSelectorOpDoesNotExist,
		}[c.random.IntN(4)]
		r := metav1.LabelSelectorRequirement{Key: key, Operator: operator}
		if operator == metav1.LabelSelectorOpIn || operator == metav1.LabelSelectorOpNotIn {
			r.Values = []string{value, "v9"}
		}
		return metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{r}}
	default:
		return metav1.LabelSelector{MatchLabels: map[string]string{key: value}}
	}
}

func (c *cluster) peer() networkingv1.NetworkPolicyPeer {
	selector, other := c.selector(), c.selector()
	switch c.random.IntN(5) {
	case 0:
		blocks := []networkingv1.IPBlock{
			{CIDR: "10.0.0.0/8", Except: []string{"10.0.1.0/24"}},
			{CIDR: "10.0.0.0/22", Except: []string{"10.0.0.64/26"}},
			{CIDR: "0.0.0.0/0"},
			{CIDR: "0.0.0.0/0", Except: []string{"10.0.0.0/24", "10.0.2.128/25"}},
			{CIDR: "fd00::/16", Except: []string{"fd00:1::/32"}},
			{CIDR: "::/0"},
			{CIDR: "10.0.0.10/32"},
		}
		return networkingv1.NetworkPolicyPeer{IPBlock: &blocks[c.random.IntN(len(blocks))]}
	case 1:
		return networkingv1.NetworkPolicyPeer{NamespaceSelector: &selector}
	case 2:
		return networkingv1.NetworkPolicyPeer{PodSelector: &selector}
	default:
		return networkingv1.NetworkPolicyPeer{NamespaceSelector: &selector, PodSelector: &other}
	}
}

func (c *cluster) rule() (peers []networkingv1.NetworkPolicyPeer, ports []networkingv1.NetworkPolicyPort) {
	for range c.random.IntN(3) {
		peers = append(peers, c.peer())
	}
	for range c.random.IntN(3) {
		protocol := []corev1.Protocol{corev1.ProtocolTCP, corev1.ProtocolUDP, corev1.ProtocolSCTP}[c.random.IntN(3)]
		port := networkingv1.NetworkPolicyPort{Protocol: &protocol}
		switch c.random.IntN(5) {
		case 0:
		case 1:
			port.Port = new(intstr.FromString(fmt.Sprintf("web-%d", c.random.IntN(2))))
		case 2:
			port.Port, port.EndPort = new(intstr.FromInt32(79)), new(int32(79+c.random.Int32N(4)))
		default:
			port.Port = new(intstr.FromInt32(80 + c.random.Int32N(2)))
			if c.random.IntN(3) == 0 {
				port.Protocol = nil // TCP
			}
		}
		ports = append(ports, port)
	}
	return peers, ports
}

func (c *cluster) policy(i int) networkingv1.NetworkPolicy {
	p := networkingv1.NetworkPolicy{
		TypeMeta: metav1.TypeMeta{APIVersion: "networking.k8s.io/v1", Kind: "NetworkPolicy"},
	}
	p.Namespace, p.Name, p.Spec.PodSelector = fmt.Sprintf("ns%d", c.random.IntN(3)), fmt.Sprintf("np%d", i), c.selector()
	for range c.random.IntN(3) {
		peers, ports := c.rule()
		p.Spec.Ingress = append(p.Spec.Ingress, networkingv1.NetworkPolicyIngressRule{From: peers, Ports: ports})
	}
	for range c.random.IntN(3) {
		peers, ports := c.rule()
		p.Spec.Egress = append(p.Spec.Egress, networkingv1.NetworkPolicyEgressRule{To: peers, Ports: ports})
	}
	p.Spec.PolicyTypes = [][]networkingv1.PolicyType{
		nil, {"Ingress"}, {"Egress"}, {"Ingress", "Egress"},
	}[c.random.IntN(4)]
	return p
}

// probe is one packet between two pods.
type probe struct {
	from, to *corev1.Pod
	ip4      bool
	protocol corev1.Protocol
	port     int32
}

// The truth, from the words of the API.

func (c *cluster) allowed(p probe) bool {
	return c.lets(p, semantics.Egress) && c.lets(p, semantics.Ingress)
}

// end is a pod, or the virtual address of a Service, as an end of a connection.
func (c *cluster) end(of *corev1.Pod, ip4 bool) semantics.End {
	address := c.addresses[of.Namespace+"/"+of.Name][ip4]
	end := semantics.End{Pod: of, Range: netip.PrefixFrom(address, address.BitLen())}
	if at := slices.IndexFunc(c.namespaces, func(ns corev1.Namespace) bool { return ns.Name == of.Namespace }); at >= 0 {
		end.NamespaceLabels = c.namespaces[at].Labels
	}
	return end
}

// connection is a probe in the words of what judges it.
func (c *cluster) connection(p probe) semantics.Connection {
	return semantics.Connection{From: c.end(p.from, p.ip4), To: c.end(p.to, p.ip4), Protocol: p.protocol, Port: p.port}
}

// lets says whether the policies of a pod allow a packet in one direction.
func (c *cluster) lets(p probe, direction networkingv1.PolicyType) bool {
	return semantics.Judge(c.policies, c.connection(p), direction).Allowed
}

func matches(selector metav1.LabelSelector, set map[string]string) bool {
	parsed, err := metav1.LabelSelectorAsSelector(&selector)
	if err != nil {
		panic(err)
	}
	return parsed.Matches(labels.Set(set))
}

// The cloud, as the drivers want it.

// cloud is what the Sets come to: rules by group, groups by port.
type cloud struct {
	rules   map[string][]drivers.SecurityGroupRule // the remote group is in RemoteGroupID.Literal
	groups  map[string]map[string]bool             // by namespace/name of the pod
	closed  bool                                   // something could not be expressed
	objects []map[string]any
	asked   map[string]semantics.Group
	t       *testing.T
}

// instance returns a driver that is told of the others, with its watches.
func instance(t *testing.T, d drivers.Driver) drivers.Driver {
	t.Helper()
	if aware, ok := d.(drivers.CoreAware); ok {
		aware.Core([]string{drivers.DriverCapability(policy.Driver)})
	}
	set := map[string]any{
		conf.OptFamilies: conf.DualStack, conf.OptServiceCIDR: []string{"10.96.0.0/16", "fd01::/112"},
	}
	given := map[string]map[string]any{conf.SubnetGroup: {}}
	for _, o := range d.Info().Options {
		if value, ok := set[o.Name]; ok {
			given[conf.SubnetGroup][o.Name] = value
		}
	}
	values, err := drivers.DefaultValues(d.Info().Options, given)
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Configure(t.Context(), values); err != nil {
		t.Fatal(err)
	}
	return d
}

func generic(t *testing.T, object any) map[string]any {
	t.Helper()
	raw, err := json.Marshal(object)
	if err != nil {
		t.Fatal(err)
	}
	var out map[string]any
	if err := json.Unmarshal(raw, &out); err != nil {
		t.Fatal(err)
	}
	return out
}

// translate asks a driver for one object's Set, answers its needs, and checks the Set.
func (w *cloud) translate(d drivers.Driver, object map[string]any) drivers.Set {
	w.t.Helper()
	watches := d.Watches()
	source, err := watches[0].Object(object)
	if err != nil {
		w.t.Fatal(err)
	}
	answers := map[drivers.Need][]drivers.Object{}
	for round := range drivers.MaxRounds {
		needs := drivers.NewNeeds(answers).WithRound(round + 1)
		set, err := d.Translate(w.t.Context(), source, needs)
		if err != nil {
			w.t.Fatalf("%s: %v", source.Raw, err)
		}
		if !needs.Open() {
			if err := set.Validate(d.Info()); err != nil {
				w.t.Fatal(err)
			}
			return set
		}
		for _, need := range needs.Asked() {
			if answers[need], err = drivers.Answer(watches, need, w.objects); err != nil {
				w.t.Fatal(err)
			}
		}
	}
	w.t.Fatalf("%s: its needs do not settle", source.Raw)
	return drivers.Set{}
}

// groupName is how a test calls the group that a value of a Set leads to.
func groupName(owner string, set drivers.Set, value drivers.Value) string {
	if value.Ref.Role != nil {
		return value.Ref.Role.String()
	}
	for _, r := range set.Resources {
		if r.Name == value.Ref.Name && r.Claim != "" {
			return drivers.Role{Role: r.Claim}.String()
		}
		if r.Name == value.Ref.Name && len(r.Exports) > 0 {
			kind, rest, _ := strings.Cut(owner, " ")
			namespace, name, ok := strings.Cut(rest, "/")
			if !ok {
				namespace, name = "", rest
			}
			return drivers.Role{Kind: kind, Namespace: namespace, Name: name, Role: r.Exports[0]}.String()
		}
	}
	return owner + " " + value.Ref.Name
}

func (w *cloud) take(owner string, set drivers.Set) {
	w.closed = w.closed || slices.ContainsFunc(set.Diagnostics, func(d drivers.Diagnostic) bool {
		return d.Reason != "ServiceClosed" // which concerns no pod's own address
	})
	for _, r := range set.Resources {
		switch spec := r.Spec.(type) {
		case drivers.SecurityGroupRule:
			group := groupName(owner, set, spec.SecurityGroupID)
			if !spec.RemoteGroupID.IsZero() {
				spec.RemoteGroupID = drivers.Text(groupName(owner, set, spec.RemoteGroupID))
			}
			w.rules[group] = append(w.rules[group], spec)
		case drivers.Port:
			w.groups[strings.TrimPrefix(owner, "Pod ")] = map[string]bool{}
			for _, value := range spec.SecurityGroups {
				w.groups[strings.TrimPrefix(owner, "Pod ")][groupName(owner, set, value)] = true
			}
		}
	}
}

func (c *cluster) cloud(t *testing.T) *cloud {
	t.Helper()
	w := &cloud{t: t, rules: map[string][]drivers.SecurityGroupRule{}, groups: map[string]map[string]bool{}}
	for i := range c.namespaces {
		w.objects = append(w.objects, generic(t, c.namespaces[i]))
	}
	for i := range c.pods {
		w.objects = append(w.objects, generic(t, c.pods[i]))
	}
	for i := range c.policies {
		w.objects = append(w.objects, generic(t, c.policies[i]))
	}
	sources := len(w.objects)
	for i := range c.services {
		s := &c.services[i]
		w.objects = append(w.objects, generic(t, s), c.slice(s, true), c.slice(s, false))
	}
	of := map[string]drivers.Driver{
		"Namespace": instance(t, namespace.New()), "Pod": instance(t, pod.New()),
		"NetworkPolicy": instance(t, networkpolicy.New()),
	}
	for _, object := range w.objects[:sources] {
		metadata, _ := object["metadata"].(map[string]any)
		kind, _ := object["kind"].(string)
		owner := fmt.Sprint(metadata["namespace"], "/", metadata["name"])
		if kind == "Namespace" {
			owner = fmt.Sprint(metadata["name"])
		}
		w.take(kind+" "+owner, w.translate(of[kind], object))
	}
	return w
}

// allowed is what Neutron's groups let through.
func (w *cloud) allowed(c *cluster, p probe) bool {
	return w.lets(c, p, semantics.Egress) && w.lets(c, p, semantics.Ingress)
}

func (w *cloud) lets(c *cluster, p probe, direction networkingv1.PolicyType) bool {
	own, other := w.port(p.from), w.port(p.to)
	if direction == semantics.Ingress {
		own, other = other, own
	}
	return len(semantics.Pass(own, &other, w.named(), c.connection(p), direction)) > 0
}

// port is a pod's port; the virtual address of a Service is in no group.
func (w *cloud) port(of *corev1.Pod) semantics.Port {
	return semantics.Port{Groups: slices.Collect(maps.Keys(w.groups[of.Namespace+"/"+of.Name]))}
}

// named are the groups by their names, which are their ids here.
func (w *cloud) named() map[string]semantics.Group {
	if w.asked != nil {
		return w.asked
	}
	w.asked = map[string]semantics.Group{}
	for name, rules := range w.rules {
		g := semantics.Group{ID: name}
		for _, r := range rules {
			one := semantics.Rule{Direction: *r.Direction, EtherType: *r.EtherType, RemoteGroup: r.RemoteGroupID.Literal}
			if r.Protocol != nil {
				one.Protocol = *r.Protocol
			}
			if r.PortRangeMin != nil {
				one.Min, one.Max = int32(*r.PortRangeMin), int32(*r.PortRangeMax)
			}
			if r.RemoteIPPrefix != nil {
				one.Range = netip.MustParsePrefix(*r.RemoteIPPrefix)
			}
			g.Rules = append(g.Rules, one)
		}
		w.asked[name] = g
	}
	return w.asked
}

// clusters is how many are drawn.
func clusters() uint64 {
	if testing.Short() {
		return 40
	}
	return 150
}

// TestGroupsMeanWhatPoliciesMean: for drawn policies and pods, what the groups let through is what the policies allow;
// where something cannot be expressed, and the driver says so, it is closed.
func TestGroupsMeanWhatPoliciesMean(t *testing.T) {
	t.Parallel()
	probes, inexact, open := 0, 0, 0
	for seed := range clusters() {
		c := drawn(seed)
		w := c.cloud(t)
		if w.closed {
			inexact++
		}
		for i := range c.pods {
			for j := range c.pods {
				if i == j {
					continue // a pod always reaches itself
				}
				for _, protocol := range []corev1.Protocol{corev1.ProtocolTCP, corev1.ProtocolUDP, corev1.ProtocolSCTP} {
					for _, port := range []int32{79, 80, 81, 82, 180, 181, 9999} {
						p := probe{&c.pods[i], &c.pods[j], port%2 == 0, protocol, port}
						want, got := c.allowed(p), w.allowed(c, p)
						probes++
						if got {
							open++
						}
						if got && !want || want && !got && !w.closed {
							text, _ := json.MarshalIndent(c.policies, "", " ")
							t.Fatalf("seed %d: %s/%s → %s/%s %s %d (IPv4 %v): the groups say %v, the policies %v:\n%s", seed,
								p.from.Namespace, p.from.Name, p.to.Namespace, p.to.Name, protocol, port, p.ip4, got, want, text)
						}
					}
				}
			}
		}
	}
	if inexact > int(clusters()/2) || open < probes/5 || open > probes*19/20 {
		t.Errorf("%d probes, %d open, %d clusters with ports that cannot be expressed: what is drawn shows little", probes,
			open, inexact)
	}
	t.Logf("%d probes, %d open, %d of %d clusters with something that cannot be expressed", probes, open, inexact,
		clusters())
}

// TestServicesMeanWhatTheirEndpointsMean: OVN judges a connection to a Service by its virtual address, and by the
// endpoint that was chosen. The first is let out only where every endpoint is, so that nothing passes by it alone; and
// where one policy lets its pods reach all endpoints, the Service is reached.
func TestServicesMeanWhatTheirEndpointsMean(t *testing.T) {
	t.Parallel()
	probes, open := 0, 0
	for seed := range clusters() {
		c := drawn(seed)
		w := c.cloud(t)
		for i := range c.services {
			for j := range c.pods {
				for _, port := range c.services[i].Spec.Ports {
					for _, ip4 := range []bool{true, false} {
						want, ranged := c.reaches(&c.pods[j], &c.services[i], port.Protocol, ip4)
						got := w.letsTo(c, &c.pods[j], &c.services[i], port, ip4)
						if !ranged {
							probes++
						}
						if got && !ranged {
							open++
						}
						if got && !want.every && !ranged || want.byOne && !got && !w.closed {
							text, _ := json.MarshalIndent(c.policies, "", " ")
							t.Fatalf("seed %d: %s → Service %s %s (IPv4 %v): the groups say %v, the policies %+v:\n%s", seed,
								c.pods[j].Name, c.services[i].Name, port.Protocol, ip4, got, want, text)
						}
					}
				}
			}
		}
	}
	if open < probes/10 || open > probes*19/20 {
		t.Errorf("%d probes of pods that are isolated, %d open: what is drawn shows little", probes, open)
	}
	t.Logf("%d probes of pods that are isolated, %d open", probes, open)
}

// reached says which endpoints of a Service the policies let a pod reach.
type reached struct {
	every bool // all of them, by one policy or another, and there are some
	byOne bool // all of them by one policy, or because none isolates the pod
}

// reaches says what the policies let a pod reach of a Service, and whether a policy allows ranges with the virtual
// address among them: of these it does not say where the connection ends.
func (c *cluster) reaches(
	from *corev1.Pod, s *corev1.Service, protocol corev1.Protocol, ip4 bool,
) (r reached, ranged bool) {
	backends := c.backends[s.Namespace+"/"+s.Name]
	all := func(policies []networkingv1.NetworkPolicy) bool {
		one := *c
		one.policies = policies
		return len(backends) > 0 && !slices.ContainsFunc(backends, func(to *corev1.Pod) bool {
			return !one.lets(probe{from, to, ip4, protocol, targetPort}, semantics.Egress)
		})
	}
	r.every = all(c.policies)
	isolated := false
	virtual := &corev1.Pod{}
	virtual.Namespace, virtual.Name = s.Namespace, s.Name
	for i, np := range c.policies {
		if !semantics.Isolates(&np, from, semantics.Egress) {
			continue
		}
		isolated = true
		r.byOne = r.byOne || all(c.policies[i:i+1])
		for _, rule := range np.Spec.Egress {
			blocks := slices.DeleteFunc(slices.Clone(rule.To), func(peer networkingv1.NetworkPolicyPeer) bool {
				return peer.IPBlock == nil
			})
			ranged = ranged || len(rule.To) == 0 ||
				len(blocks) > 0 && semantics.AnyPeer(np.Namespace, blocks, c.end(virtual, ip4))
		}
	}
	r.byOne = r.byOne || !isolated
	return r, ranged || !isolated
}

// letsTo says whether the groups of a pod let it reach a virtual address.
func (w *cloud) letsTo(c *cluster, from *corev1.Pod, s *corev1.Service, port corev1.ServicePort, ip4 bool) bool {
	virtual := &corev1.Pod{}
	virtual.Namespace, virtual.Name = s.Namespace, s.Name
	return w.lets(c, probe{from, virtual, ip4, port.Protocol, port.Port}, semantics.Egress)
}
