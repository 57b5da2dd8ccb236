package openstack

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"

	"github.com/kuryr/raven/drivers"
	"github.com/kuryr/raven/service/plan"
)

// create asks for a load balancer with the parts that the attributes have. They are in the answer, PENDING_CREATE as the load
// balancer is.
func (b *balancers) create(ctx context.Context, identity plan.Identity, attrs map[string]any) (plan.Observed, error) {
	k := b.kinds[drivers.KindLoadBalancer]
	doc := graph(identity, attrs)
	r := call{
		op: opCreate, method: http.MethodPost, kind: k, path: k.path, what: identity.Name, create: true,
		body: map[string]any{k.one: doc}, items: 1 + len(listAt(doc, "listeners")) + len(listAt(doc, "pools")),
	}
	answer, err := b.do(ctx, r)
	if err != nil {
		return plan.Observed{}, member(err, identity)
	}
	inner, err := k.single(answer)
	if err != nil {
		return plan.Observed{}, newError(r, err, true).forMember(identity)
	}
	lb := k.observed(inner)
	if whole := b.grown(lb.Attrs, doc); !whole {
		return b.get(ctx, lb.ID)
	}
	if _, wanted := attrs["vip_sg_ids"]; wanted {
		lb.Attrs["vip_sg_ids"] = []any{"as the provider chooses"} // which is known when it is ready
	}
	return lb, nil
}

