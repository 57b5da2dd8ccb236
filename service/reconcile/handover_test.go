// SPDX-License-Identifier: Apache-2.0

package reconcile_test

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kuryr/raven/drivers"
	"github.com/kuryr/raven/drivers/kubeproxy"
	"github.com/kuryr/raven/drivers/lbaas"
	"github.com/kuryr/raven/drivers/namespace"
	"github.com/kuryr/raven/service/reconcile"
	"github.com/kuryr/raven/service/state"
	simcloud "github.com/kuryr/raven/test/sim/openstack"
)

// outside are the options with which a Service gets a floating IP.
func outside() map[string]map[string]any {
	return map[string]map[string]any{"neutron_defaults": {"external_svc_net": "public"}}
}

// createShop makes a Service of type LoadBalancer with one endpoint.
func (w *ovnWorld) createShop(name, address string) {
	w.t.Helper()
	w.create(services(), map[string]any{
		"apiVersion": "v1", "kind": "Service", "metadata": map[string]any{"name": name, "namespace": "web"},
		"spec": map[string]any{
			"type": "LoadBalancer", "clusterIP": address, "clusterIPs": []any{address}, "ipFamilies": []any{"IPv4"},
			"ports": []any{map[string]any{"port": int64(80), "protocol": "TCP", "targetPort": int64(8080)}},
		},
	})
	w.create(endpointSlices(), slice("web", name, "10.0.0.4"))
}

// served says whether Octavia serves a Service, with its floating IP, and whether OVN does.
func (w *ovnWorld) served(name string) (octavia, leads, own bool) {
	w.t.Helper()
	for _, lb := range w.cloud.LoadBalancers() {
		if text(lb, "name") == "web/"+name {
			octavia = true
			leads = leads ||
				slices.ContainsFunc(w.cloud.FloatingIPs(), func(fip map[string]any) bool {
					return fip["port_id"] == lb["vip_port_id"]
				})
		}
	}
	return octavia, leads,
		slices.ContainsFunc(w.vips(), func(row string) bool { return strings.HasPrefix(row, "web/"+name+":") })
}

// eventuallyServed waits until one of the two serves a Service.
func (w *ovnWorld) eventuallyServed(name, by string) {
	w.t.Helper()
	w.eventually(name+" is served by "+by, func() (bool, string) {
		octavia, leads, own := w.served(name)
		return octavia == (by == "lbaas") && leads == octavia && own == (by == "kubeproxy"), fmt.Sprint(octavia, leads, own)
	})
}

// waitsFor waits until a Service is not settled, for the reason, with every object answered.
func (w *ovnWorld) waitsFor(r *raven, name, reason string) {
	w.t.Helper()
	w.eventually(name+" is told "+reason, func() (bool, string) {
		list := r.engine.Objects(reconcile.Filter{Kind: "Service", Name: name})
		text := fmt.Sprint(list)
		return r.engine.Replayed() && len(list) == 1 && list[0].State != state.Done && list[0].State != state.Pending &&
			!strings.Contains(text, "deletions are held until every object") && strings.Contains(text, reason), text
	})
}

