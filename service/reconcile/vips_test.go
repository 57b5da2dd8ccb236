// SPDX-License-Identifier: Apache-2.0

package reconcile_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/kuryr/raven/drivers"
	simkube "github.com/kuryr/raven/test/sim/kube"
	simcloud "github.com/kuryr/raven/test/sim/openstack"
)

// TestFurtherAddressesComeAndGo: one load balancer gives up an address for another to have it, and takes it again.
func TestFurtherAddressesComeAndGo(t *testing.T) {
	t.Parallel()
	w := balancers(t, amphora())
	const address = "10.8.0.9"
	// where is the second address: nowhere, at the same load balancer, at one of its own.
	set := func(where string) drivers.Set {
		s := shopOf(1)
		s.address = "10.7.255.9"
		s.extra = func(lb *drivers.LoadBalancer) {
			lb.AdditionalVIPs = []drivers.AdditionalVIP{}
			if where == "same" {
				lb.AdditionalVIPs = []drivers.AdditionalVIP{{SubnetID: drivers.From("second"), IPAddress: address}}
			}
		}
		set := s.set()
		second := subnet("second", "10.8.0.0/24")
		second.Name = "second"
		set.Resources = append(set.Resources, second)
		if where == "own" {
			set.Resources = append(set.Resources, drivers.Resource{Name: "lb-2", Spec: drivers.LoadBalancer{
				Name: new("second"), VIPSubnetID: drivers.From("second"), VIPAddress: new(address),
				AdditionalVIPs: []drivers.AdditionalVIP{},
			}})
		}
		return set
	}
	a := script("a", always(set("nowhere")))
	r := w.start(with(a).configured(soon))
	w.createMap("a", "x")
	r.settled(1)
	for i, where := range []string{"same", "own", "same", "nowhere", "own"} {
		a.now(always(set(where)))
		w.touchMap("x", i)
		own, same := 0, 0
		if where == "own" {
			own = 1
		}
		if where == "same" {
			same = 1
		}
		w.eventually(fmt.Sprint(i, ": the address is ", where), func() (bool, string) {
			first := w.named("loadbalancer", "shop")
			if len(first) != 1 || first[0]["provisioning_status"] != "ACTIVE" {
				return false, w.dump()
			}
			further, _ := first[0]["additional_vips"].([]any)
			return len(further) == same && len(w.named("loadbalancer", "second")) == own, w.dump()
		})
		r.settled(1)
	}
}

// TestMembersChangeTheirSubnet: they are made anew on the one that they should be on, and then rest.
func TestMembersChangeTheirSubnet(t *testing.T) {
	t.Parallel()
	w := balancers(t, amphora())
	want := shopOf(2)
	on := "subnet"
	want.extra = func(lb *drivers.LoadBalancer) {
		for i := range lb.Pools {
			for j := range lb.Pools[i].Members {
				m := &lb.Pools[i].Members[j]
				m.Address, m.SubnetID = fmt.Sprintf("10.9.0.%d", j), drivers.From(on) // an address that is on neither of them
			}
		}
	}
	set := func() drivers.Set {
		set := want.set()
		second := subnet("second", "10.8.0.0/24")
		second.Name = "second"
		set.Resources = append(set.Resources, second)
		return set
	}
	a := script("a", always(set()))
	r := w.start(with(a).configured(soon))
	w.createMap("a", "x")
	r.settled(1)
	on = "second"
	a.now(always(set()))
	w.touchMap("x", 1)
	id := w.one("subnet", "second")["id"]
	w.eventually("members on the second subnet", func() (bool, string) {
		for _, m := range w.cloud.Objects("member") {
			if m["subnet_id"] != id || m["provisioning_status"] != "ACTIVE" {
				return false, w.dump()
			}
		}
		return len(w.cloud.Objects("member")) == 4, w.dump()
	})
	r.settled(1)
}

// TestFurtherAddressesAreRefused: what is left of the wish is made, and people are told.
func TestFurtherAddressesAreRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t, simkube.Options{},
		simcloud.Options{Providers: []simcloud.Provider{amphora()}, NoAdditionalVIPs: true})
	want := shopOf(2)
	want.extra = func(lb *drivers.LoadBalancer) {
		lb.AdditionalVIPs = []drivers.AdditionalVIP{{SubnetID: drivers.From("second"), IPAddress: "10.8.0.9"}}
	}
	set := want.set()
	second := subnet("second", "10.8.0.0/24")
	second.Name = "second"
	set.Resources = append(set.Resources, second)
	s := with(script("a", always(set))).configured(soon)
	r := w.start(s)
	w.createMap("a", "x")
	r.settled(1)
	w.wantWrites("POST loadbalancer 400", "POST loadbalancer 201")
	w.eventually("an Event", func() (bool, string) {
		list, err := w.kube.List(events(), "default")
		return err == nil && strings.Contains(fmt.Sprint(list), "let it have a load balancer for each address"),
			fmt.Sprint(list)
	})
	r.stop()
	w.cloud.ResetLog()
	r = w.start(s)
	r.settled(1)
	w.wantWrites()
}
