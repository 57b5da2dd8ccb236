// SPDX-License-Identifier: Apache-2.0

package octavia

import (
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"

	"github.com/kuryr/raven/drivers"
	"github.com/kuryr/raven/service/backend"
	"github.com/kuryr/raven/service/plan"
	"github.com/kuryr/raven/service/state"
)

// rig is a backend that asks nothing of a cloud, with its state.
type rig struct {
	*Backend
	loop  *state.Loop
	clock *clocktesting.FakePassiveClock
	woken int
}

func newRig(t *testing.T, start time.Time) *rig {
	t.Helper()
	r := &rig{clock: clocktesting.NewFakePassiveClock(start)}
	kinds := append(Kinds(), plan.Descriptor{Kind: drivers.KindSubnet})
	r.loop = state.New(state.Config{
		Cluster: "c", Drivers: []string{"a"}, Kinds: plan.NewKinds(kinds...), Clock: r.clock,
		Deliver: func(requests []state.Request) { r.woken += len(requests) },
	})
	var c Config
	if err := c.Validate(); err != nil {
		t.Fatal(err)
	}
	env := backend.Env{State: r.loop.State, Timing: backend.Timing{Refusal: 10 * time.Minute}}
	r.Backend = NewBackend(nil, nil, env, c)
	hooks := r.Registration().Hooks
	hooks.Kinds = []drivers.Kind{drivers.KindLoadBalancer}
	if err := r.loop.Register(hooks); err != nil {
		t.Fatal(err)
	}
	return r
}

func (r *rig) update(f func(tx *state.Tx)) { r.loop.State.Update(f) }

// note keeps the account of a load balancer that is another one at a time than it was before.
func (r *rig) note(at time.Time, before, now plan.Observed) {
	r.clock.SetTime(at)
	r.update(func(tx *state.Tx) { r.noteBusy(tx, before, now) })
}

// lbInStatus is a load balancer of provider p that is ACTIVE, with a listener, a pool and a member in the given
// statuses.
func lbInStatus(id, listener, pool, member string) plan.Observed {
	return plan.Observed{Kind: drivers.KindLoadBalancer, ID: id, Status: statusActive, Attrs: map[string]any{
		"provider":  "p",
		"listeners": []any{map[string]any{"id": "l", "provisioning_status": listener}},
		"pools": []any{map[string]any{
			"id": "p", "provisioning_status": pool, "members": []any{map[string]any{"provisioning_status": member}},
		}},
	}}
}

// TestStandsStill: only what was made at once, of which nothing has become ready, and which nothing can be said to hold
// up, is given up, and that only after it was inspected by itself.
func TestStandsStill(t *testing.T) {
	const stillAfter, creating = 20 * time.Second, "PENDING_CREATE"
	alone := lbInStatus("1", creating, "", "")
	delete(alone.Attrs, "pools")
	half := lbInStatus("1", creating, "ACTIVE", creating)
	second := map[string]any{"id": "l2", "provisioning_status": creating}
	half.Attrs["listeners"] = append(asList(half.Attrs["listeners"]), second)
	all := lbInStatus("1", creating, creating, creating)
	start := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	for name, c := range map[string]struct {
		lb          plan.Observed
		bare        bool
		uninspected bool
		after       time.Duration
		first       time.Duration // when another one's change was asked for, before this; 0: there is none
		made        bool          // of the other one a part was made
		wantStuck   bool
	}{
		"all of it":                     {lb: all, after: stillAfter, wantStuck: true},
		"not inspected by itself":       {lb: all, after: stillAfter, uninspected: true},
		"not for long":                  {lb: all, after: stillAfter - 1},
		"not for long, of a bare one":   {lb: all, after: stillAfter / 5, bare: true},
		"one part of a bare one":        {lb: alone, after: time.Hour, bare: true},
		"the pool is ready":             {lb: half, after: time.Hour},
		"a member is ready":             {lb: lbInStatus("1", creating, creating, "ACTIVE"), after: time.Hour},
		"behind another that moves":     {lb: all, after: stillAfter, first: time.Second},
		"before another one that moves": {lb: all, after: stillAfter, first: -time.Second, wantStuck: true},
		"before another one that grows": {lb: all, after: stillAfter, first: -time.Second, made: true},
		"long before one that grows":    {lb: all, after: time.Hour, first: -time.Hour + 1, made: true, wantStuck: true},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, start)
			r.note(start, c.lb, c.lb)
			r.capabilitiesOf("p").bare = c.bare
			now := start.Add(c.after)
			if c.first != 0 {
				other := lbInStatus("2", creating, creating, creating)
				r.note(start.Add(-c.first), other, other)
				moved := lbInStatus("2", creating, creating, creating)
				if c.made {
					moved = lbInStatus("2", "ACTIVE", creating, creating)
				} else {
					moved.Status = statusUpdating
				}
				r.note(now, other, moved)
			}
			r.clock.SetTime(now)
			r.update(func(tx *state.Tx) {
				r.busy["1"].still = !c.uninspected && r.standsStill(tx, c.lb)
				if got := r.stuck(tx, c.lb); got != c.wantStuck {
					t.Errorf("stuck: %v", got)
				}
			})
			if learned := r.capabilitiesOf("p").bare; learned != (c.bare || c.wantStuck) {
				t.Errorf("its provider is asked for parts: %v", !learned)
			}
		})
	}
}

// TestAPollWithoutNewsWakesNobody: what waits for something else meanwhile, as for a quota, is not asked for at the
// pace of polls.
func TestAPollWithoutNewsWakesNobody(t *testing.T) {
	start := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	with := func(listener, pool string) plan.Observed {
		lb := lbInStatus("1", listener, pool, "PENDING_CREATE")
		lb.Identity.Owner.Driver = state.Shared // an owner that can be woken
		return lb
	}
	r := newRig(t, start)
	for i, seen := range []struct {
		lb   plan.Observed
		wake bool
	}{
		{with("PENDING_CREATE", "PENDING_CREATE"), true},
		{with("PENDING_CREATE", "PENDING_CREATE"), false},
		{with("ACTIVE", "PENDING_CREATE"), true},
		{with("ACTIVE", "PENDING_CREATE"), false},
		{with("ACTIVE", "ACTIVE"), true},
	} {
		r.clock.SetTime(start.Add(time.Duration(i) * time.Second))
		r.woken = 0
		r.update(func(tx *state.Tx) { tx.Arrive(seen.lb) })
		if (r.woken > 0) != seen.wake {
			t.Errorf("poll %d wakes %d", i, r.woken)
		}
	}
}

// TestWhatAPollFindsAsksForNone: polls follow each other ever more slowly as long as nothing else asks for one.
func TestWhatAPollFindsAsksForNone(t *testing.T) {
	r := newRig(t, time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC))
	lb := lbInStatus("1", "PENDING_CREATE", "PENDING_CREATE", "")
	r.update(func(tx *state.Tx) { tx.Arrive(lb) })
	select {
	case <-r.pollNow:
	default:
		t.Error("what was made asks for no poll")
	}
	var begun uint64
	r.update(func(tx *state.Tx) { begun = tx.Cache.Sequence() })
	taken := 0
	news := []plan.Observed{lbInStatus("1", "ACTIVE", "PENDING_CREATE", "")}
	r.takePolled(news, begun, func(*state.Tx, string, plan.Observed) { taken++ })
	if taken != 1 {
		t.Errorf("%d were taken over", taken)
	}
	select {
	case <-r.pollNow:
		t.Error("what was polled asks for another poll")
	default:
	}
}
