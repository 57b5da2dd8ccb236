// SPDX-License-Identifier: Apache-2.0

package reconcile_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/kuryr/raven/drivers"
	"github.com/kuryr/raven/service/reconcile"
	"github.com/kuryr/raven/service/state"
	simkube "github.com/kuryr/raven/test/sim/kube"
	simcloud "github.com/kuryr/raven/test/sim/openstack"
)

func impatient(c *config) {
	drifting(c)
	c.AmbiguousWait = 150 * time.Millisecond
}

// TestACreateThatIsCut: whether it was applied before the cut or is applied later, even later than anybody waits for
// it, in the end there is one of each.
func TestACreateThatIsCut(t *testing.T) {
	t.Parallel()
	late := func(d time.Duration) simcloud.Rule {
		return simcloud.Rule{Action: simcloud.ActionApplyLate, Delay: simcloud.Duration(d)}
	}
	faults := map[string]simcloud.Rule{
		"applied, then cut": {Action: simcloud.ActionApplyCut},
		"applied, then 504": {Action: simcloud.ActionApplyStatus, Status: 504},
		"truncated":         {Action: simcloud.ActionTruncate}, "cut": {Action: simcloud.ActionCut},
		"late": late(80 * time.Millisecond), "too late": late(400 * time.Millisecond),
	}
	for _, kind := range []string{"port", "network", "subnet", "security_group", "security_group_rule", "router"} {
		for name, fault := range faults {
			t.Run(kind+" "+name, func(t *testing.T) {
				t.Parallel()
				w := newWorld(t, simkube.Options{}, simcloud.Options{})
				set := shop()
				set.Resources = append(set.Resources, drivers.Resource{Name: "rule", Spec: drivers.SecurityGroupRule{
					SecurityGroupID: drivers.From("group"), Direction: new("ingress"), EtherType: new("IPv4"),
				}})
				fault.Method, fault.Kind, fault.Times = "POST", kind, 2
				w.fault(fault)
				r := w.start(with(script("a", always(set))).configured(impatient))
				w.createMap("a", "x")
				r.settled(1)
				if fault.Delay > 0 {
					time.Sleep(fault.Delay.Duration() + 50*time.Millisecond)
					w.drifts(2)
				}
				// the cloud's own beside
				want := map[string]int{"port": 2, "network": 2, "subnet": 2, "security_group": 1, "router": 1}
				w.eventually("one of each", func() (bool, string) {
					for kind, n := range want {
						if got := count(w, kind); got != n {
							return false, fmt.Sprintf("%d of %s, want %d:\n%s", got, kind, n, w.dump())
						}
					}
					return true, ""
				})
				r.settled(1)
			})
		}
	}
}

// count counts a kind without the default security groups.
func count(w *world, kind string) int {
	if kind == "security_group" {
		return len(w.named(kind, "shop"))
	}
	return w.cloud.Count(kind)
}

// TestTwinsInUseStay: of two resources with one identity the one in use is kept, and the other is only deleted if
// unused.
func TestTwinsInUseStay(t *testing.T) {
	t.Parallel()
	w := newWorld(t, simkube.Options{}, simcloud.Options{})
	r := w.start(with(script("a", always(setOf(network("shop"))))).configured(drifting))
	w.createMap("a", "x")
	r.settled(1)
	first := w.one("network", "shop")
	again := map[string]any{"network": map[string]any{"name": "shop", "description": first["description"]}}
	w.by("POST", "/networks", again, 201)
	w.eventually("one twin is gone", func() (bool, string) { return len(w.named("network", "shop")) == 1, w.dump() })
	// A foreign port makes the next twin stay: the status says why.
	remove, err := w.cloud.AddFault(simcloud.Rule{Method: "GET", Action: simcloud.ActionStatus, Status: 500})
	if err != nil {
		t.Fatal(err)
	}
	w.by("POST", "/networks", again, 201)
	var foreign []string
	for _, n := range w.named("network", "shop") {
		p := w.by("POST", "/ports", map[string]any{"port": map[string]any{"network_id": n["id"], "name": "foreign"}},
			201)["port"]
		foreign = append(foreign, text(p.(map[string]any), "id"))
	}
	w.cloud.RemoveFault(remove)
	r.stands("a", "x", state.Waiting, "foreign")
	for _, id := range foreign {
		w.by("DELETE", "/ports/"+id, nil, 204)
	}
	w.one("network", "shop")
	r.settled(1)
}

