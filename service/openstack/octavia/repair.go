// SPDX-License-Identifier: Apache-2.0

package octavia

import (
	"fmt"
	"time"

	"github.com/kuryr/raven/drivers"
	"github.com/kuryr/raven/service/plan"
	"github.com/kuryr/raven/service/state"
)

// repairRecord is what was done about a load balancer in ERROR, by identity, so that it outlives a replacement. What is
// repaired of it until it rests no longer is one round.
type repairRecord struct {
	tries int         // rounds
	parts []plan.Part // of which something was repaired in this round
	// deleting is the id of a load balancer that was asked to go though it was in ERROR, and deletions how often: that
	// may have ended in ERROR, too.
	deleting  string
	deletions int
	next      time.Time // when something may be done again
	until     time.Time // forgotten then, if all is well
}

const (
	// repairPause is how long a load balancer rests after it was failed over or made anew; it doubles up to
	// repairPauseMax.
	repairPause    = time.Minute
	repairPauseMax = 30 * time.Minute
	// repairMemory is how long a load balancer must be well for its failures to be forgotten.
	repairMemory = 10 * time.Minute
)

// mayRepair says what may be done about a load balancer now, and which of its parts are left alone.
func (b *Backend) mayRepair(tx *state.Tx, d *plan.Desired) (Repair, []plan.Part) {
	lb, ok := tx.Cache.Find(d.Identity, d.Kind)
	if !ok {
		return RepairNone, nil
	}
	condition, _ := ConditionOf(&lb)
	if b.stuck(tx, lb) {
		return RepairReplace, nil
	}
	if condition != Broken && condition != Partial {
		return RepairNone, nil
	}
	r := b.repairs[state.KeyOf(d.Kind, d.Identity)]
	switch resting := r != nil && tx.Now().Before(r.next); {
	case resting && condition == Broken:
		return RepairNone, nil
	case resting:
		return RepairReplace, r.parts
	case condition == Broken && (r == nil || r.tries == 0) && !b.capabilitiesOf(provider(lb)).noFailover:
		return RepairFailover, nil
	}
	return RepairReplace, nil
}

// repaired notes what was done about a load balancer in ERROR.
func (b *Backend) repaired(tx *state.Tx, step plan.Step) {
	if !step.Repairs {
		return
	}
	now := tx.Now()
	var part plan.Part // nothing: all of it
	if step.Part != nil {
		part = plan.Part{Kind: step.Part.Kind, Name: step.Part.Name}
	}
	key := state.KeyOf(step.Kind, step.Identity)
	r := b.repairs[key]
	if r == nil {
		r = &repairRecord{}
		b.repairs[key] = r
	}
	if step.Part != nil && now.Before(r.next) {
		r.parts = append(r.parts, part)
		return
	}
	r.parts = []plan.Part{part}
	r.tries++
	switch {
	case step.Op != plan.Delete || step.Part != nil:
	case r.deleting == step.ID:
		r.deletions++
	default:
		r.deleting, r.deletions = step.ID, 1
	}
	r.next = now.Add(min(repairPause<<min(r.tries-1, 10), repairPauseMax))
	r.until = now.Add(max(repairMemory, 2*r.next.Sub(now)))
}

// resting says of an owner's load balancers that were asked to go, and are in ERROR again, why they are not asked now,
// by id.
func (b *Backend) resting(tx *state.Tx, owner plan.Owner) (texts map[string]string) {
	for _, lb := range tx.Cache.OwnedOf(owner, drivers.KindLoadBalancer) {
		r := b.repairs[state.KeyOf(lb.Kind, lb.Identity)]
		condition, _ := ConditionOf(&lb) // one that works again can be deleted at once
		if r != nil && r.deleting == lb.ID && tx.Now().Before(r.next) && condition == Broken {
			if texts == nil {
				texts = map[string]string{}
			}
			texts[lb.ID] = fmt.Sprintf("load balancer %s is in ERROR though it was asked to go %d times: its provider fails "+
				"to remove it, which an administrator of the cloud can investigate; next at %s",
				lb.ID, r.deletions, r.next.Format(time.TimeOnly))
		}
	}
	return texts
}

// due is how long it is until something may be done about a load balancer of an owner that is in ERROR; 0: nothing is.
func (b *Backend) due(tx *state.Tx, owner plan.Owner) time.Duration {
	var wait time.Duration
	for _, lb := range tx.Cache.OwnedOf(owner, drivers.KindLoadBalancer) {
		condition, _ := ConditionOf(&lb)
		r := b.repairs[state.KeyOf(lb.Kind, lb.Identity)]
		if r == nil || condition != Broken && condition != Partial || !tx.Now().Before(r.next) {
			continue
		}
		if left := r.next.Sub(tx.Now()); wait == 0 || left < wait {
			wait = left
		}
	}
	return wait
}
