// SPDX-License-Identifier: Apache-2.0

package octavia

import (
	"fmt"
	"slices"
	"time"

	"github.com/kuryr/raven/drivers"
	"github.com/kuryr/raven/service/backend"
	"github.com/kuryr/raven/service/plan"
	"github.com/kuryr/raven/service/state"
)

// What of a load balancer cannot be changed in place is changed by another load balancer, and the old one goes first,
// for the two would have one address. So that this never ends with none at all:
//
//	before the old one goes    all that the new one is made of is checked; an unmet requirement blocks the replacement
//	the new one is refused     the old one is made again, and the refusal blocks the replacement
//	as long as it is blocked   the load balancer is pinned: it stays as it is in these things; all else is as desired
//
// A block is lifted when something else is desired, and one that a preflight set after a while: the cloud may have
// what it had not. One that comes from another load balancer of this cluster ends when that one goes, or something else
// is desired of it.

// immutableFields are the attributes of a load balancer that cannot be changed in place.
func immutableFields() []string {
	return []string{
		"provider", "flavor_id", "availability_zone", "vip_network_id", "vip_subnet_id", "vip_port_id", "vip_address",
		"additional_vips",
	}
}

// block is why a load balancer must not be replaced by what is desired.
type block struct {
	desired string         // what of it cannot be changed in place
	current map[string]any // what it is made of instead
	parts   map[string]any // the listeners and pools of that one, if it has gone
	until   time.Time      // zero: as long as the same is desired
	holder  *holder        // nil: it is not about another load balancer
	err     error
}

// holder is a load balancer of this cluster that has an address which is desired for another one, and what was desired
// of it then.
type holder struct{ id, desired string }

// Desired returns the desired values of those attributes of a load balancer that cannot be changed in place. What is
// not known is nil.
func (b *Backend) Desired(tx *state.Tx, w *state.Want, d *plan.Desired) map[string]any {
	attrs, _ := desiredFields(tx, w, d)
	return attrs
}

// desiredFields returns the same, and a text that is equal for equal values; it is empty where one of them is not
// known.
func desiredFields(tx *state.Tx, w *state.Want, d *plan.Desired) (attrs map[string]any, text string) {
	resolve := tx.Resolve(w)
	known := true
	var resolved func(any) any
	resolved = func(v any) any {
		switch v := v.(type) {
		case drivers.Ref:
			found, ok := resolve(v)
			known = known && ok
			return found
		case []any:
			out := make([]any, len(v))
			for i := range v {
				out[i] = resolved(v[i])
			}
			return out
		case map[string]any:
			out := make(map[string]any, len(v))
			for name := range v {
				out[name] = resolved(v[name])
			}
			return out
		}
		return v
	}
	attrs = map[string]any{}
	for _, name := range immutableFields() {
		if v, managed := d.Attrs[name]; managed {
			attrs[name] = resolved(v)
		}
	}
	if !known {
		return attrs, ""
	}
	return attrs, fmt.Sprint(attrs)
}

// desiredOf returns what is desired of a load balancer, and its text, which is "" if no object desires it, or if that
// is unknown.
func desiredOf(tx *state.Tx, id plan.Identity) (attrs map[string]any, text string) {
	o := tx.Object(id.Owner)
	if o == nil || o.Gone {
		return nil, ""
	}
	for _, r := range o.Set.Resources {
		if r.Spec.Kind() == drivers.KindLoadBalancer && tx.Identity(o.ID, r).Key() == id.Key() {
			d := tx.Desired(o.ID, r)
			return desiredFields(tx, tx.Names(o.ID, o.Set), &d)
		}
	}
	return nil, ""
}

// currentFields are those attributes of a load balancer that another one like it would be made with.
func currentFields(lb plan.Observed) map[string]any {
	current := map[string]any{}
	for _, name := range immutableFields() {
		if name != "vip_port_id" && name != "vip_network_id" { // the one goes with it, the other is the subnet's
			current[name] = lb.Attrs[name]
		}
	}
	return current
}

