// SPDX-License-Identifier: Apache-2.0

package reconcile_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kuryr/raven/drivers"
	"github.com/kuryr/raven/service/state"
	simcloud "github.com/kuryr/raven/test/sim/openstack"
)

// proxy is a driver of Services that holds a role and writes their status.
type proxy struct{ *scripted }

func (p proxy) Info() drivers.Info {
	info := p.scripted.Info()
	info.Role, info.Status, info.Annotations = drivers.ServiceProxy, []string{drivers.StatusLoadBalancer}, []string{"a/a"}
	return info
}

func (p proxy) Watches() []drivers.Watch {
	return []drivers.Watch{{Name: "services", GVR: services(), Kind: "Service", Source: true, Fields: []string{"spec"}}}
}

func services() schema.GroupVersionResource {
	return schema.GroupVersionResource{Version: "v1", Resource: "services"}
}

func (w *world) createService(name string) {
	w.t.Helper()
	w.create(services(), map[string]any{
		"apiVersion": "v1", "kind": "Service", "metadata": map[string]any{"name": name, "namespace": "default"},
		"spec": map[string]any{"type": "LoadBalancer", "ports": []any{map[string]any{"port": int64(80), "protocol": "TCP"}}},
	})
}

// forShop says the same for the Service "shop", and nothing for others, such as that of the API itself.
func forShop(set drivers.Set) func(string, *drivers.Needs) (drivers.Set, error) {
	return func(name string, _ *drivers.Needs) (drivers.Set, error) {
		if name != "shop" {
			return drivers.Set{}, nil
		}
		return set, nil
	}
}

// ingress returns the addresses in a Service's status.
func (w *world) ingress(name string) string {
	object, err := w.kube.Get(services(), "default", name)
	if err != nil {
		return err.Error()
	}
	status, _ := object["status"].(map[string]any)
	balancer, _ := status["loadBalancer"].(map[string]any)
	list, _ := balancer["ingress"].([]any)
	var addresses []string
	for _, element := range list {
		m, _ := element.(map[string]any)
		addresses = append(addresses, text(m, "ip"))
	}
	return strings.Join(addresses, " ")
}

func outgoing(s served) drivers.Set {
	s.floating = "any"
	set := s.set()
	set.Outputs = []drivers.Output{
		{Kind: drivers.Annotation, Key: "a/a", Text: drivers.From("lb", "vip_address")},
		{Kind: drivers.Ingress, Key: "4", Text: drivers.From(drivers.FloatingIPName("4"), "floating_ip_address")},
	}
	return set
}

// TestStatusOfAService is written once the load balancer is ready, is not written twice, and is taken back.
func TestStatusOfAService(t *testing.T) {
	t.Parallel()
	w := balancers(t, amphora())
	a := script("a", forShop(outgoing(shopOf(1))))
	s := setup{drivers: map[string]drivers.Driver{"a": proxy{a}}, config: quick}
	r := w.start(s)
	w.createService("shop")
	r.settled(2)
	want := text(w.cloud.FloatingIPs()[0], "floating_ip_address")
	w.eventually("the status", func() (bool, string) { return w.ingress("shop") == want, w.ingress("shop") })
	r.settled(2)
	r.stop()
	w.kube.ResetLog()
	r = w.start(s)
	r.settled(2)
	for _, request := range w.kube.Requests() {
		if request.Verb != "list" && request.Verb != "watch" && request.Verb != "get" {
			t.Errorf("after a restart nothing is to be written: %s %s", request.Verb, request.Path)
		}
	}
	inside := shopOf(1).set()
	a.now(forShop(inside))
	w.touchService("shop", 1)
	w.eventually("no status", func() (bool, string) { return w.ingress("shop") == "", w.ingress("shop") })
	w.eventually("no floating IP", func() (bool, string) { return len(w.cloud.FloatingIPs()) == 0, w.dump() })
}

func (w *world) touchService(name string, n int) {
	w.t.Helper()
	patch := fmt.Appendf(nil, `{"spec":{"healthCheckNodePort":%d}}`, 30000+n)
	if _, err := w.kube.Patch(services(), "default", name, types.MergePatchType, patch); err != nil {
		w.t.Fatal(err)
	}
}

