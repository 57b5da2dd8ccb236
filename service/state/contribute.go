// SPDX-License-Identifier: Apache-2.0

package state

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/kuryr/raven/drivers"
	"github.com/kuryr/raven/service/plan"
)

// The account of contributed elements is kept on the resource itself, by one tag per element: a mark. So it is known
// after a restart which elements Raven put there for others, and which are not Raven's:
//
//	attribute              set by the resource's owner     not set by it (a router's routes)
//	contributed now        beside the owner's elements     beside what is there; marked first, put there then
//	marked, not now        goes, once all have answered    goes, once all have answered; then the mark
//	neither                goes: the attribute is managed  stays: it is an operator's
//
// An element with Replace takes the place of those that the owner gives, and of those that are there if the owner
// gives none; what was there then does not come back when the contribution goes. A resource that an operator named (a
// lookup) is never changed. Neutron keeps fifty tags of a resource, so that there can be maxElements contributions to
// it.
const (
	addMark     = "raven:add="
	replaceMark = "raven:replace="
	maxElements = 40
)

// element is one contributed element.
type element struct {
	attribute string
	value     any
	replace   bool
	key       string // of the value, for comparing
	mark      string
}

// contribute merges into a resource what other owners add to it.
func (tx *Tx) contribute(w *Want, r drivers.Resource, d *plan.Desired) {
	switch tx.kinds.Of(d.Kind).Contributions {
	case plan.Plain:
		tx.contributePlain(w, r, d)
		return
	case plan.Marked:
	case plan.NoContributions:
		return
	}
	there, exists := tx.Cache.Find(d.Identity, d.Kind)
	marks := marksOf(there.Tags)
	elements := tx.elementsFor(w, r, there)
	if len(elements)+len(marks) == 0 {
		return
	}
	if len(elements) > maxElements {
		w.Conflicts = append(w.Conflicts, fmt.Sprintf("%s %q is given %d elements by others, no more than %d are possible",
			d.Kind, r.Name, len(elements), maxElements))
		elements = elements[:maxElements]
	}
	complete := tx.Complete()
	wanted := map[string]bool{}
	byAttribute := map[string][]element{}
	for _, el := range elements {
		wanted[el.mark] = true
		byAttribute[el.attribute] = append(byAttribute[el.attribute], el)
	}
	for mark := range marks {
		if _, known := byAttribute[attributeOf(mark)]; !known {
			byAttribute[attributeOf(mark)] = nil
		}
	}
	stale := map[string]bool{}
	for _, name := range slices.Sorted(maps.Keys(byAttribute)) {
		m := merger{
			name: name, elements: byAttribute[name], marks: marks, wanted: wanted, complete: complete, exists: exists,
			base: tx.Known(w, d.Attrs[name]), observed: listOf(there.Attrs[name]), doc: there.Attrs, stale: stale,
		}
		m.merge(d)
		w.Deferred = w.Deferred || m.kept
	}
	if exists {
		w.mark(d, there, marks, wanted, stale)
	}
}

// mark plans the tags that keep the account.
func (w *Want) mark(d *plan.Desired, there plan.Observed, marks, wanted, stale map[string]bool) {
	var missing []string
	for _, mark := range slices.Sorted(maps.Keys(wanted)) {
		if !marks[mark] {
			missing = append(missing, mark)
		}
	}
	if len(missing)+len(stale) == 0 {
		return
	}
	step := plan.Step{
		Op: plan.Tag, Kind: d.Kind, Identity: d.Identity, ID: there.ID, Revision: there.Revision,
		Attrs: map[string]any{}, Reason: "the account of what others contribute to it",
	}
	if len(missing) > 0 {
		step.Attrs["tags"] = missing
	}
	if len(stale) > 0 {
		step.Attrs["remove"] = slices.Sorted(maps.Keys(stale))
	}
	w.Marks = append(w.Marks, step)
}

// merger works out one attribute.
type merger struct {
	name     string
	elements []element
	marks    map[string]bool
	wanted   map[string]bool
	complete bool
	exists   bool
	base     any // what the owner wants; nil: nothing, the attribute is not its concern
	observed []any
	doc      map[string]any
	stale    map[string]bool // out: marks that have served
	kept     bool            // out
}

