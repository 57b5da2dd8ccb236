// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/kuryr/raven/drivers"
)

// Descriptor says how resources of one kind are compared, planned and remembered. The zero value of a field means the
// general behaviour. Functions in it must be pure: what they learn of the rest of the computation comes from the
// Computation that they are given.
type Descriptor struct {
	Kind drivers.Kind
	// Rank orders steps: resources of a lower rank are created first and deleted last.
	Rank int
	// Attributes are compared beside those of drivers.Schema(Kind), such as a router's routes.
	Attributes []drivers.Attribute
	// References returns the ids of other resources that a resource with these attributes cannot be without.
	References func(attrs map[string]any) []string
	// Trim drops in place what changes by itself and is never compared. It must not change what attrs shares with
	// others.
	Trim func(attrs map[string]any)
	// Stable returns attributes without what changes by itself though it is compared, such as statuses of parts; nil:
	// nothing does. It must not change what it is given.
	Stable func(attrs map[string]any) map[string]any
	// Leaving says that a resource is being deleted, so that its end is no drift; nil: none is shown while it is.
	Leaving func(o *Observed) bool
	// Status says that a change of Observed.Status alone counts as a difference.
	Status bool
	// Serial says that the steps on one resource are taken one at a time.
	Serial bool
	// Idempotent says that the cloud refuses a second create with the same identity, so that one with unknown outcome
	// may be repeated.
	Idempotent bool
	// Contributions says whether other owners add to lists of these resources, and how it is known whose an element is.
	Contributions ContributionMode
	// Contributed are the lists of ids that others add to, where Contributions is Plain.
	Contributed []string
	// Alternative is the kind whose resources serve instead of these: of one owner there are never both at once.
	Alternative drivers.Kind

	// StoredAs is the kind that the cloud keeps these resources as; those are told from others of that kind by the
	// NamePrefix of the Name in their Identity.
	StoredAs   drivers.Kind
	NamePrefix string
	// ReadOnly says that operators name these resources: no step is ever planned for one.
	ReadOnly bool
	// Fixed says that a resource can neither be updated nor tagged, so that not even another policy can be written to
	// it.
	Fixed bool
	// Beside says that one which has to be replaced is kept until the new one is there.
	Beside bool
	// CreateFirst says that of one owner's resources the new ones are made before old ones are deleted, so that nothing
	// is missing in between. New ones that are refused for good keep none, nor do others for longer than a while.
	CreateFirst bool
	// Container is what a resource is deleted with.
	Container Container
	// Releases are the kinds whose resources the cloud takes off one of this kind when that is deleted: they do not
	// hold it up.
	Releases []drivers.Kind

	// Form is the canonical form of the texts of attributes.
	Form Form
	// Nullable says of which attributes an empty text is written as null.
	Nullable func(name string) bool
	// Matchers compare attributes by more than their canonical form.
	Matchers map[string]Matcher
	// Uncompared are attributes that are not compared: the cloud never shows them, or Extend compares them.
	Uncompared []string
	// Deferred are attributes that a create does not wait for: references in them that do not resolve are left to a
	// later step.
	Deferred []string

	// Stays says that a resource is kept though no Set names it; nil: none is.
	Stays func(c *Computation, o *Observed) bool
	// Spare says that nothing is lost with a resource, so that the mass-deletion guard does not count it.
	Spare bool
	// Full says of an expandable resource that one more like it is wanted; nil: the kind cannot be expanded.
	Full func(d *Desired) bool
	// InUse says whether anything uses a resource, and replaces the general answer, which is whether there are
	// dependants.
	InUse func(c *Computation, o *Observed) bool
	// Choose returns which of twins is kept, and has the others go. There are at least two, the oldest first.
	Choose func(c *Computation, d *Desired, twins []*Observed) *Observed
	// Adopt may give a match without an observed resource one that would go otherwise.
	Adopt func(c *Computation, m *Match)
	// Compare replaces the general comparison.
	Compare func(c *Computation, d *Desired, o *Observed) []Difference
	// Wanted returns what of an attribute's value is wanted now, for instance without elements that wait for something.
	Wanted func(c *Computation, name string, value any) any
	// Refine changes the differences of a match, or has them wait.
	Refine func(c *Computation, m *Match)
	// Usable says whether references may lead to a resource as it is now, which a Set wants as the spec says; nil: as soon
	// as it is there.
	Usable func(spec drivers.Spec, o *Observed) bool
	// Unfit says why a resource without immutable difference has to be replaced nevertheless; "": it may stay.
	Unfit func(m *Match) string
	// Body returns what is written to create a resource, and what else the create waits for. It may change attrs.
	Body func(c *Computation, m *Match, attrs map[string]any) (map[string]any, []Wait)
	// Clash says whether the cloud would refuse a resource with the wanted attributes beside one with the others; nil:
	// never.
	Clash func(want, have map[string]any) bool
	// Extend plans further steps for a match, behind the general ones.
	Extend func(c *Computation, m *Match)
	// Retained plans what has to be done to a resource that is retained though it is not wanted any more; reason says
	// why it is not.
	Retained func(c *Computation, o *Observed, reason string)
	// Depart changes the step that deletes a resource.
	Depart func(c *Computation, o *Observed, s *Step)
}

// ContributionMode says how lists of a resource are kept to which other owners add.
type ContributionMode int

