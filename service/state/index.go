// SPDX-License-Identifier: Apache-2.0

package state

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/kuryr/raven/drivers"
	"github.com/kuryr/raven/service/plan"
)

// exporter is a resource that stands behind a role.
type exporter struct {
	owner plan.Owner
	name  string // logical name in the owner's Set
}

// Key is something that may arrive, change or go: an object that waits for it is woken. What says what it is;
// backends have their own.
type Key struct {
	What string
	Role drivers.Role
	Name string
}

// The keys that everybody uses.
const (
	whatRole  = "role"
	whatClaim = "claim"
	whatGone  = "gone"
)

// ByRole is the resource behind a role.
func ByRole(r drivers.Role) Key { return Key{What: whatRole, Role: r} }

// ByClaim is a claimed resource.
func ByClaim(name string) Key { return Key{What: whatClaim, Name: name} }

// ByGone is that a resource is gone, or uses something else.
func ByGone(id string) Key { return Key{What: whatGone, Name: id} }

// ByBusy is that a resource takes changes again.
func ByBusy(id string) Key { return Key{What: "busy", Name: id} }

// ByQuota is room in the quota of a kind.
func ByQuota(kind drivers.Kind) Key { return Key{What: "quota", Name: string(kind)} }

// ByBackend is that a backend which was unavailable can be asked again.
func ByBackend(name string) Key { return Key{What: "backend", Name: name} }

// SetDesired takes over a new Set of an object and keeps the indexes of roles, claims and contributions. Who must
// be reconciled because of it is woken.
func (tx *LoopTx) SetDesired(o *Object, set drivers.Set) {
	before, after := exportsOf(o.Target, o.Set), exportsOf(o.Target, set)
	for role, name := range before {
		drop(tx.roles, role, exporter{o.ID, name})
	}
	claims := claimsOf(set)
	if !sameClaims(o.claims, claims) || !slices.Equal(o.Set.Undecided, set.Undecided) {
		tx.wake(Request{Driver: Shared})
	}
	for name := range o.claims {
		drop(tx.claims, name, o.ID)
	}
	for name := range claims {
		add(tx.claims, name, o.ID)
	}
	for _, name := range o.Set.Undecided {
		drop(tx.undecided, name, o.ID)
	}
	for _, name := range set.Undecided {
		add(tx.undecided, name, o.ID)
	}
	touched := tx.withdraw(o)
	tx.wakeOtherWriters(o, o.Set.Outputs, set.Outputs)
	o.Set, o.claims, o.kinds = set, claims, tx.kindsOf(o, set)
	for role, name := range after {
		add(tx.roles, role, exporter{o.ID, name})
	}
	for role, name := range before {
		if after[role] != name {
			tx.roleChanged(role)
		}
	}
	for role := range after {
		if before[role] == "" {
			tx.roleChanged(role)
		}
	}
	for _, c := range set.Contributions {
		byOwner := tx.contributions[c.Target]
		if byOwner == nil {
			byOwner = map[plan.Owner][]drivers.Contribution{}
			tx.contributions[c.Target] = byOwner
		}
		byOwner[o.ID] = append(byOwner[o.ID], c)
		touched[c.Target] = true
	}
	for role := range touched {
		tx.wakeBehind(role, o)
	}
}

// kindsOf are the kinds that an object has resources of by its Set, and those that it had when their backend was last
// available.
func (tx *Tx) kindsOf(o *Object, set drivers.Set) []drivers.Kind {
	kinds := make([]drivers.Kind, 0, len(o.kinds))
	note := func(kind drivers.Kind) {
		if !slices.Contains(kinds, kind) {
			kinds = append(kinds, kind)
		}
	}
	for _, r := range set.Resources {
		note(r.Spec.Kind())
	}
	for _, kind := range o.kinds {
		if tx.Unavailable(kind) != nil {
			note(kind)
		}
	}
	return kinds
}

// withdraw takes an owner's contributions out of the index, and returns the roles that they were for.
func (tx *Tx) withdraw(o *Object) map[drivers.Role]bool {
	touched := map[drivers.Role]bool{}
	for _, c := range o.Set.Contributions {
		delete(tx.contributions[c.Target], o.ID)
		if len(tx.contributions[c.Target]) == 0 {
			delete(tx.contributions, c.Target)
		}
		touched[c.Target] = true
	}
	return touched
}

