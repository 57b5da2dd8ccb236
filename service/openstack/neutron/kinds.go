// SPDX-License-Identifier: Apache-2.0

package neutron

import (
	"fmt"
	"maps"
	"strings"

	"github.com/kuryr/raven/drivers"
	"github.com/kuryr/raven/service/openstack"
	"github.com/kuryr/raven/service/plan"
)

// kind is how Neutron speaks of one kind of resource.
type kind struct {
	openstack.Collection
	bulk     bool   // many can be created by one request
	within   string // the attribute that all of one bulk request must have in common, if any
	tagged   bool   // the create takes tags, in some clouds
	taggable bool   // tags can be added afterwards
	small    bool   // a project has few enough of them to list them all and filter here
	nullable []string
}

func of(kind drivers.Kind, path, one, many string) openstack.Collection {
	return openstack.Collection{Kind: kind, Path: path, One: one, Many: many}
}

// kinds is the table of all kinds. A router interface is a port until it is attached, and is read as a port afterwards.
func kinds() map[drivers.Kind]kind {
	table := []kind{
		{Collection: of(drivers.KindNetwork, "networks", "network", "networks"), bulk: true, taggable: true, small: true},
		{
			Collection: of(drivers.KindSubnet, "subnets", "subnet", "subnets"), bulk: true, taggable: true, small: true,
			nullable: []string{"gateway_ip"},
		},
		{Collection: of(drivers.KindSubnetPool, "subnetpools", "subnetpool", "subnetpools"), taggable: true, small: true},
		{Collection: of(drivers.KindRouter, "routers", "router", "routers"), taggable: true, small: true},
		{Collection: of(drivers.KindRouterInterface, "ports", "port", "ports"), tagged: true, taggable: true},
		{Collection: of(drivers.KindPort, "ports", "port", "ports"), bulk: true, tagged: true, taggable: true},
		{
			Collection: of(drivers.KindFloatingIP, "floatingips", "floatingip", "floatingips"), taggable: true, small: true,
			nullable: []string{"port_id", "fixed_ip_address"},
		},
		{
			Collection: of(drivers.KindSecurityGroup, "security-groups", "security_group", "security_groups"),
			taggable:   true, small: true,
		},
		{
			Collection: of(drivers.KindSecurityGroupRule, "security-group-rules", "security_group_rule", "security_group_rules"),
			bulk:       true, within: "security_group_id", small: true,
		},
	}
	byName := make(map[drivers.Kind]kind, len(table))
	for _, k := range table {
		byName[k.Kind] = k
	}
	return byName
}

// limit takes from the table what the cloud's extensions do not provide.
func limit(table map[drivers.Kind]kind, extensions map[string]bool) {
	for name, k := range table {
		k.taggable = k.taggable && (extensions["standard-attr-tag"] || extensions["tag"])
		k.tagged = k.tagged && k.taggable
		table[name] = k
	}
}

// kind returns the entry of the table for a kind that can be observed and changed.
func (c *Client) kind(name drivers.Kind) (kind, error) {
	k, ok := c.kinds[name]
	if !ok {
		return kind{}, &openstack.Error{
			Op: "looking up the kind", Kind: name, Class: openstack.ClassTerminal,
			Message: fmt.Sprintf("there is no kind %q in the cloud", name),
		}
	}
	return k, nil
}

// body turns attributes as the drivers have them into what Neutron takes, with the identity in it.
func (k kind) body(identity *plan.Identity, attrs map[string]any) map[string]any {
	doc := maps.Clone(attrs)
	if doc == nil {
		doc = map[string]any{}
	}
	for _, name := range k.nullable {
		if doc[name] == "" {
			doc[name] = nil
		}
	}
	switch k.Kind { //nolint:exhaustive // the others' attributes are Neutron's own
	case drivers.KindRouterInterface:
		interfaceBody(doc)
	case drivers.KindSecurityGroup:
		delete(doc, defaultRules)
	}
	if identity == nil {
		return doc
	}
	doc["description"] = identity.Description()
	if k.tagged {
		doc["tags"] = identity.Tags()
	}
	if _, named := doc["name"]; !named && k.Kind == drivers.KindRouterInterface {
		doc["name"] = identity.Name
	}
	return doc
}

// interfaceBody turns the attributes of a router interface into those of the port that it begins as.
func interfaceBody(doc map[string]any) {
	fixed := map[string]any{}
	for _, name := range []string{"subnet_id", "ip_address"} {
		if value, ok := doc[name]; ok && value != "" && value != nil {
			fixed[name] = value
		}
		delete(doc, name)
	}
	if len(fixed) > 0 {
		doc["fixed_ips"] = []any{fixed}
	}
	delete(doc, "router_id")
}

// observed makes of a Neutron document what the plan compares.
func (k kind) observed(doc map[string]any) plan.Observed {
	o := k.Observed(doc)
	if !k.taggable && !k.tagged && o.Managed {
		// The cloud keeps no tags of this kind, so none are missing.
		o.Tags = o.Identity.Tags()
	}
	if k.Kind == drivers.KindSecurityGroup {
		foreign, shown := foreignRules(doc, o.Identity)
		doc[defaultRules] = !shown || len(foreign) > 0
	}
	if k.Path == "ports" {
		o.Kind = drivers.KindPort
		if isInterface(doc, o) {
			o.Kind = drivers.KindRouterInterface
			interfaceAttrs(doc)
		}
	}
	return o
}

// isInterface says whether a port is a router's interface, or was made to become one.
func isInterface(doc map[string]any, o plan.Observed) bool {
	return attached(doc) || (o.Managed && strings.HasPrefix(o.Identity.Name, "rif."))
}

func attached(doc map[string]any) bool {
	owner, _ := doc["device_owner"].(string)
	return strings.HasPrefix(owner, "network:router_interface") || owner == "network:ha_router_replicated_interface"
}

// interfaceAttrs adds to a port's document the attributes of a router interface. router_id is only there once attached.
func interfaceAttrs(doc map[string]any) {
	if attached(doc) {
		doc["router_id"] = doc["device_id"]
	}
	fixed, _ := doc["fixed_ips"].([]any)
	if len(fixed) == 0 {
		return
	}
	if first, ok := fixed[0].(map[string]any); ok {
		doc["subnet_id"] = first["subnet_id"]
		doc["ip_address"] = first["ip_address"]
	}
}
