// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/kuryr/raven/drivers"
)

// id names one resource of the owner, as desired and as observed.
type id struct {
	kind drivers.Kind
	key  Key
}

// Match is a desired resource with what stands for it in the cloud.
type Match struct {
	Kind     drivers.Kind
	Key      Key
	Desired  *Desired
	Observed *Observed // nil: there is none
	// Differences are those between the two.
	Differences []Difference
	// Replaced says why the observed one has to go first; empty: it may stay.
	Replaced string
	// beside says that the other one is made while this one is still there.
	beside bool
	// cause is what else goes and takes this one with it; nil: it goes for its own sake.
	cause *Observed
}

// Stays says whether the observed resource exists and is not replaced.
func (m *Match) Stays() bool { return m.Observed != nil && m.Replaced == "" && !m.beside }

// Computation is one computation of a plan, as the functions of a Descriptor see it.
type Computation struct {
	Input
	// Matches are what is desired.
	Matches []*Match
	// Plan is what was planned up to now.
	Plan  Plan
	kinds *Kinds
	// going are the observed resources that should not be there (any more), by their cloud id, with the reason.
	going map[string]departure
	// instead maps a twin that goes to the one that is kept.
	instead map[string]string
}

// departure is a resource that goes. With a cause it must not go before the cause can: who stays with the cause needs
// it, such as the pods on a subnet their gateway.
type departure struct {
	observed *Observed
	reason   string
	cause    *Observed // nil: it goes for its own sake
}

// Compute returns the steps from what is observed to what is desired. Applying every ready step and computing anew
// leads, by and by, to a plan without steps; a crash after any step does as well.
//
// For a kind that replaces, the old resource goes first: names, addresses and ranges of the two would clash. A resource
// whose policy in the cloud is retain is never deleted, not even to be replaced; its create then waits for a person.
func (k *Kinds) Compute(in Input) Plan {
	c := k.newComputation(in)
	observed := c.group()
	c.match(observed)
	c.replace()
	for _, m := range c.Matches {
		c.present(m)
	}
	c.departures()
	slices.SortStableFunc(c.Plan.Steps, k.before)
	return c.Plan
}

func (k *Kinds) newComputation(in Input) *Computation {
	return &Computation{Input: in, kinds: k, going: map[string]departure{}, instead: map[string]string{}}
}

// group sorts what is managed by identity; the oldest of twins comes first. When it is known whose resources are
// desired, what has another owner is left out: a caller's mistake must not delete what is not this owner's.
func (c *Computation) group() map[id][]*Observed {
	groups := make(map[id][]*Observed, len(c.Observed))
	for i := range c.Observed {
		o := &c.Observed[i]
		if !o.Managed || o.ID == "" {
			continue
		}
		at := id{c.KindOf(o), o.Identity.Key()}
		if len(c.Desired) > 0 && owner(at.key) != owner(c.Desired[0].Identity.Key()) {
			continue
		}
		groups[at] = append(groups[at], o)
	}
	for _, twins := range groups {
		slices.SortStableFunc(twins, older)
	}
	return groups
}

func owner(k Key) Key { k.Name = ""; return k }

func older(a, b *Observed) int {
	return cmp.Or(cmp.Compare(a.CreatedAt, b.CreatedAt), cmp.Compare(a.ID, b.ID))
}

// match pairs desired and observed, expands what can be, and notes what is left over.
func (c *Computation) match(observed map[id][]*Observed) {
	seen := map[id]bool{}
	add := func(d *Desired) {
		d.Identity.Name = c.kinds.LogicalName(d.Kind, d.Identity.Name)
		at := id{d.Kind, d.Identity.Key()}
		if seen[at] || c.kinds.Of(d.Kind).ReadOnly {
			return
		}
		seen[at] = true
		m := &Match{Kind: d.Kind, Key: at.key, Desired: d, Observed: c.choose(d, observed[at])}
		c.Matches = append(c.Matches, m)
		delete(observed, at)
	}
	for _, d := range c.Desired {
		add(&d)
	}
	for _, d := range c.Desired {
		full := c.kinds.Of(d.Kind).Full
		if full == nil {
			continue
		}
		for _, more := range expand(d, full(&d), observed) {
			add(&more)
		}
	}
	for _, group := range observed {
		for _, o := range group {
			if stays := c.kinds.Of(c.KindOf(o)).Stays; stays == nil || !stays(c, o) {
				c.going[o.ID] = departure{observed: o, reason: "it is no longer desired"}
			}
		}
	}
	for _, m := range c.Matches {
		if adopt := c.kinds.Of(m.Kind).Adopt; adopt != nil && m.Observed == nil {
			adopt(c, m)
		}
	}
	c.keepUnsure()
	for _, m := range c.Matches {
		if m.Observed == nil {
			continue
		}
		m.Differences = c.Compare(m.Desired, m.Observed)
		if refine := c.kinds.Of(m.Kind).Refine; refine != nil {
			refine(c, m)
		}
	}
}