// foundation puts what contributions are added to: the Set's own list, or else what the cloud has that none of them
// made.
func (m *merger) foundation(put func(string, any)) {
	if m.base != nil {
		for _, value := range listOf(m.base) {
			put(m.key(value), value)
		}
		return
	}
	for _, value := range m.observed {
		if key := m.key(value); !m.marked(key) {
			put(key, value)
		}
	}
}

func (m *merger) merge(d *plan.Desired) {
	managed := m.base != nil
	if !managed && !m.exists {
		return // what the cloud chooses first is not known yet
	}
	keys := map[string]bool{}
	var list []any
	put := func(key string, value any) {
		if !keys[key] {
			keys[key] = true
			list = append(list, value)
		}
	}
	if !m.replaced() {
		m.foundation(put)
	}
	for _, el := range m.elements {
		if managed || m.marks[el.mark] {
			put(el.key, el.value)
		}
	}
	present := map[string]bool{}
	for _, value := range m.observed {
		key := m.key(value)
		present[key] = true
		if !m.complete && m.marked(key) && !keys[key] {
			m.kept = true
			put(key, value)
		}
	}
	for mark := range m.marks {
		if attributeOf(mark) == m.name && !m.wanted[mark] && m.complete && m.served(mark, present, keys) {
			m.stale[mark] = true
		}
	}
	if list == nil {
		list = []any{}
	}
	d.Attrs[m.name] = list
}

// served says whether what a mark stands for is out of the resource, or there for another reason.
func (m *merger) served(mark string, present, wanted map[string]bool) bool {
	for key := range present {
		if (mark == markOf(false, m.name, key) || mark == markOf(true, m.name, key)) && !wanted[key] {
			return false
		}
	}
	return true
}

// replaced says whether contributed elements take the place of the owner'tx. As long as not all have answered, a mark
// counts.
func (m *merger) replaced() bool {
	if slices.ContainsFunc(m.elements, func(el element) bool {
		return el.replace && (m.base != nil || m.marks[el.mark])
	}) {
		return true
	}
	return !m.complete && slices.ContainsFunc(m.observed, func(value any) bool {
		return m.marks[markOf(true, m.name, m.key(value))]
	})
}

func (m *merger) marked(key string) bool {
	return m.marks[markOf(false, m.name, key)] || m.marks[markOf(true, m.name, key)]
}

func (m *merger) key(value any) string { return elementKey(value, m.doc) }

// elementsFor lists what others contribute to a resource, as far as it is known, in a stable order.
func (tx *Tx) elementsFor(w *Want, r drivers.Resource, there plan.Observed) []element {
	if len(tx.contributions) == 0 {
		return nil
	}
	var elements []element
	seen := map[string]bool{}
	for role := range tx.rolesBehind(w.Owner, r) {
		for id, list := range tx.contributions[role] {
			o := tx.objects[id]
			if o == nil {
				continue
			}
			names := tx.Names(id, o.Set)
			for _, c := range list {
				value, ok := tx.Known(names, drivers.Element(c)), true
				if _, open := value.(drivers.Ref); open {
					ok = false // it joins when it is there
				}
				el := element{attribute: c.Attribute, value: value, replace: c.Mode == drivers.Replace}
				el.key = elementKey(value, there.Attrs)
				el.mark = markOf(el.replace, el.attribute, el.key)
				if ok && !seen[el.mark] {
					seen[el.mark] = true
					elements = append(elements, el)
				}
			}
			for key := range names.Depends {
				w.Depends[key] = true
			}
		}
	}
	slices.SortFunc(elements, func(a, b element) int { return strings.Compare(a.mark, b.mark) })
	return elements
}

// rolesBehind returns the roles under which others find a resource.
func (tx *Tx) rolesBehind(id plan.Owner, r drivers.Resource) map[drivers.Role]bool {
	roles := map[drivers.Role]bool{}
	note := func(o *Object, r drivers.Resource) {
		for _, role := range rolesOf(o.Target, r) {
			if tx.RoleConflict(role) == "" {
				roles[role] = true
			}
		}
	}
	if id.Driver != Shared {
		if o := tx.objects[id]; o != nil {
			note(o, r)
		}
		return roles
	}
	for claimant := range tx.claims[r.Name] {
		o := tx.objects[claimant]
		for _, own := range o.Set.Resources {
			if own.Claim == r.Name {
				note(o, own)
			}
		}
	}
	return roles
}