// TestNothingIsHandedOverToNobody: as long as the service that is to serve instead cannot, the load balancers that
// there are stay, and what leads to them leads there; when it can, they are handed over.
func TestNothingIsHandedOverToNobody(t *testing.T) {
	t.Parallel()
	noProvider := outside()
	noProvider["octavia_defaults"] = map[string]any{"provider": "nosuch"}
	for name, c := range map[string]struct {
		to     drivers.Driver
		cloud  simcloud.Options
		values map[string]map[string]any
		// away has the target be away, and returns what brings it back; nil: nothing does.
		away   func(w *ovnWorld) (back func())
		reason string
		// alone says that what comes back is all that wakes who waits for it.
		alone bool
		// told says that there is an Event, since it does not pass by itself.
		told bool
	}{
		"OVN is not configured": {to: kubeproxy.New(), reason: "[ovn] nb_connection"},
		"Octavia answers nothing": {to: lbaas.New(), reason: "503", away: func(w *ovnWorld) func() {
			remove, err := w.cloud.AddFault(simcloud.Rule{
				Path: "lbaas", Action: simcloud.ActionStatus, Status: http.StatusServiceUnavailable,
			})
			if err != nil {
				w.t.Fatal(err)
			}
			return func() { w.cloud.RemoveFault(remove) }
		}},
		"Octavia is not in the catalog": {to: lbaas.New(), reason: "load balancing service", away: func(w *ovnWorld) func() {
			w.cloud.SetOctavia(false)
			return func() { w.cloud.SetOctavia(true) }
		}},
		"the namespace's network is not in OVN " +
			"yet": {to: kubeproxy.New(), reason: "has not joined its group", alone: true, away: func(w *ovnWorld) func() {
			if err := w.neutron.Close(); err != nil {
				w.t.Fatal(err)
			}
			w.nbctl("--all", "destroy", "Logical_Switch")
			return w.follow
		}},
		"the router is not in OVN " +
			"yet": {to: kubeproxy.New(), reason: "the router ", alone: true, away: func(w *ovnWorld) func() {
			if err := w.neutron.Close(); err != nil {
				w.t.Fatal(err)
			}
			w.nbctl("--all", "destroy", "Logical_Router")
			return w.follow
		}},
		"there is no room": {
			to: lbaas.New(), cloud: simcloud.Options{Quotas: map[string]int{"load_balancer": 0}},
			reason: "the quota has room for 0",
		},
		"no such provider": {
			to: lbaas.New(), values: noProvider, reason: `the cloud has no provider "nosuch"`, told: true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newOVNWorldIn(t, c.cloud)
			w.createNamespace("web")
			from, by := drivers.Driver(kubeproxy.New()), "kubeproxy"
			if c.to.Info().Name == by {
				from, by = lbaas.New(), "lbaas"
			}
			p := w.run(from, outside())
			w.createShop("shop", "10.96.0.10")
			w.quiet(p)
			w.eventuallyServed("shop", by)
			p.stop()
			back := func() {}
			if c.away != nil {
				back = c.away(w)
			}
			values := c.values
			if values == nil {
				values = outside()
			}
			var r *raven
			if c.to.Info().Name == "kubeproxy" && c.away == nil { // without a database
				r = w.start(setup{
					drivers: map[string]drivers.Driver{"namespace": namespace.New(), "kubeproxy": c.to}, values: values,
				})
			} else {
				p = w.run(c.to, values, func(conf *config) {
					if c.alone {
						conf.BackoffBase, conf.BackoffMax = time.Hour, time.Hour
					}
				})
				r = p.raven
			}
			w.waitsFor(r, "shop", c.reason)
			if c.told {
				w.toldIn("web", c.reason, "meanwhile OVN's load balancer serves on")
			}
			w.eventuallyServed("shop", by)
			w.staysBehind(r, by)
			if c.away == nil {
				return
			}
			back()
			if !c.alone {
				if err := r.engine.Observe(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			w.eventuallyServed("shop", c.to.Info().Name)
			w.quiet(p)
			w.follows(p, c.to.Info().Name)
		})
	}
}

// movesOn gives the shop another endpoint.
func (w *ovnWorld) movesOn() {
	w.t.Helper()
	if _, err := w.kube.Update(endpointSlices(), slice("web", "shop", "10.0.0.6")); err != nil {
		w.t.Fatal(err)
	}
}

// leadTo are the backends of the shop's load balancers.
func (w *ovnWorld) leadTo() string {
	for _, row := range w.vips() {
		if strings.HasPrefix(row, "web/shop:") {
			return row
		}
	}
	var addresses []string
	for _, member := range w.cloud.Objects("member") { // no other member has these addresses
		addresses = append(addresses, text(member, "address"))
	}
	return strings.Join(addresses, " ")
}

// staysBehind has the shop get another endpoint while it waits, which the load balancer that serves it by an old
// driver does not get: that is told on the Service, counted, and in the metrics.
func (w *ovnWorld) staysBehind(r *raven, by string) {
	w.t.Helper()
	w.movesOn()
	whose := map[string]string{"kubeproxy": "OVN's", "lbaas": "Octavia's"}[by]
	w.waitsFor(r, "shop", "meanwhile "+whose+" load balancer serves on, with the endpoints of ")
	services := 0
	w.eventually("all Services that wait are counted", func() (bool, string) {
		services = 0
		for _, o := range r.engine.Objects(reconcile.Filter{Kind: "Service"}) {
			if strings.Contains(fmt.Sprint(o.Reasons), "none are followed there") {
				services++
			}
		}
		h, metric := r.handover.Status(), measured(w.t, r, "raven_handovers_waiting") // one that is tried again counts anew
		return services > 0 && h.Waiting == services && metric == services && !h.Since.IsZero(),
			fmt.Sprint(services, " say it; ", h, "; the metric says ", metric)
	})
	if to := w.leadTo(); strings.Contains(to, "10.0.0.6") || !strings.Contains(to, "10.0.0.4") {
		w.t.Errorf("what no driver follows leads to %s", to)
	}
}

// follows waits until the shop's new endpoint serves, and nothing waits any more.
func (w *ovnWorld) follows(p *proxied, by string) {
	w.t.Helper()
	w.eventually("the new endpoint serves by "+by, func() (bool, string) {
		to, h := w.leadTo(), p.handover.Status()
		return strings.Contains(to, "10.0.0.6") && !strings.Contains(to, "10.0.0.4") && h.Waiting == 0, to + "; " + h.String()
	})
	if n := measured(w.t, p.raven, "raven_handovers_waiting"); n != 0 {
		w.t.Errorf("the metric says %d", n)
	}
}

// measured returns what a metric of the engine counts, in all.
func measured(t *testing.T, r *raven, name string) (n int) {
	t.Helper()
	registry := prometheus.NewRegistry()
	registry.MustRegister(r.engine.Metrics()...)
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
		for _, m := range f.GetMetric() {
			n += int(m.GetGauge().GetValue()) + int(m.GetCounter().GetValue()) + int(m.GetHistogram().GetSampleCount())
		}
		return n
	}
	t.Fatalf("there is no metric %s", name)
	return 0
}

