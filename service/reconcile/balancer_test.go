// SPDX-License-Identifier: Apache-2.0

package reconcile_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kuryr/raven/drivers"
	"github.com/kuryr/raven/service/state"
	simkube "github.com/kuryr/raven/test/sim/kube"
	simcloud "github.com/kuryr/raven/test/sim/openstack"
)

// TestBalancerIsMadeAtOnce: one request makes all of it, a second look asks for nothing, and its end leaves nothing.
func TestBalancerIsMadeAtOnce(t *testing.T) {
	t.Parallel()
	for name, provider := range map[string]simcloud.Provider{"amphora": amphora(), "ovn": ovnProvider()} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := balancers(t, provider)
			want := shopOf(3)
			want.provider = name
			a := script("a", always(want.set()))
			r := w.start(with(a).configured(quick))
			w.createMap("a", "x")
			r.settled(1)
			w.wantWrites("POST loadbalancer 201")
			lb := w.one("loadbalancer", "shop")
			if lb["provisioning_status"] != "ACTIVE" || len(w.members("shop:TCP:80")) != 3 ||
				len(w.cloud.Objects("listener")) != 2 {
				t.Errorf("it is not whole:\n%s", w.dump())
			}
			r.stop()
			w.cloud.ResetLog()
			r = w.start(with(a).configured(quick))
			r.settled(1)
			w.wantWrites()
			w.deleteMap("x")
			w.none("loadbalancer", "shop")
			w.none("network", "home")
			if left := w.cloud.Count("port"); left != 0 {
				t.Errorf("%d ports are left:\n%s", left, w.dump())
			}
		})
	}
}

// TestMembersGoTogether: however many members change while the load balancer is busy, one request brings them when it
// is free.
func TestMembersGoTogether(t *testing.T) {
	t.Parallel()
	const busy, changes = 150 * time.Millisecond, 37
	slow := amphora()
	slow.Work.Update = busy
	w := balancers(t, slow)
	a := script("a", always(shopOf(3).set()))
	r := w.start(with(a).configured(quick))
	w.createMap("a", "x")
	r.settled(1)
	w.cloud.ResetLog()
	began := time.Now()
	for n := 4; n < 4+changes; n++ {
		s := shopOf(n)
		s.ports = s.ports[:1]
		s.extra = func(lb *drivers.LoadBalancer) { // the other port stays as it is
			rest := shopOf(3).set().Resources[2].Spec.(drivers.LoadBalancer)
			lb.Listeners, lb.Pools = append(lb.Listeners, rest.Listeners[1]), append(lb.Pools, rest.Pools[1])
		}
		a.now(always(s.set()))
		w.touchMap("x", n)
		time.Sleep(10 * time.Millisecond)
	}
	w.eventually("40 members", func() (bool, string) {
		return len(w.members("shop:TCP:80")) == 40, fmt.Sprint(w.members("shop:TCP:80"))
	})
	r.settled(1)
	writes := w.lbWrites()
	if most := int(time.Since(began)/busy) + 2; len(writes) > most || len(writes) >= changes {
		t.Errorf("%d requests for %d changes, with time for %d: %v", len(writes), changes, most, writes)
	}
	if slices.ContainsFunc(writes, func(s string) bool { return s != "PUT member_batch 202" }) {
		t.Errorf("something else was asked for, or refused: %v", writes)
	}
	w.cloud.ResetLog()
	a.now(always(shopOf(0).set()))
	w.touchMap("x", 100)
	w.eventually("no members", func() (bool, string) { return len(w.cloud.Objects("member")) == 0, w.dump() })
	r.settled(1)
	w.wantWrites("PUT member_batch 202", "PUT member_batch 202")
}

