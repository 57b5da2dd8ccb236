package reconcile

import (
	"testing"
	"time"

	"github.com/kuryr/raven/drivers"
	"github.com/kuryr/raven/service/plan"
)

// statusLB is a load balancer of provider p that is ACTIVE, with a listener, a pool and a member in the given statuses.
func statusLB(id, listener, pool, member string) plan.Observed {
	return plan.Observed{Kind: drivers.KindLoadBalancer, ID: id, Status: statusActive, Attrs: map[string]any{
		"provider":  "p",
		"listeners": []any{map[string]any{"id": "l", "provisioning_status": listener}},
		"pools": []any{map[string]any{
			"id": "p", "provisioning_status": pool, "members": []any{map[string]any{"provisioning_status": member}},
		}},
	}}
}

// TestStandsStill: only what was made at once, of which nothing has become ready, and which nothing can be said to hold up, is given up,
// and that only after it was looked at by itself.
func TestStandsStill(t *testing.T) {
	const pending = "PENDING_CREATE"
	alone := statusLB("1", pending, "", "")
	delete(alone.Attrs, "pools")
	half := statusLB("1", pending, "ACTIVE", pending)
	half.Attrs["listeners"] = append(listOf(half.Attrs["listeners"]), map[string]any{"id": "l2", "provisioning_status": pending})
	start := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	for name, c := range map[string]struct {
		lb        plan.Observed
		bare      bool
		unlooked  bool
		after     time.Duration
		first     time.Duration // when another one's change was asked for, before this; 0: there is none
		made      bool          // of the other one a part was made
		wantStuck bool
	}{
		"all of it":                     {lb: statusLB("1", pending, pending, pending), after: stillAfter, wantStuck: true},
		"not looked at by itself":       {lb: statusLB("1", pending, pending, pending), after: stillAfter, unlooked: true},
		"not for long":                  {lb: statusLB("1", pending, pending, pending), after: stillAfter - 1},
		"not for long, of a bare one":   {lb: statusLB("1", pending, pending, pending), after: stillAfter / 5, bare: true},
		"one part of a bare one":        {lb: alone, after: time.Hour, bare: true},
		"the pool is ready":             {lb: half, after: time.Hour},
		"a member is ready":             {lb: statusLB("1", pending, pending, "ACTIVE"), after: time.Hour},
		"behind another that moves":     {lb: statusLB("1", pending, pending, pending), after: stillAfter, first: time.Second},
		"before another one that moves": {lb: statusLB("1", pending, pending, pending), after: stillAfter, first: -time.Second, wantStuck: true},
		"before another one that grows": {lb: statusLB("1", pending, pending, pending), after: stillAfter, first: -time.Second, made: true},
		"long before one that grows":    {lb: statusLB("1", pending, pending, pending), after: time.Hour, first: -time.Hour + 1, made: true, wantStuck: true},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStore("c", nil, nil)
			s.noteBalancer(c.lb, c.lb, start)
			s.trustOf("p").bare = c.bare
			now := start.Add(c.after)
			if c.first != 0 {
				began := start.Add(-c.first)
				s.noteBalancer(statusLB("2", pending, pending, pending), statusLB("2", pending, pending, pending), began)
				moved := statusLB("2", pending, pending, pending)
				if c.made {
					moved = statusLB("2", "ACTIVE", pending, pending)
				} else {
					moved.Status = statusUpdating
				}
				s.noteBalancer(statusLB("2", pending, pending, pending), moved, now)
			}
			s.busy["1"].still = !c.unlooked && s.standsStill(c.lb, now)
			if got := s.stuck(c.lb, now); got != c.wantStuck {
				t.Errorf("stuck: %v", got)
			}
			if learned := s.trustOf("p").bare; learned != (c.bare || c.wantStuck) {
				t.Errorf("its provider is trusted with parts: %v", !learned)
			}
		})
	}
}

// TestALookWithoutNewsWakesNobody: what waits for something else meanwhile, as for a quota, is not asked for at the pace of looks.
func TestALookWithoutNewsWakesNobody(t *testing.T) {
	start := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	with := func(listener, pool string) plan.Observed {
		lb := statusLB("1", listener, pool, "PENDING_CREATE")
		lb.Identity.Owner.Driver = sharedDriver // somebody who can be woken
		return lb
	}
	s := newStore("c", nil, nil)
	for i, look := range []struct {
		lb   plan.Observed
		wake bool
	}{
		{with("PENDING_CREATE", "PENDING_CREATE"), true},
		{with("PENDING_CREATE", "PENDING_CREATE"), false},
		{with("ACTIVE", "PENDING_CREATE"), true},
		{with("ACTIVE", "PENDING_CREATE"), false},
		{with("ACTIVE", "ACTIVE"), true},
	} {
		if woken := s.takeBalancer(look.lb, start.Add(time.Duration(i)*time.Second)); (len(woken) > 0) != look.wake {
			t.Errorf("look %d wakes %v", i, woken)
		}
	}
}
