package openstack

import (
	"fmt"
	"maps"

	"github.com/kuryr/raven/drivers"
	"github.com/kuryr/raven/service/plan"
)

// kind is how Neutron speaks of one kind of resource.
type kind struct {
	name      drivers.Kind
	path      string // of the collection, below v2.0/
	one, many string // the names in JSON bodies
	bulk      bool   // many can be created by one request
	within    string // the attribute that all of one bulk request must have in common, if any
	tagged    bool   // the create takes tags, in some clouds
	taggable  bool   // tags can be added afterwards
	small     bool   // a project has few enough of them to list them all and filter here
	polled    bool   // asked without a slot: who looks at what is busy must not wait for what makes it so
	nullable  []string
}

// kinds is the table of all kinds. A router interface is a port until it is attached, and a port to look at afterwards.
func kinds() map[drivers.Kind]kind {
	table := []kind{
		{name: drivers.KindNetwork, path: "networks", one: "network", many: "networks", bulk: true, taggable: true, small: true},
		{
			name: drivers.KindSubnet, path: "subnets", one: "subnet", many: "subnets", bulk: true, taggable: true, small: true,
			nullable: []string{"gateway_ip"},
		},
		{name: drivers.KindSubnetPool, path: "subnetpools", one: "subnetpool", many: "subnetpools", taggable: true, small: true},
		{name: drivers.KindRouter, path: "routers", one: "router", many: "routers", taggable: true, small: true},
		{name: drivers.KindRouterInterface, path: "ports", one: "port", many: "ports", tagged: true, taggable: true},
		{name: drivers.KindPort, path: "ports", one: "port", many: "ports", bulk: true, tagged: true, taggable: true},
		{
			name: drivers.KindFloatingIP, path: "floatingips", one: "floatingip", many: "floatingips", taggable: true, small: true,
			nullable: []string{"port_id", "fixed_ip_address"},
		},
		{
			name: drivers.KindSecurityGroup, path: "security-groups", one: "security_group", many: "security_groups",
			taggable: true, small: true,
		},
		{
			name: drivers.KindSecurityGroupRule, path: "security-group-rules", one: "security_group_rule",
			many: "security_group_rules", bulk: true, within: "security_group_id", small: true,
		},
	}
	byName := make(map[drivers.Kind]kind, len(table))
	for _, k := range table {
		byName[k.name] = k
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
func (c *Cloud) kind(name drivers.Kind) (kind, error) {
	k, ok := c.kinds[name]
	if !ok {
		return kind{}, &Error{Op: "looking up the kind", Kind: name, Message: fmt.Sprintf("there is no kind %q in the cloud", name), class: ClassTerminal}
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
	if k.name == drivers.KindRouterInterface {
		interfaceBody(doc)
	}
	if identity == nil {
		return doc
	}
	doc["description"] = identity.Description()
	if k.tagged {
		doc["tags"] = identity.Tags()
	}
	if _, named := doc["name"]; !named && k.name == drivers.KindRouterInterface {
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
