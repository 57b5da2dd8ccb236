// SPDX-License-Identifier: Apache-2.0

package system_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/kuryr/raven/test/harness"
	simcloud "github.com/kuryr/raven/test/sim/openstack"
)

// providers runs a test with each provider.
func providers(t *testing.T, test func(*testing.T, *rig)) {
	t.Helper()
	for _, provider := range []simcloud.Provider{simcloud.Amphora(brief()), simcloud.OVN(brief())} {
		t.Run(provider.Name, func(t *testing.T) {
			t.Parallel()
			test(t, newBalancerRig(t, provider))
		})
	}
}

// both is a Service with ports of two protocols.
func both() object {
	return object{"ports": []any{
		object{"name": "http", "port": 80, "targetPort": 8080},
		object{"name": "dns", "port": 53, "protocol": "UDP", "targetPort": 5353},
	}}
}

func TestServicesBecomeLoadBalancers(t *testing.T) {
	t.Parallel()
	providers(t, func(t *testing.T, r *rig) {
		p := r.start()
		r.createNamespace("shop")
		r.scale("shop", "web", 3)
		r.createService("shop", "web", both())
		r.createService("shop", "lonely", nil)
		r.createService("shop", "headless", object{"clusterIP": "None"})
		r.createService("shop", "outside", object{"type": "LoadBalancer"})
		r.floatingIP("172.24.4.77")
		r.createService("shop", "named", object{"externalIPs": []any{"172.24.4.77"}})
		r.awaitServices(p)

		svc, err := r.kube.Get(services(), "shop", "web")
		r.check(err)
		for _, key := range []string{"kuryr.org/neutron-vip", "kuryr.org/neutron-pool", "kuryr.org/neutron-pools"} {
			if text := fmt.Sprint(at(svc, "metadata", "annotations", key)); !strings.Contains(text, `"id"`) {
				t.Errorf("annotation %s is %q", key, text)
			}
		}
		for _, fip := range r.cloud.FloatingIPs() {
			service := "outside"
			if fip["floating_ip_address"] == "172.24.4.77" {
				service = "named"
			}
			if !slices.Contains(texts(fip["tags"]), "raven:service=shop:"+service) {
				t.Errorf("the floating IP of %s has the tags %v", service, fip["tags"])
			}
		}
		creates := 0
		for _, q := range r.cloud.Log(0) {
			if q.WriteN > 0 && q.Method == http.MethodPost && q.Kind == "loadbalancer" {
				creates++
			}
		}
		if lbs := len(r.cloud.LoadBalancers()); creates != lbs {
			t.Errorf("%d creates for %d load balancers", creates, lbs)
		}

		before := r.cloud.Stats().Writes
		p.stop()
		p = r.start()
		r.awaitServices(p)
		if n := r.cloud.Stats().Writes - before; n != 0 {
			t.Errorf("%d writes after a restart", n)
		}
		p.stop()
	})
}

func TestServiceScalesToNothingAndBack(t *testing.T) {
	t.Parallel()
	providers(t, func(t *testing.T, r *rig) {
		p := r.start()
		r.createNamespace("shop")
		r.createService("shop", "web", both())
		r.awaitServices(p)
		empty := r.dump()
		r.scale("shop", "web", 3)
		must(t, "three members", func() string {
			if n := len(r.cloud.Objects("member")); n != 3*2+1 { // the Service kubernetes has one
				return fmt.Sprintf("there are %d members", n)
			}
			return r.servicesAmiss(p)
		})
		r.scale("shop", "web", 0)
		must(t, "no members", func() string {
			if n := len(r.cloud.Objects("member")); n != 1 {
				return fmt.Sprintf("there are %d members", n)
			}
			return r.servicesAmiss(p)
		})
		if diff := harness.LineDiff(empty, r.dump()); diff != "" {
			t.Errorf("the cloud differs (-before +after):\n%s", diff)
		}
		p.stop()
	})
}

