// SPDX-License-Identifier: Apache-2.0

package reconcile_test

import (
	"strings"
	"testing"
	"time"

	"github.com/kuryr/raven/drivers"
	"github.com/kuryr/raven/service/state"
	simkube "github.com/kuryr/raven/test/sim/kube"
	simcloud "github.com/kuryr/raven/test/sim/openstack"
)

func soon(c *config) {
	c.PollInterval, c.SlowRetry = 5*time.Millisecond, 100*time.Millisecond
}

func lookedUp(of drivers.Kind, id string) drivers.Resource {
	return drivers.Resource{Name: "named", Spec: drivers.Lookup{Of: of, ID: id}}
}

// guarded is a port in a security group that an operator named.
func guarded(of string) drivers.Resource {
	return drivers.Resource{Name: "port", Spec: drivers.Port{
		Name: new(of), NetworkID: drivers.From("network"), SecurityGroups: []drivers.Value{drivers.From("named")},
	}}
}

// TestALookupThatFindsNothing stops what refers to it and nothing else; it is told why, and comes when the lookup does.
func TestALookupThatFindsNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t, simkube.Options{}, simcloud.Options{})
	a := script("a", always(setOf(network("home"), guarded("guest"), lookedUp(drivers.KindSecurityGroup, "nowhere"))))
	r := w.start(with(a).configured(soon))
	w.createMap("a", "x")
	r.stands("a", "x", state.Waiting, `looking up the configured security_group "nowhere"`)
	w.one("network", "home")
	a.now(
		always(
			setOf(network("moved"), subnet("moved", "10.1.0.0/24"), guarded("guest"),
				lookedUp(drivers.KindSecurityGroup, "nowhere")),
		),
	)
	w.updateMap("x")
	w.one("network", "moved")
	w.one("subnet", "moved")
	w.none("port", "guest")
	w.eventually("an Event", func() (bool, string) {
		list, err := w.kube.List(events(), "default")
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range list {
			if strings.Contains(text(e, "message"), `"nowhere"`) {
				return true, ""
			}
		}
		return false, "none of them"
	})
	w.by("POST", "/security-groups", doc("security_group", "name", "nowhere"), 201)
	w.one("port", "guest")
	r.settled(1)
}

// TestALookupThatCannotBeRead is no opinion: what refers to it waits, what is there stays, all else goes on.
func TestALookupThatCannotBeRead(t *testing.T) {
	t.Parallel()
	w := newWorld(t, simkube.Options{}, simcloud.Options{})
	w.by("POST", "/security-groups", doc("security_group", "name", "mine"), 201)
	set := setOf(network("home"), guarded("guest"), lookedUp(drivers.KindSecurityGroup, "mine"))
	a := script("a", always(set))
	s := with(a).configured(soon)
	r := w.start(s)
	w.createMap("a", "x")
	r.settled(1)
	before := w.one("port", "guest")
	r.stop()
	w.fault(simcloud.Rule{
		Method: "GET", Path: "/v2.0/security-groups", Query: "name=mine", Action: simcloud.ActionStatus, Status: 503,
	})
	set.Resources[0] = network("moved")
	a.now(always(set))
	r = w.start(s)
	w.one("network", "moved")
	r.stands("a", "x", state.Failing, `looking up the configured security_group "mine"`)
	if now := w.one("port", "guest"); now["id"] != before["id"] {
		t.Errorf("the port is %v, was %v", now, before)
	}
	w.cloud.ClearFaults()
	r.settled(1)
}

// TestALookupInPlaceOfWhatIsThere: as long as it finds nothing, what it is to stand for stays, with what uses it.
func TestALookupInPlaceOfWhatIsThere(t *testing.T) {
	t.Parallel()
	w := newWorld(t, simkube.Options{}, simcloud.Options{})
	a := script("a", always(setOf(network("home"), subnet("home", "10.1.0.0/24"), router("way"))))
	r := w.start(with(a).configured(soon))
	w.createMap("a", "x")
	r.settled(1)
	a.now(always(setOf(exporting(lookedUp(drivers.KindNetwork, "mistyped"), "home"))))
	w.updateMap("x")
	w.none("router", "way")
	r.stands("a", "x", state.Waiting, "2 deletions wait")
	w.one("network", "home")
	w.one("subnet", "home")
	w.by("POST", "/networks", doc("network", "name", "mistyped"), 201)
	w.none("network", "home")
	r.settled(1)
}

// TestABalancerWithoutItsGroup is made, and its endpoints are followed; the group comes when it is there.
func TestABalancerWithoutItsGroup(t *testing.T) {
	t.Parallel()
	w := balancers(t, amphora())
	set := func(members int) drivers.Set {
		s := shopOf(members)
		s.extra = func(lb *drivers.LoadBalancer) { lb.VIPSecurityGroups = []drivers.Value{drivers.From("named")} }
		set := s.set()
		set.Resources = append(set.Resources, lookedUp(drivers.KindSecurityGroup, "nowhere"))
		return set
	}
	a := script("a", always(set(3)))
	r := w.start(with(a).configured(soon))
	w.createMap("a", "x")
	w.one("loadbalancer", "shop")
	r.stands("a", "x", state.Waiting, `looking up the configured security_group "nowhere"`)
	a.now(always(set(5)))
	w.updateMap("x")
	w.eventually("5 members", func() (bool, string) { return len(w.members("shop:TCP:80")) == 5, w.dump() })
	w.by("POST", "/security-groups", doc("security_group", "name", "nowhere"), 201)
	r.settled(1)
	group := w.one("security_group", "nowhere")
	port := w.one("loadbalancer", "shop")["vip_port_id"]
	for _, p := range w.cloud.Objects("port") {
		if list, _ := p["security_groups"].([]any); p["id"] == port && (len(list) != 1 || list[0] != group["id"]) {
			t.Errorf("the VIP's port has the groups %v, want %v", list, group["id"])
		}
	}
}
