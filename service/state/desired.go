// SPDX-License-Identifier: Apache-2.0

package state

import (
	"cmp"
	"reflect"
	"slices"
	"time"

	"github.com/kuryr/raven/drivers"
	"github.com/kuryr/raven/service/plan"
	"github.com/kuryr/raven/service/watch"
)

// Want is what an owner should have, and how its references are resolved.
type Want struct {
	Owner   plan.Owner
	Set     drivers.Set
	Desired []plan.Desired
	// Marks are the steps that keep the account of contributed elements; see contribute.
	Marks []plan.Step
	// Conflicts are reasons why something cannot be as it should, for people.
	Conflicts []string
	// Depends are the roles and claims that were looked up: what comes of them may change the plan.
	Depends map[Key]bool
	// Blocked says of resources, by id, why they must not be deleted for now.
	Blocked map[string]string
	// Unresolved names, for people, soft references that are not resolved. MadeWithout says that one has been waited for
	// long enough, so that resources are made without it.
	Unresolved  []string
	MadeWithout bool
	// Deferred says that contributed elements were kept of which it is not known yet whether they are still wanted.
	Deferred bool

	at time.Time // when it was asked for
	// unresolved are the roles behind Unresolved.
	unresolved []drivers.Role
	// awaited are soft references that do not resolve though what they lead to is there.
	awaited []drivers.Role
	// complete is what Tx.Complete said when it was first asked for this owner, which takes a while.
	complete *bool
	// lookups are the names of the Set's lookups.
	lookups map[string]drivers.Lookup
	// claimed maps a logical name to the claim behind it.
	claimed map[string]string
	kinds   map[string]drivers.Kind
}

// Claimed returns the claim behind a logical name; "": there is none.
func (w *Want) Claimed(name string) string { return w.claimed[name] }

// IsLookup says whether a logical name is that of a lookup.
func (w *Want) IsLookup(name string) bool {
	_, lookup := w.lookups[name]
	return lookup
}

// SetKind has a reference by a logical name lead to a resource of a kind that the Set does not name: a further one
// that stands for one it does.
func (w *Want) SetKind(name string, kind drivers.Kind) { w.kinds[name] = kind }

// Names returns how an owner's references are resolved.
func (tx *Tx) Names(id plan.Owner, set drivers.Set) *Want {
	w := &Want{
		Owner: id, Set: set, Depends: map[Key]bool{},
		lookups: map[string]drivers.Lookup{}, claimed: map[string]string{}, kinds: map[string]drivers.Kind{},
	}
	for _, r := range set.Resources {
		w.kinds[r.Name] = r.Spec.Kind()
		if l, ok := r.Spec.(drivers.Lookup); ok {
			w.lookups[r.Name] = l
		} else if r.Claim != "" && id.Driver != Shared {
			w.claimed[r.Name] = r.Claim
		}
	}
	return w
}

// Desire turns an owner's Set into what plan compares.
func (tx *Tx) Desire(id plan.Owner, set drivers.Set) *Want {
	w := tx.Names(id, set)
	w.at = tx.Now()
	for _, r := range set.Resources {
		if w.claimed[r.Name] != "" || w.IsLookup(r.Name) {
			continue
		}
		w.Desired = append(w.Desired, tx.Desired(id, r))
		tx.leaveOutMissing(w, &w.Desired[len(w.Desired)-1])
		tx.contribute(w, r, &w.Desired[len(w.Desired)-1])
	}
	for _, b := range tx.backends {
		if b.Refine != nil {
			b.Refine(tx, w)
		}
	}
	return w
}

// Desired turns one resource into what plan compares, without what backends and others add to it.
func (tx *Tx) Desired(id plan.Owner, r drivers.Resource) plan.Desired {
	return plan.Desired{
		Kind: r.Spec.Kind(), Identity: tx.Identity(id, r), Attrs: tx.attributes(r.Spec), Expand: r.Expand, After: r.After,
	}
}

// attributes returns what a spec wants, but for what the credentials may not set.
func (tx *Tx) attributes(spec drivers.Spec) map[string]any {
	attrs := drivers.Attributes(spec)
	if b := tx.byKind[spec.Kind()]; b != nil && b.Unsupported != nil {
		for _, name := range b.Unsupported(spec.Kind()) {
			delete(attrs, name)
		}
	}
	return attrs
}

