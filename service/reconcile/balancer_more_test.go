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

	clocktesting "k8s.io/utils/clock/testing"

	"github.com/kuryr/raven/drivers"
	"github.com/kuryr/raven/service/reconcile"
	"github.com/kuryr/raven/service/state"
	simkube "github.com/kuryr/raven/test/sim/kube"
	simcloud "github.com/kuryr/raven/test/sim/openstack"
)

// TestBalancersDrift: what others change of a load balancer is repaired, and what they delete is created again.
func TestBalancersDrift(t *testing.T) {
	t.Parallel()
	w := balancers(t, amphora())
	r := w.start(with(script("a", always(shopOf(2).set()))).configured(func(c *config) {
		quick(c)
		c.DriftInterval = 50 * time.Millisecond
	}))
	w.createMap("a", "x")
	r.settled(1)
	pool := w.one("pool", "shop:TCP:80")
	w.by(http.MethodPut, "/lbaas/pools/"+text(pool, "id")+"/members", map[string]any{"members": []any{}},
		http.StatusAccepted)
	w.eventually("its members are back", func() (bool, string) { return len(w.members("shop:TCP:80")) == 2, w.dump() })
	r.settled(1)
	lb := w.one("loadbalancer", "shop")
	w.eventually("it can be deleted", func() (bool, string) {
		status, doc := w.cloud.Call(simcloud.UserKuryr, simcloud.ProjectKuryr, http.MethodDelete,
			"/lbaas/loadbalancers/"+text(lb, "id")+"?cascade=true", nil)
		return status == http.StatusNoContent, fmt.Sprint(status, doc)
	})
	w.eventually("another one", func() (bool, string) {
		found := w.named("loadbalancer", "shop")
		return len(found) == 1 && found[0]["id"] != lb["id"] && len(w.members("shop:TCP:443")) == 2, w.dump()
	})
	r.settled(1)
}

// TestTheSameAddressAgain: an object that is made anew under the same name waits for its predecessor's load balancer
// to go.
func TestTheSameAddressAgain(t *testing.T) {
	t.Parallel()
	slow := amphora()
	slow.Work.Delete = 300 * time.Millisecond
	w := balancers(t, slow)
	own := func(name string, _ *drivers.Needs) (drivers.Set, error) {
		if name == "place" {
			return setOf(exporting(network("home"), "net"), exporting(subnet("home", "10.7.0.0/16"), "sub")), nil
		}
		s := served{ports: []int64{80}, members: 0, address: "10.7.0.77"}
		s.extra = func(lb *drivers.LoadBalancer) { lb.VIPSubnetID = drivers.FromRole(of("place", "sub")) }
		set := s.set()
		set.Resources = set.Resources[2:]
		return set, nil
	}
	r := w.start(with(script("a", own)).configured(quick))
	w.createMap("a", "place")
	w.createMap("a", "x")
	r.settled(2)
	first := w.one("loadbalancer", "shop")
	w.cloud.ResetLog()
	w.deleteMap("x")
	w.createMap("a", "x")
	w.eventually("its successor", func() (bool, string) {
		found := w.named("loadbalancer", "shop")
		return len(found) == 1 && found[0]["id"] != first["id"], w.dump()
	})
	r.settled(2)
	w.wantWrites("DELETE loadbalancer 204", "POST loadbalancer 201")
}

// TestOrphanedBalancer: what belongs to an object that was deleted while Raven did not run is collected, and a cleanup
// removes what is left of a cluster.
func TestOrphanedBalancer(t *testing.T) {
	t.Parallel()
	w := balancers(t, amphora())
	s := with(script("a", always(shopOf(2).set()))).configured(quick)
	r := w.start(s)
	w.createMap("a", "x")
	r.settled(1)
	r.stop()
	w.deleteMap("x")
	r = w.start(s)
	w.none("loadbalancer", "shop")
	w.none("network", "home")
	w.createMap("a", "y")
	r.settled(1)
	r.stop()
	c := w.cleanup(emptyNorthbound{}, 5*time.Second)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if left, err := c.Run(ctx); err != nil || len(left) > 0 {
		t.Errorf("%v, %v", left, err)
	}
	if n := w.cloud.Count("loadbalancer") + w.cloud.Count("port"); n > 0 {
		t.Errorf("something is left:\n%s", w.dump())
	}
}

