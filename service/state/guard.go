// SPDX-License-Identifier: Apache-2.0

package state

import (
	"fmt"
	"math"
	"slices"

	"github.com/kuryr/raven/drivers"
	"github.com/kuryr/raven/service/plan"
)

// FinishEpoch ends a driver's replay once every key has been answered and every backend that it uses was listed.
// Until then its word ended nothing; now what it would end is counted, and held if it is more than the guard allows.
// Objects of which that is not known yet are counted when it is: see Admit. It says whether the replay is over, and
// whether the guard holds it for the first time.
func (tx *LoopTx) FinishEpoch(name string) (over, trips bool) {
	d := tx.drivers[name]
	if d == nil || !d.Complete() || d.Prune {
		return false, false
	}
	if tx.Unlisted(name) != "" {
		for o := range tx.deferred {
			tx.wake(o.Request) // what they wait for is another thing now
		}
		return false, false
	}
	held, existing, objects := tx.wouldDelete(d)
	d.Held, d.Allowed = held, tx.config.allowed(existing)
	before := d.Guarded
	d.Prune = held+d.passed <= d.Allowed
	d.Guarded = !d.Prune
	wake := d.Prune || !before
	for _, o := range objects {
		o.Guarded = d.Guarded
		if wake {
			tx.wake(o.Request)
		}
	}
	if d.Prune {
		d.passed += held
		tx.wake(Request{Driver: Shared})
		tx.Release()
	}
	return d.Prune, d.Guarded && !before
}

// MayPrune says whether an object's wish may end resources: its source is gone, or the mass-deletion guard has
// counted what its driver's answer would end and does not hold it: what changes later is not the replay's doing. The
// shared object's may when every driver has answered for every object, and nothing is there of a driver that is not
// enabled.
func (tx *Tx) MayPrune(o *Object) bool {
	if o.ID.Driver == Shared {
		return tx.Complete() && tx.Disabled() == "" && tx.Unlisted("") == ""
	}
	d := tx.drivers[o.Request.Driver]
	return o.Gone || (d != nil && d.Over() && d.Complete() && o.Compared == d.Epoch && !o.Guarded && !tx.Untranslated(o))
}

// Admit counts what an object's answer would end that was not known when the replay was over. It says whether the
// object may end it, and whether the guard holds for the first time.
func (tx *LoopTx) Admit(o *Object, p plan.Plan) (may, trips bool) {
	d := tx.drivers[o.Request.Driver]
	if o.ID.Driver == Shared || d == nil || !d.Over() || o.Compared == d.Epoch || tx.Untranslated(o) ||
		tx.mayReplaceLater(p) {
		return false, false
	}
	o.Compared = d.Epoch
	held := ends(p)
	if held > 0 {
		shared, _ := tx.sharedWouldDelete()
		held += shared
	}
	switch {
	case held == 0:
	case d.Prune && d.passed+held <= max(d.Allowed, tx.config.allowed(0)):
		d.passed += held
	default:
		o.Guarded = true
		trips = !d.Guarded
		d.Guarded, d.Prune = true, false
		d.Held += held
	}
	return !o.Guarded, trips
}

// HeldText says why an object's deletions are held.
func (tx *Tx) HeldText(o *Object) string {
	switch {
	case o.ID.Driver == Shared && tx.Disabled() != "":
		return fmt.Sprintf("%d deletions are held: driver %s is not enabled but has resources, and may share these", o.Held,
			tx.Disabled())
	case o.Guarded:
		return fmt.Sprintf("%d deletions are held by the mass-deletion guard: see `raven plan`", o.Held)
	}
	d, of := tx.drivers[o.Request.Driver], o.Request.Driver
	if o.ID.Driver == Shared {
		of = ""
	}
	if name := tx.Unlisted(of); name != "" && (d == nil && tx.Complete() || d != nil && d.Complete()) {
		return fmt.Sprintf("%d deletions are held until %s was listed once", o.Held, name)
	}
	return fmt.Sprintf("%d deletions are held until every object has been answered; still open: %s", o.Held,
		tx.Unanswered())
}

// ends counts what a plan would end. A resource that another backend's takes the place of ends nothing: it goes only
// when the other one can come.
func ends(p plan.Plan) int { return p.Held - p.Replaced }

// mayReplaceLater says whether a plan may come to replace or end a resource, once what it refers to is there.
func (tx *Tx) mayReplaceLater(p plan.Plan) bool {
	if p.Kept > 0 {
		return true
	}
	for _, step := range p.Steps {
		if step.Op != plan.Update || step.Ready() {
			continue
		}
		for _, a := range tx.kinds.Schema(step.Kind) {
			if _, waits := step.Attrs[a.Name]; waits && a.Immutable {
				return true
			}
		}
	}
	return false
}

// fewDeletes may always pass, within the count: in a small cluster a few pods that completed are a large share.
const fewDeletes = 10

// allowed is how many deletions a replay may make: the count, or the share of what exists, whichever is less.
func (c *Config) allowed(existing int) int {
	share := min(c.MaxDeletes, int(math.Ceil(c.MaxDeleteShare*float64(existing))))
	return max(share, min(c.MaxDeletes, fewDeletes))
}

// wouldDelete counts what a driver's answers would end of objects that still exist, out of how many resources, and
// returns the objects concerned. Once the guard holds, only what it held at first counts.
func (tx *LoopTx) wouldDelete(d *DriverState) (held, existing int, objects []*Object) {
	short := plan.ShortDriver(d.owns)
	for id, keys := range tx.Cache.Owners() {
		if id.Driver == short {
			existing += len(keys)
		}
	}
	for _, o := range tx.objects {
		if o.Request.Driver != d.Name || o.Gone || tx.Untranslated(o) || (d.Guarded && !o.Guarded) {
			continue
		}
		if !tx.Cache.Has(o.ID) {
			o.Compared = d.Epoch
			continue
		}
		p := tx.Plan(tx.Desire(o.ID, o.Set), tx.Decided(o.ID, o.Set), false)
		if tx.mayReplaceLater(p) {
			continue
		}
		o.Compared = d.Epoch
		if n := ends(p); n > 0 {
			held += n
			objects = append(objects, o)
		}
	}
	sharedHeld, sharedExisting := tx.sharedWouldDelete()
	return held + sharedHeld, existing + sharedExisting, objects
}

// sharedWouldDelete counts what the claims, as they are now, would end of what is shared, while every object has
// answered.
func (tx *LoopTx) sharedWouldDelete() (held, existing int) {
	for _, d := range tx.drivers {
		if !d.Complete() {
			return 0, 0
		}
	}
	if tx.Disabled() != "" {
		return 0, 0 // nothing that is shared may end
	}
	id := plan.Owner{Driver: Shared}
	sh := tx.shares()
	observed := tx.Undisputed(tx.Decided(id, sh.set), sh.fixed)
	return tx.Plan(tx.Desire(id, sh.set), observed, false).Held, len(observed)
}

// Undisputed leaves out of a list what stands for claims that stay as they are.
func (tx *Tx) Undisputed(observed []plan.Observed, fixed map[string]string) []plan.Observed {
	if len(fixed) == 0 {
		return observed
	}
	return slices.DeleteFunc(observed, func(r plan.Observed) bool { return tx.isFixed(r, fixed) })
}

// Retained says whether a resource outlives its owner.
func Retained(o plan.Observed) bool { return o.Identity.Policy == drivers.Retain }
