// SPDX-License-Identifier: Apache-2.0

package octavia

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/kuryr/raven/service/plan"
)

// partsPlan plans the parts of one load balancer that exists and stays.
type partsPlan struct {
	c     *plan.Computation
	m     *plan.Match
	hints Hints
	pools map[string]map[string]any // what is there and stays, by name
	going []map[string]any          // listeners that go
	// unchangeable are pools and listeners, by kind and name, that stay in ERROR for now: they take no change.
	unchangeable map[plan.Part]bool
	ordered      [steps][]plan.Step
}

// The order in which the steps on parts are taken: endpoints first, then removals, then additions, from the
// pools to the listeners that lead to them; and at last the pools that listeners which stay have led to until then.
const (
	stepVIP = iota
	stepMembers
	stepUnlisten
	stepUnpool
	stepPool
	stepMonitor
	stepListen
	stepUnpoolLast
	steps
)

// balance plans what makes the parts of a load balancer as they should be. Steps that only have to be taken one after
// another do not wait for each other: each makes the load balancer Busy, so whoever applies them takes the first and
// plans anew.
func balance(c *plan.Computation, m *plan.Match) {
	b := &partsPlan{
		c: c, m: m, hints: HintsOf(m.Desired), pools: map[string]map[string]any{}, unchangeable: map[plan.Part]bool{},
	}
	first := len(c.Plan.Steps)
	b.vip()
	if pools, managed := m.Desired.Attrs["pools"].([]any); managed {
		b.allPools(pools)
	}
	if listeners, managed := m.Desired.Attrs["listeners"].([]any); managed {
		b.allListeners(listeners)
	}
	for _, list := range b.ordered {
		c.Add(list...)
	}
	condition, why := ConditionOf(m.Observed)
	hold(c, m, condition, why, first)
	if condition == Broken && b.hints.Repair == RepairFailover {
		c.Plan.Steps = append(c.Plan.Steps, plan.Step{
			Op: plan.Failover, Kind: m.Kind, Identity: m.Desired.Identity, ID: m.Observed.ID, Reason: why, Repairs: true,
		})
	}
}

// hold has the steps on a load balancer that takes no change wait for it.
func hold(c *plan.Computation, m *plan.Match, condition Condition, why string, first int) {
	if condition == Ready || condition == Partial {
		return
	}
	wait := plan.Wait{
		Busy:    &plan.Resource{Kind: m.Kind, ID: m.Observed.ID, Identity: m.Observed.Identity},
		Message: fmt.Sprintf("waiting for load balancer %q: %s", name(m), why),
	}
	found := false
	for i := range c.Plan.Steps {
		s := &c.Plan.Steps[i]
		if s.ID == m.Observed.ID && s.Kind == m.Kind {
			s.Waits = append(s.Waits, wait)
			found = found || i >= first
		}
	}
	if !found {
		c.Plan.Pending = append(c.Plan.Pending, wait)
	}
}

func name(m *plan.Match) string {
	if s, ok := m.Observed.Attrs["name"].(string); ok && s != "" {
		return s
	}
	return m.Desired.Identity.Name
}

func (b *partsPlan) step(at int, op plan.Op, part plan.Part, attrs map[string]any, reason string, waits ...plan.Wait) {
	of := plan.Part{Kind: part.Kind, Name: part.Name}
	if of.Kind == Members || of.Kind == Monitor {
		of.Kind = Pool
	}
	if b.unchangeable[of] {
		waits = append(waits, plan.Wait{Message: fmt.Sprintf("waiting for %s, which is in ERROR", of)})
	}
	b.ordered[at] = append(b.ordered[at], plan.Step{
		Op: op, Kind: b.m.Kind, Identity: b.m.Desired.Identity, ID: b.m.Observed.ID, Part: &part, Attrs: attrs,
		Reason: reason, Waits: waits, Repairs: reason == inError,
	})
}

// vip plans the security groups of the VIP's port. Providers set some of their own until the load balancer is ready.
func (b *partsPlan) vip() {
	want, managed := b.m.Desired.Attrs["vip_sg_ids"]
	have, shown := b.m.Observed.Attrs["vip_sg_ids"]
	if !managed || !shown {
		return
	}
	value, waits := b.c.Value(want)
	if len(waits) == 0 && canonicalSet("vip_sg_ids", value) == canonicalSet("vip_sg_ids", have) {
		return
	}
	part := plan.Part{Kind: VIPPort, ID: textAt(b.m.Observed.Attrs, "vip_port_id")}
	b.step(stepVIP, plan.Update, part, map[string]any{"vip_sg_ids": value}, "its security groups differ", waits...)
}

// managed says whether Raven made a part: then Raven deletes it when it is not wanted. Others' parts stay.
func (b *partsPlan) managed(doc map[string]any) bool {
	id, ok := plan.Parse(nil, textAt(doc, "description"))
	return ok && id.Key() == b.m.Key
}

