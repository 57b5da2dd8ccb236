// SPDX-License-Identifier: Apache-2.0

package openstack

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"time"

	"github.com/google/uuid"
)

// object is one resource. Its document is never changed in place: a change replaces it, so that it can be undone.
type object struct {
	kind    *kind
	id      string
	project string
	seq     int64 // order of creation
	doc     map[string]any
	ipam    *ipam           // of a subnet
	auto    map[string]bool // values that the cloud chose by itself, and that another run may choose otherwise
	encoded [2][]byte       // for members and for administrators
	own     vipPort         // of a load balancer
}

// table is one collection with its indexes.
type table struct {
	byID  map[string]*object
	index map[string]map[string]map[*object]struct{} // attribute, value, objects
}

func newTable(k *kind) *table {
	t := &table{byID: map[string]*object{}, index: map[string]map[string]map[*object]struct{}{}}
	for _, name := range append([]string{"tags", "name", "description", "project_id"}, k.index...) {
		t.index[name] = map[string]map[*object]struct{}{}
	}
	return t
}

// put enters (or takes out) the object's document in every index.
func (t *table) put(o *object, in bool) {
	for name, values := range t.index {
		for _, v := range indexValues(o.doc, name) {
			set := values[v]
			switch {
			case in && set == nil:
				values[v] = map[*object]struct{}{o: {}}
			case in:
				set[o] = struct{}{}
			default:
				delete(set, o)
				if len(set) == 0 {
					delete(values, v)
				}
			}
		}
	}
}

// indexValues returns the values that a document has in an index.
func indexValues(doc map[string]any, name string) []string {
	switch name {
	case "fixed_ips.subnet_id", "fixed_ips.ip_address":
		key := name[len("fixed_ips."):]
		var out []string
		for _, f := range list(doc, "fixed_ips") {
			if m, ok := f.(map[string]any); ok {
				out = append(out, str(m, key))
			}
		}
		return out
	}
	switch v := doc[name].(type) {
	case string:
		if v == "" {
			return nil
		}
		return []string{v}
	case []any:
		return stringList(v)
	}
	return nil
}

// tx is one request's change of the state: all of it or, after undo, nothing.
type tx struct {
	c    *Cloud
	who  scope
	now  time.Time
	undo []func()

	outcome Action // of a provider's work, where a fault rule says so
}

func (t *tx) rollback() {
	for i := len(t.undo) - 1; i >= 0; i-- {
		t.undo[i]()
	}
	t.undo = nil
}

func (t *tx) onUndo(f func()) { t.undo = append(t.undo, f) }

// insert adds a resource with the attributes that all kinds share.
func (t *tx) insert(k *kind, doc map[string]any) *object {
	c := t.c
	c.lastSeq++
	o := &object{
		kind: k, id: c.newID(), project: str(doc, "project_id"), seq: c.lastSeq, doc: doc, auto: map[string]bool{},
	}
	stamp := t.now.UTC().Format(time.RFC3339)
	doc["id"], doc["created_at"], doc["updated_at"], doc["revision_number"] = o.id, stamp, stamp, int64(1)
	doc["tenant_id"] = o.project
	doc["standard_attr_id"] = c.lastSeq
	if doc["tags"] == nil {
		doc["tags"] = []any{}
	}
	t.enter(o)
	return o
}

func (t *tx) enter(o *object) {
	tab := t.c.tables[o.kind.name]
	tab.byID[o.id] = o
	tab.put(o, true)
	t.c.used[quotaKey{o.project, o.kind.quotaName()}]++
	t.onUndo(func() { t.drop(o) })
}

func (t *tx) drop(o *object) {
	tab := t.c.tables[o.kind.name]
	tab.put(o, false)
	delete(tab.byID, o.id)
	t.c.used[quotaKey{o.project, o.kind.quotaName()}]--
}

// erase removes a resource.
func (t *tx) erase(o *object) {
	t.drop(o)
	t.onUndo(func() {
		tab := t.c.tables[o.kind.name]
		tab.byID[o.id] = o
		tab.put(o, true)
		t.c.used[quotaKey{o.project, o.kind.quotaName()}]++
	})
}

