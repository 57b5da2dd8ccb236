// SPDX-License-Identifier: Apache-2.0

package octavia

import (
	"context"
	"maps"
	"net/http"
	"net/url"
	"strings"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/kuryr/raven/drivers"
	"github.com/kuryr/raven/service/openstack"
	"github.com/kuryr/raven/service/plan"
)

// poolMembers are the members of a pool, and the state of the pool that they were listed in.
type poolMembers struct {
	state  string
	stable bool // the pool had that state when it was listed before, too
	docs   []any
}

// kinds is the table of the service's collections.
func kinds() map[drivers.Kind]openstack.Collection {
	table := map[drivers.Kind]openstack.Collection{}
	for _, k := range []openstack.Collection{
		{Kind: drivers.KindLoadBalancer, Path: "lbaas/loadbalancers", One: "loadbalancer", Many: "loadbalancers"},
		{Kind: openstack.KindListener, Path: "lbaas/listeners", One: "listener", Many: "listeners"},
		{Kind: openstack.KindPool, Path: "lbaas/pools", One: "pool", Many: "pools"},
		{Kind: openstack.KindMonitor, Path: "lbaas/healthmonitors", One: "healthmonitor", Many: "healthmonitors"},
		{Kind: openstack.KindMember, Path: "lbaas/pools", One: "member", Many: "members"},
	} {
		table[k.Kind] = k
	}
	return table
}

// all lists the load balancers of a cluster, with all their parts: five lists, and one of every pool's members that may
// have changed since it was listed last.
func (c *Client) all(ctx context.Context, keep func(plan.Observed) bool) ([]plan.Observed, error) {
	query := c.mine()
	found, err := c.pages(ctx, c.kinds[drivers.KindLoadBalancer], query, keep)
	if err != nil || len(found) == 0 {
		return found, err
	}
	var p parts
	group, below := errgroup.WithContext(ctx)
	for name, into := range map[drivers.Kind]*[]map[string]any{
		openstack.KindListener: &p.listeners, openstack.KindPool: &p.pools, openstack.KindMonitor: &p.monitors,
	} {
		group.Go(func() error {
			list, err := c.pages(below, c.kinds[name], query, openstack.Everything)
			*into = documents(list)
			return err
		})
	}
	group.Go(func() error {
		ports := c.mine()
		ports["device_owner"], ports["fields"] = []string{"Octavia"}, []string{"id", "security_groups"}
		list, err := c.networking.Ports(below, ports)
		p.ports = documents(list)
		return err
	})
	if err := group.Wait(); err != nil {
		return nil, err
	}
	known, err := c.fill(ctx, found, p)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	c.members = known // of pools that are gone nothing is kept
	c.mu.Unlock()
	return found, nil
}

func documents(list []plan.Observed) []map[string]any {
	docs := make([]map[string]any, 0, len(list))
	for _, o := range list {
		docs = append(docs, o.Attrs)
	}
	return docs
}

// parts are documents of whatever load balancer.
type parts struct{ listeners, pools, monitors, ports []map[string]any }

// fill puts parts into their load balancers, lists the members of their pools, and returns these by pool.
func (c *Client) fill(ctx context.Context, found []plan.Observed, p parts) (map[string]poolMembers, error) {
	byID := make(map[string]map[string]any, len(found))
	for _, o := range found {
		o.Attrs["listeners"], o.Attrs["pools"] = []any{}, []any{}
		byID[o.ID] = o.Attrs
	}
	monitors := map[string]map[string]any{}
	for _, monitor := range p.monitors {
		monitors[textOf(monitor, "id")] = monitor
	}
	names, mine := map[string]string{}, p.pools[:0:0]
	for _, pool := range p.pools {
		names[textOf(pool, "id")] = textOf(pool, "name")
		if lb := byID[parent(pool)]; lb != nil {
			delete(pool, "healthmonitor")
			if monitor := monitors[textOf(pool, "healthmonitor_id")]; monitor != nil {
				pool["healthmonitor"] = monitor
			}
			lb["pools"] = append(listAt(lb, "pools"), pool)
			mine = append(mine, pool)
		}
	}
	for _, listener := range p.listeners {
		if lb := byID[parent(listener)]; lb != nil {
			listener["default_pool"] = names[textOf(listener, "default_pool_id")]
			lb["listeners"] = append(listAt(lb, "listeners"), listener)
		}
	}
	groups := map[string]any{}
	for _, port := range p.ports {
		groups[textOf(port, "id")] = port["security_groups"]
	}
	for _, o := range found {
		if list, ok := groups[textOf(o.Attrs, "vip_port_id")]; ok {
			o.Attrs["vip_sg_ids"] = list
		}
	}
	return c.fillMembers(ctx, mine)
}

