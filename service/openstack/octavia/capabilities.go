// SPDX-License-Identifier: Apache-2.0

package octavia

import (
	"maps"
	"slices"

	"github.com/kuryr/raven/service/plan"
)

// capabilities are what was learned of a provider of load balancers. Nothing of it is kept over a restart.
type capabilities struct {
	// proven: a load balancer that was made at once with all its parts became ready with all of them.
	proven bool
	// bare: of what a load balancer was made with, the parts never became ready: they are made one by one.
	bare bool
	// noMonitors: it is not asked for health monitors together with the rest.
	noMonitors bool
	// monitored: likewise proven with health monitors.
	monitored bool
	// early: a load balancer is ready before its parts are.
	early bool
	// noFailover: it cannot, or these credentials must not.
	noFailover bool
	// noAdditionalVIPs: it made none of the additional addresses that it was asked for.
	noAdditionalVIPs bool
}

// capabilitiesOf returns what is known of a provider; "" is the cloud's default. It is called with the state's lock
// held.
func (b *Backend) capabilitiesOf(provider string) *capabilities {
	c := b.providers[provider]
	if c == nil {
		// OVN's never makes the health monitors of a full create, and the default one may be OVN's.
		c = &capabilities{noMonitors: provider == "" || provider == "ovn"}
		b.providers[provider] = c
	}
	return c
}

func provider(lb plan.Observed) string {
	text, _ := lb.Attrs["provider"].(string)
	return text
}

// learn takes down what a load balancer that has become ready says of its provider.
func (b *Backend) learn(period *busyPeriod, lb plan.Observed) {
	c := b.capabilitiesOf(provider(lb))
	c.early = c.early || period.early
	if !period.full {
		return
	}
	c.proven = true
	for _, pool := range structures(lb.Attrs["pools"]) {
		c.monitored = c.monitored || pool["healthmonitor"] != nil
	}
}

// unproven says whether a load balancer that is ready may have parts that are not.
func (b *Backend) unproven(lb plan.Observed) bool {
	creating, monitors, _ := countParts(lb)
	c := b.capabilitiesOf(provider(lb))
	return creating > 0 && (!c.proven || c.early || monitors > 0 && !c.monitored) || b.busy[lb.ID].check
}

// within returns of a create what a provider can make at once.
func (c capabilities) within(attrs map[string]any) map[string]any {
	if !c.bare && !c.noMonitors {
		return attrs
	}
	attrs = maps.Clone(attrs)
	if c.bare {
		delete(attrs, "listeners")
		delete(attrs, "pools")
		return attrs
	}
	pools := slices.Clone(asList(attrs["pools"]))
	for i, element := range pools {
		pool := maps.Clone(structure(element))
		delete(pool, "healthmonitor")
		pools[i] = pool
	}
	attrs["pools"] = pools
	return attrs
}