// Unmet lists, for people, the contributions of an owner that have nowhere to go.
func (tx *Tx) Unmet(w *Want) (messages []string) {
	for _, c := range w.Set.Contributions {
		target := drivers.Ref{Role: &c.Target}
		if _, ok := tx.Referred(w, target); !ok {
			messages = append(messages, fmt.Sprintf("contribution %q waits for the %s", c.Name, c.Target))
			continue
		}
		for e := range tx.roles[c.Target] {
			if tx.isLookup(e) {
				messages = append(messages, fmt.Sprintf(
					"contribution %q is not made: the %s is an existing resource that was named in the configuration, which is "+
						"never changed",
					c.Name, c.Target))
			}
		}
	}
	return messages
}

func (tx *Tx) isLookup(e exporter) bool {
	o := tx.objects[e.owner]
	return o != nil && slices.ContainsFunc(o.Set.Resources, func(r drivers.Resource) bool {
		_, lookup := r.Spec.(drivers.Lookup)
		return lookup && r.Name == e.name
	})
}

// contributePlain puts into a resource's lists what others contribute. Nothing but Raven has others join these, so
// that no account is kept; until all have answered, what is in the lists stays.
func (tx *Tx) contributePlain(w *Want, r drivers.Resource, d *plan.Desired) {
	there, _ := tx.Cache.Find(d.Identity, d.Kind)
	elements := tx.elementsFor(w, r, there)
	complete := tx.Complete()
	for _, name := range tx.kinds.Of(d.Kind).Contributed {
		ids := map[string]bool{}
		for _, value := range listOf(tx.Known(w, d.Attrs[name])) {
			if id, ok := value.(string); ok && id != "" {
				ids[id] = true
			}
		}
		for _, el := range elements {
			if id, ok := el.value.(string); ok && el.attribute == name && id != "" {
				ids[id] = true
			}
		}
		for _, value := range listOf(there.Attrs[name]) {
			if id, ok := value.(string); ok && !complete && !ids[id] {
				ids[id], w.Deferred = true, true
			}
		}
		list := make([]any, 0, len(ids))
		for _, id := range slices.Sorted(maps.Keys(ids)) {
			list = append(list, id)
		}
		d.Attrs[name] = list
	}
}

func marksOf(tags []string) map[string]bool {
	var marks map[string]bool
	for _, tag := range tags {
		if strings.HasPrefix(tag, addMark) || strings.HasPrefix(tag, replaceMark) {
			if marks == nil {
				marks = map[string]bool{}
			}
			marks[tag] = true
		}
	}
	return marks
}

// markOf returns the tag that stands for an element: at most 52 characters.
func markOf(replace bool, attribute, key string) string {
	prefix := addMark
	if replace {
		prefix = replaceMark
	}
	sum := sha256.Sum256([]byte(key))
	return prefix + attribute + ":" + hex.EncodeToString(sum[:8])
}

func attributeOf(mark string) string {
	_, rest, _ := strings.Cut(mark, "=")
	name, _, _ := strings.Cut(rest, ":")
	return name
}

// elementKey returns an element as text. Neutron writes addresses in its own way, and fills in the port's MAC address.
func elementKey(value any, doc map[string]any) string {
	switch v := value.(type) {
	case string:
		return plainAddress(v)
	case drivers.Ref:
		return "unresolved " + v.String()
	case map[string]any:
		parts := make([]string, 0, len(v))
		for _, name := range slices.Sorted(maps.Keys(v)) {
			if name != "mac_address" {
				parts = append(parts, name+" "+plainAddress(fmt.Sprint(v[name])))
			}
		}
		if _, pair := v["ip_address"]; pair {
			mac := v["mac_address"]
			if mac == nil || mac == "" {
				mac = doc["mac_address"]
			}
			parts = append(parts, "mac_address "+strings.ToLower(fmt.Sprint(mac)))
		}
		return strings.Join(parts, ", ")
	}
	return fmt.Sprint(value)
}

func plainAddress(text string) string {
	if prefix, err := netip.ParsePrefix(text); err == nil {
		if prefix.IsSingleIP() {
			return prefix.Addr().String()
		}
		return prefix.String()
	}
	if addr, err := netip.ParseAddr(text); err == nil {
		return addr.String()
	}
	return text
}

func listOf(value any) []any {
	list, _ := value.([]any)
	return list
}
