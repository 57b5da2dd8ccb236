// SPDX-License-Identifier: Apache-2.0

package state

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/kuryr/raven/drivers"
	"github.com/kuryr/raven/service/plan"
	"github.com/kuryr/raven/service/watch"
)

// Request names one key of one driver, or the shared owner: what a queue carries.
type Request struct {
	Driver string
	Key    watch.Key
}

// Phase is where a source object stands.
type Phase string

// The phases.
//
//	            +--------- woken by arrival ---------+
//	            v                                    |
//	pending -> (translate, plan, apply) -> waiting --+
//	   ^        |        |         |
//	   |        v        v         +-> failing (tried again, ever later)
//	   +----- done    terminal (until the object, the driver or the configuration changes)
const (
	Pending  Phase = "pending"
	Done     Phase = "done"
	Waiting  Phase = "waiting"
	Failing  Phase = "failing"
	Terminal Phase = "terminal"
)

// Target is the source object of an owner, for people and for writing back.
type Target struct {
	Watch     drivers.Watch
	Namespace string
	Name      string
	UID       string
}

// String names the source object for people.
func (t Target) String() string {
	if t.Namespace == "" {
		return t.Watch.Kind + " " + t.Name
	}
	return t.Watch.Kind + " " + t.Namespace + "/" + t.Name
}

// Object is what is known of one source object of one driver, by UID. Only a reconcile of its request changes it, but
// for what Tx does.
type Object struct {
	ID      plan.Owner
	Request Request
	Target  Target
	Gone    bool // the source object is not there any more

	Set    drivers.Set
	HasSet bool // the driver has answered in this process
	// Answered is the driver's epoch at its last good answer; Input is a hash of what that was made from, Needs what it
	// asked for.
	Answered int
	Input    uint64
	Needs    []drivers.Need
	// Unanswered counts the tries in this replay that passed without an answer.
	Unanswered int
	// Held counts deletions that are held back.
	Held int
	// Compared is the driver's epoch for which the mass-deletion guard has counted what the answer would end; Guarded
	// says that it holds that.
	Compared int
	Guarded  bool

	Phase   Phase
	Reasons []string
	Doing   string // what is being applied now, since DoingSince
	Since   time.Time
	NextTry time.Time
	Tries   int

	DoingSince time.Time
	// Blocked are those of what wakes the object that it cannot go on without.
	Blocked []Key
	// Gap is for how long the object was not served when a resource of one backend last took the place of another
	// backend's.
	Gap time.Duration
	// Made says that a resource of the object was created since it was last done.
	Made bool
	// NewSince is when the source object was created, as long as nothing has been written back on it; then zero.
	NewSince time.Time
	// SoftSince is since when soft references of the object, by their role, are not resolved though nothing else keeps
	// their resource from being made.
	SoftSince map[drivers.Role]time.Time
	// SoftPlanned is when the object was planned last: what SoftSince said then was waited for, or not any more.
	SoftPlanned time.Time
	// OldSince is since when old resources of the object are kept until the new ones are made; zero: none are.
	OldSince time.Time
	// Said are the last Events, by what they are about.
	Said map[string]string
	// Written is the last thing written back, and the version of the object that the cache held then.
	Written Written

	claims map[string]claim // what the Set claims, by the claim's name
	kinds  []drivers.Kind   // few, and each once
	waits  []Key            // what wakes the object
}

// Written is something that was written back.
type Written struct {
	Hash    uint64
	Version string
}

// MayHave says whether an object has resources of a kind, or may have: its Set has some, or had when those were last
// known.
func (o *Object) MayHave(kind drivers.Kind) bool { return slices.Contains(o.kinds, kind) }