// otherNetworks is a driver of namespaces that does not say which network pods are in.
type otherNetworks struct{ drivers.Driver }

func (o otherNetworks) Translate(
	ctx context.Context, object drivers.Object, needs *drivers.Needs,
) (drivers.Set, error) {
	set, err := o.Driver.Translate(ctx, object, needs)
	for i, r := range set.Resources {
		set.Resources[i].Exports = slices.DeleteFunc(slices.Clone(r.Exports), func(role string) bool {
			return role == drivers.PodNetwork
		})
	}
	return set, err
}

// TestHandoverWhereNobodySaysWherePodsAre: there is nothing to wait for.
func TestHandoverWhereNobodySaysWherePodsAre(t *testing.T) {
	t.Parallel()
	w := newOVNWorld(t)
	w.namespaces = otherNetworks{namespace.New()}
	w.createNamespace("web")
	p := w.run(lbaas.New(), outside())
	w.createShop("shop", "10.96.0.10")
	w.eventuallyServed("shop", "lbaas")
	p.stop()
	w.run(kubeproxy.New(), outside())
	w.eventuallyServed("shop", "kubeproxy")
}

// TestHandoverWhileOVNIsAway: the group is known, and the database is unreachable when the old load balancer could go.
func TestHandoverWhileOVNIsAway(t *testing.T) {
	t.Parallel()
	w := newOVNWorld(t)
	w.createNamespace("web")
	p := w.run(lbaas.New(), outside())
	w.createShop("shop", "10.96.0.10")
	w.quiet(p)
	p.stop()
	remove, err := w.cloud.AddFault(simcloud.Rule{
		Method: http.MethodDelete, Kind: "loadbalancer", Action: simcloud.ActionStatus, Status: http.StatusServiceUnavailable,
	})
	if err != nil {
		t.Fatal(err)
	}
	p = w.run(kubeproxy.New(), outside())
	w.waitsFor(p.raven, "shop", "503")
	w.eventuallyServed("shop", "lbaas")
	w.server.Kill()
	w.eventually("the database is known to be unreachable", func() (bool, string) { return !p.nb.Status().Connected, "" })
	w.waitsFor(p.raven, "shop", "northbound database is unreachable") // no pass is under way any more that saw it there
	w.cloud.RemoveFault(remove)
	const passes = "raven_reconcile_duration_seconds"
	before := measured(t, p.raven, passes)
	w.movesOn()
	w.eventually("it is looked at again", func() (bool, string) { return measured(t, p.raven, passes) > before, "" })
	w.waitsFor(p.raven, "shop", "northbound database is unreachable")
	if octavia, leads, _ := w.served("shop"); !octavia || !leads {
		t.Fatalf("served by Octavia: %t, with its floating IP: %t", octavia, leads)
	}
	if err := w.server.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.eventuallyServed("shop", "kubeproxy")
	w.quiet(p)
}

