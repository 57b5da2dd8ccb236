// SPDX-License-Identifier: Apache-2.0

package openstack

import (
	"net/http"
)

type quotaKey struct{ project, resource string }

func quotaResources() []string {
	return []string{
		"network", "subnet", "subnetpool", "port", "router", "floatingip", "security_group", "security_group_rule",
		"rbac_policy", "trunk",
	}
}

func overQuota(resource string) *apiError {
	return conflict("OverQuota", "Quota exceeded for resources: ['%s'].", resource)
}

// limit returns a project's quota; negative is unlimited.
func (c *Cloud) limit(project, resource string) int {
	if n, ok := c.limits[project][resource]; ok {
		return n
	}
	if n, ok := c.opts.Quotas[resource]; ok {
		return n
	}
	return -1
}

func (c *Cloud) room(project, resource string, more int) bool {
	limit := c.limit(project, resource)
	return limit < 0 || c.used[quotaKey{project, resource}]+more <= limit
}

// SetQuota sets a project's limit of a resource ("port"); negative is unlimited.
func (c *Cloud) SetQuota(projectID, resource string, limit int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.setLimit(projectID, resource, limit)
}

func (c *Cloud) setLimit(project, resource string, limit int) {
	if c.limits[project] == nil {
		c.limits[project] = map[string]int{}
	}
	c.limits[project][resource] = limit
}

// quotas serves /quotas/<project>, /quotas/<project>/details.json and /quotas/<project>/default.
func (t *tx) quotas(r *http.Request, where target, in map[string]any) (response, error) {
	project := where.id
	if project == "" {
		if !t.who.admin {
			return response{}, forbidden("rule:get_quota")
		}
		return jsonResponse(http.StatusOK, map[string]any{"quotas": []any{}}), nil
	}
	if project != t.who.project && !t.who.admin {
		return response{}, forbidden("rule:get_quota")
	}
	switch r.Method {
	case http.MethodGet:
		return jsonResponse(http.StatusOK, map[string]any{"quota": t.quotaDoc(project, where.sub)}), nil
	case http.MethodPut, http.MethodDelete:
		if !t.who.admin {
			return response{}, forbidden("rule:update_quota")
		}
		if r.Method == http.MethodDelete {
			delete(t.c.limits, project)
			return response{status: http.StatusNoContent}, nil
		}
		return t.putQuota(project, in)
	}
	return response{}, noSuchResource()
}

func (t *tx) quotaDoc(project, form string) map[string]any {
	doc := map[string]any{}
	for _, name := range quotaResources() {
		limit := t.c.limit(project, name)
		switch form {
		case "details":
			doc[name] = map[string]any{"limit": limit, "used": t.c.used[quotaKey{project, name}], "reserved": 0}
		case "default":
			doc[name] = t.c.limit("", name)
		default:
			doc[name] = limit
		}
	}
	return doc
}

func (t *tx) putQuota(project string, in map[string]any) (response, error) {
	body, ok := in["quota"].(map[string]any)
	if !ok {
		return response{}, badRequest("Unable to find 'quota' in request body")
	}
	known := map[string]bool{}
	for _, name := range quotaResources() {
		known[name] = true
	}
	checked := map[string]int{}
	for name, v := range body {
		if name == "tenant_id" || name == "project_id" {
			continue
		}
		if !known[name] {
			return response{}, badRequest("Unrecognized attribute(s) '%s'", name)
		}
		n, err := asInt(-1, maxInt)(v)
		if err != nil {
			return response{}, badRequest("Invalid input for %s. Reason: %v", name, err)
		}
		checked[name] = int(n.(int64))
	}
	for name, n := range checked {
		t.c.setLimit(project, name, n)
	}
	return jsonResponse(http.StatusOK, map[string]any{"quota": t.quotaDoc(project, "")}), nil
}
