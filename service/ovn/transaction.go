// SPDX-License-Identifier: Apache-2.0

package ovn

import (
	"maps"
	"slices"

	"github.com/ovn-kubernetes/libovsdb/ovsdb"

	"github.com/kuryr/raven/drivers"
	"github.com/kuryr/raven/service/ovn/nbdb"
	"github.com/kuryr/raven/service/plan"
)

// transaction gathers what becomes one transaction of the database: rows of Raven's, and references to our groups in
// rows of others, of which nothing else is touched. What many changes do to one set is one operation.
type transaction struct {
	ops  []ovsdb.Operation
	size int                        // about how many bytes of text it is
	sets map[setKey]map[string]bool // what is put in (true) or taken out of a set of references
	// taking are the load balancers that take a VIP by what is written together.
	taking map[string]taker
	// chassis are what becomes of variables, by chassis.
	chassis map[string]*variablesChange
}

type taker struct{ id, name string }

// leaveOut takes out of a load balancer the VIPs that another one has, and returns the first of them.
func (t *transaction) leaveOut(b *rowIndex, want *balancer) *ConflictError {
	id := ID(drivers.KindOVNLoadBalancer, want.identity)
	var conflict *ConflictError
	places := map[string]bool{}
	for part := range want.rows(b.templates) {
		places[rowUUID(drivers.KindOVNLoadBalancer, want.identity, part)] = true
	}
	for _, text := range slices.Sorted(maps.Keys(want.vips)) {
		v := want.vips[text]
		key := vipKey(want.group, v.protocol, v.at.String())
		other, name := b.holder(key, id, places)
		if by := t.taking[key]; other == "" && by.id != "" && by.id != id {
			other, name = by.id, by.name
		}
		if other == "" {
			if t.taking != nil {
				t.taking[key] = taker{id, want.title}
			}
			continue
		}
		delete(want.vips, text)
		if conflict == nil {
			conflict = &ConflictError{VIP: text, Holder: other, Name: name}
		}
	}
	return conflict
}

type setKey struct{ table, uuid, column string }

func (t *transaction) insert(in, uuid string, columns ovsdb.Row) {
	t.operate(ovsdb.Operation{Op: ovsdb.OperationInsert, Table: in, UUID: uuid, Row: columns})
}

func (t *transaction) update(in, uuid string, columns ovsdb.Row) {
	t.operate(ovsdb.Operation{Op: ovsdb.OperationUpdate, Table: in, Where: is(uuid), Row: columns})
}

func (t *transaction) remove(in, uuid string) {
	t.operate(ovsdb.Operation{Op: ovsdb.OperationDelete, Table: in, Where: is(uuid)})
}

// frame is about how many bytes an operation, or a reference, has beside its values.
const frame = 200

func (t *transaction) operate(op ovsdb.Operation) {
	t.ops = append(t.ops, op)
	t.size += frame
	for _, value := range op.Row {
		if texts, ok := value.(ovsdb.OvsMap); ok {
			for key, value := range texts.GoMap {
				key, _ := key.(string)
				value, _ := value.(string)
				t.size += len(key) + len(value)
			}
		}
	}
}

// refer puts a reference into a set of a row, or takes it out.
func (t *transaction) refer(in, uuid, column, to string, there bool) {
	if t.sets == nil {
		t.sets = map[setKey]map[string]bool{}
	}
	key := setKey{in, uuid, column}
	if t.sets[key] == nil {
		t.sets[key] = map[string]bool{}
	}
	t.sets[key][to] = there
	t.size += frame
}

func is(uuid string) []ovsdb.Condition {
	return []ovsdb.Condition{ovsdb.NewCondition("_uuid", ovsdb.ConditionEqual, ovsdb.UUID{GoUUID: uuid})}
}

