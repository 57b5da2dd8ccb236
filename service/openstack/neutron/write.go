// SPDX-License-Identifier: Apache-2.0

package neutron

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"

	"github.com/kuryr/raven/drivers"
	"github.com/kuryr/raven/service/openstack"
	"github.com/kuryr/raven/service/plan"
)

// Create makes one resource, with its identity in it, and returns it as the cloud shows it. Ports, networks, subnets
// and security group rules that are created at the same time share requests. On ClassAmbiguous the resource may exist
// now or later: the caller MUST list by identity before it creates again, and wait for AmbiguousWait where nothing else
// refuses a second one. A context that ends while the request is under way gives ClassAmbiguous too.
func (c *Client) Create(
	ctx context.Context, name drivers.Kind, identity plan.Identity, attrs map[string]any,
) (plan.Observed, error) {
	k, err := c.kind(name)
	if err != nil {
		return plan.Observed{}, err
	}
	if b := c.batchers[name]; b != nil {
		return b.create(ctx, identity, attrs)
	}
	if err := c.service.Acquire(ctx); err != nil {
		r := openstack.Call{Op: openstack.OpCreate, Collection: k.Collection, What: identity.Name}
		return plan.Observed{}, openstack.NewError(r, err, false)
	}
	defer c.service.Release()
	found, failure := c.createMany(ctx, k, []*item{{identity: identity, attrs: attrs}})
	if failure != nil {
		return plan.Observed{}, failure.For(identity)
	}
	return found[0], nil
}

// Update changes attributes of a resource that is still at the revision; 0 is any revision. ClassStale says that it is
// not. What came of it is returned. Best-effort attributes that the credentials do not allow are left out.
func (c *Client) Update(
	ctx context.Context, name drivers.Kind, id string, revision int64, attrs map[string]any,
) (plan.Observed, error) {
	k, err := c.kind(name)
	if err != nil {
		return plan.Observed{}, err
	}
	if _, bare := attrs[defaultRules]; bare && name == drivers.KindSecurityGroup {
		return c.updateBareGroup(ctx, k, id, revision, attrs)
	}
	r := openstack.Call{Op: "updating", Method: http.MethodPut, Collection: k.Collection, Path: k.PathOf(id), What: id}
	if revision > 0 && c.Has("revision-if-match") && !bumpsItself(attrs) {
		r.Header = map[string]string{"If-Match": fmt.Sprintf("revision_number=%d", revision)}
	}
	try := trial{unsupported: c.unsupported, kind: name}
	for {
		doc := c.unsupported.strip(name, k.body(nil, attrs), try.without)
		if len(doc) == 0 {
			return c.Get(ctx, name, id)
		}
		r.Body = map[string]any{k.One: doc}
		answer, err := c.service.Do(ctx, r)
		if try.again(doc, err) {
			continue
		}
		if err != nil {
			return plan.Observed{}, err
		}
		return k.answer(r, answer)
	}
}

// bumpsItself says that Neutron raises the revision of a resource before it compares it: a change of a router's gateway
// that names the revision is refused for ever where the router has interfaces, each time with the next revision
// (measured, Neutron 21 with OVN).
func bumpsItself(attrs map[string]any) bool {
	_, gateway := attrs["external_gateway_info"]
	return gateway
}

// Delete deletes a resource; one that is not there counts as deleted.
func (c *Client) Delete(ctx context.Context, name drivers.Kind, id string) error {
	k, err := c.kind(name)
	if err != nil {
		return err
	}
	_, err = c.service.Do(ctx, openstack.Call{
		Op: "deleting", Method: http.MethodDelete, Collection: k.Collection, Path: k.PathOf(id), What: id,
	})
	if openstack.Classify(err) == openstack.ClassNotFound {
		return nil
	}
	return err
}

// Leave takes the ports of a cluster out of a security group, so that it can be deleted. Those of others stay in it.
func (c *Client) Leave(ctx context.Context, cluster, group string) error {
	k, err := c.kind(drivers.KindPort)
	if err != nil {
		return err
	}
	want := plan.Identity{Cluster: cluster}.Key().Cluster
	ports, err := c.pages(ctx, k, url.Values{"security_groups": {group}}, func(o plan.Observed) bool {
		return o.Managed && o.Identity.Key().Cluster == want
	})
	if err != nil {
		return err
	}
	for _, port := range ports {
		list, _ := port.Attrs["security_groups"].([]any)
		rest := slices.DeleteFunc(slices.Clone(list), func(id any) bool { return id == any(group) })
		_, err := c.Update(ctx, drivers.KindPort, port.ID, 0, map[string]any{"security_groups": rest})
		if err != nil && openstack.Classify(err) != openstack.ClassNotFound {
			return err
		}
	}
	return nil
}

// AddTags adds tags one by one, so that others' tags stay. Of a kind that the cloud keeps no tags of it does nothing.
func (c *Client) AddTags(ctx context.Context, name drivers.Kind, id string, tags []string) error {
	return c.tags(ctx, name, http.MethodPut, "tagging", id, tags)
}

// RemoveTags removes tags one by one; those that are not there count as removed.
func (c *Client) RemoveTags(ctx context.Context, name drivers.Kind, id string, tags []string) error {
	return c.tags(ctx, name, http.MethodDelete, "untagging", id, tags)
}

// ReplaceTags replaces all tags of a resource by others, with one request.
func (c *Client) ReplaceTags(ctx context.Context, name drivers.Kind, id string, tags []string) error {
	k, err := c.kind(name)
	if err != nil || !k.taggable {
		return err
	}
	_, err = c.service.Do(ctx, openstack.Call{
		Op: "tagging", Method: http.MethodPut, Collection: k.Collection, Path: k.PathOf(id) + "/tags",
		Body: map[string]any{"tags": tags}, What: id,
	})
	return err
}

