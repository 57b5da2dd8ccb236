// SPDX-License-Identifier: Apache-2.0

package openstack

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
)

// Objects returns the documents of a kind ("port", "security_group") in the order of their creation, whoever's they
// are, as an administrator sees them. Numbers are int64. The caller must not change what is nested in them.
func (c *Cloud) Objects(kind string) []map[string]any {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.settle()
	t, ok := c.tables[kind]
	if !ok {
		return nil
	}
	all := slices.SortedFunc(maps.Values(t.byID), func(a, b *object) int { return int(a.seq - b.seq) })
	out := make([]map[string]any, 0, len(all))
	for _, o := range all {
		out = append(out, maps.Clone(o.doc))
	}
	return out
}

// Networks returns all networks.
func (c *Cloud) Networks() []map[string]any { return c.Objects("network") }

// Subnets returns all subnets.
func (c *Cloud) Subnets() []map[string]any { return c.Objects("subnet") }

// SubnetPools returns all subnet pools.
func (c *Cloud) SubnetPools() []map[string]any { return c.Objects("subnetpool") }

// Routers returns all routers.
func (c *Cloud) Routers() []map[string]any { return c.Objects("router") }

// Ports returns all ports.
func (c *Cloud) Ports() []map[string]any { return c.Objects("port") }

// FloatingIPs returns all floating IPs.
func (c *Cloud) FloatingIPs() []map[string]any { return c.Objects("floatingip") }

// SecurityGroups returns all security groups, without their rules.
func (c *Cloud) SecurityGroups() []map[string]any { return c.Objects("security_group") }

// SecurityGroupRules returns all security group rules.
func (c *Cloud) SecurityGroupRules() []map[string]any { return c.Objects("security_group_rule") }

// LoadBalancers returns all load balancers. Listeners, pools, members and health monitors are Objects of "listener",
// "pool", "member" and "healthmonitor"; they name what they belong to by loadbalancer_id and pool_id.
func (c *Cloud) LoadBalancers() []map[string]any { return c.Objects("loadbalancer") }

// Count returns how many resources of a kind there are.
func (c *Cloud) Count(kind string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.settle()
	t, ok := c.tables[kind]
	if !ok {
		return 0
	}
	return len(t.byID)
}

// Call acts as another client: it sends a request to Neutron ("POST", "/networks", …) or Octavia
// ("/lbaas/loadbalancers") for a user in a project at once, past faults, costs, hooks and log, and returns the status
// and the document. It panics on a body that is no JSON, or a user or project that is not there.
func (c *Cloud) Call(user, project, method, path string, body any) (status int, doc map[string]any) {
	var raw []byte
	if body != nil {
		var err error
		if raw, err = json.Marshal(body); err != nil {
			panic(fmt.Sprintf("encoding a call's body: %v", err))
		}
	}
	service := "/networking"
	if strings.HasPrefix(path, "/lbaas/") {
		service = "/load-balancer"
	}
	u, err := url.Parse("http://sim" + service + "/v2.0" + path)
	if err != nil {
		panic(fmt.Sprintf("reading a call's path: %v", err))
	}
	r, err := http.NewRequestWithContext(context.Background(), method, u.String(), nil)
	if err != nil {
		panic(fmt.Sprintf("making a call: %v", err))
	}
	out := c.call(r, user, project, raw)
	if len(out.body) > 0 {
		dec := json.NewDecoder(bytes.NewReader(out.body))
		dec.UseNumber()
		if err := dec.Decode(&doc); err != nil {
			panic(fmt.Sprintf("reading a call's answer: %v", err))
		}
		doc, _ = plain(doc).(map[string]any)
	}
	return out.status, doc
}

func (c *Cloud) call(r *http.Request, user, project string, raw []byte) response {
	var in map[string]any
	if raw != nil {
		dec := json.NewDecoder(bytes.NewReader(raw))
		dec.UseNumber()
		if err := dec.Decode(&in); err != nil {
			panic(fmt.Sprintf("reading a call's body: %v", err))
		}
	}
	where := c.locate(strings.TrimSuffix(r.URL.Path, "/"))
	where.label = where.labelOf(r.Method)
	c.mu.Lock()
	defer c.mu.Unlock()
	u, ok := c.accounts.users[user]
	id, known := c.accounts.projects[project]
	if !ok || !known {
		panic(fmt.Sprintf("calling as %q in %q: there is none", user, project))
	}
	return c.serveAs(r, scope{project: id, user: u.id, admin: u.admin}, where, in)
}
