// SPDX-License-Identifier: Apache-2.0

package system_test

import (
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"
	"syscall"
	"testing"

	simcloud "github.com/kuryr/raven/test/sim/openstack"
)

// TestKubeProxyServesByOVN has the driver kubeproxy serve Services in the northbound database: all of them, as they
// are, without Octavia, and nothing is left of those that go.
func TestKubeProxyServesByOVN(t *testing.T) {
	t.Parallel()
	r := newNorthRig(t, simcloud.OVN(brief()))
	r.serve("kubeproxy")
	p := r.start()
	r.createNamespace("shop")
	r.scale("shop", "web", 3)
	r.createService("shop", "web", both())
	r.createService("shop", "lonely", nil)
	r.createService("shop", "headless", object{"clusterIP": "None"})
	r.floatingIP("172.24.4.77")
	r.createService("shop", "outside",
		object{"type": "LoadBalancer", "externalIPs": []any{"172.24.4.77"}, "selector": object{"app": "web"}})
	r.awaitProxied(p)
	r.scale("shop", "web", 1)
	r.awaitProxied(p)
	r.scale("shop", "web", 0)
	r.awaitProxied(p)
	r.scale("shop", "web", 2)
	r.awaitProxied(p)

	before, writes := r.balancerRows(), r.cloud.Stats().Writes
	p.stop()
	p = r.start()
	r.awaitProxied(p)
	if n := r.cloud.Stats().Writes - writes; n != 0 || !slices.EqualFunc(before, r.balancerRows(), sameRow) {
		t.Errorf("a restart made %d writes; the rows were %v and are %v", n, before, r.balancerRows())
	}

	r.deleteNamespace("shop")
	must(t, "nothing of the namespace", func() string {
		for _, row := range r.balancerRows() {
			if strings.HasPrefix(row.name, "shop/") {
				return row.name + " is left; " + p.settled()
			}
		}
		if amiss := r.proxiedAmiss(); amiss != "" {
			return amiss
		}
		return r.amiss(p)
	})
	p.stop()
}

func sameRow(a, b northRow) bool {
	return a.id == b.id && a.name == b.name && a.protocol == b.protocol && maps.Equal(a.vips, b.vips) &&
		maps.Equal(a.ids, b.ids)
}

// TestAddressThatCannotBeLimitedIsClosed: OVN's load balancers know no source ranges, so that the address of a
// Service that has some serves no client. It is not given away meanwhile, and serves again without them.
func TestAddressThatCannotBeLimitedIsClosed(t *testing.T) {
	t.Parallel()
	r := newNorthRig(t, simcloud.OVN(brief()))
	r.serve("kubeproxy")
	p := r.start()
	r.createNamespace("shop")
	r.scale("shop", "web", 2)
	r.createService("shop", "web", object{"type": "LoadBalancer"})
	r.awaitProxied(p)
	floating := r.floatingIDs()
	for _, ranges := range []string{`["203.0.113.0/24"]`, `["everybody"]`} {
		r.patchService("shop", "web", fmt.Sprintf(`{"spec":{"loadBalancerSourceRanges":%s}}`, ranges))
		must(t, "a closed address", func() string {
			for _, row := range r.balancerRows() {
				for vip := range row.vips {
					if host, _, _ := net.SplitHostPort(vip); floating[host] != "" {
						return vip + " is served"
					}
				}
			}
			svc, err := r.kube.Get(services(), "shop", "web")
			r.check(err)
			if list, _ := at(svc, "status", "loadBalancer", "ingress").([]any); len(list) > 0 {
				return fmt.Sprintf("the status names %v", list)
			}
			if !strings.Contains(strings.Join(r.events(), "\n"), "SourceRangesNotEnforced") {
				return "no Event says so"
			}
			return r.amiss(p)
		})
		if now := r.floatingIDs(); !maps.Equal(floating, now) {
			t.Errorf("with %s the floating IPs are %v; they were %v", ranges, now, floating)
		}
		r.patchService("shop", "web", `{"spec":{"loadBalancerSourceRanges":null}}`)
		r.awaitProxied(p)
		if now := r.floatingIDs(); !maps.Equal(floating, now) {
			t.Errorf("after %s the floating IPs are %v; they were %v", ranges, now, floating)
		}
	}
	p.stop()
}

// TestKubeProxyKeepsNamespacesApart: in the dedicated topology a Service is served in its own namespace, and nowhere
// else.
func TestKubeProxyKeepsNamespacesApart(t *testing.T) {
	t.Parallel()
	r := newNorthRig(t, simcloud.OVN(brief()))
	r.serve("kubeproxy")
	r.conf.Set("namespace_subnet", "topology", "dedicated")
	p := r.start()
	for _, ns := range []string{"shop", "bank"} {
		r.createNamespace(ns)
		r.scale(ns, "web", 2)
		r.createService(ns, "web", nil)
	}
	must(t, "a group for each namespace", func() string {
		if amiss := r.apartAmiss(); len(amiss) > 0 {
			return strings.Join(amiss, "; ")
		}
		return p.settled()
	})
	p.stop()
}

// TestKubeProxyOutlivesKills kills raven, its driver and the database in turn while endpoints come and go.
func TestKubeProxyOutlivesKills(t *testing.T) {
	t.Parallel()
	r := newNorthRig(t, simcloud.OVN(brief()))
	r.serve("kubeproxy")
	p := r.start()
	r.createNamespace("shop")
	r.scale("shop", "web", 2)
	r.createService("shop", "web", both())
	r.awaitProxied(p)
	for i, kill := range []func(){
		func() {
			p.Kill()
			r.scale("shop", "web", 4)
			p = r.start()
		},
		func() { r.check(syscall.Kill(p.plugin("kubeproxy"), syscall.SIGKILL)) },
		func() {
			r.north.Kill()
			r.scale("shop", "web", 1)
			r.check(r.north.Run(t.Context()))
		},
	} {
		late := fmt.Sprintf("late-%d", i)
		r.scale("shop", "web", 3)
		r.createService("shop", late, object{"selector": object{"app": "web"}})
		kill()
		r.scale("shop", "web", 2)
		r.awaitProxied(p)
		r.deleteService("shop", late)
		r.awaitProxied(p)
	}
	p.stop()
}
