// SPDX-License-Identifier: Apache-2.0

package ovn

import (
	"encoding/hex"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/ovn-kubernetes/libovsdb/ovsdb"

	"github.com/kuryr/raven/drivers"
	"github.com/kuryr/raven/service/ovn/nbdb"
)

// Backends for each chassis. A row of such VIPs is a template: in place of addresses it has names of variables, whose
// values each chassis has in its row of Chassis_Template_Var:
//
//	Load_Balancer         vips            ^raven_<row>_0a60000a:80 = ^raven_<row>_0a60000a_80
//	                      options         template=true, address-family=ipv4 or ipv6
//	                      external_ids    raven:chassis: the backends of each chassis, one VIP and chassis in a line
//	Chassis_Template_Var  variables       raven_<row>_0a60000a = 10.96.0.10, raven_<row>_0a60000a_80 = 10.244.1.7:8080
//
// <row> begins the row's UUID, so that it is known whose a variable is. Rows of Chassis_Template_Var are shared: of
// what others have in them nothing is touched, and a row stays when the last variable of Raven's is gone.
//
// A variable without a value is no name to OVN: clients on a chassis that has none are not served. Where a chassis has
// no backends, connections lead to an address that leads nowhere: without one OVN would let the packets pass to the
// router, and out of the cluster.
//
// A database without that table (OVN before 22.12) gets the backends of all chassis for all clients.
const (
	chassisIDs     = "raven:chassis"
	templateOption = "template"
	familyOption   = "address-family"
	localPart      = "-local"
	variablePrefix = "raven_"
)

// blackHole is where connections go on a chassis without backends. OVN's routers drop what is for 127.0.0.0/8; what is
// for a link-local IPv6 address never leaves the pods' own network.
func blackHole(ip4 bool) string {
	if ip4 {
		return "127.0.0.1:1"
	}
	return "[fe80::ffff:ffff:ffff:ffff]:1"
}

// variables are values by chassis and name.
type variables map[string]map[string]string

// ownerOf is the prefix of the variables of a row of Load_Balancer.
func ownerOf(uuid string) string {
	digits := strings.ReplaceAll(uuid, "-", "")
	return variablePrefix + digits[:min(len(digits), 12)] + "_"
}

// ownerOfRow is ownerOf of the UUID that a row should have.
func ownerOfRow(have *nbdb.LoadBalancer) string {
	identity, _ := identityOf(have.ExternalIDs)
	return ownerOf(rowUUID(drivers.KindOVNLoadBalancer, identity, have.ExternalIDs[partID]))
}

// names are those of the variables of a VIP: of its address, and of its backends.
func names(owner string, at netip.AddrPort) (address, backends string) {
	address = owner + hex.EncodeToString(at.Addr().AsSlice())
	return address, address + "_" + at.String()[strings.LastIndex(at.String(), ":")+1:]
}

// template puts a VIP with backends for each chassis into its row, and its variables into wanted.
func (r *row) template(owner string, v vip, wanted variables) {
	r.options[templateOption], r.options[familyOption] = "true", "ipv6"
	if v.at.Addr().Is4() {
		r.options[familyOption] = "ipv4"
	}
	address, backends := names(owner, v.at)
	port := v.at.String()[strings.LastIndex(v.at.String(), ":"):]
	r.vips["^"+address+port] = "^" + backends
	for chassis, list := range v.byChassis() {
		if wanted[chassis] == nil {
			wanted[chassis] = map[string]string{}
		}
		wanted[chassis][address] = v.at.Addr().String()
		if wanted[chassis][backends] = list; list == "" {
			wanted[chassis][backends] = blackHole(v.at.Addr().Is4())
		}
	}
}

// byChassis are the backends of a VIP by chassis; nil: all clients have the same.
func (v vip) byChassis() map[string]string {
	if v.chassis == "" {
		return nil
	}
	out := map[string]string{}
	for line := range strings.SplitSeq(v.chassis, "\n") {
		id, list, _ := strings.Cut(line, " ")
		out[id] = list
	}
	return out
}

// everyBackend is the backends of all chassis.
func (v vip) everyBackend() string {
	var all []netip.AddrPort
	for _, list := range v.byChassis() {
		for text := range strings.SplitSeq(list, ",") {
			if backend, err := netip.ParseAddrPort(text); err == nil {
				all = append(all, backend)
			}
		}
	}
	return joined(all)
}

// chassisText is the reverse of byChassis.
func chassisText(byChassis map[string]string) string {
	var lines []string
	for _, id := range slices.Sorted(maps.Keys(byChassis)) {
		lines = append(lines, id+" "+byChassis[id])
	}
	return strings.Join(lines, "\n")
}

// noteChassis adds a VIP to what a row says of the chassis of its VIPs. The lines are sorted by VIP in the end.
func noteChassis(ids map[string]string, v vip) {
	lines := slices.Collect(strings.Lines(ids[chassisIDs]))
	for line := range strings.SplitSeq(v.chassis, "\n") {
		lines = append(lines, v.at.String()+" "+line+"\n")
	}
	slices.Sort(lines)
	ids[chassisIDs] = strings.Join(lines, "")
}

// chassisOf reads back what noteChassis wrote: vip.chassis by VIP.
func chassisOf(have *nbdb.LoadBalancer) map[netip.AddrPort]string {
	byVIP := map[netip.AddrPort]map[string]string{}
	for line := range strings.Lines(have.ExternalIDs[chassisIDs]) {
		text, rest, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		id, list, _ := strings.Cut(rest, " ")
		at, err := netip.ParseAddrPort(text)
		if err != nil || id == "" {
			continue
		}
		if byVIP[at] == nil {
			byVIP[at] = map[string]string{}
		}
		byVIP[at][id] = list
	}
	out := make(map[netip.AddrPort]string, len(byVIP))
	for at, byChassis := range byVIP {
		out[at] = chassisText(byChassis)
	}
	return out
}