// TestGroupsOfTheVIP are set on the VIP's port, and followed.
func TestGroupsOfTheVIP(t *testing.T) {
	t.Parallel()
	w := balancers(t, amphora())
	want := shopOf(1)
	want.extra = func(lb *drivers.LoadBalancer) { lb.VIPSecurityGroups = []drivers.Value{drivers.From("group")} }
	set := want.set()
	set.Resources = append(set.Resources, group("vip"))
	a := script("a", always(set))
	r := w.start(with(a).configured(quick))
	w.createMap("a", "x")
	r.settled(1)
	lb, group := w.one("loadbalancer", "shop"), w.one("security_group", "vip")
	w.eventually("the group on the port", func() (bool, string) {
		i := slices.IndexFunc(w.cloud.Ports(), func(p map[string]any) bool { return p["id"] == lb["vip_port_id"] })
		return i >= 0 && fmt.Sprint(w.cloud.Ports()[i]["security_groups"]) == fmt.Sprint([]any{group["id"]}), w.dump()
	})
	w.deleteMap("x")
	w.none("security_group", "vip")
}

// TestAddressOfACreateUnderWay: the VIP port of a load balancer that is not visible yet is not taken from it.
func TestAddressOfACreateUnderWay(t *testing.T) {
	t.Parallel()
	w := balancers(t, amphora())
	want := served{ports: []int64{80}, members: 1}
	a := script("a", always(want.set()))
	r := w.start(with(a).configured(quick)) // the time after which it would be old is 2 minutes
	w.createMap("a", "x")
	r.settled(1)
	vip := w.one("loadbalancer", "shop")
	subnet, _ := vip["vip_subnet_id"].(string)
	id := "0f0e0d0c-0b0a-4908-8706-050403020100"
	status, doc := w.cloud.Call(simcloud.UserAdmin, simcloud.ProjectKuryr, http.MethodPost, "/ports",
		map[string]any{"port": map[string]any{
			"name": "octavia-lb-" + id, "device_owner": "Octavia", "device_id": "lb-" + id, "network_id": vip["vip_network_id"],
			"fixed_ips": []any{map[string]any{"subnet_id": subnet, "ip_address": "10.7.0.77"}},
		}})
	if status != http.StatusCreated {
		t.Fatalf("%d %v", status, doc)
	}
	want.address = "10.7.0.77"
	want.extra = func(lb *drivers.LoadBalancer) { lb.Name = new("other") }
	more := want.set().Resources[2]
	more.Name = "other"
	set := served{ports: []int64{80}, members: 1}.set()
	set.Resources = append(set.Resources, more)
	a.now(always(set))
	w.touchMap("x", 1)
	r.stands("a", "x", state.Waiting, "a port has the address that no load balancer owns")
	if len(w.named("port", "octavia-lb-"+id)) != 1 {
		t.Errorf("it was taken away:\n%s", w.dump())
	}
}

