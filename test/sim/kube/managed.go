// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"sort"
	"strings"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/client-go/applyconfigurations"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
	"sigs.k8s.io/structured-merge-diff/v6/merge"
	"sigs.k8s.io/structured-merge-diff/v6/typed"
)

// managed says who owns which fields of an object. It never changes once its item is committed.
//
// Ownership is tracked from the first apply on. As long as every apply names labels and annotations only, only these
// are tracked (full is false), which is what keeps such applies cheap; the first wider apply gives everything that
// has no owner by then to "before-first-apply".
type managed struct {
	full  bool
	sets  fieldpath.ManagedFields // by managerKey.String()
	times map[string]string
}

// managerKey identifies one entry of metadata.managedFields.
type managerKey struct {
	Manager     string                            `json:"m"`
	Operation   metav1.ManagedFieldsOperationType `json:"o"`
	APIVersion  string                            `json:"v"`
	Subresource string                            `json:"s"`
}

// String is the key in a form that merge.Conflicts and maps can carry.
func (k managerKey) String() string { return string(encodeJSON(k)) }

func parseManagerKey(s string) (k managerKey) {
	if err := json.Unmarshal([]byte(s), &k); err != nil {
		k.Manager = s
	}
	return k
}

// clone works for nil too.
func (m *managed) clone() *managed {
	if m == nil {
		return &managed{sets: fieldpath.ManagedFields{}, times: map[string]string{}}
	}
	return &managed{full: m.full, sets: maps.Clone(m.sets), times: maps.Clone(m.times)}
}

func (m *managed) equals(other *managed) bool {
	return other != nil && m.full == other.full && equalSets(m.sets, other.sets)
}

// entries is metadata.managedFields.
func (m *managed) entries() []any {
	keys := slices.Collect(maps.Keys(m.sets))
	sort.Slice(keys, func(i, j int) bool {
		if m.times[keys[i]] != m.times[keys[j]] {
			return m.times[keys[i]] < m.times[keys[j]]
		}
		return keys[i] < keys[j]
	})
	entries := make([]any, 0, len(keys))
	for _, key := range keys {
		k := parseManagerKey(key)
		fields, err := m.sets[key].Set().ToJSON()
		if err != nil {
			continue
		}
		entry := map[string]any{
			"manager": k.Manager, "operation": k.Operation, "apiVersion": k.APIVersion, "time": m.times[key],
			"fieldsType": "FieldsV1", "fieldsV1": json.RawMessage(fields),
		}
		if k.Subresource != "" {
			entry["subresource"] = k.Subresource
		}
		entries = append(entries, entry)
	}
	return entries
}

// metadataOnly says whether a manager owns nothing but labels and annotations.
func (m *managed) metadataOnly(key string) bool {
	versioned, ok := m.sets[key]
	if !ok {
		return true
	}
	only := true
	versioned.Set().Iterate(func(path fieldpath.Path) {
		only = only && len(path) > 1 && path[0].String() == ".metadata" &&
			(path[1].String() == ".labels" || path[1].String() == ".annotations")
	})
	return only
}

// claimRest gives what no manager owns yet to "before-first-apply".
func (m *managed) claimRest(parse parser, live map[string]any, now string) error {
	nothing, err := parse(map[string]any{"apiVersion": live["apiVersion"], "kind": live["kind"]})
	if err != nil {
		return fmt.Errorf("collecting the object's fields: %w", err)
	}
	value, err := parse(live, typed.AllowDuplicates)
	if err != nil {
		return fmt.Errorf("collecting the object's fields: %w", err)
	}
	all, err := nothing.Compare(value)
	if err != nil {
		return fmt.Errorf("collecting the object's fields: %w", err)
	}
	set := all.Added.Difference(systemFields())
	key := ""
	for k, owned := range m.sets {
		set = set.Difference(owned.Set())
		if parseManagerKey(k).Manager == beforeFirstApply {
			key = k
		}
	}
	if set.Empty() {
		return nil
	}
	version := text(live, "apiVersion")
	if key == "" {
		key = managerKey{beforeFirstApply, metav1.ManagedFieldsOperationUpdate, version, ""}.String()
	} else {
		set = set.Union(m.sets[key].Set())
	}
	m.sets[key] = fieldpath.NewVersionedSet(set, fieldpath.APIVersion(version), false)
	m.times[key] = now
	return nil
}

