package openstack

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"

	"github.com/kuryr/raven/drivers"
	"github.com/kuryr/raven/service/plan"
)

// Create makes one resource, with its identity in it, and returns it as the cloud shows it. Ports, networks, subnets and
// security group rules that are created at the same time share requests. On ClassAmbiguous the resource may exist now or
// later: the caller MUST list by identity before it creates again, and wait for AmbiguousWait where nothing else refuses a
// second one. A context that ends while the request is under way gives ClassAmbiguous too.
func (c *Cloud) Create(ctx context.Context, name drivers.Kind, identity plan.Identity, attrs map[string]any) (plan.Observed, error) {
	at, k, err := c.service(opCreate, name, identity.Name)
	if err != nil {
		return plan.Observed{}, err
	}
	if at != c {
		return c.balancers.create(ctx, identity, attrs)
	}
	if b := c.batchers[name]; b != nil {
		return b.create(ctx, identity, attrs)
	}
	if err := c.enter(ctx); err != nil {
		return plan.Observed{}, newError(call{op: opCreate, kind: k, what: identity.Name}, err, false)
	}
	defer c.limiter.release()
	found, failure := c.createMany(ctx, k, []*item{{identity: identity, attrs: attrs}})
	if failure != nil {
		return plan.Observed{}, failure.forMember(identity)
	}
	return found[0], nil
}

// Update changes attributes of a resource that is still at the revision; 0 is any revision. ClassStale says that it is not.
// What came of it is returned; of a load balancer, without its parts. Best-effort attributes that the credentials do not allow are left out.
func (c *Cloud) Update(ctx context.Context, name drivers.Kind, id string, revision int64, attrs map[string]any) (plan.Observed, error) {
	at, k, err := c.service("updating", name, id)
	if err != nil {
		return plan.Observed{}, err
	}
	r := call{op: "updating", method: http.MethodPut, kind: k, path: k.path + "/" + url.PathEscape(id), what: id}
	if revision > 0 && c.Has("revision-if-match") && !bumpsItself(attrs) {
		r.header = map[string]string{"If-Match": fmt.Sprintf("revision_number=%d", revision)}
	}
	try := trial{unsupported: c.unsupported, kind: name}
	for {
		doc := c.unsupported.strip(name, k.body(nil, attrs), try.without)
		if len(doc) == 0 {
			return c.Get(ctx, name, id)
		}
		r.body = map[string]any{k.one: doc}
		answer, err := at.do(ctx, r)
		if try.again(doc, err) {
			continue
		}
		if err != nil {
			return plan.Observed{}, err
		}
		return k.answer(r, answer)
	}
}

// bumpsItself says that Neutron raises the revision of a resource before it compares it: a change of a router's gateway that names the
// revision is refused for ever where the router has interfaces, each time with the next revision (measured, Neutron 21 with OVN).
func bumpsItself(attrs map[string]any) bool {
	_, gateway := attrs["external_gateway_info"]
	return gateway
}

// Delete deletes a resource; one that is not there counts as deleted. A load balancer goes with all that is in it, some time
// after that.
func (c *Cloud) Delete(ctx context.Context, name drivers.Kind, id string) error {
	at, k, err := c.service("deleting", name, id)
	if err != nil {
		return err
	}
	if at != c {
		return c.balancers.remove(ctx, id)
	}
	_, err = c.do(ctx, call{
		op: "deleting", method: http.MethodDelete, kind: k, path: k.path + "/" + url.PathEscape(id), what: id,
	})
	if Classify(err) == ClassNotFound {
		return nil
	}
	return err
}

// AddTags adds tags one by one, so that others' tags stay. Of a kind that the cloud keeps no tags of it does nothing. Those of a load
// balancer can only be written together: they are read just before that, and the load balancer is busy afterwards.
func (c *Cloud) AddTags(ctx context.Context, name drivers.Kind, id string, tags []string) error {
	return c.tags(ctx, name, http.MethodPut, "tagging", id, tags)
}

// RemoveTags removes tags one by one; those that are not there count as removed.
func (c *Cloud) RemoveTags(ctx context.Context, name drivers.Kind, id string, tags []string) error {
	return c.tags(ctx, name, http.MethodDelete, "untagging", id, tags)
}

