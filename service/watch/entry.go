// SPDX-License-Identifier: Apache-2.0

package watch

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unique"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"github.com/kuryr/raven/drivers"
)

// entry is one object in a cache. It is never changed once it is made. The object is held as JSON, which takes a
// fifth of the memory of the maps it decodes into.
type entry struct {
	// raw is the object trimmed to the fields of spec.
	raw             []byte
	spec            *projection
	namespace, name string
	uid             string
	resourceVersion string
	generation      int64
	created         int64 // in seconds since 1970; 0: not known
	deleting        bool
	// labels are all of the object's labels, for selectors; annotations only those that are kept.
	labels, annotations pairs
	// owned says which of Raven's field managers own which annotations and labels; see ownedBy.
	owned pairs
}

// GetObjectMeta lets client-go find the entry's key.
func (e *entry) GetObjectMeta() metav1.Object {
	return &metav1.ObjectMeta{Namespace: e.namespace, Name: e.name, ResourceVersion: e.resourceVersion}
}

// newEntry makes an entry of what a client returned.
func newEntry(object any, spec *projection) (*entry, error) {
	switch o := object.(type) {
	case *entry:
		return o, nil
	case *unstructured.Unstructured:
		return entryOf(o, spec)
	case *metav1.PartialObjectMetadata:
		fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
		if err != nil {
			return nil, fmt.Errorf("converting metadata of %q: %w", o.Name, err)
		}
		fields["apiVersion"], fields["kind"] = spec.apiVersion, spec.kind
		return entryOf(&unstructured.Unstructured{Object: fields}, spec)
	}
	return nil, fmt.Errorf("unexpected object of type %T", object)
}

func entryOf(o *unstructured.Unstructured, spec *projection) (*entry, error) {
	if o.Object["kind"] == nil && spec.kind != "" {
		o.Object["apiVersion"], o.Object["kind"] = spec.apiVersion, spec.kind
	}
	e := &entry{
		spec: spec, namespace: o.GetNamespace(), name: o.GetName(), uid: string(o.GetUID()),
		resourceVersion: o.GetResourceVersion(), generation: o.GetGeneration(),
		deleting: o.GetDeletionTimestamp() != nil,
		labels:   newPairs(o.GetLabels(), nil), annotations: newPairs(keptOf(o, spec.keep), spec.keep),
		owned: ownedBy(o.Object),
	}
	if created := o.GetCreationTimestamp(); !created.IsZero() {
		e.created = created.Unix()
	}
	raw, err := json.Marshal(drivers.Trim(o.Object, spec.fields))
	if err != nil {
		return nil, fmt.Errorf("encoding %s/%s: %w", e.namespace, e.name, err)
	}
	e.raw = raw
	return e, nil
}

// keptOf returns an object's annotations and, if that is kept, the addresses in its status.
func keptOf(o *unstructured.Unstructured, keep []string) map[string]string {
	annotations := o.GetAnnotations()
	if !slices.Contains(keep, KeepIngress) {
		return annotations
	}
	list, _, err := unstructured.NestedSlice(o.Object, "status", "loadBalancer", "ingress")
	if err != nil || len(list) == 0 {
		return annotations
	}
	var addresses []string
	for _, element := range list {
		ingress, _ := element.(map[string]any)
		address, _ := ingress["ip"].(string)
		addresses = append(addresses, address)
	}
	kept := maps.Clone(annotations)
	if kept == nil {
		kept = map[string]string{}
	}
	kept[KeepIngress] = strings.Join(addresses, " ")
	return kept
}

// rawFor returns the object trimmed to other fields; none is the whole object. The result must not be changed.
func (e *entry) rawFor(fields []string) []byte {
	if slices.Equal(fields, e.spec.fields) {
		return e.raw
	}
	var object map[string]any
	if err := utiljson.Unmarshal(e.raw, &object); err != nil {
		return e.raw // it was encoded here, so that it decodes
	}
	raw, err := json.Marshal(drivers.Trim(object, fields))
	if err != nil {
		return e.raw
	}
	return raw
}

// sameFields says whether two versions of an object are alike within the fields.
func sameFields(a, b *entry, fields []string) bool {
	if a.uid != b.uid {
		return false
	}
	if a.spec == b.spec && bytes.Equal(a.raw, b.raw) {
		return true
	}
	return bytes.Equal(a.rawFor(fields), b.rawFor(fields))
}

// sameKept says whether two versions of an object are alike in the annotations and labels with the given keys.
func sameKept(a, b *entry, keep []string) bool {
	for _, key := range keep {
		for _, both := range [][2]pairs{{a.annotations, b.annotations}, {a.labels, b.labels}} {
			before, had := both[0].Lookup(key)
			after, has := both[1].Lookup(key)
			if had != has || before != after {
				return false
			}
		}
	}
	return true
}

