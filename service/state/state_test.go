// SPDX-License-Identifier: Apache-2.0

package state

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/kuryr/raven/drivers"
	"github.com/kuryr/raven/service/plan"
)

// networking and balancing are two backends; the second keeps two kinds.
var (
	networking = Hooks{Backend: "networking", Kinds: []drivers.Kind{drivers.KindNetwork}}
	balancing  = Hooks{Backend: "balancing", Kinds: []drivers.Kind{drivers.KindLoadBalancer, drivers.KindFloatingIP}}
)

// newLoop returns a state of driver "a" with some backends, and what it delivers.
func newLoop(t *testing.T, backends ...Hooks) (*Loop, *[]Request) {
	t.Helper()
	delivered := &[]Request{}
	kinds := []plan.Descriptor{
		{Kind: drivers.KindNetwork}, {Kind: drivers.KindLoadBalancer}, {Kind: drivers.KindFloatingIP},
	}
	l := New(Config{
		Cluster: "c", Drivers: []string{"a"}, Kinds: plan.NewKinds(kinds...),
		Clock:   clocktesting.NewFakePassiveClock(time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)),
		Deliver: func(requests []Request) { *delivered = append(*delivered, requests...) },
	})
	for _, hooks := range backends {
		if err := l.Register(hooks); err != nil {
			t.Fatal(err)
		}
	}
	return l, delivered
}

// having joins an object of driver "a" that desires a load balancer, and returns its request.
func having(l *Loop) Request {
	r := Request{Driver: "a"}
	l.Update(func(tx *LoopTx) {
		tx.SetDesired(tx.Ensure(r, Target{UID: "u"}), drivers.Set{
			Resources: []drivers.Resource{{Name: "lb", Spec: drivers.LoadBalancer{}}},
		})
	})
	return r
}

// TestViewChangesNothing: what wakes an owner, or defers something, in a View is a mistake, which panics.
// The state can be used after that.
func TestViewChangesNothing(t *testing.T) {
	l, delivered := newLoop(t)
	shared := plan.Owner{Driver: Shared}
	for name, c := range map[string]struct {
		view  func(*Tx)
		fails bool
	}{
		"it looks":           {func(tx *Tx) { tx.Now() }, false},
		"it wakes nobody":    {func(tx *Tx) { tx.WakeOwner(plan.Owner{Driver: "a", UID: "nobody"}) }, false},
		"it wakes an object": {func(tx *Tx) { tx.WakeOwner(shared) }, true},
		"it puts off":        {func(tx *Tx) { tx.After(func() {}) }, true},
	} {
		t.Run(name, func(t *testing.T) {
			*delivered = nil
			defer func() {
				if fault := recover(); (fault != nil) != c.fails {
					t.Errorf("it panics with %v", fault)
				}
				l.Update(func(tx *LoopTx) { tx.WakeOwner(shared) }) // the lock is free
				if !slices.Contains(*delivered, Request{Driver: Shared}) {
					t.Errorf("delivered %v after that", *delivered)
				}
			}()
			l.State.View(c.view)
		})
	}
}

// TestAfterRunsUnlocked: what is put off runs in its order when the lock is free and what was woken is delivered, so
// that it may update the state, and put off more.
func TestAfterRunsUnlocked(t *testing.T) {
	l, delivered := newLoop(t)
	var ran []string
	l.State.Update(func(tx *Tx) {
		tx.After(func() {
			ran = append(ran, "first")
			if len(*delivered) != 1 {
				t.Errorf("%v were delivered before it", *delivered)
			}
			l.State.Update(func(tx *Tx) {
				tx.WakeOwner(plan.Owner{Driver: Shared})
				tx.After(func() { ran = append(ran, "inner") })
			})
			if len(*delivered) != 2 {
				t.Errorf("%v were delivered after its update", *delivered)
			}
		})
		tx.After(func() { ran = append(ran, "second") })
		tx.WakeOwner(plan.Owner{Driver: Shared})
		ran = append(ran, "update")
	})
	if diff := cmp.Diff([]string{"update", "first", "inner", "second"}, ran); diff != "" {
		t.Error(diff)
	}
	l.State.Update(func(*Tx) {})
	if len(ran) != 4 || len(*delivered) != 2 {
		t.Errorf("an update that does nothing runs %v and delivers %v", ran, *delivered)
	}
}

