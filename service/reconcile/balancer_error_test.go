// SPDX-License-Identifier: Apache-2.0

package reconcile_test

import (
	"fmt"
	"net/http"
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

// stepped is a world whose time, the cloud's and Raven's, goes on only while something is waited for.
type stepped struct {
	*world
	clk *clocktesting.FakeClock
}

func steppedBalancers(t *testing.T, o simcloud.Options) stepped {
	t.Helper()
	clk := clocktesting.NewFakeClock(time.Now())
	work := simcloud.Work{Create: time.Second, Update: time.Second, Delete: time.Second}
	o.Clock, o.Providers = clk, []simcloud.Provider{simcloud.Amphora(work), simcloud.OVN(work)}
	return stepped{newWorld(t, simkube.Options{}, o), clk}
}

func (w stepped) start(s setup) *raven {
	w.t.Helper()
	s.clock = w.clk
	return w.world.start(
		s.configured(func(c *config) { c.DriftInterval, c.AmbiguousWait = 20*time.Second, 300*time.Millisecond }),
	)
}

// until lets time pass until something is so.
func (w stepped) until(what string, condition func() (bool, string)) {
	w.t.Helper()
	w.eventually(what, func() (bool, string) {
		ok, last := condition()
		if !ok {
			w.clk.Step(time.Second)
		}
		return ok, last
	})
}

func (w stepped) untilDone(r *raven, names ...string) {
	w.t.Helper()
	for _, name := range names {
		w.until(name+" is done", func() (bool, string) {
			o := r.object("a", name)
			return o.State == state.Done, fmt.Sprint(o.State, o.Reasons)
		})
	}
}

// asked lists when a method was asked for on load balancers.
func (w stepped) asked(method string) (at []time.Time) {
	for _, r := range w.cloud.Log(0) {
		if r.Method == method && strings.HasPrefix(r.Kind, "loadbalancer") {
			at = append(at, r.At)
		}
	}
	return at
}

// atLeast checks the times between requests.
func (w stepped) atLeast(at []time.Time, gaps ...time.Duration) {
	w.t.Helper()
	if len(at) != len(gaps)+1 {
		w.t.Fatalf("want %d requests, got %v", len(gaps)+1, at)
	}
	for i, least := range gaps {
		if gap := at[i+1].Sub(at[i]); gap < least {
			w.t.Errorf("request %d comes %v after the last one, want %v at least", i+2, gap, least)
		}
	}
}

// TestDeletionThatEndsInError is asked for again at once, and then less and less often, whatever it is for; people
// are told; and once the provider is well the load balancer goes.
func TestDeletionThatEndsInError(t *testing.T) {
	t.Parallel()
	place := setOf(exporting(network("home"), "net"), exporting(subnet("home", "10.7.0.0/16"), "sub"))
	shop := func(provider string) drivers.Set {
		s := served{provider: provider, ports: []int64{80}}
		s.extra = func(lb *drivers.LoadBalancer) { lb.VIPSubnetID = drivers.FromRole(of("place", "sub")) }
		set := s.set()
		set.Resources = set.Resources[2:]
		return set
	}
	says := func(set drivers.Set) func(string, *drivers.Needs) (drivers.Set, error) {
		return func(name string, _ *drivers.Needs) (drivers.Set, error) {
			if name == "place" {
				return place, nil
			}
			return set, nil
		}
	}
	for name, c := range map[string]struct {
		end      func(w stepped, a *scripted)
		gone     bool
		provider string // of the one that takes its place
	}{
		"nobody wants it":    {end: func(_ stepped, a *scripted) { a.now(says(drivers.Set{})) }},
		"another provider":   {end: func(_ stepped, a *scripted) { a.now(says(shop("ovn"))) }, provider: "ovn"},
		"its object is gone": {end: func(w stepped, _ *scripted) { w.deleteMap("x"); w.deleteMap("place") }, gone: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := steppedBalancers(t, simcloud.Options{})
			a := script("a", says(shop("amphora")))
			r := w.start(with(a))
			w.createMap("a", "place")
			w.createMap("a", "x")
			w.untilDone(r, "place", "x")
			w.cloud.ResetLog()
			w.fault(simcloud.Rule{
				Method: http.MethodDelete, Kind: "loadbalancer", Action: simcloud.ActionProviderError, Times: 4,
			})
			c.end(w, a)
			if !c.gone {
				w.touchMap("x", 1)
			}
			w.until("it is in ERROR for the second time", func() (bool, string) {
				found := w.named("loadbalancer", "shop")
				return len(w.asked(http.MethodDelete)) >= 2 && len(found) == 1 && found[0]["provisioning_status"] == "ERROR",
					w.dump()
			})
			if c.gone {
				w.until("who waits for it is told why", func() (bool, string) {
					told := map[string]bool{}
					for _, o := range r.engine.Objects(reconcile.Filter{Driver: "a"}) {
						told[o.Name] = o.Deleted && strings.Contains(fmt.Sprint(o.Reasons), "in ERROR though it was asked to go")
					}
					return told["x"] && told["place"], fmt.Sprint(r.engine.Objects(reconcile.Filter{}))
				})
			} else {
				w.until("an Event", func() (bool, string) {
					list, err := w.kube.List(events(), "default")
					return err == nil && strings.Contains(fmt.Sprint(list), "it was asked to go 1 times since then"), fmt.Sprint(list)
				})
			}
			w.until("it goes", func() (bool, string) {
				found := w.named("loadbalancer", "shop")
				return len(found) == 0 && c.provider == "" || len(found) == 1 && found[0]["provider"] == c.provider, w.dump()
			})
			w.atLeast(w.asked(http.MethodDelete), 0, time.Minute, 2*time.Minute, 4*time.Minute)
			if c.gone {
				w.until("all goes", func() (bool, string) { return len(w.named("network", "home")) == 0, w.dump() })
			} else {
				w.untilDone(r, "x", "place")
			}
		})
	}
}