// TestABalancerThatLostItsTags is the same one: it is not made anew, and gets them back beside those of others. So is
// one that is to be kept from now on.
func TestABalancerThatLostItsTags(t *testing.T) {
	t.Parallel()
	w := balancers(t, amphora())
	a := script("a", always(shopOf(1).set()))
	r := w.start(with(a).configured(func(c *config) {
		quick(c)
		c.DriftInterval = time.Hour // it is not seen before something else is done
	}))
	w.createMap("a", "x")
	r.settled(1)
	lb := w.one("loadbalancer", "shop")
	w.by(http.MethodPut, "/lbaas/loadbalancers/"+text(lb, "id"),
		map[string]any{"loadbalancer": map[string]any{"tags": []string{"mine"}}}, http.StatusOK)
	w.eventually("it takes changes", func() (bool, string) {
		return w.one("loadbalancer", "shop")["provisioning_status"] == "ACTIVE", w.dump()
	})
	w.cloud.ResetLog()
	a.now(always(shopOf(3).set()))
	w.touchMap("x", 1)
	w.eventually("three members", func() (bool, string) { return len(w.members("shop:TCP:80")) == 3, w.dump() })
	r.settled(1)
	w.wantWrites("PUT member_batch 202", "PUT member_batch 202")
	if err := r.engine.Observe(t.Context()); err != nil {
		t.Fatal(err)
	}
	tags := func() []any {
		list, _ := w.one("loadbalancer", "shop")["tags"].([]any)
		return list
	}
	w.eventually("its tags", func() (bool, string) {
		return len(tags()) == 5 && slices.Contains(tags(), any("mine")), fmt.Sprint(tags())
	})
	r.settled(1)
	set := shopOf(3).set()
	set.Resources[2].OnDelete = drivers.Retain
	a.now(always(set))
	w.touchMap("x", 2)
	w.eventually("another policy", func() (bool, string) {
		return len(tags()) == 5 && slices.Contains(tags(), any("raven:policy=retain")), fmt.Sprint(tags())
	})
	r.settled(1)
	if now := w.one("loadbalancer", "shop"); now["id"] != lb["id"] {
		t.Error("it is another one")
	}
	if writes := w.lbWrites(); slices.ContainsFunc(writes, func(s string) bool { return strings.HasSuffix(s, "400") }) {
		t.Errorf("refused: %v", writes)
	}
}

// TestFloatingIPOfADriverLeftOut is not taken while it leads nowhere: its object may come back.
func TestFloatingIPOfADriverLeftOut(t *testing.T) {
	t.Parallel()
	w := balancers(t, amphora())
	public := w.named("network", "public")[0]
	made := w.by(http.MethodPost, "/floatingips",
		map[string]any{"floatingip": map[string]any{"floating_network_id": public["id"]}}, http.StatusCreated)
	ip, _ := made["floatingip"].(map[string]any)
	named := func(lb string) *scripted {
		want := served{ports: []int64{80}, members: 1, floating: text(ip, "floating_ip_address")}
		want.extra = func(spec *drivers.LoadBalancer) { spec.Name = new(lb) }
		set := want.set()
		set.Outputs = nil
		return script(lb, always(set))
	}
	r := w.start(with(named("a")).configured(quick))
	w.createMap("a", "x")
	r.settled(1)
	r.stop()
	w.by(http.MethodPut, "/floatingips/"+text(ip, "id"), map[string]any{"floatingip": map[string]any{"port_id": nil}},
		http.StatusOK)
	r = w.start(with(named("b")).configured(quick))
	w.createMap("b", "y")
	r.stands("b", "y", state.Failing, "driver a, which is not enabled")
	r.stop()
	r = w.start(with(named("a"), named("b")).configured(quick))
	r.stands("a", "x", state.Done, "")
	r.stands("b", "y", state.Failing, "it belongs to ConfigMap default/x")
	w.deleteMap("x")
	r.stands("b", "y", state.Done, "")
	if ips := w.cloud.FloatingIPs(); len(ips) != 1 || ips[0]["port_id"] != w.one("loadbalancer", "b")["vip_port_id"] {
		t.Errorf("it was not taken: %v", ips)
	}
}

