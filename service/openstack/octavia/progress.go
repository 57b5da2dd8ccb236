// SPDX-License-Identifier: Apache-2.0

package octavia

import (
	"fmt"
	"strings"
	"time"

	"github.com/kuryr/raven/drivers"
	"github.com/kuryr/raven/service/plan"
	"github.com/kuryr/raven/service/state"
)

const (
	statusActive   = "ACTIVE"
	statusCreating = "PENDING_CREATE"
	statusUpdating = "PENDING_UPDATE"
)

// busyPeriod is how long a load balancer has been busy.
type busyPeriod struct {
	since   time.Time // it takes no changes
	moved   time.Time // its status, or that of a part, was another one before
	full    bool      // made by this process with all its parts, of which it is not known yet whether they become ready
	early   bool      // it was ready before its parts
	check   bool      // its parts have to be inspected before it counts as ready
	overdue bool      // told to be busy for too long
	still   bool      // inspected by itself after it had made no progress: no part of it had become ready
	by      string    // its provider
}

// standsStill says whether a load balancer may be one that was made at once and whose parts stay pending for good. Some
// releases of Octavia make a load balancer ready and never its parts. One that is merely slow is none: a part of it is
// ready, or something has moved, its own parts or what its provider has to do first. Nor is one whose parts are made
// one by one: of those one is pending.
func (b *Backend) standsStill(tx *state.Tx, lb plan.Observed) bool {
	period := b.busy[lb.ID]
	if period == nil || lb.Status != statusActive || tx.Now().Sub(period.moved) < b.config.StillAfter {
		return false
	}
	creating, _, others := countParts(lb)
	return creating > 1 && others == 0 && madeMembers(lb) == 0
}

// stuck says whether a load balancer is given up, since inspecting that very one has confirmed that it stands still.
// Its provider is then not asked for parts together with a load balancer any more.
func (b *Backend) stuck(tx *state.Tx, lb plan.Observed) bool {
	if period := b.busy[lb.ID]; period == nil || !period.still || !b.standsStill(tx, lb) {
		return false
	}
	b.capabilitiesOf(provider(lb)).bare = true
	return true
}

// noteBusy keeps the account of what is busy, and requeues those that must be reconciled again.
func (b *Backend) noteBusy(tx *state.Tx, before, lb plan.Observed) {
	condition, _ := ConditionOf(&lb)
	period := b.busy[lb.ID]
	if condition != Busy && condition != Leaving {
		if period != nil && condition == Ready {
			b.learn(period, lb)
		}
		delete(b.busy, lb.ID)
		if period != nil {
			b.queueMoved(tx, period, madeParts(lb) > madeParts(before))
		}
		if period == nil && before.Status == lb.Status {
			return
		}
	} else {
		news := period == nil
		if period == nil {
			period = &busyPeriod{since: tx.Now(), moved: tx.Now()}
			b.busy[lb.ID] = period
		}
		period.by = provider(lb)
		period.early = period.early || condition == Busy && lb.Status == statusActive
		if progress(before) != progress(lb) {
			news = true
			period.moved, period.still = tx.Now(), false
			b.queueMoved(tx, period, madeParts(lb) > madeParts(before))
		}
		// A poll that shows nothing new is no reason for another plan: that would ask again for what was refused meanwhile,
		// at the pace of polls. remind wakes those whose load balancers are late or stand still.
		if !news || before.Status == lb.Status && period.overdue {
			return
		}
	}
	tx.Wake(state.ByBusy(lb.ID))
	tx.WakeOwner(lb.Identity.Owner)
}

// queueMoved notes that a provider is at work: load balancers of which it was asked after this one may have had to wait
// for it. Where it has made a part, so may those of which it was asked before: it may have several queues, as many as
// there are processes of it, and Octavia does not show in which of them a request is, or where. But those not for ever.
func (b *Backend) queueMoved(tx *state.Tx, first *busyPeriod, made bool) {
	now := tx.Now()
	for _, other := range b.busy {
		late := now.Sub(other.since) >= b.config.ActivationTimeout
		if other.by == first.by && (!other.since.Before(first.since) || made && !late) {
			other.moved, other.still = now, false
		}
	}
}

// remind wakes the owners of load balancers that were busy for too long, and of those of which it may be time to give
// up.
func (b *Backend) remind(tx *state.Tx) {
	for id, period := range b.busy {
		lb, known := tx.Cache.Get(drivers.KindLoadBalancer, id)
		if !known {
			continue
		}
		if late := tx.Now().Sub(period.since) >= b.config.ActivationTimeout; late && !period.overdue {
			period.overdue = true
			tx.WakeOwner(lb.Identity.Owner)
		}
		if b.stuck(tx, lb) {
			tx.WakeOwner(lb.Identity.Owner)
		}
	}
}

// madeParts counts the parts that have been made, as far as they are known.
func madeParts(lb plan.Observed) int {
	_, _, others := countParts(lb)
	return others + madeMembers(lb)
}

// progress is a text that changes when a status does.
func progress(lb plan.Observed) string {
	var text strings.Builder
	text.WriteString(lb.Status)
	for _, list := range []string{"listeners", "pools"} {
		for _, element := range asList(lb.Attrs[list]) {
			part := structure(element)
			monitor := structure(part["healthmonitor"])
			fmt.Fprint(&text, part["id"], part["provisioning_status"], monitor["provisioning_status"])
		}
	}
	fmt.Fprint(&text, madeMembers(lb)) // of those that are not known none counts: they are not always read
	return text.String()
}

// countParts counts the parts that are being created, the health monitors among them, and the parts that are there.
func countParts(lb plan.Observed) (creating, monitors, others int) {
	count := func(doc map[string]any, monitor bool) {
		switch status, _ := doc["provisioning_status"].(string); {
		case doc == nil:
		case status == statusCreating:
			creating++
			if monitor {
				monitors++
			}
		default:
			others++
		}
	}
	for _, element := range asList(lb.Attrs["listeners"]) {
		count(structure(element), false)
	}
	for _, element := range asList(lb.Attrs["pools"]) {
		pool := structure(element)
		count(pool, false)
		count(structure(pool["healthmonitor"]), true)
	}
	return creating, monitors, others
}

// madeMembers counts the members that are known to be there, whatever became of them.
func madeMembers(lb plan.Observed) (made int) {
	for _, pool := range structures(lb.Attrs["pools"]) {
		for _, member := range structures(pool["members"]) {
			if status := asText(member["provisioning_status"]); status != "" && status != statusCreating {
				made++
			}
		}
	}
	return made
}
