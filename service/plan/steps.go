// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/kuryr/raven/drivers"
)

// present plans what makes one desired resource be there and be right.
func (c *Computation) present(m *Match) {
	switch {
	case m.Observed == nil:
		c.create(m, fmt.Sprintf("there is no %s %q yet", m.Kind, m.Desired.Identity.Name), nil)
	case m.beside:
		c.create(m, m.Replaced, nil)
	case m.Replaced != "":
		c.recreate(m)
	default:
		c.identify(m)
		c.update(m)
	}
	if extend := c.kinds.Of(m.Kind).Extend; extend != nil {
		extend(c, m)
	}
}

// create plans a create. It waits for the refs in the attributes and for what must be there before.
func (c *Computation) create(m *Match, reason string, waits []Wait) {
	d, k := m.Desired, c.kinds.Of(m.Kind)
	attrs := make(map[string]any, len(d.Attrs)+1)
	for _, name := range slices.Sorted(maps.Keys(d.Attrs)) {
		want := d.Attrs[name]
		if k.Wanted != nil {
			want = k.Wanted(c, name, want)
		}
		value, more := c.Value(want)
		if !slices.Contains(k.Deferred, name) {
			waits = append(waits, more...)
		}
		attrs[name] = k.writable(name, value)
	}
	for _, ref := range d.After {
		if _, ok := c.lookup(ref); !ok {
			waits = append(waits, Wait{Ref: &ref, Message: fmt.Sprintf("waiting for the %s", ref)})
		}
	}
	if k.Body != nil {
		var more []Wait
		attrs, more = k.Body(c, m, attrs)
		waits = append(waits, more...)
	}
	waits = append(waits, c.handovers(m)...)
	for _, o := range c.clashes(m, attrs) {
		waits = append(waits, Wait{
			Resource: &Resource{Kind: c.KindOf(o), ID: o.ID, Identity: o.Identity},
			Message:  fmt.Sprintf("waiting for %s %s to go, which holds the same", c.KindOf(o), o.Identity),
		})
	}
	c.Add(Step{Op: Create, Kind: m.Kind, Identity: d.Identity, Attrs: attrs, Reason: reason, Waits: waits})
}

// recreate plans the create behind a replacement; departures plans the deletion.
func (c *Computation) recreate(m *Match) {
	o := m.Observed
	old := &Resource{Kind: m.Kind, ID: o.ID, Identity: o.Identity}
	wait := Wait{Resource: old, Message: fmt.Sprintf("waiting for the old %s %s to go", m.Kind, o.ID)}
	switch {
	case o.Identity.Policy == drivers.Retain:
		wait.Message = fmt.Sprintf(
			"%s %s must be deleted by hand: its policy is retain, and %s", m.Kind, o.ID, m.Replaced)
		c.identify(m) // the policy itself can change
	case !c.Prune:
		wait.Message = fmt.Sprintf("the old %s %s must go first, and deletions are held", m.Kind, o.ID)
	}
	reason := fmt.Sprintf("%s; the old one is deleted first, for names and addresses of the two would clash", m.Replaced)
	c.create(m, reason, []Wait{wait})
}

// update plans one update of all that differs, and apart from it one that waits, for what cannot be compared yet.
func (c *Computation) update(m *Match) {
	ready, blocked := map[string]any{}, map[string]any{}
	old := map[string]any{}
	var texts, names []string
	var waits []Wait
	for _, d := range m.Differences {
		if len(d.Waits) > 0 {
			blocked[d.Name] = d.New
			names = append(names, d.Name)
			waits = append(waits, d.Waits...)
			continue
		}
		ready[d.Name], old[d.Name] = d.New, d.Old
		texts = append(texts, d.String())
	}
	s := Step{Op: Update, Kind: m.Kind, Identity: m.Desired.Identity, ID: m.Observed.ID, Revision: m.Observed.Revision}
	if len(ready) > 0 {
		s.Attrs, s.Old, s.Reason = ready, old, strings.Join(texts, " and ")
		c.merge(s)
	}
	if len(blocked) > 0 {
		s.Attrs, s.Old, s.Waits = blocked, nil, distinct(waits)
		s.Reason = fmt.Sprintf("what %s should be is not known yet", strings.Join(names, ", "))
		c.Plan.Steps = append(c.Plan.Steps, s)
	}
}

// merge joins an update with one of the same resource that is planned already: the second would be stale.
func (c *Computation) merge(s Step) {
	if last := len(c.Plan.Steps) - 1; last >= 0 && c.Plan.Steps[last].ID == s.ID && c.Plan.Steps[last].Op == Update {
		maps.Copy(c.Plan.Steps[last].Attrs, s.Attrs)
		maps.Copy(c.Plan.Steps[last].Old, s.Old)
		c.Plan.Steps[last].Reason += " and " + s.Reason
		return
	}
	c.Plan.Steps = append(c.Plan.Steps, s)
}