// complete widens the tracking to the whole object.
func (m *managed) complete(parse parser, live map[string]any, now string) error {
	if m.full {
		return nil
	}
	m.full = true
	return m.claimRest(parse, live, now)
}

// trackUpdate works out who owns what after a write that was no apply.
func (a *API) trackUpdate(res *resource, m *managed, old, object map[string]any, o writeOptions) *managed {
	m = m.clone()
	parse, version := a.types.narrow(), text(object, "apiVersion")
	if m.full {
		parse = a.types.of(res.kind, old, object)
	} else {
		old, object = labelsAndAnnotations(old), labelsAndAnnotations(object)
	}
	before, err := parse(old, typed.AllowDuplicates)
	if err != nil {
		return m
	}
	after, err := parse(object, typed.AllowDuplicates)
	if err != nil {
		return m
	}
	key := managerKey{o.manager, metav1.ManagedFieldsOperationUpdate, version, o.subresource}.String()
	had := m.sets[key]
	updater := (&merge.UpdaterBuilder{Converter: sameVersion{}}).BuildUpdater()
	_, sets, err := updater.Update(before, after, fieldpath.APIVersion(version), m.sets, key)
	if err != nil {
		return m
	}
	m.sets = sets
	strip(m.sets, key)
	if now := m.sets[key]; now != nil && (had == nil || !had.Set().Equals(now.Set())) {
		m.times[key] = a.now()
	}
	return m
}

// strip removes the system's fields from a manager's set.
func strip(sets fieldpath.ManagedFields, key string) {
	versioned, ok := sets[key]
	if !ok {
		return
	}
	set := versioned.Set().Difference(systemFields())
	if set.Empty() {
		delete(sets, key)
		return
	}
	sets[key] = fieldpath.NewVersionedSet(set, versioned.APIVersion(), versioned.Applied())
}

func systemFields() *fieldpath.Set {
	return fieldpath.NewSet(
		fieldpath.MakePathOrDie("apiVersion"), fieldpath.MakePathOrDie("kind"), fieldpath.MakePathOrDie("metadata"),
		fieldpath.MakePathOrDie("metadata", "name"), fieldpath.MakePathOrDie("metadata", "namespace"),
		fieldpath.MakePathOrDie("metadata", "creationTimestamp"), fieldpath.MakePathOrDie("metadata", "selfLink"),
		fieldpath.MakePathOrDie("metadata", "uid"), fieldpath.MakePathOrDie("metadata", "clusterName"),
		fieldpath.MakePathOrDie("metadata", "generation"), fieldpath.MakePathOrDie("metadata", "managedFields"),
		fieldpath.MakePathOrDie("metadata", "resourceVersion"), fieldpath.MakePathOrDie("metadata", "generateName"),
		fieldpath.MakePathOrDie("metadata", "deletionTimestamp"),
		fieldpath.MakePathOrDie("metadata", "deletionGracePeriodSeconds"),
	)
}

// parser reads an object as a value of its type.
type parser func(object map[string]any, options ...typed.ValidationOptions) (*typed.TypedValue, error)

// deduced reads an object without a schema: maps are merged, lists are replaced.
func deduced(object map[string]any, options ...typed.ValidationOptions) (*typed.TypedValue, error) {
	return typed.DeducedParseableType.FromUnstructured(object, options...)
}

// typeTable knows the types of the built-in kinds; their schema is read when it is first needed, since that takes a
// while.
type typeTable struct {
	once      sync.Once
	converter managedfields.TypeConverter

	narrowOnce sync.Once
	narrowType typed.ParseableType
}

