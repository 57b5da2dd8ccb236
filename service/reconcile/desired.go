package reconcile

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/kuryr/raven/drivers"
	"github.com/kuryr/raven/service/plan"
)

// want is what an owner should have, and how its references are resolved.
type want struct {
	owner   plan.Owner
	set     drivers.Set
	desired []plan.Desired
	// lookups are the names of the Set's lookups.
	lookups map[string]drivers.Lookup
	// claimed maps a logical name to the claim behind it.
	claimed map[string]string
	kinds   map[string]drivers.Kind
	// conflicts are reasons why a reference cannot be resolved, for people.
	conflicts []string
}

// desire turns an owner's Set into what plan compares. The store is locked.
func (s *store) desire(id plan.Owner, set drivers.Set) *want {
	w := &want{
		owner: id, set: set,
		lookups: map[string]drivers.Lookup{}, claimed: map[string]string{}, kinds: map[string]drivers.Kind{},
	}
	for _, r := range set.Resources {
		w.kinds[r.Name] = r.Spec.Kind()
		if l, ok := r.Spec.(drivers.Lookup); ok {
			w.lookups[r.Name] = l
		} else if r.Claim != "" && id.Driver != sharedDriver {
			w.claimed[r.Name] = r.Claim
		}
	}
	for _, r := range set.Resources {
		if w.claimed[r.Name] != "" || r.Spec.Kind() == drivers.KindLookup {
			continue
		}
		d := plan.Desired{
			Kind: r.Spec.Kind(), Identity: s.identity(id, r), Attrs: drivers.Attributes(r.Spec), Expand: r.Expand, After: r.After,
		}
		if n, ok := s.full[identityKey(d.Kind, d.Identity)]; ok {
			d.Full = n >= s.expansions(d.Identity)
		}
		s.contribute(r, &d)
		w.desired = append(w.desired, d)
	}
	s.expandInterfaces(w)
	return w
}

func (s *store) identity(id plan.Owner, r drivers.Resource) plan.Identity {
	name := plan.LogicalName(r.Spec.Kind(), r.Name)
	return plan.Identity{Cluster: s.cluster, Owner: id, Name: name, Policy: cmp.Or(r.OnDelete, drivers.Delete)}
}

// expansions counts the subnets that stand for an expandable one.
func (s *store) expansions(base plan.Identity) int {
	n := 0
	for key := range s.cloud.byOwner[base.Owner] {
		if key.kind == drivers.KindSubnet && plan.ExpansionOf(s.cloud.entries[key].Identity.Name, base.Name) > 0 {
			n++
		}
	}
	return n
}

// expandInterfaces gives every further subnet of an expandable one the router interfaces that the first one has.
func (s *store) expandInterfaces(w *want) {
	var more []plan.Desired
	for _, r := range w.set.Resources {
		ri, ok := r.Spec.(drivers.RouterInterface)
		if !ok || r.Claim != "" && w.owner.Driver != sharedDriver || ri.SubnetID.Ref == nil || ri.SubnetID.Ref.Role != nil {
			continue
		}
		base := ri.SubnetID.Ref.Name
		for key := range s.cloud.byOwner[w.owner] {
			name := s.cloud.entries[key].Identity.Name
			n := plan.ExpansionOf(name, base)
			if key.kind != drivers.KindSubnet || n < 2 {
				continue
			}
			clone := ri
			clone.SubnetID = drivers.From(name)
			if ri.IPAddress.Ref != nil && ri.IPAddress.Ref.Name == base {
				clone.IPAddress = drivers.From(name, ri.IPAddress.Ref.Attribute)
			}
			r := r
			r.Name = fmt.Sprintf("%s.%d", r.Name, n)
			w.kinds[name] = drivers.KindSubnet
			more = append(more, plan.Desired{
				Kind: drivers.KindRouterInterface, Identity: s.identity(w.owner, r), Attrs: drivers.Attributes(clone), After: r.After,
			})
		}
	}
	slices.SortFunc(more, func(a, b plan.Desired) int { return cmp.Compare(a.Identity.Name, b.Identity.Name) })
	w.desired = append(w.desired, more...)
}

