// SPDX-License-Identifier: Apache-2.0

package neutron

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/kuryr/raven/drivers"
	"github.com/kuryr/raven/service/openstack"
	"github.com/kuryr/raven/service/plan"
)

// idsPerList keeps a list of ids below the length of an address that every proxy takes.
const idsPerList = 40

// Observe returns everything in the project that carries the cluster's identity, of every kind of the networking
// service. If one list fails, all fail.
func (c *Client) Observe(ctx context.Context, cluster string) ([]plan.Observed, error) {
	group, ctx := errgroup.WithContext(ctx)
	kinds := slices.DeleteFunc(drivers.Kinds(), func(k drivers.Kind) bool {
		_, known := c.kinds[k]
		return !known || k == drivers.KindRouterInterface // these are among the ports
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
// partial list is an error.
func (c *Client) List(ctx context.Context, name drivers.Kind, cluster string) ([]plan.Observed, error) {
	found, err := c.listAll(ctx, name, cluster)
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(found, func(o plan.Observed) bool { return o.Kind != name }), nil
}

// listAll lists a kind, and of the ports both ports and router interfaces. Of a small kind one list has everything. Of
// ports, of which the project may have many that are not this cluster's, the first list asks only for what may prove an
// identity without tags; that comes first so that a port which is being tagged is in the second at the latest.
func (c *Client) listAll(ctx context.Context, name drivers.Kind, cluster string) ([]plan.Observed, error) {
	want := plan.Identity{Cluster: cluster}.Key().Cluster
	managed := func(o plan.Observed) bool { return o.Managed && o.Identity.Key().Cluster == want }
	k, err := c.kind(name)
	if err != nil {
		return nil, err
	}
	query := url.Values{}
	if c.projectID != "" {
		query.Set("project_id", c.projectID)
	}
	if k.small || !k.taggable {
		return c.pages(ctx, k, query, managed)
	}
	tag := plan.Identity{Cluster: cluster}.Tags()[0]
	untagged := maps.Clone(query)
	untagged.Set("not-tags", tag)
	untagged["fields"] = []string{"id", "description"}
	byText, err := c.pages(ctx, k, untagged, managed)
	if err != nil {
		return nil, err
	}
	query.Set("tags", tag)
	found, err := c.pages(ctx, k, query, managed)
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
		whole, err := c.pages(ctx, k, ids, managed)
		if err != nil {
			return nil, err
		}
		found = append(found, whole...)
	}
	return found, nil
}

// Owners returns the short names of the drivers whose security groups of this cluster are there; see
// drivers.DriverCapability.
func (c *Client) Owners(ctx context.Context, cluster string) (map[string]bool, error) {
	k, err := c.kind(drivers.KindSecurityGroup)
	if err != nil {
		return nil, err
	}
	query := url.Values{"fields": {"id", "description", "tags"}}
	if c.projectID != "" {
		query.Set("project_id", c.projectID)
	}
	want := plan.Identity{Cluster: cluster}.Key().Cluster
	found, err := c.pages(ctx, k, query, func(o plan.Observed) bool {
		return o.Managed && o.Identity.Key().Cluster == want
	})
	owners := map[string]bool{}
	for _, o := range found {
		owners[o.Identity.Owner.Driver] = true
	}
	return owners, err
}

// pages lists to the end, and keeps what is wanted.
func (c *Client) pages(
	ctx context.Context, k kind, query url.Values, keep func(plan.Observed) bool,
) ([]plan.Observed, error) {
	return c.service.Pages(ctx, k.Collection, query, k.observed, keep)
}

// Get returns one resource by id.
func (c *Client) Get(ctx context.Context, name drivers.Kind, id string) (plan.Observed, error) {
	k, err := c.kind(name)
	if err != nil {
		return plan.Observed{}, err
	}
	r := openstack.Call{Op: "reading", Method: http.MethodGet, Collection: k.Collection, Path: k.PathOf(id), What: id}
	doc, err := c.service.Do(ctx, r)
	if err != nil {
		return plan.Observed{}, err
	}
	return k.answer(r, doc)
}

func (k kind) answer(r openstack.Call, doc map[string]any) (plan.Observed, error) {
	inner, err := k.Single(doc)
	if err != nil {
		return plan.Observed{}, openstack.NewError(r, err, true)
	}
	return k.observed(inner), nil
}

// Lookup returns one resource by id or, where none has that id, by name. It may belong to another project that shares
// it. None is ClassNotFound; several of one name are ClassTerminal.
func (c *Client) Lookup(ctx context.Context, name drivers.Kind, idOrName string) (plan.Observed, error) {
	k, err := c.kind(name)
	if err != nil {
		return plan.Observed{}, err
	}
	return c.service.Lookup(ctx, k.Collection, k.observed, idOrName)
}

// ListIdentity returns the resources of one kind that carry exactly this identity, whatever its policy: usually none or
// one.
func (c *Client) ListIdentity(ctx context.Context, name drivers.Kind, identity plan.Identity) ([]plan.Observed, error) {
	if _, err := c.kind(name); err != nil {
		return nil, err
	}
	return c.finders[name].Find(ctx, identity)
}

// Ports lists ports, as far as these credentials see them, by a query in Neutron's words.
func (c *Client) Ports(ctx context.Context, query url.Values) ([]plan.Observed, error) {
	return c.pages(ctx, c.kinds[drivers.KindPort], query, openstack.Everything)
}

// PortsAt lists the ports, as far as these credentials see them, that have an address on a subnet, or on a network
// where no subnet is named, or anywhere.
func (c *Client) PortsAt(ctx context.Context, networkID, subnetID, address string) ([]plan.Observed, error) {
	query := url.Values{"fixed_ips": {"ip_address=" + address}}
	if subnetID != "" {
		query.Set("fixed_ips", "subnet_id="+subnetID)
		query.Add("fixed_ips", "ip_address="+address)
	} else if networkID != "" {
		query.Set("network_id", networkID)
	}
	return c.Ports(ctx, query)
}

// FindFloatingIP returns the floating IP of the project that has an address. None is ClassNotFound.
func (c *Client) FindFloatingIP(ctx context.Context, address string) (plan.Observed, error) {
	k := c.kinds[drivers.KindFloatingIP]
	query := url.Values{"floating_ip_address": {address}}
	if c.projectID != "" {
		query.Set("project_id", c.projectID)
	}
	found, err := c.pages(ctx, k, query, openstack.Everything)
	if err != nil {
		return plan.Observed{}, err
	}
	if len(found) == 0 {
		return plan.Observed{}, &openstack.Error{
			Op: "looking up", Kind: k.Kind, What: address, Class: openstack.ClassNotFound,
			Message: "the project has no floating IP of this address",
		}
	}
	return found[0], nil
}

// Dependants returns, in words for people, up to ten resources that use this one, foreign ones included.
func (c *Client) Dependants(ctx context.Context, name drivers.Kind, id string) ([]string, error) {
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
		uses = []use{
			{drivers.KindPort, url.Values{"device_id": {id}}},
			{drivers.KindFloatingIP, url.Values{"router_id": {id}}},
		}
	case drivers.KindSecurityGroup:
		uses = []use{
			{drivers.KindPort, url.Values{"security_groups": {id}}},
			{drivers.KindSecurityGroupRule, url.Values{"remote_group_id": {id}}},
		}
	case drivers.KindPort, drivers.KindRouterInterface:
		uses = []use{{drivers.KindFloatingIP, url.Values{"port_id": {id}}}}
	case drivers.KindPortPool, drivers.KindFloatingIP, drivers.KindSecurityGroupRule, drivers.KindLookup,
		drivers.KindLoadBalancer, drivers.KindOVNLoadBalancerGroup, drivers.KindOVNLoadBalancer:
	}
	var names []string
	for _, u := range uses {
		k, err := c.kind(u.kind)
		if err != nil {
			return nil, err
		}
		found, err := c.service.FirstPage(ctx, k.Collection, u.query, k.observed)
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

// describe names a resource for people; nothing for ports that Neutron keeps for itself and deletes itself.
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
