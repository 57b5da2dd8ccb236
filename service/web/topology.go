// SPDX-License-Identifier: Apache-2.0

package web

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/kuryr/raven/drivers"
	"github.com/kuryr/raven/service/reconcile"
	"github.com/kuryr/raven/service/state"
)

// Topology is the network as a graph: what the page shows of it for one selection.
type Topology struct {
	// Generation tells one reading of the state from another.
	Generation uint64 `json:"generation"`
	// StandingBy is whether another process leads, so that this one has nothing to show.
	StandingBy bool `json:"standingBy,omitempty"`
	// Groups are the namespaces, by name, with what of them the filters select.
	Groups []Group `json:"groups"`
	// Nodes are those of no namespace, and of the namespaces that are expanded.
	Nodes []Node `json:"nodes"`
	Edges []Edge `json:"edges"`
	// Hidden counts the nodes of expanded namespaces that are left out, since there are too many.
	Hidden int `json:"hidden,omitempty"`
	// Drivers and Kinds are what can be filtered by.
	Drivers []string `json:"drivers"`
	Kinds   []string `json:"kinds"`
}

// Group is a namespace.
type Group struct {
	Namespace string              `json:"namespace"`
	Objects   int                 `json:"objects"`
	States    map[state.Phase]int `json:"states"`
	Kinds     map[string]int      `json:"kinds"`
}

// Node is a source object, or a resource in the cloud.
type Node struct {
	ID    string `json:"id"`
	Group string `json:"group,omitempty"` // its namespace; empty: none
	Kind  string `json:"kind"`
	Name  string `json:"name"`
	// Object is whether it is a source object; Owner is, of a resource, the node of the object that has it.
	Object  bool     `json:"object,omitempty"`
	Owner   string   `json:"owner,omitempty"`
	Drivers []string `json:"drivers,omitempty"`
	// State is the worst that any driver reports of a source object, and Reason its first reason.
	State  state.Phase `json:"state,omitempty"`
	Reason string      `json:"reason,omitempty"`
	Since  *time.Time  `json:"since,omitempty"`
	// Status is that of a resource in the cloud.
	Status string `json:"status,omitempty"`
}

// Edge leads from what has or names something to what it has or names. An end of an edge is the id of a node, or
// "group/" with a namespace.
type Edge struct {
	From string `json:"from"`
	To   string `json:"to"`
}

// Selection is what of the topology is asked for. Empty fields select everything.
type Selection struct {
	Expanded       map[string]bool // namespaces whose nodes are wanted
	States         []string
	Drivers, Kinds []string
	Limit          int // the most nodes of expanded namespaces
}

// drawn says whether a resource of a kind is a node. Others are part of the object that has them.
func drawn(kind drivers.Kind) bool {
	switch kind {
	case drivers.KindNetwork, drivers.KindSubnet, drivers.KindSubnetPool, drivers.KindRouter, drivers.KindLoadBalancer,
		drivers.KindFloatingIP, drivers.KindSecurityGroup, drivers.KindOVNLoadBalancer, drivers.KindOVNLoadBalancerGroup:
		return true
	default:
		return false
	}
}

// rank orders states: what needs a look is high.
func rank(p state.Phase) int {
	switch p {
	case state.Terminal:
		return 4
	case state.Failing:
		return 3
	case state.Waiting:
		return 2
	case state.Pending:
		return 1
	default:
		return 0
	}
}

// Snapshot is the whole topology at one time. It does not change.
type Snapshot struct {
	generation uint64
	standing   bool
	nodes      []*Node // by id
	byID       map[string]*Node
	edges      []Edge
	drivers    []string
	kinds      []string
}

// newSnapshot makes the topology of the objects; nil objects: the process stands by.
func newSnapshot(generation uint64, objects []reconcile.ObjectStatus) *Snapshot {
	b := &builder{byID: map[string]*Node{}, holder: map[string]string{}, edges: map[Edge]bool{}}
	for i := range objects {
		b.add(&objects[i])
	}
	for i := range objects {
		b.connect(&objects[i])
	}
	s := &Snapshot{generation: generation, standing: objects == nil, byID: b.byID}
	names, kinds := map[string]bool{}, map[string]bool{}
	for _, n := range b.byID {
		s.nodes = append(s.nodes, n)
		for _, name := range n.Drivers {
			names[name] = true
		}
		if n.Object {
			kinds[n.Kind] = true
		}
	}
	slices.SortFunc(s.nodes, func(a, b *Node) int { return strings.Compare(a.ID, b.ID) })
	s.edges = sortedEdges(b.edges)
	s.drivers, s.kinds = slices.Sorted(maps.Keys(names)), slices.Sorted(maps.Keys(kinds))
	return s
}