// vipTexts are the addresses and ports that a row serves.
func vipTexts(have *nbdb.LoadBalancer) []string {
	if local := chassisOf(have); len(local) > 0 {
		texts := make([]string, 0, len(local))
		for at := range local {
			texts = append(texts, at.String())
		}
		return texts
	}
	return slices.Collect(maps.Keys(have.Vips))
}

// chassisRow is what is known of a row of Chassis_Template_Var: its UUID and the variables of Raven's.
type chassisRow struct {
	uuid   string
	values map[string]string
}

// takeVariables takes over a row of Chassis_Template_Var as it is now; nil: it is gone.
func (b *rowIndex) takeVariables(uuid string, have *nbdb.ChassisTemplateVar, t *dirtySet) {
	before, chassis := map[string]string{}, ""
	for id, row := range b.chassis {
		if row.uuid == uuid {
			before, chassis = row.values, id
			delete(b.chassis, id)
		}
	}
	after := map[string]string{}
	if have != nil {
		chassis = have.Chassis
		for name, value := range have.Variables {
			if ownerIn(name) != "" {
				after[name] = value
			}
		}
		b.chassis[chassis] = &chassisRow{uuid, after}
	}
	note := func(name string) {
		owner := ownerIn(name)
		value, there := after[name]
		if b.variables[owner] == nil {
			b.variables[owner] = variables{}
		}
		b.variables[owner].set(chassis, name, value, there)
		if len(b.variables[owner]) == 0 {
			delete(b.variables, owner)
		}
		if id := b.owners[owner]; id != "" {
			t.balancer(id)
		}
	}
	for name, value := range before {
		if now, there := after[name]; !there || now != value {
			note(name)
		}
	}
	for name := range after {
		if _, there := before[name]; !there {
			note(name)
		}
	}
}

// set notes the value of a variable, or that it is not there.
func (v variables) set(chassis, name, value string, there bool) {
	switch {
	case there && v[chassis] == nil:
		v[chassis] = map[string]string{name: value}
	case there:
		v[chassis][name] = value
	default:
		if delete(v[chassis], name); len(v[chassis]) == 0 {
			delete(v, chassis)
		}
	}
}

// ownerIn is the prefix of a variable that says whose it is; "": it is none of Raven's.
func ownerIn(name string) string {
	const length = len(variablePrefix) + 13
	if !strings.HasPrefix(name, variablePrefix) || len(name) < length || name[length-1] != '_' {
		return ""
	}
	return name[:length]
}

func (v variables) equal(other variables) bool {
	return maps.EqualFunc(v, other, maps.Equal)
}

// variablesChange is what becomes of a chassis' row of variables. A value of nil removes the variable.
type variablesChange struct {
	uuid   string // "": there is no row yet
	values map[string]*string
}

// variables makes the variables with a prefix as they should be.
func (t *transaction) variables(b *rowIndex, owner string, wanted variables) {
	have := b.variables[owner]
	for chassis, values := range wanted {
		for name, value := range values {
			if was, there := have[chassis][name]; !there || was != value {
				t.variable(b, chassis, name, &value)
			}
		}
	}
	for chassis, values := range have {
		for name := range values {
			if _, there := wanted[chassis][name]; !there {
				t.variable(b, chassis, name, nil)
			}
		}
	}
}

func (t *transaction) variable(b *rowIndex, chassis, name string, value *string) {
	c := t.change(chassis)
	if row := b.chassis[chassis]; row != nil {
		c.uuid = row.uuid
	}
	c.values[name] = value
	t.size += frame + len(name)
}

// change is what becomes of a chassis' row.
func (t *transaction) change(chassis string) *variablesChange {
	if t.chassis == nil {
		t.chassis = map[string]*variablesChange{}
	}
	if t.chassis[chassis] == nil {
		t.chassis[chassis] = &variablesChange{values: map[string]*string{}}
	}
	return t.chassis[chassis]
}

// variableOperations are an insert or a mutation for each chassis.
func (t *transaction) variableOperations() []ovsdb.Operation {
	var ops []ovsdb.Operation
	for _, chassis := range slices.Sorted(maps.Keys(t.chassis)) {
		c, values, gone := t.chassis[chassis], map[string]string{}, ovsdb.OvsSet{}
		for _, name := range slices.Sorted(maps.Keys(c.values)) {
			if value := c.values[name]; value != nil {
				values[name] = *value
			}
			gone.GoSet = append(gone.GoSet, name)
		}
		if c.uuid == "" {
			ops = append(ops, ovsdb.Operation{
				Op: ovsdb.OperationInsert, Table: nbdb.ChassisTemplateVarTable, UUID: chassisUUID(chassis),
				Row: ovsdb.Row{"chassis": chassis, "variables": texts(values)},
			})
			continue
		}
		mutations := []ovsdb.Mutation{*ovsdb.NewMutation("variables", ovsdb.MutateOperationDelete, gone)}
		if len(values) > 0 { // what is there is not overwritten by an insert
			mutations = append(mutations, *ovsdb.NewMutation("variables", ovsdb.MutateOperationInsert, texts(values)))
		}
		ops = append(ops, ovsdb.Operation{
			Op: ovsdb.OperationMutate, Table: nbdb.ChassisTemplateVarTable, Where: is(c.uuid), Mutations: mutations,
		})
	}
	return ops
}
