// SPDX-License-Identifier: Apache-2.0

package octavia

import (
	"context"
	"net/http"
	"strconv"
	"strings"

	"github.com/kuryr/raven/drivers"
	"github.com/kuryr/raven/service/openstack"
	"github.com/kuryr/raven/service/plan"
)

// vipsSince is the minor version of Octavia's API from which on load balancers have additional VIPs.
const vipsSince = 26

// AdditionalVIPs says whether the load balancing service knows of further addresses of a load balancer, by the versions
// that it says it has. It is not asked for more than that: a provider may ignore them. A service that names no versions
// counts as new. ErrNoBalancing says that there is none, or not yet.
func (c *Client) AdditionalVIPs(ctx context.Context) (bool, error) {
	if err := c.available("asking for the versions", ""); err != nil {
		return true, err
	}
	known, err := c.version(ctx)
	return err != nil || known < 0 || known >= vipsSince, err
}

// version asks for the newest minor version of the API; -1 where it names none.
func (c *Client) version(ctx context.Context) (int, error) {
	doc, err := c.service.Do(ctx, openstack.Call{
		Op: "asking for the versions", Method: http.MethodGet, Collection: c.kinds[drivers.KindLoadBalancer], Root: true,
	})
	if err != nil {
		return -1, err
	}
	known := -1
	for _, element := range listAt(doc, "versions") {
		version, _ := element.(map[string]any)
		minor, ok := strings.CutPrefix(textOf(version, "id"), "v2.")
		if n, err := strconv.Atoi(minor); ok && err == nil {
			known = max(known, n)
		}
	}
	return known, nil
}

// additiveSince is the minor version from which on a change of many members can leave the others as they are. Older
// ones do not know the word for it, and delete them.
const additiveSince = 11

// additive says whether a change of some members of a pool can be asked for; where that is not known they are all
// named. It is remembered for as long as the service is where it is.
func (c *Client) additive(ctx context.Context) bool {
	at := c.service.Endpoint()
	c.mu.Lock()
	known, ok := c.adds[at]
	c.mu.Unlock()
	if ok {
		return known
	}
	version, err := c.version(ctx)
	if err != nil {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.adds = map[string]bool{at: version >= additiveSince}
	return c.adds[at]
}

// whole is a change of some members of a pool as one that names them all, as they are known.
func whole(lb plan.Observed, step plan.Step) plan.Step {
	var old []any
	for _, element := range listAt(lb.Attrs, "pools") {
		if pool, _ := element.(map[string]any); textOf(pool, "id") == step.Part.Pool {
			old = each(listAt(pool, "members"), func(member map[string]any) map[string]any {
				doc := map[string]any{}
				for _, name := range []string{
					"name", "address", "protocol_port", "subnet_id", "weight", "backup",
					"monitor_address", "monitor_port", "admin_state_up",
				} {
					if value, ok := member[name]; ok {
						doc[name] = value
					}
				}
				return doc
			})
		}
	}
	step.Attrs = map[string]any{"members": merged(old, step), "additive": false}
	return step
}
