package plan

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// balancing plans the parts of one load balancer that exists and stays.
type balancing struct {
	c       *computer
	m       *match
	mend    bool
	pools   map[string]map[string]any // what is there and stays, by name
	going   []map[string]any          // listeners that go
	frozen  map[Part]bool             // pools and listeners, by kind and name, that stay in ERROR for now: they take no change
	ordered [steps][]Step
}

// The order in which the steps on parts are taken: endpoints first, then what takes away, then what adds, from the pools to the
// listeners that lead to them; and at last the pools that listeners which stay have led to until then.
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

// balance plans what makes the parts of a load balancer as they should be. Steps that only have to be taken one after another
// do not wait for each other: each makes the load balancer Busy, so whoever applies them takes the first and plans anew.
func (c *computer) balance(m *match) {
	b := &balancing{c: c, m: m, mend: m.desired.Mend != MendNot, pools: map[string]map[string]any{}, frozen: map[Part]bool{}}
	first := len(c.plan.Steps)
	b.vip()
	if pools, managed := m.desired.Attrs["pools"].([]any); managed {
		b.allPools(pools)
	}
	if listeners, managed := m.desired.Attrs["listeners"].([]any); managed {
		b.allListeners(listeners)
	}
	for _, list := range b.ordered {
		c.plan.Steps = append(c.plan.Steps, list...)
	}
	condition, why := ConditionOf(m.observed)
	c.hold(m, condition, why, first)
	if condition == Broken && m.desired.Mend == MendFailover {
		c.plan.Steps = append(c.plan.Steps, Step{
			Op: Failover, Kind: m.id.kind, Identity: m.desired.Identity, ID: m.observed.ID, Reason: why, Mends: true,
		})
	}
}

// hold has the steps on a load balancer that takes no change wait for it.
func (c *computer) hold(m *match, condition Condition, why string, first int) {
	if condition == Ready || condition == Partial {
		return
	}
	wait := Wait{
		Busy:    &Resource{Kind: m.id.kind, ID: m.observed.ID, Identity: m.observed.Identity},
		Message: fmt.Sprintf("waiting for load balancer %q: %s", name(m), why),
	}
	found := false
	for i := range c.plan.Steps {
		s := &c.plan.Steps[i]
		if s.ID == m.observed.ID && s.Kind == m.id.kind {
			s.Waits = append(s.Waits, wait)
			found = found || i >= first
		}
	}
	if !found {
		c.plan.Pending = append(c.plan.Pending, wait)
	}
}

func name(m *match) string {
	if s, ok := m.observed.Attrs["name"].(string); ok && s != "" {
		return s
	}
	return m.desired.Identity.Name
}

func (b *balancing) step(at int, op Op, part Part, attrs map[string]any, reason string, waits ...Wait) {
	of := Part{Kind: part.Kind, Name: part.Name}
	if of.Kind == Members || of.Kind == Monitor {
		of.Kind = Pool
	}
	if b.frozen[of] {
		waits = append(waits, Wait{Message: fmt.Sprintf("waiting for %s, which is in ERROR", of)})
	}
	b.ordered[at] = append(b.ordered[at], Step{
		Op: op, Kind: b.m.id.kind, Identity: b.m.desired.Identity, ID: b.m.observed.ID, Part: &part, Attrs: attrs, Reason: reason,
		Waits: distinct(waits), Mends: reason == inError,
	})
}

// vip plans the security groups of the VIP's port. Providers set some of their own until the load balancer is ready.
func (b *balancing) vip() {
	want, managed := b.m.desired.Attrs["vip_sg_ids"]
	have, shown := b.m.observed.Attrs["vip_sg_ids"]
	if !managed || !shown {
		return
	}
	value, waits := b.c.resolve(want)
	if len(waits) == 0 && canonical("vip_sg_ids", value, true) == canonical("vip_sg_ids", have, true) {
		return
	}
	part := Part{Kind: VIPPort, ID: textAt(b.m.observed.Attrs, "vip_port_id")}
	b.step(stepVIP, Update, part, map[string]any{"vip_sg_ids": value}, "its security groups differ", waits...)
}

// ours says whether a part was made by us: then it goes when it is not wanted. Others' parts stay.
func (b *balancing) ours(doc map[string]any) bool {
	id, ok := Parse(nil, textAt(doc, "description"))
	return ok && id.Key() == b.m.id.key
}

