// SPDX-License-Identifier: Apache-2.0

package reconcile_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/kuryr/raven/drivers"
	"github.com/kuryr/raven/service/state"
	simcloud "github.com/kuryr/raven/test/sim/openstack"
)

const nowhere = "0f0e0d0c-0b0a-4908-8706-050403020100"

// vetted is a load balancer that another one is to take the place of.
type vetted struct {
	*world
	r    *raven
	a    *scripted
	want served
	n    int
}

func newVetted(t *testing.T, extra func(*drivers.LoadBalancer)) *vetted {
	t.Helper()
	v := &vetted{world: balancers(t, amphora(), ovnProvider()), want: shopOf(1)}
	v.want.provider, v.want.ports, v.want.extra = "amphora", []int64{80}, extra
	v.a = script("a", always(v.want.set()))
	v.r = v.start(with(v.a).configured(quick))
	v.createMap("a", "x")
	v.r.settled(1)
	v.cloud.ResetLog()
	return v
}

func (v *vetted) wish(members int, extra func(*drivers.LoadBalancer)) {
	v.want.members, v.want.extra = members, extra
	v.a.now(always(v.want.set()))
	v.n++
	v.touchMap("x", v.n)
}

// TestReplacementIsVetted: a load balancer is not given up for one that cannot be made; its members are followed all
// the same; and what is wished instead is done.
func TestReplacementIsVetted(t *testing.T) {
	t.Parallel()
	for text, change := range map[string]func(*vetted, *drivers.LoadBalancer){
		"no flavor of load balancers": func(_ *vetted, lb *drivers.LoadBalancer) { lb.FlavorID = new(nowhere) },
		"no availability zone":        func(_ *vetted, lb *drivers.LoadBalancer) { lb.AvailabilityZone = new("moon") },
		"no subnet":                   func(_ *vetted, lb *drivers.LoadBalancer) { lb.VIPSubnetID = drivers.Text(nowhere) },
		"no network": func(_ *vetted, lb *drivers.LoadBalancer) {
			lb.VIPSubnetID, lb.VIPNetworkID = drivers.Value{}, drivers.Text(nowhere)
		},
		"is no address of subnet": func(_ *vetted, lb *drivers.LoadBalancer) { lb.VIPAddress = new("10.9.0.1") },
		`"somebody") has the address 10.7.200.7`: func(v *vetted, lb *drivers.LoadBalancer) {
			home := v.named("network", "home")[0]
			if len(v.named("port", "somebody")) == 0 {
				v.by(http.MethodPost, "/ports", map[string]any{"port": map[string]any{
					"name": "somebody", "network_id": home["id"], "fixed_ips": []any{map[string]any{"ip_address": "10.7.200.7"}},
				}}, http.StatusCreated)
			}
			lb.VIPAddress = new("10.7.200.7")
		},
		`no provider "none"`: func(_ *vetted, lb *drivers.LoadBalancer) { lb.Provider = new("none") },
		"provider ovn has no flavor": func(v *vetted, lb *drivers.LoadBalancer) {
			lb.Provider, lb.FlavorID = new("ovn"), new(v.cloud.AddFlavor("small", "amphora"))
		},
	} {
		t.Run(text, func(t *testing.T) {
			t.Parallel()
			v := newVetted(t, nil)
			id := v.one("loadbalancer", "shop")["id"]
			var bad drivers.LoadBalancer
			var made bool
			v.wish(1, func(lb *drivers.LoadBalancer) {
				if !made {
					change(v, lb)
					bad, made = *lb, true
				}
				lb.Provider, lb.FlavorID, lb.AvailabilityZone = bad.Provider, bad.FlavorID, bad.AvailabilityZone
				lb.VIPSubnetID, lb.VIPNetworkID, lb.VIPAddress = bad.VIPSubnetID, bad.VIPNetworkID, bad.VIPAddress
			})
			v.r.stands("a", "x", state.Terminal, text)
			v.wantWrites()
			v.wish(3, v.want.extra)
			v.eventually("the members are followed", func() (bool, string) {
				return len(v.members("shop:TCP:80")) == 3, v.dump()
			})
			v.r.stands("a", "x", state.Terminal, text)
			if v.one("loadbalancer", "shop")["id"] != id {
				t.Errorf("it was given up:\n%s", v.dump())
			}
			v.wish(3, nil)
			v.r.stands("a", "x", state.Done, "")
			if v.one("loadbalancer", "shop")["id"] != id {
				t.Errorf("it was given up:\n%s", v.dump())
			}
		})
	}
}