// The ways to keep contributions.
const (
	NoContributions ContributionMode = iota
	Marked                           // by tags of the resource, which say whose an element is
	Plain                            // by the list alone
)

// Container is the kind of resource that contains others, which are deleted with it, and the attribute of those that
// has its id.
type Container struct {
	Kind      drivers.Kind
	Attribute string
}

// Matcher says whether the wanted value of an attribute and the observed one are the same. Where they are not, it
// returns what to write.
type Matcher func(d *Desired, o *Observed, want, have any) (write any, same bool)

// Kinds is what is known of kinds of resources. It does not change.
type Kinds struct {
	descriptors map[drivers.Kind]*Descriptor
	schemas     map[drivers.Kind][]drivers.Attribute
	stored      map[drivers.Kind]*storage
	prefixes    []string
	general     Descriptor
}

// storage is a kind of the cloud that resources of several kinds are kept as.
type storage struct {
	base    drivers.Kind
	special []*Descriptor
}

// NewKinds returns what is known of the kinds that are described. It panics when one is described twice.
func NewKinds(list ...Descriptor) *Kinds {
	k := &Kinds{
		descriptors: make(map[drivers.Kind]*Descriptor, len(list)), schemas: map[drivers.Kind][]drivers.Attribute{},
		stored: map[drivers.Kind]*storage{},
	}
	for _, kind := range drivers.Kinds() {
		k.schemas[kind] = drivers.Schema(kind)
	}
	for _, d := range list {
		if k.descriptors[d.Kind] != nil {
			panic(fmt.Sprintf("kind %s is described twice", d.Kind))
		}
		k.descriptors[d.Kind] = &d
		k.schemas[d.Kind] = slices.Concat(k.schemas[d.Kind], d.Attributes)
		if d.StoredAs == "" {
			continue
		}
		if k.stored[d.StoredAs] == nil {
			k.stored[d.StoredAs] = &storage{base: d.StoredAs}
		}
		k.stored[d.Kind] = k.stored[d.StoredAs]
		k.stored[d.StoredAs].special = append(k.stored[d.StoredAs].special, &d)
		k.prefixes = append(k.prefixes, d.NamePrefix)
	}
	return k
}

// Of returns the descriptor of a kind. It is never nil: a kind that is not described has the general behaviour.
func (k *Kinds) Of(kind drivers.Kind) *Descriptor {
	if d := k.descriptors[kind]; d != nil {
		return d
	}
	return &k.general
}

// List returns the descriptors by rank.
func (k *Kinds) List() []Descriptor {
	list := make([]Descriptor, 0, len(k.descriptors))
	for _, kind := range slices.Sorted(maps.Keys(k.descriptors)) {
		list = append(list, *k.descriptors[kind])
	}
	slices.SortStableFunc(list, func(a, b Descriptor) int { return a.Rank - b.Rank })
	return list
}

// Schema returns the attributes of a kind, those beside its spec's included. The caller must not change it.
func (k *Kinds) Schema(kind drivers.Kind) []drivers.Attribute { return k.schemas[kind] }

// KindOf tells resources of a kind that is stored as another one from those of that other kind. It is the identity that
// counts: a port of this cluster that an operator attached to a router is still that port.
func (k *Kinds) KindOf(o *Observed) drivers.Kind {
	s := k.stored[o.Kind]
	if s == nil {
		return o.Kind
	}
	for _, d := range s.special {
		if strings.HasPrefix(o.Identity.Name, d.NamePrefix) {
			return d.Kind
		}
	}
	if o.Managed {
		return s.base
	}
	return o.Kind
}

// LogicalName returns the Name in the Identity of a resource of that kind with that logical name.
func (k *Kinds) LogicalName(kind drivers.Kind, name string) string {
	if prefix := k.Of(kind).NamePrefix; !strings.HasPrefix(name, prefix) {
		return prefix + name
	}
	return name
}

// StandsFor says whether a resource has a logical name, or that of an expansion of it.
func (k *Kinds) StandsFor(o Observed, logical string) bool {
	name := o.Identity.Name
	return ExpansionOf(name, logical) > 0 || slices.ContainsFunc(k.prefixes, func(prefix string) bool {
		return ExpansionOf(name, prefix+logical) > 0
	})
}

// IDs returns a function that lists the ids at some paths of a resource's attributes, sorted and each once. A path is a
// name, or names that lead through lists: "network_id", "security_groups[]", "pools[].members[].subnet_id".
func IDs(paths ...string) func(attrs map[string]any) []string {
	compiled := make([][]string, len(paths))
	for i, path := range paths {
		compiled[i] = strings.Split(path, ".")
	}
	return func(attrs map[string]any) []string {
		var ids []string
		for _, path := range compiled {
			ids = appendIDs(ids, attrs, path)
		}
		slices.Sort(ids)
		return slices.Compact(ids)
	}
}

func appendIDs(ids []string, at any, path []string) []string {
	if len(path) == 0 {
		if id, ok := at.(string); ok && id != "" {
			return append(ids, id)
		}
		return ids
	}
	name, each := strings.CutSuffix(path[0], "[]")
	value := Field(at, name)
	if !each {
		return appendIDs(ids, value, path[1:])
	}
	switch list := value.(type) {
	case []any:
		for _, element := range list {
			ids = appendIDs(ids, element, path[1:])
		}
	case []string:
		for _, element := range list {
			ids = appendIDs(ids, element, path[1:])
		}
	}
	return ids
}
