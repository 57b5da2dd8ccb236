package reconcile

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/kuryr/raven/drivers"
	"github.com/kuryr/raven/service/openstack/octavia"
	"github.com/kuryr/raven/service/plan"
)

// How often busy load balancers are looked at: soon after something was asked of one, then ever less often until one of them
// changes; and never so often that looking takes more than a quarter of the time.
const (
	pollFirst  = 200 * time.Millisecond
	pollMost   = 5 * time.Second
	pollGrowth = 1.15 // what is ready is known at most that much later, in parts of the time that it took
	pollShare  = 3
)

// requestPoll says that a load balancer may be busy now.
func (e *Engine) requestPoll() {
	select {
	case e.pollNow <- struct{}{}:
	default:
	}
}

// pollLoop looks at all busy load balancers by one list, and asks nothing while there are none.
func (e *Engine) pollLoop(ctx context.Context) {
	wait, least, failing := e.config.PollInterval, time.Duration(0), false
	for {
		if !e.anyBusy() {
			select {
			case <-ctx.Done():
				return
			case <-e.pollNow:
			}
			wait = e.config.PollInterval
			continue
		}
		timer := e.clock.NewTimer(wait)
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-e.pollNow:
			timer.Stop()
			wait = max(min(wait, e.config.PollInterval), least)
			select { // what is asked for just now is not ready yet
			case <-ctx.Done():
				return
			case <-e.clock.After(wait):
			}
		case <-timer.C():
		}
		started := e.clock.Now()
		moved, err := e.poll(ctx)
		took := e.clock.Since(started)
		wait = time.Duration(float64(wait) * pollGrowth)
		switch {
		case err != nil && ctx.Err() == nil && !failing:
			e.log.Warn("looking at busy load balancers failed; nothing is concluded from it", "error", err)
		case moved:
			wait = e.config.PollInterval
		}
		failing = err != nil
		least = pollShare * took
		wait = max(min(wait, e.pollCeiling()), least)
	}
}

func (e *Engine) anyBusy() bool {
	e.store.mu.Lock()
	defer e.store.mu.Unlock()
	return len(e.store.busy) > 0
}

// pollCeiling is the longest time between two looks: longer where all that is busy is overdue.
func (e *Engine) pollCeiling() time.Duration {
	e.store.mu.Lock()
	defer e.store.mu.Unlock()
	for _, b := range e.store.busy {
		if !b.overdue {
			return pollMost
		}
	}
	return e.config.SlowRetry
}

// poll takes over the statuses of all load balancers. It says whether one of those that were busy has moved.
func (e *Engine) poll(ctx context.Context) (moved bool, err error) {
	var begun uint64
	var busy []string
	e.store.do(func() { begun, busy = e.store.cloud.tick, slices.Collect(maps.Keys(e.store.busy)) })
	listed, err := e.cloud.PollLoadBalancers(ctx, e.config.Cluster, busy)
	if err != nil {
		return false, fmt.Errorf("listing the load balancers: %w", err)
	}
	now := e.clock.Now()
	var news, inspect []plan.Observed
	var gone []string
	e.store.do(func() { news, inspect, gone = e.store.polled(listed, begun) })
	if len(inspect) > 0 {
		inspected, err := e.cloud.InspectLoadBalancers(ctx, inspect)
		if err != nil {
			return false, fmt.Errorf("inspecting load balancers: %w", err)
		}
		news = append(news, inspected...)
	}
	var woken []item
	e.store.do(func() {
		for _, lb := range e.store.still(news, begun) { // what was written to meanwhile stays as it is
			before := progressOf(e.store, lb.ID)
			woken = append(woken, e.store.takeBalancer(lb, now)...)
			moved = moved || before != progress(lb)
		}
	})
	e.wakeAll(woken)
	if err := e.confirm(ctx); err != nil {
		return moved, err
	}
	e.store.do(func() { woken = e.store.remind(e.clock.Now(), e.config.ActivationTimeout) })
	e.wakeAll(woken)
	for _, id := range gone {
		moved = true
		e.depart(drivers.KindLoadBalancer, id)
	}
	return moved, nil
}

// confirm looks at each load balancer that seems to stand still by itself, with all that is in it, before it is given up.
func (e *Engine) confirm(ctx context.Context) error {
	var suspects []plan.Observed
	var begun uint64
	e.store.do(func() {
		begun = e.store.cloud.tick
		for id, b := range e.store.busy {
			found := e.store.cloud.entries[resourceKey{drivers.KindLoadBalancer, id}]
			if found != nil && !b.still && e.store.standsStill(found.Observed, e.clock.Now()) {
				suspects = append(suspects, found.Observed)
			}
		}
	})
	for _, lb := range suspects {
		list, err := e.cloud.InspectLoadBalancers(ctx, []plan.Observed{lb})
		if err != nil {
			return fmt.Errorf("inspecting load balancer %s: %w", lb.ID, err)
		}
		var woken []item
		e.store.do(func() {
			now := e.clock.Now()
			for _, lb := range e.store.still(list, begun) {
				woken = append(woken, e.store.takeBalancer(lb, now)...)
				if b := e.store.busy[lb.ID]; b != nil {
					b.still = e.store.standsStill(lb, now)
				}
			}
		})
		e.wakeAll(woken)
	}
	return nil
}

func progressOf(s *store, id string) string {
	if old := s.cloud.entries[resourceKey{drivers.KindLoadBalancer, id}]; old != nil {
		return progress(old.Observed)
	}
	return ""
}

// still drops what was written to since the list was begun.
func (s *store) still(list []plan.Observed, begun uint64) []plan.Observed {
	var out []plan.Observed
	for _, lb := range list {
		if old := s.cloud.entries[resourceKey{lb.Kind, lb.ID}]; old != nil && old.written <= begun {
			out = append(out, lb)
		}
	}
	return out
}

// polled compares a list with what is busy: what has news, of what the parts have to be inspected, and what is gone.
func (s *store) polled(listed []plan.Observed, begun uint64) (news, inspect []plan.Observed, gone []string) {
	seen := make(map[string]bool, len(listed))
	for _, now := range listed {
		seen[now.ID] = true
		old := s.cloud.entries[resourceKey{drivers.KindLoadBalancer, now.ID}]
		if old == nil || old.written > begun || s.busy[now.ID] == nil {
			continue
		}
		lb := old.Observed
		lb.Status = now.Status
		switch {
		case lb.Status == statusActive && s.doubted(lb):
			inspect = append(inspect, lb)
		case lb.Status == statusActive:
			news = append(news, octavia.Settled(lb))
		default:
			news = append(news, lb)
		}
	}
	for id := range s.busy {
		old := s.cloud.entries[resourceKey{drivers.KindLoadBalancer, id}]
		switch {
		case old == nil:
			delete(s.busy, id)
		case !seen[id] && old.written <= begun: // the list is of the whole project for those that it would lack
			gone = append(gone, id)
		}
	}
	return news, inspect, gone
}

// remind returns the owners of load balancers that were busy for too long, and of those of which it may be time to give up.
func (s *store) remind(now time.Time, limit time.Duration) []item {
	var woken []item
	for id, b := range s.busy {
		old := s.cloud.entries[resourceKey{drivers.KindLoadBalancer, id}]
		if old == nil {
			continue
		}
		if late := now.Sub(b.since) >= limit; late && !b.overdue {
			b.overdue = true
			woken = append(woken, s.ownerItem(old.Identity.Owner)...)
		}
		if s.stuck(old.Observed, now) {
			woken = append(woken, s.ownerItem(old.Identity.Owner)...)
		}
	}
	return woken
}
