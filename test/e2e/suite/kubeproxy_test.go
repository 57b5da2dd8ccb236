// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package suite

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"testing"
	"time"
)

// TestKubeProxy sends packets to Services that OVN itself serves, without Octavia. Who cannot be told from
// kube-proxy: pods on the same logical switch and on another one, the endpoint itself, and a machine outside. What it
// had in OVN is gone at the end.
func TestKubeProxy(t *testing.T) {
	s := proxying(t, "proxy", nil)
	p := newProxied(t, s)
	for _, part := range []struct {
		name string
		run  func(*proxied, *testing.T)
	}{
		{"balanced", (*proxied).balanced},
		{"refused", (*proxied).refusal},
		{"hairpin", (*proxied).hairpin},
		{"removed", (*proxied).removed},
		{"drained", (*proxied).drained},
		{"seen", (*proxied).clients},
		{"affinity", (*proxied).affinity},
		{"outside", (*proxied).outside},
		{"other-subnet", (*proxied).otherSubnet},
		{"source-ranges", (*proxied).sourceRanges},
		{"killed", (*proxied).kills},
		{"repair", (*proxied).repair},
		{"beside-octavia", (*proxied).besideOctavia},
		{"terminating", (*proxied).terminating},
		{"not-ready", (*proxied).notReady},
		{"by-hand", (*proxied).byHand},
		{"affinity-moves", (*proxied).affinityMoves},
		{"affinity-stays", (*proxied).affinityStays},
		{"ports", (*proxied).ports},
		{"policies", (*proxied).policies},
		{"unserved", (*proxied).unserved},
		{"other-class", (*proxied).otherClass},
		{"asked", (*proxied).askedFor},
	} {
		if !t.Run(part.name, func(t *testing.T) { part.run(p, t) }) {
			return // each begins with what the one before has put right again
		}
	}
	deleteService(t, "kp-a", "web")
	s.settled(t)
	for _, n := range []*nic{p.near, p.far} {
		n.unanswered(t, "tcp", net.JoinHostPort(p.vip, "80"))
	}
}

// proxied is a Service with three endpoints, and its clients.
type proxied struct {
	*site
	vip        string
	near, far  *nic // on the endpoints' switch, on another one
	endpoint   map[string]*nic
	everywhere []string // the names of the endpoints
	brief      int      // Services that came and went
}

func newProxied(t *testing.T, s *site) *proxied {
	t.Helper()
	createNamespace(t, "kp-a")
	createNamespace(t, "kp-b")
	createService(t, "kp-a", "web", bothProtocols())
	names := []string{"w1", "w2", "w3"}
	webPods(t, "kp-a", names...)
	createPod(t, "kp-a", "client")
	createPod(t, "kp-b", "client")
	endpoints(t, "kp-a", "web", len(names))
	s.settled(t)
	p := &proxied{site: s, near: plug(t, "kp-a", "client"), far: plug(t, "kp-b", "client"), endpoint: map[string]*nic{}}
	for _, name := range names {
		p.endpoint[name] = plug(t, "kp-a", name)
		p.everywhere = append(p.everywhere, "kp-a/"+name)
	}
	p.vip, _ = addressOf(t, "kp-a", "web")
	return p
}

// all lets clients reach all endpoints.
func (p *proxied) all(t *testing.T, address string, clients ...*nic) {
	t.Helper()
	for _, client := range clients {
		for _, protocol := range []string{"tcp", "udp"} {
			client.balanced(t, protocol, address, slices.Clone(p.everywhere)...)
		}
	}
}

// only leaves these endpoints ready.
func (p *proxied) only(t *testing.T, ready ...string) {
	t.Helper()
	for name := range p.endpoint {
		readiness(t, "kp-a", name, slices.Contains(ready, name))
	}
	endpoints(t, "kp-a", "web", len(ready))
	p.settled(t)
}

func (p *proxied) balanced(t *testing.T) {
	p.all(t, p.vip, p.near, p.far)
	p.only(t, "w1", "w3")
	for _, client := range []*nic{p.near, p.far} {
		client.balanced(t, "tcp", p.vip, "kp-a/w1", "kp-a/w3")
		client.balanced(t, "udp", p.vip, "kp-a/w1", "kp-a/w3")
	}
	p.only(t, "w1", "w2", "w3")
}