// ownedBy returns the annotation and label keys that Raven's field managers own: pairs of a manager and of "a" or "l"
// with the key behind it, or "s" with the name of a part of the status. It reads the object as it was decoded, since
// converting all managers of all pods is costly.
func ownedBy(object map[string]any) pairs {
	metadata, _ := object["metadata"].(map[string]any)
	managers, _ := metadata["managedFields"].([]any)
	var p pairs
	for _, m := range managers {
		m, _ := m.(map[string]any)
		manager, _ := m["manager"].(string)
		subresource, _ := m["subresource"].(string)
		if m["operation"] != "Apply" || !strings.HasPrefix(manager, ManagerPrefix) {
			continue
		}
		fields, _ := m["fieldsV1"].(map[string]any)
		if subresource == "status" {
			status, _ := fields["f:status"].(map[string]any)
			for key := range status {
				p = append(p, unique.Make(manager), unique.Make("s"+strings.TrimPrefix(key, "f:")))
			}
		}
		if subresource != "" {
			continue
		}
		owned, _ := fields["f:metadata"].(map[string]any)
		for mark, of := range map[string]string{"a": "f:annotations", "l": "f:labels"} {
			keys, _ := owned[of].(map[string]any)
			for key := range keys {
				if name, ok := strings.CutPrefix(key, "f:"); ok {
					p = append(p, unique.Make(manager), unique.Make(mark+name))
				}
			}
		}
	}
	return slices.Clip(p)
}

// owners returns what ownedBy found, by manager.
func (e *entry) owners() map[string]Owned {
	if len(e.owned) == 0 {
		return nil
	}
	owners := map[string]Owned{}
	for i := 0; i < len(e.owned); i += 2 {
		manager, what := e.owned[i].Value(), e.owned[i+1].Value()
		o := owners[manager]
		switch what[0] {
		case 'a':
			o.Annotations = append(o.Annotations, what[1:])
		case 'l':
			o.Labels = append(o.Labels, what[1:])
		default:
			o.Status = append(o.Status, what[1:])
		}
		owners[manager] = o
	}
	for _, o := range owners {
		slices.Sort(o.Annotations)
		slices.Sort(o.Labels)
	}
	return owners
}

// pairs are labels or annotations in little memory: key, value, key, value, …, sorted by key, equal texts stored once
// in the process. It implements labels.Labels.
type pairs []unique.Handle[string]

// newPairs takes the pairs with the given keys, or all if keys is nil.
func newPairs(from map[string]string, keys []string) pairs {
	if len(from) == 0 {
		return nil
	}
	if keys == nil {
		keys = make([]string, 0, len(from))
		for key := range from {
			keys = append(keys, key)
		}
		slices.Sort(keys)
	}
	var p pairs
	for _, key := range keys {
		if value, ok := from[key]; ok {
			p = append(p, unique.Make(key), unique.Make(value))
		}
	}
	return slices.Clip(p)
}

// Lookup returns the value of a key and whether there is one.
func (p pairs) Lookup(key string) (string, bool) {
	for i := 0; i < len(p); i += 2 {
		if p[i].Value() == key {
			return p[i+1].Value(), true
		}
	}
	return "", false
}

// Has says whether there is such a key.
func (p pairs) Has(key string) bool { _, ok := p.Lookup(key); return ok }

// Get returns the value of a key, or "".
func (p pairs) Get(key string) string { v, _ := p.Lookup(key); return v }

// pick returns the pairs with the given keys, nil if there are none.
func (p pairs) pick(keys []string) map[string]string {
	var picked map[string]string
	for _, key := range keys {
		if value, ok := p.Lookup(key); ok {
			if picked == nil {
				picked = map[string]string{}
			}
			picked[key] = value
		}
	}
	return picked
}

// projection is what an informer keeps of its objects.
type projection struct {
	// fields are sorted paths, none within another; none at all is the whole object.
	fields []string
	// keep are the annotation keys that are kept beside them, sorted, not nil.
	keep             []string
	apiVersion, kind string
}

// metadataOnly says that nothing but metadata is read.
func (p *projection) metadataOnly() bool {
	for _, f := range p.fields {
		switch drivers.SplitField(f)[0] {
		case "metadata", "apiVersion", "kind":
		default:
			return false
		}
	}
	return len(p.fields) > 0
}

// covers says whether what p keeps is enough for q.
func (p *projection) covers(q *projection) bool {
	for _, key := range q.keep {
		if !slices.Contains(p.keep, key) {
			return false
		}
	}
	if len(p.fields) == 0 {
		return true
	}
	if len(q.fields) == 0 {
		return false
	}
	for _, f := range q.fields {
		if !slices.ContainsFunc(p.fields, func(have string) bool { return within(f, have) }) {
			return false
		}
	}
	return true
}

// union returns what is enough for both.
func (p *projection) union(q *projection) *projection {
	u := &projection{
		keep:       normalized(append(slices.Clone(p.keep), q.keep...)),
		apiVersion: p.apiVersion, kind: p.kind,
	}
	if u.kind == "" {
		u.apiVersion, u.kind = q.apiVersion, q.kind
	}
	if len(p.fields) > 0 && len(q.fields) > 0 {
		u.fields = normalizedFields(append(slices.Clone(p.fields), q.fields...))
	}
	return u
}

// normalized sorts and makes unique; never nil.
func normalized(texts []string) []string {
	out := append([]string{}, texts...)
	slices.Sort(out)
	return slices.Compact(out)
}

// normalizedFields sorts, makes unique and leaves out paths within others; nil for none.
func normalizedFields(fields []string) []string {
	var out []string
	for _, f := range normalized(fields) {
		if len(drivers.SplitField(f)) > 0 && !slices.ContainsFunc(out, func(have string) bool { return within(f, have) }) {
			out = append(out, f)
		}
	}
	return out
}

// within says whether a path is another, or below it.
func within(path, of string) bool {
	below, above := drivers.SplitField(path), drivers.SplitField(of)
	return len(below) >= len(above) && slices.Equal(below[:len(above)], above)
}
