// SPDX-License-Identifier: Apache-2.0

package reconcile_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kuryr/raven/drivers"
	"github.com/kuryr/raven/service/reconcile"
	"github.com/kuryr/raven/service/state"
	simkube "github.com/kuryr/raven/test/sim/kube"
	simcloud "github.com/kuryr/raven/test/sim/openstack"
)

// failure is a way of a driver not to answer, and what must come of it.
type failure struct {
	says  func(string, *drivers.Needs) (drivers.Set, error)
	state state.Phase
	why   []string
	again bool // it is asked again by itself
}

func failures() map[string]failure {
	twice := setOf(network("shop"), network("shop"),
		drivers.Resource{Name: "p", Spec: drivers.Port{NetworkID: drivers.From("nowhere")}})
	return map[string]failure{
		"an error": {
			func(string, *drivers.Needs) (drivers.Set, error) {
				return drivers.Set{}, errors.New("label x is no UUID")
			},
			state.Terminal,
			[]string{"label x is no UUID"},
			false,
		},
		"invalid": {always(twice), state.Terminal, []string{"name is there twice", `refers to "nowhere"`}, false},
		"unavailable": {
			func(string, *drivers.Needs) (drivers.Set, error) {
				return drivers.Set{}, fmt.Errorf("driver(a): %w", drivers.ErrUnavailable)
			},
			state.Failing,
			[]string{"not available"},
			true,
		},
		"too slow": {
			func(string, *drivers.Needs) (drivers.Set, error) { return drivers.Set{}, context.DeadlineExceeded },
			state.Failing,
			[]string{"deadline"},
			true,
		},
		"insatiable": {
			func(_ string, needs *drivers.Needs) (drivers.Set, error) {
				needs.Get(drivers.Need{Watch: "secrets", Namespace: "default", Name: fmt.Sprint("s", needs.Round())})
				return drivers.Set{}, nil
			},
			state.Terminal,
			[]string{"did not settle in 3 rounds"},
			false,
		},
	}
}

// TestADriverThatFails keeps what is there, whatever the failure; and only what may pass is tried again by itself.
func TestADriverThatFails(t *testing.T) {
	t.Parallel()
	for name, c := range failures() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, simkube.Options{}, simcloud.Options{})
			a := script("a", always(shop()))
			a.more = []drivers.Watch{
				{Name: "secrets", GVR: schema.GroupVersionResource{Version: "v1", Resource: "secrets"}, Kind: "Secret"},
			}
			r := w.start(with(a))
			w.createMap("a", "x")
			r.settled(1)
			want := w.dump()
			a.now(c.says)
			r.engine.Replay("a")
			for _, why := range c.why {
				r.stands("a", "x", c.state, why)
			}
			before := a.asked()
			if c.again {
				w.eventually("it is asked again", func() (bool, string) { return a.asked() > before, "" })
			} else if next := r.engine.Objects(reconcile.Filter{Driver: "a"})[0].NextTry; next != nil &&
				time.Until(*next) < time.Minute {
				t.Errorf("it is asked again at %s", next)
			}
			if now := w.dump(); now != want {
				t.Errorf("the cloud is\n%s\nwant\n%s", now, want)
			}
			a.now(always(shop()))
			r.engine.Replay("a")
			r.settled(1)
		})
	}
}

// TestUnknownNeeds: a need that cannot be answered means no translation; when it can be, the owner is woken.
func TestUnknownNeeds(t *testing.T) {
	t.Parallel()
	w := newWorld(t, simkube.Options{}, simcloud.Options{})
	secrets := schema.GroupVersionResource{Version: "v1", Resource: "secrets"}
	w.create(secrets,
		map[string]any{"apiVersion": "v1", "kind": "Secret", "metadata": map[string]any{"name": "s", "namespace": "default"}})
	a := script("a", func(_ string, needs *drivers.Needs) (drivers.Set, error) {
		found, ok := needs.Get(drivers.Need{Watch: "secrets", Namespace: "default", Name: "s"})
		if !ok || len(found) == 0 {
			return drivers.Set{}, nil // were the need taken for absent, all would go
		}
		return shop(), nil
	})
	a.more = []drivers.Watch{{Name: "secrets", GVR: secrets, Kind: "Secret"}}
	s := with(a)
	r := w.start(s)
	w.createMap("a", "x")
	r.settled(1)
	want := w.dump()
	r.stop()
	w.kube.SetDeny(simkube.Deny{Resources: []string{"secrets"}})
	s.needsMayFail = true
	r = w.start(s)
	r.stands("a", "x", state.Waiting, "not synced or not allowed")
	time.Sleep(100 * time.Millisecond)
	if now := w.dump(); now != want {
		t.Errorf("the cloud is\n%s\nwant\n%s", now, want)
	}
	w.kube.SetDeny()
	r.settled(1)
	if now := w.dump(); now != want {
		t.Errorf("the cloud is\n%s\nwant\n%s", now, want)
	}
}