// DriverState is how far a driver has come in answering.
type DriverState struct {
	Name  string
	Epoch int
	// Open are the keys of this epoch's replay that have not been answered.
	Open map[watch.Key]bool
	// Prune says that the replay is over and was within the guard: the driver's word may end resources.
	Prune bool
	// Guarded says that the replay is over and was not: the guard holds what it would end.
	Guarded bool
	// Held is how many deletions the guard holds, once the replay is over; Allowed is how many it would let pass.
	Held, Allowed int

	// owns is whose name stands in the identity of what the driver makes: its exclusive role's, or its own.
	owns   string
	kinds  map[drivers.Kind]bool // that it may make
	passed int                   // deletions that the guard has let pass
	memory memory
}

// Complete says whether every source object has been answered in the present epoch.
func (d *DriverState) Complete() bool { return d.Epoch > 0 && len(d.Open) == 0 }

// Over says whether a replay is over, with what it would end let pass or held.
func (d *DriverState) Over() bool { return d.Prune || d.Guarded }

// IdentityKey names a resource by kind and identity.
type IdentityKey struct {
	Kind drivers.Kind
	Key  plan.Key
}

// KeyOf returns the key of a kind and an identity.
func KeyOf(kind drivers.Kind, i plan.Identity) IdentityKey { return IdentityKey{kind, i.Key()} }

// UnknownCreate is a create of which it is not known whether it was carried out, or will be.
type UnknownCreate struct {
	Since, Until time.Time
	Answer       string // what came of the request, for people: the server's error, or that no answer came
}

// OwnerOf returns the owner of a driver and a UID as identities read from the cloud have it, that is, shortened.
func OwnerOf(driver, uid string) plan.Owner {
	k := plan.Identity{Owner: plan.Owner{Driver: driver, UID: uid}}.Key()
	return plan.Owner{Driver: k.Driver, UID: k.UID}
}

// OwnerOf returns the owner of an object of a driver: what a driver makes that holds a role belongs to the role, so
// that another driver can take it over.
func (tx *Tx) OwnerOf(driver, uid string) plan.Owner {
	if d := tx.drivers[driver]; d != nil {
		driver = d.owns
	}
	return OwnerOf(driver, uid)
}

// Object returns what is known of an owner; nil: nothing.
func (tx *Tx) Object(id plan.Owner) *Object { return tx.objects[id] }

// Objects returns all objects, in no order. The map must not be changed.
func (tx *Tx) Objects() map[plan.Owner]*Object { return tx.objects }

// Driver returns how far a driver has come; nil: it is not enabled.
func (tx *Tx) Driver(name string) *DriverState { return tx.drivers[name] }

// Drivers returns the enabled drivers by name. The map must not be changed.
func (tx *Tx) Drivers() map[string]*DriverState { return tx.drivers }

// Cluster is the cluster id.
func (tx *Tx) Cluster() string { return tx.config.Cluster }

// AddDriver notes what a driver holds and may make.
func (tx *LoopTx) AddDriver(name, role string, kinds []drivers.Kind) {
	if tx.drivers[name] == nil {
		tx.drivers[name] = &DriverState{Name: name}
	}
	d := tx.drivers[name]
	d.owns, d.kinds = cmp.Or(role, name), map[drivers.Kind]bool{}
	for _, kind := range kinds {
		d.kinds[kind] = true
	}
}

// StandbyKey keeps a replay open while the engine stands by: what the answers would end is counted when the cloud is
// known.
func StandbyKey() watch.Key { return watch.Key{Watch: "leadership"} }

// BeginEpoch starts a replay: until every key has been answered, the driver's word ends nothing.
func (tx *LoopTx) BeginEpoch(name string, keys []watch.Key) {
	d := tx.drivers[name]
	d.Epoch++
	d.Prune, d.Guarded, d.Held, d.passed = false, false, 0, 0
	for _, o := range tx.objects {
		if o.Request.Driver == name {
			o.Guarded, o.Unanswered = false, 0
		}
	}
	d.Open = make(map[watch.Key]bool, len(keys))
	for _, key := range keys {
		d.Open[key] = true
	}
	if tx.Standby {
		d.Open[StandbyKey()] = true
	}
}