// TestPartsChange: ports come and go, what cannot be changed in place is made anew, and what an operator added stays.
func TestPartsChange(t *testing.T) {
	t.Parallel()
	w := balancers(t, amphora())
	a := script("a", always(shopOf(2).set()))
	r := w.start(with(a).configured(quick))
	w.createMap("a", "x")
	r.settled(1)
	lb := w.one("loadbalancer", "shop")
	w.by(http.MethodPost, "/lbaas/listeners", map[string]any{"listener": map[string]any{
		"name": "mine", "protocol": "TCP", "protocol_port": 9999, "loadbalancer_id": lb["id"],
	}}, http.StatusCreated)
	next := served{ports: []int64{80, 8080}, members: 2, monitor: true}
	next.extra = func(lb *drivers.LoadBalancer) {
		lb.Listeners[0].ConnectionLimit = new(int64(10))
		lb.Pools[0].SessionPersistence = &drivers.SessionPersistence{Type: "SOURCE_IP"}
		lb.Pools[0].LBAlgorithm = new("LEAST_CONNECTIONS")
	}
	a.now(always(next.set()))
	w.touchMap("x", 1)
	w.one("listener", "shop:TCP:8080")
	w.none("pool", "shop:TCP:443")
	r.settled(1)
	listener, pool := w.one("listener", "shop:TCP:80"), w.one("pool", "shop:TCP:80")
	if fmt.Sprint(listener["connection_limit"]) != "10" || pool["lb_algorithm"] != "LEAST_CONNECTIONS" ||
		pool["session_persistence"] == nil {
		t.Errorf("it was not changed:\n%s", w.dump())
	}
	if len(w.cloud.Objects("healthmonitor")) != 2 || len(w.named("listener", "mine")) != 1 ||
		len(w.named("listener", "shop:TCP:443")) != 0 {
		t.Errorf("want 2 monitors, the operator's listener and not the old one:\n%s", w.dump())
	}
	if w.one("loadbalancer", "shop")["id"] != lb["id"] {
		t.Error("it was replaced")
	}
	w.cloud.ResetLog()
	next.monitor = false
	a.now(always(next.set()))
	w.touchMap("x", 2)
	w.eventually("no monitors", func() (bool, string) { return len(w.cloud.Objects("healthmonitor")) == 0, w.dump() })
	r.settled(1)
	w.wantWrites("DELETE healthmonitor 204", "DELETE healthmonitor 204")
}

// TestStuckParts: a release that makes a load balancer ready and never its parts is noticed, cleaned up after, and
// remembered.
func TestStuckParts(t *testing.T) {
	t.Parallel()
	provider := amphora()
	provider.StuckChildren = true
	w := balancers(t, provider)
	a := script("a", func(name string, _ *drivers.Needs) (drivers.Set, error) {
		s := shopOf(2)
		s.extra = func(lb *drivers.LoadBalancer) { lb.Name = new(name) }
		return s.set(), nil
	})
	r := w.start(with(a).configured(func(c *config) {
		quick(c)
		c.StillAfter = 300 * time.Millisecond
	}))
	w.createMap("a", "x")
	r.settled(1)
	if len(w.members("shop:TCP:443")) != 2 || len(w.cloud.Objects("listener")) != 2 {
		t.Errorf("it is not whole:\n%s", w.dump())
	}
	w.cloud.ResetLog()
	w.createMap("a", "y")
	r.settled(2)
	if writes := w.lbWrites(); slices.ContainsFunc(writes, func(s string) bool {
		return strings.HasPrefix(s, "DELETE")
	}) || len(writes) != 7 {
		t.Errorf("the second one should be made part by part at once: %v", writes)
	}
}

// TestStuckMonitors: OVN's provider never makes the health monitors of a full create.
func TestStuckMonitors(t *testing.T) {
	t.Parallel()
	provider := ovnProvider()
	provider.Lacks = slices.DeleteFunc(provider.Lacks, func(what string) bool {
		return what == simcloud.LackForeignMonitors
	})
	w := balancers(t, provider)
	want := served{provider: "ovn", ports: []int64{80}, members: 2, monitor: true}
	r := w.start(with(script("a", always(want.set()))).configured(func(c *config) {
		quick(c)
		c.StillAfter = 300 * time.Millisecond
	}))
	w.createMap("a", "x")
	r.settled(1)
	if monitors := w.cloud.Objects("healthmonitor"); len(monitors) != 1 || monitors[0]["provisioning_status"] != "ACTIVE" {
		t.Errorf("want one monitor, ACTIVE:\n%s", w.dump())
	}
}

