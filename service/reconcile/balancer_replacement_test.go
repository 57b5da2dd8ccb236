// SPDX-License-Identifier: Apache-2.0

package reconcile_test

import (
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/kuryr/raven/drivers"
	"github.com/kuryr/raven/service/state"
	simkube "github.com/kuryr/raven/test/sim/kube"
	simcloud "github.com/kuryr/raven/test/sim/openstack"
)

// placed is where the load balancers of several objects are to be, and with which flavor; "place" has the subnet.
type placed struct{ addresses, flavors map[string]string }

func (p placed) says(name string, _ *drivers.Needs) (drivers.Set, error) {
	if name == "place" {
		return setOf(exporting(network("home"), "net"), exporting(subnet("home", "10.7.0.0/16"), "sub")), nil
	}
	if p.addresses[name] == "" {
		return drivers.Set{}, nil
	}
	s := served{provider: "amphora", ports: []int64{80}, members: 1, address: p.addresses[name]}
	s.extra = func(lb *drivers.LoadBalancer) {
		lb.Name, lb.VIPSubnetID = new(name), drivers.FromRole(of("place", "sub"))
		if flavor := p.flavors[name]; flavor != "" {
			lb.FlavorID = &flavor
		}
		for i := range lb.Pools[0].Members {
			lb.Pools[0].Members[i].SubnetID = drivers.FromRole(of("place", "sub"))
		}
	}
	set := s.set()
	set.Resources = set.Resources[2:]
	return set, nil
}

// neighbours are load balancers x and y.
type neighbours struct {
	*world
	r *raven
	a *scripted
	n int
}

func newNeighbours(t *testing.T) *neighbours {
	t.Helper()
	v := &neighbours{world: balancers(t, amphora())}
	v.a = script("a", placed{addresses: map[string]string{"x": "10.7.200.1", "y": "10.7.200.2"}}.says)
	v.r = v.start(with(v.a).configured(quick))
	v.createMap("a", "place")
	v.createMap("a", "x")
	v.createMap("a", "y")
	v.r.settled(3)
	v.cloud.ResetLog()
	return v
}

// wish has other things wished of the objects, one after the other.
func (v *neighbours) wish(p placed, objects ...string) {
	v.a.now(p.says)
	for _, name := range objects {
		v.n++
		v.touchMap(name, v.n)
	}
}

func (v *neighbours) at(name, address string) {
	v.t.Helper()
	v.eventually(name+" at "+address, func() (bool, string) {
		found := v.named("loadbalancer", name)
		return len(found) == 1 && found[0]["vip_address"] == address && found[0]["provisioning_status"] == "ACTIVE", v.dump()
	})
}

// TestAddressOfALivingNeighbour: what another load balancer of Raven's has and keeps is not waited for with nothing
// left; when that one goes it is had.
func TestAddressOfALivingNeighbour(t *testing.T) {
	t.Parallel()
	v := newNeighbours(t)
	v.wish(placed{addresses: map[string]string{"x": "10.7.200.2", "y": "10.7.200.2"}}, "x")
	v.r.stands("a", "x", state.Terminal, `"lb" of ConfigMap default/y has the address 10.7.200.2, and keeps it`)
	v.wantWrites()
	v.at("x", "10.7.200.1")
	v.deleteMap("y")
	v.at("x", "10.7.200.2")
	v.r.settled(2)
}

// TestNeighboursChangePlaces: each has the address of the other, which goes with it, whoever is told first.
func TestNeighboursChangePlaces(t *testing.T) {
	t.Parallel()
	for name, alone := range map[string]bool{"at once": false, "one after the other": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			v := newNeighbours(t)
			if alone {
				v.wish(placed{addresses: map[string]string{"x": "10.7.200.2", "y": "10.7.200.2"}}, "x")
				v.r.stands("a", "x", state.Terminal, "and keeps it")
				v.wantWrites()
			}
			v.wish(placed{addresses: map[string]string{"x": "10.7.200.2", "y": "10.7.200.1"}}, "x", "y")
			v.at("x", "10.7.200.2")
			v.at("y", "10.7.200.1")
			v.r.settled(3)
		})
	}
}