// TestFloatingIPBeforeItsRouter: that no router joins the two networks yet is told only to who asks, unless it lasts.
func TestFloatingIPBeforeItsRouter(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		patience time.Duration
		told     bool
	}{"it comes": {time.Minute, false}, "it does not": {50 * time.Millisecond, true}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := balancers(t, amphora())
			set := func(joined bool) drivers.Set {
				set := served{ports: []int64{80}, members: 1, floating: "any"}.set()
				set.Resources = slices.DeleteFunc(set.Resources, func(r drivers.Resource) bool {
					return r.Name == "attachment" && !joined
				})
				set.Resources[len(set.Resources)-1].After = nil
				return set
			}
			a := script("a", always(set(false)))
			r := w.start(with(a).configured(func(conf *config) {
				quick(conf)
				conf.SlowRetry = c.patience
			}))
			w.createMap("a", "x")
			r.stands("a", "x", state.Waiting, "External network")
			said := func() (bool, string) {
				list, err := w.kube.List(events(), "default")
				return err == nil && strings.Contains(fmt.Sprint(list), "External network"), fmt.Sprint(list, err)
			}
			if c.told {
				w.eventually("an Event", said)
			}
			w.eventually("some tries", func() (bool, string) {
				tries := 0
				for _, request := range w.cloud.Log(0) {
					if request.Kind == "floatingip" && request.Status == http.StatusNotFound {
						tries++
					}
				}
				return tries > 3, fmt.Sprint(tries)
			})
			a.now(always(set(true)))
			w.touchMap("x", 1)
			r.settled(1)
			if now, list := said(); now != c.told {
				t.Errorf("told: %v: %s", now, list)
			}
		})
	}
}

// TestChurn: one Service of a thousand endpoints and a hundred changes take no more requests than the load balancer
// became free times, and none of them is refused. It is busy until the test says otherwise: nothing depends on how
// fast anything is.
func TestChurn(t *testing.T) {
	t.Parallel()
	const endpoints, changes, together = 1000, 100, 10
	const work = time.Second
	clk := clocktesting.NewFakeClock(time.Now())
	w := newWorld(t, simkube.Options{},
		simcloud.Options{Clock: clk, Providers: []simcloud.Provider{simcloud.Amphora(simcloud.Work{Update: work})}})
	want := served{ports: []int64{80}, members: endpoints}
	a := script("a", always(want.set()))
	r := w.start(with(a).configured(quick))
	w.createMap("a", "x")
	r.settled(1)
	w.cloud.ResetLog()
	asked := func(more int) {
		w.eventually("the next request", func() (bool, string) { return len(w.lbWrites()) >= more, fmt.Sprint(w.lbWrites()) })
	}
	for i := 1; i <= changes; i++ {
		want.first = i // one endpoint goes, another one comes
		before := a.asked()
		a.now(always(want.set()))
		w.touchMap("x", i)
		w.eventually("the change is seen", func() (bool, string) { return a.asked() > before, "" })
		switch {
		case i == 1:
			asked(1)
		case i%together == 0:
			n := len(w.lbWrites())
			clk.Step(work)
			asked(n + 1)
		}
	}
	w.eventually("all changes are made", func() (bool, string) {
		clk.Step(work)
		members := w.members("shop:TCP:80")
		phase := r.engine.Objects(reconcile.Filter{Name: "x"})[0].State
		return phase == state.Done && len(members) == endpoints && !slices.Contains(members, "10.7.0.101") &&
				slices.Contains(members, "10.7.4.101"),
			fmt.Sprint(r.engine.Objects(reconcile.Filter{Name: "x"}), len(members), w.lbWrites())
	})
	writes, free := w.lbWrites(), w.cloud.Stats().Freed
	if slices.ContainsFunc(writes, func(s string) bool { return s != "PUT member_batch 202" }) {
		t.Errorf("something else was asked for, or refused: %v", writes)
	}
	if len(writes) > free || len(writes) > changes/together+2 {
		t.Errorf("%d requests for %d changes; it became free %d times", len(writes), changes, free)
	}
	t.Logf("%d changes of one among %d endpoints: %d requests; it became free %d times", changes, endpoints, len(writes),
		free)
}

