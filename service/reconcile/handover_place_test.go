package reconcile

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/kuryr/raven/drivers"
	"github.com/kuryr/raven/service/plan"
)

// groups is a database with one group.
type groups struct {
	Northbound
	networks, routers []any
}

func (g groups) Get(drivers.Kind, string) (plan.Observed, bool, error) {
	return plan.Observed{Attrs: map[string]any{"networks": g.networks, "routers": g.routers}}, true, nil
}

// TestWhatAnHeirWaitsFor: as long as a namespace's network is not in the group, or its router where there are addresses outside, nothing is handed
// over, and what may change that wakes who waits, which also asks again; drivers that contradict each other are told; and where nobody says where pods
// are there is nothing to wait for.
func TestWhatAnHeirWaitsFor(t *testing.T) {
	for name, c := range map[string]struct {
		exporters []string // drivers
		made      bool     // the network, or the router
		joined    []any
		open      bool // somebody has not answered yet
		silent    bool // nor has anybody for the namespace, since it is new
		text      string
		patient   bool
	}{
		"joined":               {exporters: []string{"a"}, made: true, joined: []any{"other", "net"}},
		"not joined":           {exporters: []string{"a"}, made: true, joined: []any{"other"}, text: "has not joined its group", patient: true},
		"not made":             {exporters: []string{"a"}, text: "is not there yet", patient: true},
		"in conflict":          {exporters: []string{"a", "b"}, made: true, text: "is exported more than once, by driver a and driver b"},
		"nobody has answered":  {open: true, text: "it is not known yet which %s is that of", patient: true},
		"the namespace is new": {silent: true, text: "it is not known yet which %s is that of", patient: true},
		"nobody says":          {},
	} {
		for _, at := range []struct {
			place
			spec     drivers.Spec
			external bool
		}{{podsPlace(), drivers.Network{}, false}, {outerPlace(), drivers.Router{}, true}} {
			t.Run(name+"/"+at.thing, func(t *testing.T) {
				role := drivers.Role{Kind: "Namespace", Name: "web", Role: at.role}
				s := newStore("c", []string{"a", "b"}, nil)
				for _, d := range s.drivers {
					if d.epoch = 1; c.open {
						d.epoch = 0
					}
				}
				for _, driver := range []string{"a", "b"} {
					o := s.ensureOwner(item{driver: driver}, target{watch: drivers.Watch{Kind: "Namespace"}, name: "web", uid: driver}, s.clock.Now())
					set := drivers.Set{}
					if slices.Contains(c.exporters, driver) {
						set.Resources = []drivers.Resource{{Name: at.thing, Exports: []string{at.role}, Spec: at.spec}}
					}
					s.adopt(o, set)
					if o.hasSet, o.good = !c.silent, 1; c.made && driver == "a" {
						s.cloud.put(plan.Observed{Kind: at.spec.Kind(), ID: "net", Managed: true, Identity: s.identity(o.id, drivers.Resource{
							Name: at.thing, Spec: at.spec,
						}), Attrs: map[string]any{}})
					}
				}
				h := heir{step: plan.Step{Op: plan.Create, Kind: drivers.KindOVNLoadBalancer}, group: "g"}
				h.berths = s.berths(s.names(plan.Owner{}, drivers.Set{}), "web", drivers.Attributes(drivers.OVNLoadBalancer{
					VIPs: []drivers.OVNVIP{{Protocol: "TCP"}, {Protocol: "TCP", External: at.external}},
				}))
				there := groups{networks: c.joined}
				if at.external { // it is the router that is in question
					h.berths, there = h.berths[1:], groups{routers: c.joined}
				} else if len(h.berths) > 1 {
					t.Error("the router is asked for, though there are no addresses outside")
				}
				e := &Engine{store: s, config: Config{Northbound: there}}
				err := e.vetHeirInOVN(t.Context(), nil, h)
				if c.text == "" {
					if err != nil {
						t.Errorf("it waits: %v", err)
					}
					return
				}
				if fail := (stepError{}); !errors.As(err, &fail) || !strings.Contains(err.Error(), strings.ReplaceAll(c.text, "%s", at.thing)) {
					t.Fatalf("got %v, want %q", err, c.text)
				}
				v := e.verdict(err)
				if v.phase != Waiting || v.quiet || v.patient != c.patient || !v.next.backoff || !slices.Contains(v.waits, waitRole(role)) {
					t.Errorf("got %+v", v)
				}
			})
		}
	}
}
