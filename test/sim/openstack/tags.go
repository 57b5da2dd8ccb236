// SPDX-License-Identifier: Apache-2.0

package openstack

import (
	"net/http"
	"slices"
	"strings"
)

// tags serves /<collection>/<id>/tags and below.
func (t *tx) tags(r *http.Request, where target, in map[string]any) (response, error) {
	k := where.kind
	if strings.Contains(where.arg, "/") {
		return response{}, noSuchResource()
	}
	o, ok := t.get(k.name, where.id)
	if !ok {
		return response{}, notFound("TagResourceNotFound", "Resource %s %s could not be found.", k.path, where.id)
	}
	has := slices.Contains(list(o.doc, "tags"), any(where.arg))
	if r.Method != http.MethodGet {
		if err := t.mayWrite(o, r.Method); err != nil {
			return response{}, err
		}
		if r.Header.Get("If-Match") != "" {
			// Zed's Neutron fails on that, whatever the revision.
			return response{}, neutron(http.StatusInternalServerError, "HTTPInternalServerError",
				"Request Failed: internal server error while processing your request.")
		}
	}
	switch {
	case r.Method == http.MethodGet && where.arg == "":
		return jsonResponse(http.StatusOK, map[string]any{"tags": o.doc["tags"]}), nil
	case r.Method == http.MethodGet && has:
		return response{status: http.StatusNoContent}, nil
	case r.Method == http.MethodPut && where.arg == "":
		tags, err := asTags(in["tags"])
		if err != nil {
			return response{}, badRequest("Invalid input for tags. Reason: %v", err)
		}
		if in["tags"] == nil {
			return response{}, badRequest("Invalid tags body")
		}
		t.change(o, map[string]any{"tags": tags})
		return jsonResponse(http.StatusOK, map[string]any{"tags": tags}), nil
	case r.Method == http.MethodPut:
		if _, err := asString(maxTag)(where.arg); err != nil {
			return response{}, badRequest("Invalid input for tag. Reason: %v", err)
		}
		if !has {
			tags := append(slices.Clone(list(o.doc, "tags")), where.arg)
			slices.SortFunc(tags, func(a, b any) int { return strings.Compare(a.(string), b.(string)) })
			t.change(o, map[string]any{"tags": tags})
		}
		return response{status: http.StatusCreated}, nil
	case r.Method == http.MethodDelete && where.arg == "":
		if len(list(o.doc, "tags")) > 0 {
			t.change(o, map[string]any{"tags": []any{}})
		}
		return response{status: http.StatusNoContent}, nil
	case r.Method == http.MethodDelete && has:
		tags := slices.DeleteFunc(slices.Clone(list(o.doc, "tags")), func(x any) bool { return x == where.arg })
		t.change(o, map[string]any{"tags": tags})
		return response{status: http.StatusNoContent}, nil
	case r.Method == http.MethodPost:
		return response{},
			neutron(http.StatusMethodNotAllowed, "HTTPMethodNotAllowed",
				"The method specified is not allowed for this resource.")
	}
	return response{}, notFound("TagNotFound", "Tag %s could not be found.", where.arg)
}
