// SPDX-License-Identifier: Apache-2.0

package neutron

import (
	"context"
	"net/url"

	"github.com/kuryr/raven/drivers"
	"github.com/kuryr/raven/service/openstack"
)

// Clusters counts, by cluster id and kind, what stands in the project with the identity of any cluster. It lists all
// the project's networks, routers, ports and so on: it is for people, not for the loop. Ids that are long are
// shortened.
func (c *Client) Clusters(ctx context.Context) (map[string]map[drivers.Kind]int, error) {
	clusters := map[string]map[drivers.Kind]int{}
	for _, name := range drivers.Kinds() {
		k, known := c.kinds[name]
		if !known || name == drivers.KindRouterInterface || name == drivers.KindSecurityGroupRule {
			continue // interfaces are among the ports, rules have their groups' cluster
		}
		query := url.Values{}
		if c.projectID != "" {
			query.Set("project_id", c.projectID)
		}
		found, err := c.pages(ctx, k, query, openstack.Everything)
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
