// SPDX-License-Identifier: Apache-2.0

package octavia

import (
	"context"
	"maps"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/kuryr/raven/drivers"
	"github.com/kuryr/raven/service/openstack"
	"github.com/kuryr/raven/service/plan"
)

// sightings bounds how long the first sighting of a VIP port that seems to be left behind counts.
const sightings = time.Hour

// FreeVIP deletes the VIP port that a refused create of a load balancer has left behind, and says whether there was
// one: some releases of Octavia never remove it, and the address is then refused to the next create. The very same port
// belongs to a create that is still under way, of Raven or another client, whose load balancer is not visible yet. So
// it is deleted only if it was left behind when it was seen before, at least after ago, which is longer than any
// request takes; otherwise it stays, and wait is when to ask again. Nothing is done without an address and a subnet.
func (c *Client) FreeVIP(
	ctx context.Context, subnetID, address string, after time.Duration,
) (freed bool, wait time.Duration, err error) {
	if !c.service.Available() || subnetID == "" || address == "" || c.projectID == "" {
		return false, 0, nil
	}
	query := url.Values{"fixed_ips": {"subnet_id=" + subnetID, "ip_address=" + address}, "project_id": {c.projectID}}
	began := c.clock.Now()
	ports, err := c.networking.Ports(ctx, query)
	if err != nil {
		return false, 0, err
	}
	for _, port := range ports {
		left, err := c.leftBehind(ctx, port)
		if err != nil {
			return freed, wait, err
		}
		if !left {
			c.forget(port.ID)
			continue
		}
		if rest := after - began.Sub(c.firstSeen(port.ID, began)); rest > 0 {
			wait = max(wait, rest)
			continue
		}
		if err := c.networking.Delete(ctx, drivers.KindPort, port.ID); err != nil {
			return freed, wait, err
		}
		c.forget(port.ID)
		c.log.InfoContext(ctx, "deleted the VIP port that a refused load balancer left behind",
			"address", address, "port", port.ID)
		freed = true
	}
	return freed, wait, nil
}

// leftBehind says whether a port is the VIP port of a load balancer that is not there, or not yet: it is in this
// project, a provider has named it, and nothing but that load balancer is, or was, attached to it.
func (c *Client) leftBehind(ctx context.Context, port plan.Observed) (bool, error) {
	id := vipOf(port.Attrs)
	if id == "" || port.Managed || c.projectID == "" || textOf(port.Attrs, "project_id") != c.projectID {
		return false, nil
	}
	k := c.kinds[drivers.KindLoadBalancer]
	_, err := c.service.Do(ctx, openstack.Call{
		Op: "reading", Method: http.MethodGet, Collection: k, Path: k.PathOf(id), What: id,
	})
	switch {
	case err == nil:
		return false, nil
	case openstack.StatusOf(err) != http.StatusNotFound: // it may be there, though these credentials cannot see it
		if openstack.Classify(err) == openstack.ClassForbidden {
			return false, nil
		}
		return false, err
	}
	users, err := c.pages(ctx, k, url.Values{"vip_port_id": {port.ID}}, openstack.Everything)
	return err == nil && len(users) == 0, err
}

// vipOf returns the id of the load balancer for which a provider made a port, to be its VIP; "" for any other port. The
// amphorae's own ports are named octavia-lb-vrrp-… and are none.
func vipOf(port map[string]any) string {
	name, device, user := textOf(port, "name"), textOf(port, "device_owner"), textOf(port, "device_id")
	id, amphora := strings.CutPrefix(name, "octavia-lb-")
	switch {
	case textOf(port, "binding:host_id") != "":
		return ""
	case amphora && (device == "" || device == "Octavia") && (user == "" || user == "lb-"+id) && isUUID(id):
		return id
	}
	id, ovn := strings.CutPrefix(name, "ovn-lb-vip-")
	if ovn && (device == "" || strings.HasPrefix(device, "ovn-lb-vip")) && (user == "" || user == name) && isUUID(id) {
		return id
	}
	return ""
}

// isUUID says whether a text is a UUID as services write it: with dashes, and in lower case.
func isUUID(text string) bool {
	id, err := uuid.Parse(text)
	return err == nil && id.String() == text
}

// firstSeen notes that a port seems to be left behind, and returns since when it does.
func (c *Client) firstSeen(port string, now time.Time) time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	maps.DeleteFunc(c.left, func(_ string, at time.Time) bool { return now.Sub(at) > sightings })
	if _, known := c.left[port]; !known {
		c.left[port] = now
	}
	return c.left[port]
}

func (c *Client) forget(port string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.left, port)
}
