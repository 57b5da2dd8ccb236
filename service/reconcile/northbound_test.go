// SPDX-License-Identifier: Apache-2.0

package reconcile_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kuryr/raven/drivers"
	"github.com/kuryr/raven/drivers/kubeproxy"
	"github.com/kuryr/raven/drivers/lbaas"
	"github.com/kuryr/raven/drivers/namespace"
	ravenovn "github.com/kuryr/raven/service/ovn"
	"github.com/kuryr/raven/service/reconcile"
	"github.com/kuryr/raven/service/state"
	simkube "github.com/kuryr/raven/test/sim/kube"
	"github.com/kuryr/raven/test/sim/northbound"
	simcloud "github.com/kuryr/raven/test/sim/openstack"
)

// ovnWorld is a simulated cluster and cloud with OVN's real northbound database, in which the cloud's networks and
// routers are.
type ovnWorld struct {
	*world
	server     *northbound.Server
	neutron    *northbound.Neutron
	namespaces drivers.Driver // nil: Raven's
}

func newOVNWorld(t *testing.T) *ovnWorld {
	t.Helper()
	return newOVNWorldIn(t, simcloud.Options{})
}

func newOVNWorldIn(t *testing.T, cloud simcloud.Options) *ovnWorld {
	t.Helper()
	if err := northbound.Available(); err != nil {
		t.Skip(err)
	}
	w := &ovnWorld{world: newWorld(t, simkube.Options{}, cloud)}
	var err error
	if w.server, err = northbound.Start(t.Context(), northbound.Config{Dir: t.TempDir()}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.server.Kill)
	w.follow()
	return w
}

// follow has the cloud's networks and routers be in the database.
func (w *ovnWorld) follow() {
	w.t.Helper()
	var err error
	if w.neutron, err = northbound.Follow(context.WithoutCancel(w.t.Context()), w.cloud, w.server.Unix()); err != nil {
		w.t.Fatal(err)
	}
	neutron := w.neutron
	w.t.Cleanup(func() { _ = neutron.Close() })
}

// proxied is an engine with a connection to the database.
type proxied struct {
	*raven
	nb *ravenovn.Northbound
}

// run starts an engine with the driver of namespaces and one of Services.
func (w *ovnWorld) run(services drivers.Driver, values map[string]map[string]any, configure ...func(*config)) *proxied {
	w.t.Helper()
	nb, err := ravenovn.Open(w.t.Context(), ravenovn.Config{
		Cluster: "cluster-1", Endpoints: []string{w.server.Unix()}, BackoffMin: 10 * time.Millisecond,
		BackoffMax: 50 * time.Millisecond,
	}, testLog(w.t))
	if err != nil {
		w.t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(w.t.Context(), patience)
	defer cancel()
	if err := nb.WaitConnected(ctx); err != nil {
		w.t.Fatal(err)
	}
	p := &proxied{nb: nb}
	namespaces := w.namespaces
	if namespaces == nil {
		namespaces = namespace.New()
	}
	p.raven = w.start(setup{
		config: func(c *config) {
			c.Northbound, c.SlowRetry = nb, time.Hour
			for _, f := range configure {
				f(c)
			}
		},
		drivers: map[string]drivers.Driver{"namespace": namespaces, services.Info().Name: services}, values: values,
	})
	nb.Follow(p.ovn.Follower())
	stop := p.stop
	p.stop = func() { stop(); nb.Close() }
	w.t.Cleanup(p.stop)
	return p
}

func endpointSlices() schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: "discovery.k8s.io", Version: "v1", Resource: "endpointslices"}
}

// createWeb makes a Service without a selector, and its endpoints.
func (w *ovnWorld) createWeb(ns, name, address string, endpoints ...string) {
	w.t.Helper()
	w.create(services(), map[string]any{
		"apiVersion": "v1", "kind": "Service", "metadata": map[string]any{"name": name, "namespace": ns},
		"spec": map[string]any{
			"type": "ClusterIP", "clusterIP": address, "clusterIPs": []any{address}, "ipFamilies": []any{"IPv4"},
			"ports": []any{map[string]any{"port": int64(80), "protocol": "TCP", "targetPort": int64(8080)}},
		},
	})
	w.create(endpointSlices(), slice(ns, name, endpoints...))
}