// TestReplacementThatIsThere: what the cloud has replaces a load balancer.
func TestReplacementThatIsThere(t *testing.T) {
	t.Parallel()
	v := newVetted(t, nil)
	flavor := v.cloud.AddFlavor("large", "amphora")
	v.cloud.AddAvailabilityZone("az1", "amphora")
	v.wish(2, func(lb *drivers.LoadBalancer) { lb.FlavorID, lb.AvailabilityZone = &flavor, new("az1") })
	v.eventually("another one", func() (bool, string) {
		found := v.named("loadbalancer", "shop")
		return len(found) == 1 && found[0]["flavor_id"] == flavor && found[0]["availability_zone"] == "az1", v.dump()
	})
	v.r.settled(1)
}

// TestRefusedReplacement: what reading does not tell is told by the refusal, and then the load balancer is made as it
// was, and stays so.
func TestRefusedReplacement(t *testing.T) {
	t.Parallel()
	v := newVetted(t, nil)
	flavor := v.cloud.AddFlavor("other", "ovn") // these credentials cannot see of which provider it is
	bad := func(lb *drivers.LoadBalancer) { lb.FlavorID = &flavor }
	v.wish(1, bad)
	v.r.stands("a", "x", state.Terminal, "is not compatible with provider")
	v.r.stands("a", "x", state.Terminal, "is made anew as it was")
	v.eventually("as it was", func() (bool, string) {
		found := v.named("loadbalancer", "shop")
		return len(found) == 1 && found[0]["provisioning_status"] == "ACTIVE" && found[0]["flavor_id"] != flavor, v.dump()
	})
	v.r.stop()
	v.cloud.ResetLog()
	v.r = v.start(with(v.a).configured(quick)) // with it goes what was said, not that it was refused
	v.r.stands("a", "x", state.Terminal, "the cloud has refused before what is wished")
	v.wantWrites()
	v.wish(4, bad)
	v.eventually("the members are followed", func() (bool, string) { return len(v.members("shop:TCP:80")) == 4, v.dump() })
	v.r.stands("a", "x", state.Terminal, "the cloud has refused before what is wished")
	for _, write := range v.lbWrites() {
		if strings.HasPrefix(write, http.MethodDelete) {
			t.Errorf("it was given up again: %v", v.lbWrites())
		}
	}
	v.wish(4, nil)
	v.r.stands("a", "x", state.Done, "")
	v.wish(4, bad) // the user tries again
	v.r.stands("a", "x", state.Terminal, "is not compatible with provider")
	v.wish(4, nil)
	v.r.stands("a", "x", state.Done, "")
}

// TestUnreadableReplacement: as long as that is unknown, no load balancer is deleted.
func TestUnreadableReplacement(t *testing.T) {
	t.Parallel()
	v := newVetted(t, nil)
	flavor := v.cloud.AddFlavor("large", "amphora")
	v.fault(simcloud.Rule{Path: "/flavors/", Action: simcloud.ActionStatus, Status: 503})
	v.wish(1, func(lb *drivers.LoadBalancer) { lb.FlavorID = &flavor })
	v.r.stands("a", "x", state.Failing, "checking whether the cloud has a flavor")
	v.wantWrites()
	v.cloud.ClearFaults()
	v.r.settled(1)
	if v.one("loadbalancer", "shop")["flavor_id"] != flavor {
		t.Errorf("it was not replaced:\n%s", v.dump())
	}
}

// TestSubnetThatIsJustGone: a load balancer waits for the subnet that it is to be on, and is made as soon as that is
// there again.
func TestSubnetThatIsJustGone(t *testing.T) {
	t.Parallel()
	w := balancers(t, amphora())
	set := shopOf(1).set()
	a := script("a", always(drivers.Set{Resources: set.Resources[:2]}))
	r := w.start(with(a).configured(quick))
	w.createMap("a", "x")
	r.settled(1)
	w.by(http.MethodDelete, "/subnets/"+text(w.one("subnet", "home"), "id"), nil, http.StatusNoContent)
	a.now(always(set))
	w.touchMap("x", 1)
	w.one("loadbalancer", "shop")
	r.settled(1)
}