// refusal is a Service without endpoints: connections are refused, and do not hang.
func (p *proxied) refusal(t *testing.T) {
	spec := bothProtocols()
	spec["selector"] = map[string]any{"app": "nobody"}
	createService(t, "kp-a", "empty", spec)
	endpoints(t, "kp-a", "empty", 0)
	p.settled(t)
	vip, _ := addressOf(t, "kp-a", "empty")
	for _, client := range []*nic{p.near, p.far} {
		client.refused(t, "tcp", vip)
		client.refused(t, "udp", vip)
	}
	deleteService(t, "kp-a", "empty")
	p.settled(t)
}

// hairpin is an endpoint that reaches itself through the Service.
func (p *proxied) hairpin(t *testing.T) {
	p.only(t, "w1")
	p.endpoint["w1"].balanced(t, "tcp", p.vip, "kp-a/w1")
	p.endpoint["w1"].balanced(t, "udp", p.vip, "kp-a/w1")
	p.only(t, "w1", "w2", "w3")
	p.all(t, p.vip, p.endpoint["w1"])
}

// removed is an endpoint that goes while datagrams flow to it: they go to another one, though they come from the same
// port.
func (p *proxied) removed(t *testing.T) {
	for _, client := range []*nic{p.near, p.far} {
		p.leave(t, client, p.vip)
	}
}

// leave takes the endpoint that a client's datagrams flow to.
func (p *proxied) leave(t *testing.T, client *nic, address string) {
	t.Helper()
	f := client.flow(t, "udp", address)
	who, _ := f.now()
	var others []string
	for name := range p.endpoint {
		if "kp-a/"+name != who {
			others = append(others, name)
		}
	}
	f.ages(t)
	f.forget()
	p.only(t, others...)
	f.leaves(t, who)
	t.Logf("the flow from %s was without an answer for %s at most", client.pod, f.longest().Round(time.Millisecond))
	p.only(t, "w1", "w2", "w3")
}

// drained is an endpoint that turns unready while a connection to it stands: that one goes on, new ones go elsewhere.
func (p *proxied) drained(t *testing.T) {
	for _, client := range []*nic{p.near, p.far} {
		f := client.flow(t, "tcp", p.vip)
		who, _ := f.now()
		var others, named []string
		for name := range p.endpoint {
			if "kp-a/"+name != who {
				others, named = append(others, name), append(named, "kp-a/"+name)
			}
		}
		p.only(t, others...)
		client.balanced(t, "tcp", p.vip, named...)
		f.forget() // from here on it is certain that OVN knows
		client.balanced(t, "tcp", p.vip, named...)
		if last, _ := f.now(); last != who {
			t.Errorf("the connection from %s to %s was answered by %s last", client.pod, who, last)
		}
		f.stays(t, who, still)
		p.only(t, "w1", "w2", "w3")
	}
}

// still is how long a flow that nothing touches may be without an answer: one comes every 20 ms, and the machine has
// more to do.
const still = 2 * time.Second

// clients is as whom endpoints see those who call: as themselves, but for one that reaches itself.
func (p *proxied) clients(t *testing.T) {
	p.only(t, "w1")
	for _, protocol := range []string{"tcp", "udp"} {
		for _, client := range []*nic{p.near, p.far} {
			if as := client.seen(t, protocol, p.vip); as != client.addresses[0] {
				t.Errorf("%s calls by %s and is seen as %s, not as %s", client.pod, protocol, as, client.addresses[0])
			}
		}
		if as := p.endpoint["w1"].seen(t, protocol, p.vip); as != p.vip {
			t.Errorf("the endpoint reaches itself by %s as %s, not as %s", protocol, as, p.vip)
		}
	}
	p.only(t, "w1", "w2", "w3")
}

func (p *proxied) affinity(t *testing.T) {
	patchService(t, "kp-a", "web",
		`{"spec":{"sessionAffinity":"ClientIP","sessionAffinityConfig":{"clientIP":{"timeoutSeconds":600}}}}`)
	p.settled(t)
	for _, client := range []*nic{p.near, p.far} {
		client.keeps(t, "tcp", p.vip, p.everywhere...)
		client.keeps(t, "udp", p.vip, p.everywhere...)
	}
	patchService(t, "kp-a", "web", `{"spec":{"sessionAffinity":"None","sessionAffinityConfig":null}}`)
	p.settled(t)
	p.all(t, p.vip, p.near, p.far)
}