// member is an error of a create as its resource has it.
func member(err error, identity plan.Identity) error {
	e, ok := err.(*Error) //nolint:errorlint // made by this package, unwrapped
	if !ok {
		return err
	}
	return e.forMember(identity)
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

// given returns what is not empty: null and empty texts stand for what Octavia does by itself, and so do no allowed_cidrs, which
// some providers refuse to be told at all.
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
func (b *balancers) grown(attrs, asked map[string]any) bool {
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

// remove deletes a load balancer with all that is in it. It is gone some time after that.
func (b *balancers) remove(ctx context.Context, id string) error {
	k := b.kinds[drivers.KindLoadBalancer]
	_, err := b.do(ctx, call{
		op: "deleting", method: http.MethodDelete, kind: k, path: k.path + "/" + url.PathEscape(id), what: id,
		query: url.Values{"cascade": {"true"}},
	})
	if Classify(err) == ClassNotFound {
		return nil
	}
	return err
}

// retag adds tags to a load balancer, or takes them away. Nothing is written where they are as they should be.
func (b *balancers) retag(ctx context.Context, id string, tags []string, add bool) error {
	k := b.kinds[drivers.KindLoadBalancer]
	r := call{op: "tagging", method: http.MethodGet, kind: k, path: k.path + "/" + url.PathEscape(id), what: id}
	doc, err := b.do(ctx, r)
	if err != nil {
		return err
	}
	lb, err := k.answer(r, doc)
	if err != nil {
		return err
	}
	now := slices.DeleteFunc(slices.Clone(lb.Tags), func(tag string) bool { return slices.Contains(tags, tag) })
	if add {
		now = append(now, tags...)
	}
	if sameSet(now, lb.Tags) {
		return nil
	}
	r.method, r.body = http.MethodPut, map[string]any{k.one: map[string]any{"tags": now}}
	_, err = b.do(ctx, r)
	return err
}

func sameSet(a, b []string) bool {
	return slices.Equal(slices.Compact(slices.Sorted(slices.Values(a))), slices.Compact(slices.Sorted(slices.Values(b))))
}

// FailOver has a load balancer's provider make what is behind it anew. ClassForbidden and ClassUnsupported say that it cannot be
// done by these credentials or this provider.
func (c *Cloud) FailOver(ctx context.Context, id string) error {
	b := c.octavia()
	if b == nil {
		return c.without("failing over", id)
	}
	k := b.kinds[drivers.KindLoadBalancer]
	_, err := b.do(ctx, call{
		op: "failing over", method: http.MethodPut, kind: k, path: k.path + "/" + url.PathEscape(id) + "/failover", what: id,
	})
	return err
}

// Change is what a request makes of a load balancer, as it will be when its provider is done. What it was given stays as it is.
type Change func(plan.Observed) plan.Observed

// ChangePart applies a step on a part of a load balancer by one request, and returns what that changes: of the load balancer as it is
// known by then, for others may have learned more of it meanwhile. ClassBusy says that it takes no changes now.
func (c *Cloud) ChangePart(ctx context.Context, lb plan.Observed, step plan.Step) (Change, error) {
	b := c.octavia()
	if b == nil {
		return nil, c.without("changing", lb.ID)
	}
	if step.Part.Kind == plan.VIPPort {
		return b.changeVIP(ctx, step)
	}
	if step.Part.Kind == plan.Members && step.Attrs["additive"] == true && !b.additive(ctx) {
		step = whole(lb, step)
	}
	r, err := b.partCall(lb, step)
	if err != nil {
		return nil, err
	}
	answer, err := b.do(ctx, r)
	switch {
	case step.Op == plan.Delete && Classify(err) == ClassNotFound:
		answer = map[string]any{}
	case err != nil:
		return nil, err
	}
	inner, _ := answer[r.kind.one].(map[string]any)
	return func(lb plan.Observed) plan.Observed {
		lb = changed(Settled(lb), step, inner)
		lb.Status = "PENDING_UPDATE"
		return lb
	}, nil
}

// partCall returns the request of a step.
func (b *balancers) partCall(lb plan.Observed, step plan.Step) (call, error) {
	part := *step.Part
	name := map[plan.PartKind]drivers.Kind{plan.Listener: listenerKind, plan.Pool: poolKind, plan.Monitor: monitorKind, plan.Members: memberKind}[part.Kind]
	k, ok := b.kinds[name]
	if !ok {
		return call{}, fmt.Errorf("there is no part %q of a load balancer", part.Kind)
	}
	r := call{kind: k, path: k.path, what: part.Name, items: 1}
	if part.Kind == plan.Members {
		r.op, r.method, r.path = "updating", http.MethodPut, k.path+"/"+url.PathEscape(part.Pool)+"/members"
		members := each(listAt(step.Attrs, "members"), given)
		r.body, r.items = map[string]any{"members": members}, max(1, len(members))
		if step.Attrs["additive"] == true {
			r.query = url.Values{"additive_only": {"true"}}
		}
		return r, nil
	}
	switch step.Op {
	case plan.Create:
		doc := given(step.Attrs)
		switch part.Kind {
		case plan.Monitor:
			doc["pool_id"] = part.Pool
		default:
			doc["loadbalancer_id"], doc["description"] = lb.ID, lb.Identity.Description()
		}
		// Not "create": a second one of the same name is refused, or found and deleted.
		r.op, r.method, r.body = opCreate, http.MethodPost, map[string]any{k.one: doc}
	case plan.Update:
		r.op, r.method, r.path, r.body = "updating", http.MethodPut, k.path+"/"+url.PathEscape(part.ID), map[string]any{k.one: step.Attrs}
	case plan.Delete:
		r.op, r.method, r.path = "deleting", http.MethodDelete, k.path+"/"+url.PathEscape(part.ID)
	default:
		return call{}, fmt.Errorf("%s is nothing that can be done with a part of a load balancer", step.Op)
	}
	return r, nil
}

// changeVIP sets the security groups of a VIP's port. The load balancer itself knows nothing of it.
func (b *balancers) changeVIP(ctx context.Context, step plan.Step) (Change, error) {
	port, err := b.neutron.Update(ctx, drivers.KindPort, step.Part.ID, 0, map[string]any{"security_groups": step.Attrs["vip_sg_ids"]})
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
	case plan.Listener:
		if answer != nil {
			answer["default_pool"] = poolName(lb.Attrs, textOf(answer, "default_pool_id"))
		}
		replaceIn(lb.Attrs, "listeners", part.ID, answer)
	case plan.Pool:
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
	case plan.Monitor, plan.Members:
		lb.Attrs["pools"] = each(listAt(lb.Attrs, "pools"), func(pool map[string]any) map[string]any {
			if textOf(pool, "id") != part.Pool {
				return pool
			}
			pool = maps.Clone(pool)
			if part.Kind == plan.Members {
				pool["members"] = merged(listAt(pool, "members"), step)
				return pool
			}
			pool["healthmonitor"], pool["healthmonitor_id"] = nil, nil
			if answer != nil {
				pool["healthmonitor"], pool["healthmonitor_id"] = answer, answer["id"]
			}
			return pool
		})
	case plan.VIPPort:
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

// replaceIn puts a part in place of the one with that id; nil takes that one away.
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