func sortedEdges(set map[Edge]bool) []Edge {
	return slices.SortedFunc(maps.Keys(set), func(a, b Edge) int {
		return cmp.Or(strings.Compare(a.From, b.From), strings.Compare(a.To, b.To))
	})
}

type builder struct {
	byID   map[string]*Node
	holder map[string]string // the node that a resource is, or is a part of, by the id of the resource
	edges  map[Edge]bool
}

// objectID names the node of a source object: it is also what a deep link is made of.
func objectID(o *reconcile.ObjectStatus) string { return o.Kind + "/" + o.Namespace + "/" + o.Name }

func groupOf(o *reconcile.ObjectStatus) string {
	if o.Kind == "Namespace" && o.Namespace == "" {
		return o.Name
	}
	return o.Namespace
}

// add makes the nodes of an object and of its resources. What claims share has no object: its resources are nodes of
// no namespace.
func (b *builder) add(o *reconcile.ObjectStatus) {
	id := ""
	if o.Driver != state.Shared {
		id = objectID(o)
		b.addObject(id, o)
	}
	for _, r := range o.Resources {
		switch {
		case drawn(r.Kind):
			b.addResource(id, o, r)
		case id != "" && !r.Shared:
			b.holder[r.ID] = id
		}
	}
}

func (b *builder) addObject(id string, o *reconcile.ObjectStatus) {
	n := b.byID[id]
	if n == nil {
		n = &Node{ID: id, Group: groupOf(o), Kind: o.Kind, Name: o.Name, Object: true}
		b.byID[id] = n
	}
	n.Drivers = append(n.Drivers, o.Driver)
	if n.Since == nil || rank(o.State) > rank(n.State) {
		since := o.Since
		n.State, n.Since, n.Reason = o.State, &since, ""
		if len(o.Reasons) > 0 {
			n.Reason = o.Reasons[0]
		}
	}
}

func (b *builder) addResource(owner string, o *reconcile.ObjectStatus, r reconcile.ResourceStatus) {
	id := string(r.Kind) + ":" + r.ID
	b.holder[r.ID] = id
	n := b.byID[id]
	if n == nil {
		n = &Node{ID: id, Kind: string(r.Kind), Name: cmp.Or(r.Name, r.Role, r.ID), Status: r.Status}
		b.byID[id] = n
	}
	if owner != "" && !r.Shared {
		n.Owner, n.Group = owner, groupOf(o)
	}
}

// connect makes the edges of an object: to the resources that it has, and to what these name in their attributes.
func (b *builder) connect(o *reconcile.ObjectStatus) {
	owner := ""
	if o.Driver != state.Shared {
		owner = objectID(o)
	}
	for _, r := range o.Resources {
		from := b.holder[r.ID]
		if owner != "" {
			b.edge(owner, from)
		}
		if r.Shared {
			continue // whoever has it says what it names
		}
		for key, value := range r.Attrs {
			if drawn(r.Kind) || key != "network_id" { // a port names its subnet, and that its network
				b.names(from, value)
			}
		}
	}
}

// names makes an edge to each resource whose id stands in a value.
func (b *builder) names(from string, value any) {
	switch v := value.(type) {
	case string:
		if to, ok := b.holder[v]; ok {
			b.edge(from, to)
		}
	case []any:
		for _, item := range v {
			b.names(from, item)
		}
	case []string:
		for _, item := range v {
			b.names(from, item)
		}
	case map[string]any:
		for _, item := range v {
			b.names(from, item)
		}
	case []map[string]any:
		for _, item := range v {
			b.names(from, item)
		}
	}
}

func (b *builder) edge(from, to string) {
	if from != "" && to != "" && from != to && !b.edges[Edge{to, from}] {
		b.edges[Edge{from, to}] = true
	}
}