func TestServiceTypesThereAndBackLeaveNothing(t *testing.T) {
	t.Parallel()
	providers(t, func(t *testing.T, r *rig) {
		p := r.start()
		r.createNamespace("shop")
		r.scale("shop", "web", 2)
		r.createService("shop", "web", nil)
		r.floatingIP("172.24.4.66")
		r.floatingIP("172.24.4.67")
		r.awaitServices(p)
		before := r.balancerDump()
		fips := func(n int) {
			t.Helper()
			must(t, "floating IPs", func() string {
				have := 0
				for _, fip := range r.cloud.FloatingIPs() {
					if fip["port_id"] != nil {
						have++
					}
				}
				if have != n {
					return fmt.Sprintf("%d, not %d; %s", have, n, p.settled())
				}
				return r.servicesAmiss(p)
			})
		}
		r.patchService("shop", "web", `{"spec":{"type":"LoadBalancer"}}`)
		fips(1)
		r.patchService("shop", "web", `{"spec":{"externalIPs":["172.24.4.66"]}}`)
		fips(2)
		r.patchService("shop", "web", `{"spec":{"loadBalancerIP":"172.24.4.67"}}`)
		fips(2)
		r.patchService("shop", "web", `{"spec":{"loadBalancerIP":null}}`)
		fips(2)
		r.patchService("shop", "web", `{"spec":{"type":"NodePort"}}`)
		fips(1)
		r.patchService("shop", "web", `{"spec":{"type":"ClusterIP","externalIPs":null}}`)
		fips(0)
		if diff := harness.LineDiff(before, r.balancerDump()); diff != "" {
			t.Errorf("the cloud differs (-before +after):\n%s", diff)
		}
		p.stop()
	})
}

func TestServicesGoWithoutTrace(t *testing.T) {
	t.Parallel()
	providers(t, func(t *testing.T, r *rig) {
		p := r.start()
		must(t, "rest", func() string { return r.servicesAmiss(p) })
		before := r.dump()
		r.createNamespace("shop")
		r.scale("shop", "web", 2)
		names := []string{"web"}
		r.createService("shop", "web", object{"type": "LoadBalancer"})
		for i := range 5 {
			names = append(names, fmt.Sprintf("svc-%d", i))
			r.createService("shop", names[i+1], both())
		}
		r.awaitServices(p)
		for _, name := range names[3:] {
			r.deleteService("shop", name)
		}
		r.awaitServices(p)
		r.deleteNamespace("shop")
		must(t, "nothing", func() string {
			if diff := harness.LineDiff(before, r.dump()); diff != "" {
				return diff + p.settled()
			}
			return r.servicesAmiss(p)
		})
		if list, err := r.kube.List(namespaces(), ""); err != nil || len(list) != 4 {
			t.Errorf("%d namespaces are left (%v)", len(list), err)
		}
		p.stop()
	})
}

// A namespace that goes while its load balancers are still being made.
func TestNamespaceGoesWhileServicesAreMade(t *testing.T) {
	t.Parallel()
	providers(t, func(t *testing.T, r *rig) {
		p := r.start()
		must(t, "rest", func() string { return r.servicesAmiss(p) })
		before := r.dump()
		var asked atomic.Bool
		r.cloud.OnRequest(func(_ int, q simcloud.Request) {
			if q.Method == http.MethodPost && q.Kind == "loadbalancer" {
				asked.Store(true)
			}
		})
		r.createNamespace("shop")
		r.scale("shop", "web", 2)
		for i := range 4 {
			r.createService("shop", fmt.Sprintf("svc-%d", i), both())
		}
		must(t, "a load balancer that is being made", func() string {
			if asked.Load() {
				return ""
			}
			return "none was asked for"
		})
		r.deleteNamespace("shop")
		must(t, "nothing", func() string {
			if diff := harness.LineDiff(before, r.dump()); diff != "" {
				return diff + p.settled()
			}
			return r.servicesAmiss(p)
		})
		p.stop()
	})
}

