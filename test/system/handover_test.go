// SPDX-License-Identifier: Apache-2.0

package system_test

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	simcloud "github.com/kuryr/raven/test/sim/openstack"
)

// TestServicesAreHandedOver changes the driver of a running cluster from lbaas to kubeproxy and back, by a restart
// and by a reload, which brings the database as well: floating IPs stay what they are, and never do both serve one
// address.
func TestServicesAreHandedOver(t *testing.T) {
	t.Parallel()
	restart := func(r *northRig, p *raven) *raven {
		p.stop()
		return r.start()
	}
	for _, tc := range []struct {
		name     string
		provider simcloud.Provider
		topology string
		late     bool // the database is configured with the driver that needs it, and only as long
		change   func(*northRig, *raven) *raven
	}{
		{name: "amphora, by a restart", provider: simcloud.Amphora(brief()), change: restart},
		{name: "ovn, by a reload", provider: simcloud.OVN(brief()), late: true, change: func(r *northRig, p *raven) *raven {
			r.configure()
			p.signal(syscall.SIGHUP)
			return p
		}},
		{name: "namespaces apart", provider: simcloud.OVN(brief()), topology: "dedicated", change: restart},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			r := newNorthRig(t, tc.provider)
			r.serve("lbaas")
			if tc.topology != "" {
				r.conf.Set("namespace_subnet", "topology", tc.topology)
			}
			if tc.late {
				delete(r.conf["ovn"], "nb_connection")
			}
			p := r.start()
			r.createNamespace("shop")
			r.scale("shop", "web", 2)
			r.floatingIP("172.24.4.77")
			r.createService("shop", "web", both())
			for i := range 3 {
				r.createService("shop", fmt.Sprintf("outside-%d", i),
					object{"type": "LoadBalancer", "selector": object{"app": "web"}})
			}
			r.createService("shop", "named", object{"externalIPs": []any{"172.24.4.77"}, "selector": object{"app": "web"}})
			r.awaitServices(p)
			floating := r.floatingIDs()
			shown := r.ingresses()
			for _, driver := range []string{"kubeproxy", "lbaas"} {
				began, end := time.Now(), func() {}
				if driver == "kubeproxy" {
					r.north.Kill()
					r.conf.Set("ovn", "nb_connection", r.north.Unix())
				} else {
					end = r.onlyOne(true)
				}
				r.serve(driver)
				if driver == "lbaas" && tc.late {
					r.databaseStays(p)
				}
				p = tc.change(r, p)
				if driver == "kubeproxy" { // Octavia's serve on until OVN's can
					must(t, "Services that wait for the database", func() string { return r.balancersStay(p, len(shown)) })
					r.check(r.north.Run(t.Context()))
					began, end = time.Now(), r.onlyOne(false)
				}
				defer end()
				if driver == "kubeproxy" {
					r.awaitProxied(p)
				} else {
					r.awaitServices(p)
					if rows := r.balancerRows(); len(rows) > 0 {
						t.Errorf("OVN still has %v", rows)
					}
					if groups := r.rows("Load_Balancer_Group", "load_balancer"); len(groups) > 0 {
						t.Errorf("OVN still has %v", groups)
					}
				}
				gaps := p.gaps(driver)
				t.Logf("to %s: all within %s; without a load balancer were %v", driver, time.Since(began).Round(time.Millisecond),
					gaps)
				if len(gaps) != len(shown) {
					t.Errorf("to %s: %d Services were handed over, not %d", driver, len(gaps), len(shown))
				}
				end()
				if now := r.floatingIDs(); !maps.Equal(floating, now) {
					t.Errorf("with %s the floating IPs are %v; they were %v", driver, now, floating)
				}
				if now := r.ingresses(); !slices.Equal(shown, now) {
					t.Errorf("with %s the status names %v; it was %v", driver, now, shown)
				}
			}
			if tc.late { // now nothing is left there
				delete(r.conf["ovn"], "nb_connection")
				p = tc.change(r, p)
				must(t, "a reload without the database", func() string {
					if page := p.page("/readyz"); strings.Contains(page, "ovn: ") || !strings.Contains(page, "ready     raven\n") {
						return page
					}
					return r.servicesAmiss(p)
				})
			}
			p.stop()
		})
	}
}

// databaseStays shows that a reload without the database is refused while OVN serves: no process would see its load
// balancers then.
func (r *northRig) databaseStays(p *raven) {
	r.t.Helper()
	delete(r.conf["ovn"], "nb_connection")
	r.configure()
	p.signal(syscall.SIGHUP)
	must(r.t, "a reload that is refused", func() string {
		if page := p.page("/readyz"); !strings.Contains(page, "degraded  raven: ") ||
			!strings.Contains(page, "[ovn] nb_connection is not in it any more") {
			return page
		}
		return ""
	})
	if n := len(r.cloud.LoadBalancers()); n > 0 {
		r.t.Errorf("Octavia has %d load balancers beside OVN's", n)
	}
	r.conf.Set("ovn", "nb_connection", r.north.Unix())
}

// balancersStay says where Octavia does not serve all Services, as it did, though none of them can be handed over.
func (r *northRig) balancersStay(p *raven, services int) string {
	s, err := p.status()
	if err != nil {
		return err.Error()
	}
	waiting := 0
	for _, o := range s.Objects {
		if o.Kind == "Service" && o.Driver == "kubeproxy" && o.State != "done" && o.State != "pending" {
			waiting++
		}
	}
	if amiss := r.balancersAmiss(); amiss != "" {
		r.t.Errorf("while OVN's database is unreachable: %s", amiss)
	}
	if !s.Ready || waiting != services || s.Handover.Waiting != services {
		return fmt.Sprintf("%d of %d Services wait, %d of them to be handed over", waiting, services, s.Handover.Waiting)
	}
	told := fmt.Sprintf("%d Services wait to be handed over, and their old load balancers serve on with the endpoints "+
		"of ", services)
	if page := p.page("/readyz"); !strings.Contains(page, "degraded  ovn: ") || !strings.Contains(page, told) {
		return "/readyz does not say that they wait:\n" + page
	}
	return ""
}

// gaps are the times for which Services had no load balancer when they were handed over to a driver, as raven's log
// tells.
func (p *raven) gaps(driver string) map[string]string {
	to := map[string]string{"kubeproxy": "ovn_loadbalancer", "lbaas": "loadbalancer"}[driver]
	gaps := map[string]string{}
	for _, found := range handedOver.FindAllStringSubmatch(p.log.String(), -1) {
		if found[2] == to {
			gaps[found[1]] = found[3]
		}
	}
	return gaps
}

var handedOver = regexp.MustCompile(`handed over object="([^"]+)" to=(\w+) gap=(\S+)`)

// ingresses are the addresses that the status of Services names.
func (r *northRig) ingresses() []string {
	list, err := r.kube.List(services(), "")
	r.check(err)
	var out []string
	for _, svc := range list {
		out = append(out, fmt.Sprintf("%v %v", at(svc, "metadata", "name"), at(svc, "status", "loadBalancer", "ingress")))
	}
	slices.Sort(out)
	return out
}