// parent is the id of the load balancer that a document of Octavia names.
func parent(doc map[string]any) string {
	for _, element := range listAt(doc, "loadbalancers") {
		if m, ok := element.(map[string]any); ok {
			return textOf(m, "id")
		}
	}
	return ""
}

func listAt(doc map[string]any, name string) []any {
	list, _ := doc[name].([]any)
	return list
}

func textOf(doc map[string]any, name string) string {
	text, _ := doc[name].(string)
	return text
}

// fillMembers lists the members of pools. A list of pools has their members' ids only; it tells when a pool was changed
// last, to the second: what is listed anew is only trusted the second time.
func (c *Client) fillMembers(ctx context.Context, pools []map[string]any) (map[string]poolMembers, error) {
	known := make(map[string]poolMembers, len(pools))
	var lock sync.Mutex
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(c.connection.Config().MaxConcurrency)
	for _, pool := range pools {
		id, state := textOf(pool, "id"), stateOf(pool)
		c.mu.Lock()
		last := c.members[id]
		c.mu.Unlock()
		note := func(m poolMembers) {
			lock.Lock()
			defer lock.Unlock()
			known[id], pool["members"] = m, m.docs
		}
		switch {
		case len(listAt(pool, "members")) == 0:
			note(poolMembers{state: state, docs: []any{}})
			continue
		case last.stable && last.state == state:
			note(last)
			continue
		}
		group.Go(func() error {
			docs, err := c.listMembers(ctx, id)
			if err == nil {
				note(poolMembers{state: state, stable: last.state == state, docs: docs})
			}
			return err
		})
	}
	return known, group.Wait()
}

func stateOf(pool map[string]any) string {
	var ids []string
	for _, element := range listAt(pool, "members") {
		if m, ok := element.(map[string]any); ok {
			ids = append(ids, textOf(m, "id"))
		}
	}
	return textOf(pool, "updated_at") + " " + textOf(pool, "provisioning_status") + " " + strings.Join(ids, " ")
}

func (c *Client) listMembers(ctx context.Context, pool string) ([]any, error) {
	k := c.kinds[openstack.KindMember]
	k.Path += "/" + url.PathEscape(pool) + "/members"
	list, err := c.pages(ctx, k, url.Values{}, openstack.Everything)
	if openstack.Classify(err) == openstack.ClassNotFound {
		return []any{}, nil // it went in between
	}
	docs := make([]any, 0, len(list))
	for _, o := range list {
		docs = append(docs, o.Attrs)
	}
	return docs, err
}

// get returns one load balancer with all its parts.
func (c *Client) get(ctx context.Context, id string) (plan.Observed, error) {
	lb, err := c.read(ctx, "reading", id)
	if err != nil {
		return plan.Observed{}, err
	}
	var p parts
	for name, into := range map[drivers.Kind]*[]map[string]any{
		openstack.KindListener: &p.listeners, openstack.KindPool: &p.pools,
	} {
		for _, element := range listAt(lb.Attrs, c.kinds[name].Many) {
			m, _ := element.(map[string]any)
			part, err := c.part(ctx, name, textOf(m, "id"))
			if err != nil {
				return plan.Observed{}, err
			}
			if part != nil {
				*into = append(*into, part)
			}
		}
	}
	for _, pool := range p.pools {
		c.mu.Lock()
		delete(c.members, textOf(pool, "id"))
		c.mu.Unlock()
		if id := textOf(pool, "healthmonitor_id"); id != "" {
			monitor, err := c.part(ctx, openstack.KindMonitor, id)
			if err != nil {
				return plan.Observed{}, err
			}
			p.monitors = append(p.monitors, monitor)
		}
	}
	if port := textOf(lb.Attrs, "vip_port_id"); port != "" {
		if o, err := c.networking.Get(ctx, drivers.KindPort, port); err == nil {
			p.ports = append(p.ports, o.Attrs)
		}
	}
	known, err := c.fill(ctx, []plan.Observed{lb}, p)
	if err != nil {
		return plan.Observed{}, err
	}
	c.mu.Lock()
	maps.Copy(c.members, known) // what is known of others' pools stays
	c.mu.Unlock()
	return lb, nil
}

// part reads one listener, pool or monitor; nil for one that is not there.
func (c *Client) part(ctx context.Context, name drivers.Kind, id string) (map[string]any, error) {
	k := c.kinds[name]
	r := openstack.Call{Op: "reading", Method: http.MethodGet, Collection: k, Path: k.PathOf(id), What: id}
	doc, err := c.service.Do(ctx, r)
	if openstack.Classify(err) == openstack.ClassNotFound {
		return nil, nil //nolint:nilnil // nothing is there
	}
	if err != nil {
		return nil, err
	}
	inner, err := k.Single(doc)
	if err != nil {
		return nil, openstack.NewError(r, err, true)
	}
	return inner, nil
}