// TestNeighbourThatCannotGo: the address of one that is to go, and cannot, is not had, and neither of the two is
// given up.
func TestNeighbourThatCannotGo(t *testing.T) {
	t.Parallel()
	v := newNeighbours(t)
	v.wish(placed{
		addresses: map[string]string{"x": "10.7.200.2", "y": "10.7.200.1"}, flavors: map[string]string{"y": nowhere},
	}, "y")
	v.r.stands("a", "y", state.Terminal, "no flavor of load balancers")
	v.touchMap("x", 1)
	v.r.stands("a", "x", state.Terminal, "and keeps it")
	v.wantWrites()
}

// TestBlockedReplacementAndBroken: what is not there is not asked for either when the load balancer that stays for
// that breaks.
func TestBlockedReplacementAndBroken(t *testing.T) {
	t.Parallel()
	v := newVetted(t, nil)
	first := v.one("loadbalancer", "shop")["id"]
	v.wish(1, func(lb *drivers.LoadBalancer) { lb.FlavorID = new(nowhere) })
	v.r.stands("a", "x", state.Terminal, "no flavor of load balancers")
	if err := v.cloud.SetError(text(v.one("loadbalancer", "shop"), "id")); err != nil {
		t.Fatal(err)
	}
	if err := v.r.engine.Observe(t.Context()); err != nil {
		t.Fatal(err)
	}
	v.eventually("another one, as it was", func() (bool, string) {
		found := v.named("loadbalancer", "shop")
		return len(found) == 1 && found[0]["id"] != first && found[0]["provisioning_status"] == "ACTIVE", v.dump()
	})
	v.wantWrites("PUT loadbalancer_failover 403", "DELETE loadbalancer 204", "POST loadbalancer 201")
	v.r.stands("a", "x", state.Terminal, "no flavor of load balancers")
	v.wish(1, nil)
	v.r.settled(1)
}

// TestReplacementWhoseAddressIsTaken, which could not be seen: it is made again as it was.
func TestReplacementWhoseAddressIsTaken(t *testing.T) {
	t.Parallel()
	v := newVetted(t, nil)
	home := v.named("network", "home")[0]
	v.by(http.MethodPost, "/ports", map[string]any{"port": map[string]any{
		"name": "somebody", "network_id": home["id"], "fixed_ips": []any{map[string]any{"ip_address": "10.7.200.7"}},
	}}, http.StatusCreated)
	v.fault(simcloud.Rule{
		Method: http.MethodGet, Kind: "port", Query: "10.7.200.7", Action: simcloud.ActionStatus, Status: 200,
		Response: `{"ports":[]}`,
	})
	v.wish(1, func(lb *drivers.LoadBalancer) { lb.VIPAddress = new("10.7.200.7") })
	v.r.stands("a", "x", state.Terminal, "is made anew as it was, since another one was refused")
	v.eventually("as it was", func() (bool, string) {
		found := v.named("loadbalancer", "shop")
		return len(found) == 1 && found[0]["provisioning_status"] == "ACTIVE" && found[0]["vip_address"] != "10.7.200.7",
			v.dump()
	})
}

// TestRefusedReplacementThatLeavesItsAddress: as it was it is made as soon as the port that the refusal left behind
// can be removed.
func TestRefusedReplacementThatLeavesItsAddress(t *testing.T) {
	t.Parallel()
	provider := amphora()
	provider.Lacks = append(provider.Lacks, simcloud.LackZones)
	w := balancers(t, provider)
	w.cloud.AddAvailabilityZone("az1", "amphora")
	want := served{provider: "amphora", ports: []int64{80}, members: 1, address: "10.7.200.7"}
	a := script("a", always(want.set()))
	r := w.start(with(a).configured(func(c *config) {
		quick(c)
		c.AmbiguousWait = 3 * time.Second // it is seen waiting meanwhile
	}))
	w.createMap("a", "x")
	r.settled(1)
	want.extra = func(lb *drivers.LoadBalancer) { lb.AvailabilityZone = new("az1") }
	a.now(always(want.set()))
	w.touchMap("x", 1)
	r.stands("a", "x", state.Waiting, "as it was")
	w.eventually("as it was", func() (bool, string) {
		found := w.named("loadbalancer", "shop")
		return len(found) == 1 && found[0]["provisioning_status"] == "ACTIVE" && found[0]["availability_zone"] == nil &&
			len(w.members("shop:TCP:80")) == 1, w.dump()
	})
	r.stands("a", "x", state.Terminal, "is made anew as it was")
	if ports := w.named("port", "octavia-lb-"+text(w.one("loadbalancer", "shop"), "id")); len(ports) != 1 {
		t.Errorf("its VIP's port is not the only one:\n%s", w.dump())
	}
}