func slice(ns, name string, endpoints ...string) map[string]any {
	list := make([]any, 0, len(endpoints))
	for _, address := range endpoints {
		list = append(list, map[string]any{"addresses": []any{address}, "conditions": map[string]any{"ready": true}})
	}
	return map[string]any{
		"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4", "endpoints": list,
		"metadata": map[string]any{
			"name": name + "-1", "namespace": ns, "labels": map[string]any{"kubernetes.io/service-name": name},
		},
		"ports": []any{map[string]any{"name": "", "port": int64(8080), "protocol": "TCP"}},
	}
}

// vips reads what is in the database: name and VIPs of each load balancer.
func (w *ovnWorld) vips() []string {
	w.t.Helper()
	out, err := w.server.Ctl(w.t.Context(), "--format=csv", "--no-headings", "--data=bare", "--columns=name,vips",
		"list", "Load_Balancer")
	if err != nil {
		return []string{err.Error()}
	}
	lines := slices.DeleteFunc(strings.Split(out, "\n"), func(line string) bool {
		return !strings.HasPrefix(line, "web/")
	})
	slices.Sort(lines)
	return lines
}

func (w *ovnWorld) eventuallyVIPs(want ...string) {
	w.t.Helper()
	w.eventually("the VIPs in the database", func() (bool, string) {
		got := w.vips()
		return cmp.Equal(want, got) || len(want)+len(got) == 0, strings.Join(got, "\n")
	})
}

// joined counts the switches and routers that are in a group.
func (w *ovnWorld) joined() (switches, routers int) {
	w.t.Helper()
	for table, n := range map[string]*int{"Logical_Switch": &switches, "Logical_Router": &routers} {
		out, err := w.server.Ctl(w.t.Context(), "--bare", "--no-headings", "--columns=name", "find", table,
			"load_balancer_group!=[]")
		if err != nil {
			w.t.Fatal(err)
		}
		*n = len(strings.Fields(out))
	}
	return switches, routers
}

// count counts the objects of a resource.
func (w *ovnWorld) count(gvr schema.GroupVersionResource) int {
	w.t.Helper()
	list, err := w.kube.List(gvr, "")
	if err != nil {
		w.t.Fatal(err)
	}
	return len(list)
}

func (w *ovnWorld) nbctl(args ...string) {
	w.t.Helper()
	if _, err := w.server.Ctl(w.t.Context(), args...); err != nil {
		w.t.Fatal(err)
	}
}

const shopVIP = `web/shop:tcp,"10.96.0.10:80=10.0.0.4:8080,10.0.0.5:8080"`

func TestServicesInOVN(t *testing.T) {
	t.Parallel()
	w := newOVNWorld(t)
	w.createNamespace("web")
	w.createNamespace("db")
	p := w.run(kubeproxy.New(), nil)
	w.createWeb("web", "shop", "10.96.0.10", "10.0.0.5", "10.0.0.4")
	w.eventuallyVIPs(shopVIP)
	w.eventually("all namespaces but the two that are excluded are in the group", func() (bool, string) {
		switches, routers := w.joined()
		return switches == w.count(namespaces())-2 && routers == 1, fmt.Sprint(switches, " switches, ", routers, " routers")
	})

	// Endpoints come and go in one transaction each.
	w.quiet(p)
	before := p.nb.Status().Transactions["committed"]
	if _, err := w.kube.Update(endpointSlices(), slice("web", "shop", "10.0.0.6")); err != nil {
		t.Fatal(err)
	}
	w.eventuallyVIPs("web/shop:tcp,10.96.0.10:80=10.0.0.6:8080")
	w.eventually("its answer has come", func() (bool, string) {
		return p.nb.Status().Transactions["committed"] > before, ""
	})
	w.quiet(p)
	if got := p.nb.Status().Transactions["committed"] - before; got != 1 {
		t.Errorf("%d transactions for one change, want 1", got)
	}
	w.delete(endpointSlices(), "web", "shop-1")
	w.eventuallyVIPs("web/shop:tcp,10.96.0.10:80=")

	// A new namespace joins; one that goes leaves.
	w.createNamespace("late")
	w.eventually("the new namespace is in the group", func() (bool, string) {
		switches, _ := w.joined()
		return switches == w.count(namespaces())-2, fmt.Sprint(switches)
	})
	w.delete(services(), "web", "shop")
	w.eventuallyVIPs()
}