// TestAnOwnerDeletedWhileTheOutcomeOfItsCreateIsUnknown: what commits after the owner is forgotten is found and swept.
func TestAnOwnerDeletedWhileTheOutcomeOfItsCreateIsUnknown(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"network", "port", "security_group", "router"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, simkube.Options{}, simcloud.Options{})
			w.fault(simcloud.Rule{
				Method: "POST", Kind: kind, Action: simcloud.ActionApplyLate, Delay: simcloud.Duration(250 * time.Millisecond),
			})
			r := w.start(
				with(script("a", always(shop()))).configured(func(c *config) {
					// What a loaded machine applies later than that is found by a drift check.
					c.AmbiguousWait, c.DriftInterval = 400*time.Millisecond, 100*time.Millisecond
				}),
			)
			before := w.dump()
			w.createMap("a", "x")
			w.eventually("it is cut", func() (bool, string) { return w.cloud.Faults()[0].Acted > 0, "" })
			w.deleteMap("x")
			w.cloud.ClearFaults()
			time.Sleep(300 * time.Millisecond)
			w.eventually("nothing is left", func() (bool, string) {
				now := w.dump()
				return now == before && len(r.engine.Objects(reconcile.Filter{Driver: "a"})) == 0, now
			})
			w.eventually("it stays so", func() (bool, string) { return w.dump() == before, w.dump() })
		})
	}
}

// TestDeletedAndMadeAgain: another object of the same name is another owner, also when Raven did not run in between.
func TestDeletedAndMadeAgain(t *testing.T) {
	t.Parallel()
	for _, down := range []bool{false, true} {
		t.Run(fmt.Sprintf("down %v", down), func(t *testing.T) {
			w := newWorld(t, simkube.Options{}, simcloud.Options{})
			s := with(script("a", always(shop())))
			r := w.start(s)
			w.createMap("a", "x")
			r.settled(1)
			want, old := w.dump(), w.one("port", "web")
			if down {
				r.stop()
			}
			w.deleteMap("x")
			w.createMap("a", "x")
			if down {
				r = w.start(s)
			}
			w.eventually("the new one only", func() (bool, string) {
				now := w.dump()
				return now == want && w.one("port", "web")["id"] != old["id"] &&
					len(r.engine.Objects(reconcile.Filter{Driver: "a"})) == 1, now
			})
			r.settled(1)
		})
	}
}

// TestRetained: what is to stay stays when its object goes, is not swept after a restart, and does not hinder a
// successor.
func TestRetained(t *testing.T) {
	t.Parallel()
	w := newWorld(t, simkube.Options{}, simcloud.Options{})
	s := with(script("a", always(setOf(retaining(network("shop")), group("shop")))))
	r := w.start(s)
	w.createMap("a", "x")
	r.settled(1)
	w.deleteMap("x")
	w.none("security_group", "shop")
	r.stop()
	r = w.start(s)
	w.createMap("a", "x")
	r.settled(1)
	time.Sleep(300 * time.Millisecond) // several passes of the garbage collector
	if n := len(w.named("network", "shop")); n != 2 {
		t.Errorf("%d networks, want the retained one and its successor", n)
	}
}

// TestGarbageCollection ends what is left of objects that were deleted while Raven did not run: after two checks, some
// at a time, and nothing of other clusters or of drivers that are not enabled.
func TestGarbageCollection(t *testing.T) {
	t.Parallel()
	w := newWorld(t, simkube.Options{}, simcloud.Options{})
	own := func(name string, _ *drivers.Needs) (drivers.Set, error) { return setOf(network(name)), nil }
	a, b := script("a", own), script("b", own)
	r := w.start(with(a, b))
	other := w.start(with(script("a", own)).configured(func(c *config) { c.Cluster = "cluster-2" }))
	for i := range 7 {
		w.createMap("a", fmt.Sprintf("a%d", i))
	}
	w.createMap("b", "b0")
	r.settled(8)
	other.settled(7)
	r.stop()
	other.stop()
	for i := range 7 {
		w.deleteMap(fmt.Sprintf("a%d", i))
	}
	w.deleteMap("b0")
	writes := len(w.writes())
	r = w.start(with(a).configured(func(c *config) { c.CollectLimit = 3 }))
	w.eventually("the orphans of driver a are gone", func() (bool, string) {
		return len(w.named("network", "a0")) == 1, w.dump()
	})
	w.eventually("all of them", func() (bool, string) {
		return len(r.engine.Objects(reconcile.Filter{Driver: "a"})) == 0 && w.cloud.Count("network") == 1+7+1, w.dump()
	})
	time.Sleep(200 * time.Millisecond)
	if n := len(w.writes()) - writes; n != 7 {
		t.Errorf("%d writes, want 7 deletions: %s", n, strings.Join(w.writes()[writes:], "\n"))
	}
}
