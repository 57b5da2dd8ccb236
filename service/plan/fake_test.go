// SPDX-License-Identifier: Apache-2.0

package plan_test

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/kuryr/raven/drivers"
	"github.com/kuryr/raven/service/plan"
)

// cloud is a small Neutron for property tests: it refuses what Neutron refuses, and completes what Neutron completes.
type cloud struct {
	clock     int
	resources map[string]*plan.Observed
	writes    int
	deletions int
}

var errRefused = errors.New("refused")

func newCloud() *cloud { return &cloud{resources: map[string]*plan.Observed{}} }

func (c *cloud) sorted() []*plan.Observed {
	return slices.SortedFunc(maps.Values(c.resources), func(a, b *plan.Observed) int {
		return strings.Compare(a.ID, b.ID)
	})
}

func (c *cloud) of(kind drivers.Kind, keep func(*plan.Observed) bool) []plan.Observed {
	var out []plan.Observed
	for _, o := range c.sorted() {
		if o.Kind == kind && keep(o) {
			out = append(out, *o)
		}
	}
	return out
}

func (c *cloud) with(kind drivers.Kind, attr, value string) []plan.Observed {
	return c.of(kind, func(o *plan.Observed) bool { return o.Attrs[attr] == value })
}

func (c *cloud) in(subnet string) []plan.Observed {
	return c.of(drivers.KindPort, func(o *plan.Observed) bool {
		list, _ := o.Attrs["fixed_ips"].([]any)
		return slices.ContainsFunc(list, func(e any) bool { return plan.Field(e, "subnet_id") == subnet })
	})
}

func (c *cloud) withGroup(group string) []plan.Observed {
	return c.of(drivers.KindPort, func(o *plan.Observed) bool {
		list, _ := o.Attrs["security_groups"].([]any)
		return slices.Contains(list, any(group))
	})
}

// users is Neutron's own idea of what uses a resource; rules do not keep a group.
func (c *cloud) users(kind drivers.Kind, id string) []plan.Observed {
	switch kind {
	case drivers.KindNetwork:
		return append(c.with(drivers.KindPort, "network_id", id), c.with(drivers.KindSubnet, "network_id", id)...)
	case drivers.KindSubnet:
		return c.in(id)
	case drivers.KindSubnetPool:
		return c.with(drivers.KindSubnet, "subnetpool_id", id)
	case drivers.KindRouter:
		return c.with(drivers.KindPort, "device_id", id)
	case drivers.KindSecurityGroup:
		return c.withGroup(id)
	default:
		return nil
	}
}

func (c *cloud) dependants(kind drivers.Kind, id string) []plan.Observed {
	users := c.users(kind, id)
	if kind == drivers.KindSecurityGroup {
		users = append(users, c.with(drivers.KindSecurityGroupRule, "security_group_id", id)...)
	}
	if kind == drivers.KindPort {
		users = append(users, c.with(drivers.KindFloatingIP, "port_id", id)...)
	}
	return slices.DeleteFunc(users, func(o plan.Observed) bool { return !o.Managed })
}

// owned lists what carries an owner's identity, as it can be read from tags and description.
func (c *cloud) owned(owner plan.Owner) []plan.Observed {
	var out []plan.Observed
	for _, o := range c.sorted() {
		if o.Managed && o.Identity.Owner == owner {
			out = append(out, *o)
		}
	}
	return out
}

func (c *cloud) apply(s plan.Step) error {
	c.writes++
	switch s.Op {
	case plan.Create:
		return c.create(s)
	case plan.Failover:
		return fmt.Errorf("there are no load balancers here: %w", errRefused)
	case plan.Update:
		o := c.resources[s.ID]
		if o.Revision != s.Revision {
			return fmt.Errorf("stale update of %s: %w", s.ID, errRefused)
		}
		for name, value := range s.Attrs {
			if name == "description" {
				o.Description, _ = value.(string)
				continue
			}
			o.Attrs[name] = value
		}
		c.changed(o)
	case plan.Tag:
		o := c.resources[s.ID]
		remove, _ := s.Attrs["remove"].([]string)
		o.Tags = slices.DeleteFunc(o.Tags, func(tag string) bool { return slices.Contains(remove, tag) })
		missing, _ := s.Attrs["tags"].([]string)
		o.Tags = append(o.Tags, missing...)
		c.changed(o)
	case plan.Attach:
		router, _ := s.Attrs["router_id"].(string)
		if c.resources[router] == nil {
			return fmt.Errorf("no router %q: %w", router, errRefused)
		}
		o := c.resources[s.ID]
		o.Attrs["device_id"], o.Attrs["device_owner"] = router, "network:router_interface"
		c.changed(o)
	case plan.Detach:
		if c.resources[s.ID].Attrs["device_id"] != s.Attrs["router_id"] {
			return fmt.Errorf("%s is not at router %v: %w", s.ID, s.Attrs["router_id"], errRefused)
		}
		c.remove(s.ID)
	case plan.Delete:
		o := c.resources[s.ID]
		if o.Attrs["device_owner"] == "network:router_interface" {
			return fmt.Errorf("port %s is at a router: %w", s.ID, errRefused)
		}
		if users := c.users(o.Kind, s.ID); len(users) > 0 {
			return fmt.Errorf("%s %s is in use by %s: %w", o.Kind, s.ID, users[0].ID, errRefused)
		}
		c.remove(s.ID)
	}
	return nil
}

