// SPDX-License-Identifier: Apache-2.0

package portpool

import (
	"strings"

	"github.com/kuryr/raven/drivers"
	"github.com/kuryr/raven/service/plan"
)

// KindReadyPort is the kind of a pool's port that nobody has taken. The cloud keeps it as a port.
const KindReadyPort drivers.Kind = "ready_port"

// namePrefix begins the Name in the identity of a ready port: then comes the pool's logical name, "-", and what sets it
// apart from the others.
const namePrefix = "ready."

// Kinds describes pools and what they keep. No plan makes ready ports. One deletes those whose pool is not desired.
func Kinds() []plan.Descriptor {
	return []plan.Descriptor{
		{Kind: drivers.KindPortPool, Rank: 85, References: plan.IDs("network_id", "security_groups[]")},
		{
			Kind: KindReadyPort, Rank: 82, Attributes: readyAttributes(),
			StoredAs: drivers.KindPort, NamePrefix: namePrefix, Fixed: true, Spare: true,
			References: plan.IDs("network_id", "fixed_ips[].subnet_id", "security_groups[]"),
			Stays:      hasPool,
		},
	}
}

// readyAttributes are all that is remembered of a port, since one that is taken has to have it.
func readyAttributes() []drivers.Attribute {
	list := drivers.Schema(drivers.KindPort)
	known := map[string]bool{}
	for _, a := range list {
		known[a.Name] = true
	}
	for _, name := range drivers.Shown(drivers.KindPort) {
		if !known[name] {
			list = append(list, drivers.Attribute{Name: name})
		}
	}
	return list
}

// hasPool says whether the pool of a ready port is desired, and stays.
func hasPool(c *plan.Computation, o *plan.Observed) bool {
	for _, m := range c.Matches {
		if m.Kind == drivers.KindPortPool && isOf(o.Identity, m.Key.Name) {
			return true
		}
	}
	return false
}

// isOf says whether an identity is that of a ready port of the pool with this logical name.
func isOf(ready plan.Identity, pool string) bool {
	name, ok := strings.CutPrefix(ready.Name, readyNames(pool))
	return ok && !strings.Contains(name, "-")
}

// readyNames begins the names in the identities of a pool's ready ports. There is room for what sets them apart.
func readyNames(pool string) string { return namePrefix + drivers.Shorten(pool, 28, 12, "") + "-" }
