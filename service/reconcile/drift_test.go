// SPDX-License-Identifier: Apache-2.0

package reconcile_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kuryr/raven/drivers"
	simkube "github.com/kuryr/raven/test/sim/kube"
	simcloud "github.com/kuryr/raven/test/sim/openstack"
)

func drifting(c *config) {
	c.DriftInterval = 20 * time.Millisecond
	c.SlowRetry = 20 * time.Millisecond
}

func shop() drivers.Set {
	return setOf(network("shop"), subnet("shop", "10.1.0.0/24"), port("web"), group("shop"), router("shop"), attachment())
}

// TestAFailedListDeletesNothing: whichever list fails, and however, what exists stays and nothing is made twice.
func TestAFailedListDeletesNothing(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"network", "subnet", "router", "security_group", "port"} {
		for _, fault := range []simcloud.Rule{
			{Action: simcloud.ActionStatus, Status: 500},
			{Action: simcloud.ActionCut},
			{Action: simcloud.ActionTruncate},
			{Action: simcloud.ActionStatus, Status: 403},
		} {
			t.Run(kind+" "+string(fault.Action), func(t *testing.T) {
				w := newWorld(t, simkube.Options{}, simcloud.Options{})
				r := w.start(with(script("a", always(shop()))).configured(drifting))
				w.createMap("a", "x")
				r.settled(1)
				before, writes := w.dump(), len(w.writes())
				fault.Method, fault.Kind = "GET", kind
				w.fault(fault)
				w.eventually("five failed lists", func() (bool, string) {
					return w.cloud.Faults()[0].Acted >= 5, ""
				})
				if after := w.dump(); after != before || len(w.writes()) != writes {
					t.Errorf("failing lists changed the cloud:\n%s\n%v", after, w.writes()[writes:])
				}
			})
		}
	}
}

func TestDriftIsRepaired(t *testing.T) {
	t.Parallel()
	w := newWorld(t, simkube.Options{}, simcloud.Options{})
	r := w.start(with(script("a", always(shop()))).configured(drifting))
	w.createMap("a", "x")
	r.settled(1)
	want := w.dump()
	for name, damage := range map[string]func(){
		"port deleted":  func() { w.by("DELETE", "/ports/"+text(w.one("port", "web"), "id"), nil, 204) },
		"group deleted": func() { w.by("DELETE", "/security-groups/"+text(w.one("security_group", "shop"), "id"), nil, 204) },
		"port renamed":  func() { w.by("PUT", "/ports/"+text(w.one("port", "web"), "id"), doc("port", "name", "mine"), 200) },
		"net renamed": func() {
			w.by("PUT", "/networks/"+text(w.one("network", "shop"), "id"), doc("network", "name", "mine"), 200)
		},
		"router renamed": func() {
			w.by("PUT", "/routers/"+text(w.one("router", "shop"), "id"), doc("router", "name", "mine"), 200)
		},
		"interface gone": func() {
			w.by("PUT", "/routers/"+text(w.one("router", "shop"), "id")+"/remove_router_interface",
				map[string]any{"subnet_id": text(w.one("subnet", "shop"), "id")}, 200)
		},
	} {
		t.Run(name, func(t *testing.T) {
			damage()
			w.eventually("it is as before", func() (bool, string) { now := w.dump(); return now == want, now })
		})
	}
	r.settled(1)
}

func doc(kind, name string, value any) map[string]any {
	return map[string]any{kind: map[string]any{name: value}}
}

// TestWhatOperatorsWriteSurvives: their tags stay, their descriptions stay, and neither makes a second resource.
func TestWhatOperatorsWriteSurvives(t *testing.T) {
	t.Parallel()
	w := newWorld(t, simkube.Options{}, simcloud.Options{})
	s := with(script("a", always(shop()))).configured(drifting)
	r := w.start(s)
	w.createMap("a", "x")
	r.settled(1)
	want := w.dump()
	paths := map[string]string{
		"port": "/ports/" + text(w.one("port", "web"), "id"), "network": "/networks/" + text(w.one("network", "shop"), "id"),
		"subnet":         "/subnets/" + text(w.one("subnet", "shop"), "id"),
		"router":         "/routers/" + text(w.one("router", "shop"), "id"),
		"security_group": "/security-groups/" + text(w.one("security_group", "shop"), "id"),
	}
	// All our tags are there after a while, also where the create takes none.
	tagged := func(n int) {
		t.Helper()
		w.eventually("all are tagged", func() (bool, string) {
			for kind, path := range paths {
				o := w.by("GET", path, nil, 200)[kind].(map[string]any)
				ours := 0
				for _, tag := range o["tags"].([]any) {
					if strings.HasPrefix(tag.(string), "raven:") {
						ours++
					}
				}
				if ours != n {
					return false, path
				}
			}
			return true, ""
		})
	}
	tagged(4)
	for kind, path := range paths {
		w.by("PUT", path+"/tags/mine", nil, 201)
		w.by("PUT", path, doc(kind, "description", "do not touch, ask Anna"), 200)
	}
	calm(t, w, r, want)
	for kind, path := range paths {
		o := w.by("GET", path, nil, 200)[kind].(map[string]any)
		if o["description"] != "do not touch, ask Anna" || !slices.Contains(o["tags"].([]any), any("mine")) {
			t.Errorf("%s: description %q, tags %v", kind, o["description"], o["tags"])
		}
	}
	// With the description back and all tags wiped, the description proves it, also to a Raven that never saw it.
	identity := map[string]string{}
	for kind, path := range paths {
		var words []string
		for _, tag := range w.by("GET", path, nil, 200)[kind].(map[string]any)["tags"].([]any) {
			if strings.HasPrefix(tag.(string), "raven:") {
				words = append(words, tag.(string))
			}
		}
		identity[kind] = "ask Anna " + strings.Join(words, " ")
		w.by("PUT", path, doc(kind, "description", identity[kind]), 200)
	}
	r.stop()
	for _, path := range paths {
		w.by("PUT", path+"/tags", map[string]any{"tags": []string{"mine"}}, 200)
	}
	r = w.start(s)
	tagged(4)
	calm(t, w, r, want)
}

