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

func claims() drivers.Set {
	return setOf(claiming(router("all"), "router"), claiming(network("all"), "network"), group("own"))
}

func TestClaimsGoWithTheLast(t *testing.T) {
	t.Parallel()
	w := newWorld(t, simkube.Options{}, simcloud.Options{})
	r := w.start(with(script("a", always(claims())), script("b", always(claims()))))
	w.createMap("a", "x")
	w.createMap("a", "y")
	w.createMap("b", "z")
	r.settled(3)
	w.deleteMap("x")
	w.deleteMap("z")
	r.settled(1)
	w.one("router", "all")
	w.deleteMap("y")
	w.none("router", "all")
	w.none("network", "all")
}

// TestADisabledDriversShare: while resources of a driver that is not enabled are there, nothing shared ends, claimed
// or not.
func TestADisabledDriversShare(t *testing.T) {
	t.Parallel()
	w := newWorld(t, simkube.Options{}, simcloud.Options{})
	a, b := script("a", always(claims())), script("b", always(setOf(group("b"))))
	r := w.start(with(a, b))
	w.createMap("a", "x")
	w.createMap("b", "y")
	r.settled(2)
	before := w.dump()
	r.stop()
	r = w.start(with(b))
	r.stands("shared", "", state.Waiting, "driver a is not enabled")
	time.Sleep(200 * time.Millisecond)
	if now := w.dump(); now != before {
		t.Errorf("the cloud is\n%s\nwant\n%s", now, before)
	}
	r.stop()
	r = w.start(with(a, b))
	r.settled(2)
	w.deleteMap("x")
	w.none("router", "all")
}

// TestClaimsThatDisagree: both are told, what exists stays as it is, and agreement ends it.
func TestClaimsThatDisagree(t *testing.T) {
	t.Parallel()
	w := newWorld(t, simkube.Options{}, simcloud.Options{})
	a, b := script("a", always(claims())), script("b", always(claims()))
	r := w.start(with(a, b))
	w.createMap("a", "x")
	w.createMap("b", "y")
	r.settled(2)
	other := claims()
	other.Resources[0] = claiming(router("renamed"), "router")
	b.now(always(other))
	r.engine.Replay("b")
	for _, o := range [][2]string{{"a", "x"}, {"b", "y"}} {
		r.stands(o[0], o[1], state.Waiting, `"router" disagree`)
	}
	w.events("Conflict", 2)
	w.one("router", "all")
	w.none("router", "renamed")
	a.now(always(other))
	r.engine.Replay("a")
	r.settled(2)
	w.one("router", "renamed")
	w.none("router", "all")
}

// events waits for Events of a reason on so many objects.
func (w *world) events(reason string, objects int) {
	w.t.Helper()
	w.eventually("events "+reason, func() (bool, string) {
		list, err := w.kube.List(events(), "default")
		seen := map[string]bool{}
		for _, e := range list {
			if e["reason"] == reason {
				seen[text(e["involvedObject"].(map[string]any), "name")] = true
			}
		}
		return err == nil && len(seen) == objects, strings.Join(keys(seen), ", ")
	})
}

func keys(m map[string]bool) (list []string) {
	for k := range m {
		list = append(list, k)
	}
	return list
}

// TestClaimsOfANewConfiguration: while drivers are answering anew, claims that differ are no disagreement, and change
// nothing.
func TestClaimsOfANewConfiguration(t *testing.T) {
	t.Parallel()
	w := newWorld(t, simkube.Options{}, simcloud.Options{})
	a := script("a", always(claims()))
	r := w.start(with(a))
	w.createMap("a", "x")
	w.createMap("a", "y")
	r.settled(2)
	other := claims()
	other.Resources[0] = claiming(router("renamed"), "router")
	a.now(func(name string, _ *drivers.Needs) (drivers.Set, error) {
		if name == "y" {
			return drivers.Set{}, drivers.ErrUnavailable
		}
		return other, nil
	})
	r.engine.Replay("a")
	r.stands("shared", "", state.Waiting, "still answering")
	r.stands("a", "x", state.Done, "")
	w.one("router", "all")
	a.now(always(other))
	r.settled(2)
	w.one("router", "renamed")
}

// TestARoleThatTwoExport is a conflict shown on both and on who refers to it, until one goes.
func TestARoleThatTwoExport(t *testing.T) {
	t.Parallel()
	w := newWorld(t, simkube.Options{}, simcloud.Options{})
	set := setOf(exporting(claiming(network("first"), "first"), "home"))
	a, b := script("a", always(set)), script("b", always(setOf(exporting(claiming(network("second"), "second"), "home"))))
	role := drivers.Role{Role: "home"}
	c := script("c",
		always(
			setOf(drivers.Resource{Name: "port", Spec: drivers.Port{Name: new("guest"), NetworkID: drivers.FromRole(role)}}),
		))
	r := w.start(with(a, b, c))
	w.createMap("a", "x")
	w.createMap("c", "z")
	r.settled(2)
	w.one("port", "guest")
	w.createMap("b", "y")
	for _, o := range [][2]string{{"a", "x"}, {"b", "y"}, {"c", "z"}} {
		r.stands(o[0], o[1], state.Waiting, "exported more than once, by driver a and driver b")
	}
	w.one("port", "guest")
	w.deleteMap("y")
	r.settled(2)
}

// TestWaitsAreWokenByArrival, also where a Lookup stands behind the role; the reason names the object that is waited
// for.
func TestWaitsAreWokenByArrival(t *testing.T) {
	t.Parallel()
	for name, exported := range map[string]drivers.Resource{
		"a resource": network("home"),
		"a lookup":   {Name: "network", Spec: drivers.Lookup{Of: drivers.KindNetwork, ID: "existing"}},
		"a claim":    claiming(network("home"), "home"),
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, simkube.Options{}, simcloud.Options{})
			a := script("a", always(setOf(exporting(exported, "home"))))
			b := script("b", always(drivers.Set{
				Resources: []drivers.Resource{
					{Name: "port", Spec: drivers.Port{Name: new("guest"), NetworkID: drivers.FromRole(of("x", "home"))}},
				},
				Outputs: []drivers.Output{{Kind: drivers.Annotation, Key: "b/a", Document: &drivers.Ref{Name: "port"}}},
			}))
			w.by("POST", "/networks", doc("network", "name", "existing"), 201)
			r := w.start(with(a, b))
			w.createMap("b", "y")
			r.stands("b", "y", state.Waiting, "home of ConfigMap default/x")
			if why := r.object("b", "y").Reasons; len(why) != 1 {
				t.Errorf("the reasons are %v, want the root only", why)
			}
			w.createMap("a", "x")
			r.settled(2)
			if w.annotation(configMaps(), "default", "y", "b/a") == nil {
				t.Error("the annotation is missing")
			}
		})
	}
}

// TestTheRootOfAWait: who waits is told why that does not come.
func TestTheRootOfAWait(t *testing.T) {
	t.Parallel()
	w := newWorld(t, simkube.Options{}, simcloud.Options{Quotas: map[string]int{"network": 0}})
	a := script("a", always(setOf(exporting(network("home"), "home"))))
	b := script("b",
		always(setOf(drivers.Resource{Name: "port", Spec: drivers.Port{NetworkID: drivers.FromRole(of("x", "home"))}})))
	r := w.start(with(a, b))
	w.createMap("a", "x")
	w.createMap("b", "y")
	r.stands("b", "y", state.Waiting, "ConfigMap default/x is waiting: creating network \"home\": 409 OverQuota")
}