// TestWhatAProviderCannotDo is said, and the rest works.
func TestWhatAProviderCannotDo(t *testing.T) {
	t.Parallel()
	w := balancers(t, ovnProvider())
	want := served{provider: "ovn", ports: []int64{80, 443}, members: 1, address: "10.7.0.99"}
	want.extra = func(lb *drivers.LoadBalancer) {
		lb.Listeners[1].Protocol, lb.Pools[1].Protocol = new("HTTP"), new("HTTP")
	}
	r := w.start(with(script("a", always(want.set()))).configured(func(c *config) {
		quick(c)
		c.AmbiguousWait = 400 * time.Millisecond
	}))
	w.createMap("a", "x")
	r.stands("a", "x", state.Waiting, "a port has the address that no load balancer owns")
	r.stands("a", "x", state.Terminal, "does not support HTTP")
	w.one("listener", "shop:TCP:80")
	w.eventually("the port that works has its member", func() (bool, string) {
		return len(w.members("shop:TCP:80")) == 1, w.dump()
	})
	w.eventually("what there is is written", func() (bool, string) {
		object, err := w.kube.Get(configMaps(), "default", "x")
		if err != nil {
			return false, err.Error()
		}
		return strings.Contains(fmt.Sprint(object["metadata"]), "a/a:10.7."), fmt.Sprint(object["metadata"])
	})
	w.eventually("an Event", func() (bool, string) {
		list, err := w.kube.List(events(), "default")
		return err == nil && strings.Contains(fmt.Sprint(list), "does not support HTTP"), fmt.Sprint(list)
	})
}

// TestBalancerInError is failed over, or made anew, once; then less and less often.
func TestBalancerInError(t *testing.T) {
	t.Parallel()
	w := balancers(t, amphora())
	r := w.start(with(script("a", always(shopOf(1).set()))).configured(func(c *config) {
		quick(c)
		c.DriftInterval = 100 * time.Millisecond
	}))
	w.createMap("a", "x")
	r.settled(1)
	w.cloud.ResetLog()
	first := w.one("loadbalancer", "shop")
	if err := w.cloud.SetError(text(first, "id")); err != nil {
		t.Fatal(err)
	}
	w.eventually("another load balancer", func() (bool, string) {
		found := w.named("loadbalancer", "shop")
		return len(found) == 1 && found[0]["id"] != first["id"] && found[0]["provisioning_status"] == "ACTIVE", w.dump()
	})
	r.settled(1)
	w.wantWrites("PUT loadbalancer_failover 403", "DELETE loadbalancer 204", "POST loadbalancer 201")
	w.eventually("an Event", func() (bool, string) {
		list, err := w.kube.List(events(), "default")
		return err == nil && strings.Contains(fmt.Sprint(list), "it is in ERROR"), fmt.Sprint(list)
	})
	w.cloud.ResetLog()
	if err := w.cloud.SetError(text(w.one("loadbalancer", "shop"), "id")); err != nil {
		t.Fatal(err)
	}
	r.stands("a", "x", state.Waiting, "it is in ERROR")
	time.Sleep(300 * time.Millisecond)
	w.wantWrites()
}

// TestBalancerThatNeverBecomesReady is reported, and delays no other object.
func TestBalancerThatNeverBecomesReady(t *testing.T) {
	t.Parallel()
	w := balancers(t, amphora())
	w.fault(simcloud.Rule{Method: http.MethodPost, Kind: "loadbalancer", Times: 1, Action: simcloud.ActionProviderStall})
	a := script("a", func(name string, _ *drivers.Needs) (drivers.Set, error) {
		s := shopOf(1)
		s.extra = func(lb *drivers.LoadBalancer) { lb.Name = new(name) }
		return s.set(), nil
	})
	r := w.start(with(a).configured(func(c *config) {
		quick(c)
		c.ActivationTimeout, c.SlowRetry = 300*time.Millisecond, 200*time.Millisecond
	}))
	w.createMap("a", "x")
	r.stands("a", "x", state.Waiting, "PENDING_CREATE")
	w.createMap("a", "y")
	r.stands("a", "y", state.Done, "")
	w.eventually("an Event", func() (bool, string) {
		list, err := w.kube.List(events(), "default")
		return err == nil && strings.Contains(fmt.Sprint(list), "has not become ready"), fmt.Sprint(list)
	})
	if err := w.cloud.SetProvisioningStatus(text(w.one("loadbalancer", "x"), "id"), "ACTIVE"); err != nil {
		t.Fatal(err)
	}
	r.stands("a", "x", state.Done, "")
}