// TestTheMassDeletionGuard: a driver that has nothing to say after an upgrade ends nothing beyond the guard; what
// changes afterwards is not held, what is deleted counts no more, and good answers release it.
func TestTheMassDeletionGuard(t *testing.T) {
	t.Parallel()
	w := newWorld(t, simkube.Options{}, simcloud.Options{})
	own := func(name string, _ *drivers.Needs) (drivers.Set, error) {
		return setOf(network(name), claiming(router("all"), "router")), nil
	}
	a := script("a", own)
	s := with(a).configured(func(c *config) { c.MaxReplayDeletes, c.MaxReplayDeleteShare = 3, 0.5 })
	r := w.start(s)
	for i := range 6 {
		w.createMap("a", fmt.Sprintf("x%d", i))
	}
	r.settled(6)
	want := w.dump()
	a.now(always(drivers.Set{}))
	r.engine.Replay("a")
	w.eventually("the guard holds", func() (bool, string) { return len(r.engine.Guards()) == 1, "" })
	for i := range 6 {
		r.stands("a", fmt.Sprintf("x%d", i), state.Waiting, "held by the mass-deletion guard")
	}
	if g := r.engine.Guards()[0]; g.Held != 7 || g.Allowed != 3 {
		t.Errorf("the guard is %+v", g)
	}
	if now := w.dump(); now != want {
		t.Errorf("the cloud is\n%s\nwant\n%s", now, want)
	}
	// What comes later is not the replay's doing.
	a.now(own)
	w.createMap("a", "new")
	r.stands("a", "new", state.Done, "")
	a.now(always(drivers.Set{}))
	w.updateMap("new")
	w.none("network", "new")
	// Good answers release it.
	a.now(own)
	r.engine.Replay("a")
	w.eventually("the guard lets go", func() (bool, string) { return len(r.engine.Guards()) == 0, "" })
	r.settled(7)
	// Few enough pass; and objects that go count no more.
	a.now(func(name string, n *drivers.Needs) (drivers.Set, error) {
		if name < "x4" && name != "new" {
			return drivers.Set{}, nil
		}
		return own(name, n)
	})
	r.engine.Replay("a")
	w.eventually("the guard holds", func() (bool, string) { return len(r.engine.Guards()) == 1, "" })
	w.deleteMap("x0")
	w.eventually("the guard lets go", func() (bool, string) {
		return len(r.engine.Guards()) == 0, fmt.Sprint(r.engine.Guards())
	})
	w.none("network", "x3")
	r.settled(6)
}

func (w *world) updateMap(name string) {
	w.t.Helper()
	o, err := w.kube.Get(configMaps(), "default", name)
	if err != nil {
		w.t.Fatal(err)
	}
	o["data"] = map[string]any{"k": "other"}
	if _, err := w.kube.Update(configMaps(), o); err != nil {
		w.t.Fatal(err)
	}
}