// roleChanged wakes who must be reconciled because another resource stands behind a role: who refers to it, and who
// exports it.
func (tx *Tx) roleChanged(role drivers.Role) {
	tx.Wake(ByRole(role))
	for e := range tx.roles[role] {
		tx.WakeOwner(e.owner)
	}
}

// wakeBehind wakes those whose resources stand behind a role, but for the object that asks.
func (tx *Tx) wakeBehind(role drivers.Role, but *Object) {
	for e := range tx.roles[role] {
		o := tx.objects[e.owner]
		switch {
		case o == nil:
		case claimOf(o.Set, e.name) != "":
			tx.wake(Request{Driver: Shared})
		case o != but:
			tx.wake(o.Request)
		}
	}
}

// exportsOf maps the roles of a Set to the logical names behind them.
func exportsOf(t Target, set drivers.Set) map[drivers.Role]string {
	exports := map[drivers.Role]string{}
	for _, r := range set.Resources {
		for _, role := range rolesOf(t, r) {
			exports[role] = r.Name
		}
	}
	return exports
}

// rolesOf lists the roles under which others find a resource.
func rolesOf(t Target, r drivers.Resource) []drivers.Role {
	var roles []drivers.Role
	for _, name := range r.Exports {
		roles = append(roles, drivers.Role{Kind: t.Watch.Kind, Namespace: t.Namespace, Name: t.Name, Role: name})
		if r.Claim != "" {
			roles = append(roles, drivers.Role{Role: name})
		}
	}
	return roles
}

// exporters lists who stands behind a role. Claimed resources count once however many claim them.
func (tx *Tx) exporters(role drivers.Role) []exporter {
	var list []exporter
	seen := map[string]bool{}
	for e := range tx.roles[role] {
		if o := tx.objects[e.owner]; o != nil {
			if claim := claimOf(o.Set, e.name); claim != "" {
				if seen[claim] {
					continue
				}
				seen[claim] = true
			}
		}
		list = append(list, e)
	}
	slices.SortFunc(list, func(a, b exporter) int {
		return cmp.Or(cmp.Compare(a.owner.Driver, b.owner.Driver), cmp.Compare(a.owner.UID, b.owner.UID),
			cmp.Compare(a.name, b.name))
	})
	return list
}

// Exported says whether a resource stands behind a role, in the cloud or not yet.
func (tx *Tx) Exported(role drivers.Role) bool { return len(tx.roles[role]) > 0 }

// RoleConflict says why a role leads nowhere: more than one resource stands behind it. It is "" otherwise.
func (tx *Tx) RoleConflict(role drivers.Role) string {
	if len(tx.roles[role]) < 2 {
		return ""
	}
	exporters := tx.exporters(role)
	if len(exporters) < 2 {
		return ""
	}
	names := make([]string, 0, len(exporters))
	for _, e := range exporters {
		names = append(names, "driver "+e.owner.Driver)
	}
	return fmt.Sprintf("the %s is exported more than once, by %s: enable only one of them", role,
		strings.Join(names, " and "))
}

// Conflicts lists what an object has with others: roles that they export too, claims on which they disagree.
func (tx *Tx) Conflicts(o *Object) []string {
	var texts []string
	for role := range exportsOf(o.Target, o.Set) {
		if conflict := tx.RoleConflict(role); conflict != "" {
			texts = append(texts, conflict)
		}
	}
	for name := range o.claims {
		if text := tx.disputed[name]; text != "" {
			texts = append(texts, text)
		}
	}
	return texts
}

// Wait records what wakes an object, in place of what did before, and which of that it cannot go on without.
func (tx *LoopTx) Wait(o *Object, keys, blocked []Key) {
	tx.unwait(o)
	o.waits, o.Blocked = keys, blocked
	for _, key := range keys {
		add(tx.waiters, key, o)
	}
}

// WaitToo records more that wakes an object.
func (tx *LoopTx) WaitToo(o *Object, keys []Key) { tx.Wait(o, slices.Concat(o.waits, keys), o.Blocked) }