// Identity returns the identity that an owner's resource has.
func (tx *Tx) Identity(id plan.Owner, r drivers.Resource) plan.Identity {
	name := tx.kinds.LogicalName(r.Spec.Kind(), r.Name)
	source := ""
	if o := tx.objects[id]; o != nil {
		source = watch.ResourceName(o.Target.Watch.GVR)
	}
	return plan.Identity{
		Cluster: tx.config.Cluster, Owner: id, Name: name, Policy: cmp.Or(r.OnDelete, drivers.Delete), Source: source,
	}
}

// Plan compares what an owner wants with what it has. Without prune nothing is deleted.
func (tx *Tx) Plan(w *Want, observed []plan.Observed, prune bool) plan.Plan {
	return tx.kinds.Compute(plan.Input{
		Desired: w.Desired, Observed: observed, Resolve: tx.Resolve(w), Dependants: tx.Cache.Dependants, Prune: prune,
		Unsure:  tx.unsure(w),
		Blocked: w.Blocked,
	})
}

// Resolve returns a function that gives the value of a reference of this owner. It must not be used after the lock is
// released.
func (tx *Tx) Resolve(w *Want) func(drivers.Ref) (any, bool) {
	return func(ref drivers.Ref) (any, bool) {
		o, ok := tx.Referred(w, ref)
		if !ok || ref.Soft && slices.Contains(w.awaited, *ref.Role) {
			return nil, false
		}
		return attribute(o, ref.Attribute)
	}
}

func attribute(o plan.Observed, name string) (any, bool) {
	if name == "" || name == "id" {
		return o.ID, true
	}
	v, ok := o.Attrs[name]
	if !ok || v == nil || v == "" {
		return nil, false
	}
	return v, true
}

// Known replaces the refs in a value that can be resolved.
func (tx *Tx) Known(w *Want, value any) any {
	switch v := value.(type) {
	case drivers.Ref:
		if found, ok := tx.Resolve(w)(v); ok {
			return found
		}
	case []any:
		out := make([]any, len(v))
		for i := range v {
			out[i] = tx.Known(w, v[i])
		}
		return out
	}
	return value
}

// Referred finds the resource behind a reference, and notes that the owner depends on it.
func (tx *Tx) Referred(w *Want, ref drivers.Ref) (plan.Observed, bool) {
	if ref.Role == nil {
		if claim, ok := w.claimed[ref.Name]; ok {
			w.Depends[ByClaim(claim)] = true
		}
		return tx.named(w, ref.Name)
	}
	w.Depends[ByRole(*ref.Role)] = true
	if conflict := tx.RoleConflict(*ref.Role); conflict != "" {
		w.Conflicts = append(w.Conflicts, conflict)
		return plan.Observed{}, false
	}
	for e := range tx.roles[*ref.Role] {
		return tx.exported(e)
	}
	return plan.Observed{}, false
}

// exported finds the resource that an owner exports.
func (tx *Tx) exported(e exporter) (plan.Observed, bool) {
	o := tx.objects[e.owner]
	if o == nil {
		return plan.Observed{}, false
	}
	for _, r := range o.Set.Resources {
		if r.Name != e.name {
			continue
		}
		if l, ok := r.Spec.(drivers.Lookup); ok {
			found, ok := tx.lookups[l]
			return found, ok
		}
		if r.Claim != "" {
			return tx.usable(r, plan.Owner{Driver: Shared}, r.Claim)
		}
		return tx.usable(r, o.ID, r.Name)
	}
	return plan.Observed{}, false
}

// usable finds what stands for a resource of a Set, if references may lead to it as it is.
func (tx *Tx) usable(r drivers.Resource, id plan.Owner, logical string) (plan.Observed, bool) {
	found, ok := tx.find(id, r.Spec.Kind(), logical)
	if usable := tx.kinds.Of(r.Spec.Kind()).Usable; ok && usable != nil && !usable(r.Spec, &found) {
		return plan.Observed{}, false
	}
	return found, ok
}

