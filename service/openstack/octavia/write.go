// SPDX-License-Identifier: Apache-2.0

package octavia

import (
	"context"
	"maps"
	"net/http"
	"net/url"
	"slices"

	"github.com/kuryr/raven/drivers"
	"github.com/kuryr/raven/service/openstack"
	"github.com/kuryr/raven/service/plan"
)

// Create asks for a load balancer with the parts that the attributes have, and its identity in it. They are in the
// answer, PENDING_CREATE as the load balancer is. On ClassAmbiguous it may exist now or later: the caller MUST list by
// identity before it creates again.
func (c *Client) Create(ctx context.Context, identity plan.Identity, attrs map[string]any) (plan.Observed, error) {
	if err := c.available(openstack.OpCreate, identity.Name); err != nil {
		return plan.Observed{}, err
	}
	k := c.kinds[drivers.KindLoadBalancer]
	doc := graph(identity, attrs)
	r := openstack.Call{
		Op: openstack.OpCreate, Method: http.MethodPost, Collection: k, Path: k.Path, What: identity.Name, Create: true,
		Body: map[string]any{k.One: doc}, Items: 1 + len(listAt(doc, "listeners")) + len(listAt(doc, "pools")),
	}
	answer, err := c.service.Do(ctx, r)
	if err != nil {
		return plan.Observed{}, member(err, identity)
	}
	inner, err := k.Single(answer)
	if err != nil {
		return plan.Observed{}, openstack.NewError(r, err, true).For(identity)
	}
	lb := k.Observed(inner)
	if whole := c.grown(lb.Attrs, doc); !whole {
		return c.get(ctx, lb.ID)
	}
	if _, wanted := attrs["vip_sg_ids"]; wanted {
		lb.Attrs["vip_sg_ids"] = []any{"as the provider chooses"} // which is known when it is ready
	}
	return lb, nil
}

// member is an error of a create as its resource has it.
func member(err error, identity plan.Identity) error {
	e, ok := err.(*openstack.Error) //nolint:errorlint // made by this package, unwrapped
	if !ok {
		return err
	}
	return e.For(identity)
}

// graph returns the body of a create.
func graph(identity plan.Identity, attrs map[string]any) map[string]any {
	doc := given(attrs)
	delete(doc, "vip_sg_ids")
	more, _ := attrs["tags"].([]string) // beside those of its identity
	doc["description"], doc["tags"] = identity.Description(), append(identity.Tags(), more...)
	if listeners, ok := attrs["listeners"].([]any); ok {
		doc["listeners"] = each(listeners, func(listener map[string]any) map[string]any {
			out := given(listener)
			out["description"] = identity.Description()
			delete(out, "default_pool")
			if name := textOf(listener, "default_pool"); name != "" {
				out["default_pool"] = map[string]any{"name": name}
			}
			return out
		})
	}
	if pools, ok := attrs["pools"].([]any); ok {
		doc["pools"] = each(pools, func(pool map[string]any) map[string]any {
			out := given(pool)
			out["description"] = identity.Description()
			for _, name := range []string{"healthmonitor", "session_persistence"} {
				if inner, _ := pool[name].(map[string]any); textOf(inner, "type") == "" {
					delete(out, name)
				}
			}
			if members, ok := pool["members"].([]any); ok {
				out["members"] = each(members, given)
			}
			return out
		})
	}
	for _, name := range []string{"listeners", "pools", "additional_vips"} {
		if len(listAt(doc, name)) == 0 {
			delete(doc, name)
		}
	}
	return doc
}

// given returns what is not empty: null and empty texts stand for what Octavia does by itself, and so do no
// allowed_cidrs, which some providers refuse to be told at all.
func given(attrs map[string]any) map[string]any {
	doc := maps.Clone(attrs)
	maps.DeleteFunc(doc, func(name string, value any) bool {
		return value == nil || value == "" || name == "allowed_cidrs" && len(listAt(attrs, name)) == 0
	})
	return doc
}

func each(list []any, f func(map[string]any) map[string]any) []any {
	out := make([]any, 0, len(list))
	for _, element := range list {
		if m, ok := element.(map[string]any); ok {
			out = append(out, f(m))
		}
	}
	return out
}

