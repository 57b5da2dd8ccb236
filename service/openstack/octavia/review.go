// SPDX-License-Identifier: Apache-2.0

package octavia

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/kuryr/raven/drivers"
	"github.com/kuryr/raven/service/backend"
	"github.com/kuryr/raven/service/plan"
	"github.com/kuryr/raven/service/state"
)

// review adds to a plan what people are told of an owner's load balancers, and returns why some of them stay as they
// are.
func (b *Backend) review(tx *state.Tx, o *state.Object, p *plan.Plan) backend.Review {
	for _, text := range state.Sorted(b.problems(tx, o.ID)) {
		p.Notices = append(p.Notices, plan.Notice{Reason: reason, Message: text})
	}
	return backend.Review{Failures: b.blockedReplacements(tx, o)}
}

// problems says, for people, which load balancers of an owner are in ERROR, or have been busy for too long.
func (b *Backend) problems(tx *state.Tx, owner plan.Owner) []string {
	var texts []string
	for key, u := range b.unknown {
		if key.Key.Driver == owner.Driver && key.Key.UID == owner.UID && u.times > 1 {
			texts = append(texts, "the load balancing service fails again and again: "+u.text)
		}
	}
	for _, lb := range tx.Cache.OwnedOf(owner, drivers.KindLoadBalancer) {
		condition, why := ConditionOf(&lb)
		switch period := b.busy[lb.ID]; {
		case condition == Broken || condition == Partial:
			text := fmt.Sprintf("load balancer %s is not as it should be: %s", lb.ID, why)
			switch r := b.repairs[state.KeyOf(lb.Kind, lb.Identity)]; {
			case r == nil || r.tries == 0:
			case r.deleting == lb.ID:
				text += fmt.Sprintf("; it was asked to go %d times since then, next at %s",
					r.deletions, r.next.Format(time.TimeOnly))
			default:
				text += fmt.Sprintf("; it was failed over, or made anew as a whole or in part, %d times, next at %s",
					r.tries, r.next.Format(time.TimeOnly))
			}
			texts = append(texts, text)
		case period != nil && period.overdue:
			texts = append(texts, fmt.Sprintf("load balancer %s has not become ready since %s: %s; it is polled at "+
				"intervals, and nothing else can be done but by an administrator of the cloud",
				lb.ID, period.since.Format(time.TimeOnly), why))
		}
	}
	return texts
}

// listed keeps the accounts after all load balancers were listed, or could not be. A cloud that has no service for them
// is asked for it at every drift check, and it is a fault only where an object desires one.
func (b *Backend) listed(tx *state.Tx, err error) {
	b.missed = b.missed && err != nil
	b.recount(tx)
	if !errors.Is(err, backend.ErrAbsent) {
		tx.After(b.requestPoll)
		return
	}
	desired := slices.ContainsFunc(slices.Collect(maps.Values(tx.Objects())), func(o *state.Object) bool {
		return o.MayHave(drivers.KindLoadBalancer)
	})
	if !desired || b.missed {
		return
	}
	b.missed = true
	tx.After(func() {
		b.env.Log.Warn("load balancers are desired, and nothing is concluded about those that may be there", "error", err)
	})
}

// recount brings the accounts in line with all load balancers that are known.
func (b *Backend) recount(tx *state.Tx) {
	now := tx.Now()
	known := map[string]bool{}
	for _, lb := range tx.Cache.OfKind(drivers.KindLoadBalancer) {
		known[lb.ID] = true
		b.noteBusy(tx, lb, lb)
	}
	maps.DeleteFunc(b.busy, func(id string, _ *busyPeriod) bool { return !known[id] })
	maps.DeleteFunc(b.incremental, func(_ state.IdentityKey, until time.Time) bool { return now.After(until) })
	maps.DeleteFunc(b.refusedParts, func(_ partKey, r partRefusal) bool { return now.After(r.until) })
	b.forgetUndesired(tx)
	maps.DeleteFunc(b.repairs, func(_ state.IdentityKey, r *repairRecord) bool { return now.After(r.until) })
}

// forgetUndesired drops what was noted of load balancers that are not desired any more, and wakes who may have their
// places.
func (b *Backend) forgetUndesired(tx *state.Tx) {
	desired := map[state.IdentityKey]bool{}
	for id, o := range tx.Objects() {
		for _, r := range o.Set.Resources {
			if r.Spec.Kind() == drivers.KindLoadBalancer {
				desired[state.KeyOf(drivers.KindLoadBalancer, tx.Identity(id, r))] = true
			}
		}
	}
	forget(b.unknown, desired)
	forget(b.lifted, desired)
	forget(b.blocks, desired)
	before := len(b.replacements)
	forget(b.replacements, desired)
	if len(b.replacements) != before {
		b.wakeNext(tx)
	}
}

func forget[V any](noted map[state.IdentityKey]V, desired map[state.IdentityKey]bool) {
	maps.DeleteFunc(noted, func(key state.IdentityKey, _ V) bool { return !desired[key] })
}