// existing pairs the parts that are wanted with those that are there, and returns those that are to go. Of twins the first that is used
// stays, else the first.
func (b *balancing) existing(list string, wanted map[string]bool, used map[string]bool) (byName map[string]map[string]any, gone []map[string]any) {
	byName = map[string]map[string]any{}
	docs := structures(b.m.observed.Attrs[list])
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
		case b.ours(doc):
			gone = append(gone, doc)
		}
	}
	return byName, gone
}

// led lists the ids of the pools that listeners lead to which are wanted.
func (b *balancing) led() map[string]bool {
	listeners, _ := b.m.desired.Attrs["listeners"].([]any)
	wanted, pools := names(structures(listeners)), map[string]bool{}
	for _, doc := range structures(b.m.observed.Attrs["listeners"]) {
		if wanted[textAt(doc, "name")] {
			pools[textAt(doc, "default_pool_id")] = true
		}
	}
	return pools
}

func names(list []map[string]any) map[string]bool {
	set := make(map[string]bool, len(list))
	for _, element := range list {
		set[textAt(element, "name")] = true
	}
	return set
}

func (b *balancing) allPools(list []any) {
	wanted := structures(list)
	led := b.led()
	there, gone := b.existing("pools", names(wanted), led)
	for _, doc := range gone {
		at := stepUnpool
		if led[textAt(doc, "id")] {
			at = stepUnpoolLast
		}
		b.remove(at, Pool, doc, "nobody wants it any more")
	}
	for _, want := range wanted {
		have := there[textAt(want, "name")]
		switch why := b.unfit(Part{Kind: Pool, Name: textAt(want, "name")}, want, have, "protocol"); {
		case have == nil:
			b.addPool(want)
		case why != "":
			b.remove(stepUnpool, Pool, have, why)
			b.addPool(want, Wait{Message: fmt.Sprintf("waiting for the old pool %q to go", textAt(have, "name"))})
		default:
			b.pools[textAt(want, "name")] = have
			b.frozen[Part{Kind: Pool, Name: textAt(want, "name")}] = have["provisioning_status"] == statusError
			b.changePool(want, have)
		}
	}
}

// unfit says why a part cannot become what is wanted, and "" if it can.
func (b *balancing) unfit(p Part, want, have map[string]any, immutable ...string) string {
	if have == nil {
		return ""
	}
	for _, name := range immutable {
		if d := (difference{name: name, old: have[name], new: want[name]}); canonical(name, want[name], false) != canonical(name, have[name], false) {
			return d.String() + ", which cannot be changed in place"
		}
	}
	if b.mends(p) && have["provisioning_status"] == statusError {
		return inError
	}
	return ""
}

// mends says whether a part is made anew that is in ERROR.
func (b *balancing) mends(p Part) bool {
	return b.mend && !slices.Contains(b.m.desired.Rests, Part{Kind: p.Kind, Name: p.Name})
}

func (b *balancing) remove(at int, kind PartKind, doc map[string]any, reason string) {
	if !b.c.Prune {
		b.c.plan.Held++
		return
	}
	b.step(at, Delete, Part{Kind: kind, Name: textAt(doc, "name"), ID: textAt(doc, "id")}, nil, reason)
}

func (b *balancing) addPool(want map[string]any, waits ...Wait) {
	attrs := maps.Clone(want)
	delete(attrs, "members")
	delete(attrs, "healthmonitor")
	if textAt(structure(attrs["session_persistence"]), "type") == "" {
		delete(attrs, "session_persistence")
	}
	b.step(stepPool, Create, Part{Kind: Pool, Name: textAt(want, "name")}, attrs, "there is no such pool yet", waits...)
}

// structure is a value as a map; nil where it is none.
func structure(value any) map[string]any {
	m, _ := value.(map[string]any)
	return m
}

