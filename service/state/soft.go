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

// leaveOutMissing takes soft references that lead nowhere out of a resource's lists:
//
//	the resource   the reference leads      it is
//	yet to be made nowhere, for SoftWait    waited for
//	yet to be made nowhere, for longer      left out
//	there          nowhere                  left out
//	there          to what is not usable    kept, if the resource has it
//	any            somewhere                as any other
//
// Until all drivers have answered it may be that a reference leads nowhere only because who exports the role was not
// translated yet: what the resource has of such owners stays.
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

// presentOf returns a list without its soft references that lead nowhere.
func (tx *Tx) presentOf(w *Want, d *plan.Desired, name string, list []any) []any {
	var (
		present []any
		missing []drivers.Ref
	)
	for _, element := range list {
		if ref, ok := element.(drivers.Ref); ok && ref.Soft {
			if _, found := tx.Resolve(w)(ref); !found {
				missing = append(missing, ref)
				continue
			}
		}
		present = append(present, element)
	}
	if len(missing) == 0 {
		return list
	}
	for _, ref := range missing {
		w.Missing = append(w.Missing, fmt.Sprintf("%s of %s %q waits for the %s", name, d.Kind, d.Identity.Name, ref))
	}
	there, exists := tx.Cache.Find(d.Identity, d.Kind)
	if !exists && !tx.waitedLong(w.Owner) {
		return list
	}
	w.Without = w.Without || tx.waitedLong(w.Owner)
	if present = append(present, tx.unsettled(w, listOf(there.Attrs[name]), missing)...); present == nil {
		return []any{}
	}
	return present
}

// unsettled returns the ids in a list of which it is not known whether a missing reference stands for them.
func (tx *Tx) unsettled(w *Want, observed []any, missing []drivers.Ref) (ids []any) {
	for _, value := range observed {
		id, _ := value.(string)
		for _, key := range tx.Cache.Known([]string{id}) {
			owner := tx.Cache.entries[key].Identity.Owner
			open := tx.unanswered(owner)
			w.Deferred = w.Deferred || open
			if open || slices.ContainsFunc(missing, func(ref drivers.Ref) bool { return tx.standsBehind(*ref.Role, id) }) {
				ids = append(ids, id)
			}
		}
	}
	return ids
}

// unanswered says whether it is not known yet what an owner wants.
func (tx *Tx) unanswered(id plan.Owner) bool {
	if id.Driver == Shared {
		return !tx.Complete()
	}
	if o := tx.objects[id]; o != nil {
		return tx.Untranslated(o)
	}
	return tx.UnknownOwner(id) != ""
}

// standsBehind says whether a role leads to the resource with that id, usable or not.
func (tx *Tx) standsBehind(role drivers.Role, id string) bool {
	for e := range tx.roles[role] {
		o := tx.objects[e.owner]
		if o == nil {
			continue
		}
		for _, r := range o.Set.Resources {
			if r.Name != e.name {
				continue
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

// waitedLong says whether an owner has waited for what its soft references lead to for as long as it should.
func (tx *Tx) waitedLong(id plan.Owner) bool {
	o := tx.objects[id]
	return o != nil && !o.MissingSince.IsZero() && tx.Now().Sub(o.MissingSince) >= tx.config.SoftWait
}

// NoteMissing notes since when a soft reference of an object leads nowhere, and returns what people are told when that
// has lasted.
func (tx *LoopTx) NoteMissing(o *Object, w *Want) []plan.Notice {
	switch {
	case len(w.Missing) == 0:
		o.MissingSince = time.Time{}
	case o.MissingSince.IsZero():
		o.MissingSince = tx.Now()
	}
	if !w.Without {
		return nil
	}
	return []plan.Notice{{
		Reason:  "MissingReference",
		Message: "made without what is not there yet, which joins later: " + Some(Sorted(w.Missing)),
	}}
}

// SoftWaitLeft is for how long an object still waits for what its soft references lead to; 0: it does not.
func (tx *LoopTx) SoftWaitLeft(o *Object) time.Duration {
	if o.MissingSince.IsZero() {
		return 0
	}
	return max(tx.config.SoftWait-tx.Now().Sub(o.MissingSince), 0)
}