// Heard says whether every source object of a driver has been answered, leadership apart.
func (tx *LoopTx) Heard(d *DriverState) bool {
	return d.Complete() || tx.Standby && d.Epoch > 0 && len(d.Open) == 1 && d.Open[StandbyKey()]
}

// Joined says whether all enabled drivers are there: before, it is not known what role each holds.
func (tx *LoopTx) Joined() bool {
	for _, d := range tx.drivers {
		if d.Epoch == 0 {
			return false
		}
	}
	return true
}

// Ensure returns the object of an owner, made if it is new.
func (tx *LoopTx) Ensure(r Request, t Target) *Object {
	id := tx.OwnerOf(r.Driver, t.UID)
	o := tx.objects[id]
	if o == nil {
		o = &Object{ID: id, Phase: Pending, Since: tx.Now()}
		tx.objects[id] = o
	}
	if o.Request != r { // new, or taken for an orphan
		drop(tx.byRequest, o.Request, id)
		o.Request, o.Target = r, t
		add(tx.byRequest, r, id)
	}
	o.Gone = false
	return o
}

// EnsureGone returns the object of an owner whose source object is gone, made if it is new: there is nothing but its
// UID.
func (tx *LoopTx) EnsureGone(id plan.Owner, r Request, w drivers.Watch) *Object {
	if o := tx.objects[id]; o != nil {
		return o
	}
	o := &Object{
		ID: id, Request: r, Gone: true, Phase: Pending, Since: tx.Now(),
		Target: Target{Watch: w, Name: "with UID " + id.UID, UID: id.UID},
	}
	tx.objects[id] = o
	add(tx.byRequest, r, id)
	return o
}

// SharedObject returns the owner of what is claimed.
func (tx *LoopTx) SharedObject() *Object {
	id := plan.Owner{Driver: Shared}
	o := tx.objects[id]
	if o == nil {
		o = &Object{
			ID: id, Request: Request{Driver: Shared}, HasSet: true, Phase: Pending, Since: tx.Now(),
			Target: Target{Watch: drivers.Watch{Kind: "Cluster"}, Name: "shared resources"},
		}
		tx.objects[id] = o
	}
	return o
}

// Requested returns the owners behind a request: more than one if an object has been followed by another of the same
// name.
func (tx *LoopTx) Requested(r Request) []*Object {
	list := make([]*Object, 0, len(tx.byRequest[r]))
	for id := range tx.byRequest[r] {
		list = append(list, tx.objects[id])
	}
	return list
}

// Forget drops an object that has nothing left.
func (tx *LoopTx) Forget(o *Object) {
	tx.SetDesired(o, drivers.Set{})
	tx.unwait(o)
	delete(tx.objects, o.ID)
	drop(tx.byRequest, o.Request, o.ID)
	delete(tx.Orphans, o.ID)
	delete(tx.deferred, o)
	for _, b := range tx.backends {
		if b.Forgotten != nil {
			b.Forgotten(tx.Tx, o.ID)
		}
	}
}

// WakeOwner wakes the object of an owner, if it is known.
func (tx *Tx) WakeOwner(id plan.Owner) {
	if id.Driver == Shared {
		tx.wake(Request{Driver: Shared})
	} else if o := tx.objects[id]; o != nil {
		tx.wake(o.Request)
	}
}

// wake has requests delivered once the lock is released.
func (tx *Tx) wake(requests ...Request) { tx.woken = append(tx.woken, requests...) }

// Complete says whether every driver has answered for every object, within its guard.
func (tx *Tx) Complete() bool {
	for _, d := range tx.drivers {
		if !d.Prune {
			return false
		}
	}
	for _, o := range tx.objects {
		if tx.Untranslated(o) {
			return false
		}
	}
	return true
}

// Untranslated says whether it is not known yet what an owner's object should have under the present driver and
// configuration.
func (tx *Tx) Untranslated(o *Object) bool {
	if o.ID.Driver == Shared || o.Gone {
		return false
	}
	d := tx.drivers[o.Request.Driver]
	return !o.HasSet || (d != nil && o.Answered != d.Epoch)
}

