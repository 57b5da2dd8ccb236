// SPDX-License-Identifier: Apache-2.0

package state

import (
	"cmp"
	"encoding/json"
	"fmt"
	"iter"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/kuryr/raven/drivers"
	"github.com/kuryr/raven/service/plan"
)

// ResourceKey names one resource in the cloud.
type ResourceKey struct {
	Kind drivers.Kind
	ID   string
}

// entry is one resource of the cache.
type entry struct {
	plan.Observed
	// written orders the entry against lists: see Cache.Replace.
	written uint64
}

// Cache is what is known of the cloud: every resource that carries the cluster's identity, as it was last seen or
// written. It is kept by lists and by the answers to writes, so that reconciling reads nothing. It has no lock: that
// of the state guards it.
type Cache struct {
	kinds   *plan.Kinds
	entries map[ResourceKey]*entry
	byOwner map[plan.Owner]map[ResourceKey]bool
	// shared are the claimed resources by identity: one owner has them all, and every reference to one looks for it.
	shared map[plan.Key]map[ResourceKey]bool
	usedBy map[string]map[ResourceKey]bool
	// removed remembers deletions until the lists that ran beside them have ended.
	removed map[ResourceKey]uint64
	// pending are creates that have been asked for, by the ids that they refer to and their own: what they use is in use.
	pending map[string]map[string]plan.Observed
	// writing counts the writes under way by the resource that they change: their outcome is not a drift.
	writing  map[ResourceKey]int
	sequence uint64
}

// NewCache returns an empty cache of these kinds.
func NewCache(kinds *plan.Kinds) *Cache {
	return &Cache{
		kinds: kinds, entries: map[ResourceKey]*entry{}, byOwner: map[plan.Owner]map[ResourceKey]bool{},
		shared: map[plan.Key]map[ResourceKey]bool{}, usedBy: map[string]map[ResourceKey]bool{},
		removed: map[ResourceKey]uint64{},
		pending: map[string]map[string]plan.Observed{}, writing: map[ResourceKey]int{},
	}
}

// Sequence grows with every change: what is read later is newer than all that was written before it.
func (c *Cache) Sequence() uint64 { return c.sequence }

// Begin notes a create that is about to be asked for. Until End it counts as a resource with an id of its own.
func (c *Cache) Begin(step plan.Step) plan.Observed {
	c.sequence++
	o := plan.Observed{
		Kind: step.Kind, ID: fmt.Sprintf("create %d", c.sequence), Identity: step.Identity, Managed: true, Attrs: step.Attrs,
	}
	for _, id := range c.References(o) {
		if c.pending[id] == nil {
			c.pending[id] = map[string]plan.Observed{}
		}
		c.pending[id][o.ID] = o
	}
	return o
}

// End forgets a create, however it ended.
func (c *Cache) End(o plan.Observed) {
	for _, id := range c.References(o) {
		if delete(c.pending[id], o.ID); len(c.pending[id]) == 0 {
			delete(c.pending, id)
		}
	}
}

// BeginWrite notes that a resource is about to be changed or deleted. A list may show that before the answer comes.
func (c *Cache) BeginWrite(key ResourceKey) { c.writing[key]++ }

// EndWrite forgets such a write, however it ended.
func (c *Cache) EndWrite(key ResourceKey) {
	if c.writing[key]--; c.writing[key] == 0 {
		delete(c.writing, key)
	}
}

