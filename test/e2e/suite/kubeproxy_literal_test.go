// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package suite

import (
	"fmt"
	"testing"

	"github.com/kuryr/raven/test/harness"
)

// routed gives the machine outside a route to an address by way of the cluster's router, as an operator's network
// would.
func (s *site) routed(t *testing.T, out *nic, address string) {
	t.Helper()
	all, err := world.cloud.ours(t.Context(), s.cluster)
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range all {
		gateway, _ := o["external_gateway_info"].(map[string]any)
		for _, ip := range thing(gateway).things("external_fixed_ips") {
			if _, err := sh(t.Context(), "ip", "-n", out.space, "route", "replace", address, "via",
				ip.str("ip_address")); err != nil {
				t.Fatal(err)
			}
			return
		}
	}
	t.Fatal("no router has an address outside")
}

// otherClass is a Service whose address somebody else gives it: it is served as it is, on the switches and on the
// router, unless the other one wants its traffic, or limits it.
func (p *proxied) otherClass(t *testing.T) {
	const address = "203.0.113.77"
	spec := bothProtocols()
	spec["type"], spec["loadBalancerClass"] = "LoadBalancer", "example.com/other"
	createService(t, "kp-a", "theirs", spec)
	endpoints(t, "kp-a", "theirs", len(p.endpoint))
	status := func(mode string) {
		t.Helper()
		patchService(t, "kp-a", "theirs",
			fmt.Sprintf(`{"status":{"loadBalancer":{"ingress":[{"ip":%q,"ipMode":%q}]}}}`, address, mode), "status")
	}
	status("VIP")
	out := outside(t)
	p.routed(t, out, address)
	p.all(t, address, out, p.near, p.far)
	if as := out.seen(t, "tcp", address); as != out.addresses[0] {
		t.Errorf("one from outside is seen as %s, not as %s", as, out.addresses[0])
	}
	status("Proxy")
	p.near.silence(t, "tcp", address)
	out.silence(t, "tcp", address)
	status("VIP")
	p.all(t, address, p.near)
	patchService(t, "kp-a", "theirs", `{"spec":{"loadBalancerSourceRanges":["203.0.113.0/24"]}}`)
	awaitEvent(t, "kp-a", "theirs", "IngressNotServed", address)
	out.silence(t, "tcp", address)
	deleteService(t, "kp-a", "theirs")
	p.settled(t)
}

// askedFor is an address that the Service asks for, and one that nobody can read: what there is stays then, and
// endpoints are followed.
func (p *proxied) askedFor(t *testing.T) {
	asked := operatorsAddress(t)
	patchService(t, "kp-a", "web", fmt.Sprintf(`{"spec":{"type":"LoadBalancer","loadBalancerIP":%q}}`, asked))
	out := outside(t)
	p.all(t, asked, out, p.far)
	if told := awaitIngress(t, "kp-a", "web"); told != asked {
		t.Errorf("the status names %s, not %s", told, asked)
	}
	patchService(t, "kp-a", "web", `{"spec":{"loadBalancerIP":"www.example.com"}}`)
	awaitEvent(t, "kp-a", "web", "BadAnnotation", "www.example.com")
	readiness(t, "kp-a", "w2", false)
	for _, client := range []*nic{out, p.far} {
		client.balanced(t, "tcp", asked, "kp-a/w1", "kp-a/w3")
	}
	readiness(t, "kp-a", "w2", true)
	p.all(t, asked, out)
	patchService(t, "kp-a", "web", `{"spec":{"type":"ClusterIP","loadBalancerIP":null}}`)
	out.silence(t, "tcp", asked)
	p.only(t, "w1", "w2", "w3")
}

// literal are addresses that are served as they are: externalIPs of both IP versions, and an IPv6 one for a Service
// of type LoadBalancer.
func (d *dual) literal(t *testing.T) {
	const four, six, asked = "203.0.113.78", "fd00:203::78", "fd00:203::79"
	all := func(address string, clients ...*nic) {
		t.Helper()
		for _, client := range clients {
			client.balanced(t, "tcp", address, "kd-a/w1", "kd-a/w2")
			client.balanced(t, "udp", address, "kd-a/w1", "kd-a/w2")
		}
	}
	patchService(t, "kd-a", "web",
		fmt.Sprintf(`{"spec":{"type":"LoadBalancer","loadBalancerIP":%q,"externalIPs":[%q,%q]}}`, asked, four, six))
	out := outside(t)
	d.routed(t, out, four)
	all(four, out, d.near, d.far)
	all(six, d.near, d.far)
	if told := awaitIngress(t, "kd-a", "web"); told != asked {
		t.Errorf("the status names %s, not %s", told, asked)
	}
	all(asked, d.near, d.far)
	patchService(t, "kd-a", "web", `{"spec":{"type":"ClusterIP","loadBalancerIP":null,"externalIPs":null}}`)
	d.settled(t)
	out.silence(t, "tcp", four)
	for _, address := range []string{six, asked} {
		d.far.silence(t, "tcp", address)
	}
}

// TestKubeProxyApart sends packets to Services of namespaces that are apart: each is served in its own, and from
// outside.
func TestKubeProxyApart(t *testing.T) {
	// No clusterIP is within the range that Raven is told of: OVN's load balancers need no subnet.
	s := proxying(t, "proxyapart",
		harness.Settings{}.Set("namespace_subnet", "topology", "dedicated").Set("namespace_subnet", "service_cidr",
			"10.250.0.0/24"))
	names := []string{"kz-a", "kz-b"}
	for _, name := range names {
		createNamespace(t, name)
		createService(t, name, "web", bothProtocols())
		webPods(t, name, "w1", "w2")
		createPod(t, name, "client")
		endpoints(t, name, "web", 2)
	}
	patchService(t, "kz-a", "web", `{"spec":{"type":"LoadBalancer"}}`)
	s.settled(t)
	client, vip := map[string]*nic{}, map[string]string{}
	for _, name := range names {
		plug(t, name, "w1")
		plug(t, name, "w2")
		client[name] = plug(t, name, "client")
		vip[name], _ = addressOf(t, name, "web")
	}
	_, floating := addressOf(t, "kz-a", "web")
	out := outside(t)
	for _, protocol := range []string{"tcp", "udp"} {
		for _, name := range names {
			client[name].balanced(t, protocol, vip[name], name+"/w1", name+"/w2")
		}
		out.balanced(t, protocol, floating, "kz-a/w1", "kz-a/w2")
		client["kz-a"].silence(t, protocol, vip["kz-b"])
		client["kz-b"].silence(t, protocol, vip["kz-a"])
	}
	if as := client["kz-b"].seen(t, "tcp", floating); as == client["kz-b"].addresses[0] {
		t.Errorf("a pod of another namespace is seen by its own address %s, which nobody can answer", as)
	}
}