// Unanswered names, for people, some of the objects without an answer.
func (tx *Tx) Unanswered() string {
	var names []string
	for _, o := range tx.objects {
		if tx.Untranslated(o) {
			names = append(names, o.Target.String())
		}
	}
	for _, d := range tx.drivers {
		if d.Epoch == 0 {
			names = append(names, "all of driver "+d.Name)
		}
		for key := range d.Open {
			names = append(names, key.String())
		}
	}
	return Some(Sorted(names))
}

// Release wakes who holds something back until every driver has answered, if all have.
func (tx *Tx) Release() {
	if len(tx.deferred) == 0 || !tx.Complete() {
		return
	}
	for o := range tx.deferred {
		tx.wake(o.Request)
	}
	clear(tx.deferred)
}

// Disabled names a driver that is not enabled and still has resources in the cloud; "" if there is none. What it
// claimed is not known, so nothing that is shared may end.
func (tx *Tx) Disabled() string {
	enabled := tx.Enabled()
	found := ""
	for id := range tx.Cache.byOwner {
		if !enabled[id.Driver] && (found == "" || id.Driver < found) {
			found = id.Driver
		}
	}
	return found
}

// Enabled are the names that stand on what enabled drivers make.
func (tx *Tx) Enabled() map[string]bool {
	enabled := map[string]bool{Shared: true}
	for _, d := range tx.drivers {
		enabled[plan.ShortDriver(d.owns)] = true
	}
	return enabled
}

// UnknownOwner says why an owner that is not known may be there all the same, and "" if its object is gone: its
// driver has answered for all that there are.
func (tx *Tx) UnknownOwner(id plan.Owner) string {
	if id.Driver == Shared {
		return "it is shared"
	}
	for _, d := range tx.drivers {
		if plan.ShortDriver(d.owns) != id.Driver {
			continue
		}
		if !d.Complete() {
			return fmt.Sprintf("it may belong to an object of driver %s, which has not answered for all of them yet", d.Name)
		}
		return ""
	}
	return fmt.Sprintf("it belongs to an object of driver %s, which is not enabled", id.Driver)
}

// Describe names a resource by the object that it is for.
func (tx *Tx) Describe(id plan.Identity) string {
	if o := tx.objects[id.Owner]; o != nil {
		return fmt.Sprintf("%q of %s", id.Name, o.Target)
	}
	return id.String()
}

// NoteUnknown notes a create of which it is not known whether it will be carried out until a time; answer is what came
// of the request.
func (tx *Tx) NoteUnknown(kind drivers.Kind, id plan.Identity, lasting time.Duration, answer string) {
	now := tx.Now()
	tx.unknown[KeyOf(kind, id)] = UnknownCreate{now, now.Add(lasting), answer}
}

// UnknownCreate returns the create of an identity whose outcome is unknown.
func (tx *Tx) UnknownCreate(kind drivers.Kind, id plan.Identity) (UnknownCreate, bool) {
	u, ok := tx.unknown[KeyOf(kind, id)]
	return u, ok
}

// ForgetUnknown forgets a create whose outcome was unknown.
func (tx *Tx) ForgetUnknown(kind drivers.Kind, id plan.Identity) { delete(tx.unknown, KeyOf(kind, id)) }

// TakeUnknown forgets all creates of an owner whose outcome is unknown, and returns until when one of them may be
// carried out.
func (tx *LoopTx) TakeUnknown(id plan.Owner) (until time.Time) {
	for key, u := range tx.unknown {
		if key.Key.Driver == id.Driver && key.Key.UID == id.UID {
			if u.Until.After(until) {
				until = u.Until
			}
			delete(tx.unknown, key)
		}
	}
	return until
}

// Some shows the first three of a list.
func Some(names []string) string {
	if len(names) > 3 {
		names = append(names[:3:3], fmt.Sprintf("%d more", len(names)-3))
	}
	return strings.Join(names, ", ")
}