// TestOneStuckObject delays no other object, be it refused for good, or a bug in Raven.
func TestOneStuckObject(t *testing.T) {
	t.Parallel()
	w := newWorld(t, simkube.Options{}, simcloud.Options{})
	a := script("a", func(name string, _ *drivers.Needs) (drivers.Set, error) {
		switch name {
		case "refused":
			return setOf(network("refused"), subnet("refused", "10.1.0.0/32"), port("refused")), nil
		case "broken":
			panic("a fault")
		}
		return setOf(network(name)), nil
	})
	r := w.start(with(a))
	for _, name := range []string{"refused", "broken", "good", "fine"} {
		w.createMap("a", name)
	}
	r.stands("a", "good", state.Done, "")
	r.stands("a", "fine", state.Done, "")
	r.stands("a", "broken", state.Failing, "a fault in Raven: a fault")
	w.eventually("it is refused", func() (bool, string) {
		o := r.object("a", "refused")
		return o.State == state.Terminal || o.State == state.Waiting, string(o.State) + strings.Join(o.Reasons, ";")
	})
	w.deleteMap("good")
	w.none("network", "good")
}

// TestEventsTellTransitions: a failure that lasts is said once, and again when it comes back.
func TestEventsTellTransitions(t *testing.T) {
	t.Parallel()
	w := newWorld(t, simkube.Options{}, simcloud.Options{})
	bad := errors.New("label x is no UUID")
	fails := func(string, *drivers.Needs) (drivers.Set, error) { return drivers.Set{}, bad }
	a := script("a", fails)
	r := w.start(with(a))
	w.createMap("a", "x")
	said := func() int {
		n := 0
		list, err := w.kube.List(events(), "default")
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range list {
			if c, ok := e["count"].(int64); ok {
				n += int(c)
			}
		}
		return n
	}
	w.eventually("one Event", func() (bool, string) { return said() == 1, fmt.Sprint(said()) })
	for range 3 {
		r.engine.Replay("a")
		r.stands("a", "x", state.Terminal, "no UUID")
	}
	a.now(always(drivers.Set{}))
	r.engine.Replay("a")
	r.stands("a", "x", state.Done, "")
	if n := said(); n != 1 {
		t.Errorf("%d Events for one failure", n)
	}
	a.now(fails)
	r.engine.Replay("a")
	w.eventually("two Events", func() (bool, string) { return said() == 2, fmt.Sprint(said()) })
}

// TestTheMassDeletionGuardCountsWhatComesLate: a driver whose first calls fail and that then answers with nothing
// passes no more than one that answers at once.
func TestTheMassDeletionGuardCountsWhatComesLate(t *testing.T) {
	t.Parallel()
	for name, first := range map[string]error{
		"refused": errors.New("not yet"), "too slow": context.DeadlineExceeded, "unavailable": drivers.ErrUnavailable,
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, simkube.Options{}, simcloud.Options{})
			own := func(name string, _ *drivers.Needs) (drivers.Set, error) {
				return setOf(network(name), claiming(router("all"), "router")), nil
			}
			a := script("a", own)
			s := with(a).configured(func(c *config) {
				c.MaxReplayDeletes, c.MaxReplayDeleteShare, c.BackoffBase = 3, 0.5, 50*time.Millisecond
			})
			r := w.start(s)
			const many = 8
			for i := range many {
				w.createMap("a", fmt.Sprintf("x%d", i))
			}
			r.settled(many)
			r.stop()
			a.now(func(string, *drivers.Needs) (drivers.Set, error) { return drivers.Set{}, first })
			r = w.start(s)
			w.eventually("all have failed", func() (bool, string) {
				c := r.engine.Counts()
				return c[state.Failing]+c[state.Terminal] == many, fmt.Sprint(c)
			})
			a.now(always(drivers.Set{}))
			for i := range many {
				w.updateMap(fmt.Sprintf("x%d", i))
			}
			w.eventually("the guard holds", func() (bool, string) {
				return len(r.engine.Guards()) == 1, fmt.Sprint(r.engine.Counts())
			})
			time.Sleep(300 * time.Millisecond) // reviews of the guard
			atOnce := !errors.Is(first, context.DeadlineExceeded) && !errors.Is(first, drivers.ErrUnavailable)
			if n := w.cloud.Count("network") - 1; n < many-3 || !atOnce && n < many {
				t.Errorf("%d of %d networks are left", n, many)
			}
			w.one("router", "all")
			a.now(own)
			r.engine.Replay("a")
			r.settled(many)
		})
	}
}
