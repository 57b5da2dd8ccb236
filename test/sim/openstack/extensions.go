// SPDX-License-Identifier: Apache-2.0

package openstack

import (
	"net/http"
	"slices"
)

// aliases are the extensions of a Zed Neutron with ML2/OVN, as far as they are simulated. It does not name
// "tag-ports-during-bulk-creation", whether a port's create takes tags or not: the OVN driver hides the name.
func aliases() []string {
	return []string{
		"agent", "allowed-address-pairs", "availability_zone", "binding", "default-subnetpools", "dns-integration",
		"empty-string-filtering",
		"ext-gw-mode", "external-net", "extra_dhcp_opt", "extraroute", "extraroute-atomic", "filter-validation",
		"ip_allocation",
		"ip-substring-filtering", "mac-address-validation", "multi-provider", "net-mtu", "net-mtu-writable",
		"network_availability_zone",
		"pagination", "port-mac-override", "port-security", "project-id", "provider", "quota_details", "quotas",
		"revision-if-match",
		"router", "router_availability_zone", "security-group", "security-groups-normalized-cidr",
		"security-groups-shared-filtering",
		"service-type", "sorting", "standard-attr-description", "standard-attr-revisions", "standard-attr-tag",
		"standard-attr-timestamp",
		"stateful-security-group", "subnet-service-types", "subnet_allocation", "subnetpool-prefix-ops",
	}
}

// extensions serves /extensions and /extensions/<alias>.
func (t *tx) extensions(r *http.Request, where target) (response, error) {
	if r.Method != http.MethodGet {
		return response{}, noSuchResource()
	}
	doc := func(alias string) map[string]any {
		return map[string]any{
			"alias": alias, "name": alias, "description": "", "updated": "2022-10-05T00:00:00-00:00", "links": []any{},
		}
	}
	if where.id != "" {
		if !slices.Contains(aliases(), where.id) {
			return response{}, notFound("HTTPNotFound", "Extension with alias %s does not exist", where.id)
		}
		return jsonResponse(http.StatusOK, map[string]any{"extension": doc(where.id)}), nil
	}
	all := make([]any, 0, len(aliases()))
	for _, a := range aliases() {
		all = append(all, doc(a))
	}
	return jsonResponse(http.StatusOK, map[string]any{"extensions": all}), nil
}
