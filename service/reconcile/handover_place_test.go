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
	networks []any
}

func (g groups) Get(drivers.Kind, string) (plan.Observed, bool, error) {
	return plan.Observed{Attrs: map[string]any{"networks": g.networks}}, true, nil
}

// TestWhatAnHeirWaitsFor: as long as a namespace's network is not in the group nothing is handed over, and what may change that wakes who waits, which
// also asks again; drivers that contradict each other are told; and where nobody says where pods are there is nothing to wait for.
func TestWhatAnHeirWaitsFor(t *testing.T) {
	role := drivers.Role{Kind: "Namespace", Name: "web", Role: drivers.PodNetwork}
	for name, c := range map[string]struct {
		exporters []string // drivers
		made      bool     // the network
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
		"nobody has answered":  {open: true, text: "it is not known yet which network", patient: true},
		"the namespace is new": {silent: true, text: "it is not known yet which network", patient: true},
		"nobody says":          {},
	} {
		t.Run(name, func(t *testing.T) {
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
					set.Resources = []drivers.Resource{{Name: "network", Exports: []string{drivers.PodNetwork}, Spec: drivers.Network{}}}
				}
				s.adopt(o, set)
				if o.hasSet, o.good = !c.silent, 1; c.made && driver == "a" {
					s.cloud.put(plan.Observed{Kind: drivers.KindNetwork, ID: "net", Managed: true, Identity: s.identity(o.id, drivers.Resource{
						Name: "network", Spec: drivers.Network{},
					}), Attrs: map[string]any{}})
				}
			}
			w := s.names(plan.Owner{}, drivers.Set{})
			h := heir{step: plan.Step{Op: plan.Create, Kind: drivers.KindOVNLoadBalancer}, group: "g"}
			h.within, h.lacks = s.podNetwork(w, "web")
			for key := range w.looked {
				h.lacks.waits = append(h.lacks.waits, key)
			}
			e := &Engine{store: s, config: Config{Northbound: groups{networks: c.joined}}}
			err := e.vetHeirInOVN(t.Context(), nil, h)
			if c.text == "" {
				if err != nil {
					t.Errorf("it waits: %v", err)
				}
				return
			}
			if fail := (stepError{}); !errors.As(err, &fail) || !strings.Contains(err.Error(), c.text) {
				t.Fatalf("got %v, want %q", err, c.text)
			}
			v := e.verdict(err)
			if v.phase != Waiting || v.quiet || v.patient != c.patient || !v.next.backoff || !slices.Contains(v.waits, waitRole(role)) {
				t.Errorf("got %+v", v)
			}
		})
	}
}