// grown brings the answer to a create in the form that lists have. It says whether all that was asked for is in it.
func (c *Client) grown(attrs, asked map[string]any) bool {
	names := map[string]string{}
	for _, element := range listAt(attrs, "pools") {
		pool, _ := element.(map[string]any)
		names[textOf(pool, "id")] = textOf(pool, "name")
	}
	for _, element := range listAt(attrs, "listeners") {
		listener, _ := element.(map[string]any)
		if listener == nil || textOf(listener, "name") == "" {
			return false
		}
		if inner, ok := listener["default_pool"].(map[string]any); ok {
			listener["default_pool"] = textOf(inner, "name")
		} else {
			listener["default_pool"] = names[textOf(listener, "default_pool_id")]
		}
	}
	wanted := map[string]int{}
	for _, element := range listAt(asked, "pools") {
		pool, _ := element.(map[string]any)
		wanted[textOf(pool, "name")] = len(listAt(pool, "members"))
	}
	for _, element := range listAt(attrs, "pools") {
		pool, _ := element.(map[string]any)
		members := listAt(pool, "members")
		if len(members) != wanted[textOf(pool, "name")] {
			return false
		}
		for _, m := range members {
			if doc, _ := m.(map[string]any); textOf(doc, "address") == "" {
				return false
			}
		}
	}
	for _, name := range []string{"listeners", "pools"} {
		if len(listAt(attrs, name)) != len(listAt(asked, name)) {
			return false
		}
		if attrs[name] == nil {
			attrs[name] = []any{}
		}
	}
	return true
}

// Update changes attributes of a load balancer itself. What came of it is returned, without its parts.
func (c *Client) Update(ctx context.Context, id string, attrs map[string]any) (plan.Observed, error) {
	if err := c.available("updating", id); err != nil {
		return plan.Observed{}, err
	}
	if len(attrs) == 0 {
		return c.get(ctx, id)
	}
	k := c.kinds[drivers.KindLoadBalancer]
	r := openstack.Call{
		Op: "updating", Method: http.MethodPut, Collection: k, Path: k.PathOf(id), What: id,
		Body: map[string]any{k.One: attrs},
	}
	doc, err := c.service.Do(ctx, r)
	if err != nil {
		return plan.Observed{}, err
	}
	return one(r, doc)
}

// Delete deletes a load balancer with all that is in it; one that is not there counts as deleted. It is gone some time
// after that.
func (c *Client) Delete(ctx context.Context, id string) error {
	if err := c.available("deleting", id); err != nil {
		return err
	}
	k := c.kinds[drivers.KindLoadBalancer]
	_, err := c.service.Do(ctx, openstack.Call{
		Op: "deleting", Method: http.MethodDelete, Collection: k, Path: k.PathOf(id), What: id,
		Query: url.Values{"cascade": {"true"}},
	})
	if openstack.Classify(err) == openstack.ClassNotFound {
		return nil
	}
	return err
}

// AddTags adds tags to a load balancer, beside those of others. They can only be written together: they are read just
// before that, and the load balancer is busy afterwards.
func (c *Client) AddTags(ctx context.Context, id string, tags []string) error {
	return c.retag(ctx, "tagging", id, func(now []string) []string { return append(without(now, tags), tags...) })
}

// RemoveTags removes tags of a load balancer; those that are not there count as removed.
func (c *Client) RemoveTags(ctx context.Context, id string, tags []string) error {
	return c.retag(ctx, "untagging", id, func(now []string) []string { return without(now, tags) })
}

// retag changes the tags of a load balancer. Nothing is written where they are as they should be.
func (c *Client) retag(ctx context.Context, op, id string, change func([]string) []string) error {
	if err := c.available(op, id); err != nil {
		return err
	}
	lb, err := c.read(ctx, "tagging", id)
	if err != nil {
		return err
	}
	now := change(lb.Tags)
	if sameSet(now, lb.Tags) {
		return nil
	}
	k := c.kinds[drivers.KindLoadBalancer]
	_, err = c.service.Do(ctx, openstack.Call{
		Op: "tagging", Method: http.MethodPut, Collection: k, Path: k.PathOf(id), What: id,
		Body: map[string]any{k.One: map[string]any{"tags": now}},
	})
	return err
}

func without(tags, these []string) []string {
	return slices.DeleteFunc(slices.Clone(tags), func(tag string) bool { return slices.Contains(these, tag) })
}

func sameSet(a, b []string) bool {
	return slices.Equal(slices.Compact(slices.Sorted(slices.Values(a))), slices.Compact(slices.Sorted(slices.Values(b))))
}

// FailOver has a load balancer's provider make what is behind it anew. ClassForbidden and ClassUnsupported say that it
// cannot be done by these credentials or this provider.
func (c *Client) FailOver(ctx context.Context, id string) error {
	if err := c.available("failing over", id); err != nil {
		return err
	}
	k := c.kinds[drivers.KindLoadBalancer]
	_, err := c.service.Do(ctx, openstack.Call{
		Op: "failing over", Method: http.MethodPut, Collection: k, Path: k.PathOf(id) + "/failover", What: id,
	})
	return err
}
