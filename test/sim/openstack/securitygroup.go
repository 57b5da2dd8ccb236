// SPDX-License-Identifier: Apache-2.0

package openstack

import (
	"encoding/json"
	"maps"
	"slices"
)

func securityGroupMissing(id string) *apiError {
	return notFound("SecurityGroupNotFound", "Security group %s does not exist", id)
}

func securityGroupKind() *kind {
	return &kind{
		name: "security_group", plural: "security_groups", path: "security-groups", missing: securityGroupMissing,
		fields: fieldsOf(
			field{"stateful", rw, asBool, true},
			field{"shared", none, nil, nil},
			field{"security_group_rules", none | noFilter, nil, nil},
		),
		create: createSecurityGroup, update: updateSecurityGroup, remove: removeSecurityGroup,
		render: func(c *Cloud, o *object, doc map[string]any) {
			rules := []any{}
			for _, r := range c.rulesOf(o.id) {
				rules = append(rules, json.RawMessage(c.encode(scope{}, r)))
			}
			doc["security_group_rules"] = rules
		},
	}
}

// rulesOf returns a group's rules in the order of their creation.
func (c *Cloud) rulesOf(group string) []*object {
	var out []*object
	for r := range c.by("security_group_rule", "security_group_id", group) {
		out = append(out, r)
	}
	slices.SortFunc(out, func(a, b *object) int { return int(a.seq - b.seq) })
	return out
}

func createSecurityGroup(t *tx, in map[string]any) (*object, error) {
	if str(in, "name") == "default" {
		return nil, conflict("SecurityGroupDefaultAlreadyExists", "Default security group already exists.")
	}
	t.defaultGroup(str(in, "project_id"))
	return t.makeGroup(in, false), nil
}

// makeGroup makes a group with the rules that every new one has.
func (t *tx) makeGroup(in map[string]any, fromSelf bool) *object {
	in["shared"] = false
	o := t.insert(t.c.kinds["security-groups"], in)
	rule := func(more map[string]any) {
		doc := map[string]any{
			"project_id": o.project, "security_group_id": o.id, "description": nil,
			"protocol": nil, "port_range_min": nil, "port_range_max": nil, "remote_ip_prefix": nil, "remote_group_id": nil,
			"remote_address_group_id": nil, "normalized_cidr": nil, "belongs_to_default_sg": fromSelf,
		}
		maps.Copy(doc, more)
		t.insert(t.c.kinds["security-group-rules"], doc)
	}
	if t.c.opts.DefaultRules != nil && !fromSelf {
		for _, chosen := range t.c.opts.DefaultRules {
			rule(chosen)
		}
		return o
	}
	for _, ethertype := range []string{"IPv4", "IPv6"} {
		rule(map[string]any{"direction": "egress", "ethertype": ethertype})
		if fromSelf {
			rule(map[string]any{"direction": "ingress", "ethertype": ethertype, "remote_group_id": o.id})
		}
	}
	return o
}

// defaultGroup returns a project's group "default", which it makes at the first request.
func (t *tx) defaultGroup(project string) *object {
	for g := range t.c.by("security_group", "name", "default") {
		if g.project == project {
			return g
		}
	}
	own := &tx{c: t.c, who: t.who, now: t.now} // it stays, whatever becomes of the request
	return own.makeGroup(map[string]any{
		"name": "default", "description": "Default security group", "project_id": project, "stateful": true,
	}, true)
}

func updateSecurityGroup(t *tx, o *object, in map[string]any) error {
	if _, given := in["name"]; given && o.doc["name"] == "default" && in["name"] != "default" {
		return conflict("SecurityGroupCannotUpdateDefault", "Updating default security group not allowed.")
	}
	if v, given := in["stateful"]; given && v != o.doc["stateful"] && len(t.c.by("port", "security_groups", o.id)) > 0 {
		return conflict("SecurityGroupInUse", "Security Group %s stateful attribute cannot be updated while in use.", o.id)
	}
	t.update(o, in)
	return nil
}

// removeSecurityGroup takes its rules with it, and the rules of others that name it.
func removeSecurityGroup(t *tx, o *object) error {
	if o.doc["name"] == "default" && !t.who.admin {
		return conflict("SecurityGroupCannotRemoveDefault", "Insufficient rights for removing default security group.")
	}
	if len(t.c.by("port", "security_groups", o.id)) > 0 {
		return conflict("SecurityGroupInUse", "Security Group %s in use.", o.id)
	}
	for _, r := range t.c.rulesOf(o.id) {
		t.erase(r)
	}
	for r := range t.c.by("security_group_rule", "remote_group_id", o.id) {
		t.eraseRule(r)
	}
	t.erase(o)
	return nil
}
