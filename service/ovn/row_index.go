// SPDX-License-Identifier: Apache-2.0

package ovn

import (
	"maps"
	"slices"
	"strings"

	"github.com/kuryr/raven/drivers"
	"github.com/kuryr/raven/service/ovn/nbdb"
	"github.com/kuryr/raven/service/plan"
)

// neutronPrefix begins the names that Neutron's driver gives to the switches of its networks and the routers of its
// routers; their ids follow.
const neutronPrefix = "neutron-"

// table is one of the two tables whose rows join groups.
type table struct {
	name      string // in the database
	attribute string // of a group
}

// The tables whose rows join groups.
func switches() table { return table{nbdb.LogicalSwitchTable, "networks"} }
func routers() table  { return table{nbdb.LogicalRouterTable, "routers"} }

func tableOf(attribute string) table {
	if attribute == routers().attribute {
		return routers()
	}
	return switches()
}

// place is a switch or a router.
type place struct {
	table
	uuid, named string
	groups      []string // UUIDs
}

// group is a Load_Balancer_Group row of Raven's.
type group struct {
	uuid     string
	id       string
	name     string
	identity plan.Identity
	title    string
	members  map[string]bool // UUIDs of load balancers
}

// rowIndex is what is known of one connection's database: this cluster's rows by the resource that they are, and what
// has joined this cluster's groups. It follows the rows, one at a time, and has no lock.
type rowIndex struct {
	cluster   string // as identities have it
	balancers map[string]*nbdb.LoadBalancer
	rowsOf    map[string]map[string]bool // UUIDs of rows by the ID of the load balancer
	groups    map[string]*group          // by UUID
	groupsOf  map[string]map[string]bool // UUIDs by the ID of the group
	places    map[string]*place          // by UUID
	named     map[string]map[string]bool // UUIDs of places by name
	joined    map[string]map[string]bool // UUIDs of places by the UUID of the group
	taken     map[string]map[string]bool // UUIDs of rows by group and VIP: see vipKey
	belongs   map[string]map[string]bool // UUIDs of rows by the ID of the group that they say they are of
	memberOf  map[string]map[string]bool // UUIDs of groups of Raven's by the UUID of the row that is in them
	// The rows with UUIDs like Raven's that carry no identity of Raven's: where one is in the place of a row of Raven's,
	// another client has changed what it says.
	strays      map[string]*nbdb.LoadBalancer
	strayGroups map[string]*nbdb.LoadBalancerGroup
	// templates says whether the database has the table of variables.
	templates bool
	chassis   map[string]*chassisRow // by chassis
	variables map[string]variables   // by their prefix
	owners    map[string]string      // IDs of load balancers by the prefix of their variables
}

func newRowIndex(cluster string) *rowIndex {
	return &rowIndex{
		cluster:   plan.Identity{Cluster: cluster}.Key().Cluster,
		balancers: map[string]*nbdb.LoadBalancer{}, rowsOf: map[string]map[string]bool{},
		groups: map[string]*group{}, groupsOf: map[string]map[string]bool{},
		places: map[string]*place{}, named: map[string]map[string]bool{}, joined: map[string]map[string]bool{},
		taken: map[string]map[string]bool{}, belongs: map[string]map[string]bool{}, memberOf: map[string]map[string]bool{},
		strays: map[string]*nbdb.LoadBalancer{}, strayGroups: map[string]*nbdb.LoadBalancerGroup{},
		chassis: map[string]*chassisRow{}, variables: map[string]variables{}, owners: map[string]string{},
	}
}

// dirtySet is what a change of a row concerns.
type dirtySet struct {
	ids  map[Resource]bool
	rows map[string]bool // names of places, and IDs of groups, that are there now and were not
}

func newDirtySet() *dirtySet { return &dirtySet{ids: map[Resource]bool{}, rows: map[string]bool{}} }

func (t *dirtySet) balancer(id string) {
	t.ids[Resource{drivers.KindOVNLoadBalancer, id}] = true
}
func (t *dirtySet) group(id string) { t.ids[Resource{drivers.KindOVNLoadBalancerGroup, id}] = true }

