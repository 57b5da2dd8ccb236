// SPDX-License-Identifier: Apache-2.0

package neutron

import (
	"context"
	"maps"
	"net/http"
	"slices"

	"github.com/kuryr/raven/service/openstack"
)

// Quota is how many resources of one kind the project may have and has.
type Quota struct {
	Resource string // port, security_group_rule: as Neutron calls it
	Limit    int64  // -1: no limit
	Used     int64  // reservations among them
}

// Quota lists the quota of the project for the kinds that drivers make, by name. It needs the extension quota_details.
func (c *Client) Quota(ctx context.Context) ([]Quota, error) {
	r := openstack.Call{
		Op: "reading the quota", Method: http.MethodGet, What: c.projectID,
		Collection: openstack.Collection{One: "quota", Many: "quotas"}, Path: "quotas/" + c.projectID + "/details.json",
	}
	doc, err := c.service.Do(ctx, r)
	if err != nil {
		return nil, err
	}
	inner, err := r.Collection.Single(doc)
	if err != nil {
		return nil, openstack.NewError(r, err, true)
	}
	made := []string{
		"network", "subnet", "subnetpool", "port", "router", "security_group", "security_group_rule", "floatingip",
	}
	var list []Quota
	for _, name := range slices.Sorted(maps.Keys(inner)) {
		values, ok := inner[name].(map[string]any)
		if !ok || !slices.Contains(made, name) {
			continue
		}
		limit, _ := values["limit"].(int64)
		used, _ := values["used"].(int64)
		reserved, _ := values["reserved"].(int64)
		list = append(list, Quota{Resource: name, Limit: limit, Used: used + reserved})
	}
	return list, nil
}

// External says whether a network is an external one.
func (c *Client) External(ctx context.Context, id string) (bool, error) {
	r := openstack.Call{
		Op: "reading", Method: http.MethodGet, What: id,
		Collection: openstack.Collection{One: "network", Many: "networks"}, Path: "networks/" + id,
	}
	doc, err := c.service.Do(ctx, r)
	if err != nil {
		return false, err
	}
	inner, err := r.Collection.Single(doc)
	if err != nil {
		return false, openstack.NewError(r, err, true)
	}
	external, _ := inner["router:external"].(bool)
	return external, nil
}