// contribute merges into a resource what other owners add to it.
func (s *store) contribute(r drivers.Resource, d *plan.Desired) {
	var elements []drivers.Contribution
	for role, byOwner := range s.extra {
		if !s.exportsRole(d.Identity.Owner, r.Name, role) {
			continue
		}
		for _, list := range byOwner {
			elements = append(elements, list...)
		}
	}
	slices.SortFunc(elements, func(a, b drivers.Contribution) int {
		return cmp.Or(cmp.Compare(a.Attribute, b.Attribute), cmp.Compare(a.Name, b.Name))
	})
	replaced := map[string]bool{}
	for _, c := range elements {
		if c.Mode == drivers.Replace && !replaced[c.Attribute] {
			replaced[c.Attribute] = true
			d.Attrs[c.Attribute] = []any{}
		}
	}
	for _, c := range elements {
		if replaced[c.Attribute] && c.Mode != drivers.Replace {
			continue
		}
		list, _ := d.Attrs[c.Attribute].([]any)
		d.Attrs[c.Attribute] = append(slices.Clone(list), drivers.Element(c))
	}
}

func (s *store) exportsRole(id plan.Owner, name string, role drivers.Role) bool {
	if id.Driver == sharedDriver {
		for e := range s.roles[role] {
			if o := s.owners[e.owner]; o != nil && slices.ContainsFunc(o.set.Resources, func(r drivers.Resource) bool {
				return r.Name == e.name && r.Claim == name
			}) {
				return true
			}
		}
		return false
	}
	return s.roles[role][exporter{id, name}]
}