// TestDeletionOfWhatIsWellAgain: a load balancer that did not go, and that an operator has brought back, is deleted
// at once: the one that is to take its place waits for that.
func TestDeletionOfWhatIsWellAgain(t *testing.T) {
	t.Parallel()
	w := steppedBalancers(t, simcloud.Options{})
	set := func(provider string) func(string, *drivers.Needs) (drivers.Set, error) {
		return always(served{provider: provider, ports: []int64{80}}.set())
	}
	a := script("a", set("amphora"))
	r := w.start(with(a))
	w.createMap("a", "x")
	w.untilDone(r, "x")
	first := text(w.one("loadbalancer", "shop"), "id")
	w.cloud.ResetLog()
	remove, err := w.cloud.AddFault(simcloud.Rule{
		Method: http.MethodDelete, Kind: "loadbalancer", Action: simcloud.ActionProviderError,
	})
	if err != nil {
		t.Fatal(err)
	}
	a.now(set("ovn"))
	w.touchMap("x", 1)
	w.until("it rests", func() (bool, string) {
		o := r.object("a", "x")
		why := fmt.Sprint(o.State, o.Reasons)
		return strings.Contains(why, "in ERROR though it was asked to go") &&
			w.one("loadbalancer", "shop")["provisioning_status"] == "ERROR", why + w.dump()
	})
	n := len(w.asked(http.MethodDelete))
	w.cloud.RemoveFault(remove)
	if err := w.cloud.SetProvisioningStatus(first, "ACTIVE"); err != nil {
		t.Fatal(err)
	}
	if err := r.engine.Observe(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.eventually("it is asked to go, and no time has passed", func() (bool, string) {
		return len(w.asked(http.MethodDelete)) > n, fmt.Sprint(w.lbWrites(), r.object("a", "x").Reasons)
	})
	w.until("the other one is there", func() (bool, string) {
		found := w.named("loadbalancer", "shop")
		return len(found) == 1 && found[0]["provider"] == "ovn" && found[0]["provisioning_status"] == "ACTIVE", w.dump()
	})
	w.untilDone(r, "x")
}

// TestRecovery: a load balancer in ERROR is failed over where that is allowed, else made anew; after that it is made
// anew less and less often, with an Event; and when it has been well for long that is forgotten.
func TestRecovery(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		user             string
		first, forgotten []string
		kept             bool // the first time
	}{
		"an administrator": {
			simcloud.UserAdmin, []string{"PUT loadbalancer_failover 202"}, []string{"PUT loadbalancer_failover 202"}, true,
		},
		"anybody": {
			"",
			[]string{"PUT loadbalancer_failover 403", "DELETE loadbalancer 204", "POST loadbalancer 201"},
			[]string{"DELETE loadbalancer 204", "POST loadbalancer 201"},
			false,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := steppedBalancers(t, simcloud.Options{})
			s := with(script("a", always(shopOf(1).set())))
			s.user = c.user
			r := w.start(s)
			w.createMap("a", "x")
			w.untilDone(r, "x")
			breaks := func(writes ...string) time.Time {
				t.Helper()
				w.cloud.ResetLog()
				if err := w.cloud.SetError(text(w.one("loadbalancer", "shop"), "id")); err != nil {
					t.Fatal(err)
				}
				w.until("it is repaired", func() (bool, string) {
					found := w.named("loadbalancer", "shop")
					return len(w.lbWrites()) > 0 && len(found) == 1 && found[0]["provisioning_status"] == "ACTIVE", w.dump()
				})
				w.untilDone(r, "x")
				w.wantWrites(writes...)
				if at := w.asked(http.MethodDelete); len(at) > 0 {
					return at[0]
				}
				return w.asked(http.MethodPut)[0]
			}
			id := w.one("loadbalancer", "shop")["id"]
			at := []time.Time{breaks(c.first...)}
			if kept := w.one("loadbalancer", "shop")["id"] == id; kept != c.kept {
				t.Errorf("it is the same one: %v, want %v", kept, c.kept)
			}
			for range 3 {
				at = append(at, breaks("DELETE loadbalancer 204", "POST loadbalancer 201"))
			}
			w.atLeast(at, time.Minute, 2*time.Minute, 4*time.Minute)
			w.told("made anew as a whole or in part, 1 times, next at", "3 times, next at")
			w.clk.Step(20 * time.Minute)
			breaks(c.forgotten...)
		})
	}
}

