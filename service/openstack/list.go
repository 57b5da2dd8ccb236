package openstack

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/kuryr/raven/drivers"
	"github.com/kuryr/raven/service/plan"
)

const (
	pageSize = 1000
	// listTries is how often a list is begun again because the resource where a page ended was deleted in between.
	listTries = 4
	// idsPerList keeps a list of ids below the length of an address that every proxy takes.
	idsPerList = 40
)

// Observe returns everything in the project that carries the cluster's identity, of every kind of the networking service. If one
// list fails, all fail.
func (c *Cloud) Observe(ctx context.Context, cluster string) ([]plan.Observed, error) {
	group, ctx := errgroup.WithContext(ctx)
	kinds := slices.DeleteFunc(drivers.Kinds(), func(k drivers.Kind) bool {
		// Router interfaces are among the ports; load balancers are another service's, which may be away while this one works, and OVN's
		// own are no OpenStack service's.
		return k.Northbound() || k == drivers.KindLookup || k == drivers.KindRouterInterface || k == drivers.KindLoadBalancer
	})
	found := make([][]plan.Observed, len(kinds))
	for i, name := range kinds {
		group.Go(func() error {
			var err error
			found[i], err = c.listAll(ctx, name, cluster)
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	return slices.Concat(found...), nil
}

// List returns the resources of one kind in the project that carry the cluster's identity, by tags or by description. A
// partial list is an error; so is, with ErrNoBalancing, a list of load balancers where the catalog has no service for them.
func (c *Cloud) List(ctx context.Context, name drivers.Kind, cluster string) ([]plan.Observed, error) {
	found, err := c.listAll(ctx, name, cluster)
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(found, func(o plan.Observed) bool { return o.Kind != name }), nil
}

// ObserveKind is List: the drift check's name for it.
func (c *Cloud) ObserveKind(ctx context.Context, name drivers.Kind, cluster string) ([]plan.Observed, error) {
	return c.List(ctx, name, cluster)
}

// listAll lists a kind, and of the ports both ports and router interfaces. Of a small kind one list has everything. Of ports,
// of which the project may have many that are not ours, the first list asks only for what may prove an identity without
// tags; that comes first so that a port which is being tagged is in the second at the latest.
func (c *Cloud) listAll(ctx context.Context, name drivers.Kind, cluster string) ([]plan.Observed, error) {
	want := plan.Identity{Cluster: cluster}.Key().Cluster
	ours := func(o plan.Observed) bool { return o.Managed && o.Identity.Key().Cluster == want }
	if name == drivers.KindLoadBalancer {
		return c.allBalancers(ctx, ours)
	}
	k, err := c.kind(name)
	if err != nil {
		return nil, err
	}
	query := url.Values{}
	if c.projectID != "" {
		query.Set("project_id", c.projectID)
	}
	if k.small || !k.taggable {
		return c.pages(ctx, k, query, ours)
	}
	tag := plan.Identity{Cluster: cluster}.Tags()[0]
	untagged := clone(query)
	untagged.Set("not-tags", tag)
	untagged["fields"] = []string{"id", "description"}
	byText, err := c.pages(ctx, k, untagged, ours)
	if err != nil {
		return nil, err
	}
	query.Set("tags", tag)
	found, err := c.pages(ctx, k, query, ours)
	if err != nil {
		return nil, err
	}
	have := make(map[string]bool, len(found))
	for _, o := range found {
		have[o.ID] = true
	}
	for part := range slices.Chunk(byText, idsPerList) {
		ids := url.Values{}
		for _, o := range part {
			if !have[o.ID] {
				ids.Add("id", o.ID)
			}
		}
		if len(ids) == 0 {
			continue
		}
		whole, err := c.pages(ctx, k, ids, ours)
		if err != nil {
			return nil, err
		}
		found = append(found, whole...)
	}
	return found, nil
}

// pages lists to the end, and keeps what is wanted. Pages are asked for by marker, not by the links in the answer, whose
// scheme and host are often those behind a proxy.
func (c *Cloud) pages(ctx context.Context, k kind, query url.Values, keep func(plan.Observed) bool) ([]plan.Observed, error) {
	var err error
	for range listTries {
		var found []plan.Observed
		var restart bool
		found, restart, err = c.pagesOnce(ctx, k, query, keep)
		if err == nil || !restart {
			return found, err
		}
	}
	return nil, err
}

func (c *Cloud) pagesOnce(
	ctx context.Context, k kind, query url.Values, keep func(plan.Observed) bool,
) (found []plan.Observed, restart bool, err error) {
	query = clone(query)
	query.Set("limit", strconv.Itoa(pageSize))
	seen := map[string]bool{}
	for {
		r := call{op: opList, method: http.MethodGet, kind: k, path: k.path, query: query}
		doc, err := c.do(ctx, r)
		if err != nil {
			gone := query.Has("marker") && (Classify(err) == ClassNotFound || Classify(err) == ClassTerminal)
			return nil, gone, err
		}
		docs, err := k.list(doc)
		if err != nil {
			return nil, false, newError(r, err, true)
		}
		last := ""
		for _, doc := range docs {
			o := k.observed(doc)
			if last = o.ID; last == "" {
				return nil, false, newError(r, fmt.Errorf("the list %q holds a resource without id", k.many), true)
			}
			if !seen[o.ID] && keep(o) {
				found = append(found, o)
			}
			seen[o.ID] = true
		}
		if len(docs) == 0 || !hasNext(doc, k) {
			return found, false, nil
		}
		if query.Get("marker") == last {
			return nil, false, newError(r, fmt.Errorf("the server repeats the page after %s", last), true)
		}
		query.Set("marker", last)
	}
}

func hasNext(doc map[string]any, k kind) bool {
	links, _ := doc[k.many+"_links"].([]any)
	for _, link := range links {
		if l, ok := link.(map[string]any); ok && l["rel"] == "next" {
			return true
		}
	}
	return false
}

// Get returns one resource by id.
func (c *Cloud) Get(ctx context.Context, name drivers.Kind, id string) (plan.Observed, error) {
	at, k, err := c.service("reading", name, id)
	if err != nil {
		return plan.Observed{}, err
	}
	if at != c {
		return c.balancers.get(ctx, id)
	}
	r := call{op: "reading", method: http.MethodGet, kind: k, path: k.path + "/" + url.PathEscape(id), what: id}
	doc, err := c.do(ctx, r)
	if err != nil {
		return plan.Observed{}, err
	}
	return k.answer(r, doc)
}

func (k kind) answer(r call, doc map[string]any) (plan.Observed, error) {
	inner, err := k.single(doc)
	if err != nil {
		return plan.Observed{}, newError(r, err, true)
	}
	return k.observed(inner), nil
}

// Lookup returns one resource by id or, where none has that id, by name. It may belong to another project that shares it.
// None is ClassNotFound; several of one name are ClassTerminal.
func (c *Cloud) Lookup(ctx context.Context, name drivers.Kind, idOrName string) (plan.Observed, error) {
	at, k, err := c.service("looking up", name, idOrName)
	if err != nil {
		return plan.Observed{}, err
	}
	found, err := at.pages(ctx, k, url.Values{"id": {idOrName}}, everything)
	if err == nil && len(found) == 0 {
		found, err = at.pages(ctx, k, url.Values{"name": {idOrName}}, everything)
	}
	if err != nil {
		return plan.Observed{}, err
	}
	missed := &Error{Op: "looking up", Kind: name, What: idOrName}
	switch len(found) {
	case 1:
		return found[0], nil
	case 0:
		missed.class, missed.Message = ClassNotFound, "nothing that these credentials can see has this id or name"
	default:
		ids := make([]string, 0, len(found))
		for _, o := range found {
			ids = append(ids, o.ID)
		}
		slices.Sort(ids)
		missed.class = ClassTerminal
		missed.Message = fmt.Sprintf("%d have this name (%s): give the id", len(ids), oneLine(strings.Join(ids, ", ")))
	}
	return plan.Observed{}, missed
}

// FindFloatingIP returns the floating IP of the project that has an address. None is ClassNotFound.
func (c *Cloud) FindFloatingIP(ctx context.Context, address string) (plan.Observed, error) {
	k := c.kinds[drivers.KindFloatingIP]
	query := url.Values{"floating_ip_address": {address}}
	if c.projectID != "" {
		query.Set("project_id", c.projectID)
	}
	found, err := c.pages(ctx, k, query, everything)
	if err != nil {
		return plan.Observed{}, err
	}
	if len(found) == 0 {
		return plan.Observed{}, &Error{
			Op: "looking up", Kind: k.name, What: address, class: ClassNotFound, Message: "the project has no floating IP of this address",
		}
	}
	return found[0], nil
}

// Dependants returns, in words for people, up to ten resources that use this one, foreign ones included.
func (c *Cloud) Dependants(ctx context.Context, name drivers.Kind, id string) ([]string, error) {
	type use struct {
		kind  drivers.Kind
		query url.Values
	}
	var uses []use
	switch name {
	case drivers.KindNetwork:
		uses = []use{{drivers.KindPort, url.Values{"network_id": {id}}}}
	case drivers.KindSubnet:
		uses = []use{{drivers.KindPort, url.Values{"fixed_ips": {"subnet_id=" + id}}}}
	case drivers.KindSubnetPool:
		uses = []use{{drivers.KindSubnet, url.Values{"subnetpool_id": {id}}}}
	case drivers.KindRouter:
		uses = []use{{drivers.KindPort, url.Values{"device_id": {id}}}, {drivers.KindFloatingIP, url.Values{"router_id": {id}}}}
	case drivers.KindSecurityGroup:
		uses = []use{
			{drivers.KindPort, url.Values{"security_groups": {id}}},
			{drivers.KindSecurityGroupRule, url.Values{"remote_group_id": {id}}},
		}
	case drivers.KindPort, drivers.KindRouterInterface:
		uses = []use{{drivers.KindFloatingIP, url.Values{"port_id": {id}}}}
	case drivers.KindFloatingIP, drivers.KindSecurityGroupRule, drivers.KindLookup, drivers.KindLoadBalancer,
		drivers.KindOVNLoadBalancerGroup, drivers.KindOVNLoadBalancer:
	}
	var names []string
	for _, u := range uses {
		k, err := c.kind(u.kind)
		if err != nil {
			return nil, err
		}
		found, err := c.firstPage(ctx, k, u.query)
		if err != nil {
			return nil, err
		}
		for _, o := range found {
			if text := describe(o); text != "" {
				names = append(names, text)
			}
		}
	}
	return names[:min(len(names), 10)], nil
}

// firstPage lists a few, for people.
func (c *Cloud) firstPage(ctx context.Context, k kind, query url.Values) ([]plan.Observed, error) {
	query.Set("limit", "20")
	r := call{op: opList, method: http.MethodGet, kind: k, path: k.path, query: query}
	doc, err := c.do(ctx, r)
	if err != nil {
		return nil, err
	}
	docs, err := k.list(doc)
	if err != nil {
		return nil, newError(r, err, true)
	}
	found := make([]plan.Observed, 0, len(docs))
	for _, doc := range docs {
		found = append(found, k.observed(doc))
	}
	return found, nil
}

// describe names a resource for people; nothing for ports that Neutron keeps for itself and takes away itself.
func describe(o plan.Observed) string {
	name, _ := o.Attrs["name"].(string)
	owner, _ := o.Attrs["device_owner"].(string)
	if owner == "network:dhcp" || owner == "network:distributed" {
		return ""
	}
	text := strings.ReplaceAll(string(o.Kind), "_", " ")
	if name != "" {
		text += fmt.Sprintf(" %q", name)
	}
	text += " (" + o.ID
	if owner != "" {
		text += ", " + owner
	}
	return text + ")"
}

func everything(plan.Observed) bool { return true }

func clone(query url.Values) url.Values {
	copied := make(url.Values, len(query)+2)
	for key, values := range query {
		copied[key] = slices.Clone(values)
	}
	return copied
}