// identify plans what makes the proof of identity whole again, and another policy be written. A description is left to
// its editors as long as the tags prove the identity; but another policy goes into the description first and then into
// the tags: until both say the same it is the tags that count, and where they say both, the description.
func (c *Computation) identify(m *Match) {
	o, d := m.Observed, m.Desired
	if c.kinds.Of(m.Kind).Fixed {
		return
	}
	step := Step{Kind: m.Kind, Identity: d.Identity, ID: o.ID, Revision: o.Revision}
	policy := effective(d.Identity.Policy)
	renamed := o.Identity.Key() != m.Key
	if renamed || effective(o.Identity.Policy) != policy {
		text, ok := Parse(nil, o.Description)
		if !ok || text.Key() != m.Key || text.Policy != policy {
			step.Op = Update
			step.Attrs = map[string]any{"description": d.Identity.Describe(o.Description)}
			step.Old = map[string]any{"description": o.Description}
			step.Reason = fmt.Sprintf("its policy is %s instead of %s", effective(o.Identity.Policy), policy)
			if renamed {
				step.Reason = fmt.Sprintf("it is %q from now on, and was %q", d.Identity.Name, o.Identity.Name)
			}
			c.Plan.Steps = append(c.Plan.Steps, step)
			return
		}
	}
	var missing, remove []string
	for _, tag := range d.Identity.Tags() {
		if !slices.Contains(o.Tags, tag) {
			missing = append(missing, tag)
		}
	}
	if len(missing) == 0 {
		return
	}
	step.Op, step.Reason = Tag, "it does not have all of its tags yet"
	for _, tag := range d.Tags {
		if !slices.Contains(o.Tags, tag) {
			missing = append([]string{tag}, missing...) // first: it is not searched for alone
		}
	}
	step.Attrs = map[string]any{"tags": missing}
	if last := missing[len(missing)-1]; strings.HasPrefix(last, policyToken) {
		if other := otherPolicy(policy); slices.Contains(o.Tags, other) {
			remove = append(remove, other)
		}
	}
	if renamed {
		for _, tag := range o.Identity.Tags() {
			stale := slices.Contains(o.Tags, tag) && !slices.Contains(d.Identity.Tags(), tag)
			if stale && !slices.Contains(remove, tag) {
				remove = append(remove, tag)
			}
		}
	}
	if len(remove) > 0 {
		step.Attrs["remove"] = remove
		step.Reason = fmt.Sprintf("its tags do not say that its policy is %s", policy)
	}
	c.Plan.Steps = append(c.Plan.Steps, step)
}

func otherPolicy(p drivers.Policy) string {
	if p == drivers.Retain {
		return policyToken + string(drivers.Delete)
	}
	return policyToken + string(drivers.Retain)
}

// departures plans the deletion of all that goes.
func (c *Computation) departures() {
	for _, key := range slices.Sorted(maps.Keys(c.going)) {
		gone := c.going[key]
		o := gone.observed
		kind := c.KindOf(o)
		k := c.kinds.Of(kind)
		if o.Identity.Policy == drivers.Retain {
			if k.Retained != nil && c.Prune {
				k.Retained(c, o, gone.reason)
			}
			continue
		}
		if container, _ := o.Attrs[k.Container.Attribute].(string); k.Container.Attribute != "" && c.Leaves(container) {
			continue // it goes with that
		}
		if !c.Prune {
			if k.Spare {
				continue
			}
			c.Plan.Held++
			if c.Alternates(o) {
				c.Plan.Replaced++
			}
			continue
		}
		s := Step{
			Op: Delete, Kind: kind, Identity: o.Identity, ID: o.ID, Revision: o.Revision, Reason: gone.reason,
			Waits: slices.Concat(c.users(o), c.stayers(gone), c.unready(o)),
		}
		if k.Depart != nil {
			k.Depart(c, o, &s)
		}
		if why := c.Blocked[o.ID]; why != "" {
			s.Waits = append(s.Waits, Wait{Busy: &Resource{Kind: kind, ID: o.ID, Identity: o.Identity}, Message: why})
		}
		c.Add(s)
	}
}

// users returns a wait for each resource of Raven's that must be gone before this one can be deleted.
func (c *Computation) users(o *Observed) []Wait {
	var waits []Wait
	kind := c.KindOf(o)
	for _, user := range c.Users(o) {
		userKind := c.KindOf(&user)
		switch {
		case c.kinds.Of(userKind).Container.Kind == kind && c.Leaves(user.ID):
			continue // goes with this one
		case c.releases(kind, userKind) && !c.Leaves(user.ID):
			continue // is wanted elsewhere
		}
		waits = append(waits, Wait{
			Resource: &Resource{Kind: userKind, ID: user.ID, Identity: user.Identity},
			Message: fmt.Sprintf(
				"waiting for %s %s to go, which uses %s %s", userKind, user.Identity, kind, o.Identity),
		})
	}
	slices.SortFunc(waits, func(a, b Wait) int { return strings.Compare(a.Resource.ID, b.Resource.ID) })
	return waits
}

// stayers returns a wait for each resource of Raven's that stays with what causes a departure, however far back: as
// long as that cannot go, what hangs on it has to stay as well.
func (c *Computation) stayers(gone departure) []Wait {
	var waits []Wait
	for cause := gone.cause; cause != nil; cause = c.going[cause.ID].cause {
		for _, wait := range c.users(cause) {
			if wait.Resource.ID != gone.observed.ID && !c.Leaves(wait.Resource.ID) {
				waits = append(waits, wait)
			}
		}
	}
	return waits
}

// distinct drops repeated waits for the same ref.
func distinct(waits []Wait) []Wait {
	var out []Wait
	for _, w := range waits {
		if !slices.ContainsFunc(out, func(o Wait) bool { return o.Message == w.Message }) {
			out = append(out, w)
		}
	}
	return out
}

// Retagged returns a resource as it is after a step that changes its tags.
func Retagged(o Observed, step Step) Observed {
	missing, _ := step.Attrs["tags"].([]string)
	remove, _ := step.Attrs["remove"].([]string)
	o.Tags = slices.DeleteFunc(slices.Clone(o.Tags), func(tag string) bool { return slices.Contains(remove, tag) })
	o.Tags = append(o.Tags, missing...)
	o.Identity, o.Managed = Parse(o.Tags, o.Description)
	return o
}