// named finds a resource of an owner's own Set.
func (tx *Tx) named(w *Want, name string) (plan.Observed, bool) {
	if l, ok := w.lookups[name]; ok {
		found, ok := tx.lookups[l]
		return found, ok
	}
	if slices.Contains(w.Set.Undecided, name) {
		return tx.standing(w, name)
	}
	id, logical := w.Owner, name
	if claim, ok := w.claimed[name]; ok {
		id, logical = plan.Owner{Driver: Shared}, claim
	}
	if tx.kinds.Of(w.kinds[name]).Usable != nil {
		for _, r := range w.Set.Resources {
			if r.Name == name {
				return tx.usable(r, id, logical)
			}
		}
	}
	return tx.find(id, w.kinds[name], logical)
}

// standing finds what exists under a name that the Set leaves undecided: of the owner, or shared.
func (tx *Tx) standing(w *Want, name string) (plan.Observed, bool) {
	w.Depends[ByClaim(name)] = true
	for _, id := range []plan.Owner{w.Owner, {Driver: Shared}} {
		for key := range tx.Cache.byOwner[id] {
			if tx.IsNamed(tx.Cache.entries[key].Observed, name) {
				return tx.find(id, key.Kind, name)
			}
		}
	}
	return plan.Observed{}, false
}

func (tx *Tx) find(id plan.Owner, kind drivers.Kind, logical string) (plan.Observed, bool) {
	return tx.Cache.Find(plan.Identity{Cluster: tx.config.Cluster, Owner: id, Name: tx.kinds.LogicalName(kind, logical)},
		kind)
}

// FindShared finds a claimed resource.
func (tx *Tx) FindShared(kind drivers.Kind, claim string) (plan.Observed, bool) {
	return tx.find(plan.Owner{Driver: Shared}, kind, claim)
}

// Lookups returns what configured names lead to. The map must not be changed.
func (tx *Tx) Lookups() map[drivers.Lookup]plan.Observed { return tx.lookups }

// ForgetLookups has those that lead to one of these ids be read again, and says whether there was one.
func (tx *Tx) ForgetLookups(ids []string) (found bool) {
	for l, o := range tx.lookups {
		if slices.Contains(ids, o.ID) {
			delete(tx.lookups, l)
			found = true
		}
	}
	return found
}

// SetLookup notes what a configured name leads to, and wakes who names it, or refers by role to what it leads to,
// where that is news.
func (tx *LoopTx) SetLookup(l drivers.Lookup, found plan.Observed) {
	found.Attrs = tx.Cache.Keep(l.Of, found.Attrs)
	old, known := tx.lookups[l]
	tx.lookups[l] = found
	if !known || !sameAttrs(old, found) {
		tx.lookupChanged(l)
	}
}

// DropLookup notes that a configured name leads to nothing.
func (tx *LoopTx) DropLookup(l drivers.Lookup) {
	if _, known := tx.lookups[l]; known {
		delete(tx.lookups, l)
		tx.lookupChanged(l)
	}
}

// UsedLookups lists the lookups that are still in some Set, and forgets the others.
func (tx *LoopTx) UsedLookups() []drivers.Lookup {
	used := map[drivers.Lookup]bool{}
	for _, o := range tx.objects {
		for _, r := range o.Set.Resources {
			if l, ok := r.Spec.(drivers.Lookup); ok {
				used[l] = true
			}
		}
	}
	var list []drivers.Lookup
	for l := range tx.lookups {
		if used[l] {
			list = append(list, l)
		} else {
			delete(tx.lookups, l)
		}
	}
	return list
}

func (tx *Tx) lookupChanged(l drivers.Lookup) {
	for _, o := range tx.objects {
		for _, r := range o.Set.Resources {
			if lookup, ok := r.Spec.(drivers.Lookup); !ok || lookup != l {
				continue
			}
			tx.wake(o.Request)
			for _, role := range rolesOf(o.Target, r) {
				tx.Wake(ByRole(role))
			}
		}
	}
}

func sameAttrs(a, b plan.Observed) bool { return reflect.DeepEqual(a.Attrs, b.Attrs) }

// unsure lists the kinds of what an owner names and is not known: it may stand for something of that kind which is
// there.
func (tx *Tx) unsure(w *Want) map[drivers.Kind]bool {
	var kinds map[drivers.Kind]bool
	for _, l := range w.lookups {
		if _, known := tx.lookups[l]; known {
			continue
		}
		if kinds == nil {
			kinds = map[drivers.Kind]bool{}
		}
		kinds[l.Of] = true
	}
	return kinds
}
