package plan

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/kuryr/raven/drivers"
)

// present plans what makes one desired resource be there and be right.
func (c *computer) present(m *match) {
	switch {
	case m.observed == nil:
		c.create(m, fmt.Sprintf("there is no %s %q yet", m.id.kind, m.desired.Identity.Name), nil)
	case m.beside:
		c.create(m, m.replaced, nil)
	case m.replaced != "":
		c.recreate(m)
	default:
		c.identify(m)
		c.update(m)
		if m.id.kind == drivers.KindLoadBalancer {
			c.balance(m)
			c.ignored(m)
		}
	}
	if m.id.kind == drivers.KindRouterInterface && (m.observed == nil || m.replaced != "" || !attached(m.observed)) {
		c.attach(m)
	}
}

// create plans a create. It waits for the refs in the attributes and for what must be there before.
func (c *computer) create(m *match, reason string, waits []Wait) {
	d := m.desired
	wanted := maps.Clone(d.Attrs)
	groups, guarded := wanted["vip_sg_ids"]
	delete(wanted, "vip_sg_ids") // a load balancer's port gets them later: see vip
	if vips, given := wanted["vips"]; given && m.id.kind == drivers.KindOVNLoadBalancer {
		wanted["vips"] = c.reachable(vips)
	}
	value, more := c.resolve(wanted)
	waits = append(waits, more...)
	for _, ref := range d.After {
		if _, ok := c.lookup(ref); !ok {
			waits = append(waits, Wait{Ref: &ref, Message: fmt.Sprintf("waiting for the %s", ref)})
		}
	}
	resolved, _ := value.(map[string]any)
	if m.id.kind == drivers.KindRouterInterface {
		resolved = interfacePort(resolved)
	}
	attrs := make(map[string]any, len(resolved)+1)
	for name, value := range resolved {
		attrs[name] = writable(m.id.kind, name, value)
	}
	if guarded {
		attrs["vip_sg_ids"], _ = c.resolve(groups)
	}
	c.unlead(m, attrs)
	if gateway, ok := attrs["external_gateway_info"]; ok && canonical("network_id", part(gateway, "network_id"), false) == "" {
		delete(attrs, "external_gateway_info") // no gateway is how a router begins
	}
	if m.id.kind == drivers.KindPort || m.id.kind == drivers.KindRouterInterface {
		if canonical("mac_address", attrs["mac_address"], false) == "" {
			attrs["mac_address"] = MAC(d.Identity)
		}
	}
	waits = append(waits, c.rivals(m, attrs)...)
	waits = append(waits, c.handovers(m)...)
	for _, o := range c.clashes(m, attrs) {
		waits = append(waits, Wait{
			Resource: &Resource{Kind: kindOf(o), ID: o.ID, Identity: o.Identity},
			Message:  fmt.Sprintf("waiting for %s %s to go, which holds the same", kindOf(o), o.Identity),
		})
	}
	c.plan.Steps = append(c.plan.Steps, Step{
		Op: Create, Kind: m.id.kind, Identity: d.Identity, Attrs: attrs, Reason: reason, Waits: distinct(waits),
	})
}

// interfacePort returns the body of the port that becomes a router interface.
func interfacePort(attrs map[string]any) map[string]any {
	address := map[string]any{"subnet_id": attrs["subnet_id"]}
	if _, ref := attrs["ip_address"].(drivers.Ref); ref || canonical("ip_address", attrs["ip_address"], false) != "" {
		address["ip_address"] = attrs["ip_address"]
	}
	return map[string]any{"network_id": attrs["network_id"], "fixed_ips": []any{address}}
}

// recreate plans the create behind a replacement; departures plans the deletion.
func (c *computer) recreate(m *match) {
	o := m.observed
	old := &Resource{Kind: m.id.kind, ID: o.ID, Identity: o.Identity}
	wait := Wait{Resource: old, Message: fmt.Sprintf("waiting for the old %s %s to go", m.id.kind, o.ID)}
	switch {
	case o.Identity.Policy == drivers.Retain:
		wait.Message = fmt.Sprintf("%s %s must be deleted by hand: its policy is retain, and %s", m.id.kind, o.ID, m.replaced)
		c.identify(m) // the policy itself can change
	case !c.Prune:
		wait.Message = fmt.Sprintf("the old %s %s must go first, and deletions are held", m.id.kind, o.ID)
	}
	reason := fmt.Sprintf("%s; the old one goes first, for names and addresses of the two would clash", m.replaced)
	c.create(m, reason, []Wait{wait})
}