// resolve returns a function that gives the value of a reference of this owner. The store is locked while it is used.
func (s *store) resolve(w *want) func(drivers.Ref) (any, bool) {
	return func(ref drivers.Ref) (any, bool) {
		o, ok := s.referred(w, ref)
		if !ok {
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

// referred finds the resource behind a reference.
func (s *store) referred(w *want, ref drivers.Ref) (plan.Observed, bool) {
	if ref.Role == nil {
		return s.named(w.owner, w.kinds[ref.Name], ref.Name, w.lookups, w.claimed)
	}
	exporters := s.exporters(*ref.Role)
	if len(exporters) != 1 {
		if len(exporters) > 1 {
			w.conflicts = append(w.conflicts, s.conflictText(*ref.Role, exporters))
		}
		return plan.Observed{}, false
	}
	e := exporters[0]
	o := s.owners[e.owner]
	if o == nil {
		return plan.Observed{}, false
	}
	for _, r := range o.set.Resources {
		if r.Name != e.name {
			continue
		}
		if l, ok := r.Spec.(drivers.Lookup); ok {
			found, ok := s.lookups[l]
			return found, ok
		}
		id, name := o.id, r.Name
		if r.Claim != "" {
			id, name = plan.Owner{Driver: sharedDriver}, r.Claim
		}
		return s.named(id, r.Spec.Kind(), name, nil, nil)
	}
	return plan.Observed{}, false
}

func (s *store) named(
	id plan.Owner, kind drivers.Kind, name string, lookups map[string]drivers.Lookup, claimed map[string]string,
) (plan.Observed, bool) {
	if l, ok := lookups[name]; ok {
		found, ok := s.lookups[l]
		return found, ok
	}
	if claim, ok := claimed[name]; ok {
		id, name = plan.Owner{Driver: sharedDriver}, claim
	}
	return s.cloud.find(plan.Identity{Cluster: s.cluster, Owner: id, Name: plan.LogicalName(kind, name)}, kind)
}

// exporters lists who stands behind a role. Claimed resources count once however many claim them.
func (s *store) exporters(role drivers.Role) []exporter {
	var list []exporter
	seen := map[string]bool{}
	for e := range s.roles[role] {
		if o := s.owners[e.owner]; o != nil {
			if claim := claimOf(o.set, e.name); claim != "" {
				if seen[claim] {
					continue
				}
				seen[claim] = true
			}
		}
		list = append(list, e)
	}
	slices.SortFunc(list, func(a, b exporter) int {
		return cmp.Or(cmp.Compare(a.owner.Driver, b.owner.Driver), cmp.Compare(a.owner.UID, b.owner.UID), cmp.Compare(a.name, b.name))
	})
	return list
}

func claimOf(set drivers.Set, name string) string {
	for _, r := range set.Resources {
		if r.Name == name {
			return r.Claim
		}
	}
	return ""
}

func (s *store) conflictText(role drivers.Role, exporters []exporter) string {
	names := make([]string, 0, len(exporters))
	for _, e := range exporters {
		names = append(names, "driver "+e.owner.Driver)
	}
	return fmt.Sprintf("the %s is exported more than once, by %s: enable only one of them", role, strings.Join(names, " and "))
}

// claimed returns a claimed resource with its references put in terms that all its claimants share: claim names and lookups.
func claimed(set drivers.Set, r drivers.Resource) drivers.Resource {
	names := map[string]string{}
	for _, other := range set.Resources {
		if other.Claim != "" {
			names[other.Name] = other.Claim
		} else if l, ok := other.Spec.(drivers.Lookup); ok {
			names[other.Name] = lookupName(l)
		}
	}
	out := r
	out.Name = r.Claim
	out.Spec = drivers.MapRefs(r.Spec, func(ref drivers.Ref) drivers.Ref {
		if name, ok := names[ref.Name]; ok && ref.Role == nil {
			ref.Name = name
		}
		return ref
	})
	out.After = slices.Clone(r.After)
	for i, ref := range out.After {
		if name, ok := names[ref.Name]; ok && ref.Role == nil {
			out.After[i].Name = name
		}
	}
	return out
}

func lookupName(l drivers.Lookup) string { return "lookup " + string(l.Of) + " " + l.ID }

// claimText is a claimed resource as text, for comparing what two claimants want.
func claimText(r drivers.Resource) string {
	text, err := json.Marshal(struct {
		Name   string
		Kind   drivers.Kind
		Spec   map[string]any
		Delete drivers.Policy
		After  []drivers.Ref
		Expand int
	}{r.Name, r.Spec.Kind(), drivers.Attributes(r.Spec), r.OnDelete, r.After, r.Expand})
	if err != nil {
		return fmt.Sprintf("%v", r)
	}
	return string(text)
}

// sharedSet joins all claims into the Set of the shared owner. Claims that disagree, or that a claimant of the newest
// generation has yet to confirm, are left out and returned as frozen: what exists of them stays as it is.
func (s *store) sharedSet() (set drivers.Set, frozen map[string]string) {
	frozen = map[string]string{}
	lookups := map[string]drivers.Lookup{}
	for name, owners := range s.claims {
		var chosen drivers.Resource
		texts := map[string][]string{}
		behind := false
		for id := range owners {
			o := s.owners[id]
			if d := s.drivers[o.item.driver]; d != nil && o.good != d.epoch {
				behind = true
			}
			for _, r := range o.set.Resources {
				if r.Claim == name {
					chosen = claimed(o.set, r)
					text := claimText(chosen)
					texts[text] = append(texts[text], o.target.String())
				} else if l, ok := r.Spec.(drivers.Lookup); ok {
					lookups[lookupName(l)] = l
				}
			}
		}
		switch {
		case len(texts) == 1:
			set.Resources = append(set.Resources, chosen)
		case behind:
			frozen[name] = fmt.Sprintf("the claims of %q differ while drivers are still answering", name)
		default:
			frozen[name] = disagreement(name, texts)
		}
	}
	for name, l := range lookups {
		set.Resources = append(set.Resources, drivers.Resource{Name: name, Spec: l})
	}
	slices.SortFunc(set.Resources, func(a, b drivers.Resource) int { return cmp.Compare(a.Name, b.Name) })
	return set, frozen
}

func disagreement(name string, texts map[string][]string) string {
	var parties []string
	for _, who := range texts {
		slices.Sort(who)
		if len(who) > 3 {
			who = append(who[:3:3], fmt.Sprintf("%d more", len(who)-3))
		}
		parties = append(parties, strings.Join(who, ", "))
	}
	slices.Sort(parties)
	return fmt.Sprintf("the claims of shared resource %q disagree: %s; give their drivers the same options",
		name, strings.Join(parties, " against "))
}

// String names the source object for people.
func (t target) String() string {
	if t.namespace == "" {
		return t.watch.Kind + " " + t.name
	}
	return t.watch.Kind + " " + t.namespace + "/" + t.name
}
