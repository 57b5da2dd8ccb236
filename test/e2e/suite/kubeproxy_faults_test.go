// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package suite

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kuryr/raven/test/e2e/stack"
	"github.com/kuryr/raven/test/harness"
)

// kills ends everything in turn with kill -9 while endpoints and Services come and go. What flows goes on flowing:
// OVN needs nobody for that.
func (p *proxied) kills(t *testing.T) {
	for _, turn := range []turn{
		{name: "raven", kill: func(*testing.T) { p.raven.Kill() }, start: p.restart},
		{name: "driver-kubeproxy", kill: killDriver(p.site, "kubeproxy")},
		{name: stack.NorthDB, server: true},
		{name: stack.Northd, server: true},
	} {
		t.Run(turn.name, func(t *testing.T) {
			turn.control(t)
			f := p.far.flow(t, "udp", p.vip)
			who, _ := f.now()
			p.churn(t, who)
			turn.kill(t)
			p.churn(t, who)
			createService(t, "kp-a", "late", bothProtocols())
			if turn.start != nil {
				turn.start(t)
			}
			p.churn(t, who)
			endpoints(t, "kp-a", "web", len(p.everywhere))
			endpoints(t, "kp-a", "late", len(p.everywhere))
			p.settled(t)
			t.Logf("the flow was without an answer for %s at most", f.longest().Round(time.Millisecond))
			f.stays(t, who, still)
			late, _ := addressOf(t, "kp-a", "late")
			p.all(t, p.vip, p.near, p.far)
			p.all(t, late, p.far)
			deleteService(t, "kp-a", "late")
			p.settled(t)
		})
	}
}

// churn has endpoints go and come, all but one, and Services with them. It waits for nothing.
func (p *proxied) churn(t *testing.T, but string) {
	t.Helper()
	for range 3 {
		p.brief++
		name := fmt.Sprintf("brief-%d", p.brief)
		createService(t, "kp-a", name, bothProtocols())
		for _, ready := range []bool{false, true} {
			for pod := range p.endpoint {
				if "kp-a/"+pod != but {
					readiness(t, "kp-a", pod, ready)
				}
			}
		}
		deleteService(t, "kp-a", name)
	}
}