// calm waits for a few drift checks and expects the cloud to be as it was.
func calm(t *testing.T, w *world, r *raven, want string) {
	t.Helper()
	w.drifts(5)
	r.settled(1)
	if got := w.dump(); got != want {
		t.Errorf("the cloud is\n%s\nwant\n%s", got, want)
	}
}

// drifts waits for so many further drift checks.
func (w *world) drifts(n int) {
	w.t.Helper()
	lists := func() int {
		count := 0
		for _, req := range w.cloud.Log(0) {
			if req.Method == "GET" && strings.HasSuffix(req.Path, "/routers") {
				count++
			}
		}
		return count
	}
	before := lists()
	w.eventually("drift checks", func() (bool, string) { return lists() >= before+n+1, "" })
}

// TestSteadyStateMakesNoRequests: with nothing to do, nothing is read and nothing is written.
func TestSteadyStateMakesNoRequests(t *testing.T) {
	t.Parallel()
	w := newWorld(t, simkube.Options{}, simcloud.Options{})
	r := w.start(with(script("a", always(shop()))))
	w.createMap("a", "x")
	r.settled(1)
	w.cloud.ResetLog()
	time.Sleep(500 * time.Millisecond)
	if log := w.cloud.Log(0); len(log) > 0 {
		t.Errorf("%d requests in a steady state, the first is %s %s", len(log), log[0].Method, log[0].Path)
	}
}

// TestTheBindingThatIsNotAllowed: a plain member cannot set it; the port is made and nothing differs for ever.
func TestTheBindingThatIsNotAllowed(t *testing.T) {
	t.Parallel()
	w := newWorld(t, simkube.Options{}, simcloud.Options{})
	p := port("web")
	spec := p.Spec.(drivers.Port)
	spec.HostID = new("node-1")
	p.Spec = spec
	r := w.start(with(script("a", always(setOf(network("shop"), subnet("shop", "10.1.0.0/24"), p)))).configured(drifting))
	w.createMap("a", "x")
	r.settled(1)
	w.drifts(2)
	writes := len(w.writes())
	w.drifts(3)
	if list := w.writes(); len(list) != writes {
		t.Errorf("a binding that is not allowed is written again and again: %v", list[writes:])
	}
}

// TestTheFirstLookIsTriedAgain where that may help, and not where it cannot.
func TestTheFirstLookIsTriedAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t, simkube.Options{}, simcloud.Options{})
	w.fault(simcloud.Rule{Method: "GET", Kind: "router", Action: simcloud.ActionStatus, Status: 503, Times: 3})
	r := w.start(with(script("a", always(shop()))))
	w.createMap("a", "x")
	r.settled(1)
	r.stop()
	w.cloud.ClearFaults()
	w.fault(simcloud.Rule{Method: "GET", Kind: "router", Action: simcloud.ActionStatus, Status: 403})
	if _, err := w.tryStart(with(script("a", always(shop())))); err == nil {
		t.Error("it started without having seen the cloud")
	}
	if n := w.cloud.Faults()[0].Acted; n != 1 {
		t.Errorf("what is forbidden was tried %d times", n)
	}
}

// TestNothingDriftsByItself: what no other client has changed is no drift, however often everything is listed: load
// balancers of every provider, with their parts, statuses and floating IPs, included.
func TestNothingDriftsByItself(t *testing.T) {
	t.Parallel()
	for name, provider := range map[string]simcloud.Provider{"amphora": amphora(), "ovn": ovnProvider()} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := balancers(t, provider)
			want := shopOf(2)
			want.provider = name
			set := want.set()
			set.Resources = append(set.Resources, shop().Resources[2:]...)
			r := w.start(with(script("a", always(set))).configured(quick))
			w.createMap("a", "x")
			r.settled(1)
			for range 4 {
				if err := r.engine.Observe(t.Context()); err != nil {
					t.Fatal(err)
				}
				r.settled(1)
			}
			if n := measured(t, r, "raven_drifted_resources_total"); n != 0 {
				t.Errorf("%d resources have drifted", n)
			}
		})
	}
}
