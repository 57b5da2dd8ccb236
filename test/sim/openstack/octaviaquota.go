// SPDX-License-Identifier: Apache-2.0

package openstack

import (
	"net/http"
	"slices"
)

// flavor is a flavor of load balancers.
type flavor struct{ id, name, provider string }

// AddFlavor adds a flavor for a provider's load balancers and returns its id.
func (c *Cloud) AddFlavor(name, provider string) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	f := flavor{c.newID(), name, provider}
	c.flavors = append(c.flavors, f)
	return f.id
}

func (c *Cloud) flavorByID(id string) (flavor, bool) {
	i := slices.IndexFunc(c.flavors, func(f flavor) bool { return f.id == id })
	if i < 0 {
		return flavor{}, false
	}
	return c.flavors[i], true
}

func (f flavor) doc() map[string]any {
	return map[string]any{"id": f.id, "name": f.name, "description": "", "enabled": true, "flavor_profile_id": f.id}
}

// flavors serves /flavors and /flavors/<id>.
func (t *tx) flavors(r *http.Request, where target) (response, error) {
	if r.Method != http.MethodGet {
		return response{}, policyForbidden()
	}
	if where.id != "" {
		f, ok := t.c.flavorByID(where.id)
		if !ok {
			return response{}, octavia(http.StatusNotFound, "NotFound", "Flavor %s not found.", where.id)
		}
		return jsonResponse(http.StatusOK, map[string]any{"flavor": f.doc()}), nil
	}
	all := []any{}
	for _, f := range t.c.flavors {
		if want := r.URL.Query().Get("name"); want == "" || want == f.name {
			all = append(all, f.doc())
		}
	}
	return jsonResponse(http.StatusOK, map[string]any{"flavors": all, "flavors_links": []any{}}), nil
}

// zone is an availability zone of load balancers, of one provider.
type zone struct{ name, provider string }

// AddAvailabilityZone adds an availability zone for a provider's load balancers.
func (c *Cloud) AddAvailabilityZone(name, provider string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.zones = append(c.zones, zone{name, provider})
}

func (c *Cloud) zoneByName(name string) (zone, bool) {
	i := slices.IndexFunc(c.zones, func(z zone) bool { return z.name == name })
	if i < 0 {
		return zone{}, false
	}
	return c.zones[i], true
}

func (z zone) doc() map[string]any {
	return map[string]any{"name": z.name, "description": "", "enabled": true, "availability_zone_profile_id": z.name}
}

// availabilityZones serves /availabilityzones and /availabilityzones/<name>.
func (t *tx) availabilityZones(r *http.Request, where target) (response, error) {
	if r.Method != http.MethodGet {
		return response{}, policyForbidden()
	}
	if where.id != "" {
		z, ok := t.c.zoneByName(where.id)
		if !ok {
			return response{}, octavia(http.StatusNotFound, "NotFound", "Availability Zone %s not found.", where.id)
		}
		return jsonResponse(http.StatusOK, map[string]any{"availability_zone": z.doc()}), nil
	}
	all := []any{}
	for _, z := range t.c.zones {
		all = append(all, z.doc())
	}
	return jsonResponse(http.StatusOK, map[string]any{"availability_zones": all, "availability_zones_links": []any{}}), nil
}

// profiles serves /flavorprofiles/<id> and /availabilityzoneprofiles/<id>, to an administrator. Each flavor and zone
// has one of its own.
func (t *tx) profiles(where target) (response, error) {
	if !t.who.admin {
		return response{}, policyForbidden()
	}
	one, owner := "flavorprofile", ""
	if f, ok := t.c.flavorByID(where.id); ok {
		owner = f.provider
	}
	if where.segment == "availabilityzoneprofiles" {
		z, _ := t.c.zoneByName(where.id)
		one, owner = "availability_zone_profile", z.provider
	}
	if owner == "" {
		return response{}, octavia(http.StatusNotFound, "NotFound", "Profile %s not found.", where.id)
	}
	return jsonResponse(http.StatusOK,
		map[string]any{one: map[string]any{"id": where.id, "name": where.id, "provider_name": owner}}), nil
}

