// SPDX-License-Identifier: Apache-2.0

package octavia

import (
	"context"
	"maps"
	"net/http"
	"strings"

	"github.com/kuryr/raven/drivers"
	"github.com/kuryr/raven/service/openstack"
	"github.com/kuryr/raven/service/plan"
)

// Providers lists the names of the cloud's providers of load balancers.
func (c *Client) Providers(ctx context.Context) ([]string, error) {
	if err := c.available("listing the providers", ""); err != nil {
		return nil, err
	}
	k := openstack.Collection{Kind: drivers.KindLoadBalancer, Path: "lbaas/providers", One: "provider", Many: "providers"}
	r := openstack.Call{Op: openstack.OpList, Method: http.MethodGet, Collection: k, Path: k.Path}
	doc, err := c.service.Do(ctx, r)
	if err != nil {
		return nil, err
	}
	list, err := k.List(doc)
	if err != nil {
		return nil, openstack.NewError(r, err, true)
	}
	names := make([]string, 0, len(list))
	for _, provider := range list {
		names = append(names, textOf(provider, "name"))
	}
	return names, nil
}

// Poll returns the load balancers of a cluster with their statuses and addresses, without their parts: by one list of
// those that have its tag. Where some of those that are known by their ids are not among them, a second list, of the
// whole project, tells which of them have only lost the tag: these are in the answer too, whatever proves now whose
// they are.
func (c *Client) Poll(ctx context.Context, cluster string, known []string) ([]plan.Observed, error) {
	if err := c.available("polling", ""); err != nil {
		return nil, err
	}
	query := c.mine()
	query["fields"] = []string{
		"id", "description", "tags", "provisioning_status", "vip_address", "vip_port_id", "vip_subnet_id", "vip_network_id",
	}
	tagged := maps.Clone(query)
	tagged.Set("tags", plan.Identity{Cluster: cluster}.Tags()[0])
	k := c.polled(drivers.KindLoadBalancer)
	found, err := c.pages(ctx, k, tagged, openstack.Everything)
	if err != nil {
		return nil, err
	}
	missing := make(map[string]bool, len(known))
	for _, id := range known {
		missing[id] = true
	}
	for _, o := range found {
		delete(missing, o.ID)
	}
	if len(missing) == 0 {
		return found, nil
	}
	untagged, err := c.pages(ctx, k, query, func(o plan.Observed) bool { return missing[o.ID] })
	return append(found, untagged...), err
}

// polled is a kind whose statuses are read, one request at a time. Each create may keep its slot for as long as
// the provider takes for a load balancer: a poll that had to wait for that would come late, and be taken for an
// expensive one.
func (c *Client) polled(name drivers.Kind) openstack.Collection {
	k := c.kinds[name]
	k.Polled = true
	return k
}

// fewTrees is up to how many load balancers are inspected one by one; more are by lists of all parts.
const fewTrees = 3

// Inspect returns load balancers with the statuses of their parts as they are now. Of many, those of members are not
// polled.
func (c *Client) Inspect(ctx context.Context, list []plan.Observed) ([]plan.Observed, error) {
	if err := c.available("inspecting", ""); err != nil {
		return nil, err
	}
	statuses := map[string]string{}
	if len(list) > fewTrees {
		for _, name := range []drivers.Kind{openstack.KindListener, openstack.KindPool, openstack.KindMonitor} {
			query := c.mine()
			query["fields"] = []string{"id", "provisioning_status"}
			found, err := c.pages(ctx, c.polled(name), query, openstack.Everything)
			if err != nil {
				return nil, err
			}
			for _, o := range found {
				statuses[o.ID] = o.Status
			}
		}
	} else {
		for _, lb := range list {
			k := c.polled(drivers.KindLoadBalancer)
			doc, err := c.service.Do(ctx, openstack.Call{
				Op: "inspecting", Method: http.MethodGet, Collection: k, Path: k.PathOf(lb.ID) + "/status", What: lb.ID,
			})
			if err != nil && openstack.Classify(err) != openstack.ClassNotFound {
				return nil, err
			}
			collect(doc, statuses)
		}
	}
	out := make([]plan.Observed, 0, len(list))
	for _, lb := range list {
		if status, ok := statuses[lb.ID]; ok {
			lb.Status = status
		}
		lb.Attrs = restatus(lb.Attrs, func(id, _ string) string { return statuses[id] })
		out = append(out, lb)
	}
	return out, nil
}

// collect gathers the statuses in a tree by id.
func collect(tree any, into map[string]string) {
	switch v := tree.(type) {
	case map[string]any:
		if id, status := textOf(v, "id"), textOf(v, "provisioning_status"); id != "" && status != "" {
			into[id] = status
		}
		for _, inner := range v {
			collect(inner, into)
		}
	case []any:
		for _, inner := range v {
			collect(inner, into)
		}
	}
}

// restatus returns a copy of a load balancer's attributes in which its parts have other statuses; "" is not known.
func restatus(attrs map[string]any, status func(id, old string) string) map[string]any {
	set := func(doc map[string]any) map[string]any {
		doc = maps.Clone(doc)
		if now := status(textOf(doc, "id"), textOf(doc, "provisioning_status")); now != "" {
			doc["provisioning_status"] = now
		} else {
			delete(doc, "provisioning_status")
		}
		return doc
	}
	each := func(doc map[string]any, name string, f func(map[string]any) map[string]any) {
		list, ok := doc[name].([]any)
		if !ok {
			return
		}
		out := make([]any, len(list))
		for i, element := range list {
			m, _ := element.(map[string]any)
			out[i] = f(m)
		}
		doc[name] = out
	}
	attrs = maps.Clone(attrs)
	each(attrs, "listeners", set)
	each(attrs, "pools", func(pool map[string]any) map[string]any {
		pool = set(pool)
		if monitor, ok := pool["healthmonitor"].(map[string]any); ok {
			pool["healthmonitor"] = set(monitor)
		}
		each(pool, "members", set)
		return pool
	})
	return attrs
}

// Settled returns a load balancer that takes changes: what is not known to be in ERROR is taken for done.
func Settled(lb plan.Observed) plan.Observed {
	lb.Attrs = restatus(lb.Attrs, func(_, old string) string {
		if strings.HasPrefix(old, "PENDING_") {
			return ""
		}
		return old
	})
	return lb
}
