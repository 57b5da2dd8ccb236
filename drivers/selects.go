// SPDX-License-Identifier: Apache-2.0

package drivers

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
)

// SelectorPair selects objects, as an object of a watch with Selectors does.
type SelectorPair struct {
	// Namespace is the only one that objects are selected in; empty: Namespaces says in which.
	Namespace  string
	Namespaces labels.Selector
	Objects    labels.Selector
}

// String is the same for pairs that select the same objects by the same words.
func (p SelectorPair) String() string {
	if p.Namespace != "" {
		return fmt.Sprintf("namespace %s: %s", p.Namespace, textOf(p.Objects))
	}
	return fmt.Sprintf("namespaces %s: %s", textOf(p.Namespaces), textOf(p.Objects))
}

// textOf tells the selector of nothing from that of everything, which has no text either.
func textOf(selector labels.Selector) string {
	if _, selects := selector.Requirements(); !selects {
		return "none"
	}
	return selector.String()
}

// Readable says whether both selectors could be read: one that could not selects nothing.
func (p SelectorPair) Readable() bool {
	_, objects := p.Objects.Requirements()
	namespaces := true
	if p.Namespaces != nil {
		_, namespaces = p.Namespaces.Requirements()
	}
	return objects && namespaces
}

// Required returns a label, as "key=value", that all objects have that the pair selects; false: there is none that is
// easily told.
func (p SelectorPair) Required() (string, bool) {
	requirements, _ := p.Objects.Requirements()
	for _, r := range requirements {
		if values := r.Values(); len(values) == 1 && (r.Operator() == selection.In || r.Operator() == selection.Equals ||
			r.Operator() == selection.DoubleEquals) {
			return r.Key() + "=" + values.UnsortedList()[0], true
		}
	}
	return "", false
}

// SelectorsOf returns the pairs of selectors that an object of the watch, decoded from JSON, holds. What cannot be read
// as a selector selects nothing.
func (w Watch) SelectorsOf(namespace string, object map[string]any) []SelectorPair {
	var pairs []SelectorPair
	for _, path := range w.Selectors {
		for _, element := range elementsAt(object, strings.Split(path.Path, ".")) {
			if pair, ok := path.Pair(namespace, element); ok {
				pairs = append(pairs, pair)
			}
		}
	}
	return pairs
}

// Pair returns the pair of selectors in what the path leads to, decoded from JSON, and whether there is one.
func (p SelectorPath) Pair(namespace string, element map[string]any) (SelectorPair, bool) {
	ofNamespaces, anywhere := element[p.Namespaces].(map[string]any)
	ofObjects, some := element[p.Objects].(map[string]any)
	if !anywhere && !some {
		return SelectorPair{}, false
	}
	pair := SelectorPair{Objects: labels.Everything()}
	if some {
		pair.Objects = selectorOf(ofObjects)
	}
	if anywhere {
		pair.Namespaces = selectorOf(ofNamespaces)
	} else {
		pair.Namespace = namespace
	}
	return pair, true
}

func selectorOf(value map[string]any) labels.Selector {
	var selector metav1.LabelSelector
	raw, err := json.Marshal(value)
	if err == nil {
		err = json.Unmarshal(raw, &selector)
	}
	if err != nil {
		return labels.Nothing()
	}
	parsed, err := metav1.LabelSelectorAsSelector(&selector)
	if err != nil {
		return labels.Nothing()
	}
	return parsed
}

func elementsAt(value any, path []string) []map[string]any {
	object, _ := value.(map[string]any)
	if len(path) == 0 {
		if object == nil {
			return nil
		}
		return []map[string]any{object}
	}
	name, each := strings.CutSuffix(path[0], "[]")
	if !each {
		return elementsAt(object[name], path[1:])
	}
	var found []map[string]any
	list, _ := object[name].([]any)
	for _, element := range list {
		found = append(found, elementsAt(element, path[1:])...)
	}
	return found
}

// ParsedSubject is a Subject whose labels can be compared.
type ParsedSubject struct {
	Namespace       string
	NamespaceLabels labels.Set
	Labels          labels.Set
}

// Parse reads the labels of a subject, which must have a namespace.
func (s Subject) Parse() (ParsedSubject, error) {
	if s.Namespace == "" || s.Namespace == noNamespace {
		return ParsedSubject{}, errors.New("the object that others select has no namespace")
	}
	ofNamespace, err := labels.ConvertSelectorToLabelsMap(s.NamespaceLabels)
	if err != nil {
		return ParsedSubject{}, fmt.Errorf("labels of namespace %s: %w", s.Namespace, err)
	}
	own, err := labels.ConvertSelectorToLabelsMap(s.Labels)
	if err != nil {
		return ParsedSubject{}, fmt.Errorf("labels: %w", err)
	}
	return ParsedSubject{s.Namespace, ofNamespace, own}, nil
}

// IsSelected says whether a pair selects the subject.
func (s ParsedSubject) IsSelected(pair SelectorPair) bool {
	if pair.Namespace != "" {
		return pair.Namespace == s.Namespace && pair.Objects.Matches(s.Labels)
	}
	return pair.Namespaces.Matches(s.NamespaceLabels) && pair.Objects.Matches(s.Labels)
}