func TestOVNRestartWritesNothing(t *testing.T) {
	t.Parallel()
	w := newOVNWorld(t)
	w.createNamespace("web")
	p := w.run(kubeproxy.New(), nil)
	w.createWeb("web", "shop", "10.96.0.10", "10.0.0.5", "10.0.0.4")
	w.eventuallyVIPs(shopVIP)
	w.quiet(p)
	p.stop()
	p = w.run(kubeproxy.New(), nil)
	w.quiet(p)
	if got := p.nb.Status().Transactions["committed"]; got != 0 {
		t.Errorf("%d transactions after a restart, want none", got)
	}
}

// quiet waits until every object is done.
func (w *ovnWorld) quiet(p *proxied) {
	w.t.Helper()
	w.eventually("all is done", func() (bool, string) {
		var open []string
		for _, o := range p.engine.Objects(reconcile.Filter{}) {
			if o.State != state.Done {
				open = append(open,
					fmt.Sprintf("%s %s/%s %s: %s", o.Kind, o.Namespace, o.Name, o.State, strings.Join(o.Reasons, "; ")))
			}
		}
		return p.engine.Replayed() && len(open) == 0, strings.Join(open, "\n")
	})
}

func TestOVNIsHealed(t *testing.T) {
	t.Parallel()
	w := newOVNWorld(t)
	w.createNamespace("web")
	p := w.run(kubeproxy.New(), nil)
	w.createWeb("web", "shop", "10.96.0.10", "10.0.0.5", "10.0.0.4")
	w.eventuallyVIPs(shopVIP)
	w.quiet(p)
	whole, _ := w.joined()

	w.nbctl("--all", "destroy", "Load_Balancer")
	w.eventuallyVIPs(shopVIP)
	w.nbctl("set", "Load_Balancer", "web/shop:tcp", `vips={"1.1.1.1:1"="2.2.2.2:2"}`)
	w.eventuallyVIPs(shopVIP)
	list, err := p.nb.List(drivers.KindOVNLoadBalancerGroup)
	if err != nil || len(list) != 1 {
		t.Fatal(list, err)
	}
	for _, network := range w.cloud.Networks()[:2] {
		if name, _ := network["name"].(string); name == "web" {
			w.nbctl("clear", "Logical_Switch", "neutron-"+text(network, "id"), "load_balancer_group")
		}
	}
	w.eventually("the group has all its switches again", func() (bool, string) {
		switches, _ := w.joined()
		return switches == whole, fmt.Sprint(switches)
	})

	// The database is killed, and comes back without a row.
	w.server.Kill()
	if err := errors.Join(w.server.Wipe(), w.server.Start(t.Context())); err != nil {
		t.Fatal(err)
	}
	w.follow()
	w.eventuallyVIPs(shopVIP)
	w.eventually("the group has all its switches again", func() (bool, string) {
		switches, routers := w.joined()
		return switches == whole && routers == 1, fmt.Sprint(switches, routers)
	})
	w.quiet(p)
}

func TestOVNIsAway(t *testing.T) {
	t.Parallel()
	w := newOVNWorld(t)
	w.createNamespace("web")
	p := w.run(kubeproxy.New(), nil)
	w.createWeb("web", "shop", "10.96.0.10", "10.0.0.5", "10.0.0.4")
	w.eventuallyVIPs(shopVIP)
	w.quiet(p)
	w.server.Kill()
	w.createWeb("web", "late", "10.96.0.11", "10.0.0.7")
	w.delete(services(), "web", "shop")
	for _, name := range []string{"late", "shop"} {
		w.eventually(name+" waits for the database", func() (bool, string) {
			list := p.engine.Objects(reconcile.Filter{Name: name, Kind: "Service"})
			if len(list) != 1 {
				return false, fmt.Sprint(list)
			}
			return list[0].State == state.Waiting &&
					strings.Contains(fmt.Sprint(list[0].Reasons), "northbound database is unreachable"),
				fmt.Sprint(list[0].State, list[0].Reasons)
		})
	}
	if err := w.server.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.eventuallyVIPs("web/late:tcp,10.96.0.11:80=10.0.0.7:8080")
}

func TestOVNIsNotConfigured(t *testing.T) {
	t.Parallel()
	w := newWorld(t, simkube.Options{}, simcloud.Options{})
	r := w.start(setup{drivers: map[string]drivers.Driver{"namespace": namespace.New(), "kubeproxy": kubeproxy.New()}})
	w.eventually("it is told what to do", func() (bool, string) {
		list := r.engine.Objects(reconcile.Filter{Driver: "shared"})
		text := fmt.Sprint(list)
		return strings.Contains(text, "[ovn] nb_connection"), text
	})
}