// providers serves /providers and, to an administrator, /providers/<name>/flavor_capabilities.
func (t *tx) providers(r *http.Request, where target) (response, error) {
	if r.Method != http.MethodGet {
		return response{}, octavia(http.StatusMethodNotAllowed, "MethodNotAllowed", "Method Not Allowed")
	}
	if where.id == "" {
		all := []any{}
		for _, p := range t.c.opts.Providers {
			all = append(all, map[string]any{"name": p.Name, "description": p.Description})
		}
		return jsonResponse(http.StatusOK, map[string]any{"providers": all, "providers_links": []any{}}), nil
	}
	if where.sub != "flavor_capabilities" && where.sub != "availability_zone_capabilities" {
		return pathResponse("Not Found", ""), nil
	}
	if !t.who.admin {
		return response{}, policyForbidden()
	}
	p, ok := t.c.provider(where.id)
	switch {
	case !ok:
		return response{}, octavia(http.StatusBadRequest, "ProviderNotEnabled", "Provider '%s' is not enabled.", where.id)
	case p.lacks(LackFlavors):
		return response{}, octavia(http.StatusNotImplemented, "ProviderNotImplementedError",
			"Provider '%s' does not support a requested action: This provider does not support getting the supported flavor "+
				"metadata.", p.Name)
	}
	return jsonResponse(http.StatusOK, map[string]any{where.sub: []any{
		map[string]any{"name": "loadbalancer_topology", "description": "The load balancer topology."},
	}}), nil
}

func lbQuotaNames() []string {
	return []string{"load_balancer", "listener", "pool", "member", "health_monitor", "l7policy", "l7rule"}
}

// lbQuotas serves /quotas/<project> and /quotas/<project>/default.
func (t *tx) lbQuotas(r *http.Request, where target, in map[string]any) (response, error) {
	project := where.id
	if project == "" || (project != t.who.project && project != "defaults" && !t.who.admin) {
		return response{}, policyForbidden()
	}
	switch r.Method {
	case http.MethodGet:
		if where.sub == "default" || project == "defaults" {
			project = ""
		}
		return jsonResponse(http.StatusOK, map[string]any{"quota": t.lbQuotaDoc(project)}), nil
	case http.MethodDelete:
		if !t.who.admin {
			return response{}, policyForbidden()
		}
		for _, name := range lbQuotaNames() {
			delete(t.c.limits[project], name)
		}
		return response{status: http.StatusAccepted}, nil
	case http.MethodPut:
		if !t.who.admin {
			return response{}, policyForbidden()
		}
		return t.putLBQuota(project, in)
	}
	return response{}, octavia(http.StatusMethodNotAllowed, "MethodNotAllowed", "Method Not Allowed")
}

func (t *tx) lbQuotaDoc(project string) map[string]any {
	doc := map[string]any{}
	for _, name := range lbQuotaNames() {
		doc[name] = t.c.limit(project, name)
	}
	doc["loadbalancer"], doc["healthmonitor"] = doc["load_balancer"], doc["health_monitor"]
	return doc
}

func (t *tx) putLBQuota(project string, in map[string]any) (response, error) {
	body, ok := in["quota"].(map[string]any)
	if !ok {
		return response{}, invalidField("quota", "", "Mandatory field missing.")
	}
	checked := map[string]int{}
	for name, v := range body {
		switch name {
		case "loadbalancer":
			name = "load_balancer"
		case "healthmonitor":
			name = "health_monitor"
		}
		if !slices.Contains(lbQuotaNames(), name) {
			return response{},
				octavia(http.StatusBadRequest, "UnknownAttribute", "Unknown attribute for argument quotas.quota: %s", name)
		}
		n, err := lbInt(-1, maxInt)(v)
		if err != nil {
			return response{}, invalidField(name, v, err.Error())
		}
		checked[name] = int(n.(int64))
	}
	for name, n := range checked {
		t.c.setLimit(project, name, n)
	}
	return jsonResponse(http.StatusAccepted, map[string]any{"quota": t.lbQuotaDoc(project)}), nil
}