// Put adds or replaces a resource. It says whether it was written to since, and whether it is new or has other
// attributes.
func (c *Cache) Put(o plan.Observed) (changed, differs bool) {
	c.sequence++
	o.Kind = c.kinds.KindOf(&o)
	key := ResourceKey{o.Kind, o.ID}
	old := c.entries[key]
	if old != nil {
		c.unlink(key, old)
	}
	o.Attrs = c.Keep(o.Kind, o.Attrs)
	c.entries[key] = &entry{Observed: o, written: c.sequence}
	delete(c.removed, key)
	add(c.byOwner, o.Identity.Owner, key)
	if o.Identity.Owner == sharedOwner() {
		add(c.shared, o.Identity.Key(), key)
	}
	for _, id := range c.References(o) {
		add(c.usedBy, id, key)
	}
	differs = old == nil || !reflect.DeepEqual(old.Attrs, o.Attrs) || c.kinds.Of(o.Kind).Status && old.Status != o.Status
	return differs || old.Revision != o.Revision || !slices.Equal(old.Tags, o.Tags) || old.Description != o.Description,
		differs
}

// Remove forgets a resource, and says whether it was known.
func (c *Cache) Remove(kind drivers.Kind, id string) (plan.Observed, bool) {
	key := ResourceKey{kind, id}
	c.sequence++
	c.removed[key] = c.sequence
	e := c.entries[key]
	if e == nil {
		return plan.Observed{}, false
	}
	c.unlink(key, e)
	delete(c.entries, key)
	return e.Observed, true
}

// sharedOwner is the owner of all claimed resources.
func sharedOwner() plan.Owner { return plan.Owner{Driver: Shared} }

func (c *Cache) unlink(key ResourceKey, e *entry) {
	drop(c.byOwner, e.Identity.Owner, key)
	if e.Identity.Owner == sharedOwner() {
		drop(c.shared, e.Identity.Key(), key)
	}
	for _, id := range c.References(e.Observed) {
		drop(c.usedBy, id, key)
	}
}

// Change is what a list has shown.
type Change struct {
	// Before is what was known; nil: nothing.
	Before *plan.Observed
	// Now is what is there; nil: it is gone.
	Now *plan.Observed
	// Differs says that it is new, gone, or has other attributes. Otherwise it was merely written to.
	Differs bool
}

// Replace takes over a list of all resources of the listed kinds that was begun at a sequence: what it lacks is gone,
// unless it was written after the list began; what was removed after that stays removed. It returns what has changed.
func (c *Cache) Replace(listed func(drivers.Kind) bool, list []plan.Observed, begun uint64) []Change {
	var changes []Change
	seen := make(map[ResourceKey]bool, len(list))
	for _, o := range list {
		o.Kind = c.kinds.KindOf(&o)
		key := ResourceKey{o.Kind, o.ID}
		seen[key] = true
		if c.Newer(key, begun) {
			continue
		}
		var change Change
		if e := c.entries[key]; e != nil {
			change.Before = &e.Observed
		}
		changed, differs := c.Put(o)
		change.Now, change.Differs = &c.entries[key].Observed, differs
		if changed {
			changes = append(changes, change)
		}
	}
	var gone []plan.Observed
	for key, e := range c.entries {
		if !seen[key] && listed(key.Kind) && e.written <= begun {
			gone = append(gone, e.Observed)
		}
	}
	for _, o := range gone {
		c.Remove(o.Kind, o.ID)
		changes = append(changes, Change{Before: &o, Differs: true})
	}
	maps.DeleteFunc(c.removed, func(_ ResourceKey, at uint64) bool { return at <= begun })
	return changes
}

// Newer says whether a resource was written to or removed after a sequence, so that what was read since does not count.
func (c *Cache) Newer(key ResourceKey, begun uint64) bool {
	e := c.entries[key]
	return c.removed[key] > begun || e != nil && e.written > begun
}

// Get returns a resource as it is known.
func (c *Cache) Get(kind drivers.Kind, id string) (plan.Observed, bool) {
	e := c.entries[ResourceKey{kind, id}]
	if e == nil {
		return plan.Observed{}, false
	}
	return e.Observed, true
}

// All returns all resources, in a stable order.
func (c *Cache) All() []plan.Observed {
	list := make([]plan.Observed, 0, len(c.entries))
	for _, e := range c.entries {
		list = append(list, e.Observed)
	}
	slices.SortFunc(list, Compare)
	return list
}

