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

// match is a desired resource with what stands for it in the cloud.
type match struct {
	id       id
	desired  *Desired
	observed *Observed // nil: there is none
	diffs    []difference
	// replaced says why the observed one has to go first; empty: it may stay.
	replaced string
	// beside says that the other one is made while this one is still there.
	beside bool
	// cause is what else goes and takes this one with it; nil: it goes for its own sake.
	cause *Observed
}

// computer holds one computation.
type computer struct {
	Input
	schemas map[drivers.Kind][]drivers.Attribute
	matches []*match
	// going are the observed resources that should not be there (any more), by their cloud id, with the reason.
	going map[string]departure
	// instead maps a twin that goes to the one that is kept.
	instead map[string]string
	plan    Plan
}

// departure is a resource that goes. With a cause it must not go before the cause can: who stays with the cause needs it, such
// as the pods on a subnet their gateway.
type departure struct {
	observed *Observed
	reason   string
	cause    *Observed // nil: it goes for its own sake
}

// Compute returns the steps from what is observed to what is desired. Applying every ready step and computing anew leads, by
// and by, to a plan without steps; a crash after any step does as well.
//
// For a kind that replaces, the old resource goes first: names, addresses and ranges of the two would clash. A resource whose
// policy in the cloud is retain is never deleted, not even to be replaced; its create then waits for a person.
func Compute(in Input) Plan {
	c := newComputer(in)
	observed := c.group()
	c.match(observed)
	c.replace()
	for _, m := range c.matches {
		c.present(m)
	}
	c.departures()
	slices.SortStableFunc(c.plan.Steps, before)
	return c.plan
}

func newComputer(in Input) *computer {
	return &computer{
		Input: in, schemas: map[drivers.Kind][]drivers.Attribute{}, going: map[string]departure{}, instead: map[string]string{},
	}
}