// pin has a load balancer stay as it is where its replacement is blocked, and be made as it was if it has gone. It says
// whether it does.
func (b *Backend) pin(tx *state.Tx, w *state.Want, d *plan.Desired) bool {
	pinned := b.pinned(tx, w, d)
	if _, there := tx.Cache.Find(d.Identity, d.Kind); there {
		return pinned
	}
	if pinned = pinned || b.overtaken(tx, w, d); pinned {
		d.Attrs = asItWas(d.Attrs, b.blocks[state.KeyOf(d.Kind, d.Identity)].current)
	}
	return pinned
}

// pinned says whether a block keeps a load balancer from being replaced. One that is gone is made as it was as long as
// the same is desired.
func (b *Backend) pinned(tx *state.Tx, w *state.Want, d *plan.Desired) bool {
	key := state.KeyOf(d.Kind, d.Identity)
	_, desired := desiredFields(tx, w, d)
	lb, there := tx.Cache.Find(d.Identity, d.Kind)
	blocking, ok := b.blocks[key]
	if !ok && there {
		blocking, ok = b.remember(lb, desired)
	}
	switch {
	case !ok:
		return false
	case desired != blocking.desired && desired != "":
		b.lifted[key] = lb.ID
	case !there:
		return true
	case blocking.holder != nil && !remains(tx, *blocking.holder):
	case blocking.until.IsZero() || tx.Now().Before(blocking.until):
		if blocking.holder != nil {
			w.Depends[state.ByGone(blocking.holder.id)] = true
		}
		return true
	}
	delete(b.blocks, key)
	return false
}

// remember returns the block that a load balancer of an earlier process shows, unless something else was desired since.
// It is called with the state's lock held.
func (b *Backend) remember(lb plan.Observed, desired string) (block, bool) {
	key := state.KeyOf(lb.Kind, lb.Identity)
	if desired == "" || b.lifted[key] == lb.ID {
		return block{}, false
	}
	_, shown := lb.Attrs["additional_vips"]
	at := slices.IndexFunc(lb.Tags, func(tag string) bool {
		return tag == refusedTag(refusedMark, desired) || shown && tag == refusedTag(refusedVIPsMark, desired)
	})
	if at < 0 {
		return block{}, false
	}
	blocking := block{
		desired: desired, current: currentFields(lb),
		err: fmt.Errorf("load balancer %s stays as it is: the cloud has refused before what is wished "+
			"instead; to have it asked for again take the tag %s from the load balancer, or wish something else first",
			lb.ID, lb.Tags[at]),
	}
	b.blocks[key] = blocking
	return blocking, true
}

// remains says whether the holder of an address is still there, and the same is desired of it.
func remains(tx *state.Tx, h holder) bool {
	lb, ok := tx.Cache.Get(drivers.KindLoadBalancer, h.id)
	if !ok {
		return false
	}
	condition, _ := ConditionOf(&lb)
	_, desired := desiredOf(tx, lb.Identity)
	return condition != Leaving && (desired == h.desired || desired == "")
}

// blockedReplacements returns why load balancers of an object are not replaced.
func (b *Backend) blockedReplacements(tx *state.Tx, o *state.Object) []*backend.Failure {
	var failures []*backend.Failure
	for _, r := range o.Set.Resources {
		if r.Spec.Kind() != drivers.KindLoadBalancer {
			continue
		}
		if blocking, ok := b.blocks[state.KeyOf(drivers.KindLoadBalancer, tx.Identity(o.ID, r))]; ok {
			wait := b.env.Timing.Refusal
			if !blocking.until.IsZero() {
				wait = max(blocking.until.Sub(tx.Now()), time.Second)
			}
			failures = append(failures, &backend.Failure{Phase: state.Terminal, RequeueAfter: wait, Err: blocking.err})
		}
	}
	return failures
}