// balancer takes over a Load_Balancer row as it is now; nil: it is gone.
func (b *rowIndex) balancer(uuid string, have *nbdb.LoadBalancer, t *dirtySet) {
	if old := b.balancers[uuid]; old != nil {
		id := b.idOf(old)
		drop(b.rowsOf, id, uuid)
		drop(b.belongs, old.ExternalIDs[groupID], uuid)
		delete(b.balancers, uuid)
		delete(b.owners, ownerOfRow(old))
		for _, vip := range vipTexts(old) {
			drop(b.taken, vipKey(old.ExternalIDs[groupID], protocolOf(old), vip), uuid)
		}
		t.balancer(id)
	}
	delete(b.strays, uuid)
	if have == nil {
		return
	}
	if !b.ours(have) {
		if devised(uuid) {
			b.strays[uuid] = have
		}
		return
	}
	id := b.idOf(have)
	b.balancers[uuid] = have
	b.owners[ownerOfRow(have)] = id
	add(b.rowsOf, id, uuid)
	add(b.belongs, have.ExternalIDs[groupID], uuid)
	for _, vip := range vipTexts(have) {
		add(b.taken, vipKey(have.ExternalIDs[groupID], protocolOf(have), vip), uuid)
	}
	t.balancer(id)
}

// at returns the row in the place of one of Raven's, whatever it says of whose it is; nil: there is none.
func (b *rowIndex) at(uuid string) *nbdb.LoadBalancer {
	if have := b.balancers[uuid]; have != nil {
		return have
	}
	return b.strays[uuid]
}

// groupAt is at for groups. What it says of whose it is counts for nothing.
func (b *rowIndex) groupAt(uuid string) (members map[string]bool, there bool) {
	if g := b.groups[uuid]; g != nil {
		return g.members, true
	}
	have := b.strayGroups[uuid]
	if have == nil {
		return nil, false
	}
	members = map[string]bool{}
	for _, member := range have.LoadBalancer {
		members[member] = true
	}
	return members, true
}

// vipKey is what only one load balancer of a group can serve.
func vipKey(group, protocol, vip string) string { return group + " " + protocol + " " + vip }

// holder returns the name and the ID of another load balancer that has a VIP. Rows in places of one's own are not
// another's, whatever they say. Where one has it oneself as well, whose row's UUID is the first one keeps it: both
// would let it go otherwise.
func (b *rowIndex) holder(key, but string, places map[string]bool) (id, name string) {
	taken := slices.Sorted(maps.Keys(b.taken[key]))
	if len(taken) == 0 || places[taken[0]] {
		return "", ""
	}
	have := b.balancers[taken[0]]
	if id = b.idOf(have); id == but {
		return "", ""
	}
	name, _ = strings.CutSuffix(have.Name, ":"+have.ExternalIDs[partID])
	return id, name
}

func (b *rowIndex) ours(have *nbdb.LoadBalancer) bool {
	identity, ok := identityOf(have.ExternalIDs)
	return ok && identity.Cluster == b.cluster
}

func (b *rowIndex) idOf(have *nbdb.LoadBalancer) string {
	identity, _ := identityOf(have.ExternalIDs)
	return ID(drivers.KindOVNLoadBalancer, identity)
}

// group takes over a Load_Balancer_Group row as it is now; nil: it is gone.
func (b *rowIndex) group(uuid string, have *nbdb.LoadBalancerGroup, t *dirtySet) {
	members := map[string]bool{}
	old := b.groups[uuid]
	if old != nil {
		members = old.members
		for member := range members {
			drop(b.memberOf, member, uuid)
		}
		drop(b.groupsOf, old.id, uuid)
		delete(b.groups, uuid)
		t.group(old.id)
	}
	now := map[string]bool{}
	delete(b.strayGroups, uuid)
	if have != nil {
		identity, title, ok := parseGroup(have.Name)
		if ok = ok && identity.Cluster == b.cluster; !ok && devised(uuid) {
			b.strayGroups[uuid] = have
		}
		if ok {
			for _, member := range have.LoadBalancer {
				now[member] = true
				add(b.memberOf, member, uuid)
			}
			g := &group{
				uuid: uuid, id: ID(drivers.KindOVNLoadBalancerGroup, identity), name: have.Name, identity: identity, title: title,
				members: now,
			}
			b.groups[uuid] = g
			add(b.groupsOf, g.id, uuid)
			t.group(g.id)
			if old == nil || old.id != g.id {
				t.rows[g.id] = true
			}
		}
	}
	g := b.groups[uuid]
	other := old != nil && g != nil && old.id != g.id
	for _, one := range []map[string]bool{members, now} {
		for member := range one {
			if have := b.balancers[member]; have != nil && (other || members[member] != now[member]) {
				t.balancer(b.idOf(have))
			}
		}
	}
}

// place takes over a row of a switch or router as it is now; a name of "" means that it is gone.
func (b *rowIndex) place(of table, uuid, named string, groups []string, t *dirtySet) {
	before := map[string]bool{}
	old := b.places[uuid]
	if old != nil {
		drop(b.named, old.named, uuid)
		delete(b.places, uuid)
		for _, g := range old.groups {
			before[g] = true
			drop(b.joined, g, uuid)
		}
	}
	after := map[string]bool{}
	if named != "" {
		b.places[uuid] = &place{table: of, uuid: uuid, named: named, groups: groups}
		add(b.named, named, uuid)
		for _, g := range groups {
			after[g] = true
			add(b.joined, g, uuid)
		}
		if old == nil || old.named != named {
			t.rows[named] = true
		}
	}
	for _, one := range []map[string]bool{before, after} {
		for uuid := range one {
			if g := b.groups[uuid]; g != nil && before[uuid] != after[uuid] {
				t.group(g.id)
			}
		}
	}
}

