// SPDX-License-Identifier: Apache-2.0

package conf

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kuryr/raven/drivers"
)

// The options that say which namespaces get networks.
const (
	OptNamespaceSelector  = "namespace_selector"
	OptExcludedNamespaces = "excluded_namespaces"
)

// selectionWatch is the name of the watch whose objects tell the labels of namespaces.
const selectionWatch = "namespace-labels"

// Namespaces say which namespaces get networks, and their pods and Services ports and load balancers.
func Namespaces() []drivers.Option {
	return []drivers.Option{
		{
			Group: SubnetGroup, Name: OptNamespaceSelector, Type: drivers.StringOption,
			Help: "Label selector, as kubectl --selector takes it, of the namespaces that get networks; pods and Services of " +
				"the others get no ports and no load balancers. Not set: all namespaces. What a namespace has is deleted when " +
				"it is not selected any more.",
		},
		{
			Group: SubnetGroup, Name: OptExcludedNamespaces, Type: drivers.ListOption,
			Default: "kube-public,kube-node-lease", HasDefault: true, Pattern: `^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`,
			Help: "Names of namespaces that get no networks, whatever their labels. Those of the default never have pods.",
		},
	}
}

// Selection says which namespaces get networks.
type Selection struct {
	selector labels.Selector // nil: all
	text     string
	excluded []string
}

// ReadSelection reads the options that Namespaces declares.
func ReadSelection(values drivers.Values) (Selection, error) {
	s := Selection{
		text: values.String(SubnetGroup, OptNamespaceSelector), excluded: values.List(SubnetGroup, OptExcludedNamespaces),
	}
	if s.text == "" {
		return s, nil
	}
	selector, err := labels.Parse(s.text)
	if err != nil {
		return s, Refusal(SubnetGroup, OptNamespaceSelector, "%q is no label selector: %v", s.text, err)
	}
	s.selector = selector
	return s, nil
}

// Watches are what Left asks: none where labels do not matter.
func (s Selection) Watches() []drivers.Watch {
	if s.selector == nil {
		return nil
	}
	return []drivers.Watch{{
		Name: selectionWatch, GVR: schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}, Kind: "Namespace",
		Fields: []string{"metadata.labels"},
	}}
}

// Left says why a namespace gets no network: as a note on what is in it, nil if it gets one. What is of a namespace
// that the cluster does not show, because it is just made or just deleted, is not left out. When the needs are open
// afterwards, the answer does not count.
func (s Selection) Left(needs *drivers.Needs, namespace, what string) ([]drivers.Diagnostic, error) {
	if slices.Contains(s.excluded, namespace) {
		return note(what, fmt.Sprintf("%s names namespace %s", Name(SubnetGroup, OptExcludedNamespaces), namespace)), nil
	}
	if s.selector == nil {
		return nil, nil
	}
	objects, answered := needs.Get(drivers.Need{Watch: selectionWatch, Name: namespace})
	if !answered || len(objects) == 0 {
		return nil, nil
	}
	meta, err := objects[0].Meta()
	if err != nil || s.selector.Matches(labels.Set(meta.Labels)) {
		return nil, err
	}
	return note(what, fmt.Sprintf("%s = %s does not select namespace %s", Name(SubnetGroup, OptNamespaceSelector), s.text,
		namespace)), nil
}

func note(what, why string) []drivers.Diagnostic {
	return []drivers.Diagnostic{{
		Severity: drivers.Note, Reason: "NamespaceNotSelected", Message: what + ": " + why,
	}}
}
