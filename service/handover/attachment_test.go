// SPDX-License-Identifier: Apache-2.0

package handover

import (
	"context"
	"slices"
	"strings"
	"testing"

	"k8s.io/utils/clock"

	"github.com/kuryr/raven/drivers"
	"github.com/kuryr/raven/service/backend"
	"github.com/kuryr/raven/service/ovn"
	"github.com/kuryr/raven/service/plan"
	"github.com/kuryr/raven/service/state"
)

// groups is a database with one group.
type groups struct{ networks, routers []any }

func (g groups) Get(context.Context, drivers.Kind, string) (plan.Observed, error) {
	return plan.Observed{Attrs: map[string]any{"networks": g.networks, "routers": g.routers}}, nil
}

func newState(names ...string) *state.Loop {
	return state.New(state.Config{
		Cluster: "c", Drivers: names, Kinds: plan.NewKinds(ovn.Kinds()...), Clock: clock.RealClock{},
	})
}

// TestWhatASuccessorWaitsFor: as long as a namespace's network is not in the group, or its router where there are
// addresses outside, nothing is handed over, and what may change that wakes who waits, which also asks again; drivers
// that contradict each other are told; and where no driver says where pods are there is nothing to wait for.
func TestWhatASuccessorWaitsFor(t *testing.T) {
	for name, c := range map[string]namespaceCase{
		"joined": {exporters: []string{"a"}, made: true, joined: []any{"other", "net"}},
		"not joined": {
			exporters: []string{"a"}, made: true, joined: []any{"other"}, text: "has not joined its group", patient: true,
		},
		"not made": {exporters: []string{"a"}, text: "is not there yet", patient: true},
		"in conflict": {
			exporters: []string{"a", "b"}, made: true, text: "is exported more than once, by driver a and driver b",
		},
		"nobody has answered":  {open: true, text: "it is not known yet which %s is that of", patient: true},
		"the namespace is new": {untranslated: true, text: "it is not known yet which %s is that of", patient: true},
		"nobody says":          {},
	} {
		for _, at := range []struct {
			place
			spec     drivers.Spec
			external bool
		}{{podsPlace(), drivers.Network{}, false}, {outerPlace(), drivers.Router{}, true}} {
			t.Run(name+"/"+at.thing, func(t *testing.T) {
				role := drivers.Role{Kind: "Namespace", Name: "web", Role: at.role}
				s := successor{step: plan.Step{Op: plan.Create, Kind: drivers.KindOVNLoadBalancer}, group: "g"}
				attrs := drivers.Attributes(drivers.OVNLoadBalancer{
					VIPs: []drivers.OVNVIP{{Protocol: "TCP"}, {Protocol: "TCP", External: at.external}},
				})
				c.namespace(at.place, at.spec).Update(func(tx *state.LoopTx) {
					s.attachments = attachments(tx.Tx, tx.Names(plan.Owner{}, drivers.Set{}), "web", attrs)
				})
				there := groups{networks: c.joined}
				if at.external { // it is the router that is in question
					s.attachments, there = s.attachments[1:], groups{routers: c.joined}
				} else if len(s.attachments) > 1 {
					t.Error("the router is asked for, though there are no addresses outside")
				}
				f := New(backend.Env{}, nil, there, nil).preflightOVN(t.Context(), s)
				switch {
				case c.text == "" && f != nil:
					t.Errorf("it waits: %v", f)
				case c.text == "":
				case f == nil || !strings.Contains(f.Error(), strings.ReplaceAll(c.text, "%s", at.thing)):
					t.Errorf("got %v, want %q", f, c.text)
				case f.Phase != state.Waiting || f.Quiet || f.Patient != c.patient || !f.Backoff,
					!slices.Contains(f.Wait, state.ByRole(role)):
					t.Errorf("got %+v", f)
				}
			})
		}
	}
}

// namespaceCase is how a namespace's network or router stands.
type namespaceCase struct {
	exporters    []string // drivers
	made         bool     // the network, or the router
	joined       []any
	open         bool // a driver has not answered yet
	untranslated bool // nor has one for the namespace, since it is new
	text         string
	patient      bool
}

// namespace returns a state with that namespace.
func (c namespaceCase) namespace(at place, spec drivers.Spec) *state.Loop {
	loop := newState("a", "b")
	loop.Update(func(tx *state.LoopTx) {
		for _, driver := range []string{"a", "b"} {
			if !c.open {
				tx.BeginEpoch(driver, nil)
			}
			o := tx.Ensure(state.Request{Driver: driver}, state.Target{
				Watch: drivers.Watch{Kind: "Namespace"}, Name: "web", UID: driver,
			})
			set := drivers.Set{}
			if slices.Contains(c.exporters, driver) {
				set.Resources = []drivers.Resource{{Name: at.thing, Exports: []string{at.role}, Spec: spec}}
			}
			tx.SetDesired(o, set)
			if o.HasSet, o.Answered = !c.untranslated, 1; c.made && driver == "a" {
				tx.Cache.Put(plan.Observed{
					Kind: spec.Kind(), ID: "net", Managed: true, Attrs: map[string]any{},
					Identity: tx.Identity(o.ID, drivers.Resource{Name: at.thing, Spec: spec}),
				})
			}
		}
	})
	return loop
}