func (tx *Tx) unwait(o *Object) {
	for _, key := range o.waits {
		drop(tx.waiters, key, o)
	}
	o.waits, o.Blocked = nil, nil
}

// Wake wakes who waits for a thing.
func (tx *Tx) Wake(key Key) {
	for o := range tx.waiters[key] {
		tx.wake(o.Request)
	}
}

// WakeNext wakes two of those who wait for a thing of which there is not enough for all: first those of the owners
// that come first, if they wait for it. Who succeeds wakes others.
func (tx *Tx) WakeNext(key Key, first ...plan.Owner) {
	tx.signals[key]++
	n := 0
	for _, id := range first {
		if o := tx.objects[id]; o != nil && tx.waiters[key][o] {
			tx.wake(o.Request)
			n++
		}
	}
	for o := range tx.waiters[key] {
		if n >= 2 {
			return
		}
		tx.wake(o.Request)
		n++
	}
}

// Signal notes that there may be enough of a thing, without waking those who wait for it.
func (tx *Tx) Signal(key Key) { tx.signals[key]++ }

// ForgetSignals forgets a thing that is gone.
func (tx *Tx) ForgetSignals(key Key) { delete(tx.signals, key) }

// Signals says how often there may have become enough of these things so far.
func (tx *Tx) Signals(keys ...Key) uint64 {
	var n uint64
	for _, key := range keys {
		n += tx.signals[key]
	}
	return n
}

// Waiting says how many wait for a thing.
func (tx *Tx) Waiting(key Key) int { return len(tx.waiters[key]) }

// Arrive takes a resource that was made, changed or seen into the cache, and wakes who waited for it. It says whether
// it is new or has other attributes.
func (tx *Tx) Arrive(o plan.Observed) (differs bool) {
	tx.ForgetUnknown(o.Kind, o.Identity)
	o.Kind = tx.kinds.KindOf(&o)
	var before *plan.Observed
	if old := tx.Cache.entries[ResourceKey{o.Kind, o.ID}]; old != nil {
		before = &old.Observed
	}
	if _, differs = tx.Cache.Put(o); differs {
		tx.announce(o, true)
	}
	tx.arrived(before, tx.Cache.entries[ResourceKey{o.Kind, o.ID}].Observed)
	return differs
}

// Assign has a resource be another one from now on, of which the identity says whose it is: one change, so that nobody
// sees both or neither. It says whether the resource was there under that kind.
func (tx *Tx) Assign(kind drivers.Kind, now plan.Observed) bool {
	if _, there := tx.Cache.Get(kind, now.ID); !there {
		return false
	}
	tx.Cache.Remove(kind, now.ID)
	tx.Arrive(now)
	return true
}

// arrived tells the backend that a resource was put into the cache.
func (tx *Tx) arrived(before *plan.Observed, now plan.Observed) {
	if b := tx.byKind[now.Kind]; b != nil && b.Arrived != nil {
		b.Arrived(tx, before, now)
	}
}

// Depart drops a resource that is gone from the cache, and wakes who must be reconciled because of that.
func (tx *Tx) Depart(kind drivers.Kind, id string) {
	old, known := tx.Cache.Remove(kind, id)
	if !known {
		tx.Wake(ByGone(id))
		return
	}
	tx.departed(old)
	tx.WakeOwner(old.Identity.Owner)
}

// departed wakes who must be reconciled because a resource has left the cache.
func (tx *Tx) departed(old plan.Observed) {
	tx.announce(old, false)
	if !tx.Cache.Has(old.Identity.Owner) {
		tx.Release() // it may have been the last of a driver that is not enabled
	}
	if b := tx.byKind[old.Kind]; b != nil && b.Departed != nil {
		b.Departed(tx, old)
	}
}

// Observe takes over a list of all resources of the listed kinds that was begun at a sequence; see Cache.Replace.
// Whoever is concerned by what has changed is woken. It returns what others have changed.
func (tx *LoopTx) Observe(listed func(drivers.Kind) bool, list []plan.Observed, begun uint64) []Drift {
	var drifted []Drift
	for _, change := range tx.Cache.Replace(listed, list, begun) {
		o := change.Now
		if o == nil {
			o = change.Before
		}
		if change.Now == nil {
			tx.departed(*o)
		} else {
			if change.Differs {
				tx.announce(*o, true)
			}
			tx.arrived(change.Before, *o)
		}
		tx.WakeOwner(o.Identity.Owner)
		if drift, drifts := tx.Cache.Drift(change); drifts && change.Differs {
			drift.Of = tx.Describe(drift.Identity)
			drifted = append(drifted, drift)
		}
	}
	return drifted
}