// attach plans to attach a router interface's port, made or not.
func (c *computer) attach(m *match) {
	router, waits := c.resolve(m.desired.Attrs["router_id"])
	s := Step{
		Op: Attach, Kind: m.id.kind, Identity: m.desired.Identity, Attrs: map[string]any{"router_id": router},
		Reason: fmt.Sprintf("the port of router interface %q is at no router yet", m.desired.Identity.Name), Waits: waits,
	}
	if m.observed == nil || m.replaced != "" {
		s.Waits = append(s.Waits, Wait{Message: fmt.Sprintf("waiting for the port of router interface %q", m.desired.Identity.Name)})
	} else {
		s.ID, s.Revision = m.observed.ID, m.observed.Revision
	}
	c.plan.Steps = append(c.plan.Steps, s)
}

// update plans one update of all that differs, and apart from it one that waits, for what cannot be compared yet.
func (c *computer) update(m *match) {
	ready, blocked := map[string]any{}, map[string]any{}
	old := map[string]any{}
	var texts, names []string
	var waits []Wait
	for _, d := range m.diffs {
		if len(d.waits) > 0 {
			blocked[d.name] = d.new
			names = append(names, d.name)
			waits = append(waits, d.waits...)
			continue
		}
		ready[d.name], old[d.name] = d.new, d.old
		texts = append(texts, d.String())
	}
	s := Step{Op: Update, Kind: m.id.kind, Identity: m.desired.Identity, ID: m.observed.ID, Revision: m.observed.Revision}
	if len(ready) > 0 {
		s.Attrs, s.Old, s.Reason = ready, old, strings.Join(texts, " and ")
		c.merge(s)
	}
	if len(blocked) > 0 {
		s.Attrs, s.Old, s.Waits = blocked, nil, distinct(waits)
		s.Reason = fmt.Sprintf("what %s should be is not known yet", strings.Join(names, ", "))
		c.plan.Steps = append(c.plan.Steps, s)
	}
}

// merge joins an update with one of the same resource that is planned already: the second would be stale.
func (c *computer) merge(s Step) {
	if last := len(c.plan.Steps) - 1; last >= 0 && c.plan.Steps[last].ID == s.ID && c.plan.Steps[last].Op == Update {
		maps.Copy(c.plan.Steps[last].Attrs, s.Attrs)
		maps.Copy(c.plan.Steps[last].Old, s.Old)
		c.plan.Steps[last].Reason += " and " + s.Reason
		return
	}
	c.plan.Steps = append(c.plan.Steps, s)
}