// A bad value is said and changes nothing; what the value is not about goes on.
func TestBadAnnotationKeepsTheLastGoodState(t *testing.T) {
	t.Parallel()
	r := newBalancerRig(t, simcloud.Amphora(brief()))
	p := r.start()
	r.createNamespace("shop")
	r.createService("shop", "web", object{"type": "LoadBalancer"})
	const key, method = "loadbalancer.openstack.org/connection-limit", "loadbalancer.openstack.org/lb-method"
	r.patchService("shop", "web",
		fmt.Sprintf(`{"metadata":{"annotations":{%q:"77",%q:"LEAST_CONNECTIONS"}}}`, key, method))
	limit := func() string {
		for _, l := range r.cloud.Objects("listener") {
			if strings.HasPrefix(fmt.Sprint(l["name"]), "shop/web") {
				return fmt.Sprint(l["connection_limit"])
			}
		}
		return "none"
	}
	must(t, "the limit", func() string {
		if limit() != "77" {
			return "it is " + limit()
		}
		svc, err := r.kube.Get(services(), "shop", "web")
		r.check(err)
		if pool, _ := at(svc, "metadata", "annotations", "kuryr.org/neutron-pool").(string); !strings.Contains(pool,
			"LEAST_CONNECTIONS") {
			return "the pool is " + pool
		}
		return r.servicesAmiss(p)
	})
	r.patchService("shop", "web",
		fmt.Sprintf(`{"metadata":{"annotations":{%q:"many",%q:"FASTEST","loadbalancer.openstack.org/floating-network-id":"x"}}}`, key, method))
	for _, name := range []string{key, method, "floating-network-id"} {
		must(t, "an Event", func() string {
			for _, e := range r.events() {
				if strings.Contains(e, name) && strings.Contains(e, "BadAnnotation") {
					return ""
				}
			}
			return fmt.Sprintf("%q", r.events())
		})
	}
	r.scale("shop", "web", 2)
	must(t, "members", func() string { return r.balancersAmiss() })
	for _, pool := range r.cloud.Objects("pool") {
		if strings.HasPrefix(fmt.Sprint(pool["name"]), "shop/web") && pool["lb_algorithm"] != "LEAST_CONNECTIONS" {
			t.Errorf("pool %v has %v", pool["name"], pool["lb_algorithm"])
		}
	}
	if limit() != "77" || r.cloud.Count("floatingip") != 1 {
		t.Errorf("limit %s, %d floating IPs", limit(), r.cloud.Count("floatingip"))
	}
	r.patchService("shop", "web",
		fmt.Sprintf(`{"metadata":{"annotations":{%q:null,%q:null,"loadbalancer.openstack.org/floating-network-id":null}}}`,
			key, method))
	must(t, "no limit", func() string {
		if limit() != "-1" {
			return "it is " + limit()
		}
		return r.servicesAmiss(p)
	})
	p.stop()
}