// existing pairs the parts that are wanted with those that are there, and returns those that are to go. Of twins the
// first that is used stays, else the first.
func (b *partsPlan) existing(list string, wanted, used map[string]bool) (
	byName map[string]map[string]any, gone []map[string]any,
) {
	byName = map[string]map[string]any{}
	docs := structures(b.m.Observed.Attrs[list])
	slices.SortStableFunc(docs, func(x, y map[string]any) int {
		switch first, second := used[textAt(x, "id")], used[textAt(y, "id")]; {
		case first && !second:
			return -1
		case second && !first:
			return 1
		}
		return 0
	})
	for _, doc := range docs {
		name := textAt(doc, "name")
		switch _, twice := byName[name]; {
		case wanted[name] && !twice:
			byName[name] = doc
		case b.managed(doc):
			gone = append(gone, doc)
		}
	}
	return byName, gone
}

// led lists the ids of the pools that listeners lead to which are wanted.
func (b *partsPlan) led() map[string]bool {
	listeners, _ := b.m.Desired.Attrs["listeners"].([]any)
	wanted, pools := namesOf(structures(listeners)), map[string]bool{}
	for _, doc := range structures(b.m.Observed.Attrs["listeners"]) {
		if wanted[textAt(doc, "name")] {
			pools[textAt(doc, "default_pool_id")] = true
		}
	}
	return pools
}

func namesOf(list []map[string]any) map[string]bool {
	set := make(map[string]bool, len(list))
	for _, element := range list {
		set[textAt(element, "name")] = true
	}
	return set
}

func (b *partsPlan) allPools(list []any) {
	wanted := structures(list)
	led := b.led()
	there, gone := b.existing("pools", namesOf(wanted), led)
	for _, doc := range gone {
		at := stepUnpool
		if led[textAt(doc, "id")] {
			at = stepUnpoolLast
		}
		b.remove(at, Pool, doc, "it is no longer desired")
	}
	for _, want := range wanted {
		have := there[textAt(want, "name")]
		switch why := b.unfit(plan.Part{Kind: Pool, Name: textAt(want, "name")}, want, have, "protocol"); {
		case have == nil:
			b.addPool(want)
		case why != "":
			b.remove(stepUnpool, Pool, have, why)
			b.addPool(want, plan.Wait{Message: fmt.Sprintf("waiting for the old pool %q to go", textAt(have, "name"))})
		default:
			b.pools[textAt(want, "name")] = have
			b.unchangeable[plan.Part{Kind: Pool, Name: textAt(want, "name")}] = have["provisioning_status"] == statusError
			b.changePool(want, have)
		}
	}
}

// unfit says why a part cannot become what is wanted, and "" if it can.
func (b *partsPlan) unfit(p plan.Part, want, have map[string]any, immutable ...string) string {
	if have == nil {
		return ""
	}
	for _, name := range immutable {
		if canonical(name, want[name]) != canonical(name, have[name]) {
			return plan.Difference{Name: name, Old: have[name], New: want[name]}.String() + ", which cannot be changed in place"
		}
	}
	if b.recreates(p) && have["provisioning_status"] == statusError {
		return inError
	}
	return ""
}

// recreates says whether a part that is in ERROR is deleted and created.
func (b *partsPlan) recreates(p plan.Part) bool {
	return b.hints.Repair != RepairNone && !slices.Contains(b.hints.Resting, plan.Part{Kind: p.Kind, Name: p.Name})
}

func (b *partsPlan) remove(at int, kind plan.PartKind, doc map[string]any, reason string) {
	if !b.c.Prune {
		b.c.Plan.Held++
		return
	}
	b.step(at, plan.Delete, plan.Part{Kind: kind, Name: textAt(doc, "name"), ID: textAt(doc, "id")}, nil, reason)
}

func (b *partsPlan) addPool(want map[string]any, waits ...plan.Wait) {
	attrs := maps.Clone(want)
	delete(attrs, "members")
	delete(attrs, "healthmonitor")
	if textAt(structure(attrs["session_persistence"]), "type") == "" {
		delete(attrs, "session_persistence")
	}
	part := plan.Part{Kind: Pool, Name: textAt(want, "name")}
	b.step(stepPool, plan.Create, part, attrs, "there is no such pool yet", waits...)
}

// structure is a value as a map; nil where it is none.
func structure(value any) map[string]any {
	m, _ := value.(map[string]any)
	return m
}

func (b *partsPlan) changePool(want, have map[string]any) {
	part := plan.Part{Kind: Pool, Name: textAt(want, "name"), ID: textAt(have, "id")}
	changes, reason := changes(want, have, "lb_algorithm", "admin_state_up")
	if wanted, managed := want["session_persistence"]; managed && !covered(wanted, have["session_persistence"]) {
		changes["session_persistence"] = none(wanted)
		d := plan.Difference{Name: "session_persistence", Old: have["session_persistence"], New: none(wanted)}
		reason = append(reason, d.String())
	}
	if len(changes) > 0 {
		b.step(stepPool, plan.Update, part, changes, strings.Join(reason, " and "))
	}
	b.monitor(part, want, have)
	b.members(part, want, have)
}

// none is nil for a structure without a type, which stands for none.
func none(value any) any {
	if textAt(structure(value), "type") == "" {
		return nil
	}
	return value
}

