// SPDX-License-Identifier: Apache-2.0

package service_test

import (
	"slices"
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"

	"github.com/kuryr/raven/service"
)

// TestWorkMustMove: a queue that holds work and ends none of it stands still; one that is empty, moves, waits for
// what has a bound of its own, or was frozen with its process does not.
func TestWorkMustMove(t *testing.T) {
	const within, every = time.Minute, time.Second
	type look struct {
		held   int
		ended  uint64
		waits  bool
		after  time.Duration
		stalls bool
	}
	steady := func(n int, each func(i int) look) []look {
		looks := make([]look, n)
		for i := range looks {
			looks[i] = each(i)
			looks[i].after = every
		}
		return looks
	}
	for name, looks := range map[string][]look{
		"empty":  steady(200, func(int) look { return look{} }),
		"moves":  steady(200, func(i int) look { return look{held: 5, ended: uint64(i / 50)} }),
		"waits":  steady(200, func(int) look { return look{held: 5, waits: true} }),
		"stands": steady(200, func(i int) look { return look{held: 5, stalls: i >= 60} }),
		"goes on": append(steady(70, func(i int) look { return look{held: 5, stalls: i >= 60} }),
			look{held: 5, ended: 1, after: every}),
		// What it waits for comes and goes: only the time between counts, and only work that ends wipes it out.
		"waits now and then": steady(200, func(i int) look { return look{held: 5, waits: i%2 == 0, stalls: i >= 121} }),
		"frozen": {
			{held: 5, after: every},
			{held: 5, after: 24 * time.Hour},
			{held: 5, ended: 1, after: every},
		},
	} {
		t.Run(name, func(t *testing.T) {
			clk := clocktesting.NewFakePassiveClock(time.Unix(0, 0))
			progress := service.NewProgress(clk)
			work := progress.Work("queue", within)
			for i, l := range looks {
				clk.SetTime(clk.Now().Add(l.after))
				work.Look(l.held, l.ended, l.waits)
				if got := slices.Contains(progress.Stalled(), "queue"); got != l.stalls {
					t.Fatalf("look %d, %+v: stands still: %t", i, l, got)
				}
			}
			work.End()
			if left := progress.Stalled(); len(left) > 0 {
				t.Errorf("ended, and still %v", left)
			}
		})
	}
}
