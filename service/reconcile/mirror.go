package reconcile

import (
	"cmp"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/kuryr/raven/drivers"
	"github.com/kuryr/raven/service/openstack/neutron"
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
	// pending are creates that have been asked for, by the ids that they refer to and their own: what they use is in use.
	pending map[string]map[string]plan.Observed
	tick    uint64
}

func newMirror() *mirror {
	return &mirror{
		entries: map[resourceKey]*entry{},
		byOwner: map[plan.Owner]map[resourceKey]bool{},
		usedBy:  map[string]map[resourceKey]bool{},
		removed: map[resourceKey]uint64{},
		pending: map[string]map[string]plan.Observed{},
	}
}

// begin notes a create that is about to be asked for. Until it ends it counts as a resource with an id of its own.
func (m *mirror) begin(step plan.Step) plan.Observed {
	m.tick++
	o := plan.Observed{
		Kind: step.Kind, ID: fmt.Sprintf("create %d", m.tick), Identity: step.Identity, Managed: true, Attrs: step.Attrs,
	}
	for _, id := range references(o) {
		if m.pending[id] == nil {
			m.pending[id] = map[string]plan.Observed{}
		}
		m.pending[id][o.ID] = o
	}
	return o
}

// end forgets a create, however it ended.
func (m *mirror) end(o plan.Observed) {
	for _, id := range references(o) {
		if delete(m.pending[id], o.ID); len(m.pending[id]) == 0 {
			delete(m.pending, id)
		}
	}
}

// put adds or replaces a resource. It says whether it was written to since, and whether it is new or has other attributes.
func (m *mirror) put(o plan.Observed) (changed, differs bool) {
	m.tick++
	o.Kind = kindOf(o)
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
	differs = old == nil || !reflect.DeepEqual(old.Attrs, o.Attrs) || o.Kind == drivers.KindLoadBalancer && old.Status != o.Status
	return differs || old.Revision != o.Revision || !slices.Equal(old.Tags, o.Tags) || old.Description != o.Description, differs
}

// kindOf tells ports of ours that somebody else attached to a router from router interfaces: it is the identity that counts.
func kindOf(o plan.Observed) drivers.Kind {
	if o.Kind == drivers.KindRouterInterface && o.Managed && !strings.HasPrefix(o.Identity.Name, neutron.InterfacePrefix) {
		return drivers.KindPort
	}
	return o.Kind
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
// the list began; what was removed after that stays removed. It returns what was written to since it was known, those of it
// that are new or have other attributes, and what is gone.
func (m *mirror) replace(listed []plan.Observed, begun uint64) (changed, different, gone []plan.Observed) {
	seen := make(map[resourceKey]bool, len(listed))
	for _, o := range listed {
		o.Kind = kindOf(o)
		key := resourceKey{o.Kind, o.ID}
		seen[key] = true
		if m.removed[key] > begun {
			continue
		}
		if e := m.entries[key]; e != nil && e.written > begun {
			continue
		}
		written, differs := m.put(o)
		if written {
			changed = append(changed, o)
		}
		if differs {
			different = append(different, o)
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
	return changed, different, gone
}

// get returns a resource as it is known.
func (m *mirror) get(kind drivers.Kind, id string) (plan.Observed, bool) {
	e := m.entries[resourceKey{kind, id}]
	if e == nil {
		return plan.Observed{}, false
	}
	return e.Observed, true
}

// ofKind returns all resources of a kind.
func (m *mirror) ofKind(kind drivers.Kind) []plan.Observed {
	var list []plan.Observed
	for key, e := range m.entries {
		if key.kind == kind {
			list = append(list, e.Observed)
		}
	}
	return list
}

// owned returns all resources of an owner, in a stable order.
func (m *mirror) owned(owner plan.Owner) []plan.Observed { return m.collect(m.byOwner[owner]) }

// dependants returns the resources that refer to the one with this id, in a stable order; those that are being made as well.
func (m *mirror) dependants(_ drivers.Kind, id string) []plan.Observed {
	out := m.collect(m.usedBy[id])
	being := slices.Collect(maps.Values(m.pending[id]))
	slices.SortFunc(being, compareObserved)
	return append(out, being...)
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
	return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Identity.Name, b.Identity.Name),
		cmp.Compare(a.CreatedAt, b.CreatedAt), cmp.Compare(a.ID, b.ID))
}

// find returns the resource of an owner by kind and identity name: of twins the one that plan keeps.
func (m *mirror) find(identity plan.Identity, kind drivers.Kind) (plan.Observed, bool) {
	want := identity.Key()
	var twins []plan.Observed
	for key := range m.byOwner[identity.Owner] {
		if key.kind != kind {
			continue
		}
		if o := m.entries[key].Observed; o.Identity.Key() == want {
			twins = append(twins, o)
		}
	}
	switch len(twins) {
	case 0:
		return plan.Observed{}, false
	case 1:
		return twins[0], true
	}
	slices.SortFunc(twins, compareObserved)
	return twins[kinds.Keeper(twins, m.dependants)], true
}

// subnetsOf returns the subnets of a network.
func (m *mirror) subnetsOf(network string) []plan.Observed {
	var list []plan.Observed
	for key := range m.usedBy[network] {
		if key.kind == drivers.KindSubnet {
			list = append(list, m.entries[key].Observed)
		}
	}
	return list
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
		"floating_network_id", "vip_subnet_id", "vip_network_id", "group_id",
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
	for _, name := range []string{"security_groups", "vip_sg_ids"} {
		for _, item := range listOf(o.Attrs[name]) {
			text(item)
		}
	}
	for _, list := range membersAndVIPs(o) {
		for _, item := range list {
			m, _ := item.(map[string]any)
			text(m["subnet_id"])
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
	if kind == drivers.KindLoadBalancer {
		keepParts(kept)
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