// TestAKindHasOneBackend: a kind that two backends keep is refused, and the second one keeps none of its kinds.
func TestAKindHasOneBackend(t *testing.T) {
	l, _ := newLoop(t, networking)
	err := l.Register(Hooks{Backend: "rows", Kinds: []drivers.Kind{drivers.KindLoadBalancer, drivers.KindNetwork}})
	if err == nil {
		t.Fatal("it is not refused")
	}
	for _, want := range []string{string(drivers.KindNetwork), "networking", "rows"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q does not name %s", err, want)
		}
	}
	l.View(func(tx *LoopTx) {
		if tx.Listed(drivers.KindNetwork) || tx.Unlisted("a") != "networking" {
			t.Errorf("the first one does not count any more: %q", tx.Unlisted("a"))
		}
	})
	if err := l.Register(balancing); err != nil {
		t.Errorf("the kind that the refused one would have kept besides: %v", err)
	}
}

// TestWhatIsKnownOfABackend: one that was never listed, one that is unavailable, and one that a cloud does not have are
// three things.
func TestWhatIsKnownOfABackend(t *testing.T) {
	unavailable, absent := errors.New("it does not answer"), errors.New("there is no such service")
	type known struct {
		First, Listed bool
		Err           error
	}
	list := func(err error, missing bool) func(*LoopTx) bool {
		return func(tx *LoopTx) bool { return tx.SetListed(drivers.KindLoadBalancer, err, missing) }
	}
	available := func(tx *LoopTx) bool {
		tx.SetAvailable(drivers.KindFloatingIP) // any of its kinds stands for it
		return false
	}
	for name, c := range map[string]struct {
		do   []func(*LoopTx) bool
		want known // First is of the last of them
	}{
		"never listed":                  {nil, known{}},
		"never listed, and unavailable": {[]func(*LoopTx) bool{list(unavailable, false)}, known{Err: unavailable}},
		"listed":                        {[]func(*LoopTx) bool{list(nil, false)}, known{First: true, Listed: true}},
		"listed at last": {
			[]func(*LoopTx) bool{list(unavailable, false), list(nil, false)}, known{First: true, Listed: true},
		},
		"listed again": {[]func(*LoopTx) bool{list(nil, false), list(nil, false)}, known{Listed: true}},
		"unavailable": {
			[]func(*LoopTx) bool{list(nil, false), list(unavailable, false)}, known{Listed: true, Err: unavailable},
		},
		"absent": {[]func(*LoopTx) bool{list(absent, true)}, known{First: true, Listed: true, Err: absent}},
		"absent as before": {
			[]func(*LoopTx) bool{list(absent, true), list(absent, true)}, known{Listed: true, Err: absent},
		},
		"it has come": {[]func(*LoopTx) bool{list(absent, true), list(nil, false)}, known{Listed: true}},
		"it has come, and is unavailable": {
			[]func(*LoopTx) bool{list(absent, true), list(unavailable, false)}, known{Err: unavailable},
		},
		"it has come, and is listed at last": {
			[]func(*LoopTx) bool{list(absent, true), list(unavailable, false), list(nil, false)},
			known{First: true, Listed: true},
		},
		"it was listed, has gone, and is unavailable": {
			[]func(*LoopTx) bool{list(nil, false), list(absent, true), list(unavailable, false)},
			known{Listed: true, Err: unavailable},
		},
		"it can be asked again": {
			[]func(*LoopTx) bool{list(nil, false), list(unavailable, false), available}, known{Listed: true},
		},
		"it can be asked, and was never listed": {
			[]func(*LoopTx) bool{list(unavailable, false), available}, known{Err: unavailable},
		},
	} {
		t.Run(name, func(t *testing.T) {
			l, _ := newLoop(t, networking, balancing)
			var got known
			l.Update(func(tx *LoopTx) {
				tx.SetListed(drivers.KindNetwork, nil, false)
				for _, do := range c.do {
					got.First = do(tx)
				}
			})
			l.View(func(tx *LoopTx) {
				for _, kind := range balancing.Kinds {
					got.Listed, got.Err = tx.Listed(kind), tx.Unavailable(kind)
					if got != c.want {
						t.Errorf("of kind %s: %+v, want %+v", kind, got, c.want)
					}
				}
				if unlisted := tx.Unlisted("a") == "balancing"; unlisted != !c.want.Listed {
					t.Errorf("unlisted is %q", tx.Unlisted("a"))
				}
				if err := tx.Unavailable(drivers.KindNetwork); err != nil || !tx.Listed(drivers.KindNetwork) {
					t.Errorf("the other one is concerned: %v", err)
				}
				if err := tx.Unavailable(drivers.KindPort); err != nil || !tx.Listed(drivers.KindPort) {
					t.Errorf("a kind that no backend keeps is waited for: %v", err)
				}
			})
		})
	}
}

