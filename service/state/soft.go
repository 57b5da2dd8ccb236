// SPDX-License-Identifier: Apache-2.0

package state

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/kuryr/raven/drivers"
	"github.com/kuryr/raven/service/plan"
)

// leaveOutMissing takes soft references that are not resolved out of a resource's lists:
//
//	the reference                                it is
//	not resolved, for SoftWait or less           waited for: the resource is not made, its list not changed
//	not resolved, for longer                     left out
//	to what is not usable, or not looked up yet  kept, if the resource has it
//	to what is not finished                      waited for, unless the resource has it
//	resolved                                     as any other
//
// SoftWait begins when nothing but soft references keeps the resource from being made, for each reference on its own.
// An object that was not done yet since it is known is not finished: the rules of its security group may be missing.
// Until all drivers have answered it may be that a reference is not resolved only because who exports the role was not
// translated yet: what the resource has of such owners, or of nobody in this cluster, stays. So does what belongs to a
// driver that is not enabled any more and, while there is one, a claimed resource that is called as the role is.
func (tx *Tx) leaveOutMissing(w *Want, d *plan.Desired) {
	for _, name := range slices.Sorted(maps.Keys(d.Attrs)) {
		list, ok := d.Attrs[name].([]any)
		if ok && slices.ContainsFunc(list, isSoft) {
			d.Attrs[name] = tx.presentOf(w, d, name, list)
		}
	}
}

func isSoft(element any) bool {
	ref, ok := element.(drivers.Ref)
	return ok && ref.Soft
}

// presentOf returns a list without its soft references that are not resolved, but for those that are waited for.
func (tx *Tx) presentOf(w *Want, d *plan.Desired, name string, list []any) []any {
	there, _ := tx.Cache.Find(d.Identity, d.Kind)
	has := listOf(there.Attrs[name])
	present := []any{}
	var leftOut []drivers.Role
	for _, element := range list {
		if ref, ok := element.(drivers.Ref); ok && ref.Soft && tx.misses(w, ref, has) {
			w.Unresolved = append(w.Unresolved,
				fmt.Sprintf("%s of %s %q waits for the %s", name, d.Kind, d.Identity.Name, ref))
			if tx.waitedLong(w, *ref.Role) {
				w.MadeWithout = true
				leftOut = append(leftOut, *ref.Role)
				continue
			}
		}
		present = append(present, element)
	}
	if len(leftOut) == 0 {
		return list
	}
	return append(present, tx.unsettled(w, has, listOf(tx.Known(w, present)), leftOut)...)
}

// unsettled returns the ids in an observed list, without those that are present anyway, of which it is not known
// whether a role that was left out stands for them.
func (tx *Tx) unsettled(w *Want, observed, present []any, leftOut []drivers.Role) (ids []any) {
	for _, value := range observed {
		id, _ := value.(string)
		if !slices.Contains(present, any(id)) && tx.mayStandFor(w, leftOut, id) {
			ids = append(ids, id)
		}
	}
	return ids
}

// mayStandFor says whether one of these roles leads to the resource with that id, or may lead to it, because the owner
// of the resource has not answered.
func (tx *Tx) mayStandFor(w *Want, roles []drivers.Role, id string) bool {
	known := tx.Cache.Known([]string{id})
	for _, role := range roles {
		if tx.standsBehind(role, id, len(known) > 0) {
			return true
		}
	}
	owner := plan.Owner{Driver: Shared} // who names what is not of this cluster is not known before all have answered
	claimed := false
	if len(known) > 0 {
		identity := tx.Cache.entries[known[0]].Identity
		owner = identity.Owner
		claimed = owner.Driver == Shared && tx.Disabled() != "" && slices.ContainsFunc(roles, func(role drivers.Role) bool {
			return role.Kind == "" && plan.Identity{Name: role.Role}.Key().Name == identity.Key().Name
		})
	}
	open := claimed || tx.unanswered(w, owner)
	w.Deferred = w.Deferred || open
	return open
}

// unanswered says whether it is not known yet what an owner wants.
func (tx *Tx) unanswered(w *Want, id plan.Owner) bool {
	if id.Driver == Shared {
		if w.complete == nil {
			w.complete = new(tx.Complete())
		}
		return !*w.complete
	}
	if o := tx.objects[id]; o != nil {
		return tx.Untranslated(o)
	}
	return tx.UnknownOwner(id) != ""
}