// choose returns which of twins is kept, and has the others go.
func (c *Computation) choose(d *Desired, twins []*Observed) *Observed {
	if choose := c.kinds.Of(d.Kind).Choose; choose != nil && len(twins) > 1 {
		return choose(c, d, twins)
	}
	return c.Keep(twins)
}

// expand returns the further resources of an expandable one: those that exist, and one more if all are full.
func expand(base Desired, full bool, observed map[id][]*Observed) []Desired {
	var numbers []int
	for at := range observed {
		if at.kind != base.Kind || owner(at.key) != owner(base.Identity.Key()) {
			continue
		}
		if n := ExpansionOf(at.key.Name, base.Identity.Name); n > 1 {
			numbers = append(numbers, n)
		}
	}
	slices.Sort(numbers)
	if full && 1+len(numbers) < min(base.Expand, MaxExpand) {
		next := 2
		for slices.Contains(numbers, next) {
			next++
		}
		numbers = append(numbers, next)
	}
	more := make([]Desired, 0, len(numbers))
	for _, n := range numbers {
		d := base
		d.Identity.Name = ExpansionName(base.Identity.Name, n)
		d.Attrs = maps.Clone(base.Attrs)
		if name, ok := d.Attrs["name"].(string); ok && name != "" {
			suffix := ExpansionName("", n)
			d.Attrs["name"] = cut(name, maxText-len(suffix)) + suffix
		}
		more = append(more, d)
	}
	return more
}

// Keep chooses among twins, the oldest first, and has the others go.
func (c *Computation) Keep(twins []*Observed) *Observed {
	if len(twins) == 0 {
		return nil
	}
	kept := twins[0]
	if len(twins) > 1 {
		if i := slices.IndexFunc(twins, c.used); i >= 0 {
			kept = twins[i]
		}
		for _, o := range twins {
			if o != kept {
				c.GiveWay(o, kept, fmt.Sprintf("it is there twice: %s, which is %s, is kept", kept.ID, c.merit(kept)))
			}
		}
	}
	return kept
}

// GiveWay has a resource go for its twin that is kept; what refers to it refers to that one.
func (c *Computation) GiveWay(o, kept *Observed, reason string) {
	c.instead[o.ID] = kept.ID
	c.going[o.ID] = departure{observed: o, reason: reason}
}

func (c *Computation) merit(o *Observed) string {
	if c.used(o) {
		return "in use"
	}
	return "the oldest"
}

// used says whether something hangs on a resource.
func (c *Computation) used(o *Observed) bool {
	if inUse := c.kinds.Of(c.KindOf(o)).InUse; inUse != nil {
		return inUse(c, o)
	}
	return len(c.Users(o)) > 0
}

// Keeper returns which one of twins, resources of one identity, Compute keeps: the first in use, else the oldest. The
// caller resolves refs to it. It returns -1 for none.
func (k *Kinds) Keeper(twins []Observed, dependants func(drivers.Kind, string) []Observed) int {
	if len(twins) == 0 {
		return -1
	}
	c := k.newComputation(Input{Dependants: dependants})
	list := make([]*Observed, len(twins))
	for i := range twins {
		list[i] = &twins[i]
	}
	slices.SortStableFunc(list, older)
	kept := c.Keep(list)
	return slices.IndexFunc(twins, func(o Observed) bool { return o.ID == kept.ID })
}

// KindOf returns the kind of a resource; see Kinds.KindOf.
func (c *Computation) KindOf(o *Observed) drivers.Kind { return c.kinds.KindOf(o) }

// Users returns what uses a resource, of any owner.
func (c *Computation) Users(o *Observed) []Observed {
	return slices.DeleteFunc(c.UsersOf(c.KindOf(o), o.ID), func(d Observed) bool { return d.ID == o.ID })
}

// UsersOf returns what uses the resource of that kind with that id, of any owner.
func (c *Computation) UsersOf(kind drivers.Kind, id string) []Observed {
	if c.Dependants == nil {
		return nil
	}
	return slices.Clone(c.Dependants(kind, id))
}

// Departing returns the resources that go, or would if they were not retained, by id.
func (c *Computation) Departing() []*Observed {
	list := make([]*Observed, 0, len(c.going))
	for _, key := range slices.Sorted(maps.Keys(c.going)) {
		list = append(list, c.going[key].observed)
	}
	return list
}

// Departs says whether a resource goes, or would if it were not retained.
func (c *Computation) Departs(id string) bool {
	_, ok := c.going[id]
	return ok
}

// Stay has a resource stay that would have gone.
func (c *Computation) Stay(id string) { delete(c.going, id) }

// Leaves says whether the resource with that id goes by this owner's plan.
func (c *Computation) Leaves(id string) bool {
	gone, ok := c.going[id]
	return ok && gone.observed.Identity.Policy != drivers.Retain
}

// Add adds steps to the plan, with each wait once.
func (c *Computation) Add(steps ...Step) {
	for _, s := range steps {
		s.Waits = distinct(s.Waits)
		c.Plan.Steps = append(c.Plan.Steps, s)
	}
}

