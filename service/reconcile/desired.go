package reconcile

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/kuryr/raven/drivers"
	"github.com/kuryr/raven/service/openstack/neutron"
	"github.com/kuryr/raven/service/openstack/octavia"
	"github.com/kuryr/raven/service/plan"
	"github.com/kuryr/raven/service/watch"
)

// want is what an owner should have, and how its references are resolved.
type want struct {
	owner   plan.Owner
	set     drivers.Set
	desired []plan.Desired
	// marks are the steps that keep the account of contributed elements; see contribute.
	marks []plan.Step
	// lookups are the names of the Set's lookups.
	lookups map[string]drivers.Lookup
	// claimed maps a logical name to the claim behind it.
	claimed map[string]string
	kinds   map[string]drivers.Kind
	// conflicts are reasons why something cannot be as it should, for people.
	conflicts []string
	// looked are the roles and claims that were looked up: what comes of them may change the plan.
	looked map[waitKey]bool
	// keeps says that contributed elements were kept of which nobody knows yet whether they are still wanted.
	keeps bool
}

// names returns how an owner's references are resolved. The store is locked.
func (s *store) names(id plan.Owner, set drivers.Set) *want {
	w := &want{
		owner: id, set: set, looked: map[waitKey]bool{},
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
	return w
}

// desire turns an owner's Set into what plan compares. The store is locked.
func (s *store) desire(id plan.Owner, set drivers.Set) *want {
	w := s.names(id, set)
	for _, r := range set.Resources {
		if w.claimed[r.Name] != "" || r.Spec.Kind() == drivers.KindLookup {
			continue
		}
		d := plan.Desired{
			Kind: r.Spec.Kind(), Identity: s.identity(id, r), Attrs: s.attributes(r.Spec), Expand: r.Expand, After: r.After,
		}
		if n, ok := s.full[identityKey(d.Kind, d.Identity)]; ok {
			d.Hints = neutron.SubnetHints{Full: n >= s.expansions(d.Identity)}
		}
		switch d.Kind { //nolint:exhaustive // of the others there is nothing to add
		case drivers.KindLoadBalancer:
			s.balance(w, &d)
			if there, ok := s.cloud.find(d.Identity, d.Kind); ok {
				hints := octavia.HintsOf(&d)
				hints.Unmade = s.unmade[provider(there)]
				d.Hints = hints
			}
			s.restrain(w, &d)
		case drivers.KindFloatingIP:
			if mark := s.mark(id); mark != "" {
				d.Tags = []string{mark}
			}
			if there, ok := s.cloud.find(d.Identity, d.Kind); ok && wasFound(there) {
				d.Identity.Policy = drivers.Retain
			}
		}
		s.contribute(w, r, &d)
		w.desired = append(w.desired, d)
	}
	s.expandInterfaces(w)
	return w
}

// mark is the tag that names a Service for people; empty for other objects.
func (s *store) mark(id plan.Owner) string {
	if o := s.owners[id]; o != nil && o.target.watch.Kind == "Service" {
		return plan.Mark(o.target.namespace, o.target.name)
	}
	return ""
}

// attributes returns what a spec wants, but for what the credentials may not set.
func (s *store) attributes(spec drivers.Spec) map[string]any {
	attrs := drivers.Attributes(spec)
	if s.unsupported != nil {
		for _, name := range s.unsupported(spec.Kind()) {
			delete(attrs, name)
		}
	}
	return attrs
}

func (s *store) identity(id plan.Owner, r drivers.Resource) plan.Identity {
	name := kinds.LogicalName(r.Spec.Kind(), r.Name)
	source := ""
	if o := s.owners[id]; o != nil {
		source = watch.ResourceName(o.target.watch.GVR)
	}
	return plan.Identity{Cluster: s.cluster, Owner: id, Name: name, Policy: cmp.Or(r.OnDelete, drivers.Delete), Source: source}
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
				Kind: drivers.KindRouterInterface, Identity: s.identity(w.owner, r), Attrs: s.attributes(clone), After: r.After,
			})
		}
	}
	slices.SortFunc(more, func(a, b plan.Desired) int { return cmp.Compare(a.Identity.Name, b.Identity.Name) })
	w.desired = append(w.desired, more...)
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

// referred finds the resource behind a reference, and notes that the owner depends on it.
func (s *store) referred(w *want, ref drivers.Ref) (plan.Observed, bool) {
	if ref.Role == nil {
		if claim, ok := w.claimed[ref.Name]; ok {
			w.looked[waitClaim(claim)] = true
		}
		return s.named(w, ref.Name)
	}
	w.looked[waitRole(*ref.Role)] = true
	if conflict := s.roleConflict(*ref.Role); conflict != "" {
		w.conflicts = append(w.conflicts, conflict)
		return plan.Observed{}, false
	}
	for e := range s.roles[*ref.Role] {
		return s.exported(e)
	}
	return plan.Observed{}, false
}

// exported finds the resource that an owner exports.
func (s *store) exported(e exporter) (plan.Observed, bool) {
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
		if r.Claim != "" {
			return s.find(plan.Owner{Driver: sharedDriver}, r.Spec.Kind(), r.Claim)
		}
		return s.find(o.id, r.Spec.Kind(), r.Name)
	}
	return plan.Observed{}, false
}

// named finds a resource of an owner's own Set.
func (s *store) named(w *want, name string) (plan.Observed, bool) {
	if l, ok := w.lookups[name]; ok {
		found, ok := s.lookups[l]
		return found, ok
	}
	if claim, ok := w.claimed[name]; ok {
		return s.find(plan.Owner{Driver: sharedDriver}, w.kinds[name], claim)
	}
	if slices.Contains(w.set.Undecided, name) {
		return s.standing(w, name)
	}
	return s.find(w.owner, w.kinds[name], name)
}

// standing finds what exists under a name that the Set leaves undecided: of the owner, or shared.
func (s *store) standing(w *want, name string) (plan.Observed, bool) {
	w.looked[waitClaim(name)] = true
	for _, id := range []plan.Owner{w.owner, {Driver: sharedDriver}} {
		for key := range s.cloud.byOwner[id] {
			if isNamed(s.cloud.entries[key].Observed, name) {
				return s.find(id, key.kind, name)
			}
		}
	}
	return plan.Observed{}, false
}

func (s *store) find(id plan.Owner, kind drivers.Kind, logical string) (plan.Observed, bool) {
	return s.cloud.find(plan.Identity{Cluster: s.cluster, Owner: id, Name: kinds.LogicalName(kind, logical)}, kind)
}