// rows returns the rows of a load balancer in a stable order, those with the UUIDs that we give first: of twins these
// stay.
func (b *rowIndex) rows(id string) []*nbdb.LoadBalancer {
	rows := make([]*nbdb.LoadBalancer, 0, 2)
	var others []*nbdb.LoadBalancer
	for _, uuid := range slices.Sorted(maps.Keys(b.rowsOf[id])) {
		have := b.balancers[uuid]
		if identity, _ := identityOf(have.ExternalIDs); uuid == rowUUID(drivers.KindOVNLoadBalancer, identity,
			have.ExternalIDs[partID]) {
			rows = append(rows, have)
		} else {
			others = append(others, have)
		}
	}
	return append(rows, others...)
}

// groupRow returns the row of a group that counts, and the UUIDs of others of the same identity. Both are empty where
// there is none.
func (b *rowIndex) groupRow(id string) (kept *group, twins []string) {
	for _, uuid := range slices.Sorted(maps.Keys(b.groupsOf[id])) {
		g := b.groups[uuid]
		switch {
		case kept == nil:
			kept = g
		case g.uuid == rowUUID(drivers.KindOVNLoadBalancerGroup, g.identity, ""):
			kept, twins = g, append(twins, kept.uuid)
		default:
			twins = append(twins, uuid)
		}
	}
	return kept, twins
}

// serving returns the UUIDs of the places of one table that have joined a group, and have a name of Neutron's.
func (b *rowIndex) serving(g *group, of table) map[string]string {
	byID := map[string]string{}
	for uuid := range b.joined[g.uuid] {
		p := b.places[uuid]
		if id, ok := strings.CutPrefix(p.named, neutronPrefix); ok && p.table == of {
			byID[id] = uuid
		}
	}
	return byID
}

// observe shows a resource as it is now. It returns false where there is none.
func (b *rowIndex) observe(r Resource) (plan.Observed, bool) {
	o := plan.Observed{Kind: r.Kind, ID: r.ID, Managed: true}
	if r.Kind == drivers.KindOVNLoadBalancerGroup {
		g, twins := b.groupRow(r.ID)
		if g == nil {
			return plan.Observed{}, false
		}
		o.Identity = g.identity
		o.Attrs = map[string]any{"name": g.title}
		for _, of := range []table{switches(), routers()} {
			o.Attrs[of.attribute] = list(slices.Sorted(maps.Keys(b.serving(g, of))))
		}
		if len(twins) > 0 || g.name != groupName(g.identity, g.title) {
			o.Attrs["name"] = g.title + " (not whole)" // so that it is written anew
		}
	} else {
		rows := b.rows(r.ID)
		if len(rows) == 0 {
			return plan.Observed{}, false
		}
		lb, whole := b.read(rows)
		o.Identity, o.Attrs = lb.identity, lb.attributes()
		if !whole || !b.member(lb, rows) {
			o.Attrs["vips"] = []any{}
			o.Attrs["name"] = lb.title + " (not whole)"
		}
	}
	o.Tags, o.Description = o.Identity.Tags(), o.Identity.Description()
	return o, true
}

// member says whether all rows of a load balancer are in its group.
func (b *rowIndex) member(lb *balancer, rows []*nbdb.LoadBalancer) bool {
	g, _ := b.groupRow(lb.group)
	return g != nil && !slices.ContainsFunc(rows, func(have *nbdb.LoadBalancer) bool { return !g.members[have.UUID] })
}

// all lists the IDs of the resources of a kind.
func (b *rowIndex) all(kind drivers.Kind) []string {
	if kind == drivers.KindOVNLoadBalancerGroup {
		return slices.Sorted(maps.Keys(b.groupsOf))
	}
	return slices.Sorted(maps.Keys(b.rowsOf))
}

func list(texts []string) []any {
	out := make([]any, len(texts))
	for i, text := range texts {
		out[i] = text
	}
	return out
}

func add(index map[string]map[string]bool, key, value string) {
	if index[key] == nil {
		index[key] = map[string]bool{}
	}
	index[key][value] = true
}

func drop(index map[string]map[string]bool, key, value string) {
	if delete(index[key], value); len(index[key]) == 0 {
		delete(index, key)
	}
}