// covered says whether a structure has what is given of the wanted one.
func covered(want, have any) bool {
	if none(want) == nil {
		return textAt(structure(have), "type") == ""
	}
	for name, value := range structure(want) {
		if canonical(name, value) != canonical(name, plan.Field(have, name)) {
			return false
		}
	}
	return true
}

// changes returns what differs of the attributes that are given.
func changes(want, have map[string]any, attributes ...string) (changed map[string]any, reason []string) {
	changed = map[string]any{}
	for _, name := range attributes {
		value, managed := want[name]
		if !managed || canonicalSet(name, value) == canonicalSet(name, have[name]) {
			continue
		}
		changed[name] = value
		reason = append(reason, plan.Difference{Name: name, Old: have[name], New: value}.String())
	}
	return changed, reason
}

func (b *partsPlan) monitor(pool plan.Part, want, have map[string]any) {
	wanted, managed := want["healthmonitor"]
	if !managed {
		return
	}
	there, attrs := structure(have["healthmonitor"]), structure(wanted)
	part := plan.Part{Kind: Monitor, Name: pool.Name, Pool: pool.ID, ID: textAt(there, "id")}
	switch why := b.unfit(part, attrs, there, "type"); {
	case none(wanted) == nil && there == nil:
	case none(wanted) == nil:
		b.step(stepMonitor, plan.Delete, part, nil, "it is no longer desired")
	case there == nil:
		b.step(stepMonitor, plan.Create, part, attrs, "there is none yet")
	case why != "":
		b.step(stepMonitor, plan.Delete, part, nil, why)
	default:
		changed, reason := changes(attrs, there, "delay", "timeout", "max_retries", "max_retries_down", "http_method",
			"url_path", "expected_codes")
		if len(changed) > 0 {
			b.step(stepMonitor, plan.Update, part, changed, strings.Join(reason, " and "))
		}
	}
}

func (b *partsPlan) allListeners(list []any) {
	wanted := structures(list)
	there, gone := b.existing("listeners", namesOf(wanted), nil)
	for _, doc := range gone {
		b.unlisten(doc, "it is no longer desired")
	}
	var missing []map[string]any
	for _, want := range wanted {
		have := there[textAt(want, "name")]
		part := plan.Part{Kind: Listener, Name: textAt(want, "name")}
		switch why := b.unfit(part, want, have, "protocol", "protocol_port"); {
		case have == nil:
			missing = append(missing, want)
		case why != "":
			b.unlisten(have, why)
			missing = append(missing, want)
		default:
			b.unchangeable[plan.Part{Kind: Listener, Name: textAt(want, "name")}] = have["provisioning_status"] == statusError
			b.changeListener(want, have)
		}
	}
	for _, want := range missing {
		b.listen(want)
	}
}

func (b *partsPlan) unlisten(doc map[string]any, reason string) {
	b.going = append(b.going, doc)
	b.remove(stepUnlisten, Listener, doc, reason)
}

// poolID returns the id of the pool that a listener leads to; nil for none. It is not there yet as long as there is a
// wait.
func (b *partsPlan) poolID(want map[string]any) (any, []plan.Wait) {
	name := textAt(want, "default_pool")
	if name == "" {
		return nil, nil
	}
	pool := b.pools[name]
	if pool == nil {
		return nil, []plan.Wait{{Message: fmt.Sprintf("waiting for pool %q", name)}}
	}
	return pool["id"], nil
}

func (b *partsPlan) listen(want map[string]any) {
	attrs := maps.Clone(want)
	delete(attrs, "default_pool")
	id, waits := b.poolID(want)
	if id != nil {
		attrs["default_pool_id"] = id
	}
	for _, doc := range b.going {
		if transport(doc) == transport(want) {
			waits = append(waits, plan.Wait{
				Message: fmt.Sprintf("waiting for listener %q to go, which has the same port", textAt(doc, "name")),
			})
		}
	}
	part := plan.Part{Kind: Listener, Name: textAt(want, "name")}
	b.step(stepListen, plan.Create, part, attrs, "there is no such listener yet", waits...)
}

// transport is what only one listener can have.
func transport(listener map[string]any) string {
	protocol := textAt(listener, "protocol")
	if protocol != "UDP" && protocol != "SCTP" {
		protocol = "TCP"
	}
	return protocol + " " + canonical("protocol_port", listener["protocol_port"])
}

func (b *partsPlan) changeListener(want, have map[string]any) {
	changed, reason := changes(want, have, "connection_limit", "allowed_cidrs", "timeout_client_data",
		"timeout_member_connect", "timeout_member_data", "timeout_tcp_inspect", "admin_state_up")
	id, waits := b.poolID(want)
	if len(waits) > 0 || canonical("id", id) != canonical("id", have["default_pool_id"]) {
		changed["default_pool_id"] = id
		reason = append(reason, fmt.Sprintf("it does not lead to pool %q", textAt(want, "default_pool")))
	}
	if len(changed) > 0 {
		part := plan.Part{Kind: Listener, Name: textAt(want, "name"), ID: textAt(have, "id")}
		b.step(stepListen, plan.Update, part, changed, strings.Join(reason, " and "), waits...)
	}
}