// TestAnotherProvider replaces the load balancer: the old one goes first, for it has the address, and the floating IP
// stays.
func TestAnotherProvider(t *testing.T) {
	t.Parallel()
	w := balancers(t, amphora(), ovnProvider())
	want := served{provider: "amphora", ports: []int64{80}, members: 2, address: "10.7.0.200", floating: "any"}
	a := script("a", always(want.set()))
	r := w.start(with(a).configured(quick))
	w.createMap("a", "x")
	r.settled(1)
	address := w.cloud.FloatingIPs()[0]["floating_ip_address"]
	want.provider = "none"
	a.now(always(want.set()))
	w.touchMap("x", 0)
	r.stands("a", "x", state.Terminal, `no provider "none"`)
	if got := w.one("loadbalancer", "shop")["provider"]; got != "amphora" {
		t.Errorf("it was given up for a provider that is not there: %v", got)
	}
	want.provider = "ovn"
	a.now(always(want.set()))
	w.touchMap("x", 1)
	w.eventually("one of the other provider", func() (bool, string) {
		found := w.named("loadbalancer", "shop")
		return len(found) == 1 && found[0]["provider"] == "ovn", w.dump()
	})
	r.settled(1)
	ips := w.cloud.FloatingIPs()
	if len(ips) != 1 || ips[0]["floating_ip_address"] != address ||
		ips[0]["port_id"] != w.one("loadbalancer", "shop")["vip_port_id"] {
		t.Errorf("the floating IP is %v", ips)
	}
}

// TestCutCreates: whatever is cut off, there is one load balancer in the end, and it is whole.
func TestCutCreates(t *testing.T) {
	t.Parallel()
	for _, action := range []simcloud.Action{simcloud.ActionApplyCut, simcloud.ActionCut, simcloud.ActionApplyStatus} {
		t.Run(string(action), func(t *testing.T) {
			t.Parallel()
			w := balancers(t, amphora())
			w.fault(simcloud.Rule{Method: http.MethodPost, Kind: "loadbalancer", Times: 1, Action: action, Status: 504})
			r := w.start(with(script("a", always(shopOf(1).set()))).configured(func(c *config) {
				quick(c)
				c.AmbiguousWait = 300 * time.Millisecond
			}))
			w.createMap("a", "x")
			r.settled(1)
			if len(w.cloud.LoadBalancers()) != 1 || len(w.members("shop:TCP:443")) != 1 {
				t.Errorf("it is not one, or not whole:\n%s", w.dump())
			}
		})
	}
}

// TestOctaviaUnavailable: while the load balancing service is away nothing is concluded, and everything else works.
func TestOctaviaUnavailable(t *testing.T) {
	t.Parallel()
	w := balancers(t, amphora())
	a, b := script("a", always(shopOf(1).set())), script("b", always(shop()))
	config := func(c *config) {
		quick(c)
		c.SlowRetry, c.AmbiguousWait = 50*time.Millisecond, 100*time.Millisecond
	}
	r := w.start(with(a, b).configured(config))
	w.createMap("a", "x")
	r.settled(1)
	r.stop()
	w.fault(simcloud.Rule{Path: "^/v2.0/lbaas/", Action: simcloud.ActionStatus, Status: 503})
	w.cloud.ResetLog()
	r = w.start(with(a, b).configured(config))
	w.createMap("b", "y")
	r.stands("b", "y", state.Done, "")
	r.stands("a", "x", state.Waiting, "load balancing service")
	w.wantWrites()
	w.cloud.ClearFaults()
	r.settled(2)
	w.wantWrites()
}

// TestQuotaOfBalancers waits for room.
func TestQuotaOfBalancers(t *testing.T) {
	t.Parallel()
	w := newWorld(t, simkube.Options{},
		simcloud.Options{Providers: []simcloud.Provider{amphora()}, Quotas: map[string]int{"load_balancer": 1}})
	a := script("a", func(name string, _ *drivers.Needs) (drivers.Set, error) {
		s := shopOf(1)
		s.extra = func(lb *drivers.LoadBalancer) { lb.Name = new(name) }
		return s.set(), nil
	})
	r := w.start(with(a).configured(quick))
	w.createMap("a", "x")
	r.settled(1)
	w.createMap("a", "y")
	r.stands("a", "y", state.Waiting, "Quota")
	w.deleteMap("x")
	r.stands("a", "y", state.Done, "")
}

