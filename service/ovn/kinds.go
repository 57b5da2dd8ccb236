// SPDX-License-Identifier: Apache-2.0

package ovn

import (
	"slices"
	"strings"

	"github.com/kuryr/raven/drivers"
	"github.com/kuryr/raven/service/plan"
)

// Kinds describes the kinds of resources that OVN's northbound database keeps.
func Kinds() []plan.Descriptor {
	return []plan.Descriptor{
		{
			Kind: drivers.KindOVNLoadBalancerGroup, Rank: 110, Form: canonicalText, Contributions: plan.Plain,
			Contributed: []string{"networks", "routers"},
		},
		{
			Kind: drivers.KindOVNLoadBalancer, Rank: 120, Form: canonicalText, Alternative: drivers.KindLoadBalancer,
			References: plan.IDs("group_id"),
			Wanted: func(c *plan.Computation, name string, value any) any {
				if name == "vips" {
					return reachable(c, value)
				}
				return value
			},
		},
	}
}

// canonicalText is the canonical form of the texts of OVN load balancers.
func canonicalText(name, text string) string {
	switch name {
	case "address":
		return plan.Address(text)
	case "protocol":
		return strings.ToLower(text)
	}
	return text
}

// reachable returns the VIPs of an OVN load balancer whose addresses are known. The others wait by themselves: they
// hold up nothing.
func reachable(c *plan.Computation, wanted any) any {
	list, ok := wanted.([]any)
	if !ok {
		return wanted
	}
	known := make([]any, 0, len(list))
	for _, vip := range list {
		value, waits := c.Value(vip)
		if len(waits) == 0 {
			known = append(known, value)
		}
		for _, wait := range waits {
			if !slices.ContainsFunc(c.Plan.Pending, func(p plan.Wait) bool { return p.Message == wait.Message }) {
				c.Plan.Pending = append(c.Plan.Pending, wait)
			}
		}
	}
	return known
}
