// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"net/http"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/version"
)

// serveDiscovery answers what is not about objects: which groups, versions and resources there are, schemas, health,
// reviews.
func (a *API) serveDiscovery(w http.ResponseWriter, r *http.Request, user string) {
	path := strings.Trim(r.URL.Path, "/")
	parts := strings.Split(path, "/")
	aggregated := strings.Contains(r.Header.Get("Accept"), "as=APIGroupDiscoveryList")
	switch {
	case path == "version":
		writeJSON(w, http.StatusOK, encodeJSON(version.Info{
			Major: "1", Minor: "33", GitVersion: "v1.33.0-sim", GitTreeState: "clean", GoVersion: "go", Compiler: "gc",
			Platform: "linux/amd64",
		}))
	case path == "healthz" || path == "livez" || path == "readyz":
		_, _ = w.Write([]byte("ok"))
	case path == "api" && aggregated:
		a.writeAggregated(w, true)
	case path == "apis" && aggregated:
		a.writeAggregated(w, false)
	case path == "api":
		writeJSON(w, http.StatusOK,
			encodeJSON(map[string]any{"kind": "APIVersions", "versions": []string{"v1"}, "serverAddressByClientCIDRs": []any{}}))
	case path == "apis":
		a.writeGroups(w)
	case path == "api/v1":
		a.writeResources(w, schema.GroupVersion{Version: "v1"})
	case len(parts) == 2 && parts[0] == "apis":
		a.writeGroup(w, parts[1])
	case len(parts) == 3 && parts[0] == "apis":
		a.writeResources(w, schema.GroupVersion{Group: parts[1], Version: parts[2]})
	case path == "apis/authorization.k8s.io/v1/selfsubjectaccessreviews" && r.Method == http.MethodPost:
		a.serveReview(w, r, user)
	case path == "apis/authentication.k8s.io/v1/selfsubjectreviews" && r.Method == http.MethodPost:
		writeJSON(w, http.StatusCreated, encodeJSON(map[string]any{
			"kind": "SelfSubjectReview", "apiVersion": "authentication.k8s.io/v1",
			"status": map[string]any{"userInfo": map[string]any{"username": user}},
		}))
	case path == "openapi/v2" || path == "openapi/v3" || strings.HasPrefix(path, "openapi/v3/"):
		a.serveOpenAPI(w, r, path)
	default:
		writeError(w, notServed())
	}
}

func verbs() []string {
	return []string{"create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"}
}

// reviews are the resources that can only be created and are not stored.
func reviews() map[schema.GroupVersion]Kind {
	return map[schema.GroupVersion]Kind{
		{
			Group: "authorization.k8s.io", Version: "v1",
		}: Kind{Group: "authorization.k8s.io", Kind: "SelfSubjectAccessReview"}.withDefaults(),
		{
			Group: "authentication.k8s.io", Version: "v1",
		}: Kind{Group: "authentication.k8s.io", Kind: "SelfSubjectReview"}.withDefaults(),
	}
}

// subresources of a kind, with the kind that they exchange.
func (v *view) subresources() [][2]string {
	var out [][2]string
	if v.kind.Status {
		out = append(out, [2]string{"status", v.kind.Kind})
	}
	if v.hasSubresource("binding") {
		out = append(out, [2]string{"binding", "Binding"}, [2]string{"eviction", "Eviction"})
	}
	if v.hasSubresource("finalize") {
		out = append(out, [2]string{"finalize", v.kind.Kind})
	}
	return out
}

// groupVersions lists the served versions by group, in order; the core group is "".
func (a *API) groupVersions() (groups []string, versions map[string][]string) {
	versions = map[string][]string{}
	add := func(gv schema.GroupVersion) {
		list := versions[gv.Group]
		if list == nil {
			groups = append(groups, gv.Group)
		}
		for _, have := range list {
			if have == gv.Version {
				return
			}
		}
		versions[gv.Group] = append(list, gv.Version)
	}
	for _, v := range a.sortedViews() {
		add(v.GroupVersion)
	}
	for gv := range reviews() {
		add(gv)
	}
	return groups, versions
}

func groupDocument(group string, versions []string) map[string]any {
	list := make([]any, 0, len(versions))
	for _, v := range versions {
		list = append(list, map[string]any{"groupVersion": group + "/" + v, "version": v})
	}
	return map[string]any{"name": group, "versions": list, "preferredVersion": list[0]}
}

func (a *API) writeGroups(w http.ResponseWriter) {
	groups, versions := a.groupVersions()
	list := []any{}
	for _, group := range groups {
		if group != "" {
			list = append(list, groupDocument(group, versions[group]))
		}
	}
	writeJSON(w, http.StatusOK, encodeJSON(map[string]any{"kind": "APIGroupList", "apiVersion": "v1", "groups": list}))
}

func (a *API) writeGroup(w http.ResponseWriter, group string) {
	_, versions := a.groupVersions()
	if versions[group] == nil || group == "" {
		writeError(w, notServed())
		return
	}
	document := groupDocument(group, versions[group])
	document["kind"], document["apiVersion"] = "APIGroup", "v1"
	writeJSON(w, http.StatusOK, encodeJSON(document))
}