// operations returns all of it: sets last, when what they refer to is there.
func (t *transaction) operations() []ovsdb.Operation {
	ops := slices.Concat(t.ops, t.variableOperations())
	for key, references := range t.sets {
		var mutations []ovsdb.Mutation
		for _, there := range []bool{false, true} {
			var set ovsdb.OvsSet
			for _, to := range slices.Sorted(maps.Keys(references)) {
				if references[to] == there {
					set.GoSet = append(set.GoSet, ovsdb.UUID{GoUUID: to})
				}
			}
			mutator := ovsdb.MutateOperationDelete
			if there {
				mutator = ovsdb.MutateOperationInsert
			}
			if len(set.GoSet) > 0 {
				mutations = append(mutations, *ovsdb.NewMutation(key.column, mutator, set))
			}
		}
		ops = append(ops,
			ovsdb.Operation{Op: ovsdb.OperationMutate, Table: key.table, Where: is(key.uuid), Mutations: mutations})
	}
	return ops
}

func texts(m map[string]string) ovsdb.OvsMap {
	out := ovsdb.OvsMap{GoMap: make(map[any]any, len(m))}
	for key, value := range m {
		out.GoMap[key] = value
	}
	return out
}

// columns is a row as the database takes it. Options and external ids of others are kept.
func (r row) columns(have *nbdb.LoadBalancer) ovsdb.Row {
	options, ids := map[string]string{}, map[string]string{}
	if have != nil {
		options, ids = maps.Clone(have.Options), maps.Clone(have.ExternalIDs)
		if options == nil {
			options = map[string]string{}
		}
		if ids == nil {
			ids = map[string]string{}
		}
		delete(options, affinityOption)
		delete(options, flushOption)
		delete(options, templateOption)
		delete(options, familyOption)
		delete(ids, chassisIDs)
	}
	maps.Copy(options, r.options)
	maps.Copy(ids, r.ids)
	protocol := ovsdb.OvsSet{GoSet: []any{}}
	if r.proto != "" {
		protocol.GoSet = append(protocol.GoSet, r.proto)
	}
	fields := ovsdb.OvsSet{GoSet: []any{}}
	for _, name := range r.fields {
		fields.GoSet = append(fields.GoSet, name)
	}
	columns := ovsdb.Row{
		"name": r.name, "protocol": protocol, "vips": texts(r.vips), "options": texts(options), "external_ids": texts(ids),
		"selection_fields": fields,
	}
	if have == nil {
		return columns
	}
	// Unchanged maps are not written: others may have added to them since they were read.
	if maps.Equal(options, have.Options) {
		delete(columns, "options")
	}
	if maps.Equal(ids, have.ExternalIDs) {
		delete(columns, "external_ids")
	}
	if !plain(have) {
		columns["health_check"], columns["ip_port_mappings"] = ovsdb.OvsSet{GoSet: []any{}}, texts(nil)
	}
	return columns
}

// balancer makes the rows of a load balancer as they should be, whatever is there of them. The error is a
// ConflictError where that was all but for a VIP that another one has.
func (t *transaction) balancer(b *rowIndex, wanted *balancer) error {
	g, _ := b.groupRow(wanted.group)
	if g == nil {
		return &MissingError{Rows: []string{wanted.group}}
	}
	want := *wanted // it may be built again
	want.vips = maps.Clone(wanted.vips)
	conflict := t.leaveOut(b, &want)
	rows := want.rows(b.templates)
	there := t.parts(b, &want, rows)
	for _, part := range slices.Sorted(maps.Keys(rows)) {
		r, have := rows[part], there[part]
		uuid := rowUUID(drivers.KindOVNLoadBalancer, want.identity, part)
		t.variables(b, ownerOf(uuid), r.variables)
		switch {
		case have == nil:
			t.insert(nbdb.LoadBalancerTable, uuid, r.columns(nil))
		case !r.is(have):
			uuid = have.UUID
			t.update(nbdb.LoadBalancerTable, uuid, r.columns(have))
		default:
			uuid = have.UUID
		}
		if !g.members[uuid] {
			t.refer(nbdb.LoadBalancerGroupTable, g.uuid, "load_balancer", uuid, true)
		}
		for other := range b.memberOf[uuid] {
			if other != g.uuid {
				t.refer(nbdb.LoadBalancerGroupTable, other, "load_balancer", uuid, false)
			}
		}
	}
	if conflict != nil && t.empty() {
		return conflict
	}
	return nil
}

