// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"net/http"
	"strings"

	openapi_v2 "github.com/google/gnostic-models/openapiv2"
	"google.golang.org/protobuf/proto"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

func gvkExtension(v *view) map[string]any {
	return map[string]any{"group": v.Group, "version": v.Version, "kind": v.kind.Kind}
}

func definitionName(v *view) string {
	group := v.Group
	if group == "" {
		group = "core"
	}
	return "sim." + strings.ReplaceAll(group, "-", ".") + "." + v.Version + "." + v.kind.Kind
}

// definition is an object of which everything may be set.
func definition(v *view) map[string]any {
	return map[string]any{
		"type": "object", "description": v.kind.Kind, "x-kubernetes-preserve-unknown-fields": true,
		"x-kubernetes-group-version-kind": []any{gvkExtension(v)},
	}
}

func patchOperation(v *view) map[string]any {
	parameters := []any{}
	for _, name := range []string{"dryRun", "fieldManager", "fieldValidation", "force"} {
		parameters = append(parameters,
			map[string]any{"name": name, "in": "query", "schema": map[string]any{"type": "string"}})
	}
	return map[string]any{"patch": map[string]any{
		"operationId": "patch" + v.kind.Kind, "parameters": parameters,
		"responses":           map[string]any{"200": map[string]any{"description": "OK"}},
		"x-kubernetes-action": "patch", "x-kubernetes-group-version-kind": gvkExtension(v),
	}}
}

// serveOpenAPIv2 answers in protobuf, which older clients insist on, or JSON.
func (a *API) serveOpenAPIv2(w http.ResponseWriter, r *http.Request) {
	definitions, paths := map[string]any{}, map[string]any{}
	for _, v := range a.sortedViews() {
		definitions[definitionName(v)] = definition(v)
		root := "/apis/" + v.GroupVersion.String()
		if v.Group == "" {
			root = "/api/" + v.Version
		}
		operation := patchOperation(v)
		patch, _ := operation["patch"].(map[string]any)
		parameters := []any{}
		for _, name := range []string{"dryRun", "fieldManager", "fieldValidation", "force"} {
			parameters = append(parameters, map[string]any{"name": name, "in": "query", "type": "string", "uniqueItems": true})
		}
		patch["parameters"] = parameters
		paths[root+"/"+v.kind.Plural+"/{name}"] = operation
	}
	body := encodeJSON(map[string]any{
		"swagger": "2.0", "info": map[string]any{"title": "Kubernetes", "version": "v1.33.0-sim"}, "paths": paths,
		"definitions": definitions,
	})
	if !strings.Contains(r.Header.Get("Accept"), "protobuf") {
		writeJSON(w, http.StatusOK, body)
		return
	}
	document, err := openapi_v2.ParseDocument(body)
	if err == nil {
		body, err = proto.Marshal(document)
	}
	if err != nil {
		writeError(w, apierrors.NewInternalError(err))
		return
	}
	w.Header().Set("Content-Type", "application/com.github.proto-openapi.spec.v2.v1.0+protobuf")
	_, _ = w.Write(body)
}