// narrowSchema is what labelsAndAnnotations leaves of an object. A value that is no string, which only Replay lets
// in, is one value.
const narrowSchema = `types:
- name: object
  map:
    fields:
    - {name: apiVersion, type: {scalar: string}}
    - {name: kind, type: {scalar: string}}
    - {name: metadata, type: {namedType: metadata}}
- name: metadata
  map:
    fields:
    - {name: name, type: {scalar: string}}
    - {name: labels, type: {namedType: values}}
    - {name: annotations, type: {namedType: values}}
- name: values
  map:
    elementType: {namedType: value}
- name: value
  scalar: untyped
  list: {elementType: {namedType: value}, elementRelationship: atomic}
  map: {elementType: {namedType: value}, elementRelationship: atomic}
`

// narrow reads what labelsAndAnnotations returns.
func (t *typeTable) narrow() parser {
	t.narrowOnce.Do(func() {
		p, err := typed.NewParser(narrowSchema)
		if err != nil {
			panic("reading the schema of metadata: " + err.Error())
		}
		t.narrowType = p.Type("object")
	})
	return func(object map[string]any, options ...typed.ValidationOptions) (*typed.TypedValue, error) {
		return t.narrowType.FromUnstructured(object, options...)
	}
}

// of returns the schema's parser for built-in kinds whose given objects fit it, else the deducing one.
func (t *typeTable) of(kind Kind, objects ...map[string]any) parser {
	if kind.Custom || !scheme.Scheme.IsGroupRegistered(kind.Group) {
		return deduced
	}
	t.once.Do(func() { t.converter = applyconfigurations.NewTypeConverter(scheme.Scheme) })
	parse := func(object map[string]any, options ...typed.ValidationOptions) (*typed.TypedValue, error) {
		return t.converter.ObjectToTyped(&unstructured.Unstructured{Object: object}, options...)
	}
	for _, object := range objects {
		if _, err := parse(object, typed.AllowDuplicates); err != nil {
			return deduced
		}
	}
	return parse
}

// ownedBy is the set of fields that a new object's first applier owns.
func ownedBy(parse parser, config map[string]any) (*fieldpath.Set, error) {
	value, err := parse(config)
	if err != nil {
		return nil, fmt.Errorf("reading the applied object: %w", err)
	}
	set, err := value.ToFieldSet()
	if err != nil {
		return nil, fmt.Errorf("collecting the applied object's fields: %w", err)
	}
	return set.Difference(systemFields()), nil
}

// isReset says whether a client asks to forget all managers: an empty list, or a list of one empty entry.
func isReset(value any) bool {
	list, ok := value.([]any)
	if !ok || len(list) > 1 {
		return false
	}
	if len(list) == 0 {
		return true
	}
	entry, ok := list[0].(map[string]any)
	return ok && len(entry) == 0
}

// conflictMessages lists conflicts as the real server does, one line per field.
func conflictMessages(conflicts merge.Conflicts) (causes []metav1.StatusCause, message string) {
	byManager := map[string][]string{}
	for _, conflict := range conflicts {
		k := parseManagerKey(conflict.Manager)
		name := fmt.Sprintf("%q", k.Manager)
		if k.Operation == metav1.ManagedFieldsOperationUpdate {
			name += fmt.Sprintf(" using %s", k.APIVersion)
		}
		byManager[name] = append(byManager[name], conflict.Path.String())
		causes = append(causes, metav1.StatusCause{
			Type: metav1.CauseTypeFieldManagerConflict, Message: "conflict with " + name, Field: conflict.Path.String(),
		})
	}
	names := slices.Sorted(maps.Keys(byManager))
	plural := ""
	if len(causes) != 1 {
		plural = "s"
	}
	lines := make([]string, 0, len(names))
	for _, name := range names {
		lines = append(lines, fmt.Sprintf("conflict%s with %s: %s", plural, name, strings.Join(byManager[name], ", ")))
	}
	return causes, fmt.Sprintf("Apply failed with %d conflict%s: %s", len(causes), plural, strings.Join(lines, "; "))
}