func TestNeutronsRowIsWaitedFor(t *testing.T) {
	t.Parallel()
	w := newOVNWorld(t)
	p := w.run(kubeproxy.New(), nil)
	w.quiet(p)
	if err := w.neutron.Close(); err != nil {
		t.Fatal(err)
	}
	w.createNamespace("web")
	w.eventually("the group waits for a switch", func() (bool, string) {
		text := fmt.Sprint(p.engine.Objects(reconcile.Filter{Driver: "shared"}))
		return strings.Contains(text, "neutron-") && strings.Contains(text, "not in OVN's northbound database yet"), text
	})
	w.follow() // it makes what is missing
	w.quiet(p)
}

// TestHandoverToOVNAndBack: a Service goes from Octavia's load balancers to OVN's and back. Never are there two, its
// floating IP stays, and the gap is measured.
func TestHandoverToOVNAndBack(t *testing.T) {
	t.Parallel()
	w := newOVNWorld(t)
	w.createNamespace("web")
	values := map[string]map[string]any{"neutron_defaults": {"external_svc_net": "public"}}
	p := w.run(lbaas.New(), values)
	w.create(services(), map[string]any{
		"apiVersion": "v1", "kind": "Service", "metadata": map[string]any{"name": "shop", "namespace": "web"},
		"spec": map[string]any{
			"type": "LoadBalancer", "clusterIP": "10.96.0.10", "clusterIPs": []any{"10.96.0.10"}, "ipFamilies": []any{"IPv4"},
			"ports": []any{map[string]any{"port": int64(80), "protocol": "TCP", "targetPort": int64(8080)}},
		},
	})
	w.create(endpointSlices(), slice("web", "shop", "10.0.0.4"))
	w.quiet(p)
	floating := w.cloud.FloatingIPs()
	if len(floating) != 1 || floating[0]["port_id"] == nil {
		t.Fatalf("floating IPs %v, want one that leads to the load balancer", floating)
	}
	address := text(floating[0], "floating_ip_address")
	both := make(chan string, 1)
	watch := func() (stop func()) {
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			for ctx.Err() == nil {
				shop := func(lb map[string]any) bool { return text(lb, "name") == "web/shop" }
				before := slices.ContainsFunc(w.cloud.LoadBalancers(), shop)
				if rows := w.vips(); before && len(rows) > 0 && strings.HasPrefix(rows[0], "web/") &&
					slices.ContainsFunc(w.cloud.LoadBalancers(), shop) {
					select {
					case both <- fmt.Sprint(rows):
					default:
					}
				}
			}
		}()
		return func() { cancel(); <-ended }
	}
	for _, to := range []string{"kubeproxy", "lbaas", "kubeproxy"} {
		p.stop()
		stop := watch()
		driver := lbaas.New()
		if to == "kubeproxy" {
			driver = kubeproxy.New()
		}
		p = w.run(driver, values)
		w.quiet(p)
		stop()
		select {
		case rows := <-both:
			t.Errorf("to %s: both serve at once: %s", to, rows)
		default:
		}
		list := p.engine.Objects(reconcile.Filter{Kind: "Service", Name: "shop"})
		if len(list) != 1 || list[0].HandoverGap <= 0 {
			t.Errorf("to %s: no gap is shown: %+v", to, list)
		}
		t.Logf("to %s: %.3f s with no load balancer", to, list[0].HandoverGap)
		now := w.cloud.FloatingIPs()
		if len(now) != 1 || now[0]["id"] != floating[0]["id"] {
			t.Fatalf("to %s: floating IPs %v, want the one there was", to, now)
		}
		switch to {
		case "lbaas":
			if rows := w.vips(); len(rows) > 0 || now[0]["port_id"] == nil {
				t.Errorf("to lbaas: rows %v, floating IP at %v", rows, now[0]["port_id"])
			}
		default:
			rows := strings.Join(w.vips(), "\n")
			for _, vip := range []string{"10.96.0.10:80=10.0.0.4:8080", address + ":80=10.0.0.4:8080"} {
				if !strings.Contains(rows, vip) || now[0]["port_id"] != nil {
					t.Errorf("to kubeproxy: floating IP at %v, want %s in %s", now[0]["port_id"], vip, rows)
				}
			}
			for _, lb := range w.cloud.LoadBalancers() {
				if text(lb, "name") == "web/shop" {
					t.Error("to kubeproxy: Octavia has it still")
				}
			}
		}
	}
}

