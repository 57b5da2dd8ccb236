// SPDX-License-Identifier: Apache-2.0

package web

import (
	"strings"

	"github.com/kuryr/raven/service/reconcile"
	"github.com/kuryr/raven/service/state"
)

// mostFound bounds the answer to a search.
const mostFound = 50

// Found is what a search has found.
type Found struct {
	Objects []FoundObject `json:"objects"`
	More    bool          `json:"more,omitempty"` // there are more than are listed
}

// FoundObject is a source object that a search has found, and by what.
type FoundObject struct {
	ID        string      `json:"id"`
	Kind      string      `json:"kind"`
	Namespace string      `json:"namespace,omitempty"`
	Name      string      `json:"name"`
	State     state.Phase `json:"state"`
	By        string      `json:"by"`
}

// search looks for a text in names, ids and addresses, whatever its case.
func search(objects []reconcile.ObjectStatus, text string) Found {
	text = strings.ToLower(strings.TrimSpace(text))
	found := Found{Objects: []FoundObject{}}
	seen := map[string]bool{}
	for i := range objects {
		o := &objects[i]
		id := objectID(o)
		if text == "" || o.Driver == state.Shared || seen[id] {
			continue
		}
		by := matched(o, text)
		if by == "" {
			continue
		}
		if len(found.Objects) == mostFound {
			found.More = true
			break
		}
		seen[id] = true
		found.Objects = append(found.Objects, FoundObject{id, o.Kind, o.Namespace, o.Name, o.State, by})
	}
	return found
}

// matched says what of an object holds the text; "": nothing.
func matched(o *reconcile.ObjectStatus, text string) string {
	has := func(s string) bool { return strings.Contains(strings.ToLower(s), text) }
	switch {
	case has(o.Name):
		return "name"
	case has(o.Namespace):
		return "namespace"
	case has(o.UID):
		return "uid"
	}
	for _, r := range o.Resources {
		switch {
		case has(r.ID):
			return string(r.Kind) + " " + r.ID
		case has(r.Name):
			return string(r.Kind) + " " + r.Name
		}
		for key, value := range r.Attrs {
			if addressed(key) && holds(value, has) {
				return string(r.Kind) + " " + key
			}
		}
	}
	return ""
}

// addressed says whether an attribute has addresses: tags and descriptions say of every resource the same.
func addressed(key string) bool {
	return strings.Contains(key, "address") || strings.Contains(key, "cidr") || strings.Contains(key, "ip")
}

func holds(value any, has func(string) bool) bool {
	switch v := value.(type) {
	case string:
		return has(v)
	case []any:
		for _, item := range v {
			if holds(item, has) {
				return true
			}
		}
	case map[string]any:
		for _, item := range v {
			if holds(item, has) {
				return true
			}
		}
	}
	return false
}
