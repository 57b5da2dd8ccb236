// SPDX-License-Identifier: Apache-2.0

package octavia

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/kuryr/raven/drivers"
	"github.com/kuryr/raven/service/plan"
	"github.com/kuryr/raven/service/state"
)

// How often busy load balancers are polled: soon after something was asked of one, then ever less often until one of
// them changes; and never so often that polling takes more than a quarter of the time.
const (
	pollMost   = 5 * time.Second
	pollGrowth = 1.15 // what is ready is known at most that much later, in parts of the time that it took
	pollShare  = 3
)

// requestPoll says that a load balancer may be busy now.
func (b *Backend) requestPoll() {
	select {
	case b.pollNow <- struct{}{}:
	default:
	}
}

// pollLoop polls all busy load balancers by one list, and asks nothing while there are none.
func (b *Backend) pollLoop(ctx context.Context) {
	wait, least, failing := b.config.PollInterval, time.Duration(0), false
	for {
		if !b.anyBusy() {
			select {
			case <-ctx.Done():
				return
			case <-b.pollNow:
			}
			wait = b.config.PollInterval
			continue
		}
		timer := b.env.Clock.NewTimer(wait)
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-b.pollNow:
			timer.Stop()
			wait = max(min(wait, b.config.PollInterval), least)
			select { // what is asked for just now is not ready yet
			case <-ctx.Done():
				return
			case <-b.env.Clock.After(wait):
			}
		case <-timer.C():
		}
		started := b.env.Clock.Now()
		moved, err := b.poll(ctx)
		took := b.env.Clock.Since(started)
		wait = time.Duration(float64(wait) * pollGrowth)
		switch {
		case err != nil && ctx.Err() == nil && !failing:
			b.env.Log.Warn("polling busy load balancers failed; nothing is concluded from it", "error", err)
		case moved:
			wait = b.config.PollInterval
		}
		failing = err != nil
		least = pollShare * took
		wait = max(min(wait, b.pollCeiling()), least)
	}
}

func (b *Backend) anyBusy() (busy bool) {
	b.env.State.View(func(*state.Tx) { busy = len(b.busy) > 0 })
	return busy
}

// pollCeiling is the longest time between two polls: longer where all that is busy is overdue.
func (b *Backend) pollCeiling() time.Duration {
	ceiling := b.env.Timing.SlowRetry
	b.env.State.View(func(*state.Tx) {
		for _, period := range b.busy {
			if !period.overdue {
				ceiling = pollMost
			}
		}
	})
	return ceiling
}

// poll takes over the statuses of all load balancers. It says whether one of those that were busy has moved.
func (b *Backend) poll(ctx context.Context) (moved bool, err error) {
	var begun uint64
	var busy []string
	b.env.State.View(func(tx *state.Tx) { begun, busy = tx.Cache.Sequence(), slices.Collect(maps.Keys(b.busy)) })
	listed, err := b.client.Poll(ctx, b.env.Cluster, busy)
	if err != nil {
		return false, fmt.Errorf("listing the load balancers: %w", err)
	}
	var news, inspect []plan.Observed
	var gone []string
	b.env.State.Update(func(tx *state.Tx) { news, inspect, gone = b.polled(tx, listed, begun) })
	if len(inspect) > 0 {
		inspected, err := b.client.Inspect(ctx, inspect)
		if err != nil {
			return false, fmt.Errorf("inspecting load balancers: %w", err)
		}
		news = append(news, inspected...)
	}
	b.takePolled(news, begun, func(_ *state.Tx, before string, lb plan.Observed) {
		moved = moved || before != progress(lb)
	})
	if err := b.confirm(ctx); err != nil {
		return moved, err
	}
	b.env.State.Update(func(tx *state.Tx) {
		b.remind(tx)
		for _, id := range gone {
			moved = true
			tx.Depart(drivers.KindLoadBalancer, id)
		}
	})
	return moved, nil
}

// takePolled takes over what a poll has found, and calls taken with the progress that was known before. What was
// written to meanwhile stays as it is.
func (b *Backend) takePolled(
	news []plan.Observed, begun uint64, taken func(tx *state.Tx, before string, lb plan.Observed),
) {
	b.env.State.Update(func(tx *state.Tx) {
		b.polling = true
		defer func() { b.polling = false }()
		for _, lb := range news {
			before := ""
			if known, ok := tx.Cache.Get(drivers.KindLoadBalancer, lb.ID); ok {
				before = progress(known)
			}
			b.take(tx, []plan.Observed{lb}, begun, func(lb plan.Observed) { taken(tx, before, lb) })
		}
	})
}

// confirm inspects each load balancer that seems to stand still by itself, with all that is in it, before it is given
// up.
func (b *Backend) confirm(ctx context.Context) error {
	var suspects []plan.Observed
	var begun uint64
	b.env.State.View(func(tx *state.Tx) {
		begun = tx.Cache.Sequence()
		for id, period := range b.busy {
			if lb, known := tx.Cache.Get(drivers.KindLoadBalancer, id); known && !period.still && b.standsStill(tx, lb) {
				suspects = append(suspects, lb)
			}
		}
	})
	for _, lb := range suspects {
		list, err := b.client.Inspect(ctx, []plan.Observed{lb})
		if err != nil {
			return fmt.Errorf("inspecting load balancer %s: %w", lb.ID, err)
		}
		b.takePolled(list, begun, func(tx *state.Tx, _ string, lb plan.Observed) {
			if period := b.busy[lb.ID]; period != nil {
				period.still = b.standsStill(tx, lb)
			}
		})
	}
	return nil
}

// polled compares a list with what is busy: what has news, of what the parts have to be inspected, and what is gone.
func (b *Backend) polled(
	tx *state.Tx, listed []plan.Observed, begun uint64,
) (news, inspect []plan.Observed, gone []string) {
	newer := func(id string) bool {
		return tx.Cache.Newer(state.ResourceKey{Kind: drivers.KindLoadBalancer, ID: id}, begun)
	}
	seen := make(map[string]bool, len(listed))
	for _, now := range listed {
		seen[now.ID] = true
		lb, known := tx.Cache.Get(drivers.KindLoadBalancer, now.ID)
		if !known || newer(now.ID) || b.busy[now.ID] == nil {
			continue
		}
		lb.Status = now.Status
		switch {
		case lb.Status == statusActive && b.unproven(lb):
			inspect = append(inspect, lb)
		case lb.Status == statusActive:
			news = append(news, Settled(lb))
		default:
			news = append(news, lb)
		}
	}
	for id := range b.busy {
		_, known := tx.Cache.Get(drivers.KindLoadBalancer, id)
		switch {
		case !known:
			delete(b.busy, id)
		case !seen[id] && !newer(id): // the list is of the whole project for those that it would lack
			gone = append(gone, id)
		}
	}
	return news, inspect, gone
}