// TestOVNIsSweptAndCleanedUp: what a Service had that was deleted while Raven did not run is deleted; and a cleanup
// leaves nothing of the cluster.
func TestOVNIsSweptAndCleanedUp(t *testing.T) {
	t.Parallel()
	w := newOVNWorld(t)
	w.nbctl("lb-add", "web/foreign", "10.9.9.9:80", "10.1.1.1:80")
	w.createNamespace("web")
	p := w.run(kubeproxy.New(), nil)
	w.createWeb("web", "shop", "10.96.0.10", "10.0.0.5", "10.0.0.4")
	w.createWeb("web", "stays", "10.96.0.11", "10.0.0.5")
	foreign, stays := "web/foreign,10.9.9.9:80=10.1.1.1:80", "web/stays:tcp,10.96.0.11:80=10.0.0.5:8080"
	w.eventuallyVIPs(foreign, shopVIP, stays)
	w.quiet(p)
	p.stop()
	w.delete(services(), "web", "shop")
	p = w.run(kubeproxy.New(), nil)
	w.eventuallyVIPs(foreign, stays)
	p.stop()

	nb, err := ravenovn.Open(t.Context(), ravenovn.Config{Cluster: "cluster-1", Endpoints: []string{w.server.Unix()}},
		testLog(t))
	if err != nil {
		t.Fatal(err)
	}
	defer nb.Close()
	if err := nb.WaitConnected(t.Context()); err != nil {
		t.Fatal(err)
	}
	clusters, err := nb.Clusters()
	// and that of the API itself
	want := map[string]map[drivers.Kind]int{
		"cluster-1": {drivers.KindOVNLoadBalancer: 2, drivers.KindOVNLoadBalancerGroup: 1},
	}
	if diff := cmp.Diff(want, clusters); err != nil || diff != "" {
		t.Error(err, diff)
	}
	c := w.cleanup(nb, time.Second)
	if left, err := c.Run(t.Context()); err != nil || len(left) > 0 {
		t.Errorf("left %v, error %v", left, err)
	}
	w.eventuallyVIPs(foreign)
	if switches, routers := w.joined(); switches+routers > 0 {
		t.Errorf("%d switches and %d routers are in a group still", switches, routers)
	}
}

// TestOneVIPOfTwoServices: the second one that wants an external address is told who has it, and gets it when that
// one goes.
func TestOneVIPOfTwoServices(t *testing.T) {
	t.Parallel()
	w := newOVNWorld(t)
	w.createNamespace("web")
	group := drivers.Resource{
		Name: "group", Claim: "group", Exports: []string{drivers.ServiceLoadBalancerGroup},
		Spec: drivers.OVNLoadBalancerGroup{Name: new("g")},
	}
	set := func(name string, addresses ...string) drivers.Set {
		lb := drivers.OVNLoadBalancer{Name: new("web/" + name), GroupID: drivers.From("group"), VIPs: []drivers.OVNVIP{}}
		for _, address := range addresses {
			lb.VIPs = append(lb.VIPs, drivers.OVNVIP{Protocol: "TCP", Address: drivers.Text(address), Port: 80})
		}
		return setOf(group, drivers.Resource{Name: "lb", Spec: lb})
	}
	sets := map[string]drivers.Set{
		"one": set("one", "10.96.0.1", "192.0.2.9"), "two": set("two", "10.96.0.2", "192.0.2.9"),
	}
	p := w.run(script("a", func(name string, _ *drivers.Needs) (drivers.Set, error) { return sets[name], nil }), nil)
	w.createMap("a", "one")
	one := "web/one:tcp,10.96.0.1:80= 192.0.2.9:80="
	w.eventuallyVIPs(one)
	w.createMap("a", "two")
	w.eventuallyVIPs(one, "web/two:tcp,10.96.0.2:80=")
	w.eventually("it is told who has the address", func() (bool, string) {
		text := fmt.Sprint(p.engine.Objects(reconcile.Filter{Name: "two"}))
		return strings.Contains(text, "load balancer web/one has it already"), text
	})
	w.deleteMap("one")
	w.eventuallyVIPs("web/two:tcp,10.96.0.2:80= 192.0.2.9:80=")
}