// OfKind returns all resources of a kind, in no order.
func (c *Cache) OfKind(kind drivers.Kind) []plan.Observed {
	var list []plan.Observed
	for key, e := range c.entries {
		if key.Kind == kind {
			list = append(list, e.Observed)
		}
	}
	return list
}

// Known returns the resources with one of these ids.
func (c *Cache) Known(ids []string) []ResourceKey {
	var known []ResourceKey
	for _, d := range c.kinds.List() {
		for _, id := range ids {
			if key := (ResourceKey{d.Kind, id}); c.entries[key] != nil {
				known = append(known, key)
			}
		}
	}
	return known
}

// Owners lists who has resources, in no order, with their keys. The maps must not be changed.
func (c *Cache) Owners() iter.Seq2[plan.Owner, map[ResourceKey]bool] { return maps.All(c.byOwner) }

// Owned returns all resources of an owner, in a stable order.
func (c *Cache) Owned(owner plan.Owner) []plan.Observed { return c.collect(c.byOwner[owner]) }

// Has says whether an owner has resources.
func (c *Cache) Has(owner plan.Owner) bool { return len(c.byOwner[owner]) > 0 }

// OwnedOf returns an owner's resources of a kind, in no order.
func (c *Cache) OwnedOf(owner plan.Owner, kind drivers.Kind) []plan.Observed {
	var list []plan.Observed
	for key := range c.byOwner[owner] {
		if key.Kind == kind {
			list = append(list, c.entries[key].Observed)
		}
	}
	return list
}

// Dependants returns the resources that refer to the one with this id, in a stable order; those that are being made
// as well.
func (c *Cache) Dependants(_ drivers.Kind, id string) []plan.Observed {
	out := c.collect(c.usedBy[id])
	being := slices.Collect(maps.Values(c.pending[id]))
	slices.SortFunc(being, Compare)
	return append(out, being...)
}

// Users returns the resources of a kind that refer to the one with this id, in no order.
func (c *Cache) Users(id string, kind drivers.Kind) []plan.Observed {
	var list []plan.Observed
	for key := range c.usedBy[id] {
		if key.Kind == kind {
			list = append(list, c.entries[key].Observed)
		}
	}
	return list
}

// Uses counts the resources that refer to the one with this id, and the creates under way that do.
func (c *Cache) Uses(id string) (made, pending int) { return len(c.usedBy[id]), len(c.pending[id]) }

func (c *Cache) collect(keys map[ResourceKey]bool) []plan.Observed {
	out := make([]plan.Observed, 0, len(keys))
	for key := range keys {
		out = append(out, c.entries[key].Observed)
	}
	slices.SortFunc(out, Compare)
	return out
}

// Compare orders resources by kind, logical name and age.
func Compare(a, b plan.Observed) int {
	return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Identity.Name, b.Identity.Name),
		cmp.Compare(a.CreatedAt, b.CreatedAt), cmp.Compare(a.ID, b.ID))
}

// Find returns the resource of an owner by kind and identity name: of twins the one that plan keeps.
func (c *Cache) Find(identity plan.Identity, kind drivers.Kind) (plan.Observed, bool) {
	want := identity.Key()
	var twins []plan.Observed
	keys := c.byOwner[identity.Owner]
	if identity.Owner == sharedOwner() {
		keys = c.shared[want]
	}
	for key := range keys {
		if key.Kind != kind {
			continue
		}
		if o := c.entries[key].Observed; o.Identity.Key() == want {
			twins = append(twins, o)
		}
	}
	switch len(twins) {
	case 0:
		return plan.Observed{}, false
	case 1:
		return twins[0], true
	}
	slices.SortFunc(twins, Compare)
	return twins[c.kinds.Keeper(twins, c.Dependants)], true
}