// TestAnActiveLoadBalancerIsNotPolled: a load balancer that is as it should be is not polled.
func TestAnActiveLoadBalancerIsNotPolled(t *testing.T) {
	t.Parallel()
	for _, provider := range []simcloud.Provider{amphora(), ovnProvider()} {
		t.Run(provider.Name, func(t *testing.T) {
			t.Parallel()
			w := balancers(t, provider)
			want := shopOf(3)
			want.provider, want.floating = provider.Name, "any"
			r := w.start(with(script("a", always(want.set()))).configured(func(c *config) {
				quick(c)
				c.DriftInterval = time.Hour
			}))
			w.createMap("a", "x")
			r.settled(1)
			w.cloud.ResetLog()
			time.Sleep(300 * time.Millisecond) // in which busy ones would be looked at many times
			if log := w.cloud.Log(0); len(log) > 0 {
				t.Errorf("%d requests in a steady state, the first is %s %s", len(log), log[0].Method, log[0].Path)
			}
		})
	}
}

// TestAddressOutsideItsSubnet is told, and not tried again and again.
func TestAddressOutsideItsSubnet(t *testing.T) {
	t.Parallel()
	for _, provider := range []simcloud.Provider{amphora(), ovnProvider()} {
		t.Run(provider.Name, func(t *testing.T) {
			t.Parallel()
			w := balancers(t, provider)
			want := served{provider: provider.Name, ports: []int64{80}, address: "10.9.0.1"}
			r := w.start(with(script("a", always(want.set()))).configured(func(c *config) {
				quick(c)
				c.AmbiguousWait = 50 * time.Millisecond
			}))
			w.createMap("a", "x")
			r.stands("a", "x", state.Terminal, "is not a valid IP for the specified subnet")
			r.waitsLong("x")
			w.told("is not a valid IP for the specified subnet")
		})
	}
}

// TestServiceThatFails: that a load balancer is not there since the service fails is told when it fails again, and
// not at once.
func TestServiceThatFails(t *testing.T) {
	t.Parallel()
	w := balancers(t, amphora())
	w.fault(simcloud.Rule{
		Method: http.MethodPost, Kind: "loadbalancer", Action: simcloud.ActionStatus, Status: 500,
		Response: `{"faultstring":"A fuse blew."}`,
	})
	r := w.start(with(script("a", always(shopOf(1).set()))).configured(func(c *config) {
		quick(c)
		c.AmbiguousWait = 100 * time.Millisecond
	}))
	w.createMap("a", "x")
	r.stands("a", "x", state.Waiting, "it may have been carried out all the same")
	w.told("fails again and again", "A fuse blew.")
	if n := len(w.lbWrites()); n < 2 {
		t.Errorf("it was told after %d tries", n)
	}
	w.cloud.ClearFaults()
	r.settled(1)
}

// waitsLong checks that an object is not tried again soon, unless something wakes it.
func (r *raven) waitsLong(name string) {
	r.w.t.Helper()
	for _, o := range r.engine.Objects(reconcile.Filter{Name: name}) {
		if o.NextTry == nil || time.Until(*o.NextTry) < 5*time.Minute {
			r.w.t.Errorf("it is tried again at %v", o.NextTry)
		}
	}
}

// told waits for an Event with all these texts.
func (w *world) told(texts ...string) {
	w.t.Helper()
	w.toldIn("default", texts...)
}

// toldIn waits for an Event in a namespace with all these texts.
func (w *world) toldIn(namespace string, texts ...string) {
	w.t.Helper()
	w.eventually("an Event", func() (bool, string) {
		list, err := w.kube.List(events(), namespace)
		said := fmt.Sprint(list)
		return err == nil && !slices.ContainsFunc(texts, func(text string) bool { return !strings.Contains(said, text) }),
			said
	})
}