// outside is a floating IP and an address that was asked for: from outside, and from pods as well.
func (p *proxied) outside(t *testing.T) {
	asked := operatorsAddress(t)
	patchService(t, "kp-a", "web", fmt.Sprintf(`{"spec":{"type":"LoadBalancer","externalIPs":[%q]}}`, asked))
	p.settled(t)
	_, floating := addressOf(t, "kp-a", "web")
	if floating == "" {
		t.Fatal("the status names no address")
	}
	out := outside(t)
	for _, address := range []string{floating, asked} {
		p.all(t, address, out, p.near, p.far)
	}
	if as := out.seen(t, "tcp", floating); as != out.addresses[0] {
		t.Errorf("one from outside is seen as %s, not as %s", as, out.addresses[0])
	}
	p.leave(t, out, floating)
	patchService(t, "kp-a", "web", `{"spec":{"sessionAffinity":"ClientIP"}}`)
	p.settled(t)
	out.keeps(t, "tcp", floating, p.everywhere...)
	out.keeps(t, "udp", floating, p.everywhere...)
	patchService(t, "kp-a", "web", `{"spec":{"sessionAffinity":"None","sessionAffinityConfig":null}}`)
	p.only(t)
	for _, client := range []*nic{out, p.near, p.far} {
		client.refused(t, "tcp", floating)
		client.refused(t, "udp", floating)
	}
	p.only(t, "w1", "w2", "w3")
	patchService(t, "kp-a", "web", `{"spec":{"type":"ClusterIP","externalIPs":null}}`)
	p.settled(t)
	out.silence(t, "tcp", floating)
	p.all(t, p.vip, p.far)
	p.routed(t, out, p.vip) // as a node's own network may
	p.all(t, p.vip, out)
}

// otherSubnet is a floating IP of a subnet of the external network that the router itself has no address in: it
// answers there as well.
func (p *proxied) otherSubnet(t *testing.T) {
	prefix, err := netip.ParsePrefix(world.externalCIDR)
	if err != nil {
		lacks(t, "no packets from outside here: neither RAVEN_E2E_STACK nor RAVEN_E2E_EXTERNAL_CIDR is set")
	}
	bytes := prefix.Masked().Addr().As4()
	bytes[2]++
	cidr := netip.PrefixFrom(netip.AddrFrom4(bytes), 24)
	subnet, err := world.admin.create(t.Context(), "subnets", thing{
		"network_id": world.external, "ip_version": 4, "cidr": cidr.String(), "enable_dhcp": false, "name": "e2e-other",
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := world.admin.remove(context.Background(), "subnets", subnet.str("id")); err != nil {
			t.Error(err)
		}
	})
	bytes[3] = 240
	asked := operatorsAt(t, netip.AddrFrom4(bytes))
	patchService(t, "kp-a", "web", fmt.Sprintf(`{"spec":{"externalIPs":[%q]}}`, asked))
	p.settled(t)
	out := outside(t)
	if _, err := sh(t.Context(), "ip", "-n", out.space, "route", "add", cidr.String(), "dev", "eth0"); err != nil {
		t.Fatal(err)
	}
	p.all(t, asked, out, p.far)
	patchService(t, "kp-a", "web", `{"spec":{"externalIPs":null}}`)
	p.settled(t)
	out.silence(t, "tcp", asked)
}

// sourceRanges are more than OVN's load balancers can do: the address is not open to anybody, an Event says so, and
// it is not lost.
func (p *proxied) sourceRanges(t *testing.T) {
	patchService(t, "kp-a", "web", `{"spec":{"type":"LoadBalancer"}}`)
	p.settled(t)
	_, floating := addressOf(t, "kp-a", "web")
	before := floatingIPAt(t, floating)
	out := outside(t)
	p.all(t, floating, out)
	patchService(t, "kp-a", "web", `{"spec":{"loadBalancerSourceRanges":["203.0.113.0/24"]}}`)
	awaitEvent(t, "kp-a", "web", "SourceRangesNotEnforced", "loadBalancerSourceRanges")
	out.silence(t, "tcp", floating)
	p.all(t, p.vip, p.far)
	patchService(t, "kp-a", "web", `{"spec":{"loadBalancerSourceRanges":null}}`)
	p.settled(t)
	p.all(t, floating, out)
	if after := floatingIPAt(t, floating); after != before {
		t.Errorf("the floating IP was %s and is %s", before, after)
	}
	patchService(t, "kp-a", "web", `{"spec":{"type":"ClusterIP"}}`)
	p.settled(t)
}

// floatingIPAt returns the id of the floating IP that has an address.
func floatingIPAt(t *testing.T, address string) string {
	t.Helper()
	found, err := world.cloud.list(t.Context(), "floatingips", "floating_ip_address="+address)
	if err != nil || len(found) != 1 {
		t.Fatalf("at %s there are the floating IPs %v (%v)", address, found, err)
	}
	return found[0].str("id")
}