// Select returns what of the topology a selection shows. Namespaces that are not expanded stand for all that is in
// them. Of an expanded one that has too many nodes, those that need a look are shown first.
func (s *Snapshot) Select(sel Selection) Topology {
	t := Topology{
		Generation: s.generation, StandingBy: s.standing, Drivers: s.drivers, Kinds: s.kinds,
		Groups: []Group{}, Nodes: []Node{}, Edges: []Edge{},
	}
	groups := map[string]*Group{}
	var inside []*Node
	shown := map[string]bool{}
	for _, n := range s.nodes {
		if n.Object && n.Group != "" {
			count(groups, n, sel.selects(n))
		}
		switch {
		case n.Object && !sel.selects(n):
		case n.Group == "":
			t.Nodes = append(t.Nodes, *n)
			shown[n.ID] = true
		case sel.Expanded[n.Group]:
			inside = append(inside, n)
		}
	}
	if sel.Limit > 0 && len(inside) > sel.Limit {
		slices.SortStableFunc(inside, func(a, b *Node) int { return weight(b) - weight(a) })
		t.Hidden = len(inside) - sel.Limit
		inside = inside[:sel.Limit]
	}
	for _, n := range inside {
		t.Nodes = append(t.Nodes, *n)
		shown[n.ID] = true
	}
	for _, name := range slices.Sorted(maps.Keys(groups)) {
		if g := groups[name]; g.Objects > 0 || !sel.filters() {
			t.Groups = append(t.Groups, *g)
		}
	}
	t.Edges = s.fold(shown, sel.Expanded, groups)
	return t
}

// weight orders nodes by how much they are wanted: what needs a look, then resources, then what is well.
func weight(n *Node) int {
	if !n.Object {
		return 1
	}
	return 2 * rank(n.State)
}

func count(groups map[string]*Group, n *Node, selected bool) {
	g := groups[n.Group]
	if g == nil {
		g = &Group{Namespace: n.Group, States: map[state.Phase]int{}, Kinds: map[string]int{}}
		groups[n.Group] = g
	}
	if selected {
		g.Objects++
		g.States[n.State]++
		g.Kinds[n.Kind]++
	}
}

// fold returns the edges between what is shown, where a namespace stands for what of it is not.
func (s *Snapshot) fold(shown, expanded map[string]bool, groups map[string]*Group) []Edge {
	end := func(id string) string {
		n := s.byID[id]
		switch {
		case shown[id]:
			return id
		case n.Group == "" || expanded[n.Group] || groups[n.Group] == nil:
			return ""
		}
		return "group/" + n.Group
	}
	set := map[Edge]bool{}
	for _, e := range s.edges {
		from, to := end(e.From), end(e.To)
		if from != "" && to != "" && from != to && !set[Edge{to, from}] {
			set[Edge{from, to}] = true
		}
	}
	return sortedEdges(set)
}

func (sel Selection) filters() bool { return len(sel.States)+len(sel.Drivers)+len(sel.Kinds) > 0 }

func (sel Selection) selects(n *Node) bool {
	anyDriver := len(sel.Drivers) == 0
	for _, name := range n.Drivers {
		anyDriver = anyDriver || slices.Contains(sel.Drivers, name)
	}
	return anyDriver && (len(sel.States) == 0 || slices.Contains(sel.States, string(n.State))) &&
		(len(sel.Kinds) == 0 || slices.Contains(sel.Kinds, n.Kind))
}

// Links returns the nodes that a node has an edge with.
func (s *Snapshot) Links(id string) []Node {
	others := map[string]bool{}
	for _, e := range s.edges {
		switch id {
		case e.From:
			others[e.To] = true
		case e.To:
			others[e.From] = true
		}
	}
	list := []Node{}
	for _, other := range slices.Sorted(maps.Keys(others)) {
		list = append(list, *s.byID[other])
	}
	return list
}

// Problems returns what needs a look, the worst first, up to a bound, and how much more there is.
func (s *Snapshot) Problems(most int) (list []Node, more int) {
	list = []Node{}
	for _, n := range s.nodes {
		if n.Object && rank(n.State) > 0 || !n.Object && broken(n) {
			list = append(list, *n)
		}
	}
	severity := func(n Node) int {
		if !n.Object {
			return rank(state.Failing)
		}
		return rank(n.State)
	}
	slices.SortStableFunc(list, func(a, b Node) int { return severity(b) - severity(a) })
	if len(list) > most {
		list, more = list[:most:most], len(list)-most
	}
	return list, more
}

// broken says whether the cloud reports that a resource does not work.
func broken(n *Node) bool { return n.Status == "ERROR" }
