package openstack

import (
	"context"
	"net/http"
	"net/url"

	"github.com/kuryr/raven/drivers"
	"github.com/kuryr/raven/service/plan"
)

// BalancerFlavor says whether load balancers can have a flavor, by id, and of which provider it is; "" if these credentials cannot see
// that. ClassForbidden says that they cannot see flavors at all.
func (c *Cloud) BalancerFlavor(ctx context.Context, id string) (there bool, provider string, err error) {
	return c.lookAt(ctx, "flavor", "lbaas/flavors/", "flavorprofile", "lbaas/flavorprofiles/", id)
}

// BalancerZone says the same of an availability zone of load balancers, by name.
func (c *Cloud) BalancerZone(ctx context.Context, name string) (there bool, provider string, err error) {
	return c.lookAt(ctx, "availability_zone", "lbaas/availabilityzones/", "availability_zone_profile", "lbaas/availabilityzoneprofiles/", name)
}

// lookAt reads something that a load balancer may be made with, and the profile that it has.
func (c *Cloud) lookAt(ctx context.Context, one, path, profile, profiles, name string) (there bool, provider string, err error) {
	b := c.octavia()
	if b == nil {
		return false, "", c.without("looking up", name)
	}
	read := func(path, one string) (map[string]any, error) {
		doc, err := b.do(ctx, call{
			op: "looking up", method: http.MethodGet, kind: b.kinds[drivers.KindLoadBalancer], path: path, what: name,
		})
		inner, _ := doc[one].(map[string]any)
		return inner, err
	}
	doc, err := read(path+url.PathEscape(name), one)
	switch {
	case Classify(err) == ClassNotFound:
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
	if class := Classify(err); class == ClassForbidden || class == ClassNotFound {
		return true, "", nil // most credentials may not see profiles
	}
	return true, textOf(doc, "provider_name"), err
}

// BalancerRoom says for how many more load balancers there is room in the project's quota. It is not bounded where there is no limit, or
// where these credentials cannot see it.
func (c *Cloud) BalancerRoom(ctx context.Context) (room int, bounded bool, err error) {
	b := c.octavia()
	if b == nil {
		return 0, false, c.without("looking up", "the quota of load balancers")
	}
	if b.projectID == "" {
		return 0, false, nil
	}
	doc, err := b.do(ctx, call{
		op: "looking up", method: http.MethodGet, kind: b.kinds[drivers.KindLoadBalancer], path: "lbaas/quotas/" + url.PathEscape(b.projectID),
		what: "the quota of load balancers",
	})
	switch Classify(err) { //nolint:exhaustive // the others are as they are
	case ClassForbidden, ClassNotFound, ClassUnsupported:
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
	there, err := b.pages(ctx, b.polled(drivers.KindLoadBalancer), url.Values{"fields": {"id"}, "project_id": {b.projectID}}, everything)
	return int(limit) - len(there), true, err
}

// PortsAt lists the ports, as far as these credentials see them, that have an address on a subnet, or on a network where no subnet is
// named, or anywhere.
func (c *Cloud) PortsAt(ctx context.Context, networkID, subnetID, address string) ([]plan.Observed, error) {
	query := url.Values{"fixed_ips": {"ip_address=" + address}}
	if subnetID != "" {
		query.Set("fixed_ips", "subnet_id="+subnetID)
		query.Add("fixed_ips", "ip_address="+address)
	} else if networkID != "" {
		query.Set("network_id", networkID)
	}
	return c.pages(ctx, c.kinds[drivers.KindPort], query, everything)
}
