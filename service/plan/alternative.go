// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"maps"
	"slices"

	"github.com/kuryr/raven/drivers"
)

// Resources of two kinds can serve for the same thing; each kind is the other's Alternative. Both of one owner never
// serve at the same time. What of the other kind goes by this plan goes first, and the one that is wanted instead waits
// for that. But nothing goes before that one could come at once: as long as it waits for something else, the old one
// serves, and what leads to it leads there.

// handovers returns a wait for each resource of the alternative kind that goes.
func (c *Computation) handovers(m *Match) []Wait {
	other := c.kinds.Of(m.Kind).Alternative
	if other == "" {
		return nil
	}
	var waits []Wait
	for _, key := range slices.Sorted(maps.Keys(c.going)) {
		o := c.going[key].observed
		if c.KindOf(o) != other {
			continue
		}
		wait := Wait{
			Resource: &Resource{Kind: other, ID: o.ID, Identity: o.Identity},
			Message:  fmt.Sprintf("waiting for %s %s to go, which serves until then", other, o.Identity),
		}
		if o.Identity.Policy == drivers.Retain {
			wait.Message = fmt.Sprintf(
				"%s %s must be deleted by hand: its policy is retain, and two cannot serve at once", other, o.ID)
		}
		waits = append(waits, wait)
	}
	return waits
}

// unready returns what a resource waits for that is wanted instead of one that goes, but for what goes by this plan.
func (c *Computation) unready(o *Observed) []Wait {
	other := c.kinds.Of(c.KindOf(o)).Alternative
	if other == "" {
		return nil
	}
	var waits []Wait
	for _, step := range c.Plan.Steps {
		if step.Op != Create || step.Kind != other {
			continue
		}
		for _, wait := range step.Waits {
			if wait.Resource == nil || !c.Leaves(wait.Resource.ID) {
				waits = append(waits, wait)
			}
		}
	}
	return waits
}

// Alternates says whether a resource that goes does so for one of its alternative kind.
func (c *Computation) Alternates(o *Observed) bool {
	other := c.kinds.Of(c.KindOf(o)).Alternative
	return other != "" && slices.ContainsFunc(c.Matches, func(m *Match) bool { return m.Kind == other })
}