// TestManyAreHandedOver: that many Services change hands is no ending that the mass-deletion guard holds.
func TestManyAreHandedOver(t *testing.T) {
	t.Parallel()
	const many = 12
	w := newOVNWorld(t)
	w.createNamespace("web")
	for i := range many {
		w.createShop(fmt.Sprintf("shop-%d", i), fmt.Sprintf("10.96.0.%d", 10+i))
	}
	strict := func(c *config) { c.MaxReplayDeletes, c.MaxReplayDeleteShare = 3, 0.01 }
	p := w.run(lbaas.New(), outside())
	w.quiet(p)
	for _, to := range []drivers.Driver{kubeproxy.New(), lbaas.New()} {
		p.stop()
		p = w.run(to, outside(), strict)
		w.quiet(p)
		for i := range many {
			w.eventuallyServed(fmt.Sprintf("shop-%d", i), to.Info().Name)
		}
		if guards := p.engine.Guards(); len(guards) > 0 {
			t.Errorf("to %s: %v", to.Info().Name, guards)
		}
	}
}

// TestOctaviaThatWasNeverUsed: an Octavia that answers nothing keeps no Service from being served by OVN but those that
// it may still serve, which is told.
func TestOctaviaThatWasNeverUsed(t *testing.T) {
	t.Parallel()
	w := newOVNWorld(t)
	w.createNamespace("web")
	p := w.run(lbaas.New(), outside())
	w.createShop("shop", "10.96.0.10")
	w.quiet(p)
	p.stop()
	remove, err := w.cloud.AddFault(simcloud.Rule{
		Path: "lbaas", Action: simcloud.ActionStatus, Status: http.StatusServiceUnavailable,
	})
	if err != nil {
		t.Fatal(err)
	}
	p = w.run(kubeproxy.New(), outside())
	w.createShop("new", "10.96.0.11")
	w.eventuallyServed("new", "kubeproxy")
	w.waitsFor(p.raven, "shop", "has the address 10.96.0.10, so that a load balancer of Octavia's may still serve it")
	if octavia, leads, own := w.served("shop"); !octavia || !leads || own {
		t.Errorf("served by Octavia: %t, with its floating IP: %t, by OVN: %t", octavia, leads, own)
	}
	if text := p.handover.Withheld(); !strings.Contains(text, "2 Services wait") { // the API's own as well
		t.Errorf("told: %q", text)
	}
	w.cloud.RemoveFault(remove)
	if err := p.engine.Observe(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.eventuallyServed("shop", "kubeproxy")
	w.quiet(p)
	if text := p.handover.Withheld(); text != "" {
		t.Errorf("told: %q", text)
	}
}
