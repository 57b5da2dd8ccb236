// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"fmt"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

func pods() schema.GroupResource { return schema.GroupResource{Resource: "pods"} }

func nodes() schema.GroupResource { return schema.GroupResource{Resource: "nodes"} }

func crds() schema.GroupResource {
	return schema.GroupResource{Group: "apiextensions.k8s.io", Resource: "customresourcedefinitions"}
}

// committed starts what follows from a write; no lock is held.
func (a *API) committed(res *resource, ev event) {
	marked := ev.kind == modified && metadata(ev.item.object)["deletionTimestamp"] != nil &&
		metadata(ev.prev.object)["deletionTimestamp"] == nil
	switch res.kind.Resource() {
	case namespaces():
		if marked {
			a.later(a.options.NamespaceDelay, func() { a.emptyNamespace(ev.item.name) })
		}
	case pods():
		if marked && a.options.PodGrace > 0 {
			name, namespace := ev.item.name, ev.item.namespace
			a.later(a.options.PodGrace, func() {
				_, _, _ = a.remove(res, namespace, name, metav1.DeleteOptions{GracePeriodSeconds: new(int64)}, false)
			})
		}
	case crds():
		a.customResource(ev)
	}
}

// emptyNamespace does the namespace controller's work: content first, then the namespace; again while something stays.
func (a *API) emptyNamespace(name string) {
	var left []*item
	a.mu.RLock()
	var owners []*resource
	for _, res := range a.resources {
		if !res.kind.Namespaced {
			continue
		}
		items, _ := res.snapshotLocked(name, 0)
		for _, it := range items {
			left, owners = append(left, it), append(owners, res)
		}
	}
	a.mu.RUnlock()
	stays := false
	for i, it := range left {
		if _, gone, err := a.remove(owners[i], it.namespace, it.name, metav1.DeleteOptions{}, false); err == nil && !gone {
			stays = true
		}
	}
	if stays {
		a.later(max(a.options.NamespaceDelay, 20*time.Millisecond), func() { a.emptyNamespace(name) })
		return
	}
	res := a.resource(namespaces())
	_, _, _ = a.mutate(res, "", name, false, func(current *item) (*change, error) {
		if current == nil || metadata(current.object)["deletionTimestamp"] == nil {
			return nil, nil //nolint:nilnil // gone already
		}
		object := writable(current.object)
		object["spec"] = map[string]any{}
		return &change{object: object, managed: current.managed, remove: finished(res, object)}, nil
	})
}

// customResource serves what a CustomResourceDefinition declares, and stops with its deletion.
func (a *API) customResource(ev event) {
	spec, _ := ev.item.object["spec"].(map[string]any)
	names, _ := spec["names"].(map[string]any)
	kind := Kind{
		Group: text(spec, "group"), Kind: text(names, "kind"), Plural: text(names, "plural"),
		Singular:   text(names, "singular"),
		ShortNames: textList(names["shortNames"]), Categories: textList(names["categories"]),
		Namespaced: text(spec, "scope") == "Namespaced", Generation: true, Custom: true,
	}
	versions, _ := spec["versions"].([]any)
	kind.Versions = nil
	for _, v := range versions {
		version, _ := v.(map[string]any)
		if served, _ := version["served"].(bool); !served {
			continue
		}
		if subresources, ok := version["subresources"].(map[string]any); ok && subresources["status"] != nil {
			kind.Status = true
		}
		fields, _ := version["selectableFields"].([]any)
		for _, f := range fields {
			field, _ := f.(map[string]any)
			kind.Selectable = append(kind.Selectable, strings.TrimPrefix(text(field, "jsonPath"), "."))
		}
		if stored, _ := version["storage"].(bool); stored {
			kind.Versions = append([]string{text(version, "name")}, kind.Versions...)
		} else {
			kind.Versions = append(kind.Versions, text(version, "name"))
		}
	}
	if kind.Group == "" || kind.Kind == "" || len(kind.Versions) == 0 {
		return
	}
	kind = kind.withDefaults()
	if ev.kind != deleted {
		a.Register(kind)
		a.establish(ev.item.name, names)
		return
	}
	a.mu.RLock()
	res := a.resources[kind.Resource()]
	var items []*item
	if res != nil {
		items, _ = res.snapshotLocked("", 0)
	}
	a.mu.RUnlock()
	for _, it := range items {
		_, _, _ = a.remove(res, it.namespace, it.name, metav1.DeleteOptions{}, false)
	}
	a.tellWatchers(kind.Resource().String(), tellEOF)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.unregisterLocked(kind.Resource())
}

// establish reports a definition as served, which clients wait for.
func (a *API) establish(name string, names map[string]any) {
	_, _, _ = a.mutate(a.resource(crds()), "", name, false, func(current *item) (*change, error) {
		if current == nil || text(current.object, "status", "acceptedNames", "kind") != "" {
			return nil, nil //nolint:nilnil // reported already
		}
		object := writable(current.object)
		condition := func(kind string) any {
			return map[string]any{
				"type": kind, "status": "True", "reason": "NoConflicts", "message": "served", "lastTransitionTime": a.now(),
			}
		}
		object["status"] = map[string]any{
			"acceptedNames": names, "storedVersions": []any{},
			"conditions": []any{condition("NamesAccepted"), condition("Established")},
		}
		return &change{object: object, managed: current.managed}, nil
	})
}

func textList(value any) (out []string) {
	list, _ := value.([]any)
	for _, v := range list {
		if s, ok := v.(string); ok {
			out = append(out, s)
		}
	}
	return out
}

// bind puts a pod on a node.
func (a *API) bind(namespace, name, node string) error {
	if node == "" {
		return apierrors.NewBadRequest("target.name must be set")
	}
	res := a.resource(pods())
	_, _, err := a.mutate(res, namespace, name, false, func(current *item) (*change, error) {
		if current == nil {
			return nil, apierrors.NewNotFound(pods(), name)
		}
		if old := text(current.object, "spec", "nodeName"); old != "" {
			return nil, apierrors.NewConflict(pods(), name, fmt.Errorf("pod %s is already assigned to node %q", name, old))
		}
		object := writable(current.object)
		section(object, "spec")["nodeName"] = node
		status := section(object, "status")
		status["conditions"] = []any{map[string]any{"type": "PodScheduled", "status": "True", "lastTransitionTime": a.now()}}
		return &change{object: object, managed: current.managed}, nil
	})
	return err
}

// aliasEvents serves events.k8s.io/v1 events from the same store as core events.
func (a *API) aliasEvents() {
	gvr := schema.GroupVersionResource{Group: "events.k8s.io", Version: "v1", Resource: "events"}
	res := a.resources[schema.GroupResource{Resource: "events"}]
	kind := res.kind
	kind.Group = gvr.Group
	names := map[string]string{
		"regarding": "involvedObject", "note": "message", "reportingController": "reportingComponent",
		"deprecatedSource":         "source",
		"deprecatedFirstTimestamp": "firstTimestamp", "deprecatedLastTimestamp": "lastTimestamp", "deprecatedCount": "count",
	}
	a.views[gvr] = &view{
		GroupVersion: gvr.GroupVersion(), res: res, kind: kind,
		in: func(object map[string]any) map[string]any {
			for modern, core := range names {
				if value, ok := object[modern]; ok {
					delete(object, modern)
					object[core] = value
				}
			}
			return object
		},
		out: func(object map[string]any) map[string]any {
			for modern, core := range names {
				if value, ok := object[core]; ok {
					delete(object, core)
					object[modern] = value
				}
			}
			return object
		},
	}
}
