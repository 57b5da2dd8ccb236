// SPDX-License-Identifier: Apache-2.0

package neutron

import (
	"net/http"

	"github.com/kuryr/raven/test/contract/rest"
)

// group makes a security group and returns its id.
func (a *api) group() string {
	a.t.Helper()
	return rest.Text(a.create("security-groups", attrs{"name": a.prefix}), "id")
}

// rulesOf returns the rules that a group's document lists.
func (a *api) rulesOf(group string) []attrs {
	a.t.Helper()
	doc, _ := a.must(http.MethodGet, "/security-groups/"+group, nil).Body["security_group"].(attrs)
	return rest.Docs(doc["security_group_rules"])
}

// bareGroups: the rules of a new group are in the answer to its create, say nothing of who made them, and can be
// deleted by a member; a group without rules takes ports. A range of all addresses is the rule without a range.
func bareGroups(a *api) {
	g := a.create("security-groups", attrs{"name": a.prefix})
	id := rest.Text(g, "id")
	for _, rule := range rest.Docs(g["security_group_rules"]) {
		if rest.Text(rule, "description") != "" {
			a.t.Errorf("a rule of a new group has the description %v", rule["description"])
		}
		a.must(http.MethodDelete, "/security-group-rules/"+rest.Text(rule, "id"), nil)
	}
	if left := a.rulesOf(id); len(left) != 0 {
		a.t.Errorf("after its rules were deleted the group has %v", left)
	}
	network, _ := a.network("10.77.1.0/24")
	p := a.port(network, attrs{"security_groups": []string{id}})
	if groups, _ := p["security_groups"].([]any); len(groups) != 1 || groups[0] != id {
		a.t.Errorf("the port has the groups %v, want %s", p["security_groups"], id)
	}
	for ethertype, every := range map[string]string{"IPv4": "0.0.0.0/0", "IPv6": "::/0"} {
		rule := attrs{"security_group_id": id, "direction": "ingress", "ethertype": ethertype}
		a.create("security-group-rules", rule)
		rule["remote_ip_prefix"] = every
		a.refused(http.StatusConflict, "SecurityGroupRuleExists", http.MethodPost, "/security-group-rules",
			attrs{"security_group_rule": rule})
	}
}

// remoteGroups: a rule names a group that has no port; a port may be in many groups and changes them by one update; and
// who deletes a group deletes other groups' rules that name it.
func remoteGroups(a *api) {
	mine, peers := a.group(), a.group()
	before := len(a.rulesOf(mine))
	rule := a.create("security-group-rules", attrs{
		"security_group_id": mine, "direction": "ingress", "ethertype": "IPv4", "protocol": "sctp", "port_range_min": 80,
		"port_range_max": 90, "remote_group_id": peers,
	})
	network, _ := a.network("10.77.2.0/24")
	p := a.port(network, attrs{"security_groups": []string{peers}})
	at := "/ports/" + rest.Text(p, "id")
	a.refused(http.StatusConflict, "SecurityGroupInUse", http.MethodDelete, "/security-groups/"+peers, nil)
	groups := []string{mine, peers}
	for range 8 {
		groups = append(groups, a.group())
	}
	changed, _ := a.must(http.MethodPut, at, attrs{"port": attrs{"security_groups": groups}}).Body["port"].(attrs)
	if got, _ := changed["security_groups"].([]any); len(got) != len(groups) {
		a.t.Errorf("the port has %d groups, want %d", len(got), len(groups))
	}
	a.must(http.MethodPut, at, attrs{"port": attrs{"security_groups": []string{mine}}})
	a.must(http.MethodDelete, "/security-groups/"+peers, nil)
	a.refused(http.StatusNotFound, "SecurityGroupRuleNotFound", http.MethodGet,
		"/security-group-rules/"+rest.Text(rule, "id"), nil)
	if now := len(a.rulesOf(mine)); now != before {
		a.t.Errorf("the group has %d rules after the group that its rule named was deleted, want %d", now, before)
	}
	a.refused(http.StatusNotFound, "SecurityGroupNotFound", http.MethodPut, at,
		attrs{"port": attrs{"security_groups": []string{mine, peers}}})
}

// ruleQuota: rules that are over quota together are all refused.
func ruleQuota(a *api) {
	g := a.create("security-groups", attrs{"name": a.prefix})
	if a.target.Admin == nil {
		a.t.Log("no administrator is known (RAVEN_CONTRACT_ADMIN_CLOUD): quotas are not met")
		return
	}
	limit, used := a.limited(rest.Text(g, "project_id"), "security_group_rule")
	limit(used + 1)
	rule := func(protocol string) attrs {
		return attrs{"security_group_id": g["id"], "direction": "ingress", "ethertype": "IPv4", "protocol": protocol}
	}
	before := len(a.rulesOf(rest.Text(g, "id")))
	r := a.refused(http.StatusConflict, "OverQuota", http.MethodPost, "/security-group-rules",
		attrs{"security_group_rules": []attrs{rule("tcp"), rule("udp")}})
	if e, _ := r.Body["NeutronError"].(attrs); e["message"] != "Quota exceeded for resources: ['security_group_rule']." {
		a.t.Errorf("over quota gave %s", r)
	}
	if now := len(a.rulesOf(rest.Text(g, "id"))); now != before {
		a.t.Errorf("what was over quota has brought the group's rules from %d to %d", before, now)
	}
	a.create("security-group-rules", rule("tcp"))
	a.refused(http.StatusConflict, "OverQuota", http.MethodPost, "/security-group-rules",
		attrs{"security_group_rule": rule("udp")})
}
