// SPDX-License-Identifier: Apache-2.0

package octavia

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"

	"github.com/kuryr/raven/drivers"
	"github.com/kuryr/raven/service/openstack"
	"github.com/kuryr/raven/service/plan"
)

// Change is what a request makes of a load balancer, as it will be when its provider is done. What it was given stays
// as it is.
type Change func(plan.Observed) plan.Observed

// ChangePart applies a step on a part of a load balancer by one request, and returns what that changes: of the load
// balancer as it is known by then, for others may have learned more of it meanwhile. ClassBusy says that it takes no
// changes now.
func (c *Client) ChangePart(ctx context.Context, lb plan.Observed, step plan.Step) (Change, error) {
	if err := c.available("changing", lb.ID); err != nil {
		return nil, err
	}
	if step.Part.Kind == VIPPort {
		return c.changeVIP(ctx, step)
	}
	if step.Part.Kind == Members && step.Attrs["additive"] == true && !c.additive(ctx) {
		step = whole(lb, step)
	}
	r, err := c.partCall(lb, step)
	if err != nil {
		return nil, err
	}
	answer, err := c.service.Do(ctx, r)
	switch {
	case step.Op == plan.Delete && openstack.Classify(err) == openstack.ClassNotFound:
		answer = map[string]any{}
	case err != nil:
		return nil, err
	}
	inner, _ := answer[r.Collection.One].(map[string]any)
	return func(lb plan.Observed) plan.Observed {
		lb = changed(Settled(lb), step, inner)
		lb.Status = "PENDING_UPDATE"
		return lb
	}, nil
}

// partCall returns the request of a step.
func (c *Client) partCall(lb plan.Observed, step plan.Step) (openstack.Call, error) {
	part := *step.Part
	name := map[plan.PartKind]drivers.Kind{
		Listener: openstack.KindListener, Pool: openstack.KindPool, Monitor: openstack.KindMonitor,
		Members: openstack.KindMember,
	}[part.Kind]
	k, ok := c.kinds[name]
	if !ok {
		return openstack.Call{}, fmt.Errorf("there is no part %q of a load balancer", part.Kind)
	}
	r := openstack.Call{Collection: k, Path: k.Path, What: part.Name, Items: 1}
	if part.Kind == Members {
		r.Op, r.Method, r.Path = "updating", http.MethodPut, k.PathOf(part.Pool)+"/members"
		members := each(listAt(step.Attrs, "members"), given)
		r.Body, r.Items = map[string]any{"members": members}, max(1, len(members))
		if step.Attrs["additive"] == true {
			r.Query = url.Values{"additive_only": {"true"}}
		}
		return r, nil
	}
	switch step.Op {
	case plan.Create:
		doc := given(step.Attrs)
		switch part.Kind {
		case Monitor:
			doc["pool_id"] = part.Pool
		default:
			doc["loadbalancer_id"], doc["description"] = lb.ID, lb.Identity.Description()
		}
		// Not "create": a second one of the same name is refused, or found and deleted.
		r.Op, r.Method, r.Body = openstack.OpCreate, http.MethodPost, map[string]any{k.One: doc}
	case plan.Update:
		r.Op, r.Method, r.Path, r.Body = "updating", http.MethodPut, k.PathOf(part.ID), map[string]any{k.One: step.Attrs}
	case plan.Delete:
		r.Op, r.Method, r.Path = "deleting", http.MethodDelete, k.PathOf(part.ID)
	default:
		return openstack.Call{}, fmt.Errorf("%s is nothing that can be done with a part of a load balancer", step.Op)
	}
	return r, nil
}

// changeVIP sets the security groups of a VIP's port. The load balancer itself knows nothing of it.
func (c *Client) changeVIP(ctx context.Context, step plan.Step) (Change, error) {
	attrs := map[string]any{"security_groups": step.Attrs["vip_sg_ids"]}
	port, err := c.networking.Update(ctx, drivers.KindPort, step.Part.ID, 0, attrs)
	if err != nil {
		return nil, err
	}
	return func(lb plan.Observed) plan.Observed {
		lb.Attrs = maps.Clone(lb.Attrs)
		lb.Attrs["vip_sg_ids"] = port.Attrs["security_groups"]
		return lb
	}, nil
}

// changed returns a load balancer after a step on a part of it; answer is the part's document, if there was one.
func changed(lb plan.Observed, step plan.Step, answer map[string]any) plan.Observed {
	lb.Attrs = maps.Clone(lb.Attrs)
	answer = maps.Clone(answer)
	delete(answer, "provisioning_status") // the load balancer's counts until it is done
	switch part := *step.Part; part.Kind {
	case Listener:
		if answer != nil {
			answer["default_pool"] = poolName(lb.Attrs, textOf(answer, "default_pool_id"))
		}
		replaceIn(lb.Attrs, "listeners", part.ID, answer)
	case Pool:
		inside := map[string]any{"members": []any{}}
		for _, element := range listAt(lb.Attrs, "pools") {
			if old, _ := element.(map[string]any); textOf(old, "id") == part.ID && part.ID != "" {
				inside = map[string]any{"members": old["members"], "healthmonitor": old["healthmonitor"]}
			}
		}
		if answer != nil {
			maps.Copy(answer, inside)
		}
		replaceIn(lb.Attrs, "pools", part.ID, answer)
	case Monitor, Members:
		lb.Attrs["pools"] = each(listAt(lb.Attrs, "pools"), func(pool map[string]any) map[string]any {
			if textOf(pool, "id") != part.Pool {
				return pool
			}
			pool = maps.Clone(pool)
			if part.Kind == Members {
				pool["members"] = merged(listAt(pool, "members"), step)
				return pool
			}
			pool["healthmonitor"], pool["healthmonitor_id"] = nil, nil
			if answer != nil {
				pool["healthmonitor"], pool["healthmonitor_id"] = answer, answer["id"]
			}
			return pool
		})
	case VIPPort:
	}
	return lb
}

func poolName(attrs map[string]any, id string) string {
	for _, element := range listAt(attrs, "pools") {
		if pool, _ := element.(map[string]any); id != "" && textOf(pool, "id") == id {
			return textOf(pool, "name")
		}
	}
	return ""
}

// replaceIn puts a part in place of the one with that id; nil removes that one.
func replaceIn(attrs map[string]any, list, id string, with map[string]any) {
	parts := slices.DeleteFunc(slices.Clone(listAt(attrs, list)), func(element any) bool {
		part, _ := element.(map[string]any)
		return id != "" && textOf(part, "id") == id
	})
	if with != nil {
		parts = append(parts, with)
	}
	attrs[list] = parts
}

// merged returns a pool's members after a change of them.
func merged(old []any, step plan.Step) []any {
	key := func(element any) string {
		m, _ := element.(map[string]any)
		return fmt.Sprint(m["address"], " ", m["protocol_port"])
	}
	now := each(listAt(step.Attrs, "members"), given)
	if step.Attrs["additive"] != true {
		return now
	}
	return append(slices.DeleteFunc(slices.Clone(old), func(element any) bool {
		return slices.ContainsFunc(now, func(n any) bool { return key(n) == key(element) })
	}), now...)
}
