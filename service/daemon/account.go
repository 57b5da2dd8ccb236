// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kuryr/raven/drivers"
)

// Unread is an object of a file that no enabled driver translates.
type Unread struct {
	Object string `json:"object"` // kind and namespace/name
	Reason string `json:"reason"`
}

// Account names the objects that no enabled driver translates, with the reason, in their order. watches are those of
// each driver.
func Account(watches map[string][]drivers.Watch, objects []*unstructured.Unstructured) ([]Unread, error) {
	names := make([]string, 0, len(watches))
	for name := range watches {
		names = append(names, name)
	}
	slices.Sort(names)
	var list []Unread
	for _, o := range objects {
		translated, reasons := false, []string{}
		for _, name := range names {
			for _, w := range watches[name] {
				matches, err := drivers.Matches(w, o.Object)
				if err != nil {
					return nil, err
				}
				sameKind := w.Kind == o.GetKind() && w.GVR.GroupVersion().String() == o.GetAPIVersion()
				switch {
				case matches && w.Source:
					translated = true
				case matches:
					reasons = append(reasons, fmt.Sprintf("driver %s reads it for other objects, and makes nothing of it itself",
						name))
				case sameKind && w.Source:
					reasons = append(reasons, fmt.Sprintf("driver %s reads %s, but not this one: %s", name, w.Kind, selection(w)))
				}
			}
		}
		if translated {
			continue
		}
		if len(reasons) == 0 {
			reasons = []string{fmt.Sprintf("no enabled driver (%s) reads %s of %s%s", strings.Join(names, ", "), o.GetKind(),
				o.GetAPIVersion(), podsOf(o))}
		}
		list = append(list, Unread{Object: ObjectText(o), Reason: strings.Join(slices.Compact(reasons), "; ")})
	}
	return list, nil
}

// selection says which objects a watch takes.
func selection(w drivers.Watch) string {
	var parts []string
	for _, part := range []struct{ what, value string }{
		{"namespace", w.Namespace}, {"labels", w.LabelSelector}, {"fields", w.FieldSelector},
	} {
		if part.value != "" {
			parts = append(parts, part.what+" "+part.value)
		}
	}
	return "it selects " + strings.Join(parts, ", ")
}

// podsOf tells who puts a workload in a file that its Pods are made by the cluster.
func podsOf(o *unstructured.Unstructured) string {
	if _, template, _ := unstructured.NestedMap(o.Object, "spec", "template"); template {
		return "; the Pods that a cluster makes of it are not in the files"
	}
	return ""
}

// ObjectText names an object by its kind, namespace and name.
func ObjectText(o *unstructured.Unstructured) string {
	return o.GetKind() + " " + strings.TrimPrefix(o.GetNamespace()+"/"+o.GetName(), "/")
}