// Neither floating IPs nor load balancers move because a value cannot be read, and endpoints are followed.
func TestBadAnnotationMovesNoExternalIP(t *testing.T) {
	t.Parallel()
	r := newBalancerRig(t, simcloud.OVN(brief()))
	p := r.start()
	r.createNamespace("shop")
	r.scale("shop", "web", 1)
	r.floatingIP("172.24.4.66")
	r.floatingIP("172.24.4.67")
	r.createService("shop", "web", object{"type": "LoadBalancer", "externalIPs": []any{"172.24.4.66", "172.24.4.67"}})
	const internal = "service.beta.kubernetes.io/openstack-internal-load-balancer"
	const keep = "loadbalancer.openstack.org/keep-floatingip"
	r.patchService("shop", "web", fmt.Sprintf(`{"metadata":{"annotations":{%q:"true"}}}`, internal))
	where := func() string {
		var list []string
		for _, fip := range r.cloud.FloatingIPs() {
			list = append(list, fmt.Sprint(fip["floating_ip_address"], " to ", fip["fixed_ip_address"]))
		}
		for _, lb := range r.cloud.LoadBalancers() {
			list = append(list, fmt.Sprint(lb["name"], " ", lb["id"]))
		}
		slices.Sort(list)
		return strings.Join(list, ", ")
	}
	must(t, "two floating IPs", func() string {
		// two, and the name of a load balancer
		if strings.Count(where(), "172.24.4.6") != 3 || r.cloud.Count("loadbalancer") != 3 {
			return where()
		}
		return p.settled()
	})
	before := where()
	r.patchService("shop", "web", fmt.Sprintf(`{"metadata":{"annotations":{%q:"maybe"}}}`, keep))
	must(t, "an Event", func() string {
		if !strings.Contains(strings.Join(r.events(), "\n"), keep) {
			return fmt.Sprintf("%q", r.events())
		}
		return ""
	})
	r.scale("shop", "web", 3)
	must(t, "members of both", func() string {
		members := map[any]int{}
		for _, m := range r.cloud.Objects("member") {
			if strings.HasPrefix(fmt.Sprint(m["name"]), "shop/web") {
				members[m["pool_id"]]++
			}
		}
		for _, n := range members {
			if n != 3 || len(members) != 2 {
				return fmt.Sprint(members)
			}
		}
		return ""
	})
	if after := where(); after != before {
		t.Errorf("there were %s, and are %s", before, after)
	}
	p.stop()
}

// A security group that is not there is said, and what is known is written on the Service all the same.
func TestGroupThatIsNotThere(t *testing.T) {
	t.Parallel()
	r := newBalancerRig(t, simcloud.Amphora(brief())) // OVN's load balancers ignore groups
	p := r.start()
	r.createNamespace("shop")
	r.createService("shop", "web", object{"type": "LoadBalancer"})
	r.awaitServices(p)
	const label, group = "kuryr.org/neutron-security-group", "0f0e0d0c-0b0a-4908-8706-050403020100"
	r.patchService("shop", "web", fmt.Sprintf(`{"metadata":{"labels":{%q:%q}}}`, label, group))
	must(t, "what is missing", func() string {
		if now := p.settled(); !strings.Contains(now, group) {
			return now
		}
		return ""
	})
	written := func(key string) string {
		svc, err := r.kube.Get(services(), "shop", "web")
		r.check(err)
		text, _ := at(svc, "metadata", "annotations", key).(string)
		return text
	}
	r.floatingIP("172.24.4.66")
	r.patchService("shop", "web", `{"spec":{"loadBalancerIP":"172.24.4.66"}}`)
	must(t, "the new address, and what else is known", func() string {
		for _, key := range []string{"kuryr.org/neutron-fip", "loadbalancer.openstack.org/load-balancer-address"} {
			if text := written(key); !strings.Contains(text, "172.24.4.66") {
				return fmt.Sprintf("annotation %s is %q", key, text)
			}
		}
		return r.balancersAmiss()
	})
	if written("kuryr.org/neutron-vip") == "" || written("kuryr.org/neutron-vip-sg") != "" {
		t.Errorf("the VIP is %q, its group %q", written("kuryr.org/neutron-vip"), written("kuryr.org/neutron-vip-sg"))
	}
	p.stop()
}