// idle says whether nothing waits to be sent.
func (c *Client) idle() bool {
	if c.service.Waiting() > 0 {
		return false
	}
	for _, b := range c.batchers {
		if b.waiting() > 0 {
			return false
		}
	}
	return true
}

func (c *Client) tags(ctx context.Context, name drivers.Kind, method, op, id string, tags []string) error {
	k, err := c.kind(name)
	if err != nil {
		return err
	}
	if !k.taggable {
		return nil
	}
	for _, tag := range tags {
		path := k.PathOf(id) + "/tags/" + url.PathEscape(tag)
		_, err := c.service.Do(ctx, openstack.Call{Op: op, Method: method, Collection: k.Collection, Path: path, What: id})
		if err != nil && !(method == http.MethodDelete && openstack.Classify(err) == openstack.ClassNotFound) {
			return err
		}
	}
	return nil
}

// Attach makes a port the interface of a router. A port that is attached to this router already counts as attached.
func (c *Client) Attach(ctx context.Context, routerID, portID string) error {
	err := c.routerInterface(ctx, "attaching", "add_router_interface", routerID, portID)
	var refused bool
	switch openstack.Classify(err) {
	case openstack.ClassTerminal, openstack.ClassInUse, openstack.ClassExists, openstack.ClassRetry:
		refused = openstack.StatusOf(err) == http.StatusBadRequest || openstack.StatusOf(err) == http.StatusConflict
	default:
	}
	if !refused {
		return err
	}
	// An earlier attempt may have worked although its answer was lost.
	port, readErr := c.Get(ctx, drivers.KindRouterInterface, portID)
	if readErr == nil && port.Attrs["router_id"] == routerID {
		return nil
	}
	return err
}

// Detach takes an interface off a router, which deletes its port; a port that was never attached is deleted too.
// Afterwards the port is gone.
func (c *Client) Detach(ctx context.Context, routerID, portID string) error {
	err := c.routerInterface(ctx, "detaching", "remove_router_interface", routerID, portID)
	if openstack.Classify(err) == openstack.ClassNotFound {
		return c.Delete(ctx, drivers.KindRouterInterface, portID)
	}
	return err
}

func (c *Client) routerInterface(ctx context.Context, op, action, routerID, portID string) error {
	_, err := c.service.Do(ctx, openstack.Call{
		Op: op, Method: http.MethodPut, Collection: c.kinds[drivers.KindRouterInterface].Collection,
		Path: "routers/" + url.PathEscape(routerID) + "/" + action, Body: map[string]any{"port_id": portID}, What: portID,
	})
	return err
}

// createMany sends one create of one or more resources; the caller holds a slot. They come back in the order of the
// items. Best-effort attributes that turn out not to be allowed are left out, and it is tried again.
func (c *Client) createMany(ctx context.Context, k kind, items []*item) ([]plan.Observed, *openstack.Error) {
	r := openstack.Call{
		Op: openstack.OpCreate, Method: http.MethodPost, Collection: k.Collection, Path: k.Path,
		Items: len(items), Create: true,
	}
	if len(items) == 1 {
		r.What = items[0].identity.Name
	}
	try := trial{unsupported: c.unsupported, kind: k.Kind}
	for {
		docs := make([]any, 0, len(items))
		whole := map[string]any{}
		for _, it := range items {
			doc := c.unsupported.strip(k.Kind, k.body(&it.identity, it.attrs), try.without)
			docs = append(docs, doc)
			maps.Copy(whole, doc)
		}
		if len(docs) == 1 {
			r.Body = map[string]any{k.One: docs[0]}
		} else {
			r.Body = map[string]any{k.Many: docs}
		}
		answer, err := c.service.Send(ctx, r)
		if try.again(whole, err) {
			continue
		}
		if err != nil {
			return nil, openstack.NewError(r, err, true)
		}
		found, err := k.created(answer, items)
		if err != nil {
			return nil, openstack.NewError(r, err, true)
		}
		c.unsupported.worked(k.Kind, whole)
		if _, sent := whole["tags"]; sent && len(found[0].Tags) == 0 {
			c.unsupported.remember(k.Kind, []string{"tags"}, errTagsIgnored)
		}
		return found, nil
	}
}

// errTagsIgnored: the resources are known by their descriptions until their tags are added.
var errTagsIgnored = errors.New("the tags in the create are ignored")

// created finds the items' resources in the answer to their create: by identity, which does not rest on the answer's
// order.
func (k kind) created(answer map[string]any, items []*item) ([]plan.Observed, error) {
	if len(items) == 1 {
		doc, err := k.Single(answer)
		if err != nil {
			return nil, err
		}
		return []plan.Observed{k.observed(doc)}, nil
	}
	docs, err := k.List(answer)
	if err != nil {
		return nil, err
	}
	byKey := make(map[plan.Key][]plan.Observed, len(docs))
	for _, doc := range docs {
		o := k.observed(doc)
		byKey[o.Identity.Key()] = append(byKey[o.Identity.Key()], o)
	}
	found := make([]plan.Observed, 0, len(items))
	for _, it := range items {
		key := it.identity.Key()
		if len(byKey[key]) == 0 {
			return nil, fmt.Errorf("the response has %d of %d resources, and not %s", len(docs), len(items), it.identity)
		}
		found = append(found, byKey[key][0])
		byKey[key] = byKey[key][1:]
	}
	return found, nil
}