// standsBehind says whether a role leads to the resource with that id, usable or not; or to a lookup that is not known,
// which may be any resource that is not of this cluster.
func (tx *Tx) standsBehind(role drivers.Role, id string, ofCluster bool) bool {
	for e := range tx.roles[role] {
		o := tx.objects[e.owner]
		if o == nil {
			continue
		}
		for _, r := range o.Set.Resources {
			if r.Name != e.name {
				continue
			}
			if l, lookup := r.Spec.(drivers.Lookup); lookup {
				found, known := tx.lookups[l]
				return known && found.ID == id || !known && !ofCluster
			}
			owner, logical := o.ID, r.Name
			if r.Claim != "" {
				owner, logical = plan.Owner{Driver: Shared}, r.Claim
			}
			if found, ok := tx.find(owner, r.Spec.Kind(), logical); ok && found.ID == id {
				return true
			}
		}
	}
	return false
}

// misses says whether a soft reference does not resolve, or leads to what is not finished: such a one does not resolve
// either until it was waited for.
func (tx *Tx) misses(w *Want, ref drivers.Ref, has []any) bool {
	value, resolved := tx.Resolve(w)(ref)
	if resolved && (slices.Contains(has, value) || !tx.unfinished(*ref.Role)) {
		return false
	}
	w.unresolved = append(w.unresolved, *ref.Role)
	if resolved && tx.waitedLong(w, *ref.Role) {
		return false
	}
	if resolved {
		w.awaited = append(w.awaited, *ref.Role)
	}
	return true
}

// unfinished says whether the object that exports a role is about to get what belongs to it for the first time. A
// claimed resource counts as finished: nobody knows what belongs to it.
func (tx *Tx) unfinished(role drivers.Role) bool {
	for e := range tx.roles[role] {
		o := tx.objects[e.owner]
		if o == nil || claimOf(o.Set, e.name) != "" {
			continue
		}
		if o.Phase == Pending || o.Phase == Waiting && tx.Now().Sub(o.Since) < tx.config.SoftWait {
			return true
		}
	}
	return false
}

// WakeAwaiting wakes who waits for an object to be finished: who refers softly to what it exports.
func (tx *LoopTx) WakeAwaiting(o *Object) {
	for role := range exportsOf(o.Target, o.Set) {
		for waiter := range tx.waiters[ByRole(role)] {
			if _, awaits := waiter.SoftSince[role]; awaits {
				tx.wake(waiter.Request)
			}
		}
	}
}

// waitedLong says whether an owner has waited for a role for as long as it should, as of when this was asked for it.
func (tx *Tx) waitedLong(w *Want, role drivers.Role) bool {
	o := tx.objects[w.Owner]
	if o == nil {
		return false
	}
	since, begun := o.SoftSince[role]
	return begun && w.at.Sub(since) >= tx.config.SoftWait
}

// NoteUnresolved notes since when the soft references of an object are not resolved, but for those whose resource could
// not be made by this plan anyway. It returns what people are told when that has lasted: the same whatever is missing,
// so that it is told once.
func (tx *LoopTx) NoteUnresolved(o *Object, w *Want, p plan.Plan) []plan.Notice {
	maps.DeleteFunc(o.SoftSince, func(role drivers.Role, _ time.Time) bool { return !slices.Contains(w.unresolved, role) })
	hindered := hinderedRoles(p)
	o.SoftPlanned = w.at
	for _, role := range w.unresolved {
		if _, begun := o.SoftSince[role]; begun || hindered[role] {
			continue
		}
		if o.SoftSince == nil {
			o.SoftSince = map[drivers.Role]time.Time{}
		}
		o.SoftSince[role] = tx.Now()
	}
	if !w.MadeWithout {
		return nil
	}
	return []plan.Notice{{
		Reason:  "MissingReference",
		Message: "made without something that is not there yet and is added later: Raven's status names it",
	}}
}

// hinderedRoles are the roles that a create waits for which waits for something else as well.
func hinderedRoles(p plan.Plan) map[drivers.Role]bool {
	soft := func(wait plan.Wait) bool { return wait.Ref != nil && wait.Ref.Soft }
	hindered := map[drivers.Role]bool{}
	for _, step := range p.Steps {
		hard := slices.ContainsFunc(step.Waits, func(wait plan.Wait) bool { return !soft(wait) })
		for _, wait := range step.Waits {
			if hard && step.Op == plan.Create && soft(wait) {
				hindered[*wait.Ref.Role] = true
			}
		}
	}
	return hindered
}

// SoftWaitLeft is in what time the next soft reference of an object has been waited for long enough; 0: none is waited
// for. It is not 0 for one that the last plan waited for and that was waited for long enough since.
func (tx *LoopTx) SoftWaitLeft(o *Object) (next time.Duration) {
	for _, since := range o.SoftSince {
		enough := since.Add(tx.config.SoftWait)
		if left := max(1, enough.Sub(tx.Now())); enough.After(o.SoftPlanned) && (next == 0 || left < next) {
			next = left
		}
	}
	return next
}
