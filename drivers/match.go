// SPDX-License-Identifier: Apache-2.0

package drivers

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
)

// Matches says whether a cluster would show an object, decoded from JSON, by a watch: its apiVersion, kind,
// namespace, labels and fields are as the watch wants them. It is for tests and tools, which have no cluster to
// select for them. A field selector may name any dotted path (see SplitField) to text, a number or a boolean; a path
// that leads nowhere is empty text. A selector that cannot be read, or a field with structure, is an error.
func Matches(w Watch, object map[string]any) (bool, error) {
	byLabels, err := labels.Parse(w.LabelSelector)
	if err != nil {
		return false, fmt.Errorf("watch %q: label selector %q: %w", w.Name, w.LabelSelector, err)
	}
	byFields, err := fields.ParseSelector(w.FieldSelector)
	if err != nil {
		return false, fmt.Errorf("watch %q: field selector %q: %w", w.Name, w.FieldSelector, err)
	}
	version, kind := w.GVR.GroupVersion().String(), w.Kind
	if object["apiVersion"] != version || object["kind"] != kind {
		return false, nil
	}
	id := identify(object)
	if (w.Namespace != "" && w.Namespace != id.namespace) || !byLabels.Matches(id.labels) {
		return false, nil
	}
	for _, want := range byFields.Requirements() {
		value, err := fieldText(object, want.Field)
		if err != nil {
			return false, fmt.Errorf("watch %q: field selector %q: %w", w.Name, w.FieldSelector, err)
		}
		if (value == want.Value) == (want.Operator == selection.NotEquals) {
			return false, nil
		}
	}
	return true, nil
}

// Answer answers a need from objects, decoded from JSON, as the core answers it from a cluster that holds just them:
// trimmed, and in the order of namespace and name. A need with a name and without a namespace is for a cluster-scoped
// object. No objects and no error mean absent. An error says why the core would not answer: a watch that was not
// declared, a namespace outside the watch's own, a selector that cannot be read.
func Answer(watches []Watch, need Need, objects []map[string]any) ([]Object, error) {
	at := slices.IndexFunc(watches, func(w Watch) bool { return w.Name == need.Watch })
	if at < 0 {
		return nil, fmt.Errorf("need %s: the driver has no watch %q", need, need.Watch)
	}
	w := watches[at]
	if w.Namespace != "" && need.Namespace != "" && w.Namespace != need.Namespace {
		return nil, fmt.Errorf("need %s: the watch is limited to namespace %q", need, w.Namespace)
	}
	meets, err := meeting(w, need)
	if err != nil {
		return nil, err
	}
	var found []identified
	for _, object := range objects {
		matches, err := Matches(w, object)
		if err != nil {
			return nil, err
		}
		if id := identify(object); matches && meets(id) {
			found = append(found, id)
		}
	}
	slices.SortStableFunc(found, func(a, b identified) int {
		return cmp.Or(cmp.Compare(a.namespace, b.namespace), cmp.Compare(a.name, b.name))
	})
	out := make([]Object, 0, len(found))
	for _, id := range found {
		object, err := w.Object(id.object)
		if err != nil {
			return nil, err
		}
		out = append(out, object)
	}
	return out, nil
}

// Object returns an object, decoded from JSON, as the driver gets it by the watch: trimmed to its fields.
func (w Watch) Object(object map[string]any) (Object, error) {
	raw, err := json.Marshal(Trim(object, w.Fields))
	if err != nil {
		return Object{}, fmt.Errorf("encoding an object of watch %q: %w", w.Name, err)
	}
	return Object{Watch: w.Name, Raw: raw}, nil
}

// identified is an object and what it is selected by.
type identified struct {
	object          map[string]any
	namespace, name string
	labels          labels.Set
}

func identify(object map[string]any) identified {
	metadata, _ := object["metadata"].(map[string]any)
	out := identified{object: object, labels: labels.Set{}}
	out.namespace, _ = metadata["namespace"].(string)
	out.name, _ = metadata["name"].(string)
	all, _ := metadata["labels"].(map[string]any)
	for key, value := range all {
		out.labels[key], _ = value.(string)
	}
	return out
}

// meeting returns what says whether an object is among those that a need asks for.
func meeting(w Watch, need Need) (func(identified) bool, error) {
	if need.Name != "" {
		return func(i identified) bool { return i.name == need.Name && i.namespace == need.Namespace }, nil
	}
	selector, err := labels.Parse(need.Selector)
	if err != nil {
		return nil, fmt.Errorf("need %s: selector: %w", need, err)
	}
	selects := func(identified) bool { return true }
	if need.Selects != (Subject{}) {
		subject, err := need.Selects.Parse()
		if err != nil {
			return nil, fmt.Errorf("need %s: %w", need, err)
		}
		if len(w.Selectors) == 0 {
			return nil, fmt.Errorf("need %s: the watch says nothing of its objects' selectors", need)
		}
		selects = func(i identified) bool {
			return slices.ContainsFunc(w.SelectorsOf(i.namespace, Trim(i.object, w.Fields)), subject.IsSelected)
		}
	}
	return func(i identified) bool {
		return (need.Namespace == "" || i.namespace == need.Namespace) && selector.Matches(i.labels) && selects(i)
	}, nil
}

// fieldText returns the text of the field at a dotted path, "" where there is none.
func fieldText(object map[string]any, path string) (string, error) {
	var value any = object
	for _, key := range SplitField(path) {
		below, _ := value.(map[string]any)
		if value = below[key]; value == nil {
			return "", nil
		}
	}
	switch value := value.(type) {
	case string:
		return value, nil
	case bool:
		return strconv.FormatBool(value), nil
	case int64:
		return strconv.FormatInt(value, 10), nil
	case float64:
		return strconv.FormatFloat(value, 'f', -1, 64), nil
	default:
		return "", fmt.Errorf("%s is neither text nor a number nor a boolean", path)
	}
}