// A value that is well formed and leads nowhere is said by its name, and costs neither the load balancer nor what is
// behind it.
func TestAnnotationThatLeadsNowhere(t *testing.T) {
	t.Parallel()
	r := newBalancerRig(t, simcloud.Amphora(brief()))
	p := r.start()
	r.createNamespace("shop")
	r.scale("shop", "web", 1)
	r.createService("shop", "web", object{"type": "LoadBalancer"})
	r.awaitServices(p)
	named := func() (ids []any) {
		for _, lb := range r.cloud.LoadBalancers() {
			if lb["name"] == "shop/web" {
				ids = append(ids, lb["id"])
			}
		}
		return ids
	}
	before := named()
	const key = "loadbalancer.openstack.org/flavor-id"
	r.patchService("shop", "web",
		fmt.Sprintf(`{"metadata":{"annotations":{%q:"0f0e0d0c-0b0a-4908-8706-050403020100"}}}`, key))
	must(t, "an Event", func() string {
		for _, e := range r.events() {
			if strings.Contains(e, "stays as it is: annotation "+key+": the cloud has no flavor") {
				return ""
			}
		}
		return fmt.Sprintf("%q", r.events())
	})
	r.scale("shop", "web", 3)
	must(t, "members", func() string { return r.balancersAmiss() })
	if after := named(); len(before) != 1 || len(after) != 1 || before[0] != after[0] {
		t.Errorf("it was given up: %v became %v", before, after)
	}
	p.stop()
}

// A floating IP is given up only for another one that is there, and never for its own address.
func TestFloatingIPIsNotGivenUp(t *testing.T) {
	t.Parallel()
	r := newBalancerRig(t, simcloud.OVN(brief()))
	p := r.start()
	r.createNamespace("shop")
	r.scale("shop", "web", 1)
	r.createService("shop", "web", object{"type": "LoadBalancer"})
	r.awaitServices(p)
	first := r.cloud.FloatingIPs()[0]
	same := func() string {
		if fips := r.cloud.FloatingIPs(); len(fips) != 1 || fips[0]["id"] != first["id"] ||
			fips[0]["port_id"] != first["port_id"] {
			return fmt.Sprintf("floating IPs are %v; %s", fips, p.settled())
		}
		return r.balancersAmiss()
	}
	refused := func(text string) {
		t.Helper()
		must(t, text, func() string {
			if now := p.settled(); !strings.Contains(now, text) {
				return fmt.Sprintf("it stands: %s", now)
			}
			return same()
		})
	}
	r.patchService("shop", "web", fmt.Sprintf(`{"spec":{"loadBalancerIP":%q}}`, first["floating_ip_address"]))
	must(t, "its own address", func() string {
		if text := same(); text != "" {
			return text
		}
		return r.servicesAmiss(p)
	})
	r.patchService("shop", "web", `{"spec":{"loadBalancerIP":"172.24.4.99"}}`)
	refused("these credentials may not ask for an address of their own choice")
	r.patchService("shop", "web", `{"spec":{"loadBalancerIP":null},
		"metadata":{"annotations":{"loadbalancer.openstack.org/floating-network-id":"0f0e0d0c-0b0a-4908-8706-050403020100"}}}`)
	refused("could not be found")
	r.patchService("shop", "web", fmt.Sprintf(`{"spec":{"loadBalancerIP":%q},
		"metadata":{"annotations":{"loadbalancer.openstack.org/floating-network-id":null}}}`, first["floating_ip_address"]))
	must(t, "as it was", func() string {
		if text := same(); text != "" {
			return text
		}
		return r.servicesAmiss(p)
	})
	p.stop()
}

// The driver's process dies while Services are made.
func TestServicesOutliveTheirDriver(t *testing.T) {
	t.Parallel()
	r := newBalancerRig(t, simcloud.Amphora(brief()))
	p := r.start()
	r.createNamespace("shop")
	r.scale("shop", "web", 2)
	for i := range 3 {
		r.createService("shop", fmt.Sprintf("svc-%d", i), both())
		r.createService("shop", fmt.Sprintf("web-%d", i), object{"selector": object{"app": "web"}})
		must(t, "the driver", func() string {
			pid := p.plugin("lbaas")
			if pid == 0 {
				return "it has no process"
			}
			if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
				return err.Error()
			}
			return ""
		})
		r.scale("shop", "web", 3-i)
	}
	r.awaitServices(p)
	p.stop()
}
