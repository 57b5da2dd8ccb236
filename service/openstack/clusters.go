package openstack

import (
	"context"
	"net/url"
	"slices"

	"github.com/kuryr/raven/drivers"
)

// Clusters counts, by cluster id and kind, what stands in the project with the identity of any cluster. It lists all the
// project's networks, routers, ports and so on: it is for people, not for the loop. Ids that are long are shortened. Load
// balancers are left out where Balancing has an error.
func (c *Cloud) Clusters(ctx context.Context) (map[string]map[drivers.Kind]int, error) {
	clusters := map[string]map[drivers.Kind]int{}
	for _, name := range drivers.Kinds() {
		if name.Northbound() || slices.Contains([]drivers.Kind{drivers.KindLookup, drivers.KindRouterInterface, drivers.KindSecurityGroupRule}, name) {
			continue // interfaces are among the ports, rules have their groups' cluster
		}
		if name == drivers.KindLoadBalancer && c.octavia() == nil {
			continue // see Balancing
		}
		at, k, err := c.service(opList, name, "")
		if err != nil {
			return nil, err
		}
		query := url.Values{}
		if c.projectID != "" {
			query.Set("project_id", c.projectID)
		}
		found, err := at.pages(ctx, k, query, everything)
		if err != nil {
			return nil, err
		}
		for _, o := range found {
			if !o.Managed {
				continue
			}
			id := o.Identity.Key().Cluster
			if clusters[id] == nil {
				clusters[id] = map[drivers.Kind]int{}
			}
			clusters[id][o.Kind]++
		}
	}
	return clusters, nil
}

// Balancing says, with ErrNoBalancing, that load balancers cannot be looked for, and nil if they can.
func (c *Cloud) Balancing() error {
	if c.octavia() == nil {
		return c.without(opList, "")
	}
	return nil
}