func (b *balancing) changePool(want, have map[string]any) {
	part := Part{Kind: Pool, Name: textAt(want, "name"), ID: textAt(have, "id")}
	changes, reason := changes(want, have, "lb_algorithm", "admin_state_up")
	if wanted, managed := want["session_persistence"]; managed && !covered(wanted, have["session_persistence"]) {
		changes["session_persistence"] = none(wanted)
		reason = append(reason, difference{name: "session_persistence", old: have["session_persistence"], new: none(wanted)}.String())
	}
	if len(changes) > 0 {
		b.step(stepPool, Update, part, changes, strings.Join(reason, " and "))
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
		if canonical(name, value, false) != canonical(name, part(have, name), false) {
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
		if !managed || canonical(name, value, true) == canonical(name, have[name], true) {
			continue
		}
		changed[name] = value
		reason = append(reason, difference{name: name, old: have[name], new: value}.String())
	}
	return changed, reason
}

func (b *balancing) monitor(pool Part, want, have map[string]any) {
	wanted, managed := want["healthmonitor"]
	if !managed {
		return
	}
	there, attrs := structure(have["healthmonitor"]), structure(wanted)
	part := Part{Kind: Monitor, Name: pool.Name, Pool: pool.ID, ID: textAt(there, "id")}
	switch why := b.unfit(part, attrs, there, "type"); {
	case none(wanted) == nil && there == nil:
	case none(wanted) == nil:
		b.step(stepMonitor, Delete, part, nil, "nobody wants it any more")
	case there == nil:
		b.step(stepMonitor, Create, part, attrs, "there is none yet")
	case why != "":
		b.step(stepMonitor, Delete, part, nil, why)
	default:
		changed, reason := changes(attrs, there, "delay", "timeout", "max_retries", "max_retries_down", "http_method", "url_path", "expected_codes")
		if len(changed) > 0 {
			b.step(stepMonitor, Update, part, changed, strings.Join(reason, " and "))
		}
	}
}

func (b *balancing) allListeners(list []any) {
	wanted := structures(list)
	there, gone := b.existing("listeners", names(wanted), nil)
	for _, doc := range gone {
		b.unlisten(doc, "nobody wants it any more")
	}
	var missing []map[string]any
	for _, want := range wanted {
		have := there[textAt(want, "name")]
		switch why := b.unfit(Part{Kind: Listener, Name: textAt(want, "name")}, want, have, "protocol", "protocol_port"); {
		case have == nil:
			missing = append(missing, want)
		case why != "":
			b.unlisten(have, why)
			missing = append(missing, want)
		default:
			b.frozen[Part{Kind: Listener, Name: textAt(want, "name")}] = have["provisioning_status"] == statusError
			b.changeListener(want, have)
		}
	}
	for _, want := range missing {
		b.listen(want)
	}
}

func (b *balancing) unlisten(doc map[string]any, reason string) {
	b.going = append(b.going, doc)
	b.remove(stepUnlisten, Listener, doc, reason)
}

// poolID returns the id of the pool that a listener leads to; nil for none. It is not there yet as long as there is a wait.
func (b *balancing) poolID(want map[string]any) (any, []Wait) {
	name := textAt(want, "default_pool")
	if name == "" {
		return nil, nil
	}
	pool := b.pools[name]
	if pool == nil {
		return nil, []Wait{{Message: fmt.Sprintf("waiting for pool %q", name)}}
	}
	return pool["id"], nil
}

func (b *balancing) listen(want map[string]any) {
	attrs := maps.Clone(want)
	delete(attrs, "default_pool")
	id, waits := b.poolID(want)
	if id != nil {
		attrs["default_pool_id"] = id
	}
	for _, doc := range b.going {
		if transport(doc) == transport(want) {
			waits = append(waits, Wait{Message: fmt.Sprintf("waiting for listener %q to go, which has the same port", textAt(doc, "name"))})
		}
	}
	b.step(stepListen, Create, Part{Kind: Listener, Name: textAt(want, "name")}, attrs, "there is no such listener yet", waits...)
}

// transport is what only one listener can have.
func transport(listener map[string]any) string {
	protocol := textAt(listener, "protocol")
	if protocol != "UDP" && protocol != "SCTP" {
		protocol = "TCP"
	}
	return protocol + " " + canonical("protocol_port", listener["protocol_port"], false)
}

func (b *balancing) changeListener(want, have map[string]any) {
	changed, reason := changes(want, have, "connection_limit", "allowed_cidrs", "timeout_client_data", "timeout_member_connect",
		"timeout_member_data", "timeout_tcp_inspect", "admin_state_up")
	id, waits := b.poolID(want)
	if len(waits) > 0 || canonical("id", id, false) != canonical("id", have["default_pool_id"], false) {
		changed["default_pool_id"] = id
		reason = append(reason, fmt.Sprintf("it does not lead to pool %q", textAt(want, "default_pool")))
	}
	if len(changed) > 0 {
		part := Part{Kind: Listener, Name: textAt(want, "name"), ID: textAt(have, "id")}
		b.step(stepListen, Update, part, changed, strings.Join(reason, " and "), waits...)
	}
}
