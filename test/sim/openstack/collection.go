// SPDX-License-Identifier: Apache-2.0

package openstack

import (
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
)

// serve answers a request to Neutron, with the lock held.
func (t *tx) serve(r *http.Request, where target, in map[string]any) (response, error) {
	segment, _, _ := strings.Cut(strings.TrimPrefix(where.path, "/v2.0/"), "/")
	switch strings.TrimSuffix(segment, ".json") {
	case "extensions":
		return t.extensions(r, where)
	case "quotas":
		return t.quotas(r, where, in)
	}
	if where.kind == nil {
		return response{}, noSuchResource()
	}
	t.defaultGroup(t.who.project)
	switch {
	case where.sub == "tags":
		return t.tags(r, where, in)
	case where.sub != "" && where.kind.name == "router" && r.Method == http.MethodPut:
		return t.routerAction(r, where, in)
	case where.sub != "":
		return response{}, noSuchResource()
	case where.id != "":
		return t.item(r, where, in)
	}
	switch r.Method {
	case http.MethodGet:
		return t.list(r, where.kind)
	case http.MethodPost:
		return t.createAll(where.kind, in)
	}
	return response{},
		neutron(http.StatusMethodNotAllowed, "HTTPMethodNotAllowed", "The method specified is not allowed for this resource.")
}

// createAll is POST of one resource, or of many: all or none.
func (t *tx) createAll(k *kind, in map[string]any) (response, error) {
	many, bulk := in[k.plural].([]any)
	if !bulk {
		one, ok := in[k.name].(map[string]any)
		if !ok {
			return response{}, badRequest("Unable to find '%s' in request body", k.name)
		}
		many = []any{one}
	}
	if len(many) == 0 {
		return response{}, badRequest("Resource list is empty")
	}
	checked := make([]map[string]any, 0, len(many))
	perProject := map[string]int{}
	for _, item := range many {
		attrs, ok := item.(map[string]any)
		if !ok {
			return response{}, badRequest("Unable to find '%s' in request body", k.name)
		}
		if inner, wrapped := attrs[k.name].(map[string]any); wrapped && len(attrs) == 1 {
			attrs = inner
		}
		doc, err := k.forCreate(t.who, attrs, k.name == "port" && !t.c.opts.NoPortTags)
		if err != nil {
			return response{}, err
		}
		checked = append(checked, doc)
		perProject[str(doc, "project_id")]++
	}
	if err := oneGroup(k, checked); err != nil {
		return response{}, err
	}
	for project, n := range perProject {
		if !t.c.room(project, k.name, n) {
			return response{}, overQuota(k.name)
		}
	}
	made := make([]json.RawMessage, 0, len(many))
	objects := make([]*object, 0, len(many))
	for _, doc := range checked {
		o, err := k.create(t, doc)
		if err != nil {
			if t.c.opts.LeakyBulk {
				t.leak(objects, err)
			}
			return response{}, err
		}
		objects = append(objects, o)
	}
	for _, o := range objects {
		made = append(made, t.c.encode(t.who, o))
		k.settled(t, o)
	}
	var out response
	if bulk {
		out = jsonResponse(http.StatusCreated, map[string]any{k.plural: made})
	} else {
		out = jsonResponse(http.StatusCreated, map[string]any{k.name: made[0]})
	}
	out.items = len(made)
	return out, nil
}

// settled does what is left to do with a resource once the answer about it is written.
func (k *kind) settled(t *tx, o *object) {
	if k.settle != nil {
		k.settle(t, o)
	}
}

// item is GET, PUT or DELETE of one resource.
func (t *tx) item(r *http.Request, where target, in map[string]any) (response, error) {
	k := where.kind
	o, ok := t.get(k.name, where.id)
	if !ok {
		return response{}, k.missing(where.id)
	}
	if r.Method == http.MethodGet {
		out := response{status: http.StatusOK, items: 1}
		if fields := r.URL.Query()["fields"]; len(fields) > 0 {
			out = jsonResponse(http.StatusOK, map[string]any{k.name: t.c.narrow(t.who, o, fields)})
			return out, nil
		}
		out.body = join("{", quote(k.name), ":", string(t.c.encode(t.who, o)), "}")
		return out, nil
	}
	if err := t.mayWrite(o, r.Method); err != nil {
		return response{}, err
	}
	if err := ifMatch(r, o); err != nil {
		return response{}, err
	}
	switch r.Method {
	case http.MethodPut:
		attrs, ok := in[k.name].(map[string]any)
		if !ok {
			return response{}, badRequest("Unable to find '%s' in request body", k.name)
		}
		attrs, err := k.forUpdate(t.who, attrs)
		if err != nil {
			return response{}, err
		}
		if _, gateway := attrs["external_gateway_info"]; gateway && r.Header.Get("If-Match") != "" {
			if err := t.bumpedBefore(o); err != nil {
				return response{}, err
			}
		}
		if err := k.update(t, o, attrs); err != nil {
			return response{}, err
		}
		body := join("{", quote(k.name), ":", string(t.c.encode(t.who, o)), "}")
		k.settled(t, o)
		return response{status: http.StatusOK, body: body, items: 1}, nil
	case http.MethodDelete:
		if err := k.remove(t, o); err != nil {
			return response{}, err
		}
		return response{status: http.StatusNoContent, items: 1}, nil
	}
	return response{},
		neutron(http.StatusMethodNotAllowed, "HTTPMethodNotAllowed", "The method specified is not allowed for this resource.")
}

// mayWrite: what a member sees without owning it, it can not change.
func (t *tx) mayWrite(o *object, method string) error {
	if t.who.admin || o.project == t.who.project {
		return nil
	}
	action := "update_"
	if method == http.MethodDelete {
		action = "delete_"
	}
	if o.kind.name == "port" { // the owner of a network may delete what is on it
		if n, ok := t.any("network", str(o.doc, "network_id")); ok && n.project == t.who.project &&
			method == http.MethodDelete {
			return nil
		}
	}
	return forbidden("rule:" + action + o.kind.name)
}

// ifMatch checks the header If-Match: revision_number=N.
func ifMatch(r *http.Request, o *object) error {
	header := r.Header.Get("If-Match")
	if header == "" {
		return nil
	}
	value, ok := strings.CutPrefix(header, "revision_number=")
	want, err := strconv.ParseInt(value, 10, 64)
	if !ok || err != nil {
		return badRequest("Unsupported match condition %s", header)
	}
	if now := integer(o.doc, "revision_number"); now != want {
		return revisionChanged(want, now)
	}
	return nil
}

func revisionChanged(want, now int64) *apiError {
	return neutron(http.StatusPreconditionFailed, "RevisionNumberConstraintFailed",
		"Constrained to %d, but current revision is %d", want, now)
}

// narrow returns the named attributes.
func (c *Cloud) narrow(who scope, o *object, fields []string) map[string]any {
	doc := c.view(who, o)
	out := make(map[string]any, len(fields))
	for _, f := range fields {
		if v, ok := doc[f]; ok {
			out[f] = v
		}
	}
	return out
}

func join(parts ...string) []byte { return []byte(strings.Join(parts, "")) }

func quote(s string) string { return strconv.Quote(s) }