// alone runs something while Raven does not, so that it can put nothing right, and checks that all of Raven's in OVN
// is as before.
func (p *proxied) alone(t *testing.T, what string, do func()) {
	t.Helper()
	before, err := p.inNorthbound(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	p.stop(t)
	do()
	after, err := p.inNorthbound(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(before, after, cmp.AllowUnexported(northbound{})); diff != "" {
		t.Errorf("after %s (-before +after):\n%s", what, diff)
	}
	p.restart(t)
}

// repair is Neutron's own: it takes from OVN what it does not know of, and must not take what is Raven's.
func (p *proxied) repair(t *testing.T) {
	if world.stack == nil {
		lacks(t, "Neutron's configuration is not known here: RAVEN_E2E_STACK is not set")
	}
	// The tool loads the service plugin qos, whatever is configured, and that one wants its extension of ML2.
	quality := filepath.Join(t.TempDir(), "qos.conf")
	if err := os.WriteFile(quality,
		[]byte("[ml2]\nextension_drivers = port_security,tag_ports_during_bulk_creation,qos\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	etc := filepath.Join(world.stack.Dir(), "etc")
	p.alone(t, "Neutron's repair", func() {
		if _, err := world.stack.Run(t.Context(), "/usr/bin/neutron-ovn-db-sync-util", "--config-file",
			filepath.Join(etc, "neutron.conf"),
			"--config-file", filepath.Join(etc, stack.NeutronServer+".override.conf"), "--config-file", quality,
			"--ovn-neutron_sync_mode", "repair"); err != nil {
			t.Fatal(err)
		}
	})
	p.settled(t)
	p.all(t, p.vip, p.near, p.far)
}

// besideOctavia has a load balancer of Octavia's provider ovn on the same switches: neither takes anything from the
// other.
func (p *proxied) besideOctavia(t *testing.T) {
	if world.cloud.balancing == nil {
		lacks(t, "the cloud has no load balancing service")
	}
	t.Cleanup(func() { removeBeside(t) })
	var theirs string
	p.alone(t, "Octavia has made one", func() { theirs = p.beside(t) })
	p.far.balanced(t, "tcp", theirs, slices.Clone(p.everywhere)...)
	p.only(t, "w1", "w2")
	p.far.balanced(t, "tcp", p.vip, "kp-a/w1", "kp-a/w2")
	p.far.balanced(t, "tcp", theirs, slices.Clone(p.everywhere)...)
	p.alone(t, "Octavia has removed its own", func() { removeBeside(t) })
	p.settled(t)
	p.far.balanced(t, "tcp", p.vip, "kp-a/w1", "kp-a/w2")
	p.only(t, "w1", "w2", "w3")
	p.all(t, p.vip, p.near, p.far)
}

// beside makes a load balancer of Octavia's for the same endpoints, and returns its address once it is there.
func (p *proxied) beside(t *testing.T) (address string) {
	t.Helper()
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
	await(t, "Octavia's load balancer", func(ctx context.Context) string {
		found, err := world.cloud.list(ctx, balancerKind, "name=e2e-beside")
		if err != nil || len(found) != 1 || found[0].str("provisioning_status") != "ACTIVE" {
			return fmt.Sprintf("%v (%v)", found, err)
		}
		address = found[0].str("vip_address")
		return ""
	})
	return address
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

// TestKubeProxyHandover changes the driver of a running cluster's Services, from lbaas to kubeproxy and back:
// floating IPs keep their ids and addresses, never do both serve one Service, and the time without an answer is
// printed.
func TestKubeProxyHandover(t *testing.T) {
	if world.cloud.balancing == nil {
		lacks(t, "the cloud has no load balancing service")
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
	f, g := client.flow(t, "udp", vip), out.flow(t, "udp", floating)
	for _, to := range []struct {
		name string
		conf harness.Settings
	}{{"kubeproxy", proxyConf()}, {"lbaas", octavia}} {
		f.forget()
		g.forget()
		began := time.Now()
		s.start(t, to.conf)
		s.onlyOne(t, vip)
		s.settled(t)
		out.balanced(t, "udp", floating, slices.Clone(all)...)
		t.Logf("to %s: %s until all is as it should be; without an answer at most %s at the clusterIP, %s from outside "+
			"at the floating IP", to.name,
			time.Since(began).Round(time.Millisecond), f.longest().Round(time.Millisecond), g.longest().Round(time.Millisecond))
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

// onlyOne looks until cloud and cluster agree that never two serve one address. It looks at the address all the time,
// and seldom at the rest.
func (s *site) onlyOne(t *testing.T, vip string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	const often, seldom = 50 * time.Millisecond, 2 * time.Second
	ticker := time.NewTicker(often)
	defer ticker.Stop()
	amiss, looked := "not looked at yet", time.Now()
	for amiss != "" {
		select {
		case <-ctx.Done():
			t.Fatalf("waiting for the Service to be handed over: %s", amiss)
		case <-ticker.C:
		}
		if both, err := s.servedTwice(ctx, vip); both {
			t.Fatalf("Octavia and OVN both serve %s", vip)
		} else if err != nil {
			amiss = err.Error()
			continue
		}
		if time.Since(looked) > seldom {
			amiss, looked = s.amiss(ctx), time.Now()
		}
	}
}

// servedTwice says whether Octavia and OVN have an address at the same moment: Octavia before and after the look at
// OVN.
func (s *site) servedTwice(ctx context.Context, vip string) (bool, error) {
	var octavias [2]int
	ovns := 0
	for i := range octavias {
		found, err := world.cloud.list(ctx, balancerKind, "vip_address="+vip)
		if err != nil {
			return false, err
		}
		octavias[i] = len(found)
		if i > 0 || len(found) == 0 {
			continue
		}
		nb, err := s.inNorthbound(ctx)
		if err != nil {
			return false, err
		}
		for _, r := range nb.balancers {
			vips, _ := r["vips"].(map[string]string)
			if _, serves := vips[net.JoinHostPort(vip, "80")]; serves {
				ovns++
			}
		}
	}
	return octavias[0] > 0 && octavias[1] > 0 && ovns > 0, nil
}
