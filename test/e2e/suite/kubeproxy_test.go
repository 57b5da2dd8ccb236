//go:build e2e

package suite

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/kuryr/raven/test/e2e/stack"
)

// TestKubeProxy sends packets to Services that OVN itself serves, without Octavia. Who cannot be told from kube-proxy: pods on the same logical
// switch and on another one, the endpoint itself, and a machine outside. What it had in OVN is gone at the end.
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
		{"affinity", (*proxied).affinity},
		{"outside", (*proxied).outside},
		{"other-subnet", (*proxied).otherSubnet},
		{"source-ranges", (*proxied).sourceRanges},
		{"killed", (*proxied).kills},
		{"repair", (*proxied).repair},
		{"beside-octavia", (*proxied).besideOctavia},
	} {
		t.Run(part.name, func(t *testing.T) { part.run(p, t) })
	}
	deleteService(t, "kp-a", "web")
	s.settled(t)
	for _, n := range []*nic{p.near, p.far} {
		n.silence(t, "tcp", p.vip)
	}
}

// proxied is a Service with three endpoints, and its clients.
type proxied struct {
	*site
	vip        string
	near, far  *nic // on the endpoints' switch, on another one
	endpoint   map[string]*nic
	everywhere []string // the names of the endpoints
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

// removed is an endpoint that goes while datagrams flow to it: they go to another one, though they come from the same port.
func (p *proxied) removed(t *testing.T) {
	for _, client := range []*nic{p.near, p.far} {
		f := client.flow(t, p.vip)
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
}

func (p *proxied) affinity(t *testing.T) {
	patchService(t, "kp-a", "web", `{"spec":{"sessionAffinity":"ClientIP","sessionAffinityConfig":{"clientIP":{"timeoutSeconds":600}}}}`)
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
	p.only(t)
	for _, client := range []*nic{out, p.near, p.far} {
		client.refused(t, "tcp", floating)
	}
	p.only(t, "w1", "w2", "w3")
	patchService(t, "kp-a", "web", `{"spec":{"type":"ClusterIP","externalIPs":null}}`)
	p.settled(t)
	out.silence(t, "tcp", floating)
	p.all(t, p.vip, p.far)
}

// otherSubnet is a floating IP of a subnet of the external network that the router itself has no address in: it answers there as well.
func (p *proxied) otherSubnet(t *testing.T) {
	prefix, err := netip.ParsePrefix(world.externalCIDR)
	if err != nil {
		t.Skip("no packets from outside here: neither RAVEN_E2E_STACK nor RAVEN_E2E_EXTERNAL_CIDR is set")
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

// sourceRanges are more than OVN's load balancers can do: the address is not open to anybody, an Event says so, and it is not lost.
func (p *proxied) sourceRanges(t *testing.T) {
	patchService(t, "kp-a", "web", `{"spec":{"type":"LoadBalancer"}}`)
	p.settled(t)
	_, floating := addressOf(t, "kp-a", "web")
	before := floatingIPAt(t, floating)
	out := outside(t)
	p.all(t, floating, out)
	patchService(t, "kp-a", "web", `{"spec":{"loadBalancerSourceRanges":["203.0.113.0/24"]}}`)
	await(t, "an Event that says that source ranges are not enforced", func(ctx context.Context) string {
		about, err := told(ctx, "kp-a", "SourceRangesNotEnforced", "loadBalancerSourceRanges")
		if err != nil || !about["web"] {
			return fmt.Sprintf("there is none (%v)", err)
		}
		return ""
	})
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

// kills ends everything in turn with kill -9 while endpoints come and go. What flows goes on flowing: OVN needs nobody for that.
func (p *proxied) kills(t *testing.T) {
	for _, turn := range []turn{
		{name: "raven", kill: func(*testing.T) { p.raven.kill() }, start: p.restart},
		{name: "driver-kubeproxy", kill: killDriver(p.site, "kubeproxy")},
		{name: stack.NorthDB, server: true},
		{name: stack.Northd, server: true},
	} {
		t.Run(turn.name, func(t *testing.T) {
			if turn.server {
				needControls(t)
				turn.kill = func(t *testing.T) {
					t.Helper()
					killed(t, turn.name)
				}
				turn.start = func(t *testing.T) {
					t.Helper()
					started(t, turn.name)
				}
			}
			f := p.far.flow(t, p.vip)
			who, _ := f.now()
			readiness(t, "kp-a", filepath.Base(who), false)
			turn.kill(t)
			readiness(t, "kp-a", filepath.Base(who), true)
			createService(t, "kp-a", "late", bothProtocols())
			if turn.start != nil {
				turn.start(t)
			}
			endpoints(t, "kp-a", "web", len(p.everywhere))
			endpoints(t, "kp-a", "late", len(p.everywhere))
			p.settled(t)
			t.Logf("the flow was without an answer for %s at most", f.longest().Round(time.Millisecond))
			late, _ := addressOf(t, "kp-a", "late")
			p.all(t, p.vip, p.near, p.far)
			p.all(t, late, p.far)
			deleteService(t, "kp-a", "late")
			p.settled(t)
		})
	}
}

// repair is Neutron's own: it takes from OVN what it does not know of, and must not take what is Raven's.
func (p *proxied) repair(t *testing.T) {
	if world.stack == nil {
		t.Skip("Neutron's configuration is not known here: RAVEN_E2E_STACK is not set")
	}
	before, err := p.inNorthbound(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	// The tool loads the service plugin qos, whatever is configured, and that one wants its extension of ML2.
	quality := filepath.Join(t.TempDir(), "qos.conf")
	if err := os.WriteFile(quality, []byte("[ml2]\nextension_drivers = port_security,tag_ports_during_bulk_creation,qos\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	etc := filepath.Join(world.stack.Dir(), "etc")
	if _, err := world.stack.Run(t.Context(), "/usr/bin/neutron-ovn-db-sync-util", "--config-file", filepath.Join(etc, "neutron.conf"),
		"--config-file", filepath.Join(etc, stack.NeutronServer+".override.conf"), "--config-file", quality,
		"--ovn-neutron_sync_mode", "repair"); err != nil {
		t.Fatal(err)
	}
	after, err := p.inNorthbound(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for name, pair := range map[string][2]int{
		"load balancers": {len(before.balancers), len(after.balancers)}, "groups": {len(before.groups), len(after.groups)},
		"switches": {len(before.switches), len(after.switches)}, "routers": {len(before.routers), len(after.routers)},
	} {
		if pair[0] != pair[1] {
			t.Errorf("Neutron's repair left %d of %d %s", pair[1], pair[0], name)
		}
	}
	p.settled(t)
	p.all(t, p.vip, p.near, p.far)
}

// besideOctavia has a load balancer of Octavia's provider ovn on the same switches: neither takes anything from the other.
func (p *proxied) besideOctavia(t *testing.T) {
	if world.cloud.balancing == nil {
		t.Skip("the cloud has no load balancing service")
	}
	subnet := annotated(t, "kp-a", subnetAnnotation).str("id")
	var members []thing
	for _, n := range p.endpoint {
		members = append(members, thing{"address": n.addresses[0], "protocol_port": 8080, "subnet_id": subnet})
	}
	if _, err := world.cloud.call(t.Context(), http.MethodPost, balancerKind, thing{"loadbalancer": thing{
		"name": "e2e-beside", "vip_subnet_id": subnet, "provider": "ovn", "listeners": []thing{{
			"name": "web", "protocol": "TCP", "protocol_port": 80,
			"default_pool": thing{"name": "web", "protocol": "TCP", "lb_algorithm": "SOURCE_IP_PORT", "members": members},
		}},
	}}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { removeBeside(t) })
	var theirs string
	await(t, "Octavia's load balancer", func(ctx context.Context) string {
		found, err := world.cloud.list(ctx, balancerKind, "name=e2e-beside")
		if err != nil || len(found) != 1 || found[0].str("provisioning_status") != "ACTIVE" {
			return fmt.Sprintf("%v (%v)", found, err)
		}
		theirs = found[0].str("vip_address")
		return ""
	})
	p.far.balanced(t, "tcp", theirs, slices.Clone(p.everywhere)...)
	p.only(t, "w1", "w2")
	p.far.balanced(t, "tcp", p.vip, "kp-a/w1", "kp-a/w2")
	p.far.balanced(t, "tcp", theirs, slices.Clone(p.everywhere)...)
	removeBeside(t)
	p.settled(t)
	p.far.balanced(t, "tcp", p.vip, "kp-a/w1", "kp-a/w2")
	p.only(t, "w1", "w2", "w3")
	p.all(t, p.vip, p.near, p.far)
}

func removeBeside(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	found, err := world.cloud.list(ctx, balancerKind, "name=e2e-beside")
	if err == nil {
		err = world.cloud.removeBalancers(ctx, found)
	}
	if err != nil {
		t.Error(err)
	}
}

// TestKubeProxyHandover changes the driver of a running cluster's Services, from lbaas to kubeproxy and back: floating IPs keep their ids and
// addresses, never do both serve one Service, and the time without an answer is printed.
func TestKubeProxyHandover(t *testing.T) {
	if world.cloud.balancing == nil {
		t.Skip("the cloud has no load balancing service")
	}
	octavia := servicesConf()
	s := proxying(t, "handover", octavia)
	createNamespace(t, "ho-a")
	createNamespace(t, "ho-b")
	webPods(t, "ho-a", "w1", "w2")
	spec := bothProtocols()
	spec["type"] = "LoadBalancer"
	createService(t, "ho-a", "web", spec)
	createPod(t, "ho-b", "client")
	endpoints(t, "ho-a", "web", 2)
	s.settled(t)
	all := []string{"ho-a/w1", "ho-a/w2"}
	for _, name := range []string{"w1", "w2"} {
		plug(t, "ho-a", name)
	}
	client, out := plug(t, "ho-b", "client"), outside(t)
	vip, floating := addressOf(t, "ho-a", "web")
	id := floatingIPAt(t, floating)
	out.balanced(t, "udp", floating, slices.Clone(all)...)
	f := client.flow(t, vip)
	for _, to := range []struct {
		name string
		conf settings
	}{{"kubeproxy", proxyConf()}, {"lbaas", octavia}} {
		f.forget()
		began := time.Now()
		s.start(t, to.conf)
		s.onlyOne(t, vip)
		s.settled(t)
		t.Logf("to %s: %s until all is as it should be, %s without an answer at most", to.name, time.Since(began).Round(time.Millisecond), f.longest().Round(time.Millisecond))
		if now, address := floatingIPAt(t, floating), ingressOf(t, "ho-a", "web"); now != id || address != floating {
			t.Errorf("to %s: the floating IP was %s at %s and is %s at %s", to.name, id, floating, now, address)
		}
		for _, protocol := range []string{"tcp", "udp"} {
			client.balanced(t, protocol, vip, slices.Clone(all)...)
			out.balanced(t, protocol, floating, slices.Clone(all)...)
		}
	}
}

func ingressOf(t *testing.T, namespace, name string) string {
	t.Helper()
	_, ingress := addressOf(t, namespace, name)
	return ingress
}

// onlyOne looks until cloud and cluster agree that never two serve one address.
func (s *site) onlyOne(t *testing.T, vip string) {
	t.Helper()
	await(t, "the Service to be handed over", func(ctx context.Context) string {
		octavias, err := world.cloud.list(ctx, balancerKind, "vip_address="+vip)
		if err != nil {
			return err.Error()
		}
		nb, err := s.inNorthbound(ctx)
		if err != nil {
			return err.Error()
		}
		ovns := 0
		for _, r := range nb.balancers {
			vips, _ := r["vips"].(map[string]string)
			if _, serves := vips[net.JoinHostPort(vip, "80")]; serves {
				ovns++
			}
		}
		list, err := world.cloud.list(ctx, balancerKind, "vip_address="+vip)
		if err != nil {
			return err.Error()
		}
		if len(octavias) > 0 && len(list) > 0 && ovns > 0 { // before and after the look at OVN
			t.Errorf("Octavia and OVN both serve %s", vip)
			return ""
		}
		return s.amiss(ctx)
	})
}