// TestUnlistedConcernsWhoMayHaveResources: a driver waits for the backends of the kinds that it may make, and one of
// which that is not known for all.
func TestUnlistedConcernsWhoMayHaveResources(t *testing.T) {
	l, _ := newLoop(t, networking, balancing)
	l.Update(func(tx *LoopTx) {
		tx.AddDriver("networks", "", []drivers.Kind{drivers.KindNetwork})
		tx.AddDriver("addresses", "", []drivers.Kind{drivers.KindFloatingIP})
		tx.AddDriver("ports", "", []drivers.Kind{drivers.KindPort})
		tx.SetListed(drivers.KindNetwork, nil, false)
	})
	l.View(func(tx *LoopTx) {
		for driver, want := range map[string]string{
			"networks": "", "addresses": "balancing", "ports": "", "a": "balancing", "somebody": "balancing",
		} {
			if got := tx.Unlisted(driver); got != want {
				t.Errorf("driver %s waits for %q, want %q", driver, got, want)
			}
		}
	})
}

// TestAvailableAgain: who has resources of a backend, and who waits for it, is woken when it is available again; nobody
// is woken of one that was never listed, and those that merely have resources are not if it was available all the time.
func TestAvailableAgain(t *testing.T) {
	waiting := Request{Driver: "a", Key: StandbyKey()}
	for name, c := range map[string]struct {
		before []error // the results of lists before that
		want   func(having Request) []Request
	}{
		"it was never listed": {[]error{errors.New("it does not answer")}, func(Request) []Request { return nil }},
		"it was available":    {[]error{nil}, func(Request) []Request { return []Request{waiting} }},
		"it was unavailable": {
			[]error{nil, errors.New("it does not answer")},
			func(having Request) []Request { return []Request{having, waiting} },
		},
	} {
		t.Run(name, func(t *testing.T) {
			l, delivered := newLoop(t, networking, balancing)
			r := having(l)
			l.Update(func(tx *LoopTx) {
				tx.Wait(tx.Ensure(waiting, Target{UID: "w"}), []Key{ByBackend("balancing")}, nil)
				for _, err := range c.before {
					tx.SetListed(drivers.KindLoadBalancer, err, false)
				}
			})
			*delivered = nil
			l.State.Update(func(tx *Tx) { tx.SetAvailable(drivers.KindLoadBalancer) })
			if diff := cmp.Diff(c.want(r), *delivered); diff != "" {
				t.Error(diff)
			}
		})
	}
}
