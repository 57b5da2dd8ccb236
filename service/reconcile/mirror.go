package reconcile

import (
	"maps"
	"slices"

	"github.com/kuryr/raven/drivers"
	"github.com/kuryr/raven/service/plan"
)

// resourceKey names one resource in the cloud.
type resourceKey struct {
	kind drivers.Kind
	id   string
}

// entry is one resource of the mirror.
type entry struct {
	plan.Observed
	// written orders the entry against lists: see mirror.replace.
	written uint64
}

// mirror is what the core knows of the cloud: every resource that carries the cluster's identity, as it was last seen or
// written. It is kept by lists and by the answers to writes, so that reconciling reads nothing. It has no lock: the engine's
// store guards it.
type mirror struct {
	entries map[resourceKey]*entry
	byOwner map[plan.Owner]map[resourceKey]bool
	usedBy  map[string]map[resourceKey]bool
	// removed remembers deletions until the lists that ran beside them have ended.
	removed map[resourceKey]uint64
	tick    uint64
}

func newMirror() *mirror {
	return &mirror{
		entries: map[resourceKey]*entry{},
		byOwner: map[plan.Owner]map[resourceKey]bool{},
		usedBy:  map[string]map[resourceKey]bool{},
		removed: map[resourceKey]uint64{},
	}
}

// put adds or replaces a resource, and says whether it differs from what was known.
func (m *mirror) put(o plan.Observed) bool {
	m.tick++
	key := resourceKey{o.Kind, o.ID}
	old := m.entries[key]
	if old != nil {
		m.unlink(key, old)
	}
	o.Attrs = keep(o.Kind, o.Attrs)
	e := &entry{Observed: o, written: m.tick}
	m.entries[key] = e
	delete(m.removed, key)
	add(m.byOwner, o.Identity.Owner, key)
	for _, id := range references(o) {
		add(m.usedBy, id, key)
	}
	return old == nil || old.Revision != o.Revision || !slices.Equal(old.Tags, o.Tags) || old.Description != o.Description
}

// remove forgets a resource, and says whether it was known.
func (m *mirror) remove(kind drivers.Kind, id string) (plan.Observed, bool) {
	key := resourceKey{kind, id}
	m.tick++
	m.removed[key] = m.tick
	e := m.entries[key]
	if e == nil {
		return plan.Observed{}, false
	}
	m.unlink(key, e)
	delete(m.entries, key)
	return e.Observed, true
}

func (m *mirror) unlink(key resourceKey, e *entry) {
	drop(m.byOwner, e.Identity.Owner, key)
	for _, id := range references(e.Observed) {
		drop(m.usedBy, id, key)
	}
}

// replace takes over a whole list that was begun at the given tick: what the list lacks is gone, unless it was written after
// the list began; what was removed after that stays removed. It returns what was added or changed, and what is gone.
func (m *mirror) replace(listed []plan.Observed, begun uint64) (changed, gone []plan.Observed) {
	seen := make(map[resourceKey]bool, len(listed))
	for _, o := range listed {
		key := resourceKey{o.Kind, o.ID}
		seen[key] = true
		if m.removed[key] > begun {
			continue
		}
		if e := m.entries[key]; e != nil && e.written > begun {
			continue
		}
		if m.put(o) {
			changed = append(changed, o)
		}
	}
	for key, e := range m.entries {
		if !seen[key] && e.written <= begun {
			gone = append(gone, e.Observed)
		}
	}
	for _, o := range gone {
		m.remove(o.Kind, o.ID)
	}
	maps.DeleteFunc(m.removed, func(_ resourceKey, at uint64) bool { return at <= begun })
	return changed, gone
}

// owned returns all resources of an owner, in a stable order.
func (m *mirror) owned(owner plan.Owner) []plan.Observed { return m.collect(m.byOwner[owner]) }

// dependants returns the resources that refer to the one with this id, in a stable order.
func (m *mirror) dependants(_ drivers.Kind, id string) []plan.Observed {
	return m.collect(m.usedBy[id])
}

func (m *mirror) collect(keys map[resourceKey]bool) []plan.Observed {
	out := make([]plan.Observed, 0, len(keys))
	for key := range keys {
		out = append(out, m.entries[key].Observed)
	}
	slices.SortFunc(out, compareObserved)
	return out
}

func compareObserved(a, b plan.Observed) int {
	switch {
	case a.Kind != b.Kind:
		return compareText(string(a.Kind), string(b.Kind))
	case a.Identity.Name != b.Identity.Name:
		return compareText(a.Identity.Name, b.Identity.Name)
	case a.CreatedAt != b.CreatedAt:
		return compareText(a.CreatedAt, b.CreatedAt)
	default:
		return compareText(a.ID, b.ID)
	}
}

func compareText(a, b string) int {
	if a < b {
		return -1
	}
	if a > b {
		return 1
	}
	return 0
}

// find returns the resource of an owner by kind and identity name: of twins the one that others use, else the oldest.
func (m *mirror) find(identity plan.Identity, kind drivers.Kind) (plan.Observed, bool) {
	want := identity.Key()
	var best plan.Observed
	found := false
	for key := range m.byOwner[identity.Owner] {
		if key.kind != kind {
			continue
		}
		o := m.entries[key].Observed
		if o.Identity.Key() != want {
			continue
		}
		if !found || m.prefers(o, best) {
			best, found = o, true
		}
	}
	return best, found
}

func (m *mirror) prefers(a, b plan.Observed) bool {
	aUsed, bUsed := len(m.usedBy[a.ID]) > 0, len(m.usedBy[b.ID]) > 0
	if aUsed != bUsed {
		return aUsed
	}
	return compareObserved(a, b) < 0
}

// references lists the ids of other resources that a resource cannot be without.
func references(o plan.Observed) []string {
	var ids []string
	text := func(v any) {
		if s, ok := v.(string); ok && s != "" {
			ids = append(ids, s)
		}
	}
	for _, name := range []string{
		"network_id", "subnet_id", "subnetpool_id", "router_id", "security_group_id", "remote_group_id", "port_id",
		"floating_network_id",
	} {
		text(o.Attrs[name])
	}
	if list, ok := o.Attrs["fixed_ips"].([]any); ok {
		for _, item := range list {
			if fixed, ok := item.(map[string]any); ok {
				text(fixed["subnet_id"])
			}
		}
	}
	if list, ok := o.Attrs["security_groups"].([]any); ok {
		for _, item := range list {
			text(item)
		}
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}

// keep drops the attributes that neither a plan compares nor a document shows, which for 10,000 ports is most of the memory.
func keep(kind drivers.Kind, attrs map[string]any) map[string]any {
	kept := drivers.Document(kind, attrs)
	for _, attribute := range drivers.Schema(kind) {
		if v, ok := attrs[attribute.Name]; ok {
			kept[attribute.Name] = v
		}
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