// group sorts what is managed by identity; the oldest of twins comes first. When it is known whose resources are desired, what
// has another owner is left out: a caller's mistake must not delete what is not this owner's.
func (c *computer) group() map[id][]*Observed {
	groups := make(map[id][]*Observed, len(c.Observed))
	for i := range c.Observed {
		o := &c.Observed[i]
		if !o.Managed || o.ID == "" {
			continue
		}
		at := id{kindOf(o), o.Identity.Key()}
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

// kindOf tells router interfaces from the ports that they are. It is the identity that counts: a port of ours that somebody
// else attached to a router is still that port.
func kindOf(o *Observed) drivers.Kind {
	switch {
	case o.Kind != drivers.KindPort && o.Kind != drivers.KindRouterInterface:
		return o.Kind
	case strings.HasPrefix(o.Identity.Name, InterfacePrefix):
		return drivers.KindRouterInterface
	case o.Managed:
		return drivers.KindPort
	}
	return o.Kind
}

// match pairs desired and observed, expands subnets, and notes what is left over.
func (c *computer) match(observed map[id][]*Observed) {
	seen := map[id]bool{}
	add := func(d *Desired) {
		d.Identity.Name = LogicalName(d.Kind, d.Identity.Name)
		at := id{d.Kind, d.Identity.Key()}
		if d.Kind == drivers.KindLookup || seen[at] {
			return
		}
		seen[at] = true
		m := &match{id: at, desired: d}
		m.observed = c.choose(d, observed[at])
		delete(observed, at)
		c.matches = append(c.matches, m)
	}
	for _, d := range c.Desired {
		add(&d)
	}
	for _, d := range c.Desired {
		if d.Kind != drivers.KindSubnet {
			continue
		}
		for _, more := range expand(d, observed) {
			add(&more)
		}
	}
	for _, group := range observed {
		for _, o := range group {
			c.going[o.ID] = departure{observed: o, reason: "nobody wants it any more"}
		}
	}
	for _, m := range c.matches {
		c.rename(m)
	}
	c.keepUnsure()
	for _, m := range c.matches {
		if m.observed != nil {
			m.diffs = c.compare(m.desired, m.observed)
			if m.desired.Bound {
				m.diffs = slices.DeleteFunc(m.diffs, func(d difference) bool { return d.immutable })
			}
			c.follow(m)
			c.leadUntil(m)
		}
	}
}

// expand returns the further subnets of an expandable one: those that exist, and one more if all are full.
func expand(base Desired, observed map[id][]*Observed) []Desired {
	var numbers []int
	for at := range observed {
		if at.kind != drivers.KindSubnet || owner(at.key) != owner(base.Identity.Key()) {
			continue
		}
		if n := ExpansionOf(at.key.Name, base.Identity.Name); n > 1 {
			numbers = append(numbers, n)
		}
	}
	slices.Sort(numbers)
	if base.Full && 1+len(numbers) < min(base.Expand, MaxExpand) {
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

// keep chooses among twins and lets the others go.
func (c *computer) keep(twins []*Observed) *Observed {
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
				c.instead[o.ID] = kept.ID
				c.going[o.ID] = departure{
					observed: o, reason: fmt.Sprintf("it is there twice: %s, which is %s, is kept", kept.ID, c.merit(kept)),
				}
			}
		}
	}
	return kept
}

func (c *computer) merit(o *Observed) string {
	if c.used(o) {
		return "in use"
	}
	return "the oldest"
}

// used says whether something hangs on a resource.
func (c *computer) used(o *Observed) bool {
	switch kindOf(o) { //nolint:exhaustive // the others show it by their dependants only
	case drivers.KindRouterInterface:
		return attached(o)
	case drivers.KindFloatingIP:
		return canonical("port_id", o.Attrs["port_id"], false) != ""
	case drivers.KindLoadBalancer: // what leads to it leads to its VIP's port
		port := canonical("vip_port_id", o.Attrs["vip_port_id"], false)
		if port != "" && c.Dependants != nil && len(c.Dependants(drivers.KindPort, port)) > 0 {
			return true
		}
	}
	return len(c.dependants(o)) > 0
}

// Keeper returns which one of twins, resources of one identity, Compute keeps: the first in use, else the oldest. The caller
// resolves refs to it. It returns -1 for none.
func Keeper(twins []Observed, dependants func(drivers.Kind, string) []Observed) int {
	if len(twins) == 0 {
		return -1
	}
	c := newComputer(Input{Dependants: dependants})
	list := make([]*Observed, len(twins))
	for i := range twins {
		list[i] = &twins[i]
	}
	slices.SortStableFunc(list, older)
	kept := c.keep(list)
	return slices.IndexFunc(twins, func(o Observed) bool { return o.ID == kept.ID })
}

func (c *computer) dependants(o *Observed) []Observed {
	if c.Dependants == nil {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(c.Dependants(kindOf(o), o.ID)), func(d Observed) bool { return d.ID == o.ID })
}

// replace decides which matched resources cannot stay: those with an immutable difference, and what of this owner uses them,
// for nothing can be deleted under its users.
func (c *computer) replace() {
	byID := make(map[string]*match, len(c.matches))
	var queue []*match
	for _, m := range c.matches {
		if m.observed == nil {
			continue
		}
		byID[m.observed.ID] = m
		m.replaced = c.immutableDifference(m)
		if condition, why := ConditionOf(m.observed); m.replaced == "" && m.id.kind == drivers.KindLoadBalancer && condition != Ready {
			m.replaced = beyond(m, condition, why)
		}
		if m.replaced == "" {
			m.replaced, m.cause = c.clinging(m)
		}
		if m.beside = m.id.kind == drivers.KindFloatingIP && m.replaced != "" && m.cause == nil; m.beside {
			continue
		}
		if m.replaced != "" {
			queue = append(queue, m)
		}
	}
	for len(queue) > 0 {
		m := queue[0]
		queue = queue[1:]
		c.going[m.observed.ID] = departure{m.observed, m.replaced, m.cause}
		if m.id.kind == drivers.KindPort || m.observed.Identity.Policy == drivers.Retain {
			continue // floating IPs leave a port by themselves; what is retained does not go
		}
		for _, user := range c.dependants(m.observed) {
			if um := byID[user.ID]; um != nil && c.drag(m, um) {
				queue = append(queue, um)
			}
		}
	}
}

// beyond says why a load balancer has to be made anew, and "" if it may stay.
func beyond(m *match, condition Condition, why string) string {
	switch {
	case condition == Leaving:
		return "it is being deleted"
	case m.desired.Mend == MendReplace && condition != Partial:
		return why
	}
	return ""
}

// drag has a user go with what it uses. It says whether the user would have stayed otherwise.
func (c *computer) drag(m, user *match) bool {
	stayed := user.replaced == ""
	if stayed {
		user.replaced = fmt.Sprintf("it uses %s %q, which is replaced", m.id.kind, m.desired.Identity.Name)
	}
	// What goes for its own sake need not stay either, unless it could not come back before the other does.
	if _, waits := c.resolve(user.desired.Attrs); stayed || user.cause == nil && len(waits) > 0 {
		user.cause = m.observed
		c.going[user.observed.ID] = departure{user.observed, user.replaced, user.cause}
	}
	return stayed
}

// immutableDifference says why a resource cannot become what is desired, and "" if it can.
func (c *computer) immutableDifference(m *match) string {
	var texts []string
	for _, d := range m.diffs {
		if d.immutable && len(d.waits) == 0 {
			texts = append(texts, d.String())
		}
	}
	if m.id.kind == drivers.KindSecurityGroupRule && m.desired.Identity.Policy == drivers.Retain &&
		m.observed.Identity.Policy != drivers.Retain {
		texts = append(texts, "policy is delete instead of retain") // a rule can neither be updated nor tagged
	}
	if len(texts) == 0 {
		return ""
	}
	return strings.Join(texts, " and ") + ", which cannot be changed in place"
}

// clinging says why a resource has to go that is made of another one, the cause, which goes, though what it should be made of
// instead is not there yet. Otherwise each would wait for the other where both ranges cannot exist side by side.
func (c *computer) clinging(m *match) (why string, cause *Observed) {
	for _, d := range m.diffs {
		if old, ok := d.old.(string); ok && d.immutable && len(d.waits) > 0 && c.leaves(old) {
			return fmt.Sprintf("its %s %s goes, and this cannot be changed in place", d.name, old), c.going[old].observed
		}
	}
	return "", nil
}

// lookup resolves a ref. What is about to be replaced does not count as there: what is made now would be made on the old one.
func (c *computer) lookup(ref drivers.Ref) (any, bool) {
	if c.Resolve == nil {
		return nil, false
	}
	value, ok := c.Resolve(ref)
	if text, isText := value.(string); ok && isText && len(c.going) > 0 {
		if kept, twin := c.instead[text]; twin {
			text, value = kept, kept
		}
		if c.leaves(text) {
			return nil, false
		}
	}
	return value, ok
}

// before orders steps: what is made or changed by kind, then what goes by kind in reverse.
func before(a, b Step) int {
	rank := func(s Step) int {
		kind := slices.Index(drivers.Kinds(), s.Kind)
		if s.Part == nil && (s.Op == Delete || s.Op == Detach) {
			return 100 - kind
		}
		return kind
	}
	order := func(s Step) int {
		if s.Part != nil {
			return 10 // they have an order of their own
		}
		return slices.Index([]Op{Tag, Failover, Update, Create, Attach, Detach, Delete}, s.Op)
	}
	return cmp.Or(rank(a)-rank(b), cmp.Compare(a.Identity.Name, b.Identity.Name), order(a)-order(b), cmp.Compare(a.ID, b.ID))
}
