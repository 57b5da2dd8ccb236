package reconcile

import (
	"fmt"
	"maps"
	"strings"
	"time"

	"github.com/kuryr/raven/drivers"
	"github.com/kuryr/raven/service/openstack/octavia"
	"github.com/kuryr/raven/service/plan"
)

// busyState is how long a load balancer has been busy.
type busyState struct {
	since   time.Time // it takes no changes
	moved   time.Time // its status, or that of a part, was another one before
	full    bool      // made by this process with all its parts, of which nobody knows yet whether they become ready
	early   bool      // it was ready before its parts
	check   bool      // its parts have to be inspected before it counts as ready
	overdue bool      // told to be stuck
	still   bool      // looked at by itself after it had stood still: no part of it had become ready
	by      string    // its provider
}

// standsStill says whether a load balancer may be one that was made at once and whose parts stay pending for good. Some releases of
// Octavia make a load balancer ready and never its parts. One that is merely slow is none: a part of it is ready, or something has
// moved, its own parts or what its provider has to do first. Nor is one whose parts Raven makes one by one: of those one is pending.
func (s *store) standsStill(lb plan.Observed, now time.Time) bool {
	busy := s.busy[lb.ID]
	if busy == nil || lb.Status != statusActive || now.Sub(busy.moved) < s.stillAfter {
		return false
	}
	pending, _, others := pendingParts(lb)
	return pending > 1 && others == 0 && readyMembers(lb) == 0
}

// stuck says whether a load balancer is given up, since looking at that very one has confirmed that it stands still. Its provider is
// then not trusted with parts any more.
func (s *store) stuck(lb plan.Observed, now time.Time) bool {
	if busy := s.busy[lb.ID]; busy == nil || !busy.still || !s.standsStill(lb, now) {
		return false
	}
	s.trustOf(provider(lb)).bare = true
	return true
}

// noteBalancer keeps the account of what is busy, and returns who must look again.
func (s *store) noteBalancer(before, lb plan.Observed, now time.Time) []item {
	condition, _ := octavia.ConditionOf(&lb)
	b := s.busy[lb.ID]
	if condition != octavia.Busy && condition != octavia.Leaving {
		if b != nil && condition == octavia.Ready {
			s.learn(b, lb)
		}
		delete(s.busy, lb.ID)
		if b != nil {
			s.queueMoved(b, doneParts(lb) > doneParts(before), now)
		}
		if b == nil && before.Status == lb.Status {
			return nil
		}
	} else {
		news := b == nil
		if b == nil {
			b = &busyState{since: now, moved: now}
			s.busy[lb.ID] = b
		}
		b.by = provider(lb)
		b.early = b.early || condition == octavia.Busy && lb.Status == statusActive
		if progress(before) != progress(lb) {
			news = true
			b.moved, b.still = now, false
			s.queueMoved(b, doneParts(lb) > doneParts(before), now)
		}
		// A look that shows nothing new is no reason for another pass: that would ask again for what was refused meanwhile, at the pace
		// of looks. remind wakes those whose load balancers are late or stand still.
		if !news || before.Status == lb.Status && b.overdue {
			return nil
		}
	}
	return append(s.wake(waitBusy(lb.ID)), s.ownerItem(lb.Identity.Owner)...)
}

// queueMoved notes that a provider is at work: load balancers of which it was asked after this one may have had to wait for it. Where it
// has made a part, so may those of which it was asked before: it may have several queues, as many as there are processes of it, and in
// which of them something is, and where, nobody can see. But those not for ever.
func (s *store) queueMoved(first *busyState, made bool, now time.Time) {
	for _, b := range s.busy {
		if b.by == first.by && (!b.since.Before(first.since) || made && now.Sub(b.since) < s.activation) {
			b.moved, b.still = now, false
		}
	}
}

// doneParts counts the parts that have been made, as far as they are known.
func doneParts(lb plan.Observed) int {
	_, _, others := pendingParts(lb)
	return others + readyMembers(lb)
}

// learn takes down what a load balancer that has become ready says of its provider.
func (s *store) learn(b *busyState, lb plan.Observed) {
	t := s.trustOf(provider(lb))
	t.early = t.early || b.early
	if !b.full {
		return
	}
	t.proven = true
	for _, element := range listOf(lb.Attrs["pools"]) {
		pool, _ := element.(map[string]any)
		t.monitored = t.monitored || pool["healthmonitor"] != nil
	}
}

// doubted says whether a load balancer that is ready may have parts that are not.
func (s *store) doubted(lb plan.Observed) bool {
	pending, monitors, _ := pendingParts(lb)
	t := s.trustOf(provider(lb))
	return pending > 0 && (!t.proven || t.early || monitors > 0 && !t.monitored) || s.busy[lb.ID].check
}

// progress is a text that changes when a status does.
func progress(lb plan.Observed) string {
	var b strings.Builder
	b.WriteString(lb.Status)
	for _, list := range []string{"listeners", "pools"} {
		for _, element := range listOf(lb.Attrs[list]) {
			part, _ := element.(map[string]any)
			monitor, _ := part["healthmonitor"].(map[string]any)
			fmt.Fprint(&b, part["id"], part["provisioning_status"], monitor["provisioning_status"])
		}
	}
	fmt.Fprint(&b, readyMembers(lb)) // of those that are not known none counts: they are not always looked at
	return b.String()
}

// waitBusy is a load balancer that takes no changes.
func waitBusy(id string) waitKey { return waitKey{what: "busy", name: id} }

// recount keeps the account of busy load balancers after all were listed, and returns who must look again. err says that they
// could not be.
func (s *store) recount(now time.Time, err error) []item {
	var woken []item
	back := s.away != nil && err == nil
	s.missed = s.missed && err != nil
	s.away = err
	known := map[string]bool{}
	for _, lb := range s.cloud.ofKind(drivers.KindLoadBalancer) {
		known[lb.ID] = true
		woken = append(woken, s.noteBalancer(lb, lb, now)...)
	}
	maps.DeleteFunc(s.busy, func(id string, _ *busyState) bool { return !known[id] })
	maps.DeleteFunc(s.piecemeal, func(_ doubtKey, until time.Time) bool { return now.After(until) })
	maps.DeleteFunc(s.refusedParts, func(_ refusalKey, r partRefusal) bool { return now.After(r.until) })
	woken = append(woken, s.forgetSwaps()...)
	maps.DeleteFunc(s.mendings, func(_ doubtKey, m *mending) bool { return now.After(m.until) })
	if back {
		woken = append(woken, s.wake(waitBalancing())...)
		clear(s.northbound.withheld)
		for _, o := range s.owners {
			if o.balanced {
				woken = append(woken, o.item)
			}
		}
	}
	return woken
}