// TestPartsThatAreNotKnown: an older Octavia refuses a whole load balancer for a protocol that it does not know. The
// rest is served; people are told of the one that is not, and it is asked for every now and then, however often
// something else changes.
func TestPartsThatAreNotKnown(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ listener, pool, refused, why string }{
		"SCTP":    {"SCTP", "SCTP", "POST pool 400", "Value: 'SCTP'"},
		"PROXYV2": {"TCP", "PROXYV2", "POST pool 400", "Value: 'PROXYV2'"},
		// This is found out when there is a VIP port, which stays behind.
		"ill matched": {"HTTP", "UDP", "POST listener 400", "Validation failure"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := steppedBalancers(t, simcloud.Options{NoProtocols: []string{"SCTP", "PROXYV2"}})
			set := func(members int) drivers.Set {
				s := shopOf(members)
				s.address = "10.7.200.7"
				s.extra = func(lb *drivers.LoadBalancer) { lb.Listeners[1].Protocol, lb.Pools[1].Protocol = &c.listener, &c.pool }
				return s.set()
			}
			a := script("a", always(set(1)))
			r := w.start(with(a))
			refused := func() (n int) {
				for _, write := range w.lbWrites() {
					if write == c.refused {
						n++
					}
				}
				return n
			}
			served := func(members int) {
				t.Helper()
				w.until(fmt.Sprint(members, " members"), func() (bool, string) {
					o := r.object("a", "x")
					why := fmt.Sprint(o.State, o.Reasons)
					return len(w.members("shop:TCP:80")) == members && len(w.named("listener", "shop:TCP:80")) == 1 &&
						o.State == state.Terminal &&
						strings.Contains(why, c.why), why + w.dump()
				})
			}
			w.createMap("a", "x")
			served(1)
			w.told(c.why)
			counts := map[string]int{}
			for _, write := range w.lbWrites() {
				counts[write]++
			}
			if counts["POST loadbalancer 400"] != 1 || counts["POST loadbalancer 201"] != 1 ||
				counts["DELETE loadbalancer 204"] != 0 {
				t.Errorf("want it refused with parts, and made without: %v", w.lbWrites())
			}
			for n := 2; n <= 5; n++ {
				a.now(always(set(n)))
				w.touchMap("x", n)
				served(n)
			}
			if n := refused(); n != 1 {
				t.Errorf("the part was refused %d times: %v", n, w.lbWrites())
			}
			w.clk.Step(11 * time.Minute)
			w.until("it is asked for again", func() (bool, string) { return refused() == 2, fmt.Sprint(w.lbWrites()) })
			served(5)
			if n := len(w.named("loadbalancer", "shop")); n != 1 {
				t.Errorf("%d load balancers", n)
			}
		})
	}
}