// identify plans what makes the proof of identity whole again, and another policy be written. A description is left to its
// editors as long as the tags prove the identity; but another policy goes into the description first and then into the tags:
// until both say the same it is the tags that count, and where they say both, the description.
func (c *computer) identify(m *match) {
	o, d := m.observed, m.desired
	if m.id.kind == drivers.KindSecurityGroupRule {
		return // has no tags, and cannot be updated
	}
	step := Step{Kind: m.id.kind, Identity: d.Identity, ID: o.ID, Revision: o.Revision}
	policy := effective(d.Identity.Policy)
	renamed := o.Identity.Key() != m.id.key
	if renamed || effective(o.Identity.Policy) != policy {
		text, ok := Parse(nil, o.Description)
		if !ok || text.Key() != m.id.key || text.Policy != policy {
			step.Op = Update
			step.Attrs = map[string]any{"description": d.Identity.Describe(o.Description)}
			step.Old = map[string]any{"description": o.Description}
			step.Reason = fmt.Sprintf("its policy is %s instead of %s", effective(o.Identity.Policy), policy)
			if renamed {
				step.Reason = fmt.Sprintf("it is %q from now on, and was %q", d.Identity.Name, o.Identity.Name)
			}
			c.plan.Steps = append(c.plan.Steps, step)
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
	step.Op, step.Reason = Tag, "its tags do not prove its identity"
	if d.Mark != "" && !slices.Contains(o.Tags, d.Mark) {
		missing = append([]string{d.Mark}, missing...) // first: nobody looks for it alone
	}
	step.Attrs = map[string]any{"tags": missing}
	if last := missing[len(missing)-1]; strings.HasPrefix(last, policyToken) {
		if other := otherPolicy(policy); slices.Contains(o.Tags, other) {
			remove = append(remove, other)
		}
	}
	if renamed {
		for _, tag := range o.Identity.Tags() {
			if slices.Contains(o.Tags, tag) && !slices.Contains(d.Identity.Tags(), tag) && !slices.Contains(remove, tag) {
				remove = append(remove, tag)
			}
		}
	}
	if len(remove) > 0 {
		step.Attrs["remove"] = remove
		step.Reason = fmt.Sprintf("its tags do not say that its policy is %s", policy)
	}
	c.plan.Steps = append(c.plan.Steps, step)
}

func otherPolicy(p drivers.Policy) string {
	if p == drivers.Retain {
		return policyToken + string(drivers.Delete)
	}
	return policyToken + string(drivers.Retain)
}

// departures plans the deletion of all that goes.
func (c *computer) departures() {
	for _, key := range slices.Sorted(maps.Keys(c.going)) {
		gone := c.going[key]
		o := gone.observed
		kind := kindOf(o)
		if kind == drivers.KindFloatingIP && o.Identity.Policy == drivers.Retain && c.Prune && canonical("port_id", o.Attrs["port_id"], false) != "" {
			c.plan.Steps = append(c.plan.Steps, Step{
				Op: Update, Kind: kind, Identity: o.Identity, ID: o.ID, Revision: o.Revision, Attrs: map[string]any{"port_id": nil},
				Old: map[string]any{"port_id": o.Attrs["port_id"]}, Reason: gone.reason + ", and it is retained: it leads nowhere from now on",
				Waits: c.successors(o),
			})
		}
		if o.Identity.Policy == drivers.Retain || kind == drivers.KindSecurityGroupRule && c.leaves(groupOf(o)) {
			continue // a rule goes with its group
		}
		if !c.Prune {
			c.plan.Held++
			if c.replaces(o) {
				c.plan.Replaced++
			}
			continue
		}
		s := Step{
			Op: Delete, Kind: kind, Identity: o.Identity, ID: o.ID, Revision: o.Revision, Reason: gone.reason,
			Waits: distinct(slices.Concat(c.users(o), c.stayers(gone), c.successors(o), c.unready(o))),
		}
		if kind == drivers.KindLoadBalancer {
			s.Waits, s.Mends = append(s.Waits, c.untouchable(o)...), gone.reason == inError || o.Status == statusError
		}
		if atRouter(o) {
			s.Op, s.Attrs = Detach, map[string]any{"router_id": o.Attrs["device_id"]}
		}
		c.plan.Steps = append(c.plan.Steps, s)
	}
}

// untouchable returns a wait where a load balancer cannot be deleted now.
func (c *computer) untouchable(o *Observed) []Wait {
	at := &Resource{Kind: o.Kind, ID: o.ID, Identity: o.Identity}
	switch {
	case o.Status == "PENDING_DELETE" || o.Status == "DELETED":
		return []Wait{{Resource: at, Message: fmt.Sprintf("waiting for load balancer %s to be gone", o.Identity)}}
	case strings.HasPrefix(o.Status, pendingPrefix):
		return []Wait{{Busy: at, Message: fmt.Sprintf("waiting for load balancer %s, which is %s", o.Identity, o.Status)}}
	case c.Resting[o.ID] != "":
		return []Wait{{Busy: at, Message: c.Resting[o.ID]}}
	}
	return nil
}

// atRouter says whether a port is at a router, so that it cannot be deleted as a port.
func atRouter(o *Observed) bool {
	device, _ := o.Attrs["device_owner"].(string)
	return attached(o) && (kindOf(o) == drivers.KindRouterInterface || strings.HasPrefix(device, "network:router_interface"))
}

// users returns a wait for each resource of ours that must be gone before this one can be deleted.
func (c *computer) users(o *Observed) []Wait {
	var waits []Wait
	kind := kindOf(o)
	for _, user := range c.dependants(o) {
		userKind := kindOf(&user)
		switch {
		case kind == drivers.KindSecurityGroup && userKind == drivers.KindSecurityGroupRule && c.leaves(user.ID):
			continue // goes with the group
		case kind == drivers.KindPort && userKind == drivers.KindFloatingIP && !c.leaves(user.ID):
			continue // is wanted elsewhere; Neutron takes it off the port
		}
		waits = append(waits, Wait{
			Resource: &Resource{Kind: userKind, ID: user.ID, Identity: user.Identity},
			Message:  fmt.Sprintf("waiting for %s %s to go, which uses %s %s", userKind, user.Identity, kind, o.Identity),
		})
	}
	slices.SortFunc(waits, func(a, b Wait) int { return strings.Compare(a.Resource.ID, b.Resource.ID) })
	return waits
}

// stayers returns a wait for each resource of ours that stays with what causes a departure, however far back: as long as that
// cannot go, what hangs on it has to stay as well.
func (c *computer) stayers(gone departure) []Wait {
	var waits []Wait
	for cause := gone.cause; cause != nil; cause = c.going[cause.ID].cause {
		for _, wait := range c.users(cause) {
			if wait.Resource.ID != gone.observed.ID && !c.leaves(wait.Resource.ID) {
				waits = append(waits, wait)
			}
		}
	}
	return waits
}

// leaves says whether the resource with that id goes by this owner's plan.
func (c *computer) leaves(id string) bool {
	gone, ok := c.going[id]
	return ok && gone.observed.Identity.Policy != drivers.Retain
}

func groupOf(o *Observed) string {
	text, _ := o.Attrs["security_group_id"].(string)
	return text
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