// parts returns what is there of the wanted rows, by part, and deletes what is too many.
func (t *transaction) parts(b *rowIndex, want *balancer, rows map[string]row) map[string]*nbdb.LoadBalancer {
	there, placed := map[string]*nbdb.LoadBalancer{}, map[string]bool{}
	for part := range rows {
		uuid := rowUUID(drivers.KindOVNLoadBalancer, want.identity, part)
		if have := b.at(uuid); have != nil {
			there[part], placed[uuid] = have, true
		}
	}
	for _, have := range b.rows(ID(drivers.KindOVNLoadBalancer, want.identity)) {
		part := have.ExternalIDs[partID]
		_, wanted := rows[part]
		switch {
		case placed[have.UUID]:
		case !wanted || there[part] != nil:
			t.removeRow(b, have)
		default:
			there[part] = have
		}
	}
	return there
}

// removeBalancer deletes the rows of a load balancer.
func (t *transaction) removeBalancer(b *rowIndex, id string) {
	for _, have := range b.rows(id) {
		t.removeRow(b, have)
	}
}

// removeRow deletes a row of a load balancer, and its variables.
func (t *transaction) removeRow(b *rowIndex, have *nbdb.LoadBalancer) {
	t.remove(nbdb.LoadBalancerTable, have.UUID)
	t.variables(b, ownerOfRow(have), nil)
}

// groupWant is a group as it should be. What is nil of the lists stays as it is.
type groupWant struct {
	identity plan.Identity
	title    string
	places   map[string][]string // ids of Neutron's, by attribute
}

// group makes the row of a group, and has those join it that should. It returns the names of those that should and
// are not there.
func (t *transaction) group(b *rowIndex, want groupWant) (missing []string) {
	g, twins := b.groupRow(ID(drivers.KindOVNLoadBalancerGroup, want.identity))
	for _, uuid := range twins {
		t.removeGroup(b, uuid)
	}
	name := groupName(want.identity, want.title)
	uuid := rowUUID(drivers.KindOVNLoadBalancerGroup, want.identity, "")
	members, renamed := b.groupAt(uuid)
	switch {
	case g == nil && renamed:
		g = &group{uuid: uuid, id: ID(drivers.KindOVNLoadBalancerGroup, want.identity), members: members}
		t.update(nbdb.LoadBalancerGroupTable, uuid, ovsdb.Row{"name": name})
	case g == nil:
		g = &group{uuid: uuid, id: ID(drivers.KindOVNLoadBalancerGroup, want.identity)}
		t.insert(nbdb.LoadBalancerGroupTable, uuid, ovsdb.Row{"name": name})
	case g.name != name:
		t.update(nbdb.LoadBalancerGroupTable, g.uuid, ovsdb.Row{"name": name})
	}
	for member := range b.belongs[g.id] {
		if !g.members[member] {
			t.refer(nbdb.LoadBalancerGroupTable, g.uuid, "load_balancer", member, true)
		}
	}
	for attribute, ids := range want.places {
		missing = append(missing, t.join(b, g, tableOf(attribute), ids)...)
	}
	slices.Sort(missing)
	return missing
}

// join has those places of a table serve a group that are listed, and no others.
func (t *transaction) join(b *rowIndex, g *group, of table, ids []string) (missing []string) {
	there, wanted := b.serving(g, of), map[string]bool{}
	for _, id := range ids {
		wanted[id] = true
		if there[id] != "" {
			continue
		}
		found := false
		for uuid := range b.named[neutronPrefix+id] {
			if b.places[uuid].table == of {
				t.refer(of.name, uuid, "load_balancer_group", g.uuid, true)
				found = true
			}
		}
		if !found {
			missing = append(missing, neutronPrefix+id)
		}
	}
	for id, uuid := range there {
		if !wanted[id] {
			t.refer(of.name, uuid, "load_balancer_group", g.uuid, false)
		}
	}
	return missing
}

// removeGroup deletes a group's row, and the references to it, which would keep it.
func (t *transaction) removeGroup(b *rowIndex, uuid string) {
	for at := range b.joined[uuid] {
		t.refer(b.places[at].table.name, at, "load_balancer_group", uuid, false)
	}
	t.remove(nbdb.LoadBalancerGroupTable, uuid)
}