// Seen takes over a resource as it was read since a sequence, or that it is not there, unless it was written to after
// that. It says whether it is not as it was known; its owner is woken then.
func (tx *Tx) Seen(key ResourceKey, now plan.Observed, there bool, begun uint64) (differs bool) {
	_, known := tx.Cache.Get(key.Kind, key.ID)
	switch {
	case tx.Cache.Newer(key, begun):
	case !there && known:
		tx.Depart(key.Kind, key.ID)
		return true
	case there:
		if differs = tx.Arrive(now); differs {
			tx.WakeOwner(now.Identity.Owner)
		}
	}
	return differs
}

// announce wakes who must be reconciled because a resource is there now, is not there any more, or has other
// attributes.
func (tx *Tx) announce(o plan.Observed, there bool) {
	tx.Wake(ByGone(o.ID)) // who waits for it to go may wait no more either when it does not use it any longer
	if there {
		tx.ForgetUnknown(o.Kind, o.Identity)
	}
	if o.Identity.Owner.Driver != Shared {
		if ow := tx.objects[o.Identity.Owner]; ow != nil {
			tx.announceTo(ow, o, false)
			for _, c := range ow.Set.Contributions {
				tx.wakeBehind(c.Target, ow)
			}
		}
		return
	}
	for name := range tx.undecided {
		if tx.IsNamed(o, name) {
			tx.Wake(ByClaim(name))
		}
	}
	for name, claimants := range tx.claims {
		if !tx.IsNamed(o, name) {
			continue
		}
		tx.Wake(ByClaim(name))
		for id := range claimants {
			if c := tx.objects[id]; c != nil {
				tx.announceTo(c, o, true)
			}
		}
	}
}

// announceTo wakes who refers by role to a resource of an owner's Set, its own or a claimed one.
func (tx *Tx) announceTo(o *Object, r plan.Observed, claimed bool) {
	for _, want := range o.Set.Resources {
		name := want.Name
		if claimed {
			name = want.Claim
		}
		if name == "" || want.Claim != "" != claimed || !tx.IsNamed(r, name) {
			continue
		}
		for _, role := range rolesOf(o.Target, want) {
			tx.Wake(ByRole(role))
		}
	}
}

// IsNamed says whether a resource in the cloud has that logical name.
func (tx *Tx) IsNamed(o plan.Observed, logical string) bool {
	name := tx.kinds.LogicalName(o.Kind, logical)
	return name == o.Identity.Name || plan.Identity{Name: name}.Key().Name == o.Identity.Name
}

// WakeHaving wakes who has resources of a kind, or may have.
func (tx *Tx) WakeHaving(kind drivers.Kind) {
	for _, o := range tx.objects {
		if o.MayHave(kind) {
			tx.wake(o.Request)
		}
	}
}

// Defer notes whether an object holds something back until every driver has answered.
func (tx *LoopTx) Defer(o *Object, defers bool) {
	if defers {
		tx.deferred[o] = true
	} else {
		delete(tx.deferred, o)
	}
}

// Roots lists the objects for whose resources, by these keys, others wait.
func (tx *Tx) Roots(keys []Key) []*Object {
	roots := map[*Object]bool{}
	shared := tx.objects[plan.Owner{Driver: Shared}]
	for _, key := range keys {
		switch key.What {
		case whatClaim:
			roots[shared] = true
		case whatGone:
			for _, known := range tx.Cache.Known([]string{key.Name}) {
				roots[tx.objects[tx.Cache.entries[known].Identity.Owner]] = true
			}
		case whatRole:
			for e := range tx.roles[key.Role] {
				root := tx.objects[e.owner]
				if root != nil && claimOf(root.Set, e.name) != "" {
					root = shared
				}
				roots[root] = true
			}
		}
	}
	delete(roots, nil)
	return slices.Collect(maps.Keys(roots))
}
