// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"sort"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Kind describes a kind of object to serve.
type Kind struct {
	Group string
	// Versions are the served versions, the stored one first. Objects are converted between them by their apiVersion only.
	Versions []string
	Kind     string
	// Plural and Singular default to the lower case kind with and without an "s".
	Plural, Singular       string
	ShortNames, Categories []string
	Namespaced             bool
	// Status says that status is a subresource: ordinary writes leave it alone.
	Status bool
	// Generation says that metadata.generation counts the changes outside metadata and status.
	Generation bool
	// Custom marks a custom resource: an update of it must give a resourceVersion.
	Custom bool
	// Selectable are the fields of a custom resource that its definition lets select by, as dotted paths.
	Selectable []string
}

func (k Kind) withDefaults() Kind {
	if k.Singular == "" {
		k.Singular = strings.ToLower(k.Kind)
	}
	if k.Plural == "" {
		k.Plural = k.Singular + "s"
	}
	if len(k.Versions) == 0 {
		k.Versions = []string{"v1"}
	}
	return k
}

// Resource is the group and plural name that the kind is stored under.
func (k Kind) Resource() schema.GroupResource {
	return schema.GroupResource{Group: k.Group, Resource: k.Plural}
}

// builtinKinds are the kinds that every API serves.
func builtinKinds() []Kind {
	v1 := []string{"v1"}
	return []Kind{
		{Versions: v1, Kind: "Namespace", ShortNames: []string{"ns"}, Status: true},
		{
			Versions: v1, Kind: "Pod", ShortNames: []string{"po"}, Categories: []string{"all"}, Namespaced: true, Status: true,
			Generation: true,
		},
		{
			Versions: v1, Kind: "Service", ShortNames: []string{"svc"}, Categories: []string{"all"}, Namespaced: true,
			Status: true,
		},
		{
			Versions: v1, Kind: "Endpoints", Plural: "endpoints", Singular: "endpoints", ShortNames: []string{"ep"},
			Namespaced: true,
		},
		{Versions: v1, Kind: "Node", ShortNames: []string{"no"}, Status: true},
		{Versions: v1, Kind: "Event", ShortNames: []string{"ev"}, Namespaced: true},
		{Versions: v1, Kind: "ConfigMap", ShortNames: []string{"cm"}, Namespaced: true},
		{Versions: v1, Kind: "Secret", Namespaced: true},
		{Versions: v1, Kind: "ServiceAccount", ShortNames: []string{"sa"}, Namespaced: true},
		{
			Group: "apps", Versions: v1, Kind: "Deployment", ShortNames: []string{"deploy"}, Categories: []string{"all"},
			Namespaced: true, Status: true, Generation: true,
		},
		{
			Group: "apps", Versions: v1, Kind: "ReplicaSet", ShortNames: []string{"rs"}, Categories: []string{"all"},
			Namespaced: true, Status: true, Generation: true,
		},
		{Group: "coordination.k8s.io", Versions: v1, Kind: "Lease", Namespaced: true},
		{Group: "discovery.k8s.io", Versions: v1, Kind: "EndpointSlice", Namespaced: true, Generation: true},
		{
			Group: "networking.k8s.io", Versions: v1, Kind: "NetworkPolicy", Plural: "networkpolicies",
			ShortNames: []string{"netpol"}, Namespaced: true, Generation: true,
		},
		{Group: "networking.k8s.io", Versions: v1, Kind: "ServiceCIDR", Status: true, Generation: true},
		{
			Group: "networking.k8s.io", Versions: v1, Kind: "IPAddress", Plural: "ipaddresses", ShortNames: []string{"ip"},
			Generation: true,
		},
		{
			Group: "apiextensions.k8s.io", Versions: v1, Kind: "CustomResourceDefinition", ShortNames: []string{"crd", "crds"},
			Status: true, Generation: true,
		},
	}
}

// resource is the storage of one kind. Its fields below kind are guarded by API.mu.
type resource struct {
	kind Kind

	objects  map[string]*item
	log      []event // ascending versions
	trimmed  uint64  // events up to this version are no longer in the log
	floor    uint64  // watches and lists from versions before this one are refused
	watchers map[*watcher]struct{}
}

// view is one group and version through which a resource is served.
type view struct {
	schema.GroupVersion
	res *resource
	// kind is the kind's description as this group shows it.
	kind Kind
	// in and out convert a whole object to and from its stored form; nil where only apiVersion differs.
	in, out func(map[string]any) map[string]any
}

func (v *view) groupResource() schema.GroupResource {
	return schema.GroupResource{Group: v.Group, Resource: v.kind.Plural}
}

// stored says whether this view shows objects exactly as they are stored.
func (v *view) stored() bool {
	return v.out == nil && v.Group == v.res.kind.Group && v.Version == v.res.kind.Versions[0]
}

// show returns an object of the store as this view shows it; the object itself is not changed.
func (v *view) show(object map[string]any) map[string]any {
	if v.stored() {
		return object
	}
	out := make(map[string]any, len(object))
	for k, val := range object {
		out[k] = val
	}
	if v.out != nil {
		out = v.out(out)
	}
	out["apiVersion"] = v.GroupVersion.String()
	return out
}

// take turns an object that came through this view into its stored form, in place.
func (v *view) take(object map[string]any) map[string]any {
	if v.in != nil {
		object = v.in(object)
	}
	object["apiVersion"] = schema.GroupVersion{Group: v.res.kind.Group, Version: v.res.kind.Versions[0]}.String()
	object["kind"] = v.res.kind.Kind
	return object
}

// Register serves a further kind; one that exists already is left as it is, but gains versions.
func (a *API) Register(kind Kind) {
	kind = kind.withDefaults()
	a.mu.Lock()
	defer a.mu.Unlock()
	a.registerLocked(kind)
}

func (a *API) registerLocked(kind Kind) {
	res := a.resources[kind.Resource()]
	if res == nil {
		res = &resource{
			kind: kind, objects: map[string]*item{}, watchers: map[*watcher]struct{}{}, floor: a.version, trimmed: a.version,
		}
		a.resources[kind.Resource()] = res
	}
	for _, version := range kind.Versions {
		gvr := schema.GroupVersionResource{Group: kind.Group, Version: version, Resource: kind.Plural}
		if a.views[gvr] == nil {
			a.views[gvr] = &view{GroupVersion: gvr.GroupVersion(), res: res, kind: kind}
		}
	}
}

// unregisterLocked stops serving a custom resource. The caller has emptied it.
func (a *API) unregisterLocked(gr schema.GroupResource) {
	delete(a.resources, gr)
	for gvr := range a.views {
		if gvr.GroupResource() == gr {
			delete(a.views, gvr)
		}
	}
}

func (a *API) resource(gr schema.GroupResource) *resource {
	a.mu.RLock()
	defer a.mu.RUnlock()
	return a.resources[gr]
}

func (a *API) view(gvr schema.GroupVersionResource) *view {
	a.mu.RLock()
	defer a.mu.RUnlock()
	return a.views[gvr]
}

// sortedViews lists what is served, by group, version and name, the core group first.
func (a *API) sortedViews() []*view {
	a.mu.RLock()
	defer a.mu.RUnlock()
	views := make([]*view, 0, len(a.views))
	for _, v := range a.views {
		views = append(views, v)
	}
	sort.Slice(views, func(i, j int) bool {
		x, y := views[i], views[j]
		if x.Group != y.Group {
			return x.Group < y.Group
		}
		if x.Version != y.Version {
			return x.Version < y.Version
		}
		return x.kind.Plural < y.kind.Plural
	})
	return views
}