// TestTheSameIsNotAskedForTwice: a load balancer that is made anew since it broke is refused once at a time.
func TestTheSameIsNotAskedForTwice(t *testing.T) {
	t.Parallel()
	v := newVetted(t, nil)
	v.fault(simcloud.Rule{
		Method: http.MethodPost, Kind: "loadbalancer", Action: simcloud.ActionStatus, Status: 400,
		Response: `{"faultstring":"No."}`,
	})
	if err := v.cloud.SetError(text(v.one("loadbalancer", "shop"), "id")); err != nil {
		t.Fatal(err)
	}
	if err := v.r.engine.Observe(t.Context()); err != nil {
		t.Fatal(err)
	}
	v.r.stands("a", "x", state.Terminal, "400 No.")
	// with parts, and without
	v.wantWrites("PUT loadbalancer_failover 403", "DELETE loadbalancer 204", "POST loadbalancer 400",
		"POST loadbalancer 400")
}

// TestRefusedForItsFurtherAddresses: that one load balancer is refused with them says nothing of the others of its
// provider, and it is not given up for another try.
func TestRefusedForItsFurtherAddresses(t *testing.T) {
	t.Parallel()
	w := balancers(t, amphora())
	set := func(name string, _ *drivers.Needs) (drivers.Set, error) {
		if name == "place" {
			return setOf(exporting(network("home"), "net"), exporting(subnet("home", "10.7.0.0/16"), "sub"), drivers.Resource{
				Name: "second", Exports: []string{"second"}, Spec: drivers.Subnet{
					Name: new("second"), NetworkID: drivers.From("network"), CIDR: new("10.8.0.0/24"), IPVersion: new(int64(4)),
				},
			}), nil
		}
		last := map[string]string{"x": "8", "y": "9"}[name]
		p := placed{addresses: map[string]string{name: "10.7.200." + last}}
		set, err := p.says(name, nil)
		lb, _ := set.Resources[0].Spec.(drivers.LoadBalancer)
		lb.AdditionalVIPs = []drivers.AdditionalVIP{
			{SubnetID: drivers.FromRole(of("place", "second")), IPAddress: "10.8.0." + last},
		}
		set.Resources[0].Spec = lb
		return set, err
	}
	w.fault(simcloud.Rule{
		Method: http.MethodPost, Kind: "loadbalancer", Body: "10.8.0.8", Action: simcloud.ActionStatus, Status: 400,
		Response: `{"faultstring":"Invalid input for field/attribute additional_vips: not this one."}`,
	})
	a := script("a", set)
	r := w.start(with(a).configured(quick))
	w.createMap("a", "place")
	w.createMap("a", "x")
	r.stands("a", "x", state.Terminal, "is made without its additional addresses")
	w.wantWrites("POST loadbalancer 400", "POST loadbalancer 201")
	w.eventually("it is served", func() (bool, string) {
		return w.one("loadbalancer", "x")["provisioning_status"] == "ACTIVE", w.dump()
	})
	r.stop()
	r = w.start(with(a).configured(quick))
	r.stands("a", "x", state.Terminal, "the cloud has refused before what is wished")
	w.wantWrites("POST loadbalancer 400", "POST loadbalancer 201")
	w.createMap("a", "y")
	w.eventually("both addresses", func() (bool, string) {
		found := w.named("loadbalancer", "y")
		if len(found) != 1 {
			return false, w.dump()
		}
		further, _ := found[0]["additional_vips"].([]any)
		return len(further) == 1, w.dump()
	})
	w.eventually("the first address of the other is served", func() (bool, string) {
		return len(w.members("shop:TCP:80")) == 2, w.dump()
	})
}