// References lists the ids of other resources that a resource cannot be without.
func (c *Cache) References(o plan.Observed) []string {
	if references := c.kinds.Of(o.Kind).References; references != nil {
		return references(o.Attrs)
	}
	return nil
}

// Keep drops the attributes that neither a plan compares nor a document shows, which for 10,000 ports is most of the
// memory.
func (c *Cache) Keep(kind drivers.Kind, attrs map[string]any) map[string]any {
	kept := drivers.Document(kind, attrs)
	for _, attribute := range c.kinds.Schema(kind) {
		if v, ok := attrs[attribute.Name]; ok {
			kept[attribute.Name] = v
		}
	}
	if trim := c.kinds.Of(kind).Trim; trim != nil {
		trim(kept)
	}
	return kept
}

func add[K comparable, V comparable](index map[K]map[V]bool, key K, value V) {
	set := index[key]
	if set == nil {
		set = map[V]bool{}
		index[key] = set
	}
	set[value] = true
}

func drop[K comparable, V comparable](index map[K]map[V]bool, key K, value V) {
	set := index[key]
	delete(set, value)
	if len(set) == 0 {
		delete(index, key)
	}
}

// drift returns what others have changed, an attribute each, as in `mtu is 1300, was 1500`: those that were known
// before and are otherwise now, but for what changes by itself.
func (c *Cache) drift(before, now plan.Observed) []string {
	was, is := before.Attrs, now.Attrs
	if stable := c.kinds.Of(now.Kind).Stable; stable != nil {
		was, is = stable(was), stable(is)
	}
	var differences []string
	for _, name := range slices.Sorted(maps.Keys(is)) {
		old, known := was[name]
		if !known || reflect.DeepEqual(old, is[name]) {
			continue
		}
		before, after := driftText(old), driftText(is[name])
		if before == after { // so long that they differ behind what is told
			differences = append(differences, fmt.Sprintf("%s is another %s", name, after))
			continue
		}
		differences = append(differences, fmt.Sprintf("%s is %s, was %s", name, after, before))
	}
	return differences
}

// maxDriftText is how much of a value is told, in bytes of its JSON.
const maxDriftText = 80

func driftText(value any) string {
	text, err := json.Marshal(value)
	if err != nil {
		return fmt.Sprintf("a %T", value)
	}
	if len(text) > maxDriftText {
		return strings.ToValidUTF8(string(text[:maxDriftText]), "") + "…"
	}
	return string(text)
}

// Drift is a resource that others have changed.
type Drift struct {
	Kind     drivers.Kind
	ID       string
	Identity plan.Identity
	// What has happened to it, for people: "is gone", "mtu is 1300, was 1500".
	What string
	// Of names the resource by the object that it is for, as in `"port" of Pod shop/a`.
	Of string
}

// String names the resource and what has happened to it.
func (d Drift) String() string { return fmt.Sprintf("%s %s (%s) %s", d.Kind, d.ID, d.Identity, d.What) }

// Drift says what of a change others have done; false: nothing, it is what changes by itself, what was not known
// before, or what Raven does itself.
func (c *Cache) Drift(change Change) (Drift, bool) {
	o, what := change.Now, ""
	switch {
	case change.Before == nil:
		return Drift{}, false // a create whose answer is still to come, or what was never listed before
	case c.writing[ResourceKey{change.Before.Kind, change.Before.ID}] > 0:
		return Drift{}, false // a write whose answer is still to come
	case change.Now == nil:
		o, what = change.Before, "is gone"
		if leaving := c.kinds.Of(o.Kind).Leaving; leaving != nil && leaving(o) {
			return Drift{}, false
		}
	default:
		differences := c.drift(*change.Before, *change.Now)
		if len(differences) == 0 {
			return Drift{}, false
		}
		what = strings.Join(differences, "; ")
	}
	return Drift{Kind: o.Kind, ID: o.ID, Identity: o.Identity, What: what}, true
}
