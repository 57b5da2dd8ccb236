package openstack

import (
	"context"
	"net/http"
	"strconv"
	"strings"

	"github.com/kuryr/raven/drivers"
)

// vipsSince is the minor version of Octavia's API from which on load balancers have additional VIPs.
const vipsSince = 26

// AdditionalVIPs says whether the load balancing service knows of further addresses of a load balancer, by the versions that it says it
// has. It is not asked for more than that: a provider may ignore them. A service that names no versions counts as new.
func (c *Cloud) AdditionalVIPs(ctx context.Context) (bool, error) {
	b := c.octavia()
	if b == nil {
		return true, nil
	}
	doc, err := b.do(ctx, call{
		op: "asking for the versions", method: http.MethodGet, kind: b.kinds[drivers.KindLoadBalancer], root: true,
	})
	if err != nil {
		return true, err
	}
	known := -1
	for _, element := range listAt(doc, "versions") {
		version, _ := element.(map[string]any)
		minor, ok := strings.CutPrefix(textOf(version, "id"), "v2.")
		if n, err := strconv.Atoi(minor); ok && err == nil {
			known = max(known, n)
		}
	}
	return known < 0 || known >= vipsSince, nil
}