func (c *cloud) remove(id string) {
	c.deletions++
	delete(c.resources, id)
	for _, rule := range c.with(drivers.KindSecurityGroupRule, "security_group_id", id) {
		delete(c.resources, rule.ID)
	}
	for _, fip := range c.with(drivers.KindFloatingIP, "port_id", id) {
		c.resources[fip.ID].Attrs["port_id"] = nil
	}
}

func (c *cloud) changed(o *plan.Observed) {
	o.Revision++
	o.Identity, o.Managed = plan.Parse(o.Tags, o.Description)
}

func (c *cloud) create(s plan.Step) error {
	c.clock++
	o := &plan.Observed{
		Kind: s.Kind, ID: fmt.Sprintf("%s-%04d", s.Kind, c.clock), Attrs: maps.Clone(s.Attrs),
		Description: s.Identity.Description(), CreatedAt: fmt.Sprintf("2026-01-01T00:%04dZ", c.clock),
	}
	if s.Kind == drivers.KindPort || s.Kind == drivers.KindRouterInterface {
		o.Kind, o.Tags = drivers.KindPort, s.Identity.Tags()
	}
	for _, name := range []string{"network_id", "router_id", "security_group_id", "subnetpool_id"} {
		if value, ok := o.Attrs[name]; ok {
			text, isText := value.(string)
			if !isText || c.resources[text] == nil {
				return fmt.Errorf("creating %s %q: %s %v does not exist: %w", s.Kind, s.Identity.Name, name, value, errRefused)
			}
		}
	}
	if err := c.finish(o); err != nil {
		return err
	}
	c.resources[o.ID] = o
	c.changed(o)
	return nil
}

// finish fills in what Neutron chooses, and refuses what is there already.
func (c *cloud) finish(o *plan.Observed) error {
	switch o.Kind {
	case drivers.KindPort:
		mac, _ := o.Attrs["mac_address"].(string)
		for _, other := range c.with(drivers.KindPort, "mac_address", mac) {
			if other.Attrs["network_id"] == o.Attrs["network_id"] {
				return fmt.Errorf("MAC address %s in use: %w", mac, errRefused)
			}
		}
		list, _ := o.Attrs["fixed_ips"].([]any)
		for i, e := range list {
			subnet, _ := plan.Field(e, "subnet_id").(string)
			if c.resources[subnet] == nil {
				return fmt.Errorf("no subnet %q: %w", subnet, errRefused)
			}
			address := plan.Field(e, "ip_address")
			if address == nil {
				address = fmt.Sprintf("10.9.%d.%d", c.clock/250, c.clock%250+1)
			}
			list[i] = map[string]any{"subnet_id": subnet, "ip_address": address}
		}
		o.Attrs["device_id"] = ""
	case drivers.KindSubnet:
		if o.Attrs["subnetpool_id"] != nil {
			o.Attrs["cidr"] = fmt.Sprintf("10.%d.%d.0/24", 128+c.clock/250, c.clock%250)
		}
		for _, other := range c.with(drivers.KindSubnet, "network_id", o.Attrs["network_id"].(string)) {
			if other.Attrs["cidr"] == o.Attrs["cidr"] {
				return fmt.Errorf("range %v in use: %w", o.Attrs["cidr"], errRefused)
			}
		}
		delete(o.Attrs, "prefixlen")
		if _, ok := o.Attrs["gateway_ip"]; !ok {
			o.Attrs["gateway_ip"] = strings.Replace(o.Attrs["cidr"].(string), ".0/24", ".1", 1)
		}
	case drivers.KindSecurityGroupRule:
		for _, other := range c.with(drivers.KindSecurityGroupRule, "security_group_id",
			o.Attrs["security_group_id"].(string)) {
			if maps.Equal(other.Attrs, o.Attrs) {
				return fmt.Errorf("rule exists: %w", errRefused)
			}
		}
	default: // nothing
	}
	return nil
}

// dump shows the cloud, for messages.
func (c *cloud) dump(t *testing.T) {
	t.Helper()
	for _, o := range c.sorted() {
		t.Logf("%s %s %v", o.ID, o.Identity, o.Attrs)
	}
}
