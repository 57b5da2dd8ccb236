// SPDX-License-Identifier: Apache-2.0

package openstack

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
)

// DumpOptions say what of the state is in a dump. The zero value leaves out whatever two equally good runs may differ
// in.
type DumpOptions struct {
	IDs        bool     // ids and references as they are; otherwise references are by name
	Tags       bool     // tags
	Identity   bool     // tags and descriptions
	Addresses  bool     // addresses and ranges that the cloud chose by itself
	MACs       bool     // MAC addresses
	Everything bool     // resources of the cloud itself too: default security groups, the external network, its ports
	Project    string   // only this project's, by name
	Hide       []string // attributes to leave out
}

// Dump returns the state as text, one resource per line, in an order that does not depend on ids or time. Attributes at
// their defaults are left out.
func (c *Cloud) Dump(o DumpOptions) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.settle()
	d := dumper{c: c, o: o, labels: map[string]string{}}
	order := []string{
		"subnetpool", "network", "subnet", "router", "security_group", "security_group_rule", "port", "floatingip",
	}
	order = append(order, balancerOrder()...)
	for name, id := range c.accounts.projects {
		d.labels[id] = name
	}
	for _, kind := range order {
		for id, x := range c.tables[kind].byID {
			if name := str(x.doc, "name"); name != "" {
				d.labels[id] = name
			}
		}
	}
	for _, of := range []string{"port", "security_group"} { // names that Octavia makes of ids
		for id, x := range c.tables[of].byID {
			if name, ok := d.labels[id]; ok {
				d.labels[id] = d.value(x, name)
			}
		}
	}
	for _, kind := range order { // what has no name is known by what it belongs to
		for id, x := range c.tables[kind].byID {
			if _, ok := d.labels[id]; !ok {
				d.labels[id] = d.nameless(x)
			}
		}
	}
	var b strings.Builder
	for _, kind := range order {
		lines := make([]string, 0, len(c.tables[kind].byID))
		for _, x := range c.tables[kind].byID {
			if d.wanted(x) {
				lines = append(lines, d.line(x))
			}
		}
		slices.Sort(lines)
		for _, l := range lines {
			b.WriteString(l)
			b.WriteByte('\n')
		}
	}
	return b.String()
}

type dumper struct {
	c      *Cloud
	o      DumpOptions
	labels map[string]string
}

func (d *dumper) nameless(x *object) string {
	of := func(attr string) string { return d.labels[str(x.doc, attr)] }
	switch x.kind.name {
	case "subnet":
		return "subnet of " + of("network_id")
	case "port":
		if owner := str(x.doc, "device_owner"); owner != "" {
			return "port " + owner + " on " + of("network_id")
		}
		return "port on " + of("network_id")
	case "floatingip":
		return "floating ip of " + of("port_id")
	case "member":
		return fmt.Sprintf("member %s:%d of %s", str(x.doc, "address"), integer(x.doc, "protocol_port"), of("pool_id"))
	case "healthmonitor":
		return "health monitor of " + of("pool_id")
	case "listener", "pool":
		return x.kind.name + " of " + of("loadbalancer_id")
	}
	return x.kind.name
}

// wanted leaves out what the caller did not ask for.
func (d *dumper) wanted(x *object) bool {
	if d.o.Project != "" && d.labels[x.project] != d.o.Project {
		return false
	}
	if d.o.Everything {
		return true
	}
	switch x.kind.name {
	case "security_group":
		return x.doc["name"] != "default"
	case "security_group_rule":
		return x.doc["belongs_to_default_sg"] != true
	case "network":
		return !truth(x.doc, "router:external") || d.labels[x.project] != ProjectAdmin
	case "subnet":
		n, ok := d.c.tables["network"].byID[str(x.doc, "network_id")]
		return !ok || !truth(n.doc, "router:external") || d.labels[n.project] != ProjectAdmin
	case "port":
		return x.project != ""
	}
	return true
}

// skip: what says nothing about the state that anybody wanted.
func (d *dumper) skip(x *object, name string) bool {
	switch name {
	case "name", "created_at", "updated_at", "revision_number", "standard_attr_id", "tenant_id", "subnets",
		"security_group_rules",
		"provider:segmentation_id", "ip_allocation", "l2_adjacency", "normalized_cidr", "belongs_to_default_sg",
		"binding:vif_details", "binding:vif_type", "ha",
		"distributed", "provider:network_type":
		return true
	case "provisioning_status":
		return x.doc[name] == statusActive
	case "operating_status":
		return !d.o.Everything
	case "id":
		return !d.o.IDs
	case "tags":
		return !d.o.Tags && !d.o.Identity
	case "description":
		return !d.o.Identity
	case "mac_address":
		return !d.o.MACs
	case "gateway_ip", "allocation_pools":
		return !d.o.Addresses && x.auto[str(x.doc, "cidr")]
	case "project_id":
		return d.o.Project != ""
	}
	return slices.Contains(d.o.Hide, name) || (name == "shared" && !truth(x.doc, name))
}

// address returns what a dump says of an address on a subnet whose range the cloud chose.
func (d *dumper) address(fixed map[string]any) (string, bool) {
	s, ok := d.c.tables["subnet"].byID[str(fixed, "subnet_id")]
	if !ok || d.o.Addresses || !s.auto[str(s.doc, "cidr")] {
		return "", false
	}
	if s.doc["gateway_ip"] == fixed["ip_address"] {
		return "gateway", true
	}
	return "auto", true
}

func (d *dumper) line(x *object) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %q", x.kind.name, d.labels[x.id])
	for _, name := range slices.Sorted(maps.Keys(x.doc)) {
		v := x.doc[name]
		if d.skip(x, name) || empty(v) ||
			(x.kind.fields[name].flags&none == 0 && reflect.DeepEqual(v, x.kind.fields[name].def)) {
			continue
		}
		fmt.Fprintf(&b, " %s=%s", name, d.value(x, v))
	}
	return b.String()
}

func empty(v any) bool {
	switch x := v.(type) {
	case nil:
		return true
	case string:
		return x == ""
	case []any:
		return len(x) == 0
	case map[string]any:
		return len(x) == 0
	}
	return false
}

func (d *dumper) value(x *object, v any) string {
	switch y := v.(type) {
	case string:
		if label, ok := d.labels[y]; ok && !d.o.IDs {
			return label
		}
		for id := range d.c.tables["loadbalancer"].byID { // names that Octavia makes of ids
			if !d.o.IDs && strings.HasSuffix(y, id) {
				return strings.TrimSuffix(y, id) + d.labels[id]
			}
		}
		if x.auto[y] && !d.o.Addresses && !(strings.Count(y, ":") == 5 && d.o.MACs) {
			if _, bits, cidr := strings.Cut(y, "/"); cidr {
				return "auto/" + bits
			}
			return "auto"
		}
		return y
	case []any:
		parts := make([]string, 0, len(y))
		for _, z := range y {
			parts = append(parts, d.value(x, z))
		}
		slices.Sort(parts)
		return "[" + strings.Join(parts, " ") + "]"
	case map[string]any:
		parts := make([]string, 0, len(y))
		for _, k := range slices.Sorted(maps.Keys(y)) {
			if k == "mac_address" && !d.o.MACs {
				continue
			}
			if a, chosen := d.address(y); k == "ip_address" && chosen {
				parts = append(parts, k+"="+a)
				continue
			}
			parts = append(parts, k+"="+d.value(x, y[k]))
		}
		return "{" + strings.Join(parts, " ") + "}"
	}
	return fmt.Sprint(v)
}