// TestARoleChangesHands: what a driver made belongs to its role, so that another driver of the role keeps what it
// wants as well and ends the rest.
func TestARoleChangesHands(t *testing.T) {
	t.Parallel()
	w := balancers(t, amphora())
	first := setup{
		drivers: map[string]drivers.Driver{"a": proxy{script("a", forShop(outgoing(shopOf(1))))}}, config: quick,
	}
	r := w.start(first)
	w.createService("shop")
	r.settled(2)
	before := w.cloud.FloatingIPs()[0]
	r.stop()
	other := outgoing(shopOf(1))
	for i := range other.Resources {
		if spec, ok := other.Resources[i].Spec.(drivers.LoadBalancer); ok {
			spec.Name = new("other")
			other.Resources[i].Name, other.Resources[i].Spec = "other", spec
		}
		if spec, ok := other.Resources[i].Spec.(drivers.FloatingIP); ok {
			spec.PortID = drivers.From("other", "vip_port_id")
			other.Resources[i].Spec = spec
		}
	}
	other.Outputs = other.Outputs[1:]
	r = w.start(setup{drivers: map[string]drivers.Driver{"b": proxy{script("b", forShop(other))}}, config: quick})
	r.settled(2)
	w.none("loadbalancer", "shop")
	after := w.cloud.FloatingIPs()
	if len(after) != 1 || after[0]["id"] != before["id"] ||
		after[0]["port_id"] != w.one("loadbalancer", "other")["vip_port_id"] {
		t.Errorf("the floating IP was %v and is %v", before, after)
	}
}

// TestARoleIsExclusive: two drivers that hold one role do not work side by side.
func TestARoleIsExclusive(t *testing.T) {
	t.Parallel()
	w := balancers(t, amphora())
	r := w.start(setup{drivers: map[string]drivers.Driver{"a": proxy{script("a", always(drivers.Set{}))}}, config: quick})
	err := r.engine.Add("b", proxy{script("b", always(drivers.Set{}))}, nil)
	if err == nil || !strings.Contains(err.Error(), "role service-proxy") {
		t.Errorf("got %v", err)
	}
}

// TestCrashesBesideBalancers: whichever request is cut off and the process with it, another one brings all to the
// same end.
func TestCrashesBesideBalancers(t *testing.T) {
	t.Parallel()
	for n := 1; ; n++ {
		w := balancers(t, amphora())
		next := served{ports: []int64{80, 8080}, members: 3, monitor: true}
		a := script("a", always(shopOf(2).set()))
		s := with(a).configured(func(c *config) {
			quick(c)
			c.AmbiguousWait, c.SlowRetry, c.BackoffMax = 60*time.Millisecond, 50*time.Millisecond, 50*time.Millisecond
		})
		cut := make(chan struct{})
		w.cloud.OnRequest(func(_ int, r simcloud.Request) {
			if r.After && r.Fault != "" {
				close(cut)
			}
		})
		w.fault(simcloud.Rule{Method: "write", Nth: n, Action: simcloud.ActionApplyCut})
		run := w.start(s)
		crash := func() {
			select {
			case <-cut:
				run.stop()
				run, cut = w.start(s), make(chan struct{}) // a second time nothing is cut
			default:
			}
		}
		reached := func(what string, done func() bool) {
			w.eventually(fmt.Sprintf("%s, with request %d cut off", what, n), func() (bool, string) {
				crash()
				return done(), w.dump()
			})
		}
		w.createMap("a", "x")
		reached("a load balancer", func() bool {
			return run.object("a", "x").State == state.Done && len(w.members("shop:TCP:443")) == 2
		})
		a.now(always(next.set()))
		w.touchMap("x", 1)
		reached("its other ports", func() bool {
			return run.object("a", "x").State == state.Done && len(w.members("shop:TCP:8080")) == 3 &&
				len(w.members("shop:TCP:80")) == 3 &&
				len(w.cloud.Objects("healthmonitor")) == 2 && len(w.cloud.Objects("listener")) == 2 &&
				len(w.cloud.Objects("pool")) == 2
		})
		if got := len(w.cloud.LoadBalancers()); got != 1 {
			t.Errorf("request %d cut off: %d load balancers:\n%s", n, got, w.dump())
		}
		w.deleteMap("x")
		reached("nothing", func() bool {
			return len(w.cloud.LoadBalancers()) == 0 && len(w.named("network", "home")) == 0 && w.cloud.Count("port") == 0
		})
		run.stop()
		if w.cloud.Faults()[0].Acted == 0 {
			if n < 8 {
				t.Errorf("only %d requests", n-1)
			}
			return
		}
	}
}