// replace decides which matched resources cannot stay: those with an immutable difference, and what of this owner uses
// them, for nothing can be deleted under its users.
func (c *Computation) replace() {
	byID := make(map[string]*Match, len(c.Matches))
	var queue []*Match
	for _, m := range c.Matches {
		if m.Observed == nil {
			continue
		}
		byID[m.Observed.ID] = m
		m.Replaced = c.immutableDifference(m)
		if unfit := c.kinds.Of(m.Kind).Unfit; m.Replaced == "" && unfit != nil {
			m.Replaced = unfit(m)
		}
		if m.Replaced == "" {
			m.Replaced, m.cause = c.clinging(m)
		}
		if m.beside = c.kinds.Of(m.Kind).Beside && m.Replaced != "" && m.cause == nil; m.beside {
			continue
		}
		if m.Replaced != "" {
			queue = append(queue, m)
		}
	}
	for len(queue) > 0 {
		m := queue[0]
		queue = queue[1:]
		c.going[m.Observed.ID] = departure{m.Observed, m.Replaced, m.cause}
		if m.Observed.Identity.Policy == drivers.Retain {
			continue // it does not go
		}
		for _, user := range c.Users(m.Observed) {
			if c.releases(m.Kind, c.KindOf(&user)) {
				continue
			}
			if um := byID[user.ID]; um != nil && c.drag(m, um) {
				queue = append(queue, um)
			}
		}
	}
}

// releases says whether the cloud takes resources of a kind off one that is deleted.
func (c *Computation) releases(kind, user drivers.Kind) bool {
	return slices.Contains(c.kinds.Of(kind).Releases, user)
}

// drag has a user go with what it uses. It says whether the user would have stayed otherwise.
func (c *Computation) drag(m, user *Match) bool {
	stayed := user.Replaced == ""
	if stayed {
		user.Replaced = fmt.Sprintf("it uses %s %q, which is replaced", m.Kind, m.Desired.Identity.Name)
	}
	// What goes for its own sake need not stay either, unless it could not come back before the other does.
	if _, waits := c.Value(user.Desired.Attrs); stayed || user.cause == nil && len(waits) > 0 {
		user.cause = m.Observed
		c.going[user.Observed.ID] = departure{user.Observed, user.Replaced, user.cause}
	}
	return stayed
}

// immutableDifference says why a resource cannot become what is desired, and "" if it can.
func (c *Computation) immutableDifference(m *Match) string {
	var texts []string
	for _, d := range m.Differences {
		if d.Immutable && len(d.Waits) == 0 {
			texts = append(texts, d.String())
		}
	}
	if c.kinds.Of(m.Kind).Fixed && m.Desired.Identity.Policy == drivers.Retain &&
		m.Observed.Identity.Policy != drivers.Retain {
		texts = append(texts, "policy is delete instead of retain")
	}
	if len(texts) == 0 {
		return ""
	}
	return strings.Join(texts, " and ") + ", which cannot be changed in place"
}

// clinging says why a resource has to go that is made of another one, the cause, which goes, though what it should be
// made of instead is not there yet. Otherwise each would wait for the other where both ranges cannot exist side by
// side.
func (c *Computation) clinging(m *Match) (why string, cause *Observed) {
	for _, d := range m.Differences {
		if old, ok := d.Old.(string); ok && d.Immutable && len(d.Waits) > 0 && c.Leaves(old) {
			why = fmt.Sprintf("its %s %s is deleted, and this cannot be changed in place", d.Name, old)
			return why, c.going[old].observed
		}
	}
	return "", nil
}

// lookup resolves a ref. What is about to be replaced does not count as there: what is made now would be made on the
// old one.
func (c *Computation) lookup(ref drivers.Ref) (any, bool) {
	if c.Resolve == nil {
		return nil, false
	}
	value, ok := c.Resolve(ref)
	if text, isText := value.(string); ok && isText && len(c.going) > 0 {
		if kept, twin := c.instead[text]; twin {
			text, value = kept, kept
		}
		if c.Leaves(text) {
			return nil, false
		}
	}
	return value, ok
}

// before orders steps: what is made or changed by rank, then what goes by rank in reverse.
func (k *Kinds) before(a, b Step) int {
	goes := func(s Step) int {
		if s.Part == nil && (s.Op == Delete || s.Op == Detach) {
			return 1
		}
		return 0
	}
	order := func(s Step) int {
		if s.Part != nil {
			return 10 // they have an order of their own
		}
		return slices.Index([]Op{Tag, Failover, Update, Create, Attach, Detach, Delete}, s.Op)
	}
	rank := k.Of(a.Kind).Rank - k.Of(b.Kind).Rank
	if goes(a) == 1 {
		rank = -rank
	}
	return cmp.Or(goes(a)-goes(b), rank, cmp.Compare(a.Identity.Name, b.Identity.Name), order(a)-order(b),
		cmp.Compare(a.ID, b.ID))
}
