// SPDX-License-Identifier: Apache-2.0

package octavia

import (
	"context"
	"net/http"
	"net/url"

	"github.com/kuryr/raven/drivers"
	"github.com/kuryr/raven/service/openstack"
)

// Flavor says whether load balancers can have a flavor, by id, and of which provider it is; "" if these credentials
// cannot see that. ClassForbidden says that they cannot see flavors at all.
func (c *Client) Flavor(ctx context.Context, id string) (there bool, provider string, err error) {
	return c.offered(ctx, "flavor", "lbaas/flavors/", "flavorprofile", "lbaas/flavorprofiles/", id)
}

// Zone says the same of an availability zone of load balancers, by name.
func (c *Client) Zone(ctx context.Context, name string) (there bool, provider string, err error) {
	return c.offered(ctx, "availability_zone", "lbaas/availabilityzones/",
		"availability_zone_profile", "lbaas/availabilityzoneprofiles/", name)
}

// offered reads something that a load balancer may be made with, and the profile that it has.
func (c *Client) offered(
	ctx context.Context, one, path, profile, profiles, name string,
) (there bool, provider string, err error) {
	if err := c.available("looking up", name); err != nil {
		return false, "", err
	}
	read := func(path, one string) (map[string]any, error) {
		doc, err := c.service.Do(ctx, openstack.Call{
			Op: "looking up", Method: http.MethodGet, Collection: c.kinds[drivers.KindLoadBalancer], Path: path, What: name,
		})
		inner, _ := doc[one].(map[string]any)
		return inner, err
	}
	doc, err := read(path+url.PathEscape(name), one)
	switch {
	case openstack.Classify(err) == openstack.ClassNotFound:
		return false, "", nil
	case err != nil:
		return false, "", err
	case doc["enabled"] == false:
		return false, "", nil
	}
	id := textOf(doc, profile+"_id")
	if one == "flavor" {
		id = textOf(doc, "flavor_profile_id")
	}
	if id == "" {
		return true, "", nil
	}
	doc, err = read(profiles+url.PathEscape(id), profile)
	if class := openstack.Classify(err); class == openstack.ClassForbidden || class == openstack.ClassNotFound {
		return true, "", nil // most credentials may not see profiles
	}
	return true, textOf(doc, "provider_name"), err
}

// QuotaRoom says for how many more load balancers there is room in the project's quota. It is not bounded where there
// is no limit, or where these credentials cannot see it.
func (c *Client) QuotaRoom(ctx context.Context) (room int, bounded bool, err error) {
	if err := c.available("looking up", "the quota of load balancers"); err != nil {
		return 0, false, err
	}
	if c.projectID == "" {
		return 0, false, nil
	}
	doc, err := c.service.Do(ctx, openstack.Call{
		Op: "looking up", Method: http.MethodGet, Collection: c.kinds[drivers.KindLoadBalancer],
		Path: "lbaas/quotas/" + url.PathEscape(c.projectID), What: "the quota of load balancers",
	})
	switch openstack.Classify(err) { //nolint:exhaustive // the others are as they are
	case openstack.ClassForbidden, openstack.ClassNotFound, openstack.ClassUnsupported:
		return 0, false, nil
	}
	if err != nil {
		return 0, false, err
	}
	quota, _ := doc["quota"].(map[string]any)
	limit, limited := quota["load_balancer"].(int64)
	if !limited {
		limit, limited = quota["loadbalancer"].(int64) // as older releases have it
	}
	if !limited || limit < 0 {
		return 0, false, nil
	}
	query := c.mine()
	query.Set("fields", "id")
	there, err := c.pages(ctx, c.polled(drivers.KindLoadBalancer), query, openstack.Everything)
	return int(limit) - len(there), true, err
}