func (c *Cloud) tags(ctx context.Context, name drivers.Kind, method, op, id string, tags []string) error {
	at, k, err := c.service(op, name, id)
	if err != nil {
		return err
	}
	if at != c {
		return c.balancers.retag(ctx, id, tags, method == http.MethodPut)
	}
	if !k.taggable {
		return nil
	}
	for _, tag := range tags {
		path := k.path + "/" + url.PathEscape(id) + "/tags/" + url.PathEscape(tag)
		_, err := c.do(ctx, call{op: op, method: method, kind: k, path: path, what: id})
		if err != nil && !(method == http.MethodDelete && Classify(err) == ClassNotFound) {
			return err
		}
	}
	return nil
}

// Attach makes a port the interface of a router. A port that is attached to this router already counts as attached.
func (c *Cloud) Attach(ctx context.Context, routerID, portID string) error {
	err := c.routerInterface(ctx, "attaching", "add_router_interface", routerID, portID)
	var refused bool
	switch Classify(err) {
	case ClassTerminal, ClassInUse, ClassExists, ClassRetry:
		refused = statusOf(err) == http.StatusBadRequest || statusOf(err) == http.StatusConflict
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

// Detach takes an interface off a router, which deletes its port; a port that was never attached is deleted too. Afterwards
// the port is gone.
func (c *Cloud) Detach(ctx context.Context, routerID, portID string) error {
	err := c.routerInterface(ctx, "detaching", "remove_router_interface", routerID, portID)
	if Classify(err) == ClassNotFound {
		return c.Delete(ctx, drivers.KindRouterInterface, portID)
	}
	return err
}

func (c *Cloud) routerInterface(ctx context.Context, op, action, routerID, portID string) error {
	_, err := c.do(ctx, call{
		op: op, method: http.MethodPut, kind: c.kinds[drivers.KindRouterInterface],
		path: "routers/" + url.PathEscape(routerID) + "/" + action, body: map[string]any{"port_id": portID}, what: portID,
	})
	return err
}

// createMany sends one create of one or more resources; the caller holds a slot. They come back in the order of the items.
// Best-effort attributes that turn out not to be allowed are left out, and it is tried again.
func (c *Cloud) createMany(ctx context.Context, k kind, items []*item) ([]plan.Observed, *Error) {
	r := call{op: opCreate, method: http.MethodPost, kind: k, path: k.path, items: len(items), create: true}
	if len(items) == 1 {
		r.what = items[0].identity.Name
	}
	try := trial{unsupported: c.unsupported, kind: k.name}
	for {
		docs := make([]any, 0, len(items))
		whole := map[string]any{}
		for _, it := range items {
			doc := c.unsupported.strip(k.name, k.body(&it.identity, it.attrs), try.without)
			docs = append(docs, doc)
			maps.Copy(whole, doc)
		}
		if len(docs) == 1 {
			r.body = map[string]any{k.one: docs[0]}
		} else {
			r.body = map[string]any{k.many: docs}
		}
		answer, err := c.send(ctx, r)
		if try.again(whole, err) {
			continue
		}
		if err != nil {
			return nil, newError(r, err, true)
		}
		found, err := k.created(answer, items)
		if err != nil {
			return nil, newError(r, err, true)
		}
		c.unsupported.worked(k.name, whole)
		if _, sent := whole["tags"]; sent && len(found[0].Tags) == 0 {
			c.unsupported.remember(k.name, []string{"tags"}, errTagsIgnored)
		}
		return found, nil
	}
}

// errTagsIgnored: the resources are known by their descriptions until their tags are added.
var errTagsIgnored = errors.New("the tags in the create are ignored")

// created finds the items' resources in the answer to their create: by identity, which does not rest on the answer's order.
func (k kind) created(answer map[string]any, items []*item) ([]plan.Observed, error) {
	if len(items) == 1 {
		doc, err := k.single(answer)
		if err != nil {
			return nil, err
		}
		return []plan.Observed{k.observed(doc)}, nil
	}
	docs, err := k.list(answer)
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