// TestPlaceInTheQuota: that of a load balancer that goes for another one is not given to those who wait.
func TestPlaceInTheQuota(t *testing.T) {
	t.Parallel()
	slow := amphora()
	slow.Work.Delete = 500 * time.Millisecond // whoever has asked before that it goes has an answer before it is gone
	w := newWorld(t, simkube.Options{},
		simcloud.Options{Providers: []simcloud.Provider{slow}, Quotas: map[string]int{"load_balancer": 1}})
	flavor := w.cloud.AddFlavor("large", "amphora")
	p := placed{addresses: map[string]string{"x": "10.7.200.1", "y": "10.7.200.2"}}
	a := script("a", p.says)
	r := w.start(with(a).configured(quick))
	w.createMap("a", "place")
	w.createMap("a", "x")
	r.settled(2)
	w.createMap("a", "y")
	r.stands("a", "y", state.Waiting, "Quota")
	w.fault(simcloud.Rule{
		Method: http.MethodPost, Kind: "loadbalancer", Body: flavor, Action: simcloud.ActionDelay,
		Delay: simcloud.Duration(200 * time.Millisecond),
	})
	w.cloud.ResetLog()
	p.flavors = map[string]string{"x": flavor}
	a.now(p.says)
	w.touchMap("x", 1)
	n := 0
	w.eventually("another one", func() (bool, string) {
		n++
		w.touchMap("y", n)
		return slices.ContainsFunc(w.named("loadbalancer", "x"), func(lb map[string]any) bool {
			return lb["flavor_id"] == flavor
		}), w.dump()
	})
	r.stands("a", "x", state.Done, "")
	if got := w.named("loadbalancer", "y"); len(got) != 0 {
		t.Errorf("its place went to another one:\n%s", w.dump())
	}
	w.deleteMap("x")
	r.stands("a", "y", state.Done, "")
}

// TestNewOnASubnetThatIsNotThere: what a user has written wrongly is not tried every half minute.
func TestNewOnASubnetThatIsNotThere(t *testing.T) {
	t.Parallel()
	w := balancers(t, amphora())
	want := shopOf(1)
	want.extra = func(lb *drivers.LoadBalancer) { lb.VIPSubnetID = drivers.Text(nowhere) }
	r := w.start(with(script("a", always(want.set()))).configured(quick))
	w.createMap("a", "x")
	r.stands("a", "x", state.Terminal, "Subnet "+nowhere+" not found")
	r.waitsLong("x")
}

// TestReplacementBlockedByANeighbourAndBroken: it is made again where it was, and does not wait for the address that
// it cannot have.
func TestReplacementBlockedByANeighbourAndBroken(t *testing.T) {
	t.Parallel()
	v := newNeighbours(t)
	v.wish(placed{addresses: map[string]string{"x": "10.7.200.2", "y": "10.7.200.2"}}, "x")
	v.r.stands("a", "x", state.Terminal, "and keeps it")
	first := v.one("loadbalancer", "x")["id"]
	if err := v.cloud.SetError(text(v.one("loadbalancer", "x"), "id")); err != nil {
		t.Fatal(err)
	}
	if err := v.r.engine.Observe(t.Context()); err != nil {
		t.Fatal(err)
	}
	v.eventually("another one", func() (bool, string) {
		found := v.named("loadbalancer", "x")
		return len(found) == 1 && found[0]["id"] != first, v.dump()
	})
	v.at("x", "10.7.200.1")
	v.r.stands("a", "x", state.Terminal, "and keeps it")
}

// TestNeighbourThatStaysAfterAll: what has gone for the address of one that was to leave is made again as it was when
// that one stays.
func TestNeighbourThatStaysAfterAll(t *testing.T) {
	t.Parallel()
	slow := amphora()
	slow.Work.Delete = 300 * time.Millisecond
	v := &neighbours{world: balancers(t, slow)}
	v.a = script("a", placed{addresses: map[string]string{"x": "10.7.200.1", "y": "10.7.200.2"}}.says)
	v.r = v.start(with(v.a).configured(quick))
	for _, name := range []string{"place", "x", "y"} {
		v.createMap("a", name)
	}
	v.r.settled(3)
	v.fault(simcloud.Rule{ // y cannot go yet
		Method: http.MethodDelete, Path: "/loadbalancers/" + text(v.one("loadbalancer", "y"), "id"),
		Action: simcloud.ActionStatus, Status: 503,
	})
	v.wish(placed{addresses: map[string]string{"x": "10.7.200.2", "y": "10.7.200.3"}}, "y")
	v.r.stands("a", "y", state.Failing, "503")
	v.touchMap("x", 1)
	v.none("loadbalancer", "x")
	v.wish(placed{addresses: map[string]string{"x": "10.7.200.2", "y": "10.7.200.2"}}, "y")
	v.r.stands("a", "y", state.Done, "")
	v.touchMap("x", 2)
	v.at("x", "10.7.200.1")
	v.r.stands("a", "x", state.Terminal, "and keeps it")
	v.at("y", "10.7.200.2")
}