// TestFloatingIPIsTaken: an address that is there and free is taken, one that is used is not.
func TestFloatingIPIsTaken(t *testing.T) {
	t.Parallel()
	w := balancers(t, amphora())
	public := w.named("network", "public")[0]
	made := w.by(http.MethodPost, "/floatingips",
		map[string]any{"floatingip": map[string]any{"floating_network_id": public["id"]}}, http.StatusCreated)
	ip, _ := made["floatingip"].(map[string]any)
	want := served{ports: []int64{80}, members: 1, floating: text(ip, "floating_ip_address")}
	a := script("a", func(name string, _ *drivers.Needs) (drivers.Set, error) {
		s := want
		s.extra = func(lb *drivers.LoadBalancer) { lb.Name = new(name) }
		return s.set(), nil
	})
	r := w.start(with(a).configured(quick))
	w.createMap("a", "x")
	r.stands("a", "x", state.Done, "")
	ips := w.cloud.FloatingIPs()
	if len(ips) != 1 || ips[0]["port_id"] != w.one("loadbalancer", "x")["vip_port_id"] {
		t.Errorf("it was not taken: %v", ips)
	}
	w.createMap("a", "y")
	r.stands("a", "y", state.Failing, "is not free: it belongs to ConfigMap default/x")
	w.one("loadbalancer", "y")
	w.deleteMap("x")
	r.stands("a", "y", state.Done, "")
	w.deleteMap("y")
	w.none("loadbalancer", "y")
	if ips := w.cloud.FloatingIPs(); len(ips) != 1 || ips[0]["port_id"] != nil {
		t.Errorf("what was there before must stay, and lead nowhere: %v", ips)
	}
}

// TestABurstOfBalancers: however many are made at once, each is one request, and one look at a time is had at all of
// them: its cost does not grow with their number, and between two of them lies the interval. Both hold on every
// machine, however slow.
func TestABurstOfBalancers(t *testing.T) {
	t.Parallel()
	const n = 50
	for _, provider := range []simcloud.Provider{amphora(), ovnProvider()} {
		t.Run(provider.Name, func(t *testing.T) {
			t.Parallel()
			w := balancers(t, provider)
			a := script("a", func(name string, _ *drivers.Needs) (drivers.Set, error) {
				s := shopOf(3)
				s.provider = provider.Name
				s.extra = func(lb *drivers.LoadBalancer) { lb.Name = new(name) }
				return s.set(), nil
			})
			const interval = 50 * time.Millisecond
			r := w.start(with(a).configured(func(c *config) {
				c.PollInterval = interval
				c.DriftInterval = time.Hour // whose lists would be counted, too
			}))
			for i := range n {
				w.createMap("a", fmt.Sprintf("x%d", i))
			}
			r.settled(n)
			reads := map[string]int{}
			total := 0
			for _, request := range w.cloud.Log(0) {
				if strings.HasPrefix(request.Path, "/v2.0/lbaas") && request.Method == http.MethodGet {
					reads[request.Kind]++
					total++
				}
			}
			polls := w.polls()
			for i := range polls[1:] {
				// A poll begins after the answer to the last one, and its request arrives after it is sent.
				if gap := polls[i+1].Sub(polls[i]); gap < interval {
					t.Errorf("poll %d comes %v after the last one", i+2, gap)
				}
			}
			writes := w.lbWrites()
			if len(writes) != n || slices.ContainsFunc(writes, func(s string) bool { return s != "POST loadbalancer 201" }) {
				t.Errorf("want one create for each of %d, got %d: %v", n, len(writes), writes)
			}
			t.Logf("%d load balancers of %d parts: %d requests to change, %d to read: %v", n, 10, len(writes), total, reads)
			// One poll is a list of the load balancers, and either one of each kind of part or the trees of the last
			// three. Beside them are those of the first observation.
			if len(polls) == 0 || total > 4*(len(polls)+1) {
				t.Errorf("%d reads for %d load balancers in %d polls: %v", total, n, len(polls), reads)
			}
		})
	}
}

// TestPollsBecomeRare: as long as nothing moves each poll comes later after the last one.
func TestPollsBecomeRare(t *testing.T) {
	t.Parallel()
	w := balancers(t, amphora())
	w.fault(simcloud.Rule{Method: http.MethodPost, Kind: "loadbalancer", Action: simcloud.ActionProviderStall})
	const first, many = 10 * time.Millisecond, 12
	r := w.start(with(script("a", always(shopOf(1).set()))).configured(func(c *config) { c.PollInterval = first }))
	w.createMap("a", "x")
	r.stands("a", "x", state.Waiting, "PENDING_CREATE")
	w.eventually("some polls", func() (bool, string) { return len(w.polls()) >= many, fmt.Sprint(w.polls()) })
	polls := w.polls()
	least := float64(first)
	for i := range many - 2 {
		if gap := polls[i+2].Sub(polls[i+1]); float64(gap) < least {
			t.Errorf("poll %d comes %v after the last one, want %v at least", i+3, gap, time.Duration(least))
		}
		least *= 1.15
	}
}
