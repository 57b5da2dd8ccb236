// SPDX-License-Identifier: Apache-2.0

package semantics_test

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/kuryr/raven/drivers/networkpolicy/semantics"
)

func address(text string) []netip.Prefix {
	a := netip.MustParseAddr(text)
	return []netip.Prefix{netip.PrefixFrom(a, a.BitLen())}
}

func party(name, ip string, groups ...string) semantics.Party {
	namespace, app, _ := strings.Cut(name, "/")
	pod := &corev1.Pod{}
	pod.Namespace, pod.Name, pod.Labels = namespace, app, map[string]string{"app": app}
	return semantics.Party{
		Name: name, Pod: pod, Addresses: address(ip), Port: &semantics.Port{ID: "port-" + app, Groups: groups},
	}
}

// world has a policy that lets cart reach web at 80, as the driver makes it.
func world() semantics.World {
	p := networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}}
	p.Spec.PodSelector = metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}
	p.Spec.Ingress = []networkingv1.NetworkPolicyIngressRule{{
		From: []networkingv1.NetworkPolicyPeer{{
			PodSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "cart"}},
		}},
		Ports: []networkingv1.NetworkPolicyPort{{Port: new(intstr.FromInt32(80))}},
	}}
	rule := func(id, direction string) semantics.Rule {
		return semantics.Rule{ID: id, Direction: direction, EtherType: "IPv4"}
	}
	web := rule("r1", "ingress")
	web.Protocol, web.Min, web.Max, web.RemoteGroup = "tcp", 80, 80, "peers"
	probes := rule("r2", "ingress")
	probes.Range = netip.MustParsePrefix("192.0.2.1/32")
	itself := rule("r6", "ingress")
	itself.Range, itself.Itself = netip.MustParsePrefix("10.96.0.0/16"), true
	return semantics.World{
		Policies: []networkingv1.NetworkPolicy{p},
		Groups: map[string]semantics.Group{
			"web":   {ID: "web", Name: "shop-web", Driver: semantics.DriverNetworkPolicy, Rules: []semantics.Rule{web}},
			"peers": {ID: "peers", Name: "peers-1", Driver: "shared"},
			"in":    {ID: "in", Name: "shop-in", Driver: "namespace", Rules: []semantics.Rule{rule("r3", "ingress")}},
			"out":   {ID: "out", Name: "shop-out", Driver: "namespace", Rules: []semantics.Rule{rule("r4", "egress")}},
			"node":  {ID: "node", Name: "node-1", Driver: semantics.DriverNode, Rules: []semantics.Rule{probes}},
			"all":   {ID: "all", Name: "shop-members", Driver: "namespace", Rules: []semantics.Rule{itself}},
			"own":   {ID: "own", Name: "by-hand", Rules: []semantics.Rule{rule("r5", "ingress")}},
		},
	}
}

// TestAdvice: where policies and groups differ, each reason is told from the others.
func TestAdvice(t *testing.T) {
	t.Parallel()
	cart := party("shop/cart", "10.0.0.1", "out", "peers")
	web := party("shop/web", "10.0.0.2", "web", "out")
	without := party("shop/web", "10.0.0.2", "out")
	portless := web
	portless.Port = nil
	unprotected := web
	unprotected.Port = &semantics.Port{ID: "port-web", Unprotected: true}
	node := semantics.Party{Name: "192.0.2.1", Addresses: address("192.0.2.1")}
	virtual := semantics.Party{Name: "10.96.0.7", Addresses: address("10.96.0.7")}
	bare := world()
	bare.Groups["web"] = semantics.Group{ID: "web", Name: "shop-web", Driver: semantics.DriverNetworkPolicy}
	for _, c := range []struct {
		name           string
		world          semantics.World
		from, to       semantics.Party
		port           int32
		allowed, cloud bool
		says           string
	}{
		{"as it should be", world(), cart, web, 80, true, true, ""},
		{"another port", world(), cart, web, 81, false, false, ""},
		{"no port yet", world(), cart, portless, 80, true, false, "no port in the cloud"},
		{"the port lacks the group", world(), cart, without, 80, true, false, "not in the security group of policy shop/web"},
		{
			"the peer lacks the group", world(), party("shop/cart", "10.0.0.1", "out"), web, 80, true, false,
			"pod shop/cart is not in the security group of the policy's peers (peers-1)",
		},
		{"the group lacks the rule", bare, cart, web, 80, true, false, "no rule for it: raven describe networkpolicy/web"},
		{
			"still open", world(), cart, party("shop/web", "10.0.0.2", "web", "in"), 81, false, true,
			`still in security group "shop-in"`,
		},
		{
			"a foreign group", world(), cart, party("shop/web", "10.0.0.2", "own"), 81, false, true,
			`"by-hand" is not of this cluster`,
		},
		{"no port security", world(), cart, unprotected, 81, false, true, "port security is off"},
		{"no group at all", world(), party("shop/cart", "10.0.0.1"), web, 81, false, false, "no policy isolates the pod"},
		{"itself by its Service", world(), virtual, party("shop/web", "10.0.0.2", "web", "all"), 8080, true, true, ""},
		{"probes of the node", world(), node, party("shop/web", "10.0.0.2", "web", "node"), 8080, true, true, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			ports := &semantics.PortRange{Protocol: corev1.ProtocolTCP, First: c.port, Last: c.port}
			cases := semantics.Explain(c.world, c.from, c.to, ports)
			if len(cases) != 1 || cases[0].Allowed != c.allowed || cases[0].Cloud != c.cloud {
				t.Fatalf("%+v", cases)
			}
			advice := ""
			for _, s := range cases[0].Sides {
				advice += s.Advice
			}
			if cases[0].Differ != (c.says != "") || !strings.Contains(advice, c.says) || (c.says == "") != (advice == "") {
				t.Errorf("differ %t: %q", cases[0].Differ, advice)
			}
		})
	}
}

// TestPortsAndRangesAreCut: what holds alike is told once, and ranges are cut where a policy or a rule ends.
func TestPortsAndRangesAreCut(t *testing.T) {
	t.Parallel()
	w := world()
	w.Policies[0].Spec.Ingress[0].From = []networkingv1.NetworkPolicyPeer{{
		IPBlock: &networkingv1.IPBlock{CIDR: "10.1.0.0/16", Except: []string{"10.1.128.0/18"}},
	}}
	all := semantics.Party{Name: "10.1.0.0/16", Addresses: []netip.Prefix{netip.MustParsePrefix("10.1.0.0/16")}}
	var got []string
	for _, c := range semantics.Explain(w, all, party("shop/web", "10.0.0.2", "web"), nil) {
		if c.Allowed {
			got = append(got, strings.Join(c.Ports, " ")+": "+strings.Join(c.Addresses, ", "))
		}
	}
	want := []string{"80/tcp: 10.1.0.0/17 to 10.0.0.2, 10.1.192.0/18 to 10.0.0.2"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	open := semantics.Explain(w, party("shop/web", "10.0.0.2", "out"), party("shop/cart", "10.0.0.1", "in"), nil)
	if len(open) != 1 || !open[0].Allowed || strings.Join(open[0].Ports, " ") != "every port" {
		t.Errorf("%+v", open)
	}
}