// change replaces attributes, and bumps the revision.
func (t *tx) change(o *object, attrs map[string]any) {
	doc := maps.Clone(o.doc)
	maps.Copy(doc, attrs)
	doc["revision_number"] = integer(o.doc, "revision_number") + 1
	doc["updated_at"] = t.now.UTC().Format(time.RFC3339)
	old := o.doc
	t.replace(o, doc)
	t.onUndo(func() { t.replace(o, old) })
}

// update changes attributes where they differ, and nothing at all where none does.
func (t *tx) update(o *object, attrs map[string]any) {
	differ := make(map[string]any, len(attrs))
	for name, v := range attrs {
		if !reflect.DeepEqual(v, o.doc[name]) {
			differ[name] = v
		}
	}
	if len(differ) > 0 {
		t.change(o, differ)
	}
}

func cloneWith(doc, attrs map[string]any) map[string]any {
	out := maps.Clone(doc)
	maps.Copy(out, attrs)
	return out
}

// bump changes nothing but the revision, as when something that belongs to the resource changed.
func (t *tx) bump(o *object) { t.change(o, nil) }

func (t *tx) replace(o *object, doc map[string]any) {
	tab := t.c.tables[o.kind.name]
	tab.put(o, false)
	o.doc = doc
	o.encoded = [2][]byte{}
	tab.put(o, true)
}

func (t *tx) markAuto(o *object, value string) { o.auto[value] = true }

// get returns a resource that the request may see.
func (t *tx) get(kindName, id string) (*object, bool) {
	o, ok := t.c.tables[kindName].byID[id]
	if !ok || !t.c.visible(t.who, o) {
		return nil, false
	}
	return o, true
}

// any returns a resource, whoever's it is.
func (t *tx) any(kindName, id string) (*object, bool) {
	o, ok := t.c.tables[kindName].byID[id]
	return o, ok
}

// by returns the resources with that value in an index.
func (c *Cloud) by(kindName, attr, value string) map[*object]struct{} {
	return c.tables[kindName].index[attr][value]
}

// visible: a member sees its project's resources, and shared ones.
func (c *Cloud) visible(who scope, o *object) bool {
	if who.admin || o.project == who.project {
		return true
	}
	switch o.kind.name {
	case "network":
		return truth(o.doc, "shared") || truth(o.doc, "router:external")
	case "subnet":
		n, ok := c.tables["network"].byID[str(o.doc, "network_id")]
		return ok && truth(n.doc, "shared")
	case "subnetpool":
		return truth(o.doc, "shared")
	case "port": // the owner of a network sees its ports
		n, ok := c.tables["network"].byID[str(o.doc, "network_id")]
		return ok && n.project == who.project
	}
	return false
}

// view returns the document as the one who asks sees it.
func (c *Cloud) view(who scope, o *object) map[string]any {
	doc := maps.Clone(o.doc)
	if o.kind.render != nil {
		o.kind.render(c, o, doc)
	}
	if !who.admin {
		for name := range doc {
			if o.kind.fields[name].flags&secret != 0 {
				delete(doc, name)
			}
		}
	}
	return doc
}

// encode returns the document in JSON. It is kept until the document changes.
func (c *Cloud) encode(who scope, o *object) json.RawMessage {
	i := 0
	if who.admin {
		i = 1
	}
	if o.encoded[i] == nil {
		b, err := json.Marshal(c.view(who, o))
		if err != nil {
			panic(fmt.Sprintf("encoding %s %s: %v", o.kind.name, o.id, err))
		}
		o.encoded[i] = b
	}
	return o.encoded[i]
}

// newID makes an id: random, or from the seed where one is given.
func (c *Cloud) newID() string {
	var b [16]byte
	for i := 0; i < len(b); i += 8 {
		n := c.rand.Uint64()
		for j := range 8 {
			b[i+j] = byte(n >> (8 * j))
		}
	}
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return uuid.UUID(b).String()
}