func (a *API) writeResources(w http.ResponseWriter, gv schema.GroupVersion) {
	list := []any{}
	for _, v := range a.sortedViews() {
		if v.GroupVersion != gv {
			continue
		}
		k := v.kind
		list = append(list, map[string]any{
			"name": k.Plural, "singularName": k.Singular, "namespaced": k.Namespaced, "kind": k.Kind, "verbs": verbs(),
			"shortNames": k.ShortNames, "categories": k.Categories, "storageVersionHash": k.Plural,
		})
		for _, sub := range v.subresources() {
			list = append(list, map[string]any{
				"name": k.Plural + "/" + sub[0], "singularName": "", "namespaced": k.Namespaced, "kind": sub[1],
				"verbs": []string{"get", "patch", "update"},
			})
		}
	}
	if k, ok := reviews()[gv]; ok {
		list = append(list,
			map[string]any{
				"name": k.Plural, "singularName": k.Singular, "namespaced": false, "kind": k.Kind, "verbs": []string{"create"},
			})
	}
	if len(list) == 0 {
		writeError(w, notServed())
		return
	}
	writeJSON(w, http.StatusOK,
		encodeJSON(map[string]any{
			"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": gv.String(), "resources": list,
		}))
}

// writeAggregated answers aggregated discovery for the core group or for all others.
func (a *API) writeAggregated(w http.ResponseWriter, core bool) {
	groups, versions := a.groupVersions()
	items := []any{}
	for _, group := range groups {
		if (group == "") != core {
			continue
		}
		list := []any{}
		for _, name := range versions[group] {
			list = append(list,
				map[string]any{
					"version": name, "freshness": "Current",
					"resources": a.aggregatedResources(schema.GroupVersion{Group: group, Version: name}),
				})
		}
		items = append(items,
			map[string]any{"metadata": map[string]any{"name": group, "creationTimestamp": nil}, "versions": list})
	}
	w.Header().Set("Vary", "Accept")
	body := encodeJSON(map[string]any{
		"kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "metadata": map[string]any{}, "items": items,
	})
	w.Header().Set("Content-Type", "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList")
	w.WriteHeader(http.StatusOK)
	_, _ = w.Write(body)
}

func (a *API) aggregatedResources(gv schema.GroupVersion) []any {
	scope := func(k Kind) string {
		if k.Namespaced {
			return "Namespaced"
		}
		return "Cluster"
	}
	kind := func(name string) map[string]any {
		return map[string]any{"group": gv.Group, "version": gv.Version, "kind": name}
	}
	list := []any{}
	for _, v := range a.sortedViews() {
		if v.GroupVersion != gv {
			continue
		}
		entry := map[string]any{
			"resource": v.kind.Plural, "responseKind": kind(v.kind.Kind), "scope": scope(v.kind),
			"singularResource": v.kind.Singular,
			"verbs":            verbs(), "shortNames": v.kind.ShortNames, "categories": v.kind.Categories,
		}
		subs := []any{}
		for _, sub := range v.subresources() {
			subs = append(subs,
				map[string]any{"subresource": sub[0], "responseKind": kind(sub[1]), "verbs": []string{"get", "patch", "update"}})
		}
		entry["subresources"] = subs
		list = append(list, entry)
	}
	if k, ok := reviews()[gv]; ok {
		list = append(list, map[string]any{
			"resource": k.Plural, "responseKind": kind(k.Kind), "scope": "Cluster", "singularResource": k.Singular,
			"verbs": []string{"create"},
		})
	}
	return list
}

// serveOpenAPI tells clients which kinds there are, without their fields, and that fieldValidation is understood.
func (a *API) serveOpenAPI(w http.ResponseWriter, r *http.Request, path string) {
	if path == "openapi/v2" {
		a.serveOpenAPIv2(w, r)
		return
	}
	groups, versions := a.groupVersions()
	if path == "openapi/v3" {
		paths := map[string]any{}
		for _, group := range groups {
			for _, v := range versions[group] {
				root := "api/" + v
				if group != "" {
					root = "apis/" + group + "/" + v
				}
				paths[root] = map[string]any{"serverRelativeURL": "/openapi/v3/" + root}
			}
		}
		writeJSON(w, http.StatusOK, encodeJSON(map[string]any{"paths": paths}))
		return
	}
	parts := strings.Split(strings.TrimPrefix(path, "openapi/v3/"), "/")
	gv := schema.GroupVersion{Version: parts[len(parts)-1]}
	if len(parts) == 3 {
		gv.Group = parts[1]
	}
	if versions[gv.Group] == nil {
		writeError(w, apierrors.NewNotFound(schema.GroupResource{Resource: "openapi"}, gv.String()))
		return
	}
	paths, schemas := map[string]any{}, map[string]any{}
	for _, v := range a.sortedViews() {
		if v.GroupVersion == gv {
			paths["/"+strings.Join(parts, "/")+"/"+v.kind.Plural+"/{name}"] = patchOperation(v)
			schemas[definitionName(v)] = definition(v)
		}
	}
	writeJSON(w, http.StatusOK, encodeJSON(map[string]any{
		"openapi": "3.0.0", "info": map[string]any{"title": "Kubernetes", "version": "v1.33.0-sim"}, "paths": paths,
		"components": map[string]any{"schemas": schemas},
	}))
}
